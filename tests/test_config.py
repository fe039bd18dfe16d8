"""Settings: which source wins, what values may be, and what errors say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvchat.backend.values import Sampling
from kvchat.config import Settings, engine_config, load_settings
from kvchat.config_options import OPTIONS
from kvchat.errors import UsageError
from kvchat.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"KVCHAT_HOME": str(tmp_path)})


def load(
    paths: Paths, toml: str = "", environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> Settings:
    if toml:
        paths.config_file.write_text(toml)
    return load_settings(paths, environ or {}, flags or {})


def test_defaults(paths: Paths) -> None:
    settings = load(paths)
    assert settings == Settings()
    assert (settings.type_k, settings.type_v, settings.flash_attention) == ("f16", "f16", "auto")
    assert (settings.context, settings.threads, settings.gpu_layers, settings.kv) == (0, 0, -1, True)
    assert settings.sampling == Sampling()


def test_each_source_wins_over_the_one_before(paths: Paths) -> None:
    toml = 'threads = 1\nctx_size = 1\ntop_k = 1\nmodel = "file"\nhistory = "exact"'
    environ = {
        "LLAMA_ARG_THREADS": "2",
        "LLAMA_ARG_CTX_SIZE": "2",
        "LLAMA_ARG_MODEL": "llama",
        "KVCHAT_CTX_SIZE": "3",
        "KVCHAT_MODEL": "kvchat",
    }
    settings = load(paths, toml, environ, {"model": "flag"})
    assert settings.history == "exact"  # only in the file
    assert settings.sampling.top_k == 1
    assert settings.threads == 2  # llama.cpp's variable over the file
    assert settings.context == 3  # ours over llama.cpp's
    assert settings.model == "flag"


def test_every_setting_from_the_file(paths: Paths) -> None:
    settings = load(
        paths,
        """
        model = "smol"
        ctx-size = 4096
        cache_type_k = "q8_0"
        cache_type_v = "q4_0"
        flash_attn = true
        n_gpu_layers = "all"
        threads = 3
        model-draft = "small"
        draft = "ngram"
        history = "exact"
        seed = 7
        temp = 0
        top_k = 10
        top_p = 0.5
        min_p = 0.25
        repeat_penalty = 1.5
        predict = 12
        stop = ["END", "\\n\\n"]
        system = "Be brief."
        kv = false
        kv_budget = "2GiB"
        kv_type_disk = "q8_0"
        theme = "paper"
        mouse = false
        follow = "off"
        auto_title = false
        model_folders = ["/data/models", "/mnt/gguf"]
        offline = true
        fit = "off"
        parallel = 6
        favour = "answers"
        read_ahead = false
        """,
    )
    assert settings == Settings(
        model="smol",
        context=4096,
        type_k="q8_0",
        type_v="q4_0",
        flash_attention="on",
        threads=3,
        gpu_layers=9999,
        model_draft="small",
        draft="ngram",
        history="exact",
        sampling=Sampling(0.0, 10, 0.5, 0.25, 1.5, 64, 7, 12, ("END", "\n\n")),
        system="Be brief.",
        kv=False,
        kv_budget=2 * 2**30,
        kv_type_disk="q8_0",
        theme="paper",
        mouse=False,
        follow="off",
        auto_title=False,
        model_folders=(Path("/data/models"), Path("/mnt/gguf")),
        offline=True,
        fit="off",
        parallel=6,
        favour="answers",
        read_ahead=False,
    )


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_every_setting_has_a_variable(paths: Paths, option: Any) -> None:
    good = {
        "cache_type_k": "bf16",
        "cache_type_v": "bf16",
        "split_mode": "row",
        "kv_offload": "no",
        "mmap": "no",
        "mlock": "yes",
        "batch_size": "64",
        "ubatch_size": "64",
        "rope_scaling": "yarn",
        "flash_attn": "off",
        "draft": "off",
        "overflow": "shift",
        "history": "exact",
        "kv": "0",
        "kv_budget": "1",
        "kv_type_disk": "q5_1",
        "min_p": "1",
        "top_p": "1",
        "mouse": "off",
        "follow": "start",
        "auto_title": "no",
        "model_folders": "/data/models:/mnt/gguf",
        "offline": "yes",
        "incognito": "yes",
        "fit": "off",
        "favour": "prompts",
        "read_ahead": "no",
    }.get(option.key, "5")
    assert load(paths, environ={option.variable: good}) != Settings()


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("kv_budget", "8GiB", 8 * 2**30),
        ("kv_budget", "8g", 8 * 10**9),
        ("kv_budget", "500M", 500 * 10**6),
        ("kv_budget", "1.5 GiB", 3 * 2**29),
        ("kv_budget", "1000000", 10**6),
        ("kv_budget", "0", 0),
        ("n_gpu_layers", "auto", -1),
        ("n_gpu_layers", "-1", -1),
        ("n_gpu_layers", "0", 0),
        ("threads", "-1", 0),  # llama.cpp's "choose"
        ("model_draft", "none", None),
        ("model_draft", " None ", None),
        ("model_draft", "./none", "./none"),
        ("draft", "NGRAM", "ngram"),
        ("flash_attn", "1", "on"),  # llama.cpp's other words
        ("flash_attn", "disabled", "off"),
        ("cache_type_k", "Q8_0", "q8_0"),
        ("kv", "off", False),
        ("system", "", ""),
        ("system", "a\udcffb", "a\N{REPLACEMENT CHARACTER}b"),  # an argument that was not UTF-8
    ],
)
def test_values_as_people_write_them(paths: Paths, key: str, text: str, expected: object) -> None:
    names = {"n_gpu_layers": "gpu_layers", "flash_attn": "flash_attention", "cache_type_k": "type_k"}
    assert getattr(load(paths, flags={key: text}), names.get(key, key)) == expected


@pytest.mark.parametrize(("key", "name"), [("seed", "seed"), ("predict", "max_tokens")])
def test_minus_one_means_no_choice(paths: Paths, key: str, name: str) -> None:
    assert getattr(load(paths, flags={key: "-1"}).sampling, name) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ctx_size", "many"),
        ("ctx_size", "-1"),
        ("ctx_size", "4096.5"),
        ("ctx_size", "9" * 10),
        ("ctx_size", "9" * 5000),  # longer than int() takes
        ("ctx_size", "٤٠٩٦"),  # digits, but not those of a flag
        ("threads", "-2"),
        ("temp", "nan"),
        ("temp", "inf"),
        ("temp", "-0.1"),
        ("top_p", "1.1"),
        ("min_p", "-1"),
        ("repeat_penalty", "0"),
        ("seed", "4294967295"),
        ("predict", "0"),
        ("stop", [""]),
        ("kv_budget", "8 potatoes"),
        ("kv_type_disk", "q8"),
        ("kv_type_disk", "f32"),
        ("kv_budget", "-8GiB"),
        ("kv_budget", "9" * 400),  # an infinite float
        ("flash_attn", "maybe"),
        ("history", "none"),
        ("model", " "),
    ],
)
def test_values_that_are_refused(paths: Paths, key: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, flags={key: value})
    assert "--" in caught.value.message  # the flag is named
    assert len(caught.value.message) < 300


def test_unknown_cache_type_names_the_nearest_and_all(paths: Paths) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, flags={"cache_type_k": "q8"})
    assert "-ctk/--cache-type-k" in caught.value.message
    assert "did you mean q8_0?" in caught.value.hint
    assert "f16, bf16, q8_0, q4_0" in caught.value.hint


@pytest.mark.parametrize("variable", ["KVCHAT_CACHE_TYPE_V", "LLAMA_ARG_CACHE_TYPE_V"])
def test_errors_name_the_variable(paths: Paths, variable: str) -> None:
    with pytest.raises(UsageError, match=f"^{variable}: "):
        load(paths, environ={variable: "q5_1"})


def test_errors_name_file_and_key(paths: Paths) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, "threads = true")
    assert caught.value.message.startswith(f"{paths.config_file}, line 1: threads: ")


@pytest.mark.parametrize(
    ("toml", "message", "hint"),
    [
        ('cache_type = "f16"', "cache_type", "did you mean cache_type_"),
        ("tempp = 1", "tempp", "did you mean temp?"),
        ("[window]\ntemp = 1", "window", "there are: "),  # a table is no setting
        ("threads = [", "not valid TOML", ""),
        ("a = " + "[" * 100_000, "not valid TOML", ""),
    ],
)
def test_bad_files(paths: Paths, toml: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, toml)
    assert str(paths.config_file) in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_file_that_is_not_text(paths: Paths) -> None:
    paths.config_file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not valid UTF-8"):
        load(paths)


def test_file_that_is_a_folder(paths: Paths) -> None:
    paths.config_file.mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load(paths)


def test_endless_file(paths: Paths) -> None:
    paths.config_file.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="too large"):
        load(paths)


def test_misspelt_variable(paths: Paths) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, environ={"KVCHAT_CACHE_TYPEK": "f16"})
    assert "KVCHAT_CACHE_TYPEK" in caught.value.message
    assert "KVCHAT_CACHE_TYPE_K" in caught.value.hint


def test_other_variables_are_nobodys_business(paths: Paths) -> None:
    assert load(paths, environ={"LLAMA_ARG_PORT": "x", "KVCHAT_HOME": "x", "KVCHAT_THREADS": ""}) == Settings()


@pytest.mark.parametrize("type_v", ["q8_0", "q4_0"])
def test_quantized_values_need_flash_attention(paths: Paths, type_v: str) -> None:
    with pytest.raises(UsageError, match="needs flash attention"):
        load(paths, 'flash_attn = "off"', flags={"cache_type_v": type_v})
    assert load(paths, flags={"cache_type_v": type_v, "flash_attn": "auto"}).type_v == type_v


def test_quantized_keys_do_not(paths: Paths) -> None:
    assert load(paths, flags={"cache_type_k": "q8_0", "flash_attn": "off"}).type_k == "q8_0"


def test_engine_config(paths: Paths) -> None:
    settings = Settings(context=512, type_k="q8_0", threads=2, kv_budget=5, kv_type_disk="q4_0")
    config = engine_config(settings, Path("/models/m.gguf"), paths)
    assert (config.model_path, config.context, config.type_k, config.threads) == ("/models/m.gguf", 512, "q8_0", 2)
    assert (config.kv_folder, config.kv_budget, config.extra_buffers) == (str(paths.kv_folder), 5, True)
    assert config.kv_type_disk == "q4_0"
    assert engine_config(Settings(kv=False), Path("m"), paths).kv_folder is None


def test_given_are_the_keys_of_the_flags(paths: Paths) -> None:
    settings = load(paths, 'model = "file"', {"KVCHAT_THREADS": "2"}, {"cache_type_k": "q8_0", "temp": "0"})
    assert settings.given == {"cache_type_k", "temp"}


def test_only_a_flag_changes_the_system_prompt_of_an_old_chat(home: Path) -> None:
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    (home / "config.toml").write_text('system = "from the file"\n')
    assert load_settings(paths, {"KVCHAT_SYSTEM": "from a variable"}, {}).new_system is None
    settings = load_settings(paths, {}, {"system": "from a flag"})
    assert (settings.system, settings.new_system) == ("from a flag", "from a flag")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("\n# threads = 1\nseed = 1\n  threads = true\n", 4, "threads"),
        ("'ctx-size' = -7", 1, "ctx-size"),
        ("temp = 1\n\nnothing = 1", 3, "nothing"),
        ('stop = """\nthreads = 9"""\nmouse = 3', 3, "mouse"),
    ],
)
def test_errors_name_the_line(paths: Paths, text: str, line: int, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(paths, text)
    assert caught.value.message.startswith(f"{paths.config_file}, line {line}: ")
    assert key in caught.value.message
