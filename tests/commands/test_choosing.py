"""Who decides with which model and cache a turn is run."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kvchat.backend.values import Adapter, Rope
from kvchat.chats.types import Chat
from kvchat.choosing import as_before, check_draft, choice_to_keep, choose_model, for_model, with_draft
from kvchat.config import Settings, contradictory, engine_config
from kvchat.conversation import EngineChoice
from kvchat.errors import KvchatError, UsageError
from kvchat.library.find import ModelFile, find_models
from kvchat.paths import Paths


def chat(model: str = "", choice: EngineChoice | None = None) -> Chat:
    kept = {} if choice is None else asdict(choice)
    names = {"model_path": "model", "draft_path": "draft_model"}
    settings = json.dumps({names.get(name, name): value for name, value in kept.items()})
    return Chat("c", "t", 1.0, 1.0, "", 1.0, model, "m", settings=settings)


def choice(path: object, **changes: object) -> EngineChoice:
    return replace(EngineChoice(str(path), "f16", "f16", 0, "auto"), **changes)  # type: ignore[arg-type]


def flags(*given: str, **values: object) -> Settings:
    return Settings(**values, given=frozenset(given))  # type: ignore[arg-type]


def stem(paths: Paths, settings: Settings, old: Chat | None, latest: Chat | None = None) -> str:
    return choose_model(settings, find_models(paths), old, latest).path.stem


# ------------------------------------------------------------------ the model; there are "first" and "second"


def test_order(paths: Paths) -> None:
    flag, setting, plain = flags("model", model="second"), Settings(model="second"), Settings()
    first, second = chat("first"), chat("second")
    assert stem(paths, flag, first) == "second"
    assert stem(paths, setting, first) == "first"
    assert stem(paths, setting, None, first) == "second"
    assert stem(paths, setting, chat()) == "second"  # a chat that nobody has answered yet
    assert stem(paths, plain, None, second) == "second"
    assert stem(paths, plain, chat(), second) == "second"
    assert stem(paths, plain, None, chat("gone")) == "first"
    assert stem(paths, plain, None, None) == "first"


def test_the_path_that_a_chat_keeps(paths: Paths, tmp_path: Path) -> None:
    elsewhere = tmp_path / "tiny.gguf"
    elsewhere.write_bytes((paths.models_folder / "second.gguf").read_bytes())
    assert choose_model(Settings(), find_models(paths), chat("tiny", choice(elsewhere)), None).path == elsewhere
    assert choose_model(Settings(), find_models(paths), chat("", choice(elsewhere)), None).path == elsewhere
    assert choose_model(Settings(), find_models(paths), None, chat("tiny", choice(elsewhere))).path == elsewhere
    # another model has answered since, by a program that did not keep its path
    assert stem(paths, Settings(), chat("second", choice(elsewhere))) == "second"
    assert stem(paths, Settings(), chat("unknown", choice(elsewhere))) == "tiny"


def test_a_name_that_a_chat_keeps_is_no_beginning_of_another(paths: Paths) -> None:
    with pytest.raises(KvchatError, match="sec, is not there any more"):
        choose_model(Settings(), find_models(paths), chat("sec"), None)
    assert stem(paths, Settings(), None, chat("sec")) == "first"


def test_a_relative_path_is_not_looked_for_where_somebody_happens_to_be(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths.models_folder)
    with pytest.raises(KvchatError, match=r"is not there any more at second\.gguf"):
        choose_model(Settings(), find_models(paths), chat("", choice("second.gguf")), None)


@pytest.mark.parametrize("name", ["big", "big-00001-of-00002"])
def test_a_split_model(paths: Paths, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for part in (1, 2):
        (paths.models_folder / f"big-0000{part}-of-00002.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("kvchat.library.find.check", lambda model: None)
    assert stem(paths, Settings(), chat(name)) == "big-00001-of-00002"


def test_the_latest_chats_model_is_damaged_since(paths: Paths) -> None:
    (paths.models_folder / "second.gguf").write_bytes(b"GGUF")
    assert stem(paths, Settings(), None, chat("second")) == "first"
    with pytest.raises(KvchatError, match="truncated"):
        choose_model(Settings(), find_models(paths), chat("second"), None)


# ------------------------------------------------------------------ the cache

MODEL = ModelFile("m", Path("/models/m.gguf"), 1, "models")


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        (Settings(), {"type_k": "q8_0", "context": 512}, {"type_k": "q8_0", "context": 512}),
        (Settings(type_k="q4_0", context=99), {"type_k": "q8_0"}, {"type_k": "q8_0", "context": 99}),
        (flags("cache_type_k", type_k="q4_0"), {"type_k": "q8_0", "context": 7}, {"type_k": "q4_0", "context": 7}),
        (flags("ctx_size", context=0), {"context": 512}, {"context": 0}),
        (Settings(flash_attention="on"), {"flash_attention": "auto"}, {"flash_attention": "on"}),
        # what a flag says and what the chat keeps cannot be had together
        (flags("flash_attn", flash_attention="off"), {"type_v": "q8_0"}, {"type_v": "f16", "flash_attention": "off"}),
        (
            flags("cache_type_v", type_v="q8_0"),
            {"flash_attention": "off", "type_k": "q4_0"},
            {"type_v": "q8_0", "flash_attention": "auto", "type_k": "q4_0"},
        ),
    ],
)
def test_the_cache_that_a_chat_keeps(settings: Settings, own: dict[str, object], expected: dict[str, object]) -> None:
    used = as_before(settings, MODEL.path, chat("m", choice(MODEL.path, **own)))
    assert {name: getattr(used, name) for name in expected} == expected
    assert not contradictory(used)
    other = chat("n", choice("/models/n.gguf", **own))  # of another model
    assert as_before(settings, MODEL.path, other) == as_before(settings, MODEL.path, None) == settings


# ------------------------------------------------------------------ the draft model


def drafter(paths: Paths, settings: Settings, old: Chat | None) -> str | None:
    found = with_draft(settings, find_models(paths), MODEL.path, old).model_draft
    return None if found is None else Path(found).stem


def test_who_names_the_draft_model(paths: Paths) -> None:
    """A flag, else the chat that was run with this model, else the settings."""
    kept = chat("m", choice(MODEL.path, draft_path="/models/kept.gguf"))
    flag, none = flags("model_draft", model_draft="second"), flags("model_draft")
    assert drafter(paths, Settings(), None) is None
    assert drafter(paths, Settings(model_draft="sec"), None) == "second"
    assert drafter(paths, Settings(model_draft="second"), kept) == "kept"
    assert drafter(paths, Settings(), kept) == "kept"
    assert drafter(paths, flag, kept) == "second"
    assert drafter(paths, none, kept) is None
    assert drafter(paths, Settings(), chat("n", choice("/models/n.gguf", draft_path="/models/kept.gguf"))) is None


def test_a_draft_model_that_nobody_finds(paths: Paths) -> None:
    with pytest.raises(KvchatError, match="the draft model: there is no model 'other'"):
        drafter(paths, Settings(model_draft="other"), None)


def test_only_a_draft_model_may_draft() -> None:
    check_draft("model", "/models/small.gguf")
    check_draft("auto", None)
    with pytest.raises(UsageError, match="there is none"):
        check_draft("model", None)


def test_what_a_chat_keeps(paths: Paths) -> None:
    settings = flags("cache_type_k", type_k="q8_0", context=512)
    config = engine_config(settings, MODEL.path, paths)
    assert choice_to_keep(config, settings, None) == choice(MODEL.path, type_k="q8_0", context=512)
    assert choice_to_keep(config, settings, chat("m")) == choice(MODEL.path, context=512)
    own = choice(MODEL.path, type_k="q4_0", type_v="bf16")
    assert choice_to_keep(config, settings, chat("m", own)) == own
    other = replace(own, model_path="/models/n.gguf")
    assert choice_to_keep(config, settings, chat("n", other)) == choice(MODEL.path, type_k="q4_0", context=512)


def test_what_a_chat_keeps_of_the_draft_model(paths: Paths) -> None:
    """A new chat keeps what it was run with; a flag for one turn changes nothing of an old one."""
    path = "/models/small.gguf"
    said, flag = Settings(model_draft=path), flags("model_draft", model_draft=path)
    config = engine_config(said, MODEL.path, paths)
    assert config.draft_path == path
    assert choice_to_keep(config, said, None).draft_path == choice_to_keep(config, flag, None).draft_path == path
    assert choice_to_keep(config, said, chat("n")).draft_path == path
    assert choice_to_keep(config, flag, chat("n")).draft_path is None


def test_adapters_and_positions_of_a_file_belong_to_the_model_that_it_names(paths: Paths) -> None:
    """With a chat that has another model they do nothing; what a flag says holds for whatever model there is."""
    models = find_models(paths)
    first, second = (next(model.path for model in models if model.name == name) for name in ("first", "second"))
    own = {"lora": (Adapter("/a.gguf"),), "rope": Rope(freq_scale=0.5)}
    settings = Settings(model="first", **own)  # type: ignore[arg-type]
    assert for_model(settings, models, first) == settings
    assert for_model(settings, models, second) == Settings(model="first")
    assert for_model(Settings(**own), models, second).lora == own["lora"]  # type: ignore[arg-type]
    for key in ("lora", "rope_freq_scale"):
        flag = replace(settings, given=frozenset({key}))
        assert for_model(flag, models, second) == flag
    gone = replace(settings, model="gone")
    assert for_model(gone, models, second) == gone
