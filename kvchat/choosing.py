"""With which models and cache a turn is run. Owns the order of those who decide; must not start or write anything.

A server: a flag, else that of the chat, else the settings; that of another chat is never taken. Without one, the model:
a flag, else that of the chat, else the settings file and environment, else that of the chat that was used last, else
the first one found. The cache and the draft model: a flag, else what the chat was last run with, else the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvchat.backend.choices import REMOTE
from kvchat.backend.values import CACHE_TYPES, DraftMode, EngineConfig, Remote, Rope
from kvchat.chats.prefixes import Prefix
from kvchat.chats.types import Chat
from kvchat.config import Settings, contradictory
from kvchat.config_hardware import ROPE_FIELDS
from kvchat.config_options import BY_KEY, ENGINE_KEYS
from kvchat.config_remote import is_named, remote_named
from kvchat.conversation import Conversation, EngineChoice, engine_choice
from kvchat.errors import KvchatError, UsageError
from kvchat.formats.gguf import model_name
from kvchat.library.find import ModelFile, resolve

# What a chat keeps beside its model, and the flag that goes before it.
_FLAGS = {
    "type_k": "cache_type_k",
    "type_v": "cache_type_v",
    "context": "ctx_size",
    "flash_attention": "flash_attn",
}
_AUTOMATIC = {"context": 0, "flash_attention": "auto"}  # values that choose nothing


def choose_model(settings: Settings, models: Sequence[ModelFile], chat: Chat | None, latest: Chat | None) -> ModelFile:
    """The model of `preferred` or, where nobody says, the first one found. KvchatError as there, or without any."""
    return preferred(settings, models, chat, latest) or resolve(None, models)


def preferred(
    settings: Settings, models: Sequence[ModelFile], chat: Chat | None, latest: Chat | None
) -> ModelFile | None:
    """The model for the next turn of `chat`, None for a new one; `latest` is the chat that was used last. None: nobody
    says. KvchatError: the one that is meant cannot be run, or is not where the chat had it."""
    if settings.model is not None and "model" in settings.given:
        return resolve(settings.model, models)
    if chat is not None and (chat.model or engine_choice(chat)):
        own = _model_of(chat, models)
        if own is None:
            raise _gone(chat)
        return resolve(str(own), models)
    if settings.model is not None and not is_server(settings):
        return resolve(settings.model, models)
    last = _model_of(latest, models) if latest is not None else None
    if last is not None:
        with suppress(KvchatError):  # damaged since: not what was asked for
            return resolve(str(last), models)
    return None


def chosen_remote(settings: Settings, chat: Chat | None) -> Remote | None:
    """The server that the next turn of `chat` goes to; None: a model of this machine answers. KvchatError: there is no
    such server, or nothing may go out."""
    found = _remote(settings, chat)
    if found is not None:
        may_go_out(settings, found)
    return found


def may_go_out(settings: Settings, remote: Remote) -> None:
    """KvchatError where no server may be asked."""
    if settings.offline:
        hint = "without it, or with a model of this machine"
        raise KvchatError(f"{remote.host} is not asked: nothing goes out with --offline", hint)


def _remote(settings: Settings, chat: Chat | None) -> Remote | None:
    flagged = settings.model if settings.model is not None and "model" in settings.given else ""
    if "remote" in settings.given and settings.remote is not None:
        return remote_named(settings.remote, known_remotes(settings), "" if is_reference(flagged) else flagged)
    if flagged:
        return remote_named(flagged, known_remotes(settings)) if is_named(flagged, settings.remotes) else None
    own = engine_choice(chat) if chat is not None else None
    if own is not None:
        return _remote_of(own.model_path, settings) if is_reference(own.model_path) else None
    if settings.remote is not None:
        return remote_named(settings.remote, known_remotes(settings))
    return remote_named(settings.model or "", known_remotes(settings)) if is_server(settings) else None


def _remote_of(reference: str, settings: Settings) -> Remote:
    """The server that a chat was last run with."""
    try:
        return remote_named(reference, known_remotes(settings))
    except KvchatError as error:
        raise KvchatError(
            f"the server of this chat, {reference.removeprefix(REMOTE)}, is not in the settings",
            "--remote URL goes on there, -m NAME with a model of this machine",
        ) from error


def without_effect(settings: Settings, remote: Remote) -> str:
    """What is said of flags that choose how a model of this machine is run, where a server answers; "" without such."""
    flags = [BY_KEY[key].flag.split("/")[-1] for key in ENGINE_KEYS if key != "model" and key in settings.given]
    said = f"no effect on {remote.host}: {', '.join(flags)}; that is chosen where the server is started"
    return said if flags else ""


def known_remotes(settings: Settings) -> tuple[Remote, ...]:
    """The servers that can be named: those of the settings, and one whose URL was given."""
    text = settings.remote
    given = (remote_named(text, ()),) if text is not None and "://" in text else ()
    return (*settings.remotes, *given)


def is_server(settings: Settings) -> bool:
    """Whether the model that the settings name is one on a server."""
    return settings.model is not None and is_named(settings.model, settings.remotes)


def is_reference(path: str) -> bool:
    """Whether what stands in place of a model's path means a server."""
    return path.startswith(REMOTE)


def as_before(settings: Settings, model: Path, chat: Chat | None) -> Settings:
    """The settings, with the cache that the chat was last run with where no flag says something else."""
    own = engine_choice(chat) if chat is not None else None
    if own is None or own.model_path != str(model):
        return settings
    kept: dict[str, Any] = {name: getattr(own, name) for name, flag in _FLAGS.items() if flag not in settings.given}
    kept = {name: value for name, value in kept.items() if value != _AUTOMATIC.get(name)}
    merged = replace(settings, **kept)
    if not contradictory(merged):
        return merged
    return replace(settings, **{name: value for name, value in kept.items() if name in ("type_k", "context")})


def as_computed(settings: Settings, models: Sequence[ModelFile], prefix: Prefix) -> Settings:
    """The settings, with the model and cache types for which a prefix was computed last, where no flag says something
    else, and as far as that model is here."""
    if "remote" in settings.given:
        return settings
    paths = {str(model.path) for model in models}
    if settings.model is not None and "model" in settings.given:
        paths = {str(resolve(settings.model, models).path)}
    fitting = [
        each
        for each in prefix.computations
        if each.model_path in paths
        and each.type_k in CACHE_TYPES
        and each.type_v in CACHE_TYPES
        and ("cache_type_k" not in settings.given or each.type_k == settings.type_k)
        and ("cache_type_v" not in settings.given or each.type_v == settings.type_v)
    ]
    if not fitting:
        return settings
    last = fitting[-1]
    types: dict[str, Any] = {"type_k": last.type_k, "type_v": last.type_v}
    merged = replace(for_model(settings, models, Path(last.model_path)), model=last.model_path, **types)
    said = settings.given | {"model", "cache_type_k", "cache_type_v"}
    return settings if contradictory(merged) else replace(merged, given=said)


def for_model(settings: Settings, models: Sequence[ModelFile], model: Path) -> Settings:
    """The settings, without adapters and positions that stand in a file beside the name of another model than this:
    they belong to that one. What a flag says stays."""
    if settings.model is None or settings.given & {"lora", *ROPE_FIELDS}:
        return settings
    try:
        meant = resolve(settings.model, models).path
    except KvchatError:  # whoever needs that model will say so
        return settings
    return settings if meant == model else replace(settings, lora=(), rope=Rope())


def with_draft(settings: Settings, models: Sequence[ModelFile], model: Path, chat: Chat | None) -> Settings:
    """The settings, with the draft model that the chat was last run with where no flag says something else. KvchatError
    as in `named_draft`."""
    own = engine_choice(chat) if chat is not None else None
    if own is not None and own.model_path == str(model) and own.draft_path and "model_draft" not in settings.given:
        return replace(settings, model_draft=own.draft_path)
    return named_draft(settings, models)


def named_draft(settings: Settings, models: Sequence[ModelFile]) -> Settings:
    """The settings, with the draft model that they name as a path. KvchatError when there is no such model."""
    if settings.model_draft is None:
        return settings
    try:
        return replace(settings, model_draft=str(resolve(settings.model_draft, models).path))
    except KvchatError as error:
        raise KvchatError(f"the draft model: {error.message}", error.hint) from error


def check_draft(draft: DraftMode, draft_path: str | None) -> None:
    """UsageError where only a draft model may draft and there is none."""
    if draft == "model" and draft_path is None:
        raise UsageError(
            "only a draft model is to draft, and there is none",
            "name one with --model-draft; `kvchat models show MODEL` proposes some",
        )


def check_conversation(conversation: Conversation, config: EngineConfig, settings: Settings) -> None:
    """UsageError as in `check_draft`, unless it is the chat that has it so: its turns say that nothing drafts."""
    if conversation.own.draft is None or settings.new_draft is not None:
        check_draft(conversation.draft, config.draft_path)


def choice_of(config: EngineConfig) -> EngineChoice:
    """What a chat keeps of a configuration that a person chose while it was open."""
    return EngineChoice(
        config.model_path, config.type_k, config.type_v, config.context, config.flash_attention, config.draft_path
    )


def choice_to_keep(config: EngineConfig, settings: Settings, chat: Chat | None) -> EngineChoice:
    """What a chat keeps of the configuration that it is run with. A new one keeps all of it, an old one a new model:
    flags about its cache and its draft model are for one turn."""
    before = engine_choice(chat) if chat is not None else None
    if before is not None and before.model_path == config.model_path:
        return before
    used = {name: getattr(config, name) for name in _FLAGS}
    if chat is not None:
        usual = before or EngineConfig(config.model_path)
        used |= {name: getattr(usual, name) for name, flag in _FLAGS.items() if flag in settings.given}
    draft = config.draft_path if chat is None or "model_draft" not in settings.given else None
    return EngineChoice(config.model_path, **used, draft_path=draft)


def _model_of(chat: Chat, models: Sequence[ModelFile]) -> Path | None:
    """The file that a chat was last run with: the path that it keeps, unless a model of another name has answered since
    and is known by it."""
    choice, name = engine_choice(chat), chat.model.lower()
    path = Path(choice.model_path) if choice is not None else None
    kept = path if path is not None and path.is_absolute() and path.is_file() else None
    if kept is not None and (not name or name in _names(kept)):
        return kept
    called = ((model.path, {model.name.lower(), model.path.stem.lower()}) for model in models)
    return next((path for path, names in called if name in names), kept)


def _names(path: Path) -> set[str]:
    """What an engine calls, or once called, a model."""
    return {model_name(path).lower(), path.stem.lower()}


def _gone(chat: Chat) -> KvchatError:
    choice = engine_choice(chat)
    if choice is not None and is_reference(choice.model_path):
        server = choice.model_path.removeprefix(REMOTE)
        return KvchatError(
            f"this chat was last run on a server, {server}", "name a model of this machine: --model NAME"
        )
    where = f" at {choice.model_path}" if choice is not None else ""
    name = chat.model or "the one"
    return KvchatError(
        f"the model of this chat, {name}, is not there any more{where}",
        "go on with another one: --model NAME; `kvchat models ls` lists them",
    )
