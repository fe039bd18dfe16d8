"""`kvchat bench fidelity`: what cache types do to a model, measured on a chat or a text.

Owns the order of it: model, engine, text, the wait, the report. Must not measure. The engine is one of its own with a
small context, so that an open app is not disturbed.
"""

from __future__ import annotations

import json as jsonlib
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from kvchat.backend.client import EngineFactory
from kvchat.backend.fidelity import FidelityReport, Measure, Pair
from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, LoadFailed, Ready
from kvchat.backend.values import EngineConfig
from kvchat.bench.fidelity import DEPTHS, Watch, passage, read_depths
from kvchat.bench.fidelity_text import COLUMNS, SCALE, about, cells, curve, depths, heading, name_of, report_object
from kvchat.chats.store import ChatStore
from kvchat.choosing import choose_model
from kvchat.clean import clean, clean_line
from kvchat.commands.bench_progress import Progress
from kvchat.commands.table import print_table
from kvchat.commands.turn import Inbox, Interrupt, catch_signals
from kvchat.config import Settings, engine_config
from kvchat.conversation.turns import ids_key
from kvchat.errors import INTERRUPTED, KvchatError
from kvchat.library.find import drop_in_folders, find_files
from kvchat.paths import Paths, ensure_private

_TURN = "bench fidelity"
_CONTEXT = 512  # tokens: nobody chats in it
_LARGEST_TEXT = 16 << 20  # bytes
_WIDTH = 64  # blocks of a curve


def run_fidelity(
    settings: Settings,
    paths: Paths,
    *,
    chat: str | None,
    text_file: str | None,
    depths_text: str | None,
    pairs: tuple[Pair, ...],
    json: bool,
    out: TextIO,
    err: TextIO,
    engine_factory: EngineFactory = Engine,
) -> int:
    """Measure and print, on a `chat` (id, beginning of one, or title), on the text in a file, or on a text of our own.
    KvchatError when it cannot be measured; the exit code."""
    wanted = read_depths(depths_text) if depths_text is not None else DEPTHS
    text = passage() if text_file is None else _read(Path(text_file))
    ensure_private(paths.state_folder)
    inbox = Inbox()
    with ExitStack() as stack:
        store = ChatStore(paths.chats_db) if chat is not None else None
        if store is not None:
            stack.enter_context(closing(store))
        opened = store.resolve(chat) if store is not None and chat is not None else None
        models = find_files(paths, drop_in_folders(settings.model_folders))
        config = _config(settings, choose_model(settings, models, opened, None).path, paths)
        engine = engine_factory(config, inbox.put, paths.state_folder, paths.log_file)
        stack.callback(engine.close)
        stack.enter_context(catch_signals(inbox))
        engine.start()
        ready = _ready(inbox)
        if ready is None:
            return INTERRUPTED
        ids: tuple[int, ...] = ()
        if store is not None and opened is not None:
            ids = _ids(store, opened.head, ids_key(ready.model.text_key, opened.system))
        engine.measure(Measure(_TURN, ids, text, wanted, pairs, transcode=True))
        report = _wait(inbox, err)
    if report is None:
        return INTERRUPTED
    if json:
        print(jsonlib.dumps(report_object(report)), file=out)
    else:
        _print(report, out)
    return 0


def _config(settings: Settings, model: Path, paths: Paths) -> EngineConfig:
    """The settings' engine, without what only a chat needs."""
    config = engine_config(settings, model, paths)
    return replace(config, context=_CONTEXT, type_k="f16", type_v="f16", kv_folder=None, draft_path=None)


def _read(file: Path) -> str:
    try:
        size = file.stat().st_size
        text = file.read_text("utf-8", "replace") if size <= _LARGEST_TEXT else ""
    except OSError as error:
        raise KvchatError(f"{file} cannot be read: {error.strerror}", "--text takes a file of plain text") from None
    if size > _LARGEST_TEXT:
        raise KvchatError(f"{file} is larger than {_LARGEST_TEXT >> 20} MiB", "a few pages of text are enough")
    return text


def _ids(store: ChatStore, head: str | None, key: str) -> tuple[int, ...]:
    """Token ids of the branch, up to the first message whose are not known."""
    known = store.known_ids(head, key) if head is not None else {}
    ids: list[int] = []
    for message in store.path(head):
        stored = known.get(message.id)
        if stored is None or stored.ids is None:
            break
        ids += stored.ids
    if not ids:
        raise KvchatError(
            "this chat has no tokens of this model", "have it answer there first, or measure on a text: --text FILE"
        )
    return tuple(ids)


def _ready(inbox: Inbox) -> Ready | None:
    """The loaded model; None when somebody interrupts. KvchatError when there will be none."""
    while True:
        match inbox.next():
            case Interrupt():
                return None
            case Ready() as ready:
                return ready
            case LoadFailed(failure=failure):
                raise KvchatError(failure.message, failure.hint)


def _wait(inbox: Inbox, err: TextIO) -> FidelityReport | None:
    """The report; None when somebody interrupts."""
    progress = Progress(err)
    watch = Watch(_TURN, lambda done, total: progress.show("fidelity", done, total, f"of {total:,} tokens"))
    try:
        while not watch.over:
            item: Event | Interrupt | KvchatError = inbox.next()
            if isinstance(item, Interrupt):
                return None
            if isinstance(item, KvchatError):
                raise item
            watch.take(item)
    finally:
        progress.end()
    return watch.report


def _print(report: FidelityReport, out: TextIO) -> None:
    print(clean_line(about(report)), file=out)
    for depth in depths(report):
        print(f"\n{heading(report, depth)}", file=out)
        rows = [cells(row, at) for row in report.rows for at in row.depths if at.depth == depth]
        print_table(COLUMNS, rows, out, numbers=COLUMNS[1:])
    drawn = {name_of(row): curve(row, _WIDTH) for row in report.rows if row.curve}
    if drawn:
        print(f"\n{SCALE}", file=out)
        width = max(map(len, drawn))
        for name, line in drawn.items():
            print(f"{name:<{width}}  {line}", file=out)
    for refusal in report.refused:
        print(f"note: {clean(refusal)}", file=out)
    print(f"\nmeasured in {report.seconds:,.0f} s", file=out)
