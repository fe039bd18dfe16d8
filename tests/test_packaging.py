"""The wheel: what is in it, that it runs where nothing of this folder is, and that the sources pack into the same.

What it depends on comes from the environment of the tests: nothing is fetched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import kvchat

ROOT = Path(kvchat.__file__).parent.parent


def run(command: Sequence[str | Path], *, cwd: Path, **environ: str) -> str:
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, env=os.environ | environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    """Pack the sources of a folder as "wheel" or "sdist"; the file."""
    run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder], cwd=source)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def test_everything_is_in_it_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if name.startswith("kvchat/")}
    kept = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "kvchat").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package == kept | {"kvchat/library/catalog.toml"}
    about = {name.partition("/")[2] for name in names - package}
    assert about == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
        "data/share/applications/kvchat.desktop",
        "data/share/icons/hicolor/scalable/apps/kvchat.svg",
    }


def test_the_packed_sources_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    packed = build("sdist", ROOT, tmp_path / "packed")
    with tarfile.open(packed) as sources:
        sources.extractall(tmp_path / "sources", filter="data")
    (source,) = (tmp_path / "sources").iterdir()
    again = build("wheel", source, tmp_path / "again")
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())
    assert (source / "docs" / "app.md").is_file(), "pages that the README links to come along"


def test_it_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], cwd=tmp_path)
    own = tmp_path / "venv" / "bin"
    options = ("install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    run([sys.executable, "-m", "pip", "--python", own / "python", *options, wheel], cwd=tmp_path)
    # What others wrote, without the .pth files there, by which kvchat itself is found in this folder.
    site = run([own / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=tmp_path).strip()
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    home = str(tmp_path / "home")

    where = run([own / "python", "-c", "import kvchat; print(kvchat.__file__)"], cwd=tmp_path).strip()
    assert Path(where).is_relative_to(site)
    assert run([own / "kvchat", "--version"], cwd=tmp_path) == f"kvchat {kvchat.__version__}\n"
    found = json.loads(run([own / "kvchat", "doctor", "--json"], cwd=tmp_path, KVCHAT_HOME=home))
    assert found["kvchat"] == kvchat.__version__
    assert found["engine"]["starts"]
    offered = json.loads(run([own / "kvchat", "models", "pull", "--json"], cwd=tmp_path, KVCHAT_HOME=home))
    assert offered
    assert (tmp_path / "venv" / "share" / "applications" / "kvchat.desktop").is_file()
