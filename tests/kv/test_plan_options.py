"""What adapters, batches and the place of the cache change in a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from tiny import lora

from kvchat.errors import KvchatError
from kvchat.kv.fit import computed_at_once
from kvchat.kv.needs import Memory, Subject, Sums, subject, with_adapters
from kvchat.kv.plan import Wanted, make_plan

GIB = 2**30


@pytest.fixture
def model(tmp_path: Path) -> Subject:
    path = tiny.build("llama", tmp_path)
    return subject("llama", [path], path.stat().st_size)


def test_adapters_add_their_tensors(tmp_path: Path, model: Subject) -> None:
    pairs = lora.factors(tmp_path / "llama.gguf")
    files = [str(lora.write(tmp_path / f"{number}.gguf", pairs)) for number in range(2)]
    size = sum(a.nbytes + b.nbytes for a, b in pairs.values())
    more = with_adapters(model, files)
    assert more == replace(model, adapters=2 * size)
    plans = [make_plan(each, Memory(GIB)) for each in (model, more)]
    assert [plan.adapter_bytes for plan in plans] == [0, 2 * size]
    assert plans[1].chosen.total_bytes - plans[0].chosen.total_bytes == 2 * size
    assert plans[0].weights_bytes == plans[1].weights_bytes
    with pytest.raises(KvchatError, match="qwen2"):
        with_adapters(model, [str(lora.write(tmp_path / "q.gguf", pairs, architecture="qwen2"))])


@pytest.mark.parametrize(
    ("batch", "ubatch", "tokens"), [(0, 0, 0), (512, 0, 512), (0, 128, 128), (512, 128, 128), (64, 0, 64)]
)
def test_tokens_of_one_computation(batch: int, ubatch: int, tokens: int, model: Subject) -> None:
    assert computed_at_once(batch, ubatch) == tokens
    plan = make_plan(model, Memory(GIB), Wanted(batch=tokens))
    assert plan.batch == (tokens or 256)


def test_larger_batches_take_more(model: Subject) -> None:
    needs = [make_plan(model, Memory(GIB), Wanted(batch=batch)).chosen.compute_bytes for batch in (64, 256, 1024)]
    assert needs == sorted(needs) and len(set(needs)) == 3


def test_a_cache_that_stays_in_ram(model: Subject) -> None:
    """A GPU with room for all but the cache: its layers fit there only without, and then RAM must have the room."""
    wanted = {"draft": None, "flash": "on", "gpu_layers": -1}
    need = Sums(model, Memory(GIB, GIB), **wanted).need("f16", "f16", 4096)  # type: ignore[arg-type]
    room = 9 / 8  # an eighth of the free memory is left to others
    vram = int((need.total_bytes - need.process_bytes - need.kv_bytes // 2) * room)
    enough, little = int(need.kv_bytes * 2), need.kv_bytes // 2

    def fits(ram: int, *, kv_offload: bool) -> bool | None:
        sums = Sums(model, Memory(ram, vram), kv_offload=kv_offload, **wanted)  # type: ignore[arg-type]
        return sums.need("f16", "f16", 4096).fits

    assert fits(enough, kv_offload=True) is False
    assert fits(enough, kv_offload=False) is True
    assert fits(little, kv_offload=False) is False
