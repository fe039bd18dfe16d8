"""How the settings look: pages as tabs, rows, what is said below them, hints. Owns layout and drawing.

Must not decide anything: keys, choice and end are in settings_screen, what there is to say in the pages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.ui.display import display
from kvchat.ui.inline_keys import is_there
from kvchat.ui.settings_draft import DRAFT_MODEL
from kvchat.ui.settings_pages import Page
from kvchat.ui.settings_row import FieldRow, Hint
from kvchat.ui.settings_words import EffectKind
from kvchat.ui.typed_line import TypedLine

WIDE = 76  # cells of a screen in which the notes have room beside the fields
TINY = 12  # lines of a screen without room for a border
PAGES = ("engine", "turns", "sampling", "history", "store")
PICKED_FIELDS = ("model", DRAFT_MODEL)  # from lists of their own
EFFECT_STYLES: dict[EffectKind, str] = {"none": "$meta", "change": "$foreground", "warning": "$error"}

Wish = TypeVar("Wish")


class SettingsFrame(ModalScreen[Wish]):
    """The base of the settings screen. `pages` are set before it is shown."""

    DEFAULT_CSS = """
    SettingsFrame {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 84; height: auto; max-height: 100%;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & #pages { height: 1; padding: 0 1; & Hint { margin: 0 1 0 0; } }
        & #body { height: auto; scrollbar-size-vertical: 1; background: $surface; }
        & #detail { height: auto; min-height: 2; margin: 1 0; padding: 0 2; color: $meta; }
        & #meters { height: auto; padding: 0 2; }
        & #effect { height: auto; min-height: 2; margin: 1 0; padding: 0 2; }
        & #hints { height: 1; padding: 0 2; }
        &.-narrow .wide { display: none; }
        &.-tall #body { min-height: 19; }
        &.-short #detail, &.-short #effect { margin: 0; }
        &.-tiny #box { border: none; padding: 0; }
    }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 (Textual declares it for instances)
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-short"), (24, "-tall")]  # noqa: RUF012
    pages: tuple[Page, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = "Settings"
            with Horizontal(id="pages"):
                yield from (Hint("", f"go_to({place})", id=f"page-{name}") for place, name in enumerate(PAGES))
            with VerticalScroll(id="body", can_focus=False):
                for page in self.pages:
                    yield from (FieldRow(field, *labels) for field, labels in page.labels.items())
                yield Static("", id="detail", markup=False)
                yield Static("", id="meters", markup=False)
                yield Static("", id="effect", markup=False)
            with Horizontal(id="hints"):
                yield Hint("{settings.apply} apply", "apply", id="apply")
                yield Hint("{settings.save} save as default", "save", id="save")
                yield Hint("{settings.cancel} cancel", "cancel", id="cancel")
                yield Hint("{settings.left}{settings.right} change", classes="wide")
                yield Hint("{settings.next-page} page", "page(1)", classes="wide")
                yield Hint("{settings.type} type", "type", classes="wide", id="type")

    def on_resize(self, event: events.Resize) -> None:
        """The fields have what border, pages and hints leave; meters are as long as the screen is wide."""
        height = event.size.height
        for body in self.query("#body"):  # none, when the screen was left before it was drawn
            body.styles.max_height = max(1, height - (2 if height < TINY else 4))
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ drawing

    def turn_to(self, place: int) -> None:
        """Show the fields of the page at this place."""
        for row in self.query(FieldRow):
            row.display = row.field in self.pages[place].fields
        for body in self.query("#body"):
            body.scroll_home(animate=False)

    def draw(self, place: int, selected: str, line: TypedLine | None, bad: tuple[str, str] | None) -> None:
        """Draw all of it; cheap, and nothing can be forgotten. `line` is what is being typed in the field `selected`,
        `bad` why it cannot be had, and what could be."""
        if not (is_there(self) and self.query(FieldRow)):  # it was left before it was drawn
            return
        page = self.pages[place]
        for field in page.fields:
            state = page.row(field)
            if field == selected:
                state = replace(state, selected=True, line=line, problem=bad[0] if bad else "")
            self.query_one(f"#field-{field}", FieldRow).say(state)
        for each, name in zip(self.pages, PAGES, strict=True):
            title = f" {each.NAME}{'*' if each.changed else ''} "
            tab = Content.styled(title, "bold reverse") if each is page else Content(title)
            self.query_one(f"#page-{name}", Hint).update(tab)
        detail, meters, effect = (self.query_one(f"#{name}", Static) for name in ("detail", "meters", "effect"))
        detail.update(self._detail(page, selected, bad))
        meters.update(page.meters(meters.content_size.width))
        text, kind = page.effect()
        effect.update(Content.styled(text, EFFECT_STYLES[kind]))
        enter = "take it" if line is not None else "choose" if selected in PICKED_FIELDS else "apply"
        self.query_one("#apply", Hint).say(f"{{settings.apply}} {enter}")
        self.query_one("#cancel", Hint).say(f"{{settings.cancel}} {'leave it' if line is not None else 'cancel'}")
        self.query_one("#type").visible = line is None and page.line(selected) is not None

    def _detail(self, page: Page, field: str, bad: tuple[str, str] | None) -> Content:
        """Why a value cannot be had; else the note of the field where it has no room, and what the page says."""
        if bad is not None:
            return Content.styled(display("\n".join(filter(None, bad))), "$error")
        row = page.row(field)
        note = row.note if self.size.width < WIDE and not row.own else ""
        return Content(display("\n".join(filter(None, (note, page.detail(field))))))
