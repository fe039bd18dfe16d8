"""`kvchat completions`: the scripts, asked by the shells themselves where these are installed."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvchat.arguments import _COMMANDS, whole_parser
from kvchat.commands.completions import SHELLS, run_completions
from kvchat.errors import UsageError

ACTIONS = {"ls", "show", "search", "rename", "rm", "empty-trash", "restore", "pin", "unpin", "export", "import"}


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    out = io.StringIO()
    assert run_completions(whole_parser(), shell, out=out) == 0
    path = tmp_path / f"kvchat.{shell}"
    path.write_text(out.getvalue())
    return path


def asked_of_bash(script: Path, words: Sequence[str]) -> set[str]:
    typed = ("kvchat", *words)
    code = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({shlex.join(typed)}); COMP_CWORD={len(typed) - 1}; "
        'COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; '
        '_shtab_kvchat; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def asked_of_fish(script: Path, words: Sequence[str]) -> set[str]:
    code = f"source {shlex.quote(str(script))}; complete -C {shlex.quote(' '.join(('kvchat', *words)))}"
    done = subprocess.run(["fish", "--no-config", "-c", code], check=True, capture_output=True, text=True)
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


CASES = [
    (("",), set(_COMMANDS)),
    (("chats", ""), ACTIONS),
    (("--flash-at",), {"--flash-attn"}),
    (("--flash-attn", ""), {"on", "off", "auto"}),
    (("ask", "-ctk", "q"), {"q8_0", "q4_0"}),
    (("ask", "--overflow", "s"), {"stop", "shift", "sinks", "summarize"}),
    (("kv", "transcode", "--to", "iq"), {"iq4_nl"}),
    (("bench", "re"), {"restore", "resume"}),
    (("completions", ""), set(SHELLS)),
]


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_bash(script: Path, words: Sequence[str], offered: set[str]) -> None:
    assert asked_of_bash(script, words) == offered


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_fish(script: Path, words: Sequence[str], offered: set[str]) -> None:
    assert offered <= asked_of_fish(script, words)


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_reads_it(script: Path) -> None:
    dump, script_ = shlex.quote(f"{script}.dump"), shlex.quote(str(script))
    code = f'autoload -U compinit; compinit -u -d {dump}; eval "$(cat {script_})"; echo $_comps[kvchat]'
    done = subprocess.run(["zsh", "-f", "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("_shtab_kvchat\n", "")


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_files_are_offered_for_a_model(script: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").touch()
    assert asked_of_bash(script, ("-m", f"{tmp_path}/ti")) == {f"{tmp_path}/tiny.gguf"}


def test_another_shell_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        run_completions(whole_parser(), "tcsh", out=io.StringIO())
    assert "tcsh" in refused.value.message
    assert refused.value.hint == "there are: bash, zsh, fish"
