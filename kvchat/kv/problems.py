"""What can go wrong with the page store. Owns these errors; none of them may end a turn: a cache may always miss."""

from __future__ import annotations

import errno

from kvchat.errors import FormatError, KvchatError

_HINTS = {
    errno.ENOSPC: "free some disk space, or lower --kv-budget",
    errno.EDQUOT: "the disk quota is used up: free some space, or lower --kv-budget",
    errno.EFBIG: "files may not become this large here (ulimit -f)",
    errno.EROFS: "the disk is mounted read-only; KVCHAT_HOME puts everything elsewhere",
    errno.EACCES: "the folder belongs to somebody else; KVCHAT_HOME puts everything elsewhere",
    errno.EPERM: "the folder belongs to somebody else; KVCHAT_HOME puts everything elsewhere",
}


class PageMissing(KvchatError):
    """A page that the index knows has no file any more. A miss."""


class PageDamaged(FormatError):
    """A page file is not what its name says: it has been moved away. A miss."""


class StoreUnwritable(KvchatError):
    """Pages cannot be written: full disk, no permission, budget used up. The turn goes on."""

    @classmethod
    def because(cls, error: OSError) -> StoreUnwritable:
        hint = _HINTS.get(error.errno or 0, "chats are saved all the same; KV is computed again")
        return cls(f"KV is not saved: {error.strerror or error}", hint)
