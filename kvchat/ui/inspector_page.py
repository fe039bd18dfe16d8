"""The inspector as lines: from what was found out to a page of the screen, and to the text of a report.

Pure. Owns which panel shows what; must not know widgets, files or the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from textual.content import Content

from kvchat.backend.protocol import Ready
from kvchat.conversation.remote_words import place_of
from kvchat.kv.needs import Need
from kvchat.ui.display import display_line
from kvchat.ui.inspector_context import ContextView, context_lines
from kvchat.ui.inspector_layout import Panel, Row, beside, box, pages, widths
from kvchat.ui.inspector_memory import MemoryView, held_line, memory_lines, what_if, window_line
from kvchat.ui.inspector_store import StoreView, store_lines
from kvchat.ui.inspector_turns import CHARTS, TurnRow, chart_lines, drafted, table_lines
from kvchat.ui.key_hints import told
from kvchat.ui.keys import BUILT_IN, Keys
from kvchat.ui.meters import shortened

HEAD_LINES = 2  # the heading and the keys
REPORT_CELLS = 100
READING = "reading"
TITLES: dict[Panel, str] = {"context": "Context", "store": "Kept on disk", "memory": "Memory", "turns": "Turns"}


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the inspector shows. A text in place of a view says why there is none."""

    title: str
    ready: Ready | None
    context: ContextView
    memory: MemoryView | str = READING
    store: StoreView | str = READING
    turns: tuple[TurnRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the person is: the page, the cache types that are looked at, how many turns are scrolled over. Each may be
    beyond what there is."""

    page: int = 0
    types: int | None = None
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be drawn, and how far a Place can go: `pages`, and `hidden` turns below the ones that are seen."""

    lines: tuple[Content, ...]
    pages: int
    hidden: int = 0


def page(findings: Findings, place: Place, width: int, height: int, keys: Keys = BUILT_IN) -> Page:
    """One page, as wide and high as the screen. `keys` are those that are told in its last line."""
    room = max(1, height - HEAD_LINES)
    layout = pages(width, room, _heights(findings, width), drafted=drafted(findings.turns))
    number = place.page % len(layout)
    body = [line for row in layout[number] for line in _drawn(row, findings, place, width)]
    lines = [
        Content.styled(shortened(heading(findings), width), "$primary"),
        *body[:room],
        *[Content("")] * (room - len(body)),
        _keys(findings, place, (number, len(layout)), width, keys),
    ]
    seen = sum(row.height - 3 for row in layout[number] if "turns" in row.panels)
    return Page(tuple(lines[:height]), len(layout), max(0, len(findings.turns) - seen) if seen else 0)


def heading(findings: Findings) -> str:
    """Which model in which configuration."""
    ready = findings.ready
    if ready is None:
        return "KV inspector · no engine is ready"
    cache, model = ready.cache, ready.model
    if ready.remote is not None:
        return f"KV inspector · {display_line(model.name)} · {place_of(ready.remote)}"
    types = cache.type_k if cache.type_k == cache.type_v else f"K {cache.type_k} V {cache.type_v}"
    flash = "on" if cache.flash_attention else "off"
    named = f"{display_line(' + '.join((model.name, *model.adapters)))} · {model.architecture}, {model.attention}"
    return f"KV inspector · {named} · {cache.context:,} cells · {types} · flash attention {flash}"


def report(findings: Findings) -> str:
    """Everything as plain text, all turns too."""
    width = REPORT_CELLS
    parts = [heading(findings), f"chat: {display_line(findings.title)}" if findings.title else "a new chat"]
    for panel in ("context", "memory", "store"):
        lines = _lines(panel, findings, Place(), width, 0)
        parts.append(_paragraph(_words(panel, findings, Place())[0], lines))
    for name, chart in CHARTS.items():
        if name == "drafts" and not drafted(findings.turns):
            continue
        drawn = chart_lines(chart, findings.turns, width - 2, 12)
        parts.append(_paragraph(f"{chart.title}  {chart.below}".rstrip(), drawn))
    table = table_lines(findings.turns, width, len(findings.turns) + 1)
    parts.append(_paragraph(_words("turns", findings, Place())[0], table))
    return "\n\n".join(parts) + "\n"


def _paragraph(title: str, lines: Sequence[Content]) -> str:
    return "\n".join([title, *(f"  {line.plain.rstrip()}" for line in lines)])


def _heights(findings: Findings, width: int) -> dict[Panel, int]:
    known: tuple[Panel, ...] = ("context", "store", "memory")
    return {panel: len(_lines(panel, findings, Place(), width - 4, 0)) for panel in known}


def _drawn(row: Row, findings: Findings, place: Place, width: int) -> list[Content]:
    parts = widths(width, len(row.panels))
    inside = row.height - 2
    boxes = [
        box(*_words(panel, findings, place), _lines(panel, findings, place, cells - 4, inside), cells, row.height)
        for panel, cells in zip(row.panels, parts, strict=True)
    ]
    return beside(boxes)


def _words(panel: Panel, findings: Findings, place: Place) -> tuple[str, str]:
    """What stands in the upper and in the lower edge of a panel."""
    if panel in ("first", "speed", "tokens", "drafts"):
        return CHARTS[panel].title, CHARTS[panel].below
    if panel == "context" and findings.context.parts:
        return f"{TITLES[panel]} · {findings.context.when}", ""
    if panel == "turns" and findings.turns:
        return f"{TITLES[panel]} · {len(findings.turns):,} of this chat, newest first", ""
    if panel == "memory" and not isinstance(findings.memory, str):
        said = what_if(findings.memory, _marked(findings.memory, place))
        return " · ".join(filter(None, (TITLES[panel], said))), ""
    return TITLES[panel], ""


def looked_at(findings: Findings, place: Place) -> Need | None:
    """What other cache types would take than those of now, when the person looks at some."""
    memory = findings.memory
    if isinstance(memory, str) or _marked(memory, place) == memory.now:
        return None
    return memory.choices[_marked(memory, place)]


def _marked(memory: MemoryView, place: Place) -> int:
    return memory.now if place.types is None else place.types % len(memory.choices)


def _lines(panel: Panel, findings: Findings, place: Place, width: int, height: int) -> list[Content]:
    memory, store, turns = findings.memory, findings.store, findings.turns
    match panel:
        case "context":
            return list(_context(findings, width))
        case "memory":
            if isinstance(memory, str):
                return [Content(display_line(memory))]
            return memory_lines(memory, _marked(memory, place), width)
        case "store":
            return [Content(display_line(store))] if isinstance(store, str) else store_lines(store, width)
        case "turns":
            return table_lines(turns, width, height, place.turns)
        case _:
            return chart_lines(CHARTS[panel], turns, width, height)


def _context(findings: Findings, width: int) -> Iterator[Content]:
    view, memory = findings.context, findings.memory
    if isinstance(memory, str):
        yield from context_lines(view, width)
        return
    first = memory.geometry.first_visible(view.used) if memory.geometry.window else None
    yield from context_lines(view, width, first)
    said = [each for each in (held_line(memory, view.used), window_line(memory)) if each]
    joined = " · ".join(said)
    for line in [joined] if said and len(joined) <= width else said:
        yield Content.styled(shortened(line, width), "$meta")


PAGES = "{inspector.next|inspector.previous} "
KEYS = (
    "{inspector.leave} back",
    "{inspector.left}{inspector.right} types",
    "{inspector.settings} settings",
    "{inspector.export} export",
    "{inspector.quality} check quality",
    "{inspector.up}{inspector.down} turns",
)


def _keys(findings: Findings, place: Place, layout: tuple[int, int], width: int, keys_in_force: Keys) -> Content:
    """As many of the keys as fit. `layout` is the number of the page, and how many there are."""
    number, count = layout
    wanted = looked_at(findings, place)
    into = f"{KEYS[2]} with {wanted.types}" if wanted else KEYS[2]
    parts = (*KEYS[:2], into, *KEYS[3:])
    keys = told([f"{PAGES}{number + 1}/{count}", *parts] if count > 1 else parts, keys_in_force)
    while len(keys) > 1 and len("  ".join(keys)) + 2 > width:
        keys.pop()
    return Content.styled(" " + "  ".join(keys), "$meta")
