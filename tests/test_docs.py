"""docs/: pages that are made are what the program says, links lead somewhere, the README leads to each page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import kvchat
from kvchat.config_options import OPTIONS

ROOT = Path(kvchat.__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As they are named where Markdown is shown: small letters, no punctuation, hyphens for spaces."""
    titles = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", ["settings.md", "keys.md"])
def test_made_pages_are_current(name: str) -> None:
    made = runpy.run_path(str(DOCS / "make_reference.py"))["PAGES"][name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "python docs/make_reference.py"


def test_every_setting_has_a_line() -> None:
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| (?:`-|\|)", page, re.MULTILINE) != []
    assert {option.key for option in OPTIONS} <= set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert "://" not in link, link
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_leads_to_every_page() -> None:
    links = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert {f"docs/{page.name}" for page in PAGES} <= links
