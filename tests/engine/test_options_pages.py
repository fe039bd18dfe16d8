"""Adapters and positions over the pipe: pages of one setting never serve another, and what acts is told."""

from dataclasses import replace

from tiny import lora

from kvchat.backend.protocol import LoadFailed, Ready
from kvchat.backend.values import Adapter, Hardware, Rope

QUESTION = "Tell me in many words what a page of a cache is. " * 8


def reused(driver):
    driver.messages.clear()
    usage = driver.ask(QUESTION).usage
    return usage.reused, usage.prompt_tokens


def over(driver, config):
    driver.engine.configure(config)
    event = driver.until(Ready, LoadFailed)[-1]
    assert isinstance(event, Ready), event
    return event


def test_pages_serve_only_the_setting_that_they_were_computed_in(tmp_path, smollm2, start):
    pairs = [lora.factors(smollm2, seed=seed, targets=("attn_v",)) for seed in (1, 2)]
    one, two = (Adapter(str(lora.write(tmp_path / f"{n}.gguf", each))) for n, each in enumerate(pairs))
    driver = start()
    plain = driver.engine.config
    settings = {
        "plain": plain,
        "one": replace(plain, lora=(one,)),
        "half": replace(plain, lora=(replace(one, scale=0.5),)),
        "two": replace(plain, lora=(two,)),
        "base": replace(plain, rope=Rope(freq_base=50000.0)),
    }
    first, again = {}, {}
    for found in (first, again):
        for name, config in settings.items():
            if (found, name) != (first, "plain"):
                ready = over(driver, config)
                assert ready.model.adapters == tuple(f"{'01'[a == two]} @ {a.scale:g}" for a in config.lora)
            found[name] = reused(driver)
    whole = first["plain"][1]
    assert whole > 64
    assert all(each == (0, whole) for each in first.values())
    assert all(each == (whole - 1, whole) for each in again.values()), again
    # What does nothing, and how the machine does it, changes no page.
    over(driver, replace(plain, lora=(replace(one, scale=0.0),), hardware=Hardware(mmap=False, threads_batch=2)))
    assert reused(driver) == (whole - 1, whole)


def test_a_chat_that_goes_on_with_another_setting_is_told_why_it_is_read_again(tmp_path, smollm2, start):
    adapter = Adapter(str(lora.write(tmp_path / "a.gguf", lora.factors(smollm2, targets=("attn_v",)))))
    driver = start()
    plain = driver.engine.config
    driver.ask(QUESTION)
    over(driver, replace(plain, lora=(adapter,)))
    usage = driver.ask("Go on.").usage
    assert (usage.reused, usage.cut) == (0, "adapter")
    over(driver, replace(plain, lora=(adapter,), rope=Rope(freq_scale=0.5)))
    usage = driver.ask("Go on.").usage
    assert (usage.reused, usage.cut) == (0, "positions")


def test_a_bad_adapter_is_an_answer_and_not_a_crash(tmp_path, start):
    driver = start()
    driver.engine.configure(replace(driver.engine.config, lora=(Adapter(str(tmp_path / "gone.gguf")),)))
    failed = driver.until(Ready, LoadFailed)[-1]
    assert isinstance(failed, LoadFailed)
    assert "gone.gguf" in failed.failure.message
    assert "--lora none" in failed.failure.hint
