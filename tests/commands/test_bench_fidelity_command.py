"""`kvchat bench fidelity` with a scripted engine."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from asking import Terminal
from fake_backend import make_ready, text_ids
from scripted_engine import ScriptedEngine

from kvchat.backend.fidelity import DepthFidelity, FidelityReport, FidelityRow, Measured, Measuring
from kvchat.backend.protocol import LoadFailed
from kvchat.backend.values import Failure
from kvchat.bench.fidelity import DEPTHS, PAIRS, passage
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.commands.bench_fidelity import run_fidelity
from kvchat.config import Settings
from kvchat.conversation.turns import ids_key
from kvchat.errors import INTERRUPTED, KvchatError
from kvchat.paths import Paths

AT = (DepthFidelity(256, 128, 0.002, 0.01, 0.99, 10.1, 10.0), DepthFidelity(300, 150, 0.003, 0.02, 0.98, 10.0, 10.0))
ROWS = (
    FidelityRow("batch", "f16", "f16", False, AT),
    FidelityRow("native", "q8_0", "q8_0", True, AT, (0.001, 0.1)),
    FidelityRow("transcoded", "q8_0", "q8_0", True, AT),
)
REPORT = FidelityReport("first\x1b[2J", 300, 256, False, 64, ROWS, ("q4_0 needs something",), 12.0)


def measured(command):
    return [Measuring(command.turn, 1, 4), Measuring("other", 9, 9), Measured(command.turn, REPORT, None)]


def run(paths, engine, *, err=None, **options):
    out = io.StringIO()
    engine.measured = options.pop("measured", measured)
    given = {"chat": None, "text_file": None, "depths_text": None, "pairs": PAIRS, "json": False} | options
    code = run_fidelity(Settings(), paths, **given, out=out, err=err or io.StringIO(), engine_factory=engine)
    assert engine.closed
    return code, out.getvalue()


def test_tables_for_a_person(paths: Paths, engine: ScriptedEngine) -> None:
    """A table for each depth, the course of what was computed natively, and what could not be; the name of the model
    cannot clear a terminal."""
    code, text = run(paths, engine)
    assert code == 0
    assert "depth 256: tokens 129 to 256, perplexity with f16 10.00" in text
    assert "depth 300: tokens 151 to 300" in text
    assert text.count("q8_0, converted") == 2
    assert "f16, token by token   0.0020   0.0100       99.0%      +1.00%" in text
    assert "\nq8_0  ▄▇\n" in text
    assert "note: q4_0 needs something" in text
    assert "\x1b" not in text
    command = engine.measures[0]
    assert (command.ids, command.text, command.depths, command.pairs) == ((), passage(), DEPTHS, PAIRS)
    assert command.transcode


def test_the_engine_is_small_and_keeps_nothing(paths: Paths, engine: ScriptedEngine) -> None:
    run(paths, engine)
    config = engine.configs[0]
    assert (config.context, config.type_k, config.type_v, config.kv_folder, config.draft_path) == (
        512,
        "f16",
        "f16",
        None,
        None,
    )


def test_json(paths: Paths, engine: ScriptedEngine) -> None:
    _, text = run(paths, engine, json=True)
    found = json.loads(text)
    assert [row["name"] for row in found["rows"]] == ["f16, token by token", "q8_0", "q8_0, converted"]
    assert found["rows"][1]["depths"][1]["kl_99"] == 0.02


def test_a_text_of_the_persons(paths: Paths, engine: ScriptedEngine, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"Words \xff and words.")
    run(paths, engine, text_file=str(file), depths_text="64", pairs=(("q4_0", "f16"),))
    command = engine.measures[0]
    assert command.text == "Words \ufffd and words."
    assert (command.depths, command.pairs) == ((64,), (("q4_0", "f16"),))


@pytest.mark.parametrize("what", ["missing", "folder", "large"])
def test_a_text_that_cannot_be_read(paths: Paths, engine: ScriptedEngine, tmp_path: Path, what: str) -> None:
    file = tmp_path / "text.txt"
    if what == "folder":
        file.mkdir()
    elif what == "large":
        with file.open("wb") as sparse:
            sparse.truncate(1 << 30)
    with pytest.raises(KvchatError) as error:
        run(paths, engine, text_file=str(file))
    assert str(file) in error.value.message


def chat_with(paths: Paths, text_key: str) -> None:
    """A saved chat of two messages, with the ids that a model of this vocabulary gave them."""
    chat = Chat("01CHAT", "About ships", 1.0, 2.0, "", 1.0, "first", "01B")
    messages = (
        Message("01A", chat.id, None, "user", "Ships?", 1.0, ""),
        Message("01B", chat.id, "01A", "assistant", "Ships.", 2.0, "stop", "first"),
    )
    with closing(ChatStore(paths.chats_db)) as store:
        store.add_turn(chat, messages)
        store.set_ids(ids_key(text_key, ""), {"01A": text_ids("Ships?"), "01B": text_ids("Ships.")})


def test_the_tokens_of_a_chat(paths: Paths, engine: ScriptedEngine) -> None:
    chat_with(paths, make_ready().model.text_key)
    run(paths, engine, chat="ships")
    assert engine.measures[0].ids == text_ids("Ships?Ships.")


def test_a_chat_of_another_model(paths: Paths, engine: ScriptedEngine) -> None:
    chat_with(paths, "another")
    with pytest.raises(KvchatError, match="no tokens of this model"):
        run(paths, engine, chat="ships")
    assert engine.closed


def test_a_model_that_does_not_load(paths: Paths, engine: ScriptedEngine) -> None:
    engine.begin = [LoadFailed(Failure("broken", "another one"))]
    with pytest.raises(KvchatError, match="broken"):
        run(paths, engine)
    assert engine.closed


def test_what_cannot_be_measured(paths: Paths, engine: ScriptedEngine) -> None:
    with pytest.raises(KvchatError, match="too short"):
        run(paths, engine, measured=lambda command: [Measured(command.turn, None, Failure("too short"))])
    assert engine.closed


def test_ctrl_c(paths: Paths, engine: ScriptedEngine) -> None:
    def interrupted(command):
        yield Measuring(command.turn, 1, 4)
        threading.Thread(target=lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT))).start()

    assert run(paths, engine, measured=interrupted) == (INTERRUPTED, "")


def test_progress_is_for_a_terminal_and_goes_away(paths: Paths, engine: ScriptedEngine) -> None:
    err = Terminal()
    run(paths, engine, err=err)
    line = "fidelity █████░░░░░░░░░░░░░░░ 25% of 4 tokens"
    assert f"\r{line}" in err.getvalue()
    assert err.getvalue().endswith("\r" + " " * len(line) + "\r")
    quiet = io.StringIO()
    run(paths, engine, err=quiet)
    assert quiet.getvalue() == "measuring: fidelity\n"
