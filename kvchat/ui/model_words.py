"""All that is known of a model file, as lines for a screen. Owns the wording and the reading of the file; pure but for
that. Must not know widgets.

Texts of the file are cleaned here, and never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.content import Content

from kvchat.backend.errands import look
from kvchat.backend.inspection import Look, Looked
from kvchat.backend.values import CACHE_TYPES
from kvchat.errors import KvchatError
from kvchat.kv.geometry import Geometry, geometry
from kvchat.library.details import Details, details
from kvchat.library.find import ModelFile, check
from kvchat.library.pairing import Proposal, proposals
from kvchat.ui.display import display, display_line
from kvchat.ui.meters import size_text
from kvchat.ui.plan_words import reuse_text

LABEL = 17  # cells
_MOST_LINES, _MOST_CHARACTERS = 60, 4000  # of an example
_MOST_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says, and which models here could draft for it."""

    model: ModelFile
    architecture: str
    quantization: str
    shape: Geometry
    details: Details
    drafts: tuple[Proposal, ...]


def read(model: ModelFile, models: Sequence[ModelFile]) -> Header:
    """Read the header; `models` could draft. KvchatError: it is damaged, or no model that one can chat with."""
    header = check(model)
    found = details(model, header)
    return Header(model, header.architecture, header.quantization, geometry(header), found, proposals(model, models))


def ask(model: ModelFile, log_file: Path) -> Looked | str:
    """What llama.cpp says of it, or why it says nothing."""
    try:
        return look(Look(str(model.path)), log_file)
    except KvchatError as error:
        return error.message
    except OSError as error:
        return str(error)


def header_lines(header: Header) -> list[Content]:
    """What the file says."""
    shape, found = header.shape, header.details
    window = f", window {shape.window:,} tokens" if shape.window else ""
    rows = [
        ("architecture", f"{header.architecture}, {shape.attention}, {shape.layers} layers{window}"),
        ("parameters", f"{_count(found.parameters)}, {found.bits_per_weight:.2f} bits each"),
        ("trained for", f"{shape.context_trained:,} tokens" if shape.context_trained else "not said"),
        ("KV bytes a token", ", ".join(_per_token(shape, kind) for kind in CACHE_TYPES) if shape.cache else ""),
        ("state", f"{size_text(shape.state_bytes)} per chat" if shape.state_bytes else ""),
        ("reuse", reuse_text(shape)),
        ("licence", " ".join(filter(None, (found.licence, found.licence_link))) or "the file names none"),
        ("by", found.author),
        ("made from", found.base_model),
        ("could draft", "; ".join(f"{each.model.name}, {each.why}" for each in header.drafts) or "no model here"),
        ("file", str(header.model.path)),
    ]
    lines = [_row(label, text) for label, text in rows if text]
    if found.mix:
        lines += [Content(""), _head(f"Weights: {header.quantization}, {size_text(header.model.size)}")]
    for share in found.mix:
        tensors = f"{share.tensors:,} tensor{'s' * (share.tensors != 1)}"
        lines.append(_row(share.type, f"{size_text(share.bytes):>9}  {share.share:>6.1%}  {tensors}"))
    return lines


def looked_lines(looked: Looked | str | None) -> list[Content]:
    """What llama.cpp says. None: it has not answered yet."""
    if looked is None:
        return [Content(""), Content.styled("asking llama.cpp …", "$meta")]
    problem = looked if isinstance(looked, str) else looked.problem
    lines = [Content("")]
    if problem:
        lines.append(Content.styled(f"What llama.cpp makes of it cannot be told: {display_line(problem)}", "$warning"))
    if isinstance(looked, Looked):
        lines += _vocabulary(looked) + _example(looked)
    return lines


def _vocabulary(looked: Looked) -> list[Content]:
    found = looked.vocabulary
    if found is None:
        return []
    more = len(found.ends) - _MOST_TOKENS
    ends = ", ".join(f"{text!r} {token}" for token, text in found.ends[:_MOST_TOKENS])
    begins = "each prompt begins with BOS" if found.adds_bos else "no BOS is added"
    return [
        _head(f"Vocabulary: {found.kind}, {found.size:,} tokens; {begins}"),
        *(_row(token.role, f"{token.text!r} {token.id}") for token in found.special),
        _row("ends an answer", ends + (f" and {more} more" if more > 0 else "")),
    ]


def _example(looked: Looked) -> list[Content]:
    example = looked.example
    if example is None:
        return []
    lines = [Content(""), _head(f"A conversation as this model reads it, {example.tokens:,} tokens")]
    if example.note:
        lines.append(Content.styled(display_line(example.note), "$warning"))
    elif not example.system_role:
        lines.append(Content.styled("Its template has no place for a system prompt.", "$meta"))
    text = display(example.text[:_MOST_CHARACTERS]).splitlines()
    cut = len(text) > _MOST_LINES or len(example.text) > _MOST_CHARACTERS
    return lines + [Content(f"  {line}") for line in [*text[:_MOST_LINES], *["…"] * cut]]


def _per_token(shape: Geometry, kind: str) -> str:
    if shape.refusal(kind, kind, "auto") is not None:
        return f"{kind} not possible"
    return f"{kind} {shape.bytes_per_token(kind, kind):,}"


def _row(label: str, text: str) -> Content:
    return Content.assemble(Content.styled(f"{display_line(label):<{LABEL}}", "$meta"), display(text))


def _head(text: str) -> Content:
    return Content.styled(display_line(text), "bold $primary")


def _count(number: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)
