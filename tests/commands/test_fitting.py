"""What `ask` does about memory: cache types that nobody chose are the plan's, what does not fit is asked about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from asking import Asked, Terminal, kept
from fake_backend import make_ready
from scripted_engine import ScriptedEngine

from kvchat.commands import fitting
from kvchat.config import Settings, load_settings
from kvchat.errors import KvchatError, UsageError
from kvchat.paths import Paths

MIB = 1 << 20
F16 = frozenset({"cache_type_k", "cache_type_v"})
Ask = Callable[..., Asked]


@pytest.fixture
def model(paths: Paths, engine: ScriptedEngine) -> Path:
    """16,384 tokens: 16 MiB of f16 cache and 100 of computations; q8_0, with flash attention, 9 and some 12. The engine
    itself takes 60."""
    engine.begin = [make_ready(name="llama")]
    return tiny.build("llama", paths.models_folder, context=16384)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    def so_much(size: int | None) -> None:
        monkeypatch.setattr(fitting, "free_memory", lambda: size)
        monkeypatch.setattr(fitting, "free_vram", lambda: None)

    return so_much


def wanted(model: Path, **more: object) -> Settings:
    return Settings(**{"model": str(model), "context": 16384} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [8 << 30, None])
def test_f16_where_it_fits_or_nothing_is_known(
    ask: Ask, engine: ScriptedEngine, model: Path, free: Callable[[int | None], None], size: int | None
) -> None:
    free(size)
    asked = ask("x", settings=wanted(model))
    assert (engine.configs[0].type_k, engine.configs[0].type_v, asked.err.getvalue()) == ("f16", "f16", "")


def test_q8_0_where_f16_does_not_fit_is_said_and_kept(
    ask: Ask, engine: ScriptedEngine, model: Path, free: Callable[[int | None], None]
) -> None:
    """96 of 110 MiB can be used. The chat keeps the type, also when there is memory again."""
    free(110 * MIB)
    asked = ask("x", settings=wanted(model))
    assert "q8_0: an f16 one would not fit" in asked.err.getvalue()
    free(8 << 30)
    ask("y", continue_last=True, settings=wanted(model))
    assert [(config.type_k, config.type_v) for config in engine.configs] == [("q8_0", "q8_0")] * 2


@pytest.mark.parametrize("said", [{"given": F16}, {"named": F16}, {"type_k": "q8_0", "type_v": "f16"}])
def test_what_somebody_chose_is_not_overruled(
    ask: Ask, engine: ScriptedEngine, model: Path, free: Callable[[int | None], None], said: dict[str, object]
) -> None:
    free(110 * MIB)
    with pytest.raises(KvchatError, match="llama does not fit into the free memory, and nothing was loaded") as told:
        engine.closed = True
        ask("x", settings=wanted(model, **said))
    assert "-ctk q8_0 -ctv q8_0" in told.value.hint
    assert "--fit off loads it all the same" in told.value.hint
    assert engine.configs == []


def test_fit_off_loads_it(
    ask: Ask, engine: ScriptedEngine, model: Path, free: Callable[[int | None], None], paths: Paths
) -> None:
    free(MIB)
    ask("x", settings=wanted(model, fit="off"))
    assert len(engine.configs) == 1
    assert len(kept(paths)) == 2


@pytest.mark.parametrize(("answer", "loaded"), [("y\n", 1), ("\n", 0), ("n\n", 0), ("", 0)])
def test_somebody_who_is_there_is_asked(
    ask: Ask,
    engine: ScriptedEngine,
    model: Path,
    free: Callable[[int | None], None],
    answer: str,
    loaded: int,
) -> None:
    free(MIB)
    asked = Asked()
    asked.stdin, asked.err = Terminal(answer), Terminal()
    engine.closed = True
    if loaded:
        ask("x", settings=wanted(model), asked=asked)
    else:
        with pytest.raises(KvchatError, match="nothing was loaded"):
            ask("x", settings=wanted(model), asked=asked)
    assert "Load it all the same? The machine may become slow. [y/N]" in asked.err.getvalue()
    assert len(engine.configs) == loaded


def test_f16_in_the_settings_file_is_a_choice(home: Path) -> None:
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    assert not load_settings(paths, {}, {}).types_chosen
    (home / "config.toml").write_text('cache_type_k = "f16"\nfit = "off"\n')
    settings = load_settings(paths, {}, {})
    assert (settings.types_chosen, settings.fit) == (True, "off")
    with pytest.raises(UsageError, match="fit"):
        load_settings(paths, {}, {"fit": "perhaps"})
