"""Settings of placement, positions and adapters: from every source to what an engine is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvchat.backend.choices import Adapter, EngineConfig, Hardware, Rope
from kvchat.backend.journal import configuration_key
from kvchat.config import Settings, engine_config, load_settings
from kvchat.errors import UsageError
from kvchat.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"KVCHAT_HOME": str(tmp_path)})


def load(paths: Paths, toml: str = "", environ: dict[str, str] | None = None, **flags: object) -> Settings:
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(toml)
    return load_settings(paths, environ or {}, flags)


def test_a_file_with_all_of_it(paths: Paths) -> None:
    settings = load(
        paths,
        """
        main_gpu = 1
        split_mode = "row"
        tensor_split = [3, 1.5]
        kv_offload = false
        mmap = false
        mlock = true
        batch-size = 512
        ubatch_size = 128
        threads_batch = 6
        rope_scaling = "yarn"
        rope_freq_base = 1e6
        rope_freq_scale = 0.25
        yarn_orig_ctx = 4096
        yarn_ext_factor = 0.5
        yarn_attn_factor = 1
        yarn_beta_slow = 2
        yarn_beta_fast = 16
        lora = ["/a/one.gguf", "/a/b:c.gguf:-0.5"]
        """,
    )
    assert settings.hardware == Hardware(1, "row", (3.0, 1.5), False, False, True, 512, 128, 6)
    assert settings.rope == Rope("yarn", 1e6, 0.25, 4096, 0.5, 1.0, 2.0, 16.0)
    assert settings.lora == (Adapter("/a/one.gguf"), Adapter("/a/b:c.gguf", -0.5))
    config = engine_config(settings, Path("/m/x.gguf"), paths)
    assert (config.hardware, config.rope, config.lora) == (settings.hardware, settings.rope, settings.lora)


def test_flags_go_before_the_environment_and_that_before_the_file(paths: Paths) -> None:
    toml = 'tensor_split = [1, 1]\nlora = ["/a.gguf"]\nubatch_size = 64'
    environ = {"LLAMA_ARG_TENSOR_SPLIT": "3/1", "LLAMA_ARG_UBATCH": "128", "KVCHAT_LORA": "/b.gguf:2"}
    settings = load(paths, toml, environ, ubatch_size="256", batch_size="256")
    assert settings.hardware == Hardware(tensor_split=(3.0, 1.0), ubatch=256, batch=256)
    assert settings.lora == (Adapter("/b.gguf", 2.0),)
    assert load(paths, toml, environ, lora=["none"]).lora == ()
    assert load(paths, toml, environ, lora=["/c.gguf", "/d.gguf:0"]).lora == (
        Adapter("/c.gguf"),
        Adapter("/d.gguf", 0.0),
    )


def test_nothing_said_is_llama_cpps_own(paths: Paths) -> None:
    config = engine_config(load(paths), Path("/m/x.gguf"), paths)
    assert (config.hardware, config.rope, config.lora) == (Hardware(), Rope(), ())


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("main_gpu", "-1", "is not between 0"),
        ("split_mode", "rows", "is not a way to split a model"),
        ("tensor_split", "3,x", "is not a number"),
        ("tensor_split", "0,0", "all shares are 0"),
        ("tensor_split", "1,-1", "is not between 0"),
        ("batch_size", "16", "16 is less than 32"),
        ("ubatch_size", "40000", "is not between 0"),
        ("rope_scaling", "longrope", "is not a way to scale RoPE"),
        ("rope_freq_scale", "0", "is not between 1e-06"),
        ("rope_freq_base", "nan", "is not between 1"),
        ("yarn_orig_ctx", "0", "is not between 1"),
        ("lora", ["/a.gguf", "/a.gguf:0.5"], "is named twice"),
        ("lora", [""] * 2, "is not the path of an adapter"),
        ("lora", ["/a\0b"], "is not the path of an adapter"),
        ("lora", [":0.5", "/a"], "is not the path of an adapter"),
        ("lora", ["/a.gguf:9999"], "is not between -1000"),
        ("lora", 3, "is not a list of adapters"),
    ],
    ids=str,
)
def test_bad_values(paths: Paths, key: str, value: object, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, **{key: value})
    assert problem in caught.value.message


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"rope_scaling": "none", "rope_freq_scale": "0.5"}, "--rope-freq-scale has no effect"),
        ({"batch_size": "64", "ubatch_size": "128"}, "--ubatch-size 128 is more than --batch-size 64"),
    ],
    ids=["scale", "batch"],
)
def test_what_contradicts_itself(paths: Paths, flags: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, **flags)
    assert problem in caught.value.message


def test_adapters_and_positions_stay_with_their_model() -> None:
    mine = {"rope": Rope(freq_scale=0.5), "lora": (Adapter("/a.gguf"),)}
    config = EngineConfig("/m/x.gguf", hardware=Hardware(mlock=True), **mine)  # type: ignore[arg-type]
    assert config.of_model("/m/x.gguf") == config
    assert config.of_model("/m/y.gguf") == EngineConfig("/m/y.gguf", hardware=Hardware(mlock=True))
    assert EngineConfig("", **mine).of_model("/m/x.gguf").lora == (Adapter("/a.gguf"),)  # type: ignore[arg-type]


def test_a_death_is_that_of_its_settings(tmp_path: Path) -> None:
    """What an engine died with says nothing of it without; a file of another content is another adapter."""
    adapter = tmp_path / "a.gguf"
    adapter.write_bytes(b"1")
    plain = EngineConfig("/m/x.gguf")
    configs = [
        plain,
        EngineConfig("/m/x.gguf", hardware=Hardware(kv_offload=False)),
        EngineConfig("/m/x.gguf", rope=Rope(freq_scale=0.5)),
        EngineConfig("/m/x.gguf", lora=(Adapter(str(adapter)),)),
        EngineConfig("/m/x.gguf", lora=(Adapter(str(adapter), 0.5),)),
    ]
    keys = [configuration_key(config) for config in configs]
    assert len(set(keys)) == len(keys)
    adapter.write_bytes(b"22")
    assert configuration_key(configs[3]) != keys[3]
    assert configuration_key(plain) == keys[0]
