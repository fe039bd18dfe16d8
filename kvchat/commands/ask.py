"""`kvchat ask`: one turn of a saved chat, its answer streamed to stdout.

Owns the order of events of one turn without a screen. Must not know how answers are made or stored: Conversation and
Engine do that, here as in the app. Everything happens on the calling thread; what others have to say comes by a queue.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TextIO

from kvchat.backend.client import Backend, EngineFactory
from kvchat.backend.guarding import REFUTED
from kvchat.backend.local import Engine
from kvchat.backend.protocol import Ready, TurnFinished
from kvchat.backend.values import Failure
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat
from kvchat.choosing import as_before, check_conversation, choice_to_keep, choose_model, for_model, with_draft
from kvchat.clean import clean_line
from kvchat.commands.fitting import fitted
from kvchat.commands.printing import Printer
from kvchat.commands.report import Answer, report, summary
from kvchat.commands.summarizing import Done, watch_turn
from kvchat.commands.turn import Inbox, Outcome, catch_signals
from kvchat.config import Settings, engine_config
from kvchat.conversation import Conversation, EngineChoice, Said
from kvchat.conversation.overflow_words import cannot_evict
from kvchat.conversation.too_long import larger_context
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.library.find import drop_in_folders, find_files
from kvchat.paths import Paths, ensure_private

LARGEST_INPUT = 16 << 20  # characters; more than any context holds


def run_ask(
    question: Sequence[str],
    settings: Settings,
    paths: Paths,
    *,
    chat: str | None,
    continue_last: bool,
    resume: bool,
    json: bool,
    out: TextIO,
    err: TextIO,
    stdin: TextIO,
    engine_factory: EngineFactory = Engine,
) -> int:
    """Ask in a new chat, in `chat` (id, beginning of one, or title) or in the last one; the exit code.

    `resume` goes on with an unfinished answer instead. KvchatError when there is no answer: stdout has none then,
    or only what had come, and the chat keeps it. Also when the chat cannot keep the answer: stdout has it then.
    """
    if resume and question:
        raise UsageError("--resume goes on with an answer and takes no question", "leave one of them out")
    text = "" if resume else _question(question, stdin)
    ensure_private(paths.state_folder)
    inbox = Inbox()
    printer = Printer(out, err, quiet=json)
    with ExitStack() as stack:
        stack.callback(_say_unsaved, inbox, printer)
        store = StoreThread(paths.chats_db, inbox.put)
        stack.callback(store.close)
        old = _chat(store, chat, continue_last or resume)
        models = find_files(paths, drop_in_folders(settings.model_folders))
        model = choose_model(settings, models, old, store.run(ChatStore.latest).result())
        settings = for_model(as_before(settings, model.path, old), models, model.path)
        settings = with_draft(settings, models, model.path, old)
        config = engine_config(settings, model.path, paths)
        config = fitted(
            config, settings, new=old is None, note=printer.note, anyway=partial(_anyway, stdin=stdin, err=err)
        )
        choice = choice_to_keep(config, settings, old)
        engine = engine_factory(config, inbox.put, paths.state_folder, paths.log_file)
        conversation = _conversation(store, engine, old, settings)
        check_conversation(conversation, config, settings)
        stack.callback(engine.close)
        engine.start()
        with catch_signals(inbox):
            if old is None:  # written with the question
                _keep(choice, conversation, printer)
            (conversation.resume() if resume else conversation.submit(text)).result()
            outcome, summaries = watch_turn(conversation, config, inbox, printer)
            if old is not None and outcome.ready is not None:
                _keep(choice, conversation, printer)
    return _finish(outcome, summaries, conversation, printer, json)


def _anyway(why: str, *, stdin: TextIO, err: TextIO) -> bool:
    """Whether somebody who is there wants to load what does not fit."""
    if not (stdin.isatty() and err.isatty()):
        return False
    print(clean_line(why), file=err)
    print("Load it all the same? The machine may become slow. [y/N]", end=" ", file=err, flush=True)
    return stdin.readline().strip().lower() in {"y", "yes"}


def _question(words: Sequence[str], stdin: TextIO) -> str:
    """What is asked: stdin, unless somebody types there, before the words."""
    piped = "" if stdin.isatty() else stdin.read(LARGEST_INPUT + 1)
    if len(piped) > LARGEST_INPUT:
        raise KvchatError(f"stdin holds more than {LARGEST_INPUT >> 20} million characters", "no context holds as much")
    parts = [part for part in (piped.rstrip("\n"), " ".join(words)) if part.strip()]
    if not parts:
        raise UsageError("there is no question", 'kvchat ask "..."')
    return "\n\n".join(parts)


def _chat(store: StoreThread, wanted: str | None, last: bool) -> Chat | None:
    """The chat to go on with; None for a new one."""
    if wanted is not None:
        return store.run(ChatStore.resolve, wanted).result()
    if not last:
        return None
    chat = store.run(ChatStore.latest).result()
    if chat is None:
        raise KvchatError("there are no chats yet", 'kvchat ask "..." starts one')
    return chat


def _keep(choice: EngineChoice, conversation: Conversation, printer: Printer) -> None:
    """The chat remembers with what it is run. Without that it can still go on, so it is no reason to fail."""
    try:
        conversation.set_engine(choice).result()
    except KvchatError as error:
        printer.problem(error)


def _conversation(store: StoreThread, engine: Backend, chat: Chat | None, settings: Settings) -> Conversation:
    if chat is None:
        return Conversation.start(
            store,
            engine,
            system=settings.system or "",
            sampling=settings.sampling,
            history=settings.history,
            keep_kv=settings.kv,
            draft=settings.draft,
            overflow=settings.overflow,
            new=Said(settings.new_draft, settings.new_overflow),
        )
    return Conversation.open(
        store,
        engine,
        chat.id,
        system=settings.new_system,
        sampling=settings.sampling,
        history=settings.history,
        keep_kv=settings.kv,
        draft=settings.draft,
        overflow=settings.overflow,
        new=Said(settings.new_draft, settings.new_overflow),
    ).result()


def _say_unsaved(inbox: Inbox, printer: Printer) -> None:
    """What the store has said since somebody listened, up to its end."""
    for error in inbox.errors():
        printer.problem(error)


def _finish(
    outcome: Outcome, summaries: Sequence[Done], conversation: Conversation, printer: Printer, json: bool
) -> int:
    """Say how it ended."""
    finished, ready = outcome.finished, outcome.ready
    if finished is None or ready is None:
        return INTERRUPTED
    if finished.usage.save_problem:
        printer.note(f"the KV state of this turn is not kept: {finished.usage.save_problem}")
    if finished.usage.cut == "check":
        printer.note(REFUTED)
    if finished.reason in {"error", "died"} or finished.failure:
        raise _failed(finished, conversation.chat.id, ready.model.context_trained)
    if finished.reason == "context":
        printer.note(f"the context of {ready.cache.context} tokens is full, so the answer ends here: {_ways_on(ready)}")
    if json:
        reply = conversation.messages[-1]
        answer = Answer(conversation.chat.id, reply.id, reply.text, finished.reason)
        told = [summary.told() for summary in summaries]
        printer.line(jsonlib.dumps(report(answer, ready, finished.usage, told)))
    printer.aside(summary(finished.usage))
    if unsaved := conversation.unsaved:
        raise KvchatError(f"this answer could not be saved in its chat: {unsaved.message}", unsaved.hint)
    return INTERRUPTED if finished.reason == "cancelled" else 0


def _ways_on(ready: Ready) -> str:
    """What helps when a context is full."""
    lets_go = "" if cannot_evict(ready) else ", or --overflow shift, sinks, prune or summarize lets some go"
    return f"a larger --ctx-size{lets_go}; --resume goes on"


def _failed(finished: TurnFinished, chat: str, trained: int) -> KvchatError:
    failure = finished.failure or Failure("the engine gave up on this turn")
    if finished.usage.excess:
        larger = larger_context(finished.usage.prompt_tokens, trained)
        again = f"kvchat ask --resume --chat {chat} --ctx-size {larger}"
        more = "" if larger is None else f", or if there is memory for it a larger context: {again}"
        return KvchatError(failure.message, f"a shorter question, a new chat{more}")
    if finished.reason == "died":
        return KvchatError(failure.message, f"what had come is kept; go on with: kvchat ask --resume --chat {chat}")
    return KvchatError(failure.message, failure.hint)
