"""The command line from outside: words, exit codes, and how errors look. No engine is started here."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import kvchat
from kvchat.arguments import parse, whole_parser
from kvchat.arguments_meaning import SCREEN_KEYS
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.cli import main
from kvchat.config_options import BY_KEY, OPTIONS
from kvchat.errors import UsageError

Done = subprocess.CompletedProcess[str]


def refusal(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert caught.value.exit_code == 2
    return caught.value


def run(line: Sequence[str], environ: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL) -> Done:
    return subprocess.run(line, check=False, capture_output=True, text=True, stdin=stdin, env=environ)


def kvchat_process(*words: str, environ: Mapping[str, str] | None = None) -> Done:
    return run([sys.executable, "-m", "kvchat", *words], environ)


# ------------------------------------------------------------------ words


def test_no_command_is_the_app() -> None:
    assert parse([]).command == ""
    assert parse(["-c"]).continue_last is True


def test_flags_may_stand_on_both_sides_of_the_command() -> None:
    given = parse(["-m", "smol", "--temp", "0", "ask", "-ctk", "q8_0", "-n", "5", "why", "is", "it?"])
    assert (given.model, given.temp, given.cache_type_k, given.predict) == ("smol", "0", "q8_0", "5")
    assert given.question == ["why", "is", "it?"]


def test_a_flag_that_is_not_given_leaves_nothing() -> None:
    assert vars(parse(["ask", "x"])) == {"command": "ask", "question": ["x"]}


def test_stop_is_repeatable() -> None:
    assert parse(["ask", "--stop", "a", "--stop", "b", "x"]).stop == ["a", "b"]


SWITCHES = ("kv", "incognito", "offline", "kv_offload", "mmap", "mlock", "read_ahead")  # flags without a value


def test_every_setting_is_offered_as_it_is_named() -> None:
    for option in OPTIONS:
        for flag in filter(None, option.flag.split("/")):
            words = [flag] if option.key in SWITCHES else [flag, "value"]
            assert option.key in vars(parse(words)), flag
            if option.key not in SCREEN_KEYS:  # what has no screen takes the others
                assert option.key in vars(parse(["ask", *words, "x"])), flag


def test_negative_numbers_are_values() -> None:
    given = parse(["ask", "--seed", "-1", "-ngl", "-1", "-n", "-1", "x"])
    assert (given.seed, given.n_gpu_layers, given.predict) == ("-1", "-1", "-1")


def test_a_question_may_begin_with_a_dash_after_two() -> None:
    assert parse(["ask", "--", "-c", "4096"]).question == ["-c", "4096"]


# Each row: what was typed, a part of the message, a part of the hint.
@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["aks", "hi"], "'aks'", "did you mean ask?"),
        (["chat"], "'chat'", "did you mean chats?"),
        (["pull", "qwen3:4b"], "'pull'", "kvchat models pull"),
        (["serve"], "'serve'", "--remote URL"),
        (["--ctx", "4096"], "no flag '--ctx'", "--ctx-size N"),
        (["-m", "x", "--tmp", "1", "ask", "hi"], "no flag '--tmp'", "did you mean --temp?"),
        (["-p", "hi"], "no flag '-p'", "kvchat ask"),
        (["-hf", "owner/name"], "no flag '-hf'", "kvchat models pull"),
        (["ask", "-sys", "Be terse.", "hi"], "no flag '-sys'", "-s TEXT"),
        (["ask", "-mm", "a.gguf", "hi"], "no flag '-mm'", "text alone"),
        (["ask", "--format", "json", "hi"], "no flag '--format'", "--json"),
        (["what is a cache?"], "'what is a cache?'", 'kvchat ask "..."'),
        (["kv", "verfy"], "'verfy'", "did you mean verify?"),
        (["kv"], "ACTION", "kvchat kv --help"),
        (["kv", "show"], "CHAIN", "kvchat kv show --help"),
        (["chats", "serch", "x"], "'serch'", "did you mean search?"),
        (["chats", "search"], "QUERY", "kvchat chats search --help"),
        (["chats", "rename", "x"], "TITLE", "kvchat chats rename --help"),
        (["chats", "rm"], "CHAT", "kvchat chats rm --help"),
        (["chats", "rm", "x", "y"], "'y'", "kvchat chats --help"),
        (["chats", "rm", "x", "--trash"], "--trash means nothing to kvchat chats", ""),
        (["models", "ls", "--trash"], "--trash means nothing to kvchat models", ""),
        (["ask", "--tmp", "1", "x"], "'--tmp'", "did you mean --temp?"),
        (["doctor", "--incognito"], "--incognito means nothing to kvchat doctor", ""),
        (["ask", "--model"], "--model", "--help"),
        (["paths", "--no-kv"], "--no-kv means nothing to kvchat paths", ""),
        (["-m", "x", "kv", "ls"], "-m/--model means nothing to kvchat kv", ""),
        (["-c", "models", "ls"], "-c/--continue means nothing to kvchat models", ""),
        (["--resume"], "--resume", ""),  # the app has no such flag
        (["kv", "pin", "--name", "x", "-md", "y"], "-md/--model-draft means nothing to kvchat kv", ""),  # no answers
        (["kv", "pin", "--name", "x", "-np", "2"], "-np means nothing to kvchat kv", ""),
        (["--favour", "prompts", "kv", "pin", "x"], "--favour means nothing to kvchat kv", ""),
        (["paths", "x"], "'x'", ""),
        (["ask", "--mod", "x", "y"], "'--mod'", "did you mean --model?"),  # no abbreviations: they break later
    ],
)
def test_wrong_words(words: list[str], message: str, hint: str) -> None:
    error = refusal(*words)
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize("line", ["-c 4096", "ask -c 4096 hello", "ask -c 512", "-c4096", "ask hi -c 8192"])
def test_a_number_after_c_is_llama_cpps_context_size(line: str) -> None:
    error = refusal(*line.split())
    assert "did you mean --ctx-size" in error.hint


def test_a_number_after_s_is_llama_cpps_seed() -> None:
    assert "did you mean --seed 42?" in refusal("ask", "-s", "42", "hello").hint


@pytest.mark.parametrize(
    "words",
    [
        ["ask", "-c", "why 4096?"],
        ["ask", "-c", "42"],  # a question about a number, too small for a context
        ["ask", "-c", "--", "4096"],
        ["ask", "--continue", "4096"],
        ["ask", "-c", "--ctx-size", "4096", "x"],
        ["ask", "--system", "42", "x"],
        ["ask", "-s", "42 is the answer", "x"],
    ],
)
def test_what_only_looks_like_it(words: list[str]) -> None:
    assert parse(words).command == "ask"


def test_words_of_a_query_and_a_title_need_no_quotes() -> None:
    assert parse(["chats", "search", "two", "words"]).query == ["two", "words"]
    given = parse(["chats", "rename", "01J", "A", "new", "title", "--json"])
    assert (given.name, given.title, given.json) == ("01J", ["A", "new", "title"], True)


def test_two_chats_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "-c", "--chat", "01J", "x"]) == 2
    assert "two chats" in capsys.readouterr().err


# ------------------------------------------------------------------ exits


def test_error_and_hint_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "-ctk", "q9_0", "hi"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error: -ctk/--cache-type-k: 'q9_0' is not a cache type\n"
        "hint: did you mean q8_0? there are: f16, bf16, q8_0, q4_0\n"
    )


def test_chats_from_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(ChatStore(home / "chats.db")) as store:
        message = Message("m", "01J", None, "user", "日本語の説明", 1.0, "")
        store.add_turn(Chat("01J", "First", 1.0, 2.0, "", 1.0, "", None), [message])

    def output(line: str) -> str:
        assert main(line.split()) == 0
        return capsys.readouterr().out

    assert json.loads(output("chats search 語の --json"))[0]["message"] == "m"
    assert output("chats rename first Another name") == '"First" is now "Another name".\n'
    assert "kvchat chats restore 01J" in output("chats rm Another")
    assert json.loads(output("chats ls --json")) == []
    assert [chat["id"] for chat in json.loads(output("chats ls --trash --json"))] == ["01J"]
    assert output("chats restore another") == '"Another name" is back.\n'
    assert "日本語" in output("chats show 01J")
    assert main(["chats", "rm", "nothing"]) == 1
    assert "no chat" in capsys.readouterr().err


def test_no_control_characters_in_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["ask", "-m", "\x1b]0;title\x07", "hi"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_settings_file_is_wrong(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text('temprature = "x"')
    assert main(["ask", "hi"]) == 2
    assert f"{home / 'config.toml'}, line 1: there is no setting 'temprature'" in capsys.readouterr().err


def test_paths_works_with_a_broken_settings_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("][")
    assert main(["paths", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "config_file": str(home / "config.toml"),
        "chats_db": str(home / "chats.db"),
        "kv_folder": str(home / "kv"),
        "models_folder": str(home / "models"),
        "state_folder": str(home / "state"),
        "log_file": str(home / "logs" / "engine.log"),
    }


def test_paths_in_words(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paths"]) == 0
    assert f"chats       {home / 'chats.db'}\n" in capsys.readouterr().out


def test_the_app_without_a_terminal() -> None:
    done = kvchat_process()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'error: the app needs a terminal\nhint: without one: kvchat --plain, or kvchat ask "..."\n'


def test_the_app_with_only_half_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        done = run([sys.executable, "-m", "kvchat"], stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2


def test_version() -> None:
    done = kvchat_process("--version")
    assert (done.returncode, done.stdout) == (0, f"kvchat {kvchat.__version__}\n")


@pytest.mark.parametrize(("words", "code"), [("ask -ctk nonsense x", 2), ("paths", 0), ("", 2), ("chats ls", 0)])
def test_closed_standard_streams(words: str, code: int) -> None:
    assert run(["bash", "-c", f"{sys.executable} -m kvchat {words} <&- >&- 2>&-"]).returncode == code


def test_reader_that_goes_away() -> None:
    line = f"set -o pipefail; {sys.executable} -m kvchat paths | true; echo ${{PIPESTATUS[0]}}"
    done = run(["bash", "-c", line])
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "1"}  # whichever of the two was faster


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(unbuffered: str) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    line = [sys.executable, "-m", "kvchat", "paths"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, check=False, stdout=full, stderr=subprocess.PIPE, text=True, env=environ)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_locale_without_unicode() -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "KVCHAT_HOME": "/tmp/käse"}
    done = kvchat_process("paths", environ=environ)
    assert done.returncode == 0
    assert "/tmp/k?se" in done.stdout


def test_keys_are_words_that_fit_everywhere() -> None:
    for key in BY_KEY:
        assert key == key.lower()
        assert key.isidentifier()


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def test_every_help_fits_a_terminal_and_says_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in parsers(whole_parser()):
        assert max(map(len, parser.format_help().splitlines())) <= 80, parser.prog
        silent = [action.dest for action in parser._actions if not action.help and action.dest != "action"]
        assert silent in ([], ["command"]), parser.prog  # the names of commands tell themselves
