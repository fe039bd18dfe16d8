"""What of several turns is computed together."""

from __future__ import annotations

import pytest

from kvchat.engine.batching import SMALL, Limits, Want, compose

WIDE = Limits(tokens=256, outputs=16, cells=10_000, beside_answers=8)


def answer(tokens=1):
    return Want(tokens, tokens, reads=False)


def prompt(tokens, output=0):
    return Want(tokens, output, reads=True)


@pytest.mark.parametrize(
    ("wants", "shares"),
    [
        ([answer(), answer(), answer()], [1, 1, 1]),
        ([answer(), prompt(300)], [1, 8]),  # what it may slow the answer down
        ([answer(), prompt(5)], [1, 5]),
        ([prompt(300), answer(4)], [8, 4]),  # whoever stands first
        ([prompt(300)], [256]),
        ([prompt(300), prompt(300)], [128, 128]),
        ([prompt(300), prompt(20), prompt(300)], [118, 20, 118]),
        ([answer(), prompt(300), prompt(2)], [1, 6, 2]),
        ([answer(), Want(SMALL + 1, 0, reads=False)], [1, 8]),  # much at once is reading, also within an answer
    ],
)
def test_answers_come_first_and_prompts_share_the_rest(wants, shares):
    assert compose(wants, WIDE) == shares


PROOF = Want(64, 0, reads=True, alone=True)


def test_what_is_proved_on_resume_is_computed_by_itself():
    """In a small part where answers wait meanwhile."""
    assert compose([answer(), PROOF, prompt(100)], WIDE) == [0, 8, 0]
    assert compose([answer(), PROOF], Limits(256, 16, 10_000, 0)) == [0, 4]
    assert compose([prompt(100), PROOF], WIDE) == [0, 64]
    assert compose([prompt(100), PROOF], Limits(256, 16, 20, 8)) == [0, 20]


def test_answers_are_computed_while_a_proof_has_no_room():
    assert compose([answer(), PROOF], Limits(256, 16, 4, 8)) == [1, 0]


def test_no_more_logits_than_llama_cpp_provides():
    assert compose([answer(9), answer(9), answer()], WIDE) == [9, 0, 1]
    assert compose([answer(16), prompt(8, output=1)], WIDE) == [16, 7]  # all but the last token
    assert compose([answer(15), prompt(8, output=1)], WIDE) == [15, 8]


def test_no_more_tokens_than_cells_or_batch():
    assert compose([prompt(300), prompt(300)], Limits(256, 16, 10, 8)) == [5, 5]
    assert compose([answer(4), answer(4)], Limits(256, 16, 5, 8)) == [4, 0]
    assert compose([answer(4), prompt(300)], Limits(6, 16, 100, 8)) == [4, 2]
    assert compose([answer(4), answer(4)], Limits(256, 16, 0, 8)) == [0, 0]


def test_answers_alone_where_nothing_may_be_read():
    assert compose([answer(), prompt(300)], Limits(256, 16, 100, 0)) == [1, 0]
    assert compose([prompt(300)], Limits(256, 16, 1000, 0)) == [256]  # nobody is slowed down
