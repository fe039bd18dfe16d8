"""docs/: pages that are made are what the program says, links lead somewhere, the README leads to each page."""

from __future__ import annotations

import re
import runpy
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import kvchat
from kvchat.arguments import parse, whole_parser
from kvchat.config_options import OPTIONS
from kvchat.errors import UsageError

ROOT = Path(kvchat.__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]+\]\((assets/[^)]+)\)")
SVG = "{http://www.w3.org/2000/svg}"
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


def commands_in(text: str) -> Iterator[str]:
    """What a page shows as a kvchat command: in blocks, and in a line between backticks. Parts that can be left out,
    in square brackets, are, and comments; several may stand in a line of a block, with two blanks between them."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = [part for block in blocks for line in block.splitlines() for part in re.split(r"  +", line.split(" #")[0])]
    shown += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for line in shown:
        command = re.sub(r" ?\[[^\]]*\](\.\.\.)?", "", line).split("| ")[-1].strip()
        if re.match(r"(\.venv/bin/)?kvchat( |$)", command) and ">" not in command:
            yield command


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_shown_commands_are_understood(page: Path) -> None:
    for command in commands_in(page.read_text(encoding="utf-8")):
        try:
            parse(shlex.split(command)[1:])
        except UsageError as error:  # its bare name
            assert error.message.startswith("the following arguments are required"), f"{command}: {error.message}"


def with_subcommands(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:
        for inner in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from with_subcommands(inner)


def test_help_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parsers = list(with_subcommands(whole_parser()))
    assert len(parsers) > 20
    for parser in parsers:
        assert max(map(len, parser.format_help().splitlines())) <= 80, parser.prog


def test_there_are_commands_to_be_understood() -> None:
    found = list(commands_in((DOCS / "commands.md").read_text(encoding="utf-8")))
    assert 'kvchat ask "Review this change."' in found
    assert "kvchat chats export CHAT" in found
    assert {"chats", "models", "kv", "plan", "bench", "paths", "doctor", "completions"} <= {
        command.split()[1] for command in found
    }


@pytest.mark.parametrize("picture", sorted((ROOT / "assets").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_fetch_and_run_nothing(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == f"{SVG}svg"
    assert not re.search(r"<script|<image|<foreignObject|@import|url\((?!#)|href=\"(?!#)", text)
    assert picture.stat().st_size <= 300_000


def test_every_picture_is_shown() -> None:
    shown = {Path(path).name for path in PICTURE.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert shown == {path.name for path in (ROOT / "assets").glob("*.svg")} - {"kvchat.svg"}


def test_the_demo_moves_for_those_who_want_it_to() -> None:
    """Its last screen stands where nothing may move; it is that of a chat which came back from disk."""
    tree = ElementTree.fromstring((ROOT / "assets" / "demo.svg").read_text(encoding="utf-8"))
    style = tree.findtext(f"{SVG}style") or ""
    assert "@media (prefers-reduced-motion:reduce){use{animation:none!important}}" in style
    rows = {row.get("id"): "".join(row.itertext()) for row in tree.iter(f"{SVG}g") if row.get("id")}
    uses = list(tree.iter(f"{SVG}use"))
    assert {use.get("class", "").split()[0] for use in uses} == set(re.findall(r"@keyframes (\w+)\{", style))
    stays = [rows[use.get("href", "")[1:]] for use in uses if use.get("class", "").endswith(" z")]
    assert any("tok/s" in row for row in stays)
    assert any("tokens back from pages" in row for row in rows.values())
