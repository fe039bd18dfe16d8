"""Servers among the models: a row in the list, what the settings say in place of fields. Owns those words; pure.

Names come from the settings: cleaned, and never markup.
"""

from __future__ import annotations

from pathlib import Path

from rich.cells import set_cell_size
from textual.content import Content

from kvchat.backend.choices import Remote
from kvchat.conversation.remote_words import place_of
from kvchat.library.find import ModelFile
from kvchat.ui.display import display_line
from kvchat.ui.meters import shortened
from kvchat.ui.model_facts import ModelFacts

ON_SERVER = "on the server"
CHOSEN_THERE = (
    "Cache, context and threads are chosen where the server is started; what it keeps of a chat is its affair."
)
_SOURCE = "server"


def facts_of(remote: Remote) -> ModelFacts:
    """A server as if it were a model whose header was read."""
    return ModelFacts(ModelFile(remote.name, Path(remote.reference), 0, _SOURCE), None, CHOSEN_THERE, remote)


def remote_line(remote: Remote, name_cells: int) -> Content:
    """Its row in a list of models."""
    name = set_cell_size(shortened(display_line(remote.name), name_cells), name_cells)
    model = f" · {display_line(remote.model)}" if remote.model else ""
    return Content.assemble(name, Content.styled(f"  {place_of(remote)}{model}", _style(remote)))


def remote_lines(remote: Remote) -> Content:
    """What is said of it where other models have their plan."""
    model = display_line(remote.model) or "the model that it serves"
    return Content("\n").join([Content.styled(place_of(remote), _style(remote)), Content(f"{model}; {remote.url}")])


def effect_of(remote: Remote) -> str:
    """What going over to it means."""
    reads = "All of a chat that you go on with is sent there and read anew." if remote.leaves else ""
    return " ".join(filter(None, (f"From the next message on {place_of(remote)}.", reads, "What is kept here stays.")))


def _style(remote: Remote) -> str:
    return "$warning" if remote.leaves else "$meta"
