"""The key that a server wants: from the environment or the system's keyring. Owns where it is looked for; must not keep
it, write it down or say it.

The only module that imports keyring, which asks the system, and may make the person unlock it: not for the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvchat.backend.choices import Remote
from kvchat.config_remote import KEY_VARIABLE
from kvchat.errors import KvchatError

_LONGEST = 8192  # characters


def key_of(remote: Remote, environ: Mapping[str, str]) -> str:
    """The key for a server, "" where it has none. KvchatError: it is to have one, and there is none."""
    if remote.keyring:
        return _usable(_kept(remote), f"the keyring's {remote.keyring}")
    if not remote.key_env:
        return ""
    key = environ.get(remote.key_env, "")
    if not key and remote.key_env != KEY_VARIABLE:  # that one may be missing: not every server wants a key
        raise KvchatError(
            f"the variable {remote.key_env} is not set, which holds the key for {remote.name}",
            f"export {remote.key_env}=..., or take key_env out of [remote.{remote.name}]",
        )
    return _usable(key, remote.key_env)


def hidden(text: str, key: str) -> str:
    """A text of the server's without the key, should it repeat it."""
    return text.replace(key, "...") if key else text


def _kept(remote: Remote) -> str:
    hint = f"keep one: python -m keyring set {remote.keyring} {remote.name}"
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise KvchatError("keys of the keyring need keyring", "pip install 'kvchat[remote]'") from error
    try:
        key = keyring.get_password(remote.keyring, remote.name)
    except (KeyringError, OSError) as error:
        raise KvchatError(f"the keyring cannot be asked: {error}", "key_env names a variable instead") from error
    if not key:
        raise KvchatError(f"the keyring has no key of {remote.keyring} for {remote.name}", hint)
    return key


def _usable(key: str, origin: str) -> str:
    """A header holds printable ASCII only; anything else is a mistake, such as a line break at the end."""
    key = key.strip()
    if len(key) > _LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise KvchatError(f"what {origin} holds is no key", "one word of printable characters")
    return key
