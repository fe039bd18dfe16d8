"""`kvchat --plain`: lines in and lines out, at a terminal and in a pipe, with the conversations of the app."""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from asking import Asked, kept
from fake_backend import delta, finished, make_ready, prompt_events
from scripted_engine import ScriptedEngine, answer
from terminal import Terminal

from kvchat.backend.protocol import EngineDied, Event, Generate, Ready, Summarized, TurnFinished
from kvchat.backend.values import EngineConfig, Failure, FinishReason, Usage
from kvchat.chats.store import ChatStore
from kvchat.commands.plain import run_plain
from kvchat.config import Settings
from kvchat.errors import INTERRUPTED, KvchatError
from kvchat.paths import Paths

PROGRAM = Path(__file__).parent / "plain_program.py"


@pytest.fixture
def paths(home: Path) -> Paths:
    """With one model, "first"."""
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    paths.models_folder.mkdir()
    writer = gguf.GGUFWriter(paths.models_folder / "first.gguf", "llama")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return paths


class Obedient(ScriptedEngine):
    """Is ready again with whatever it is configured to. `loading`: with this before, as it was not loaded yet."""

    loading: Ready | None = None

    @property
    def config(self) -> EngineConfig:
        return self.configs[-1]

    def configure(self, config: EngineConfig) -> None:
        self.configs.append(config)
        if self.loading is not None:
            self.post(self.loading)
        ready = make_ready(name=Path(config.model_path).stem)
        self.ready = replace(ready, cache=replace(ready.cache, type_k=config.type_k, type_v=config.type_v))
        self.post(self.ready)


@pytest.fixture
def engine() -> Obedient:
    return Obedient([make_ready(name="first")], answer("Hello", " there."))


Chat = Callable[..., Asked]


@pytest.fixture
def chat(paths: Paths, engine: Obedient) -> Chat:
    """Sends lines through a pipe."""

    def run(*lines: str, asked: Asked | None = None, settings: Settings | None = None, **options: object) -> Asked:
        asked = asked or Asked()
        given = {"chat": None, "continue_last": False} | options
        asked.code = run_plain(
            settings or Settings(),
            paths,
            **given,  # type: ignore[arg-type]
            out=asked.out,
            err=asked.err,
            stdin=io.StringIO("".join(f"{line}\n" for line in lines)),
            engine_factory=engine,
        )
        assert engine.closed
        return asked

    return run


# ------------------------------------------------------------------ in a pipe


def test_each_line_is_answered_in_one_chat(chat: Chat, engine: Obedient, paths: Paths) -> None:
    asked = chat("Who is there?", "", "Really?")
    assert (asked.code, asked.out.getvalue()) == (0, "Hello there.\nHello there.\n")
    assert [message.text for message in engine.requests[1].messages] == ["Who is there?", "Hello there.", "Really?"]
    assert [(m.role, m.text) for m in kept(paths)] == [
        ("user", "Who is there?"),
        ("assistant", "Hello there."),
        ("user", "Really?"),
        ("assistant", "Hello there."),
    ]


def test_a_line_after_each_answer_says_what_was_reused_and_saved(chat: Chat, engine: Obedient) -> None:
    usage = Usage(
        prompt_tokens=10, reused=8, resident=3, pages=5, computed=2, decode_tokens=4, decode_seconds=2.0,
        restore_seconds=0.25, prefill_seconds=0.5, saved_seconds=12.34,
    )  # fmt: skip

    def script(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "yes"), TurnFinished(request.turn, "stop", usage))

    engine.script = script
    assert chat("x").err.getvalue() == (
        "prompt 10 tokens: 8 reused (3 from memory, 5 from pages), 2 computed in 0.75 s · answer 4 tokens, 2.0/s"
        " · saved 12.3 s\n"
    )


def test_no_control_sequence_reaches_stdout_or_stderr(chat: Chat, engine: Obedient) -> None:
    engine.script = answer("red: \x1b[31m\x9b2J", "!\r\n")
    asked = chat("x", "/system \x1b]0;x\x07", "/system")
    assert asked.out.getvalue() == "red: ␛[31m\ufffd2J!\nSet. The chat is read again with it.\nsystem: ␛]0;x␇\n"


def test_a_backslash_goes_on_with_the_next_line(chat: Chat, engine: Obedient) -> None:
    chat("one\\", "two\\", "three", "four\\")
    assert [request.messages[-1].text for request in engine.requests] == ["one\ntwo\nthree", "four"]


def test_two_slashes_send_one(chat: Chat, engine: Obedient) -> None:
    chat("//etc is a folder")
    assert engine.requests[0].messages[-1].text == "/etc is a folder"


def test_new_open_and_continue_the_last_chat(chat: Chat, engine: Obedient, paths: Paths) -> None:
    chat("first question", "/new Be brief.", "second question")
    assert [message.role for message in engine.requests[1].messages] == ["system", "user"]
    asked = chat("/chats", "/open 2", "more", "/chats second", "/open 1", "/show", continue_last=True)
    assert engine.requests[2].messages[0].text == "first question"
    said = asked.out.getvalue().splitlines()
    assert re.fullmatch(r"1\. second question, .* \(this one\)", said[0])
    assert re.fullmatch(r"2\. first question, .*", said[1])
    assert said[2] == "first question, 2 messages. /show prints it."
    assert said[-3:] == ["system: Be brief.", "you: second question", "first: Hello there."]


def test_retry_and_edit_make_branches(chat: Chat, engine: Obedient, paths: Paths) -> None:
    chat("first", "/retry", "/edit second")
    assert [request.messages[-1].text for request in engine.requests] == ["first", "first", "second"]
    assert [message.text for message in kept(paths)] == ["second", "Hello there."]
    store = ChatStore(paths.chats_db)
    assert store.chats()[0].messages == 5  # two questions, three answers
    store.close()


def test_several_answers_of_which_one_is_kept(chat: Chat, engine: Obedient, paths: Paths) -> None:
    asked = chat("first", "/alt 2 seed 5 6", "2", "more", "/alt temp 0.2 0.4", "", "last")
    assert asked.out.getvalue() == (
        "Hello there.\n--- 1/2, seed 5 ---\nHello there.\n\n--- 2/2, seed 6 ---\nHello there.\nHello there.\n"
        + "".join(
            f"{gap}--- {number}/2, temperature {warmth}, seed {request.sampling.seed} ---\nHello there.\n"
            for gap, number, warmth, request in zip(("", "\n"), (1, 2), (0.2, 0.4), engine.requests[4:6], strict=True)
        )
        + "Hello there.\n"
    )
    assert "Which one is kept? 1 to 2" in asked.err.getvalue()
    assert "Answer 2 is kept" in asked.err.getvalue()
    assert [request.alternative_of for request in engine.requests] == [
        *(None, None, engine.requests[1].turn, None, None, engine.requests[4].turn, None)
    ]
    store = ChatStore(paths.chats_db)
    branch = store.branch(kept(paths)[0].chat, kept(paths)[-1].id)
    store.close()
    around = [branch.siblings[message.id] for message in branch.messages]
    places = [ids.index(message.id) for message, ids in zip(branch.messages, around, strict=True)]
    assert (list(map(len, around)), places) == ([1, 3, 1, 3, 1, 1], [0, 2, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("/alt",), "no answer to write again"),
        (("x", "/alt many"), "no number of answers"),
        (("x", "/alt 2", "7"), "none of the answers"),
        (("x", "/alt 2", "a message"), "none of the answers"),
    ],
)
def test_several_answers_that_cannot_be(chat: Chat, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(KvchatError, match=message):
        chat(*lines)


def test_continue_goes_on_with_an_answer_that_was_cut(chat: Chat, engine: Obedient, paths: Paths) -> None:
    def cut(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "one "), finished(request, "length"))

    engine.script = cut
    assert "/continue goes on" in chat("count").err.getvalue()
    engine.script = answer("two")
    chat("/continue", continue_last=True)
    assert engine.requests[1].continue_reply
    assert kept(paths)[-1].text == "one two"


def test_the_cache_type_is_shown_and_changed(chat: Chat, engine: Obedient) -> None:
    asked = chat("x", "/cache", "/cache q8_0 q4_0", "/cache", "/cache q8_0 q4_0")
    assert asked.out.getvalue().splitlines()[1:] == [
        "K f16, V f16, 4096 tokens of context",
        "first, K q8_0, V q4_0, 4096 tokens.",
        "K q8_0, V q4_0, 4096 tokens of context",
        "It runs so already.",
    ]
    assert [(config.type_k, config.type_v) for config in engine.configs] == [("f16", "f16"), ("q8_0", "q4_0")]


def test_what_was_loading_is_not_what_was_asked_for(chat: Chat, engine: Obedient) -> None:
    engine.loading = make_ready(name="first")
    assert chat("/cache q8_0").out.getvalue() == "first, K q8_0, V q8_0, 4096 tokens.\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/opne 1", "no command /opne"),
        ("/cache f17", "one or two types"),
        ("/open", "which chat"),
        ("/retry", "no answer to write again"),
        ("/edit", "no message of yours"),
        ("/continue", "no unfinished answer"),
        ("/model nothing", "nothing"),
    ],
)
def test_in_a_pipe_a_line_that_cannot_be_carried_out_is_the_end(
    chat: Chat, engine: Obedient, line: str, message: str
) -> None:
    with pytest.raises(KvchatError, match=message):
        chat(line, "never sent")
    assert engine.requests == []
    assert engine.closed


def test_an_engine_that_gives_up_is_an_error_with_what_to_do(chat: Chat, engine: Obedient, paths: Paths) -> None:
    def die(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "half"))
        yield EngineDied("killed by SIGILL", (), True)
        yield finished(request, "died", Failure("the engine died", "/continue goes on"))

    engine.script = die
    asked = Asked()
    with pytest.raises(KvchatError, match="the engine died"):
        chat("x", asked=asked)
    assert asked.out.getvalue() == "half\n"
    assert "killed by SIGILL" in asked.err.getvalue()
    assert kept(paths)[-1].text == "half"


def test_a_message_that_does_not_fit_offers_what_can_work(chat: Chat, engine: Obedient, paths: Paths) -> None:
    """Not /continue. The message stays, and another one may take its place."""

    def script(request: Generate) -> Iterator[Event]:
        failure = Failure("the conversation is 177 tokens too long")
        yield TurnFinished(request.turn, "context", Usage(prompt_tokens=1_200, excess=177), failure)

    engine.script = script
    with pytest.raises(KvchatError, match="177 tokens too long") as caught:
        chat("A long message")
    assert "/edit shortens your message" in caught.value.hint and "/overflow says" in caught.value.hint
    assert "--ctx-size 2048" in caught.value.hint
    assert "/continue" not in str(caught.value)
    engine.script = answer("Hello.")
    asked = chat("/edit Short", continue_last=True)
    assert "/continue" not in asked.out.getvalue() + asked.err.getvalue()
    assert [message.text for message in kept(paths)] == ["Short", "Hello."]


def test_what_drafts(chat: Chat, engine: Obedient, paths: Paths) -> None:
    """It is the chat's own; a draft model is loaded by name, and let go."""
    paths.models_folder.joinpath("first.gguf").unlink()
    tiny.build("llama", paths.models_folder, layers=12).rename(paths.models_folder / "first.gguf")
    tiny.build("llama", paths.models_folder, layers=1).rename(paths.models_folder / "small.gguf")
    asked = chat("/draft", "/draft off", "x", "/draft small", "y", "/draft model", "z", "/draft none")
    assert [request.draft for request in engine.requests] == ["off", "auto", "model"]
    paths_asked = [config.draft_path for config in engine.configs]
    assert paths_asked == [None, str(paths.models_folder / "small.gguf"), None]
    lines = asked.out.getvalue().splitlines()
    assert lines[0] == "draft auto: n-gram, else the draft model; draft model: none"
    assert lines[1] == "draft off (nothing), from the next answer on."
    again = chat("/draft", continue_last=True)
    assert again.out.getvalue() == "draft model: the draft model alone; draft model: none\n"
    chat("/draft small", continue_last=True)
    again = chat("/draft", continue_last=True)
    assert again.out.getvalue() == "draft model: the draft model alone; draft model: small\n"


def test_what_happens_in_a_full_context(chat: Chat, engine: Obedient) -> None:
    """It is the chat's own. An answer that stops there says what to do."""

    def script(request: Generate) -> Iterator[Event]:
        reason: FinishReason = "context" if request.overflow == "stop" else "stop"
        usage = Usage(overflow=request.overflow, evicted=0 if reason == "context" else 128)
        yield from (*prompt_events(request), delta(request, "Hm."), TurnFinished(request.turn, reason, usage))

    engine.script = script
    asked = chat("/overflow", "x", "/overflow sinks", "/continue")
    assert [request.overflow for request in engine.requests] == ["stop", "sinks"]
    assert engine.requests[1].continue_reply
    lines = asked.out.getvalue().splitlines()
    assert lines[0] == "stop: the answer ends, nothing leaves (this chat)"
    assert "overflow sinks (the first tokens and the last ones stay" in asked.out.getvalue()
    assert "/overflow says what may leave, /continue then goes on" in asked.err.getvalue()
    assert "let 128 tokens go (sinks)" in asked.err.getvalue()
    again = chat("/overflow", continue_last=True)
    assert "leave (this chat)" in again.out.getvalue().splitlines()[2]
    with pytest.raises(KvchatError, match="/overflow takes one policy"):
        chat("/overflow forget", continue_last=True)


def test_pins_and_summaries(chat: Chat, engine: Obedient) -> None:
    """A full context is summarized without a question; the summary can be read, and taken back."""
    long = "word " * 30

    def script(request: Generate) -> Iterator[Event]:
        words = sum(len(message.text) for message in request.messages)
        reason: FinishReason = "context" if words > 450 and not request.continue_reply else "stop"
        yield from (*prompt_events(request), delta(request, "Hm."), TurnFinished(request.turn, reason, Usage()))

    engine.begin = [make_ready(name="first", context=600)]
    engine.script = script
    engine.summarized = lambda command: [Summarized(command.turn, "Some words.", 9)]
    asked = chat("/summary", "/overflow summarize", "first", "/pin", "/pin", "/pin", long, long, long, "/summary")
    assert asked.out.getvalue().splitlines()[0] == "No summary stands in this chat."
    assert asked.out.getvalue().splitlines()[-1] == "Some words."
    last = engine.requests[-1]
    assert last.continue_reply
    assert last.messages[0].text.endswith("Some words.\n\nFrom that conversation, word for word:\n\nUser: first")
    again = chat("/summary drop", "/summary", continue_last=True)
    assert "tokens are read themselves again" in again.out.getvalue().splitlines()[0]
    assert again.out.getvalue().splitlines()[1] == "No summary stands in this chat."


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/draft model", "only a draft model is to draft, and there is none"),
        ("/draft nothing", "there is no model 'nothing'"),
        ("/draft first", "first cannot draft for itself"),
    ],
)
def test_what_cannot_draft_is_an_error(chat: Chat, engine: Obedient, line: str, message: str) -> None:
    with pytest.raises(KvchatError, match=message):
        chat(line)
    assert len(engine.configs) == 1


# ------------------------------------------------------------------ as a program


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvchat", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def test_without_a_terminal_the_app_names_the_way_without(home: Path) -> None:
    done = run()
    assert done.returncode == 2
    assert "kvchat --plain" in done.stderr


def test_a_dumb_terminal_is_told_about_plain(home: Path) -> None:
    terminal = Terminal([sys.executable, "-m", "kvchat"], environment={"TERM": "dumb"})
    assert terminal.ended() == 2
    assert "kvchat --plain" in terminal.text()
    terminal.close()


def test_plain_belongs_to_the_app_and_not_to_ask(home: Path) -> None:
    done = run("ask", "--plain", "x")
    assert done.returncode == 2
    assert "--plain means nothing to kvchat ask" in done.stderr


def test_no_model_is_an_error(home: Path) -> None:
    done = run("--plain", "-m", "nothing-of-this-name", text="hello\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")


def test_no_widget_library_is_loaded() -> None:
    code = (
        "import sys, kvchat.commands.plain\n"
        'sys.exit(f\'{sys.modules.keys() & {"textual", "rich", "llama_cpp"}}\''
        " if sys.modules.keys() & {'textual', 'rich', 'llama_cpp'} else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_with_the_real_engine(home: Path, smollm2: Path) -> None:
    done = run(
        "--plain", "-m", str(smollm2), "-n", "4", "-t", "1", "--temp", "0", text="Say hello.\nAgain.\n/cache\n"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *answers, cache = done.stdout.splitlines()
    assert len(answers) >= 2
    assert cache.startswith("K f16, V f16, ")
    lines = [line for line in done.stderr.splitlines() if line.startswith("prompt ")]
    assert "0 reused" in lines[0]
    assert "from memory" in lines[1]


# ------------------------------------------------------------------ at a terminal

Start = Callable[..., Terminal]


@pytest.fixture
def start(home: Path, paths: Paths) -> Iterator[Start]:
    made: list[Terminal] = []

    def run(*arguments: str, term: str = "xterm-256color", preload: str = "") -> Terminal:
        environment = {"KVCHAT_HOME": str(home), "TERM": term, "INPUTRC": "/dev/null", "LD_PRELOAD": preload}
        terminal = Terminal([sys.executable, str(PROGRAM), *arguments], 80, 24, environment)
        made.append(terminal)
        terminal.wait_until(lambda: terminal.lines() != [""] * 24 and terminal.text().rstrip().endswith(">"), "prompt")
        return terminal

    yield run
    for terminal in made:
        terminal.close()


def prompts(terminal: Terminal) -> int:
    return sum(line.startswith(">") for line in terminal.lines())


def test_a_line_is_answered_and_ctrl_d_leaves(start: Start) -> None:
    terminal = start()
    assert "first. A new chat. /help lists commands." in terminal.text()
    terminal.send(b"hi\r")
    terminal.wait_for("echo 'hi'")
    terminal.wait_until(lambda: prompts(terminal) == 2, "second prompt")
    terminal.send(b"\x04")
    assert terminal.ended() == 0


def test_up_brings_back_what_was_sent_in_this_chat(start: Start) -> None:
    terminal = start()
    terminal.send(b"hi\r")
    terminal.wait_until(lambda: prompts(terminal) == 2, "second prompt")
    terminal.send(b"/quit\r")
    assert terminal.ended() == 0
    terminal = start("-c")
    assert "hi, 2 messages." in terminal.text()
    terminal.send(b"\x1b[A!\r")
    terminal.wait_for("echo 'hi!'")
    terminal.send(b"/new\r/show\r")
    terminal.wait_for("This chat has no messages yet.")


def test_edit_offers_the_last_message(start: Start) -> None:
    terminal = start()
    terminal.send(b"hi\r")
    terminal.wait_until(lambda: prompts(terminal) == 2, "second prompt")
    terminal.send(b"/edit\r")
    terminal.wait_for("> hi")
    terminal.wait_until(lambda: terminal.text().rstrip().endswith("> hi"), "the offer")
    terminal.send(b"!\r")
    terminal.wait_for("echo 'hi!'")


def test_ctrl_c_stops_the_answer_and_a_second_one_at_the_prompt_leaves(start: Start, paths: Paths) -> None:
    terminal = start()
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 5")
    terminal.send(b"\x03")
    terminal.wait_for("Stopped. /continue goes on.")
    terminal.wait_until(lambda: terminal.text().rstrip().endswith(">"), "a prompt")
    terminal.send(b"\x03")
    assert terminal.ended() == INTERRUPTED
    assert kept(paths)[-1].finish == "cancelled"


def test_ctrl_c_at_a_fresh_prompt_is_asked_for_twice(start: Start) -> None:
    terminal = start()
    terminal.send(b"half a line\x03")
    terminal.wait_for("Ctrl+C again or Ctrl+D leaves.")
    terminal.send(b"\x03")
    assert terminal.ended() == 0


SLOW_SELECT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/select.h>
#include <time.h>
int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t) {
    int (*real)(int, fd_set *, fd_set *, fd_set *, struct timeval *) = dlsym(RTLD_NEXT, "select");
    struct timespec left = {1, 0};
    while (nanosleep(&left, &left)) {}
    return real(n, r, w, e, t);
}
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="puts a function before the C library's")
def test_ctrl_c_between_the_prompt_and_the_wait_for_a_key_is_seen(start: Start, tmp_path: Path) -> None:
    """Python asks for signals only where one interrupted the wait, and this one came a moment before it."""
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_SELECT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    terminal = start(preload=str(library))
    terminal.send(b"half a line\x03")
    terminal.wait_for("Ctrl+C again or Ctrl+D leaves.")


def test_a_failure_at_a_terminal_is_told_and_the_chat_goes_on(start: Start) -> None:
    terminal = start()
    terminal.send(b"/opne\r")
    terminal.wait_for("error: there is no command /opne (did you mean /open?")
    terminal.send(b"hi\r")
    terminal.wait_for("echo 'hi'")


def test_without_an_engine_no_chat_waits_for_one(start: Start) -> None:
    """One that is begun after the engine was given up knows of it too, and another model can be tried."""
    terminal = start()
    terminal.send(b"!die\r")
    terminal.wait_for("error: the engine was killed by SIGKILL")
    for number, line in enumerate((b"one\r", b"/new\r", b"two\r", b"/open 1\r", b"three\r"), 3):
        terminal.send(line)
        terminal.wait_until(lambda number=number: prompts(terminal) == number, "the next prompt")  # type: ignore[misc]
    assert terminal.text().count("error: it is not started again (take a smaller model)") == 3
    terminal.send(b"/model first\r")
    terminal.wait_until(lambda: prompts(terminal) == 8, "the next prompt")
    terminal.send(b"four\r")
    terminal.wait_for("echo 'four'")


def test_a_request_to_end_ends_it(start: Start, paths: Paths) -> None:
    terminal = start()
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ended() == 0
    terminal = start()
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 5")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ended() == INTERRUPTED
    assert kept(paths)[-1].finish == "cancelled"


def test_a_dumb_terminal_gets_no_control_sequence(start: Start) -> None:
    terminal = start(term="dumb")
    terminal.send(b"!evil\r")
    terminal.wait_for("[2J")
    terminal.wait_until(lambda: prompts(terminal) == 2, "second prompt")
    terminal.send(b"\x04")
    assert terminal.ended() == 0
    assert b"\x1b" not in terminal.raw
    assert "\x9b" not in terminal.raw.decode()
