"""Token bytes -> text: against `bytes.decode` and a search in the whole, for every way of cutting it into tokens."""

from __future__ import annotations

import itertools
import random

import pytest

from kvchat.engine.text import TextStream


def reference(data: bytes, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The text up to the first stop string, read character by character."""
    text = data.decode("utf-8", "replace")
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


def stream(pieces: list[bytes], stops: tuple[str, ...]) -> tuple[str, bool, str]:
    """Feeds pieces; checks after each that the settled text is that of the settled ids. Text, stopped, rest."""
    subject = TextStream(stops)
    text, ids = "", []
    for token, piece in enumerate(pieces):
        settled = subject.feed(token, piece)
        text += settled.text
        ids += settled.ids
        assert b"".join(pieces[i] for i in ids).decode("utf-8", "replace") == text
        if subject.stopped:
            break
    settled = subject.flush()
    text += settled.text
    ids += settled.ids
    assert ids == list(range(len(ids)))
    assert b"".join(pieces[i] for i in ids).decode("utf-8", "replace") == text
    if not subject.stopped:
        assert len(ids) == len(pieces)
    return text, subject.stopped, subject.rest


def cuts(data: bytes) -> list[list[bytes]]:
    """Every way to cut `data` into pieces."""
    ways = []
    for flags in itertools.product((False, True), repeat=max(len(data) - 1, 0)):
        bounds = [0, *(i + 1 for i, flag in enumerate(flags) if flag), len(data)]
        ways.append([data[a:b] for a, b in itertools.pairwise(bounds)])
    return ways


@pytest.mark.parametrize(
    ("data", "stops"),
    [
        ("aé€😀".encode(), ()),  # one to four bytes a character
        (b"a\xe2\x82", ()),  # ends in the middle of a character
        (b"\xe2a\xf0\x9fb\x80", ()),  # invalid in the middle, twice
        (b"\xc0\xaf\xed\xa0\x80\xff", ()),  # overlong, a surrogate, never valid
        (b"ab<end>cd", ("<end>",)),
        (b"<<<end>", ("<<end>",)),  # the stop string overlaps what looked like its beginning
        (b"aababab", ("abab",)),
        (b"xabcdey", ("bcd", "abcde")),  # complete first wins over beginning first
        (b"xabcd", ("d", "cd", "abcd")),  # several end together: the longest
        ("né€stop€x".encode(), ("€x", "é€stop€y")),
        (b"ends with <en", ("<end>",)),
        (b"a\xff\xffb", ("\ufffd\ufffd",)),  # a stop string that bad bytes make
        (b"a\xe2", ("\ufffd",)),  # at the very end only
        (b"", ("x",)),
    ],
)
def test_every_way_of_cutting(data: bytes, stops: tuple[str, ...]) -> None:
    wanted, stopped = reference(data, stops)
    for pieces in cuts(data):
        text, ended, rest = stream(pieces, stops)
        assert (text + rest, ended) == (wanted, stopped), pieces


def test_random_bytes_and_stops() -> None:
    rng = random.Random(20)
    alphabet = [
        b"a",
        b"b",
        b"ab",
        "é".encode(),
        "😀".encode()[:2],
        "😀".encode()[2:],
        b"\x80",
        b"\xff",
        b"",
        b"<",
        b">",
    ]
    for _ in range(4000):
        pieces = rng.choices(alphabet, k=rng.randrange(12))
        stops = tuple("".join(rng.choices(["a", "b", "<", ">", "é", "\ufffd"], k=rng.randint(1, 4))) for _ in range(2))
        text, ended, rest = stream(pieces, stops)
        assert (text + rest, ended) == reference(b"".join(pieces), stops), (pieces, stops)


def test_only_what_could_become_a_stop_string_is_held() -> None:
    subject = TextStream(["<end>"])
    assert subject.feed(1, b"Hello ").text == "Hello "
    assert subject.feed(2, b"<e") == subject.feed(3, b"n") == TextStream().flush()
    settled = subject.feed(4, b"ough")
    assert (settled.text, settled.ids) == ("<enough", (2, 3, 4))


def test_a_token_is_held_as_a_whole() -> None:
    """Half of the token's text would be text without an id."""
    subject = TextStream(["<end>"])
    assert subject.feed(1, b"one <").text == ""
    assert subject.feed(2, b"end>").text == ""
    assert subject.stopped
    assert subject.rest == "one "


def test_stop_at_a_token_border_leaves_no_rest() -> None:
    subject = TextStream(["<end>"])
    assert subject.feed(1, b"one").ids == (1,)
    assert subject.feed(2, b"<end> more").ids == ()
    assert (subject.stopped, subject.rest) == (True, "")
    assert subject.feed(3, b"later").text == subject.flush().text == ""


def test_whole_tokens_before_the_stop_string_keep_their_ids() -> None:
    subject = TextStream(["<end>"])
    assert subject.feed(1, b"one<").ids == ()
    settled = subject.feed(2, b"two<end>")
    assert (settled.text, settled.ids, subject.rest) == ("one<", (1,), "two")


def test_tokens_without_text_go_out_in_order() -> None:
    subject = TextStream(["ab"])
    assert subject.feed(1, b"").ids == (1,)
    assert subject.feed(2, b"a").ids == ()
    assert subject.feed(3, b"").ids == ()
    assert subject.feed(4, b"c").ids == (2, 3, 4)


def test_a_character_in_two_tokens_comes_with_both() -> None:
    first, second = "é"[0].encode()[:1], "é".encode()[1:]
    subject = TextStream()
    assert subject.feed(7, b"a" + first).ids == ()
    settled = subject.feed(8, second)
    assert (settled.text, settled.ids) == ("aé", (7, 8))


def test_empty_stop_strings_do_not_stop() -> None:
    assert stream([b"abc"], ("",)) == ("abc", False, "")
