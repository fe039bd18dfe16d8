"""`kvchat ask`: one turn of a saved chat, its answer streamed to stdout.

Owns the order of events of one turn without a screen. Must not know how answers are made or stored: Conversation and
Engine do that, here as in the app. Everything happens on the calling thread; what others have to say comes by a queue.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TextIO

from kvchat.backend.client import Backend, EngineFactory
from kvchat.backend.guarding import REFUTED
from kvchat.backend.protocol import Ready, TurnFinished
from kvchat.backend.switching import SwitchingEngine
from kvchat.backend.values import Failure, OverflowPolicy
from kvchat.chats.prefixes import Prefix
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat
from kvchat.choosing import as_computed, check_conversation, choice_to_keep
from kvchat.commands.prefixes_start import name_of, read_anew, wanted_prefix
from kvchat.commands.printing import Printer
from kvchat.commands.report import Answer, report, summary
from kvchat.commands.several import SeveralWatch, finish_several
from kvchat.commands.starting import asked_at, configured
from kvchat.commands.summarizing import Done, watch_turn
from kvchat.commands.turn import Inbox, Outcome, catch_signals
from kvchat.config import Settings
from kvchat.conversation import Conversation, EngineChoice, Said
from kvchat.conversation.overflow_words import impossible
from kvchat.conversation.samplings import differing
from kvchat.conversation.too_long import larger_context
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.leftovers import tidy
from kvchat.library.find import drop_in_folders, find_files
from kvchat.paths import Paths, close_to_others, ensure_private

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
    count: int = 1,
    prefix: str | None = None,
    engine_factory: EngineFactory = SwitchingEngine,
) -> int:
    """Ask in a new chat, in `chat` (id, beginning of one, or title) or in the last one; the exit code.

    `resume` goes on with an unfinished answer instead. KvchatError when there is no answer: stdout has none then,
    or only what had come, and the chat keeps it. Also when the chat cannot keep the answer: stdout has it then.
    `count` answers are written side by side; the chat goes on with the first one. `prefix`: the new chat begins with
    the pinned one of this name.
    """
    begun = wanted_prefix(prefix, settings, paths, goes_on=chat is not None or continue_last or resume)
    if resume and count != 1:
        raise UsageError("--resume goes on with one answer", "leave out --n, or ask a question")
    if resume and question:
        raise UsageError("--resume goes on with an answer and takes no question", "leave one of them out")
    text = "" if resume else _question(question, stdin)
    ensure_private(paths.state_folder)
    inbox = Inbox()
    printer = Printer(out, err, quiet=json)
    with ExitStack() as stack:
        stack.callback(_say_unsaved, inbox, printer)
        store = StoreThread(None if settings.incognito else paths.chats_db, inbox.put)
        stack.callback(store.close)
        for remark in (*close_to_others(paths), *tidy(paths), *store.run(lambda opened: opened.remarks).result()):
            printer.note(remark)
        old = _chat(store, chat, continue_last or resume)
        models = find_files(paths, drop_in_folders(settings.model_folders))
        latest = store.run(ChatStore.latest).result()
        settings = settings if begun is None else as_computed(settings, models, begun)
        start = configured(settings, paths, models, old, latest, note=printer.note, anyway=asked_at(stdin, err))
        config, settings = start.config, start.settings
        choice = choice_to_keep(config, settings, old)
        engine = engine_factory(config, inbox.put, paths.state_folder, paths.log_file)
        conversation = _conversation(store, engine, old, settings, begun)
        check_conversation(conversation, config, settings)
        stack.callback(engine.close)
        engine.start()
        with catch_signals(inbox):
            if old is None:  # written with the question
                _keep(choice, conversation, printer)
            several: SeveralWatch | None = None
            summaries: Sequence[Done] = ()
            if count > 1:
                conversation.ask_alternatives(differing(conversation.sampling, count), text).result()
                several = SeveralWatch(conversation, config, inbox, printer)
                outcome = several.run()
            else:
                (conversation.resume() if resume else conversation.submit(text)).result()
                if conversation.went_on:
                    printer.note(conversation.went_on)
                outcome, summaries = watch_turn(conversation, config, inbox, printer)
            if old is not None and outcome.ready is not None:
                _keep(choice, conversation, printer)
        named = name_of(store, conversation.chat.prefix)
    if begun is not None and outcome.ready is not None and outcome.finished is not None:
        for said in read_anew(begun, outcome.ready, outcome.finished.usage):
            printer.note(said)
    if several is not None:
        return finish_several(several, outcome.ready, conversation, printer, json, prefix=named)
    return _finish(outcome, summaries, conversation, printer, json, named)


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


def _conversation(
    store: StoreThread, engine: Backend, chat: Chat | None, settings: Settings, prefix: Prefix | None
) -> Conversation:
    if chat is None:
        return Conversation.start(
            store,
            engine,
            system=settings.system or "" if prefix is None else prefix.text,
            clock=None if prefix is None else prefix.clock,
            prefix=None if prefix is None else prefix.id,
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
    outcome: Outcome,
    summaries: Sequence[Done],
    conversation: Conversation,
    printer: Printer,
    json: bool,
    prefix: str | None,
) -> int:
    """Say how it ended. `prefix`: the name of the one that the chat is on."""
    finished, ready = outcome.finished, outcome.ready
    if finished is None or ready is None:
        return INTERRUPTED
    if finished.usage.save_problem:
        printer.note(f"the KV state of this turn is not kept: {finished.usage.save_problem}")
    if finished.usage.cut == "check":
        printer.note(REFUTED)
    if finished.reason in {"error", "died"} or finished.failure:
        raise _failed(finished, conversation, ready)
    if finished.reason == "context":
        goes_on = "" if conversation.incognito else "; --resume goes on"
        ways = f"a larger --ctx-size{_letting_go(conversation, ready)}{goes_on}"
        printer.note(f"the context of {ready.cache.context} tokens is full, so the answer ends here: {ways}")
    if json:
        reply = conversation.messages[-1]
        answer = Answer(conversation.chat.id, reply.id, reply.text, finished.reason, prefix)
        if conversation.incognito:  # gone with its ids
            answer = replace(answer, chat=None, message=None)
        told = [summary.told() for summary in summaries]
        printer.line(jsonlib.dumps(report(answer, ready, finished.usage, told)))
    printer.aside(summary(finished.usage))
    if unsaved := conversation.unsaved:
        raise KvchatError(f"this answer could not be saved in its chat: {unsaved.message}", unsaved.hint)
    return INTERRUPTED if finished.reason == "cancelled" else 0


def _letting_go(conversation: Conversation, ready: Ready) -> str:
    """The policies that help when a context is full: not the one that it has, nor, with one turn, what lets whole ones
    go. "" where there is none."""
    several = sum(message.role == "user" for message in conversation.messages) > 1
    wanted: Sequence[OverflowPolicy] = ("shift", "sinks", "prune", "summarize") if several else ("sinks", "prune")
    ways = [each for each in wanted if each != conversation.overflow and not impossible(each, ready)]
    names = " or ".join(", ".join(ways).rsplit(", ", 1))
    return f", or --overflow {names} lets some go" if ways else ""


def _failed(finished: TurnFinished, conversation: Conversation, ready: Ready) -> KvchatError:
    """Why there is no answer, and what to do: a chat that is incognito is gone."""
    failure = finished.failure or Failure("the engine gave up on this turn")
    chat = None if conversation.incognito else conversation.chat.id
    if finished.usage.excess:
        larger = larger_context(finished.usage.prompt_tokens, ready.model.context_trained)
        goes_on = "--incognito" if chat is None else f"--resume --chat {chat}"
        again = f"kvchat ask {goes_on} --ctx-size {larger}"
        more = "" if larger is None else f", or if there is memory for it a larger context: {again}"
        return KvchatError(failure.message, f"a shorter question, a new chat{more}{_letting_go(conversation, ready)}")
    if finished.reason == "died" and chat is None:
        return KvchatError(failure.message, "an incognito chat is gone with its answer: ask again")
    if finished.reason == "died":
        return KvchatError(failure.message, f"what had come is kept; go on with: kvchat ask --resume --chat {chat}")
    return KvchatError(failure.message, failure.hint)
