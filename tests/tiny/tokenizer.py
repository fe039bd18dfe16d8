"""The tokenizer of all tiny models: GPT-2 style byte pairs over 256 bytes, learnt from the text below."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import gguf

SIZE = 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTROL = [0, 1, 2]
BOS, EOS = 0, 2

_TEXT = """
The key and value of a token never change once they are computed, so a chat can keep them and go on later.
What is the capital of France? The capital of France is Paris. Tell me a story about a small bird and a river.
user system assistant You are a helpful assistant. Please answer in one sentence, and think about it again.
Once upon a time there was a little girl who lived in a house near the forest with her mother and her father.
Water boils at one hundred degrees, freezes at zero, and falls as rain or snow when the weather is cold enough.
Some people write programs; others paint pictures, play music, grow vegetables, build bridges or teach children.
""".strip()
_WORDS = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def _alphabet() -> list[str]:
    """The printable stand-ins of the 256 bytes, as in GPT-2's `bytes_to_unicode`."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    signs = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in signs)
    signs.update({byte: chr(256 + index) for index, byte in enumerate(others)})
    return [signs[byte] for byte in range(256)]


def _learn(count: int) -> list[tuple[str, str]]:
    alphabet = _alphabet()
    words = Counter(tuple(alphabet[byte] for byte in word.encode()) for word in _WORDS.findall(_TEXT))
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = Counter({_merged(word, best): times for word, times in words.items()})
    return merges


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    parts: list[str] = []
    index = 0
    while index < len(word):
        if word[index : index + 2] == pair:
            parts.append("".join(pair))
            index += 2
        else:
            parts.append(word[index])
            index += 1
    return tuple(parts)


_MERGES = _learn(SIZE - 256 - len(SPECIALS))
TOKENS = [*SPECIALS, *_alphabet(), *("".join(pair) for pair in _MERGES)]


def add(writer: gguf.GGUFWriter, chat_template: str | None, add_bos: bool) -> None:
    """Write the tokenizer's metadata."""
    kinds = [gguf.TokenType.CONTROL] * len(SPECIALS) + [gguf.TokenType.NORMAL] * (SIZE - len(SPECIALS))
    writer.add_vocab_size(SIZE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in _MERGES])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(add_bos)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
