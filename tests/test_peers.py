"""What `benchmarks/peers` makes of its measurements: ratios, what is worse, tables between markers; how it reads /proc.

The programs themselves are not started here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "benchmarks" / "peers"
sys.path.insert(0, str(PEERS))

import figures  # noqa: E402
import processes  # noqa: E402
import prompts  # noqa: E402
import reasons  # noqa: E402
import tables  # noqa: E402


def one(found: list[figures.Figure], program: str) -> figures.Figure:
    (figure,) = (each for each in found if each.program == program)
    return figure


def test_seconds_below_those_of_another_are_better() -> None:
    found = figures.compare("turns", "turn 2", "s", {"kvchat": [2.0, 4.0], "other": [4.0, 4.0]})
    assert one(found, "other").ratio == 1.5  # of 4/2 and 4/4
    assert [each.program for each in found] == ["kvchat", "other"]


def test_tokens_per_second_above_those_of_another_are_better() -> None:
    found = figures.compare("speed", "decode", "tokens/s", {"kvchat": [50.0], "other": [100.0]}, more_is_better=True)
    assert one(found, "other").ratio == 0.5


def test_other_numbers_of_rounds_are_compared_by_their_medians() -> None:
    found = figures.compare("restart", "both", "s", {"kvchat": [1.0, 2.0, 9.0], "other": [8.0]})
    assert one(found, "other").ratio == 4.0


def test_one_that_takes_nothing_is_worse_for_kvchat_and_nothing_of_both_is_no_ratio() -> None:
    found = figures.compare("written", "a turn", "bytes", {"kvchat": [5.0], "other": [0.0]})
    assert figures.worse(found) == [one(found, "other")]
    assert one(figures.compare("written", "a turn", "bytes", {"kvchat": [0.0], "other": [5.0]}), "other").ratio is None


def test_without_a_value_of_kvchat_there_is_no_comparison() -> None:
    assert figures.compare("turns", "turn 2", "s", {"other": [1.0]}) == []


def test_the_worst_comes_first_and_what_is_even_is_left_out() -> None:
    values = {"kvchat": [1.0], "even": [0.985], "better": [3.0], "worse": [0.9], "worst": [0.2]}
    found = figures.compare("turns", "turn 2", "s", values)
    assert [each.program for each in figures.worse(found)] == ["worst", "worse"]


def record(program: str, **fields: Any) -> dict[str, Any]:
    return {"program": program, "type": "f16", "round": 0, **fields}


@pytest.fixture
def results() -> dict[str, Any]:
    """Of a run in which llama-server is twice as fast in turn 2 and four times as slow after a restart."""
    plain = {"kvchat": 50.0, "llama-server": 40.0}
    drafted = {"kvchat": 100.0, "llama-server": 60.0}
    records = {
        "speed": [record(name, prefill=100.0, decode=speed, tokens=64) for name, speed in plain.items()],
        "turns": [record("kvchat", turn=2, first=0.2), record("llama-server", turn=2, first=0.1)],
        "restarts": [
            record("kvchat", ready=1.0, back=0.0, first=0.5, whole=1.5),
            record("llama-server", ready=1.0, back=0.5, first=1.5, whole=3.0),
        ],
        "taken": [record("kvchat", written=2e6, pss=4, anonymous=2, rss=8)],
        "drafts": [
            record(name, task="quote", mode=mode, decode=speeds[name])
            for mode, speeds in (("off", plain), ("auto", drafted))
            for name in plain
        ],
        "failed": [record("llm", turn=8, why="exceed context window of 512")],
    }
    return {
        "date": "2026-11-30",
        "cores": 2,
        "processor": "a processor",
        "system": "Linux",
        "load_before": 0.1,
        "minutes": 1.0,
        "model": "m.gguf",
        "model_bytes": 1e8,
        "threads": 2,
        "kvchat": "1",
        "llama_cpp_python": "2",
        "llama_cpp": "3",
        "llm": "4",
        "scale": {"told": [2], "turns": 2, "answer": 8, "decode": 64},
        "records": records,
    }


def test_a_run_as_figures(results: dict[str, Any]) -> None:
    found = {(each.what, each.program): each.ratio for each in figures.all_figures(results)}
    assert found["turn 2, f16", "llama-server"] == 0.5
    assert found["from Enter to the first token, f16", "llama-server"] == 4.0
    assert found["start of the process, model loaded, f16", "llama-server"] == 1.0
    assert found["decode, f16", "llama-server"] == 1.25
    assert found["quote", "llama-server, auto"] == pytest.approx(2.0 / 1.5)  # 100/50 against 60/40


def test_a_round_with_a_short_answer_says_nothing_of_decoding(results: dict[str, Any]) -> None:
    short = [
        record(name, prefill=100.0, decode=speed, tokens=8) for name, speed in (("kvchat", 9.0), ("llama-server", 99.0))
    ]
    results["records"]["speed"] += [{**each, "round": 1} for each in short]
    found = {(each.what, each.program): each for each in figures.all_figures(results)}
    assert found["decode, f16", "llama-server"].ratio == 1.25
    assert len(found["prefill, f16", "llama-server"].values) == 2


def test_what_was_measured_again_takes_the_place_of_what_was_before(results: dict[str, Any]) -> None:
    again = {**results, "records": {"speed": [record("kvchat", prefill=1.0, decode=1.0, tokens=64)]}}
    whole = tables.joined([results, again])
    assert len(whole["records"]["speed"]) == 1 and len(whole["records"]["turns"]) == 2
    assert "in a run of its own: speed." in tables.of_run(whole)
    with pytest.raises(ValueError, match="threads: 2 and 1"):
        tables.joined([results, {**again, "threads": 1}])


def test_a_run_as_tables(results: dict[str, Any]) -> None:
    made = tables.blocks(results)
    assert "| turn 2, f16 | kvchat | 200 ms |  |  |" in made["turns"]
    assert "|  | llama-server | 100 ms |  | 0.50 |" in made["turns"]
    assert made["disk"] == "Not measured in this run."
    assert "llm ends at turn 8 of the chat: exceed context window of 512" in made["run"]
    assert [line.split(" | ")[2:4] for line in made["worse"].splitlines()[2:3]] == [["turn 2, f16", "llama-server"]]
    assert made["worse"].splitlines()[-1].startswith("1. The message is committed")
    assert "| 200 ms | 100 ms | 0.50 |" in tables.short(results)


def test_only_what_stands_between_markers_is_replaced() -> None:
    text = "before\n<!-- a -->\nold\n<!-- /a -->\nafter\n"
    assert tables.replaced(text, "a", "new") == "before\n<!-- a -->\nnew\n<!-- /a -->\nafter\n"
    assert tables.replaced(tables.replaced(text, "a", "new"), "a", "old") == text
    with pytest.raises(ValueError, match="not there once"):
        tables.replaced(text, "b", "new")


def test_the_page_has_a_place_for_every_table(results: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    for name, content in tables.blocks(results).items():
        page = tables.replaced(page, name, content)


def test_every_reason_can_be_meant() -> None:
    """Each begins as a question of the page does, and none is hidden by one before it."""
    for number, (question, what, program, why) in enumerate(reasons.REASONS):
        assert question in tables.HEADINGS and why.endswith(".")
        figure = figures.Figure(question, what, "s", program, (1.0,), 0.5)
        assert reasons.reason(figure) == why, f"number {number} is hidden"


def test_questions_differ() -> None:
    asked = [prompts.question(turn) for turn in range(1, 61)]
    assert len(set(asked)) == 60
    assert len({prompts.passage(100, number)[:4] for number in range(5)}) == 5


def test_memory_and_writes_of_a_process_and_its_children(tmp_path: Path) -> None:
    """40 MiB that are filled are anonymous memory of the child; what it writes counts once it lies on a disk."""
    script = (
        "import sys, time; held = b'x' * (40 << 20); open(sys.argv[1], 'wb').write(held); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        assert child.pid in processes.family(os.getpid())
        assert processes.family(child.pid) == [child.pid]
        found = processes.memory([child.pid])
        assert 40 << 20 <= found.anonymous <= found.pss <= found.rss
        written = processes.written([child.pid])
        assert written == 0 or written >= 40 << 20  # 0: the folder of tests lies in memory
        assert child.stdin is not None
        child.stdin.close()
    assert processes.on_disk(tmp_path) == 40 << 20
