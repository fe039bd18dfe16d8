"""What goes wrong with a server is told in a sentence with a hint, what had come is kept, and the next turn works."""

from __future__ import annotations

import gzip
import socket
import threading

import pytest
from remote_driver import QUICK, Talk
from scripted_server import Reply, Script, ScriptedServer, failing, saying, usage

from kvchat.backend.protocol import LoadFailed, Ready
from kvchat.backend.remote_wire import Patience
from kvchat.backend.values import Failure

GOOD = saying("All", " right.", usage=usage(10, 2))


def failure_of(script: Script, **remote: str) -> tuple[str, Failure, tuple[str, str | None]]:
    """The text that came and why no more did, and how the next turn went."""
    with ScriptedServer(script, GOOD) as server:
        talk = Talk(server.url, **remote)
        assert isinstance(talk.start(), Ready)
        text, finished = talk.ask("Hello")
        assert finished.reason == "error"
        assert finished.failure is not None
        assert finished.failure.hint
        again, second = talk.ask("Again")
        talk.engine.close()
        return text, finished.failure, (again, second.reason)


@pytest.mark.parametrize(
    ("code", "body", "message", "hint"),
    [
        (401, {"error": {"message": "no such key"}}, "wants a key (401): no such key", "key_env"),
        (404, {"error": {"message": "model gone"}}, "no such model or address (404): model gone", "/v1"),
        (400, {"message": "too long", "object": "error"}, "answered 400: too long", "does not take this request"),
        (500, b"<html>oh dear</html>", "failed (500)", "try again later"),
        (503, {"error": "loading"}, "failed (503): loading", "try again later"),
        (429, {"detail": "slow down"}, "asked too often (429): slow down", "try again in a while"),
    ],
)
def test_refused_with_a_status(code: int, body: object, message: str, hint: str) -> None:
    text, failure, again = failure_of(failing(code, body))
    assert text == ""
    assert message in failure.message
    assert hint in failure.hint
    assert "<" not in failure.message
    assert again == ("All right.", "stop")


def test_retry_after_is_told() -> None:
    _, failure, _ = failure_of(failing(429, {}, {"Retry-After": "17"}))
    assert failure.hint == "try again in 17 s"


def test_a_redirect_is_not_followed() -> None:
    with ScriptedServer(GOOD) as other:
        _, failure, _ = failure_of(failing(307, b"", {"Location": f"{other.url}/chat/completions"}))
        assert other.asked == 0
        assert f"sends us elsewhere (307), to {other.url}" in failure.message


def test_a_stream_that_is_cut_off() -> None:
    def cut(reply: Reply) -> None:
        reply.begin()
        reply.delta(content="Half an ")
        reply.delta(content="answer")

    text, failure, again = failure_of(cut)
    assert text == "Half an answer"
    assert "ended its answer before its end" in failure.message
    assert again == ("All right.", "stop")


def test_a_stream_that_breaks_inside_a_chunk() -> None:
    def breaks(reply: Reply) -> None:
        handler = reply._handler
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        data = b'data: {"choices":[{"delta":{"content":"Half"}}]}\n\n'
        reply.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        reply.raw(b"ff\r\ndata: {")

    text, failure, _ = failure_of(breaks)
    assert text == "Half"
    assert failure.message.startswith("the connection to 127.0.0.1:")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"data: {nonsense\n\n", "no valid JSON"),
        (b"data: [1, 2]\n\n", "JSON of another form"),
        (b'data: {"type": "message_start"}\n\n', "something else than a chat completion"),
        (b'data: {"choices": ["x"]}\n\n', "a chat completion of another form"),
        (b'data: {"choices": [{"delta": {"content": 7}}]}\n\n', "a reply that is no text"),
        (b"data: " + b"x" * (2 << 20) + b"\n\n", "a stream that is none"),
    ],
)
def test_another_schema(data: bytes, what: str) -> None:
    def strange(reply: Reply) -> None:
        reply.begin()
        reply.delta(content="Begun. ")
        reply.raw(data)

    text, failure, again = failure_of(strange)
    assert text == "Begun. "
    assert what in failure.message
    assert "the base of an OpenAI-compatible API?" in failure.hint
    assert again == ("All right.", "stop")


@pytest.mark.parametrize("code", [200, 500])
def test_what_is_packed_twice_is_not_unpacked(code: int) -> None:
    """A few KB of it fill the memory."""
    packed = gzip.compress(gzip.compress(bytes(1 << 20)))
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip, gzip"}
    _, failure, _ = failure_of(failing(code, packed, headers))
    assert "answered something that is packed more than once" in failure.message


def test_an_answer_that_is_no_stream() -> None:
    _, failure, _ = failure_of(failing(200, {"choices": [{"message": {"content": "whole"}}]}))
    assert "application/json in place of a stream" in failure.message


def test_an_error_within_a_stream() -> None:
    def gives_up(reply: Reply) -> None:
        reply.begin()
        reply.delta(content="So far")
        reply.event({"error": {"message": "CUDA out of memory\x1b[31m", "code": 500}})

    text, failure, _ = failure_of(gives_up)
    assert text == "So far"
    assert "gave up: CUDA out of memory" in failure.message
    assert "\x1b" not in failure.message


def test_an_error_within_a_stream_that_says_nothing() -> None:
    def gives_up(reply: Reply) -> None:
        reply.begin()
        reply.event({"error": {"message": "", "code": 500}})

    _, failure, _ = failure_of(gives_up)
    assert failure.message.endswith(" gave up")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("charset", ["hex", "zlib", "utf-16", "undefined", "klingon"])
def test_a_stream_is_utf_8_whatever_the_server_calls_it(charset: str, mark: bytes) -> None:
    """Also where it begins with a byte order mark."""

    def named(reply: Reply) -> None:
        reply.begin(f"text/event-stream; charset={charset}")
        reply.raw(mark)
        reply.delta(content="né€😀")
        reply.end()

    with ScriptedServer(named) as server:
        talk = Talk(server.url)
        talk.start()
        text, finished = talk.ask("Hello")
        talk.engine.close()
    assert (text, finished.reason) == ("né€😀", "stop")


def test_a_server_that_withholds_the_rest() -> None:
    def filtered(reply: Reply) -> None:
        reply.begin()
        reply.delta(content="Well, ")
        reply.end(finish="content_filter")

    text, failure, _ = failure_of(filtered)
    assert text == "Well, "
    assert "withheld the rest of its answer (content_filter)" in failure.message


def test_silence_ends_a_turn() -> None:
    quiet = threading.Event()

    def silent(reply: Reply) -> None:
        reply.begin()
        reply.delta(content="Wait")
        quiet.wait(20)

    with ScriptedServer(silent) as server:
        talk = Talk(server.url, patience=Patience(connect=2.0, models=2.0, silence=0.3))
        talk.start()
        text, finished = talk.ask("Hello")
        quiet.set()
        talk.engine.close()
    assert text == "Wait"
    assert finished.failure is not None
    assert "has been silent for too long" in finished.failure.message


def test_nobody_listens_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but it does not listen
        talk = Talk(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        failed = talk.start()
        talk.engine.close()
    assert isinstance(failed, LoadFailed)
    assert "cannot be reached" in failed.failure.message
    assert failed.failure.hint


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (b"no json", "no valid JSON"),
        ({"object": "list"}, "no list of models"),
        ({"data": []}, "serves no model"),
        ({"data": [{"id": 7}]}, "serves no model"),
        ({"data": [{"id": "a"}, {"id": "b"}]}, "serves 2 models"),
    ],
)
def test_a_strange_list_of_models(models: object, message: str) -> None:
    with ScriptedServer(GOOD) as server:
        server.models = models
        talk = Talk(server.url)
        failed = talk.start()
        talk.engine.close()
    assert isinstance(failed, LoadFailed)
    assert message in failed.failure.message


def test_a_model_that_is_not_served() -> None:
    with ScriptedServer(GOOD, names=("qwen3-32b", "llama")) as server:
        talk = Talk(server.url, model="qwen-32b")
        failed = talk.start()
        talk.engine.close()
    assert isinstance(failed, LoadFailed)
    assert failed.failure.hint == "did you mean qwen3-32b?"


def test_a_server_without_a_list_of_models() -> None:
    with ScriptedServer(GOOD) as server:
        server.models_script = failing(404, {})
        nameless, named = Talk(server.url), Talk(server.url, model="mine")
        failed, ready = nameless.start(), named.start()
        assert named.ask("Hello")[0] == "All right."
        nameless.engine.close()
        named.engine.close()
        assert server.seen[0].body["model"] == "mine"
    assert isinstance(failed, LoadFailed)
    assert isinstance(ready, Ready)


def test_the_key_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "sk-very-secret")
    refusal = failing(401, {"error": {"message": "Incorrect API key provided: sk-very-secret."}})
    with ScriptedServer(refusal) as server:
        talk = Talk(server.url, key_env="LAB_KEY")
        talk.start()
        _, finished = talk.ask("Hello")
        talk.engine.close()
        assert server.seen[0].headers["Authorization"] == "Bearer sk-very-secret"
    assert finished.failure is not None
    assert "does not take the key (401): Incorrect API key provided: ..." in finished.failure.message
    assert "secret" not in repr(finished)


def test_without_a_key_none_is_sent() -> None:
    with ScriptedServer(GOOD) as server:
        talk = Talk(server.url)
        talk.start()
        talk.ask("Hello")
        talk.engine.close()
        assert "Authorization" not in server.seen[0].headers


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "the variable LAB_KEY is not set"), ("two words", "is no key"), ("schlüssel", "is no key")],
)
def test_a_key_that_is_none(value: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("LAB_KEY", value)
    with ScriptedServer(GOOD) as server:
        talk = Talk(server.url, key_env="LAB_KEY")
        failed = talk.start()
        talk.engine.close()
        assert server.asked == 0
    assert isinstance(failed, LoadFailed)
    assert message in failed.failure.message
    assert value is None or value not in failed.failure.message


def test_proxies_of_the_environment_are_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(GOOD) as server, ScriptedServer(GOOD) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.host}")
        monkeypatch.setenv("http_proxy", f"http://{proxy.host}")
        talk = Talk(server.url, patience=QUICK)
        assert isinstance(talk.start(), Ready)
        talk.engine.close()
        assert proxy.asked == 0
