"""Warm, forecast, preview, configure, tuning: what the real engine answers between turns."""

from __future__ import annotations

import queue
from dataclasses import replace

from driver import Driver

from kvchat.backend.local import Engine
from kvchat.backend.protocol import (
    ConfigureFailed,
    Forecast,
    Forecasted,
    LoadFailed,
    Preview,
    Previewed,
    PromptReady,
    Ready,
    Tuned,
    Warm,
    Warmed,
)
from kvchat.backend.tuning import TuningBook, read_report
from kvchat.backend.values import EngineConfig, PromptMessage

STORY = " ".join(f"Item {i} is a thing of its own." for i in range(20))


def past_of(chat):
    return tuple(token for message in chat.messages for token in message.ids)


def test_warm_brings_a_chat_back_before_it_is_asked_for(start):
    chat = start()
    first = chat.ask(STORY)
    chat.engine.close()
    again = start()
    again.messages = list(chat.messages)
    again.engine.warm(Warm("w", past_of(chat)))
    warmed = again.until(Warmed)[-1]
    assert (warmed.turn, warmed.tokens) == ("w", len(past_of(chat)))
    assert warmed.reused == warmed.pages == first.usage.cells
    assert warmed.cut is None
    answer = again.ask("And then?")
    assert answer.usage.resident == first.usage.cells
    assert answer.usage.pages == 0


def test_a_forecast_is_what_the_turn_then_costs(start):
    chat = start()
    chat.ask(STORY)
    messages = (*chat.messages, PromptMessage("user", "And then?"))
    chat.engine.forecast(Forecast("f", messages))
    forecast = chat.until(Forecasted)[-1]
    answer = chat.ask("And then?")
    usage = answer.usage
    assert (forecast.tokens, forecast.resident, forecast.pages, forecast.computed, forecast.cut) == (
        usage.prompt_tokens,
        usage.resident,
        usage.pages,
        usage.computed,
        usage.cut,
    )
    assert forecast.seconds > 0


def test_a_forecast_after_a_prompt_that_was_not_read_says_what_the_turn_says(start):
    chat = start()

    def cancel(event):
        if isinstance(event, PromptReady):
            chat.engine.cancel("t1")

    assert chat.ask(STORY, meanwhile=cancel).finished.reason == "cancelled"
    chat.engine.forecast(Forecast("f", (*chat.messages, PromptMessage("user", "And then?"))))
    forecast = chat.until(Forecasted)[-1]
    usage = chat.ask("And then?").usage
    assert (forecast.computed, forecast.cut) == (usage.computed, usage.cut)
    assert usage.cut is None


def test_a_forecast_in_a_new_process_counts_pages_and_changes_nothing(start):
    chat = start()
    first = chat.ask(STORY)
    chat.engine.close()
    again = start()
    again.messages = list(chat.messages)
    again.engine.forecast(Forecast("f", (*chat.messages, PromptMessage("user", "And then?"))))
    forecast = again.until(Forecasted)[-1]
    assert (forecast.resident, forecast.pages) == (0, first.usage.cells)
    assert forecast.seconds is None  # nothing was measured yet
    assert again.ask("And then?").usage.pages == first.usage.cells


def test_another_cache_type_and_back(start, smollm2, tmp_path):
    chat = start()
    first = chat.ask(STORY)
    f16 = chat.engine.config
    q8 = replace(f16, type_k="q8_0", type_v="q8_0")
    pid = chat.engine.pid

    chat.engine.preview(Preview("p", past_of(chat), q8))
    preview = chat.until(Previewed)[-1]
    past = len(past_of(chat))
    assert (preview.tokens, preview.restored, preview.transcoded) == (past, first.usage.cells, first.usage.cells)
    assert preview.seconds is not None
    chat.engine.configure(q8)
    assert chat.engine.ready is None
    ready = chat.ready()
    assert (ready.cache.type_k, ready.cache.flash_attention) == ("q8_0", True)
    second = chat.ask("And then?")
    assert (second.usage.cut, second.usage.pages, second.usage.transcoded) == (None, first.usage.cells, "f16")

    chat.engine.preview(Preview("p", past_of(chat), f16))
    preview = chat.until(Previewed)[-1]
    assert preview.restored == second.usage.cells
    assert preview.transcoded == second.usage.cells - first.usage.cells  # the others are there as they were computed
    chat.engine.configure(f16)
    assert chat.ready().cache.type_k == "f16"
    third = chat.ask("And then?")
    assert (third.usage.cut, third.usage.pages, third.usage.transcoded) == (None, second.usage.cells, "q8_0")
    assert chat.engine.pid == pid


def test_a_context_that_cannot_be_built_leaves_the_old_one(start):
    chat = start()
    chat.ask("Hello.")
    before = chat.engine.config
    chat.engine.configure(replace(before, context=2**34))
    failed, ready = chat.until(Ready)
    assert isinstance(failed, ConfigureFailed)
    assert "GiB" in failed.failure.message
    assert ready.cache.context == 1024
    assert chat.engine.config == before
    assert chat.ask("Go on.").usage.pages > 0


def test_another_model_is_another_process_and_the_way_back_finds_the_old_kv(start, tmp_path):
    import tiny

    chat = start()
    first = chat.ask(STORY)
    smol, pid = chat.engine.config, chat.engine.pid
    chat.engine.configure(replace(smol, model_path=str(tiny.build("llama", tmp_path))))
    ready = chat.ready()
    assert ready.model.architecture == "llama"
    assert ready.model.kv_bytes_per_token != 23040
    assert chat.engine.pid != pid
    chat.engine.configure(smol)
    chat.ready()
    assert chat.ask("And then?").usage.pages == first.usage.cells


def test_after_a_model_that_does_not_load_the_next_one_does(start, tmp_path):
    chat = start()
    good = chat.engine.config
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"no model")
    chat.engine.configure(replace(good, model_path=str(bad)))
    failed = chat.until(LoadFailed)[-1]
    assert "not a GGUF file" in failed.failure.message
    chat.engine.configure(good)
    chat.ready()
    assert chat.ask("Hello.").finished.reason in ("length", "stop")


def test_a_context_that_is_too_large_from_the_start_can_be_made_smaller(tmp_path, smollm2):
    chat = Driver.start(tmp_path, smollm2, context=2**34)
    try:
        chat.until(LoadFailed)
        chat.engine.configure(replace(chat.engine.config, context=512))
        assert chat.ready().cache.context == 512
    finally:
        chat.engine.close()


def test_settings_are_measured_while_idle_and_remembered(tmp_path, smollm2):
    events: queue.SimpleQueue = queue.SimpleQueue()
    config = EngineConfig(str(smollm2), context=1024, extra_buffers=False)
    engine = Engine(config, events.put, tmp_path / "state", tmp_path / "engine.log")
    engine.start()
    chat = Driver(engine, events)
    try:
        chat.ready()
        tuned = chat.until(Tuned)[-1]
        assert 1 <= len(tuned.sentences) <= 4
        assert all("tokens/s" in sentence for sentence in tuned.sentences)
        assert chat.ask("Hello.").finished.reason in ("length", "stop")
    finally:
        engine.close()
    applied = TuningBook(tmp_path / "state").apply(config)
    assert not applied.tune
    assert applied.flash_attention == ("on" if tuned.flash_attention else "off")
    assert applied.threads == tuned.threads
    assert TuningBook(tmp_path / "state").apply(replace(config, type_k="q8_0")).tune
    assert applied.draft_costs == tuned.draft_costs
    assert len(tuned.draft_costs) == 16
    assert tuned.draft_costs[0] == 1.0
    assert list(tuned.draft_costs) == sorted(tuned.draft_costs)
    explicit = replace(config, flash_attention="on", threads=1)
    assert TuningBook(tmp_path / "state").apply(explicit) == replace(explicit, tune=True)  # for what drafts cost
    assert tuned.sentences[0] in read_report(tmp_path / "state")[0]
