"""The prompt of a turn: messages -> token ids, such that the past stays what it was.

Owns how a conversation is cut into messages and how each part gets its ids. Must not know what lies in a cache, and
never tokenizes again what it was given ids for: the ids of a generated reply often differ from those of its text, and
one different id makes all KV behind it worthless.

Two ways. `append`: the known ids stand as they are, and only what the template puts behind the last reply is new.
`exact`: the whole conversation is rendered again, as its template says; known ids are kept where the text is the same.
Where a reply lies in a rendered text is found by rendering once more with a number in place of each reply (`slots`).

Text of the person or of the model must not become a control token. llama.cpp tokenizes a prompt as one text, and so
does this module, since a border between two texts changes the ids round it; but where a message holds the text of a
control token, the part is cut at the borders of the message and the message is tokenized as plain text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kvchat.backend.values import History, PromptMessage
from kvchat.engine.slots import GapTokenizer, Tokenizer, locate, render_gaps
from kvchat.engine.template import ChatTemplate, Turn
from kvchat.errors import KvchatError

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenized prompt.

    `segments[i]` are the ids of `messages[i]` (see PromptMessage); joined they are `ids`. `past`: so many leading ids
    were known before, and can be in a cache. `cut` is "template" when the template now renders the past otherwise.
    """

    ids: Ids
    segments: tuple[Ids, ...]
    past: int
    cut: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A turn as the template sees it, and the messages that it is made of, up to and including `last`."""

    turn: Turn
    ids: Ids | None
    last: int


def build_prompt(
    messages: Sequence[PromptMessage],
    *,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    history: History,
    clock: float,
    continue_reply: bool = False,
) -> Prompt:
    """The prompt for the reply to the last message or, with `continue_reply`, for the rest of that reply.

    `clock`: what the template takes for now, seconds since the epoch. Raises KvchatError when the last message is of
    the wrong role, and what ChatTemplate.render raises.
    """
    _check(messages, continue_reply)
    asked = messages[:-1] if continue_reply else messages
    entries = _entries(asked, template.system_role)
    writer = _Writer(asked, entries, template, tokenizer, clock)
    prompt = writer.append() if history == "append" else writer.exact()
    return _with_partial(prompt, messages[-1], tokenizer) if continue_reply else prompt


def computed_before(messages: Sequence[PromptMessage]) -> int:
    """So many leading ids of the past were surely computed once: those up to the end of a reply that has any. The
    prompt of a turn that was stopped before its first token may have been told and never computed."""
    length = computed = 0
    for message in messages:
        length += len(message.ids or ())
        if message.role == "assistant" and message.ids:
            computed = length
    return computed


def _check(messages: Sequence[PromptMessage], continue_reply: bool) -> None:
    wanted = ["user", "assistant"] if continue_reply else ["user"]
    if [message.role for message in messages[-len(wanted) :]] != wanted:
        what = "a reply that can be continued" if continue_reply else "a message that can be answered"
        raise KvchatError(f"the conversation does not end with {what}", "write a message first")


def _with_partial(prompt: Prompt, partial: PromptMessage, tokenizer: Tokenizer) -> Prompt:
    known = partial.ids is not None and prompt.past == len(prompt.ids)
    ids = partial.ids if partial.ids is not None else tuple(tokenizer.tokenize(partial.text, special=False))
    past = prompt.past + len(ids) if known else prompt.past
    return Prompt(prompt.ids + ids, (*prompt.segments, ids), past, prompt.cut)


def _entries(messages: Sequence[PromptMessage], system_role: bool) -> list[_Entry]:
    """The turns, with no two of one party in a row: many templates refuse that. A system prompt that the template does
    not take stands in front of what the person says first."""
    entries: list[_Entry] = []
    waiting = ""
    for i, message in enumerate(messages):
        text, ids, role = message.text, message.ids, message.role
        if role == "system":
            if not system_role or not text:
                waiting = text
                continue
        elif role == "user" and waiting:
            text, waiting = f"{waiting}\n\n{text}", ""
        if entries and entries[-1].turn.role == role:
            before = entries.pop()
            text = before.turn.text + ("" if role == "assistant" else "\n\n") + text
            ids = None if ids is None or before.ids is None else before.ids + ids
        entries.append(_Entry(Turn(role, text), () if role == "system" else ids, i))
    return entries


class _Writer:
    """Writes one prompt: the ids of each entry, one after the other."""

    def __init__(
        self,
        messages: Sequence[PromptMessage],
        entries: Sequence[_Entry],
        template: ChatTemplate,
        tokenizer: Tokenizer,
        clock: float,
    ) -> None:
        self._messages, self._entries = messages, entries
        self._template, self._tokenizer, self._clock = template, tokenizer, clock
        self._turns = [entry.turn for entry in entries]
        self._known = _known(entries)
        self._past = _joined(entry.ids for entry in entries[: self._known])

    # ---- append

    def append(self) -> Prompt:
        if self._known == len(self._entries):
            return self._prompt({}, self._known)
        first = max(self._known - 1, 0)
        replies = [i for i, turn in enumerate(self._turns) if i >= first and turn.role == "assistant"]
        slotted = render_gaps(self._template, self._turns, replies, replies, self._clock)
        if slotted is None:
            return self._whole()
        new = [i for i in range(self._known, len(self._turns)) if i not in replies]
        tokenizer = self._gap_tokenizer(replies, new)
        fresh: dict[int, Ids] = {}
        for number, (parts, reply) in enumerate(zip(slotted, [*replies, len(self._turns)], strict=True)):
            if reply >= self._known:
                self._put(fresh, reply, tokenizer.ids("".join(map(str, parts)), number))
            if self._known <= reply < len(self._turns):
                fresh[reply] = fresh.get(reply, ()) + self._reply_ids(reply)
        return self._prompt(fresh, self._known)

    # ---- exact

    def exact(self) -> Prompt:
        text = self._template.render(self._turns, self._clock)
        replies = [i for i, turn in enumerate(self._turns) if turn.role == "assistant"]
        slotted = render_gaps(self._template, self._turns, replies, replies, self._clock)
        found = None if slotted is None else locate(text, slotted, self._turns, replies)
        if found is None:
            return self._whole(text)
        tokenizer = self._gap_tokenizer(replies, [i for i in range(len(self._turns)) if i not in replies])
        fresh: dict[int, Ids] = {}
        behind = ""
        for number, ((gap, rendered), reply) in enumerate(zip(found, [*replies, len(self._turns)], strict=True)):
            if reply == len(self._turns):
                self._put(fresh, reply, self._gap_ids(tokenizer, behind + gap, number, reply))
                break
            before, ids, after = self._kept(tokenizer, rendered, reply)
            self._put(fresh, reply, self._gap_ids(tokenizer, behind + gap + before, number, reply))
            fresh[reply] = fresh.get(reply, ()) + ids
            behind = after
        return self._compared(fresh)

    def _kept(self, tokenizer: GapTokenizer, rendered: str, reply: int) -> tuple[str, Ids, str]:
        """The ids of a reply, and what the template put round it. Outer white space of a reply is no difference."""
        entry, words = self._entries[reply], self._turns[reply].text.strip()
        if entry.ids is None or words not in rendered or (not words and rendered.strip()):
            return "", tuple(tokenizer.foreign(rendered, self._turns[reply].text)), ""
        at = rendered.find(words)
        before, after = rendered[:at], rendered[at + len(words) :]
        return before if before.strip() else "", entry.ids, after if after.strip() else ""

    def _gap_ids(self, tokenizer: GapTokenizer, text: str, gap: int, reply: int) -> list[int]:
        """The ids of a gap. Where it ended in other white space when its reply was generated, it stays so."""
        ids = tokenizer.ids(text, gap)
        known = self._entries[reply - 1].ids if self._owner(reply) < reply else None
        if known is None or reply == len(self._turns) or tuple(ids) == known:
            return ids
        forms = (tokenizer.ids(text.rstrip() + space, gap) for space in ("", " ", "\n", "\n\n"))
        return next((form for form in forms if tuple(form) == known), ids)

    # ---- both

    def _whole(self, text: str | None = None) -> Prompt:
        """For templates that hide where the replies are: one text, tokenized at once."""
        rendered = self._template.render(self._turns, self._clock) if text is None else text
        ids = tuple(self._gap_tokenizer([], range(len(self._turns))).ids(rendered, 0))
        if self._known < len(self._entries) and ids[: len(self._past)] == self._past:
            return self._prompt({len(self._entries) - 1: ids[len(self._past) :]}, self._known)
        return self._compared({len(self._entries) - 1: ids})

    def _compared(self, fresh: dict[int, Ids]) -> Prompt:
        prompt = self._prompt(fresh, 0)
        same = next((i for i, (a, b) in enumerate(zip(prompt.ids, self._past, strict=False)) if a != b), None)
        past = min(len(prompt.ids), len(self._past)) if same is None else same
        return Prompt(prompt.ids, prompt.segments, past, "template" if past < len(self._past) else None)

    def _prompt(self, fresh: dict[int, Ids], kept: int) -> Prompt:
        """The ids of the first `kept` entries as they were, and `fresh` ones of others."""
        messages = self._entries[kept - 1].last + 1 if kept else 0
        segments: list[Ids] = [message.ids or () for message in self._messages[:messages]]
        segments += [()] * (len(self._messages) - messages)
        for entry, ids in fresh.items():
            segments[self._entries[entry].last] = ids
        return Prompt(_joined(segments), tuple(segments), sum(map(len, segments[:messages])))

    def _gap_tokenizer(self, replies: Sequence[int], new: Collection[int]) -> GapTokenizer:
        return GapTokenizer(self._template, self._tokenizer, self._turns, self._clock, replies, new)

    def _reply_ids(self, reply: int) -> Ids:
        entry = self._entries[reply]
        return tuple(self._tokenizer.tokenize(entry.turn.text, special=False)) if entry.ids is None else entry.ids

    def _owner(self, reply: int) -> int:
        """The entry that a gap belongs to: what the person said before the reply, or else the reply."""
        return reply - 1 if reply and self._turns[reply - 1].role == "user" else reply

    def _put(self, fresh: dict[int, Ids], reply: int, ids: Sequence[int]) -> None:
        fresh[self._owner(reply)] = tuple(ids)


def _known(entries: Sequence[_Entry]) -> int:
    """So many leading entries have ids: all of them, or those up to some reply."""
    known = next((i for i, entry in enumerate(entries) if entry.ids is None), len(entries))
    while 0 < known < len(entries) and entries[known - 1].turn.role != "assistant":
        known -= 1
    return known


def _joined(parts: Iterable[Ids | None]) -> Ids:
    return tuple(token for part in parts for token in part or ())
