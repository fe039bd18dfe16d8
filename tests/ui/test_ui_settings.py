"""Settings: which values can be reached, what the meters say, and that only Enter and ^S do anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from modal_host import EVIL, Host, broken, model, ready_with, settled, text, type_at_once
from textual.widgets import Static

from kvchat.backend.protocol import Previewed, Ready
from kvchat.backend.values import CACHE_TYPES, EngineConfig
from kvchat.formats.gguf import GgufHeader
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.needs import Memory, subject
from kvchat.kv.plan import Wanted, make_plan
from kvchat.library.find import ModelFile, check
from kvchat.ui import model_facts, settings_screen
from kvchat.ui.meters import MemoryNeed, cache_meter, size_text, total_meter
from kvchat.ui.settings_fields import (
    ENGINE_FIELDS,
    FIELDS,
    FieldName,
    Limits,
    choices,
    left_out,
    problem,
    repaired,
    stepped,
)
from kvchat.ui.settings_row import FieldRow
from kvchat.ui.settings_screen import EngineWish, SettingsScreen

GIB = 1 << 30
RAM = 8 * GIB


def shape(architecture: str = "llama", head: int = 64, trained: int = 4096, **values: Any) -> Geometry:
    """32 layers with 8 heads of K and V each."""
    defaults = {
        "block_count": 32,
        "embedding_length": 8 * head,
        "context_length": trained,
        "attention.head_count": 8,
        "attention.head_count_kv": 8,
        "attention.key_length": head,
        "attention.value_length": head,
    }
    keys = {f"{architecture}.{key}": value for key, value in {**defaults, **values}.items()}
    return geometry(GgufHeader(3, architecture, keys, (), 0, 0, 0))


MLA = {"attention.key_length_mla": 64, "attention.value_length_mla": 64, "attention.head_count_kv": 1}
SHAPES = {
    "llama": shape(),
    "heads of 80": shape(head=80),  # 80 is not a multiple of the block size 32: nothing quantized
    "mla": shape("deepseek2", **MLA),
    "grok": shape("grok"),  # llama.cpp never uses flash attention for it
}


def reachable(start: EngineConfig, limits: Limits) -> set[EngineConfig]:
    """All that the arrow keys lead to in the fields that depend on each other."""
    fields: tuple[FieldName, ...] = ("type_k", "type_v", "flash_attention")
    found, edge = {start}, [start]
    while edge:
        config = edge.pop()
        new = {stepped(field, config, limits, step) for field in fields for step in (1, -1)} - found
        found |= new
        edge += new
    return found


# ------------------------------------------------------------------ which values there are


@pytest.mark.parametrize("name", SHAPES)
def test_only_possible_configurations_are_reachable(name: str) -> None:
    limits = Limits(SHAPES[name], 1, RAM)
    found = reachable(EngineConfig("m"), limits)
    assert [
        config
        for config in found
        if SHAPES[name].refusal(config.type_k, config.type_v, config.flash_attention) is not None
    ] == []
    assert not any(name == "grok" and config.flash_attention == "on" for config in found)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("llama", set(product(CACHE_TYPES, CACHE_TYPES))),
        ("heads of 80", set(product(("f16", "bf16"), ("f16", "bf16")))),
        ("mla", {(kind, kind) for kind in CACHE_TYPES}),
        ("grok", set(product(CACHE_TYPES, ("f16", "bf16")))),
    ],
)
def test_every_possible_pair_is_reachable(name: str, pairs: set[tuple[str, str]]) -> None:
    found = reachable(EngineConfig("m"), Limits(SHAPES[name], 1, RAM))
    assert {(config.type_k, config.type_v) for config in found} == pairs


def test_there_and_back() -> None:
    limits = Limits(SHAPES["llama"], 4, RAM)
    start = EngineConfig("m", context=2048, type_k="q8_0", type_v="q8_0", threads=2)
    for field in FIELDS:
        assert stepped(field, stepped(field, start, limits, 1), limits, -1) == start


@pytest.mark.parametrize(
    ("field", "config", "sentence"),
    [
        ("type_v", EngineConfig("m", flash_attention="off"), "not q8_0: a q8_0 cache for V needs flash attention"),
        ("flash_attention", EngineConfig("m", type_v="q4_0"), "not off: a q4_0 cache for V needs flash attention"),
    ],
)
def test_the_reason_is_told(field: FieldName, config: EngineConfig, sentence: str) -> None:
    assert any(line.startswith(sentence) for line in left_out(field, config, Limits(SHAPES["llama"], 2, RAM)))


def test_the_reason_is_told_for_odd_heads() -> None:
    (first, second) = left_out("type_k", EngineConfig("m"), Limits(SHAPES["heads of 80"], 2, RAM))
    assert "heads of a multiple of 32; this model's have 80" in first
    assert second.startswith("not q4_0")


def test_context_sizes() -> None:
    def sizes(trained: int, now: int, memory: int | None) -> list[int]:
        limits = Limits(shape(trained=trained), 2, memory)
        every = choices("context", EngineConfig("m", context=now), limits)
        return [choice.config.context for choice in every if not choice.problem]

    assert sizes(4096, 0, None) == [0, 512, 1024, 2048, 4096]
    assert sizes(3000, 1500, None) == [0, 512, 1024, 1500, 2048, 3000]
    # 32 layers x 8 heads x 64 x 2 (K, V) x 2 bytes = 64 KiB a token: 1 GiB holds 16,384
    assert sizes(32768, 0, GIB) == [0, 512, 1024, 2048, 4096, 8192, 16384]
    assert 131_072 in sizes(0, 0, None)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("llama", EngineConfig("m", type_v="q8_0"), EngineConfig("m", type_v="q8_0")),
        ("llama", EngineConfig("m", type_v="q8_0", flash_attention="off"), EngineConfig("m", flash_attention="off")),
        ("mla", EngineConfig("m", type_k="q8_0"), EngineConfig("m", type_k="q8_0", type_v="q8_0")),
        ("heads of 80", EngineConfig("m", type_k="q8_0", type_v="q8_0"), EngineConfig("m")),
        ("grok", EngineConfig("m", flash_attention="on"), EngineConfig("m")),
        ("llama", EngineConfig("m", context=100_000), EngineConfig("m")),  # trained for 4,096
    ],
)
def test_a_configuration_for_another_model(name: str, before: EngineConfig, after: EngineConfig) -> None:
    limits = Limits(SHAPES[name], 2, RAM)
    assert repaired(before, limits) == after
    assert problem(after, limits) == ""


# ------------------------------------------------------------------ meters


def test_meters_in_numbers() -> None:
    need = MemoryNeed(cache=468 << 20, f16=1152 << 20, weights=2 * GIB, memory=8 * GIB, free=2 * GIB, fits=False)
    assert cache_meter(need, 81).plain == "KV memory  " + "━" * 10 + "─" * 15 + "  468 MiB  f16: 1.1 GiB"
    assert total_meter(need, 81).plain == "Total      " + "━" * 8 + "─" * 17 + "  2.5 GiB of 8.0 GiB, 2.0 GiB free"
    assert cache_meter(need, 30).plain == "KV memory  468 MiB  f16: 1.1 GiB"
    full = [span for span in cache_meter(need, 81).spans if span.style == "$primary"]
    assert full[0].end - full[0].start == round(25 * 468 / 1152)


def test_meters_tell_what_there_is_now() -> None:
    """Computations are an estimate, so a total with them is one too."""
    need = MemoryNeed(
        cache=468 << 20, f16=1152 << 20, weights=2 * GIB, now=612 << 20, compute=100 << 20, memory=8 * GIB
    )
    assert cache_meter(need, 30).plain == "KV memory  468 MiB  now: 612 MiB  f16: 1.1 GiB"
    assert cache_meter(replace(need, now=need.f16), 30).plain == "KV memory  468 MiB  now: 1.1 GiB"
    assert cache_meter(replace(need, now=need.cache), 30).plain == "KV memory  468 MiB  f16: 1.1 GiB"
    assert total_meter(need, 30).plain == "Total      about 2.6 GiB of 8.0 GiB"


@pytest.mark.parametrize(("size", "words"), [(0, "0 B"), (2048, "2 KiB"), (612 << 20, "612 MiB"), (5 << 29, "2.5 GiB")])
def test_sizes(size: int, words: str) -> None:
    assert size_text(size) == words


# ------------------------------------------------------------------ the screen


class Desk:
    """One settings screen for a tiny llama: 2 layers x 2 heads x 64 x (K, V) x 2 bytes = 1,024 bytes a token."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.models = [model("llama", folder), model("deepseek2", folder), broken(folder)]
        self.config = EngineConfig(str(self.models[0].path), **config)
        self.ready: Ready | None = ready_with(self.config)
        self.past = 2000
        self.asked: list[EngineConfig] = []

    def app(self, config: EngineConfig | None = None) -> Host:
        return Host(
            lambda: SettingsScreen(
                self.ready, config or self.config, self.models, self.past, self.asked.append, memory=Memory(RAM // 2)
            )
        )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(settings_screen, "total_memory", lambda: RAM)
    monkeypatch.setattr(settings_screen, "logical_cores", lambda: 4)
    monkeypatch.setattr(settings_screen, "REST", 0.05)
    yield Desk(tmp_path)


def screen(app: Host) -> SettingsScreen:
    assert isinstance(app.screen, SettingsScreen)
    return app.screen


def selected(app: Host) -> str:
    return next(row.field for row in app.screen.query(FieldRow) if row.state.selected)


def value(app: Host, field: str) -> str:
    return app.screen.query_one(f"#field-{field}", FieldRow).state.value


def part(app: Host, name: str) -> str:
    return str(app.screen.query_one(f"#{name}", Static).render())


async def test_walk_every_field_then_leave(desk: Desk) -> None:
    app = desk.app()
    shapes = SHAPES["llama"]
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        for field in ENGINE_FIELDS[1:]:
            assert selected(app) == field
            seen = set()
            for _ in range(4):
                await pilot.press("right")
                seen.add(value(app, field))
                config = screen(app)._engine.config
                assert shapes.refusal(config.type_k, config.type_v, config.flash_attention) is None
            assert len(seen) > 2, field
            await pilot.press("down")
        assert selected(app) == "draft"  # without a draft model, three of the four
        seen = set()
        for _ in range(4):
            await pilot.press("right")
            seen.add(value(app, "draft"))
        assert seen == {"auto", "ngram", "off"}
        assert "not model: there is no draft model" in text(app)
        await pilot.press("down", "down")
        assert selected(app) == "model"
        await pilot.press("escape")
        await pilot.pause()
    assert app.results == [None]


async def test_impossible_values_are_passed_over_and_named(desk: Desk) -> None:
    app = desk.app(replace(desk.config, flash_attention="off"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press("v")
        assert "not q8_0: a q8_0 cache for V needs flash attention, which is off" in text(app)
        walked = []
        for _ in range(3):
            await pilot.press("right")
            walked.append(value(app, "type_v"))
    assert walked == ["bf16", "f16", "bf16"]


async def test_enter_returns_once(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await type_at_once(pilot, "right", "right", "v", "right", "right", "enter", "enter", "ctrl+s", "escape")
        await settled(pilot, lambda: app.results)
        await pilot.pause(0.1)
    assert app.results == [EngineWish(replace(desk.config, type_k="q8_0", type_v="q8_0"), False)]


async def test_keys_before_the_header_is_read_count(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def slow(file: ModelFile) -> GgufHeader:
        assert gate.wait(60)
        return check(file)

    monkeypatch.setattr(model_facts, "check", slow)
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "enter")
        assert app.results == []
        gate.set()
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(replace(desk.config, type_k="bf16"), False)]


@pytest.mark.parametrize(
    ("keys", "running", "wished"),
    [
        (("enter",), True, None),  # nothing changed
        (("right", "left", "enter"), True, None),
        (("enter",), False, False),  # no engine: try again
        (("ctrl+s",), True, True),
        (("f2",), True, None),
    ],
)
async def test_what_a_key_ends_with(desk: Desk, keys: tuple[str, ...], running: bool, wished: bool | None) -> None:
    desk.ready = desk.ready if running else None
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press(*keys)
        await settled(pilot, lambda: app.results)
    assert app.results == [None if wished is None else EngineWish(desk.config, wished)]


async def test_first_letters(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        reached = []
        for key in ("c", "f", "t", "g", "m", "v", "k", "x"):
            await pilot.press(key)
            reached.append(selected(app))
    expected = ["context", "flash_attention", "threads", "gpu_layers", "model", "type_v", "type_k", "type_k"]
    assert reached == expected


async def test_meters_equal_the_formula(desk: Desk) -> None:
    """The cache as worked out by hand, the total as `kvchat plan` has it."""
    app = desk.app(replace(desk.config, context=4096))
    model = desk.models[0]
    plans = subject(model.name, [model.path], model.size)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        for keys, k_bytes, v_bytes in [
            ((), 256, 256),
            (("right", "right"), 136, 256),  # q8_0: 128 elements in 4 blocks of 34 bytes
            (("v", "left"), 136, 72),  # q4_0: 4 blocks of 18
        ]:
            await pilot.press(*keys)
            cache = 2 * (k_bytes + v_bytes) * 4096
            assert f" {size_text(cache)}" in part(app, "meters").splitlines()[0]
            config = screen(app)._engine.config
            total = make_plan(plans, Memory(), Wanted(4096, config.type_k, config.type_v)).chosen.total_bytes
            assert total > cache + model.size
            assert f" {size_text(total)} of 8.0 GiB" in part(app, "meters").splitlines()[1]


async def test_the_cost_is_asked_for_after_a_rest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        assert part(app, "effect") == "Applying changes nothing."
        await type_at_once(pilot, "right", "right")
        await settled(pilot, lambda: desk.asked)
        assert desk.asked == [replace(desk.config, type_k="q8_0")]
        told = {
            Previewed("t", 2000, 1792, 1.44): (
                "1,792 of 2,000 tokens come back from pages, 208 are computed, in about 1.4 s."
            ),
            Previewed("t", 2000, 1792, None): "1,792 of 2,000 tokens come back from pages, 208 are computed.",
            Previewed("t", 2000, 1792, 1.44, 1792): (
                "1,792 of 2,000 tokens come back from pages, 1,792 of them from other types, 208 are computed, in "
                "about 1.4 s."
            ),
            Previewed("t", 2000, 2000, 0.12, 2000): "switches 2,000 tokens in about 0.1 s, nothing is read again.",
            Previewed("t", 2000, 1999, 0.04, 1999): "switches 1,999 tokens in less than 0.1 s, nothing is read again.",
            Previewed("t", 2000, 1999, None, 90): (
                "switches 1,999 tokens, 90 of them from other types, nothing is read again."
            ),
            Previewed("t", 2000, 2000, 0.1): "2,000 of 2,000 tokens come back from pages.",
        }
        for previewed, words in told.items():
            screen(app).show_preview(previewed)
            assert part(app, "effect") == f"Builds the context again: {words}"
        monkeypatch.setattr(settings_screen, "REST", 60.0)
        await pilot.press("right")
        screen(app).show_preview(Previewed("t", 2000, 1, 1.0))  # late: the answer to another question
        assert "being looked up" in part(app, "effect")
        await pilot.press("left", "left", "left")
        await pilot.pause(0.1)
        assert part(app, "effect") == "Applying changes nothing."
        assert desk.config not in desk.asked


async def test_a_context_that_is_too_small_for_the_chat(desk: Desk) -> None:
    app = desk.app(replace(desk.config, context=1024))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press("right")
        assert "This chat has 2,000 tokens, more than the 1,024 of the context." in part(app, "effect")


async def test_another_model(desk: Desk) -> None:
    """The picker opens on the model's row; what the other model cannot have is changed, and said."""
    app = desk.app(replace(desk.config, type_k="q8_0"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press("m", "enter", *"deep", "enter")
        await settled(pilot, lambda: isinstance(app.screen, SettingsScreen) and value(app, "model") == "deepseek2")
        assert "changed for this model: V cache q8_0" in part(app, "detail")
        assert "a new engine process" in part(app, "effect")
        assert "found again" in part(app, "effect")
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
        await pilot.pause(0.1)
    other = str(desk.models[1].path)
    assert app.results == [EngineWish(replace(desk.config, model_path=other, type_k="q8_0", type_v="q8_0"), False)]
    assert desk.asked == []  # another model: nothing that this engine could look up


async def test_a_broken_model_cannot_be_applied(desk: Desk) -> None:
    desk.ready = None
    app = desk.app(replace(desk.config, model_path=str(desk.models[2].path)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "Choose another one" in text(app))
        assert "truncated" in part(app, "detail")
        await pilot.press("v", "right", "enter", "ctrl+s")
        assert app.results == []
        await pilot.press("escape")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]


async def test_no_model_yet(desk: Desk) -> None:
    desk.ready = None
    app = desk.app(EngineConfig(""))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "no model is chosen yet" in text(app))
        await pilot.press("enter", "enter")  # the picker, the first model
        await settled(pilot, lambda: isinstance(app.screen, SettingsScreen) and value(app, "model") == "llama")
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(desk.config, False)]


async def test_mla_changes_both(desk: Desk) -> None:
    app = desk.app(replace(desk.config, model_path=str(desk.models[1].path)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press("v", "left")
        assert (value(app, "type_k"), value(app, "type_v")) == ("q4_0", "q4_0")
        assert "kept together with K" in text(app)


async def test_the_mouse(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.click("#field-type_v")
        assert selected(app) == "type_v"
        line = next(line for line in text(app).splitlines() if "›" in line)
        row = app.screen.query_one("#field-type_v", FieldRow)
        await pilot.click("#field-type_v", offset=(line.index("›") - row.region.x, 0))
        assert value(app, "type_v") == "bf16"
        await pilot.click("#field-type_v", offset=(line.index("‹") - row.region.x, 0))
        assert value(app, "type_v") == "f16"
        await pilot.click("#cancel")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]


async def test_foreign_names_are_text(desk: Desk) -> None:
    desk.models[0] = replace(desk.models[0], name=EVIL)
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "⚠evil␛]0;title␇[bold red]键" in text(app))
        assert "\x1b" not in text(app)
        assert "\u202e" not in text(app)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 50)])
async def test_everything_has_room(desk: Desk, size: tuple[int, int]) -> None:
    app = desk.app()
    async with app.run_test(size=size) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press("v", "right", "right")  # the most to say: mixed types, quantized V
        shown = text(app)
        for words in ("Model", "GPU layers", "KV memory", "Total", "mixed types", "looked up", "⏎ apply", "esc cancel"):
            assert words in shown, words


@pytest.mark.parametrize("size", [(20, 6), (40, 12), (5, 3)])
async def test_small_screens_do_not_break(desk: Desk, size: tuple[int, int]) -> None:
    app = desk.app()
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        await pilot.press("down", "right", "end", "home", "m")
        await pilot.resize_terminal(80, 24)
        await settled(pilot, lambda: "KV memory" in text(app))
