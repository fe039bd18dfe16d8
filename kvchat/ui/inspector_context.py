"""What is in the context: which messages, where their keys and values came from, how many cells are free.

Pure functions from a conversation to values, and from values to lines. Counts are those of the engine and of the stored
token ids; nothing is estimated. Must not know widgets or read files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from textual.content import Content

from kvchat.backend.protocol import Warmed
from kvchat.chats.types import Message
from kvchat.conversation import LiveTurn, read_usage
from kvchat.ui.context_bar import FREE, Look, Stretch, bar, filled
from kvchat.ui.display import display_line

Origin = Literal["resident", "pages", "checkpoint", "computed", "written", "missing"]
Who = Literal["system", "user", "assistant", "unknown", "live"]

ORIGINS: dict[Origin, Look] = {
    "resident": Look("█", "$primary"),
    "pages": Look("▓", "$success"),
    "checkpoint": Look("▚", "$accent"),
    "computed": Look("▒", "$warning"),
    "written": Look("░", "$foreground"),
    "missing": Look("╌", "$error"),
}
ORIGIN_WORDS: dict[Origin, str] = {
    "resident": "resident",
    "pages": "pages",
    "checkpoint": "checkpoint",
    "computed": "computed",
    "written": "answer",
    "missing": "to compute",
}
SPEAKERS: dict[Who, Look] = {
    "system": Look("▌", "$foreground"),
    "user": Look("▀", "$accent"),
    "assistant": Look("▄", "$primary"),
    "unknown": Look("?", "$meta"),
    "live": Look("▞", "$success"),
}
USED = Look("━", "$primary")
WINDOW = Look("━", "$accent")
LABEL_CELLS = 10
BOS = 1  # token before everything, that is no system prompt


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of a message. "system": of what stands before the first one, the system prompt; "live": of the answer
    in progress; "unknown": of messages that cannot be told apart, since the running model has no ids of them."""

    who: Who
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextView:
    """`used` of `reserved` cells (0: there is no context) at the moment that `when` names. `parts` and `origins` divide
    the same tokens, in order; what is "missing" of them is in no cell. `system`: the chat has a system prompt of its
    own. `left`: tokens of the chat that have left the context, and are in no part. `prefix`: the name of the pinned one
    that it begins with."""

    when: str = ""
    used: int = 0
    reserved: int = 0
    parts: tuple[Part, ...] = ()
    origins: tuple[tuple[Origin, int], ...] = ()
    system: bool = False
    left: int = 0
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Moment:
    """Of the messages, `prompt` tokens were read and `written` tokens answered. The first `system` of the prompt are
    the system prompt; 0: it is not told apart."""

    when: str
    messages: Sequence[Message]
    prompt: int
    written: int
    origins: dict[Origin, int]
    system: int
    live: bool = False


def context_view(
    messages: Sequence[Message],
    lengths: Mapping[str, int],
    *,
    live: LiveTurn | None,
    generated: int,
    warmed: Warmed | None,
    reserved: int,
    system: bool,
    left: int = 0,
) -> ContextView:
    """`lengths`: how many tokens of a message are in the context, by message, where its ids are known. `generated`:
    tokens of the answer in progress. `left`: tokens that have left the context."""
    moment = _now(messages, live, generated) or _warmed(messages, lengths, warmed) or _after_last_turn(messages)
    if moment is None:
        return ContextView("nothing is read yet", 0, reserved, system=system, left=left)
    origins = tuple((origin, count) for origin, count in moment.origins.items() if count > 0)
    used = sum(count for origin, count in origins if origin != "missing")
    parts = tuple(_parts(moment, lengths))
    if moment.system > (0 if system else BOS):
        parts = tuple(_apart(parts, moment.system))
    return ContextView(moment.when, used, reserved, parts, origins, system, left)


def _now(messages: Sequence[Message], live: LiveTurn | None, generated: int) -> _Moment | None:
    """While the turn goes on, from the moment at which its reuse is known."""
    if live is None or live.restored is None:
        return None
    restored = live.restored
    done = restored.computed if live.phase == "decode" else live.progress.done if live.progress is not None else 0
    origins: dict[Origin, int] = {
        "resident": restored.resident,
        "pages": restored.pages,
        "checkpoint": restored.checkpoint,
        "computed": done,
        "missing": restored.computed - done,
        "written": generated,
    }
    origins = _without(origins, live.away)
    prompt = max(0, restored.reused + restored.computed - live.away)
    return _Moment("now", messages, prompt, generated, origins, live.system_tokens, live=True)


def _without(origins: dict[Origin, int], left: int) -> dict[Origin, int]:
    """What is there when so many tokens have left, the oldest first, which is the order of the origins."""
    found: dict[Origin, int] = {}
    for origin, there in origins.items():
        gone = min(there, left) if origin != "missing" else 0
        found[origin] = there - gone
        left -= gone
    return found


def _warmed(messages: Sequence[Message], lengths: Mapping[str, int], warmed: Warmed | None) -> _Moment | None:
    """What was brought back when the chat was opened."""
    if warmed is None:
        return None
    known = tuple(takewhile(lambda message: message.id in lengths, messages))
    origins: dict[Origin, int] = {
        "resident": warmed.reused - warmed.pages - warmed.checkpoint,
        "pages": warmed.pages,
        "checkpoint": warmed.checkpoint,
        "missing": warmed.tokens - warmed.reused,
    }
    return _Moment("brought back, before the next turn", known, warmed.tokens, 0, origins, warmed.system_tokens)


def _after_last_turn(messages: Sequence[Message]) -> _Moment | None:
    """As the last answer of the branch left it."""
    for end in range(len(messages), 0, -1):
        usage = read_usage(messages[end - 1])
        if usage is None or not usage.cells or usage.excess:
            continue
        whole = usage.reused + usage.computed
        gone = min(usage.evicted, max(0, whole + usage.decode_tokens - usage.cells))  # in this turn
        read = min(usage.cells, max(0, whole - gone))
        written = usage.cells - read
        origins: dict[Origin, int] = {
            "resident": usage.resident,
            "pages": usage.pages,
            "checkpoint": usage.checkpoint,
            "computed": min(whole, usage.cells + gone) - usage.reused,
            "written": max(0, usage.cells + gone - whole),
        }
        origins = _without(origins, gone)
        return _Moment("after the last turn", messages[:end], read, written, origins, usage.system_tokens)
    return None


def _parts(moment: _Moment, lengths: Mapping[str, int]) -> Iterator[Part]:
    """The messages by their ids. One whose ids are not known yet has what the prompt has beyond the others; the last
    one has what is left."""
    if not moment.messages:
        return
    *earlier, last = moment.messages
    unknown = [message for message in earlier if message.id not in lengths]
    rest = max(0, moment.prompt - sum(lengths.get(message.id, 0) for message in earlier))
    left = moment.prompt + moment.written
    for message in earlier:
        who: Who = message.role
        tokens = lengths.get(message.id, 0)
        if unknown and message is unknown[0]:
            who, tokens = (who if len(unknown) == 1 else "unknown"), rest
        tokens = min(tokens, left)
        left -= tokens
        if tokens:
            yield Part(who, tokens)
    if left:
        yield Part("live" if moment.live else last.role, left)


def _apart(parts: Sequence[Part], system: int) -> Iterator[Part]:
    """The system prompt apart from the first part, which begins with it."""
    for part in parts:
        taken = min(system, part.tokens)
        system -= taken
        if taken:
            yield Part("system", taken)
        if taken < part.tokens:
            yield Part(part.who, part.tokens - taken)


# ------------------------------------------------------------------ in lines


def context_lines(view: ContextView, width: int, window: int | None = None) -> list[Content]:
    """Three bars and what they mean. `window`: the first token that layers with a window still have; None: there are
    no such layers."""
    total = sum(part.tokens for part in view.parts)
    cells = max(0, width - LABEL_CELLS)
    lines = [_cells_line(view, cells)]
    if not total:
        lines.append(Content.styled(view.when.rjust(len(view.when) + LABEL_CELLS), "$meta"))
        return lines
    lines.append(_labelled("messages", bar([Stretch(part.tokens, SPEAKERS[part.who]) for part in view.parts], cells)))
    origins = [Stretch(count, ORIGINS[origin]) for origin, count in view.origins]
    lines.append(_labelled("came from", bar(origins, cells)))
    if window is not None:
        kept = [Stretch(window, FREE), Stretch(view.used - window, WINDOW), Stretch(total - view.used, FREE)]
        lines.append(_labelled("window", bar(kept, cells)))
    return [*lines, *_fitting(_speakers(view), width), *_fitting(_sources(view), width)]


def _cells_line(view: ContextView, cells: int) -> Content:
    if not view.reserved:
        return _labelled("cells", Content(f"{view.used:,} used; there is no context now"))
    share = view.used / view.reserved
    numbers = f" {view.used:,} of {view.reserved:,} · {share:.0%}"
    style = "$success" if share < 0.8 else "$warning" if share < 0.93 else "$error"
    drawn = filled(share, max(0, cells - len(numbers)), Look(USED.glyph, style))
    return _labelled("cells", Content.assemble(drawn, Content(numbers)))


def _labelled(label: str, content: Content) -> Content:
    return Content.assemble(Content.styled(label.ljust(LABEL_CELLS), "$meta"), content)


def _speakers(view: ContextView) -> Iterator[tuple[Content, str]]:
    """The legend of the messages, most wanted first: (glyph, words)."""
    words: dict[Who, str] = {
        "system": _system_words(view),
        "user": "you",
        "assistant": "answers",
        "unknown": "not told apart",
        "live": "in progress",
    }
    apart = any(part.who == "system" for part in view.parts)
    for who, look in SPEAKERS.items():
        found = [part.tokens for part in view.parts if part.who == who]
        if not found:
            continue
        times = f" ×{len(found)}" if who in ("user", "assistant") else ""
        system = ", system prompt among them" if who == "user" and view.system and not apart else ""
        yield Content.styled(look.glyph, look.style), f" {words[who]}{times} {sum(found):,}{system}"


def _system_words(view: ContextView) -> str:
    if view.prefix:
        return f"prefix {display_line(view.prefix)}"
    return "system prompt" if view.system else "the template's system prompt"


def _sources(view: ContextView) -> Iterator[tuple[Content, str]]:
    for origin, count in view.origins:
        look = ORIGINS[origin]
        yield Content.styled(look.glyph, look.style), f" {ORIGIN_WORDS[origin]} {count:,}"
    if view.reserved:
        yield Content.styled(FREE.glyph, FREE.style), f" free {view.reserved - view.used:,}"
    if view.left:
        yield Content.styled("×", "$meta"), f" left {view.left:,}"


def _fitting(items: Iterator[tuple[Content, str]], width: int) -> list[Content]:
    """The legend in one line, closer together where it is too long, or in as many as it takes."""
    found = [Content.assemble(glyph, words) for glyph, words in items]
    for gap in ("   ", "  ", " "):
        line = Content(gap).join(found)
        if line.cell_length <= width:
            return [line]
    lines = found[:1]
    for each in found[1:]:
        if lines[-1].cell_length + 2 + each.cell_length <= width:
            lines[-1] = Content("  ").join([lines[-1], each])
        else:
            lines.append(each)
    return lines
