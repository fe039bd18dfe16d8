"""Saving into config.toml: one value changes, all else stays byte for byte."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from kvchat.backend.values import EngineConfig, Sampling
from kvchat.config import load_settings
from kvchat.config_write import save_chat_defaults, save_engine_defaults, write_values
from kvchat.errors import KvchatError
from kvchat.paths import Paths

COMMENTED = """\
# my settings
model = "smollm2"   # the small one
temp = 0.5
cache-type-k = 'f16'# hyphens are fine too
stop = [
  "a",  # model = "in a comment"
  "b",
]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "config.toml"


def written(file: Path, text: str, **values: str | int | bool) -> str:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    write_values(file, values)
    return file.read_bytes().decode()


def test_a_new_file_is_private(file: Path) -> None:
    write_values(file, {"model": "m", "threads": 2, "kv": False})
    assert file.read_text() == 'model = "m"\nthreads = 2\nkv = false\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


def test_comments_and_other_keys_stay(file: Path) -> None:
    after = written(file, COMMENTED, model="/m/x.gguf", cache_type_k="q8_0", threads=3)
    expected = COMMENTED.replace('"smollm2"', '"/m/x.gguf"', 1).replace("'f16'", '"q8_0"') + "threads = 3\n"
    assert after == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "threads = 4\n"),
        ("threads=1", "threads=4"),
        ("  threads   =  1  # one\n", "  threads   =  4  # one\n"),
        ('"threads" = 1\n', '"threads" = 4\n'),
        ("temp = 1", "temp = 1\nthreads = 4\n"),  # no line break at the end
        ("temp = 1\r\nthreads = 1\r\n", "temp = 1\r\nthreads = 4\r\n"),
        ("temp = 1\r\n", "temp = 1\r\nthreads = 4\r\n"),
        ("threads = +1_0\n", "threads = 4\n"),
        ("# threads = 1\n", "# threads = 1\nthreads = 4\n"),
        # a line of a longer text is not a setting
        ('system = """\nthreads = 1\n"""\nthreads = 2\n', 'system = """\nthreads = 1\n"""\nthreads = 4\n'),
        ("system = '''\nthreads = 1\n'''\n", "system = '''\nthreads = 1\n'''\nthreads = 4\n"),
        # of two spellings the reader takes the last
        ("n-threads = 1\nthreads = 1\n", "n-threads = 1\nthreads = 4\n"),
        # keys of a table are others
        ("temp = 1\n[later]\nthreads = 1\n", "temp = 1\nthreads = 4\n[later]\nthreads = 1\n"),
        ("threads = 4\n", "threads = 4\n"),
    ],
)
def test_one_line_changes(file: Path, before: str, after: str) -> None:
    assert written(file, before, threads=4) == after


def test_of_two_spellings_the_last_counts(file: Path) -> None:
    after = written(file, "ctx_size = 1\nctx-size = 2\n", ctx_size=4096)
    assert after == "ctx_size = 1\nctx-size = 4096\n"


@pytest.mark.parametrize(
    "text",
    [
        'a "quoted" \\ back',
        "tab\tand\nline",
        "键值 \x7f \x1b[0m",
        "#no comment",
        "'",
        "C:\\models\\x.gguf",
        '"""',
        "\x85\u2028",
    ],
)
def test_any_text_can_be_written_twice(file: Path, text: str) -> None:
    for _ in range(2):
        write_values(file, {"model": text, "temp": 1})
        assert tomllib.loads(file.read_bytes().decode()) == {"model": text, "temp": 1}
    assert file.read_bytes().count(b"model") == (2 if "models" in text else 1)


def test_a_value_over_several_lines_is_refused_and_left_alone(file: Path) -> None:
    before = 'model = """\nsmollm2"""\n'
    with pytest.raises(KvchatError, match="a program cannot change: model"):
        written(file, before, model="x")
    assert file.read_text() == before


def test_a_name_without_a_text_form_is_refused(file: Path) -> None:
    with pytest.raises(KvchatError, match="cannot change: model"):
        write_values(file, {"model": os.fsdecode(b"/m/\xff.gguf")})
    assert not file.exists()


@pytest.mark.parametrize("content", [b"threads = = 1\n", b"\xff\xfe", b"threads = 1\nthreads = 2\n"])
def test_a_file_that_is_not_toml_is_left_alone(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(KvchatError, match="not valid TOML"):
        write_values(file, {"threads": 4})
    assert file.read_bytes() == content


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles" / "kvchat.toml"
    target.write_text("temp = 1\n")
    file.parent.mkdir()
    file.symlink_to(target)
    write_values(file, {"threads": 2})
    assert file.is_symlink()
    assert target.read_text() == "temp = 1\nthreads = 2\n"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(KvchatError, match="cannot be read"):
        write_values(tmp_path, {"threads": 2})


def test_a_full_disk_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    file.write_text("temp = 1\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KvchatError, match="No space left on device"):
        write_values(file, {"threads": 2})
    assert file.read_text() == "temp = 1\n"
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


# ------------------------------------------------------------------ an engine's defaults


def test_what_is_saved_is_what_is_loaded(home: Path) -> None:
    paths = Paths.find(os.environ)
    config = EngineConfig("/m/x.gguf", 4096, "q8_0", "q4_0", "on", 3, 9999, draft_path="/m/y.gguf")
    save_engine_defaults(paths.config_file, config)
    settings = load_settings(paths, {}, {})
    found = (settings.model, settings.context, settings.type_k, settings.type_v, settings.flash_attention)
    assert found == ("/m/x.gguf", 4096, "q8_0", "q4_0", "on")
    assert (settings.threads, settings.gpu_layers, settings.model_draft) == (3, 9999, "/m/y.gguf")
    save_engine_defaults(paths.config_file, EngineConfig("/m/x.gguf"))  # a draft model can be taken back
    assert load_settings(paths, {}, {}).model_draft is None


def test_defaults_are_written_only_over_other_values(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("# mine\nflash-attn = false\nctx_size = 2048\n")
    save_engine_defaults(file, EngineConfig("/m/x.gguf"))
    assert file.read_text() == '# mine\nflash-attn = "auto"\nctx_size = 0\nmodel = "/m/x.gguf"\n'


# ------------------------------------------------------------------ lists, numbers, a chat's defaults


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'stop = ["a", "b\\n"]\ntemp = 0.3\n'),
        ("temp = 1 # hot\nstop = []\n", 'temp = 0.3 # hot\nstop = ["a", "b\\n"]\n'),
        ("stop = [ 'x', \"]\", ]  # [old]\n", 'stop = ["a", "b\\n"]  # [old]\ntemp = 0.3\n'),
        ("temp = 0.30\nstop = ['a', \"b\\n\"]\n", "temp = 0.30\nstop = ['a', \"b\\n\"]\n"),  # it says so already
        ('stop = [\n  "a",\n  "b\\n",\n]\n', 'stop = [\n  "a",\n  "b\\n",\n]\ntemp = 0.3\n'),
    ],
)
def test_lists_and_numbers(file: Path, before: str, after: str) -> None:
    file.parent.mkdir()
    file.write_text(before)
    write_values(file, {"stop": ("a", "b\n"), "temp": 0.3})
    assert file.read_text() == after


def test_a_list_over_several_lines_is_refused(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('stop = [\n  "a",\n]\n')
    with pytest.raises(KvchatError, match="a program cannot change: stop"):
        write_values(file, {"stop": ("b",)})


def test_one_is_not_true(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("kv = true\nthreads = 1\ntemp = 1\n")
    write_values(file, {"kv": True, "threads": 1, "temp": 1.0})
    assert file.read_text() == "kv = true\nthreads = 1\ntemp = 1\n"


def test_a_chats_defaults_are_loaded_as_they_were_saved(home: Path) -> None:
    paths = Paths.find(os.environ)
    sampling = Sampling(0.25, 0, 0.5, 0.0, 1.05, 0, 7, 99, ("END", "\n\n", '"'))
    save_chat_defaults(paths.config_file, sampling, "exact", "ngram", "shift")
    settings = load_settings(paths, {}, {})
    assert settings.sampling == sampling
    assert (settings.history, settings.draft, settings.overflow) == ("exact", "ngram", "shift")
    save_chat_defaults(paths.config_file, Sampling(), "append", "auto", "stop")  # a seed and a limit can be taken back
    settings = load_settings(paths, {}, {})
    assert settings.sampling == Sampling()
    assert (settings.history, settings.draft, settings.overflow) == ("append", "auto", "stop")


def test_usual_sampling_is_not_written(file: Path) -> None:
    save_chat_defaults(file, Sampling(top_k=5), "append", "auto", "stop")
    assert file.read_text() == "top_k = 5\n"


def test_the_budget_is_an_engines_default(home: Path) -> None:
    paths = Paths.find(os.environ)
    save_engine_defaults(paths.config_file, EngineConfig("/m/x.gguf", kv_budget=8 << 30))
    assert load_settings(paths, {}, {}).kv_budget == 8 << 30
