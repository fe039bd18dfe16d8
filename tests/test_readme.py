"""docs/modules.md tells of every module, and of none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import kvchat

PACKAGE = Path(kvchat.__file__).parent
PAGE = PACKAGE.parent / "docs" / "modules.md"


def listed() -> set[str]:
    """Paths of the modules in the tree of the page, relative to the package."""
    tree = PAGE.read_text(encoding="utf-8").partition("\nkvchat/\n")[2].partition("\nmodels/")[0]
    found, folder = set(), ""
    for line in tree.splitlines():
        match = re.match(r"(?P<indent> +)(?P<name>\S+)", line)
        assert match, line
        if match["name"].endswith("/"):
            folder = match["name"]
        else:
            found.add(match["name"] if len(match["indent"]) == 2 else folder + match["name"])
    return found


def test_a_line_per_module() -> None:
    modules = {file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py")}
    assert listed() == {name for name in modules if not name.endswith(("__init__.py", "__main__.py"))}
