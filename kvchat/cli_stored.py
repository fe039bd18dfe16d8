"""Arguments -> the commands about what is on disk: chats, models, KV. Owns what each takes of the command line.

Must not do any command's work, or say how it failed. What a command needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys

from kvchat.config import load_settings
from kvchat.errors import UsageError
from kvchat.paths import Paths


def chats(given: argparse.Namespace) -> int:
    """`kvchat chats ...`; the exit code."""
    if given.action in {"export", "import"}:
        return _transfer(given)
    if given.action == "empty-trash" or hasattr(given, "purge"):
        return _purge(given)
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    from kvchat.commands import chats as commands

    if given.action == "rm" and hasattr(given, "yes"):
        raise UsageError("chats rm asks nothing without --purge", "leave out --yes, or add --purge")
    match given.action:
        case "ls":
            return commands.run_ls(paths, json=json, out=out, trash=hasattr(given, "trash"))
        case "search":
            return commands.run_search(paths, given.query, json=json, out=out)
        case "rename":
            return commands.run_rename(paths, given.name, given.title, json=json, out=out)
    one = {
        "rm": commands.run_rm,
        "restore": commands.run_restore,
        "pin": commands.run_pin,
        "unpin": commands.run_unpin,
        "show": commands.run_show,
    }
    return one[given.action](paths, given.name, json=json, out=out)


def _purge(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    from kvchat.commands.chats_purge import run_empty_trash, run_purge

    yes, json = hasattr(given, "yes"), hasattr(given, "json")
    if given.action == "empty-trash":
        return run_empty_trash(paths, yes=yes, json=json, out=sys.stdout, err=sys.stderr, stdin=sys.stdin)
    return run_purge(paths, given.name, yes=yes, json=json, out=sys.stdout, err=sys.stderr, stdin=sys.stdin)


def models(given: argparse.Namespace) -> int:
    """`kvchat models ...`; the exit code."""
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    settings = load_settings(paths, os.environ, vars(given))
    if given.action == "pull":
        from kvchat.commands.pull import run_pull

        sha256 = getattr(given, "sha256", None)
        return run_pull(
            settings, paths, getattr(given, "name", None), sha256=sha256, json=json, out=out, err=sys.stderr
        )
    if given.action in {"scan", "rm"}:
        from kvchat.commands import models_files

        if given.action == "scan":
            return models_files.run_scan(settings, paths, getattr(given, "folders", ()), json=json, out=out)
        yes, err = hasattr(given, "yes"), sys.stderr
        return models_files.run_rm(settings, paths, given.name, yes=yes, json=json, out=out, err=err, stdin=sys.stdin)
    if given.action == "ls":
        from kvchat.commands.models import run_ls

        return run_ls(paths, json=json, out=out, folders=settings.model_folders)
    from kvchat.commands.models_show import run_show

    return run_show(paths, given.name, json=json, out=out, folders=settings.model_folders)


def _transfer(given: argparse.Namespace) -> int:
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    from kvchat.commands.transfer import run_export, run_import

    if given.action == "import":
        return run_import(paths, given.files, json=json, out=out)
    return run_export(
        paths,
        getattr(given, "name", None),
        everything=hasattr(given, "everything"),
        form=getattr(given, "form", None),
        target=getattr(given, "output", None),
        json=json,
        out=out,
    )


def kv(given: argparse.Namespace) -> int:
    """`kvchat kv ...`; the exit code."""
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    if given.action == "pin":
        return _pin(given, paths)
    if given.action == "transcode":
        return _transcode(given, paths)
    from kvchat.commands import kv as commands
    from kvchat.commands import prefixes

    if given.action == "unpin":
        return prefixes.run_unpin(paths, given.name, json=json, out=out)
    if given.action == "gc":
        return commands.run_gc(paths, load_settings(paths, os.environ, vars(given)), json=json, out=out)
    if given.action in ("ls", "verify"):
        run = commands.run_ls if given.action == "ls" else commands.run_verify
        return run(paths, json=json, out=out)
    return commands.run_show(paths, given.name, json=json, out=out)


def _pin(given: argparse.Namespace, paths: Paths) -> int:
    names = [getattr(given, name) for name in ("name", "prefix_name") if hasattr(given, name)]
    if len(names) != 1:
        raise UsageError("which prefix?" if not names else "two names for one prefix", "kvchat kv pin --name NAME")
    from kvchat.commands.prefixes_pin import Wanted, run_pin

    wanted = Wanted(names[0], getattr(given, "files", ()), getattr(given, "system", None), hasattr(given, "replace"))
    settings = load_settings(paths, os.environ, vars(given))
    json = hasattr(given, "json")
    return run_pin(wanted, settings, paths, json=json, out=sys.stdout, err=sys.stderr, stdin=sys.stdin)


def _transcode(given: argparse.Namespace, paths: Paths) -> int:
    both = getattr(given, "to", None)
    type_k, type_v = getattr(given, "to_k", both), getattr(given, "to_v", both)
    if type_k is None and type_v is None:
        raise UsageError("into which cache type?", "--to q8_0, or --k TYPE and --v TYPE")
    from kvchat.commands.kv_transcode import run_transcode

    return run_transcode(
        given.name,
        load_settings(paths, os.environ, vars(given)),
        paths,
        type_k=type_k,
        type_v=type_v,
        json=hasattr(given, "json"),
        out=sys.stdout,
    )
