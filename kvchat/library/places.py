"""Where other programs keep their models. Owns these places and what their settings say of them; changes nothing there.

Sources: Ollama `envconfig/config.go`; LM Studio `lms-common-server/src/findLMStudioHome.ts`; Hugging Face
`huggingface_hub/constants.py`; llama.cpp `common/common.cpp` (fs_get_cache_directory), `common/hf-cache.cpp`; GPT4All
`mysettings.cpp`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Owner = Literal["Ollama", "LM Studio", "Hugging Face", "llama.cpp", "GPT4All"]
OWNERS: tuple[Owner, ...] = ("Ollama", "LM Studio", "Hugging Face", "llama.cpp", "GPT4All")

_OLLAMA_SERVICE = ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models", "/var/lib/ollama")
_LARGEST = 1 << 20  # bytes of a settings file


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, and the program that it belongs to. It may not exist."""

    owner: Owner
    folder: Path


def places(environ: Mapping[str, str], home: Path) -> tuple[Place, ...]:
    """The places of all programs that are known here, each folder once, whether or not there is one."""
    cache = _folder(environ, "XDG_CACHE_HOME") or home / ".cache"
    found = (
        *(Place("Ollama", folder) for folder in _ollama(environ, home)),
        *(Place("LM Studio", folder) for folder in _lm_studio(home)),
        Place("Hugging Face", _hugging_face(environ, cache)),
        Place("llama.cpp", _llama_cpp(environ, home, cache)),
        Place("GPT4All", _gpt4all(environ, home)),
    )
    return tuple({place.folder: place for place in reversed(found)}.values())[::-1]


def _folder(environ: Mapping[str, str], variable: str) -> Path | None:
    """What a variable of the environment names."""
    return _absolute(environ.get(variable, ""))


def _absolute(text: object) -> Path | None:
    """The path that a text is; None where it is not absolute, or nothing can have such a name."""
    if not isinstance(text, str) or "\0" in text:
        return None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return None
    return Path(text) if Path(text).is_absolute() else None


def _ollama(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    named = _folder(environ, "OLLAMA_MODELS")
    if named is not None:
        yield named
    else:
        yield home / ".ollama" / "models"
        yield from map(Path, _OLLAMA_SERVICE)


def _lm_studio(home: Path) -> Iterator[Path]:
    pointed = _absolute(_text(home / ".lmstudio-home-pointer").strip())
    for each in (*([pointed] if pointed else []), home / ".lmstudio", home / ".cache" / "lm-studio"):
        try:
            settings = json.loads(_text(each / "settings.json") or "{}")
        except (ValueError, RecursionError):
            settings = {}
        named = _absolute(settings.get("downloadsFolder")) if isinstance(settings, dict) else None
        if named is not None:
            yield named
        yield each / "models"


def _hugging_face(environ: Mapping[str, str], cache: Path) -> Path:
    named = _folder(environ, "HF_HUB_CACHE") or _folder(environ, "HUGGINGFACE_HUB_CACHE")
    home = _folder(environ, "HF_HOME") or cache / "huggingface"
    return named or home / "hub"


def _llama_cpp(environ: Mapping[str, str], home: Path, cache: Path) -> Path:
    usual = home / "Library" / "Caches" if sys.platform == "darwin" else cache
    return _folder(environ, "LLAMA_CACHE") or usual / "llama.cpp"


def _gpt4all(environ: Mapping[str, str], home: Path) -> Path:
    config = _folder(environ, "XDG_CONFIG_HOME") or home / ".config"
    for line in _text(config / "nomic.ai" / "GPT4All.ini").splitlines():
        key, _, value = line.partition("=")
        named = _absolute(value.strip().strip('"'))
        if key.strip() == "modelPath" and named is not None:
            return named
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "nomic.ai" / "GPT4All"
    return (_folder(environ, "XDG_DATA_HOME") or home / ".local" / "share") / "nomic.ai" / "GPT4All"


def _text(file: Path) -> str:
    """A small settings file; "" when there is none."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return stream.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
