"""Which vocabularies fit each other: llama.cpp's rules, one difference at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kvchat.engine.pairing import FIRST_COMPARED, check_pair, difference
from kvchat.errors import KvchatError


@dataclass(frozen=True)
class Words:
    """A vocabulary of `vocab_size` tokens called t0, t1, ..., but for those in `other`."""

    vocab_kind: str = "BPE"
    vocab_size: int = 1000
    bos: int | None = 1
    eos: int | None = 2
    adds_bos: bool = True
    adds_eos: bool = False
    other: tuple[tuple[int, bytes], ...] = ()

    def token_texts(self):
        other = dict(self.other)
        return (other.get(token, b"t%d" % token) for token in range(self.vocab_size))


MODEL = Words()


@pytest.mark.parametrize(
    "draft",
    [
        MODEL,
        replace(MODEL, vocab_size=1128),
        replace(MODEL, vocab_size=872),
        replace(MODEL, eos=7),  # it is not added
        replace(MODEL, other=((FIRST_COMPARED - 1, b"<pad>"),)),
        replace(MODEL, vocab_size=1005, other=((1003, b"beyond the model's"),)),
    ],
)
def test_fits(draft):
    assert difference(draft, MODEL) is None
    assert difference(MODEL, draft) is None


@pytest.mark.parametrize(
    ("draft", "named"),
    [
        (replace(MODEL, vocab_kind="SPM"), "it is SPM, not BPE"),
        (replace(MODEL, adds_bos=False), "BOS is not added to its prompts"),
        (replace(MODEL, bos=3), "its BOS is token 3, not 1"),
        (replace(MODEL, adds_eos=True), "EOS is added to its prompts"),
        (replace(MODEL, vocab_size=1129), "it has 1,129 tokens, not 1,000"),
        (replace(MODEL, vocab_size=871), "it has 871 tokens, not 1,000"),
        (replace(MODEL, other=((FIRST_COMPARED, b"x"),)), "token 5 is 'x', not 't5'"),
        (replace(MODEL, other=((999, b"last"), (400, b"\xff\x1b[2J"))), "token 400 is '\ufffd\\x1b[2J', not 't400'"),
    ],
)
def test_the_first_difference_is_named(draft, named):
    assert difference(draft, MODEL) == named
    with pytest.raises(KvchatError, match="small cannot draft for this model") as refused:
        check_pair("small", draft, MODEL)
    assert named in refused.value.message
    assert "same family" in refused.value.hint
