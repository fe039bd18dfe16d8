"""`kvchat kv transcode CHAIN --to TYPE`: saved KV in another cache type, beside the one that there is.

Owns what is asked and printed; the work is done by a process of its own, since llama.cpp is not loaded here.
"""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TextIO

from kvchat.backend.errands import transcode
from kvchat.backend.protocol import Transcode, Transcoded
from kvchat.commands.table import size_text
from kvchat.config import Settings
from kvchat.config_options import nearest
from kvchat.errors import KvchatError, UsageError
from kvchat.formats.gguf import fingerprint, model_name, read_header
from kvchat.kv.namespace import Namespace
from kvchat.kv.overview import SHORT_KEY, chain_pages
from kvchat.kv.transcode import TYPES
from kvchat.library.find import drop_in_folders, find_models
from kvchat.paths import Paths


def run_transcode(
    chain: str,
    settings: Settings,
    paths: Paths,
    *,
    type_k: str | None,
    type_v: str | None,
    json: bool,
    out: TextIO,
) -> int:
    """Write the chain, and what comes before it, once more with these types of K and V; None: as it is. Exit code 0.
    UsageError for a type that there is not; KvchatError when it cannot be done."""
    found = chain_pages(paths.kv_folder, chain)
    namespace = found.namespace
    if namespace is None:
        raise KvchatError("nothing says of what model this chain is", "its namespace.json is missing or damaged")
    wanted = _type(type_k or namespace.type_k), _type(type_v or namespace.type_v)
    if wanted == (namespace.type_k, namespace.type_v):
        raise UsageError(f"this chain is {_types(*wanted)} already", f"other types: {', '.join(TYPES)}")
    done = transcode(
        Transcode(
            kv_folder=str(paths.kv_folder),
            kv_budget=settings.kv_budget,
            namespace=namespace.id,
            last=found.pages[-1].key,
            model_path=str(_model(namespace, settings, paths)),
            type_k=wanted[0],
            type_v=wanted[1],
        ),
        paths.log_file,
    )
    print(jsonlib.dumps([_fields(done, *wanted)], indent=2) if json else _sentence(done, *wanted), file=out)
    return 0


def _type(name: str) -> str:
    if name in TYPES:
        return name
    guess = nearest(name, TYPES)
    hint = (f"did you mean {guess}? " if guess else "") + f"there are: {', '.join(TYPES)}"
    raise UsageError(f"{name!r} is not a cache type that pages can have", hint)


def _model(namespace: Namespace, settings: Settings, paths: Paths) -> Path:
    """The file of the chain's model, whose heads say how rows are rotated."""
    models = find_models(paths, drop_in_folders(settings.model_folders))
    for model in sorted(models, key=lambda each: namespace.model not in (each.path.stem, model_name(each.path))):
        try:
            if fingerprint(model.path, read_header(model.path)) == namespace.fingerprint:
                return model.path
        except (KvchatError, OSError):
            continue
    raise KvchatError(
        f"the model of this chain, {namespace.model}, is not on this machine",
        "`kvchat models ls` lists those that are; its heads say how KV is stored",
    )


def _types(type_k: str, type_v: str) -> str:
    return type_k if type_k == type_v else f"{type_k}/{type_v}"


def _fields(done: Transcoded, type_k: str, type_v: str) -> dict[str, object]:
    return {
        "page": done.last.hex(),
        "type_k": type_k,
        "type_v": type_v,
        "tokens": done.tokens,
        "pages": done.pages,
        "written": done.written,
        "bytes": done.written_bytes,
    }


def _sentence(done: Transcoded, type_k: str, type_v: str) -> str:
    types = _types(type_k, type_v)
    if not done.written:
        return f"all {done.tokens:,} tokens are there as {types} already"
    return (
        f"{done.tokens:,} tokens as {types}: {done.written} of {done.pages} pages are new, "
        f"{size_text(done.written_bytes)}; the last one is {done.last.hex()[:SHORT_KEY]}"
    )
