"""`kvchat models show`: what is known about one model. Must not load its weights.

Owns the form. What only llama.cpp knows (its vocabulary, what the template makes of a conversation) is asked of a
process of its own; without an answer the rest is told all the same.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from kvchat.backend.errands import look
from kvchat.backend.inspection import Look, Looked, Vocabulary
from kvchat.backend.values import CACHE_TYPES
from kvchat.clean import clean, clean_line
from kvchat.commands.table import count_text, print_facts, print_table, size_text
from kvchat.errors import KvchatError
from kvchat.formats.gguf import GgufHeader
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.matching import PAGE_TOKENS
from kvchat.library.details import Details, details
from kvchat.library.find import ModelFile, check, drop_in_folders, find_files, resolve
from kvchat.library.pairing import Proposal, proposals
from kvchat.paths import Paths

_MOST_LINES, _MOST_CHARACTERS = 60, 4000  # of an example
_MOST_TOKENS = 8  # that are named as ends of an answer


@dataclass(frozen=True, slots=True)
class _Shown:
    """All that is shown of a model. `looked` None: `problem` says why."""

    model: ModelFile
    header: GgufHeader
    shape: Geometry
    details: Details
    drafts: tuple[Proposal, ...]
    looked: Looked | None
    problem: str | None


def run_show(
    paths: Paths,
    name: str,
    /,
    *,
    json: bool,
    out: TextIO,
    folders: Sequence[Path] = (),
    ask: Callable[[Look, Path], Looked] = look,
) -> int:
    """Print what is known about one model, by name or path, and which models here could draft for it. KvchatError when
    there is no such model or it is broken."""
    models = find_files(paths, drop_in_folders(folders))
    model = resolve(name, models)
    header = check(model)
    looked, problem = None, None
    try:
        looked = ask(Look(str(model.path)), paths.log_file)
        problem = looked.problem
    except KvchatError as error:
        problem = error.message
    shown = _Shown(
        model,
        header,
        geometry(header),
        details(model, header),
        tuple(proposals(model, [each for each in models if not each.unfit])),
        looked,
        problem,
    )
    if json:
        print(jsonlib.dumps(_object(shown)), file=out)
    else:
        _print(shown, out)
    return 0


def _bytes_per_token(shape: Geometry) -> dict[str, int | None]:
    """By type, the same for K and V; None where llama.cpp refuses it for this model."""
    return {
        kind: None if shape.refusal(kind, kind, "auto") else shape.bytes_per_token(kind, kind) for kind in CACHE_TYPES
    }


# ------------------------------------------------------------------ as JSON


def _object(shown: _Shown) -> dict[str, object]:
    model, header, shape, found = shown.model, shown.header, shown.shape, shown.details
    vocabulary = shown.looked.vocabulary if shown.looked else None
    example = shown.looked.example if shown.looked else None
    return {
        "name": model.name,
        "title": header.text("general.name"),
        "author": found.author or None,
        "license": found.licence or None,
        "license_link": found.licence_link or None,
        "base_model": found.base_model or None,
        "architecture": header.architecture,
        "attention": shape.attention,
        "layers": shape.layers,
        "parameters": found.parameters,
        "size": model.size,
        "quantization": header.quantization,
        "bits_per_weight": round(found.bits_per_weight, 3),
        "tensor_types": [asdict(share) for share in found.mix],
        "context_trained": shape.context_trained,
        "kv_bytes_per_token": _bytes_per_token(shape),
        "window": shape.window,
        "state_bytes": shape.state_bytes,
        "kept_on_disk": shape.kept,
        "state_parts": list(shape.parts),
        "chat_template": header.chat_template is not None,
        "template_example": asdict(example) if example else None,
        "vocabulary": asdict(vocabulary) if vocabulary else None,
        "problem": shown.problem,
        "path": str(model.path),
        "source": model.source,
        "draft_models": [
            {"name": each.model.name, "path": str(each.model.path), "why": each.why} for each in shown.drafts
        ],
    }


# ------------------------------------------------------------------ for a person


def _print(shown: _Shown, out: TextIO) -> None:
    print_facts(_facts(shown), out)
    if shown.details.mix:
        print(file=out)
        rows = [
            (share.type, f"{share.tensors:,}", count_text(share.elements), size_text(share.bytes), f"{share.share:.1%}")
            for share in shown.details.mix
        ]
        columns = ("weights", "tensors", "elements", "size", "share")
        print_table(columns, rows, out, numbers=columns[1:])
    if shown.problem:
        print(f"\nWhat llama.cpp makes of it cannot be told: {clean_line(shown.problem)}", file=out)
    example = shown.looked.example if shown.looked else None
    if example is not None:
        print(f"\nA conversation as this model reads it, {example.tokens:,} tokens:", file=out)
        for line in example_lines(example.text):
            print(f"  {line}".rstrip(), file=out)


def _facts(shown: _Shown) -> dict[str, str]:
    model, header, shape, found = shown.model, shown.header, shown.shape, shown.details
    facts = {
        "name": model.name,
        "title": header.text("general.name") or "-",
        "author": found.author,
        "licence": " ".join(filter(None, (found.licence, found.licence_link))) or "the file names none",
        "made from": found.base_model,
        "architecture": header.architecture,
        "attention": f"{shape.attention}, {shape.layers} layers"
        + (f", window {shape.window:,} tokens" if shape.window else ""),
        "parameters": count_text(found.parameters),
        "weights": f"{header.quantization}, {size_text(model.size)}, {found.bits_per_weight:.2f} bits per weight",
        "context": f"{shape.context_trained:,} tokens",
        "KV per token": ", ".join(
            f"{kind} {'not possible' if size is None else f'{size:,} bytes'}"
            for kind, size in _bytes_per_token(shape).items()
        ),
        "state": f"{size_text(shape.state_bytes)} per chat" if shape.state_bytes else "-",
        "reuse": _reuse(shape),
        **_vocabulary_facts(shown.looked.vocabulary if shown.looked else None),
        "chat template": _template(shown),
        "draft models": "; ".join(f"{each.model.name} ({each.why})" for each in shown.drafts) or "none found",
        "path": str(model.path),
        "source": model.source,
    }
    return {label: text for label, text in facts.items() if text}


def _vocabulary_facts(vocabulary: Vocabulary | None) -> dict[str, str]:
    if vocabulary is None:
        return {}
    more = len(vocabulary.ends) - _MOST_TOKENS
    ends = [f"{text!r} ({token})" for token, text in vocabulary.ends[:_MOST_TOKENS]]
    return {
        "vocabulary": f"{vocabulary.kind}, {vocabulary.size:,} tokens; "
        + ("each prompt begins with BOS" if vocabulary.adds_bos else "no BOS is added"),
        "special tokens": ", ".join(f"{token.role} {token.text!r} ({token.id})" for token in vocabulary.special) or "-",
        "ends of answers": ", ".join(ends) + (f" and {more} more" if more > 0 else "") or "-",
    }


def _template(shown: _Shown) -> str:
    example = shown.looked.example if shown.looked else None
    if example is not None and example.note:
        return example.note
    if not shown.header.chat_template:
        return "none, ChatML is used"
    return "yes" if example is None or example.system_role else "yes, without a place for a system prompt"


def example_lines(text: str) -> list[str]:
    """A rendered conversation for a terminal: clean, and not endless."""
    lines = clean(text[:_MOST_CHARACTERS]).splitlines()
    if len(lines) > _MOST_LINES or len(text) > _MOST_CHARACTERS:
        return [*lines[:_MOST_LINES], "…"]
    return lines


def _reuse(shape: Geometry) -> str:
    """How what was computed is found again."""
    rows = f"pages of {PAGE_TOKENS} tokens" + (", window rows with them" if "window" in shape.parts else "")
    match shape.parts:
        case ():
            return "only in memory: kvchat does not take this state apart"
        case ("state",):
            return "checkpoints of the recurrent state"
        case (*_, "state"):
            return f"checkpoints of the recurrent state; attention rows in {rows}"
        case _:
            return rows
