"""With which configuration a command starts an engine for a chat: a server, or a model of this machine that fits. Owns
the questions before it; who decides is in `choosing`. Must not start anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from kvchat.backend.values import EngineConfig, Remote
from kvchat.chats.types import Chat
from kvchat.choosing import as_before, choose_model, chosen_remote, for_model, with_draft, without_effect
from kvchat.clean import clean_line
from kvchat.commands.fitting import fitted
from kvchat.config import Settings, engine_config
from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.paths import Paths

Anyway = Callable[[str, str], bool]
"""Told why something should perhaps not be, and asked a question: whether it shall be all the same."""


@dataclass(frozen=True, slots=True)
class Start:
    """The configuration, and the settings that it follows from."""

    config: EngineConfig
    settings: Settings


def configured(
    settings: Settings,
    paths: Paths,
    models: Sequence[ModelFile],
    chat: Chat | None,
    latest: Chat | None,
    *,
    note: Callable[[str], object],
    anyway: Anyway,
) -> Start:
    """What `chat`, None for a new one, is run with. `latest` is the chat that was used last. KvchatError: there is no
    such server or model, or nobody wants what is doubtful all the same."""
    remote = chosen_remote(settings, chat)
    if remote is not None:
        if said := without_effect(settings, remote):
            note(said)
        config = engine_config(settings, Path(), paths).on(remote)
        return Start(replace(config, incognito_leaves=_may_leave(settings, remote, anyway)), settings)
    model = choose_model(settings, models, chat, latest)
    settings = for_model(as_before(settings, model.path, chat), models, model.path)
    settings = with_draft(settings, models, model.path, chat)
    config = engine_config(settings, model.path, paths)
    question = "Load it all the same? The machine may become slow."
    return Start(
        fitted(config, settings, new=chat is None, note=note, anyway=lambda why: anyway(why, question)), settings
    )


def _may_leave(settings: Settings, remote: Remote, anyway: Anyway) -> bool:
    """Whether a server on another machine may read a chat that is to leave no trace on this one."""
    if not (settings.incognito and remote.leaves):
        return False
    why = f"an incognito chat would be read by {remote.host}, which may keep it"
    if not anyway(why, "Send it there all the same?"):
        raise KvchatError(why, "a model of this machine keeps it here; at a terminal you are asked")
    return True


def asked_at(stdin: TextIO, err: TextIO) -> Anyway:
    """Asks somebody who is there; nobody says no."""

    def ask(why: str, question: str) -> bool:
        if not (stdin.isatty() and err.isatty()):
            return False
        print(clean_line(why), file=err)
        print(f"{question} [y/N]", end=" ", file=err, flush=True)
        return stdin.readline().strip().lower() in {"y", "yes"}

    return ask
