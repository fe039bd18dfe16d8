"""`kvchat kv ls`, `kv show`, `kv verify` and `kv gc`: the KV that is kept on disk. Owns how it is printed; needs no
engine. Pinned prefixes are listed by `prefixes`."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from typing import TextIO

from kvchat.clean import clean_line
from kvchat.commands.database import open_chats
from kvchat.commands.prefixes import drop_orphans, listed, print_listed, seconds_text, told
from kvchat.commands.table import print_facts, print_table, size_text, time_text
from kvchat.config import Settings
from kvchat.kv.collecting import Collected, collect
from kvchat.kv.namespace import Namespace
from kvchat.kv.overview import SHORT_KEY, Chain, ChainPages, chain_pages, chains
from kvchat.kv.rows import Row
from kvchat.kv.verify import VerifyReport, verify
from kvchat.paths import Paths

_CHAIN_COLUMNS = (
    "chain",
    "parent",
    "model",
    "k/v",
    "from",
    "start",
    "tokens",
    "pages",
    "states",
    "size",
    "last use",
    "hits",
    "saved",
    "pinned",
)
_PAGE_COLUMNS = ("page", "kind", "tag", "start", "tokens", "size", "computed in", "last use", "hits", "saved", "pinned")
_NUMBERS = {"start", "tokens", "pages", "states", "size", "hits", "saved", "computed in"}


def run_ls(paths: Paths, *, json: bool, out: TextIO) -> int:
    """Print all chains of pages, the last used first, and all pinned prefixes behind them. Exit code 0."""
    found, prefixes = chains(paths.kv_folder), listed(paths)
    if json:
        entries = [*(asdict(chain) for chain in found), *map(told, prefixes)]
        print(jsonlib.dumps(entries, indent=2), file=out)
        return 0
    if found:
        print_table(_CHAIN_COLUMNS, map(_chain_cells, found), out, numbers=_NUMBERS)
        pages, states = sum(chain.pages for chain in found), sum(chain.checkpoints for chain in found)
        counted = _counted(pages, "page") + (f", {_counted(states, 'checkpoint')}" if states else "")
        print(f"\n{counted}, {size_text(sum(chain.bytes for chain in found))}", file=out)
    else:
        print(f"no saved KV in {clean_line(str(paths.kv_folder))}", file=out)
    if prefixes:
        print(file=out)
        print_listed(prefixes, out)
    return 0


def run_show(paths: Paths, chain_prefix: str, *, json: bool, out: TextIO) -> int:
    """Print the pages and checkpoints of one chain, named by the beginning of its key. KvchatError when that names none
    or several."""
    found = chain_pages(paths.kv_folder, chain_prefix)
    if json:
        print(jsonlib.dumps([_page_fields(row) for row in _in_order(found)], indent=2), file=out)
    else:
        _print_chain(found, out)
    return 0


def run_verify(paths: Paths, *, json: bool, out: TextIO) -> int:
    """Check every page, move damaged ones away, repair the index, and print what was found. Exit code 0: damage that
    was found has been dealt with. KvchatError when it cannot be."""
    report = verify(paths.kv_folder)
    if json:
        print(jsonlib.dumps([asdict(report)], indent=2), file=out)
    else:
        _print_report(report, paths, out)
    return 0


def run_gc(paths: Paths, settings: Settings, *, json: bool, out: TextIO) -> int:
    """Delete what the page store does not need, and what is beyond the budget, and print what went. Exit code 0.
    KvchatError when something cannot be deleted."""
    if paths.chats_db.exists():
        with open_chats(paths) as store:
            drop_orphans(paths.kv_folder, store)
    found = collect(paths.kv_folder, settings.kv_budget)
    if json:
        print(jsonlib.dumps([asdict(found)], indent=2), file=out)
    else:
        _print_collected(found, out)
    return 0


def _in_order(found: ChainPages) -> list[Row]:
    """A checkpoint behind the page in which it lies."""
    order = {page.parent: number for number, page in enumerate(found.pages)}
    rows = (*found.pages, *found.checkpoints)
    return sorted(rows, key=lambda row: (order[row.parent], row.kind == "checkpoint", row.tokens))


def _page_fields(row: Row) -> dict[str, object]:
    return {
        "page": row.key.hex(),
        "kind": row.kind,
        "parent": row.parent.hex(),
        "namespace": row.namespace,
        "tag": row.tag,
        "start": row.position,
        "tokens": row.tokens,
        "bytes": row.bytes,
        "seconds": row.seconds,
        "last_use": row.last_use,
        "hits": row.hits,
        "seconds_saved": row.seconds_saved,
        "pinned": row.pinned,
    }


def _print_chain(found: ChainPages, out: TextIO) -> None:
    chain = found.chain
    before = "goes on after an eviction from" if found.pages[0].after else "branches off"
    facts = {"chain": chain.chain, before: chain.parent or "-", **_namespace_facts(found.namespace)}
    facts["lineage"] = f"transcoded from {clean_line(chain.lineage)}" if chain.lineage else "computed"
    if chain.draft:
        facts["kept for"] = "drafting: the first to go when the store is full"
    if chain.checkpoints:
        counted = _counted(chain.checkpoints, "recurrent state")
        facts["checkpoints"] = f"{counted}, {size_text(chain.checkpoint_bytes)}"
    print_facts(facts, out)
    print(file=out)
    print_table(_PAGE_COLUMNS, map(_page_cells, _in_order(found)), out, numbers=_NUMBERS)


def _namespace_facts(namespace: Namespace | None) -> dict[str, str]:
    if namespace is None:
        return {"model": "unknown: namespace.json is missing or damaged"}
    return {
        "model": namespace.model,
        "fingerprint": namespace.fingerprint,
        "cache type": f"{namespace.type_k} / {namespace.type_v}" + (", rotated" if namespace.rotation else ""),
        "LoRA": namespace.lora or "-",
        "RoPE": ", ".join(f"{name} {value}" for name, value in namespace.rope) or "-",
        "llama-cpp-python": namespace.backend_version,
    }


def _print_report(report: VerifyReport, paths: Paths, out: TextIO) -> None:
    print(f"{_counted(report.pages, 'page')} sound, {size_text(report.bytes)}", file=out)
    if report.damaged:
        aside = clean_line(str(paths.kv_folder / "damaged"))
        print(f"{_counted(report.damaged, 'page')} damaged, moved to {aside}", file=out)
    if report.unreadable:
        print(f"{_counted(report.unreadable, 'page')} unreadable, left where they are", file=out)
    if report.foreign:
        print(f"{_counted(report.foreign, 'page')} of another version of kvchat, left where they are", file=out)
    if report.stale:
        print(f"{_counted(report.stale, 'page')} in the index without a file, forgotten", file=out)
    if report.added:
        print(f"{_counted(report.added, 'page')} not in the index, added", file=out)
    if report.corrected:
        print(f"{_counted(report.corrected, 'page')} wrong in the index, corrected", file=out)
    if report.temporary:
        print(f"{_counted(report.temporary, 'unfinished file')} deleted", file=out)


def _print_collected(found: Collected, out: TextIO) -> None:
    if found.temporary:
        print(f"{_counted(found.temporary, 'unfinished file')} deleted", file=out)
    if found.damaged:
        print(f"{_counted(found.damaged, 'damaged page')} that had been moved away deleted", file=out)
    if found.stale:
        print(f"{_counted(found.stale, 'page')} in the index without a file, forgotten", file=out)
    if found.added:
        print(f"{_counted(found.added, 'page')} not in the index, added", file=out)
    if found.evicted:
        print(f"{_counted(found.evicted, 'page')} evicted, {size_text(found.freed)}", file=out)
    print(f"{_counted(found.pages, 'page')} left, {size_text(found.bytes)} of {size_text(found.budget)}", file=out)
    if found.over:
        print(f"{size_text(found.over)} more than the budget are pinned: see kvchat kv ls, kvchat kv unpin", file=out)


def _chain_cells(chain: Chain) -> tuple[str, ...]:
    return (
        chain.chain,
        chain.parent or "-",
        (clean_line(chain.model) or "?") + (" (draft)" if chain.draft else ""),
        f"{chain.type_k or '?'}/{chain.type_v or '?'}",
        clean_line(chain.lineage) or "-",
        str(chain.start),
        str(chain.tokens),
        str(chain.pages),
        str(chain.checkpoints) if chain.checkpoints else "-",
        size_text(chain.bytes),
        time_text(chain.last_use),
        str(chain.hits),
        seconds_text(chain.seconds_saved),
        "yes" if chain.pinned else "-",
    )


def _page_cells(row: Row) -> tuple[str, ...]:
    return (
        row.key.hex()[:SHORT_KEY],
        row.kind,
        clean_line(row.tag) or "-",
        str(row.position),
        str(row.tokens),
        size_text(row.bytes),
        seconds_text(row.seconds),
        time_text(row.last_use),
        str(row.hits),
        seconds_text(row.seconds_saved),
        "yes" if row.pinned else "-",
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
