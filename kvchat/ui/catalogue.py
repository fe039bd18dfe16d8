"""The list of models that can be fetched, and the question before one is. Owns how they look; must not fetch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import set_cell_size
from textual.content import Content

from kvchat.backend.values import EngineConfig
from kvchat.kv.compute import workload
from kvchat.kv.geometry import geometry
from kvchat.kv.needs import Memory, Need, Subject
from kvchat.library.catalog import Offer, offers
from kvchat.library.find import ModelFile
from kvchat.library.pull import Source
from kvchat.library.transport import host_of
from kvchat.ui.display import display_line
from kvchat.ui.listing import Listing
from kvchat.ui.meters import shortened, size_text
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.model_list import FITTING
from kvchat.ui.planning import plan_for

TITLE_CELLS = 23
_CATALOGUE = "catalogue"  # where a model is that has no file yet


@dataclass(frozen=True, slots=True)
class Offered:
    """A model of the catalogue on this machine. `need`: what it takes; `here`: its file is there already."""

    offer: Offer
    need: Need | None
    here: bool


def offered(config: EngineConfig, memory: Memory, models: Sequence[ModelFile]) -> tuple[Offered, ...]:
    """All of the catalogue, planned as `config` would have it. Takes some milliseconds for each."""
    files = {model.path.name for model in models}
    return tuple(Offered(each, _need(each, config, memory), each.file in files) for each in offers())


def _need(found: Offer, config: EngineConfig, memory: Memory) -> Need | None:
    shape = geometry(found.header)
    subject = Subject(found.name, found.header, shape, found.size, workload(found.header, shape))
    facts = ModelFacts(ModelFile(found.name, Path(found.file), found.size, _CATALOGUE), subject)
    plan = plan_for(facts, config, memory)
    return plan.chosen if plan is not None else None


class Catalogue(Listing[Offered]):
    """Type to find, Enter to choose."""

    DEFAULT_CSS = "Catalogue > #box { border-subtitle-color: $meta; }"
    NAME = "Models to fetch"

    def __init__(self, models: Sequence[Offered]) -> None:
        super().__init__()
        self._models = tuple(models)

    def looked_at(self, item: Offered | None) -> None:
        """Say what it is good for."""
        about = Content(display_line(item.offer.about)) if item is not None else None
        self.query_one("#box").border_subtitle = about

    def fill(self, *, keep: bool = True) -> None:
        """List what there is, and say what the first is good for."""
        super().fill(keep=keep)
        self.looked_at(self.marked)

    def found(self, query: str) -> Sequence[Offered]:
        """Those that have all words in their name, title or description."""
        words = query.lower().split()
        return [each for each in self._models if all(word in _searched(each.offer) for word in words)]

    def row(self, item: Offered, width: int) -> Content:
        """Title, size, whether it fits, licence."""
        fits = item.need.fits if item.need is not None else None
        title = set_cell_size(shortened(display_line(item.offer.title), TITLE_CELLS), TITLE_CELLS)
        return Content.assemble(
            title,
            Content.styled(f"{size_text(item.offer.size):>8}  ", "$meta"),
            Content.styled("is here      ", "$success") if item.here else FITTING[fits],
            Content.styled(display_line(item.offer.licence), "$meta"),
        ).truncate(width, ellipsis=True)


def _searched(found: Offer) -> str:
    return f"{found.name} {found.title} {found.about} {found.licence}".lower()


def question(source: Source, folder: Path, about: Offered | None) -> str:
    """What is asked before anything is fetched; `about`: what the catalogue says of it."""
    size = size_text(source.size) if source.size is not None else "of unknown size"
    lines = [f"Fetch {about.offer.title if about else source.name}?"]
    if about is not None:
        lines.append(about.offer.about)
    files = f"{source.files[0][0]}" if len(source.files) == 1 else f"{len(source.files)} files"
    lines += ["", f"{size} from {host_of(source.files[0][1].url)}: {source.folder or source.name}, {files}"]
    lines.append(f"licence: {source.licence}" if source.licence else "licence: its page tells")
    if about is not None and about.need is not None:
        fit = {True: "fits", False: "does not fit", None: "is not known to fit"}[about.need.fits]
        lines.append(f"takes about {size_text(about.need.total_bytes)} of memory, which {fit}")
    lines.append(f"into {display_line(str(folder))}, which has {size_text(_free(folder))} free")
    return "\n".join(lines)


def _free(folder: Path) -> int:
    place = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(place).free
