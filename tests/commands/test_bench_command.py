"""`kvchat bench` as a person runs it: words, files, what is left behind, Ctrl+C. The model is a tiny one."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tiny

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig
from kvchat.bench import rig as rigs
from kvchat.bench.report import Column, Part, PlotSpec, Report, Stat, lines, read_report, report_object
from kvchat.bench.wanted import PAIRS, USUAL
from kvchat.cli import main
from kvchat.commands.bench import Asked, run_bench, wanted_of
from kvchat.commands.bench_html import page
from kvchat.commands.bench_scratch import scratch
from kvchat.commands.bench_svg import svg
from kvchat.commands.bench_text import plot_lines, print_report
from kvchat.commands.bench_words import number_text, value_text
from kvchat.config import Settings
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.paths import Paths

EVIL = 'x"><script>alert(1)</script>\x1b[2J'


def small_engine(config: EngineConfig, post: Callable[[Event], None], state: Path, log: Path) -> Engine:
    """As all tests have it: one thread, without kernels that not every machine has."""
    return Engine(replace(config, threads=1, extra_buffers=False), post, state, log)


@pytest.fixture
def places(home: Path) -> Paths:
    """With one tiny model."""
    places = Paths.find({"KVCHAT_HOME": str(home)})
    places.models_folder.mkdir()
    tiny.build("llama", places.models_folder, context=1024)
    return places


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ------------------------------------------------------------------ a whole one


def test_json_and_a_page_and_nothing_else(places: Paths, home: Path, tmp_path: Path, monkeypatch) -> None:
    """What is measured leaves no chat, no page of the cache and no scratch folder; the page of plots is private."""
    monkeypatch.setattr(rigs, "TUNING", 0.0)
    before = files(home)
    out, err, target = io.StringIO(), io.StringIO(), tmp_path / "report.html"
    asked = Asked(("speed",), types="f16,q8_0", depths="0,256", repeat="2", quick=True, html=str(target), json=True)
    code = run_bench(asked, Settings(model="llama"), places, out=out, err=err, engine_factory=small_engine)
    assert code == 0
    report = read_report(json.loads(out.getvalue()))
    assert [part.name for part in report.parts] == ["speed"]
    assert len(report.parts[0].rows) == 4
    assert report.setup["model"]["architecture"] == "llama"
    assert report.setup["machine"]["cores_physical"] >= 1
    assert report.setup["wanted"]["cache_types"] == ["f16", "q8_0"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text("utf-8").count("<svg viewBox") == 2
    assert err.getvalue() == "measuring: start\nmeasuring: speed\n"
    assert {name for name in files(home) - before if not name.startswith("state/")} == set()
    assert not list(home.glob("bench-*"))


def test_ctrl_c_tells_what_there_is(places: Paths, home: Path) -> None:
    """The program, interrupted once it measures: exit code 130, a report, and no trace of the scratch store."""
    line = "bench memory speed -m llama --depths 0 --types f16 --repeat 100 -t 1 --json"
    command = [sys.executable, "-m", "kvchat", *line.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line == "measuring: speed\n":
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == INTERRUPTED, err
    report = read_report(json.loads(out))
    assert report.interrupted
    assert report.parts[0].name == "memory"
    assert not list(home.glob("bench-*"))


def test_a_page_that_is_there_stays(places: Paths, tmp_path: Path) -> None:
    target = tmp_path / "mine.html"
    target.write_text("mine")
    for name in (str(target), str(tmp_path / "no" / "page.html")):
        with pytest.raises(UsageError, match=re.escape(str(tmp_path))):
            run_bench(Asked(html=name), Settings(), places, out=io.StringIO(), err=io.StringIO())
    assert target.read_text() == "mine"


def test_folders_of_dead_processes_go(home: Path) -> None:
    """Those of processes that live stay, and what is only called alike."""
    places = Paths.find({"KVCHAT_HOME": str(home)})
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = int(done.stdout)
    kept = [f"bench-{os.getpid()}-x", "bench-notes", f"bench-{dead}.txt"]
    for name in (*kept, f"bench-{dead}-abc"):
        (home / name).mkdir()
    with scratch(places) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "page").write_text("x")
        assert {path.name for path in home.glob("bench-*")} == {*kept, folder.name}
    assert {path.name for path in home.glob("bench-*")} == set(kept)


# ------------------------------------------------------------------ words


def test_what_the_words_mean() -> None:
    assert wanted_of(Asked(), Settings()).parts == USUAL
    assert wanted_of(Asked(), Settings()).pairs == PAIRS
    one = Settings(type_k="q8_0", type_v="q4_0", given=frozenset({"cache_type_k", "cache_type_v"}))
    assert wanted_of(Asked(), one).pairs == (("q8_0", "q4_0"),)
    assert wanted_of(Asked(types="f16,f16"), one).pairs == (("f16", "f16"),)  # what is said of types goes first
    assert wanted_of(Asked(threads="1,2"), one).threads == (1, 2)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("bench sped", "there are: speed"),
        ("bench speed --chat x", "bench fidelity"),
        ("bench fidelity --chat x --text y", "--help"),
        ("bench fidelity --types q9", "bf16"),
        ("bench fidelity --depths 5", "256"),
        ("bench fidelity --ctx-size 512", "means nothing"),
        ("bench fidelity -t 1,2", "means nothing"),
        ("bench speed --threads 1,x", "--threads 1,2"),
        ("bench speed --repeat 0", "--repeat 5"),
        ("bench --temp 1", "means nothing"),
        ("bench compare one.json", "A.json B.json"),
        ("bench compare one two --quick", "--help"),
        ("bench show one two", "A.json"),
        ("bench show one -t 1", "--help"),
    ],
)
def test_wrong_usage(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == UsageError.exit_code
    said = capsys.readouterr().err
    assert hint in said, said


# ------------------------------------------------------------------ two reports


def a_report(speed: float, cpu: str = "one") -> Report:
    columns = (
        Column("cache", "cache", names=True),
        Column("x", "depth", "count", names=True),
        Column("y", "speed", "rate", "higher"),
    )
    rows = tuple({"cache": EVIL, "x": x, "y": Stat(speed - x, speed - x - 1, speed - x + 1, 3)} for x in (0, 8, 16))
    part = Part("speed", EVIL, EVIL, columns, rows, (PlotSpec(EVIL, "x", "y", ("cache",)),), (EVIL,))
    return Report({"machine": {"cpu": cpu}, "model": {"name": EVIL}}, (part,), 5.0)


def test_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, report in (("a.json", a_report(50.0)), ("b.json", a_report(75.0, "two"))):
        (tmp_path / name).write_text(json.dumps(report_object(report)))
    line = ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert re.search(r"machine\.cpu +one +two\n", said)
    assert re.search(r"depth 0 +speed +50\.0 ±2% +75\.0 ±1% +1\.50 +better\n", said)
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["ratio"] for each in found["results"]] == [1.5, pytest.approx(67 / 42), pytest.approx(59 / 34)]
    assert found["differences"] == [{"name": "machine.cpu", "first": "one", "second": "two"}]


def test_a_report_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, as JSON, as a page."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps(report_object(a_report(50.0))))
    assert main(["bench", "show", str(file), "--json", "--html", str(tmp_path / "page.html")]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text())
    assert (tmp_path / "page.html").read_text() == page(a_report(50.0))
    assert main(["bench", "show", str(file)]) == 0
    assert "measured in 5 s" in capsys.readouterr().out


def test_a_report_with_an_odd_set_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    odd = replace(a_report(50.0), setup={"machine": 5, "model": None, "load_average": "x", "wanted": [{}]})
    file.write_text(json.dumps(report_object(odd)))
    for line in (["show", str(file), "--html", str(tmp_path / "page.html")], ["compare", str(file), str(file)]):
        assert main(["bench", *line]) == 0
    assert "measured in 5 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"{}", b"[" * 100_000, b'{"format": "kvchat bench", "version": 9}']
)
def test_files_that_are_no_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    assert main(["bench", "compare", str(file), str(file)]) == KvchatError.exit_code
    said = capsys.readouterr().err
    assert str(file) in said and "hint:" in said


# ------------------------------------------------------------------ forms


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("count", 1024, "1,024"),
        ("rate", 57.26, "57.3"),
        ("rate", 13143.2, "13,143"),
        ("bytes", 3 << 20, "3.0 MiB"),
        ("bytes_rate", 2.4e9, "2,400.0"),
        ("seconds", 0.0412, "0.041 s"),
        ("seconds", 61.07, "61.1 s"),
        ("share", 0.845, "84.5%"),
        ("share", 1.0, "100%"),
        ("ratio", 0.985, "0.98"),
        ("ratio", 637.4, "637"),
        ("number", 0.00123, "0.00123"),
    ],
)
def test_numbers(kind, value: float, text: str) -> None:
    assert number_text(kind, value) == text


def test_a_spread_is_told_where_there_is_one() -> None:
    column = Column("x", "x", "rate")
    assert value_text(column, Stat(100.0, 90.0, 110.0, 3)) == "100.0 ±10%"
    assert value_text(column, Stat(100.0, 100.0, 100.0, 1)) == "100.0"
    assert value_text(column, None) == "-"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_are_no_wider_than_the_terminal(width: int) -> None:
    """A table that would be is turned round; what a model is called cannot clear the screen."""
    names = [Column(f"c{i}", f"a column called {i}", "rate") for i in range(7)]
    rows = tuple({"cache": kind} | {column.key: 50.0 for column in names} for kind in ("f16", "q8_0"))
    wide = Part("wide", "Wide", "how " * 60, (Column("cache", "cache", names=True), *names), rows, notes=("why " * 60,))
    report = replace(a_report(50.0), parts=(wide,))
    out = io.StringIO()
    print_report(report, out, width)
    said = out.getvalue()
    assert max(map(len, said.splitlines())) <= width
    assert "a column called 6" in said and "\x1b" not in said


def test_plots_have_markers_for_each_line() -> None:
    report = a_report(50.0)
    rows = (*report.parts[0].rows, {"cache": "q8_0", "x": 0, "y": 10.0}, {"cache": "q8_0", "x": 16, "y": 20.0})
    out = io.StringIO()
    print_report(replace(report, parts=(replace(report.parts[0], rows=rows),)), out, 80)
    assert out.getvalue().count("◆") == 3  # two points, and the legend
    assert out.getvalue().count("●") == 4


def test_a_line_that_cannot_be_told_from_the_others_is_named() -> None:
    drawn = [(f"q4_0 {number}", ((0.0, 1.0), (8.0, 2.0))) for number in range(1, 9)]
    assert "only in the table: q4_0 7, q4_0 8" in list(plot_lines(drawn, 60))
    assert not any("table" in line for line in plot_lines(drawn[:6], 60))


class Tags(HTMLParser):
    """The names of the tags of a page, and all attributes that lead somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.links += [
            name for name, _ in attrs if name in ("src", "href", "xlink:href", "style") or name.startswith("on")
        ]


def test_a_page_runs_nothing_and_loads_nothing() -> None:
    tags = Tags()
    text = page(a_report(50.0))
    tags.feed(text)
    assert not tags.names & {"script", "link", "img", "iframe", "object", "foreignobject", "base"}
    assert tags.links == []
    assert not re.search(r"url\(|@import|https?:", text)
    assert "alert(1)" in text  # as text


def test_a_plot_is_drawn_to_scale() -> None:
    """50 is the top: the first point is at the upper left, half as much is half as high."""
    drawing = svg("a & b", [("one", ((0.0, 50.0), (10.0, 25.0), (20.0, 0.0)))], "x < y")
    root = ElementTree.fromstring(drawing)
    marks = [(float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in root.iter("circle")]
    (left, top), (middle, half), (right, bottom) = marks
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert half == pytest.approx((top + bottom) / 2, abs=0.1)
    assert top < half < bottom
    assert [text.text for text in root.iter("text")][-1] == "x < y"


def test_a_plot_of_one_point_and_of_none() -> None:
    for points in (((5.0, 1.0),), ()):
        ElementTree.fromstring(svg("t", [("one", points)] if points else [], "x"))
    part = a_report(50.0).parts[0]
    assert lines(replace(part, rows=()), part.plots[0]) == []
