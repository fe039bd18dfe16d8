"""Code in colours: gapless spans, chunks that do not depend on how the code came, nothing done before it is drawn."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvchat.ui import code_colors, code_lines
from kvchat.ui.code_colors import highlighted
from kvchat.ui.code_lines import CodeLines

PYTHON = ["def f(x):", '    """Doc', '    more."""', "    return x + 1  # done", "", "y = 'a' if None else @"]


def inks(language: str, line: str) -> dict[str, str]:
    return {line[start:end]: ink for start, end, ink in highlighted(language, [line])[0]}


def test_what_the_colours_are() -> None:
    found = inks("python", "def f(x): return 'a', 1  # c")
    assert found["def"] == "code-keyword"
    assert found["f"] == "code-name"
    assert found["1"] == "code-number"
    assert found["# c"] == "code-comment"
    assert inks("js", "let a = `b`;")["let"] == "code-keyword"
    assert inks("diff", "+new")["+new"] == "code-string"
    assert inks("no-such-language", "def f") == {"def f": "text"}


@pytest.mark.parametrize("language", ["python", "js", "bash", "html", "c", "json", "sql", "pycon", "diff", "xyz"])
def test_spans_cover_each_line_without_gaps(language: str) -> None:
    lines = [*PYTHON, "", "<a href='b'>\u2028\x85</a>", "$ ls /* c", ">>> 1", "键值 = '👩‍💻'", "  "]
    for line, spans in zip(lines, highlighted(language, lines), strict=True):
        ends = [0, *(end for _, end, _ in spans)]
        assert [start for start, _, _ in spans] == ends[:-1]
        assert ends[-1] == len(line)


@pytest.mark.parametrize("line", ["x = 👩‍💻", "\tx = '👩‍💻'"])
def test_no_run_ends_within_an_emoji(line: str) -> None:
    code = added([line], drawn=True)
    runs = code.runs(0)
    assert any("👩‍💻" in run.text for run in runs), "its pieces would be measured one by one, as four cells"
    assert "".join(run.text for run in runs) == line.replace("\t", "    ")
    assert [run.start for run in runs[1:]] == [run.end for run in runs[:-1]]


def test_a_lexer_that_fails_leaves_the_code_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def get_tokens_unprocessed(self, text: str) -> object:
            raise RecursionError

    monkeypatch.setattr(code_colors, "_lexer", lambda language: Broken())
    assert highlighted("broken", ["a", "b"]) == [[(0, 1, "text")], [(0, 1, "text")]]


def added(lines: list[str], *, drawn: bool) -> CodeLines:
    code = CodeLines("python")
    for number, line in enumerate(lines):
        code.add(line, 100 * number)
        if drawn:
            code.runs(number)
    code.close()
    return code


def test_code_that_grew_ends_with_the_colours_of_code_that_was_there() -> None:
    lines = (PYTHON * 40)[:-1]
    grown, whole = added(lines, drawn=True), added(lines, drawn=False)
    assert [grown.runs(n) for n in range(len(lines))] == [whole.runs(n) for n in range(len(lines))]


def test_only_the_chunk_that_is_drawn_is_highlighted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        code_lines, "highlighted", lambda language, lines: calls.append(len(lines)) or highlighted(language, lines)
    )
    code = added(["x = 1"] * 5_000, drawn=False)
    assert calls == []
    code.runs(4_000)
    assert len(calls) == 1
    assert calls[0] <= 160


def test_tabs_become_spaces_and_know_their_source() -> None:
    code = added(["a\tb"], drawn=False)
    assert code.drawn(0) == "a   b"
    assert [(run.text, run.start, run.end) for run in code.runs(0)] == [("a", 0, 1), ("   ", 1, 2), ("b", 2, 3)]


def test_a_line_without_end_stays_plain() -> None:
    code = added(["x" * 5_000], drawn=False)
    assert [run.ink for run in code.runs(0)] == ["text"]


def test_lexers_and_the_parser_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys, kvchat.ui.transcript\n"
        "from kvchat.ui.code_lines import CodeLines\n"
        "lines = CodeLines('python'); lines.add('x', 0)\n"
        "before = {'markdown_it', 'pygments.lexers'} & sys.modules.keys()\n"
        "lines.runs(0)\n"
        "sys.exit(f'{before}' if before or 'pygments.lexers' not in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
