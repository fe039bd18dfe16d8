"""The servers that the settings name, and how one is named: [remote.NAME] tables, --remote.

Owns the reading of both. Must not know keys, or connect to anything. A key has no place in a settings file, nor a
password in a URL: both are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from kvchat.backend.choices import REMOTE, Remote
from kvchat.config_values import BadValue, nearest, nonempty_text, plain_text, shown
from kvchat.errors import UsageError

KEY_VARIABLE = "KVCHAT_REMOTE_KEY"
_FIELDS = ("url", "model", "key_env", "keyring")
_SECRET = re.compile(r"key|token|secret|password|bearer|authorization", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_USUAL_PATH = "/v1"
_ENDPOINTS = ("/chat/completions", "/completions", "/models")


def read_tables(value: object) -> tuple[Remote, ...]:
    """The tables [remote.NAME] of a settings file."""
    if not isinstance(value, Mapping):
        raise BadValue(f"{shown(value)} is no table", "[remote.NAME] with url, model, key_env or keyring")
    return tuple(_table(str(name), table) for name, table in value.items())


def _table(name: str, table: object) -> Remote:
    if not _NAME.fullmatch(name):
        raise BadValue(f"{shown(name)} is no name for a server", "letters, digits, dots and hyphens")
    if not isinstance(table, Mapping):
        raise BadValue(f"{name} is no table", f"[remote.{name}] with url, model, key_env or keyring")
    for field in table:
        if field not in _FIELDS:
            raise _unknown(name, str(field))
    if "url" not in table:
        raise BadValue(f"{name} has no url", f'[remote.{name}] needs url = "https://HOST/v1"')
    variable = plain_text(table.get("key_env", ""))
    if variable and not _VARIABLE.fullmatch(variable):
        raise BadValue(f"{name}.key_env is not the name of a variable", "the key itself has no place in this file")
    model = plain_text(table.get("model", "")).strip()
    return Remote(name, base_url(table["url"]), model, variable, plain_text(table.get("keyring", "")).strip())


def _unknown(name: str, field: str) -> BadValue:
    if _SECRET.search(field):
        hint = 'name the variable that holds it, key_env = "NAME", or a service of the keyring, keyring = "SERVICE"'
        return BadValue(f"{name}.{field}: a key has no place in a settings file", hint)
    guess = nearest(field, _FIELDS)
    return BadValue(
        f"{name} has no setting {shown(field)}",
        f"did you mean {guess}?" if guess else f"there are: {', '.join(_FIELDS)}",
    )


def read_remote(value: object) -> str:
    """The name or the URL of a server."""
    text = nonempty_text(value).strip().removeprefix(REMOTE)
    return base_url(text) if "://" in text else text


def base_url(value: object) -> str:
    """The base of a server's API. One without a path has the usual one."""
    text = nonempty_text(value).strip()
    hint = "it begins with https:// or, on this machine or a network that you trust, http://"
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
        parts = urlsplit("")
    if "@" in parts.netloc:  # told without the text: it holds a password
        raise BadValue("a URL with a name or a password in it is not taken", "a key goes into a variable: key_env")
    if not good or not text.isascii() or any(ord(each) < 33 for each in text):
        raise BadValue(f"{shown(text)} is not the URL of a server", hint)
    if parts.query or parts.fragment:
        raise BadValue("the URL of a server has no ? and no #", f"such as {parts.scheme}://{parts.netloc}/v1")
    path = parts.path.rstrip("/")
    path = next((path.removesuffix(each) for each in _ENDPOINTS if path.endswith(each)), path)
    return f"{parts.scheme}://{parts.netloc.lower()}{path or _USUAL_PATH}"


def remote_named(text: str, remotes: Sequence[Remote], model: str = "") -> Remote:
    """The server with this name among those of the settings, or at this URL; NAME#MODEL is another model of it, as is
    `model`. UsageError: there is none."""
    name, _, own = text.removeprefix(REMOTE).partition("#")
    wanted = model or own
    if "://" in name:
        url = base_url_or_error(name)
        return Remote(urlsplit(url).netloc, url, wanted, key_env=KEY_VARIABLE)
    for remote in remotes:
        if remote.name == name:
            return replace(remote, model=wanted or remote.model)
    known = [remote.name for remote in remotes]
    guess = nearest(name, known)
    hint = f"did you mean {guess}?" if guess else "give its URL, or name it in config.toml: [remote.NAME]"
    raise UsageError(f"there is no server {shown(name)}", hint)


def base_url_or_error(text: str) -> str:
    """As `base_url`, with a UsageError."""
    try:
        return base_url(text)
    except BadValue as bad:
        raise UsageError(bad.problem, bad.hint) from None


def is_named(text: str, remotes: Sequence[Remote]) -> bool:
    """Whether the name of a model means a server: that of one in the settings, or what begins with "remote:"."""
    return text.startswith(REMOTE) or any(remote.name == text for remote in remotes)
