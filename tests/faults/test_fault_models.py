"""The real engine over models whose files do harm: tokens that are no text, templates that raise, run away or reach for
Python. The engine lives, says so, and answers."""

from __future__ import annotations

import codecs
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny
from driver import Driver
from tiny import tokenizer

from kvchat.backend.values import PromptMessage, Sampling

pytestmark = pytest.mark.usefixtures("engines_by_fork")
PRINT = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts an engine on a tiny model with these properties."""
    drivers: list[Driver] = []

    def start(**properties: object) -> Driver:
        drivers.append(Driver.start(tmp_path, tiny.build("llama", tmp_path, **properties)))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


# ------------------------------------------------------------------ tokens that are no text


def broken_vocabulary() -> list[bytes]:
    """Tokens of the size of the tiny one: all bytes, and pieces of characters, none of which is a whole one."""
    rng = random.Random(7)
    characters = [sign.encode() for sign in ("é", "€", "😀", "ß", "中", "🦜")]
    halves = [piece for each in characters for cut in range(1, len(each)) for piece in (each[:cut], each[cut:])]
    pieces: set[bytes] = set()
    while len(pieces) < tokenizer.SIZE - 256 - len(tokenizer.SPECIALS):
        pieces.add(rng.choice(halves) + rng.choice(halves))
    return [*(sign.encode() for sign in tokenizer.SPECIALS), *(bytes([byte]) for byte in range(256)), *sorted(pieces)]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bytes of each token of the models that are built."""
    tokens = broken_vocabulary()
    signs = tokenizer._alphabet()
    names = [*tokenizer.SPECIALS, *("".join(signs[byte] for byte in token) for token in tokens[3:])]
    assert len(set(names)) == tokenizer.SIZE
    monkeypatch.setattr(tokenizer, "TOKENS", names)
    monkeypatch.setattr(tokenizer, "_MERGES", [(signs[token[0]], signs[token[1]]) for token in tokens[259:][:1]])
    return tokens


def test_tokens_that_are_no_text(start: Callable[..., Driver], broken: list[bytes]) -> None:
    """What a reply says is what all its bytes make, with U+FFFD for what makes nothing, also where it ends within a
    character; its ids are whole, and the next turn goes on from them."""
    chat = start()
    chat.ready()
    cut = 0
    for number in range(8):
        answer = chat.ask(f"Question {number}.", sampling=Sampling(temperature=0, max_tokens=number + 3))
        raw = b"".join(broken[token] for token in answer.ids)
        assert answer.finished.reason == "length"
        assert len(answer.ids) == number + 3
        assert answer.text == raw.decode("utf-8", "replace")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(raw)
        cut += decoder.getstate() != (b"", 0)  # it waits for more
        if number:
            assert answer.usage.computed == len(answer.segments[-1]) + 1
            assert answer.usage.cut is None
    assert "\ufffd" in "".join(message.text for message in chat.messages)
    assert cut


# ------------------------------------------------------------------ templates


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ '{0.__class__.__mro__}'.format('') }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ 'a' * 10**9 }}", "the template makes a value of more than"),
        ("{{ raise_exception('Never.') }}", "Never."),
    ],
)
def test_one_that_does_harm_is_replaced(start: Callable[..., Driver], template: str, why: str) -> None:
    chat = start(chat_template=template + PRINT)
    notes = " ".join(chat.ready().notes)
    assert why in notes
    assert "ChatML is used instead" in notes
    assert chat.ask("Hello.").finished.reason == "length"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{% if messages|length > 3 %}{{ raise_exception('No\nmore.') }}{% endif %}" + PRINT,
            "the chat template refuses this conversation: No more.",
        ),
        (
            "{% for m in messages %}{{ m.content * (m.content|length) ** 2 }}{% endfor %}",
            "the chat template takes too much: the template makes a value of more than 4,194,304 characters",
        ),
    ],
)
def test_one_that_does_harm_later_ends_the_turn(start: Callable[..., Driver], template: str, message: str) -> None:
    chat = start(chat_template=template)
    assert "ChatML" not in " ".join(chat.ready().notes)
    pid = chat.engine.pid
    sampling = Sampling(temperature=0, max_tokens=2)
    assert chat.ask("Hi.", sampling=sampling).finished.reason == "length"
    chat.messages += [PromptMessage(role, "x" * 400) for role in ("user", "assistant")]
    finished = chat.ask("And now?").finished
    assert finished.reason == "error"
    assert finished.failure is not None
    assert (finished.failure.message, bool(finished.failure.hint)) == (message, True)
    chat.messages.clear()
    assert chat.ask("Again.", sampling=sampling).finished.reason == "length"
    assert chat.engine.pid == pid
