"""HTTP as pulls need it: one request at a time, redirects followed, and another thread can end it at once.

Owns sockets and what is sent to whom; must not know files. This is the only module that opens connections, besides
`hub`. Proxies are those of the environment (HTTPS_PROXY and the like). A token is sent to the host that it was meant
for, never to one that a redirect leads to.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import kvchat
from kvchat.errors import KvchatError

SECONDS = 30  # without a byte, and then the connection counts as broken
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_FOR_ONE_HOST = "Authorization"
# How a hub describes the file that it sends us elsewhere for (huggingface_hub/constants.py).
_LINKED = {"X-Linked-Etag": "Etag", "X-Linked-Size": "Content-Length"}


class Stopped(Exception):
    """Somebody called `Wire.stop`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response whose body was not read. `linked`: ETag and Content-Length of the whole file as the host said them
    that the request began with."""

    status: int
    headers: Mapping[str, str]
    linked: Mapping[str, str]
    body: http.client.HTTPResponse | HTTPError

    def read(self, size: int) -> bytes:
        """At most `size` bytes, as soon as there are any; none at the end. OSError when the connection breaks."""
        return self.body.read1(size) if isinstance(self.body, http.client.HTTPResponse) else self.body.read(size)


class Wire:
    """Makes requests until it is stopped; then, and from then on, everything raises Stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._opener = urllib.request.OpenerDirector()  # only what is needed: no files, no FTP, redirects as answers
        for handler in (
            urllib.request.ProxyHandler(),
            _Http(self._keep),
            _Https(self._keep),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
        ):
            self._opener.add_handler(handler)

    def stop(self) -> None:
        """End what is going on, from any thread."""
        with self._lock:
            self._stopped.set()
            if self._socket is not None:
                with suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises Stopped after `stop`."""
        if self._stopped.is_set():
            raise Stopped

    def rest(self, seconds: float) -> None:
        """Wait, but not longer than until `stop`."""
        if self._stopped.wait(seconds):
            raise Stopped

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Ask for a URL, following redirects; any status but theirs is an answer. OSError and HTTPException when there
        is no connection, KvchatError when a redirect leads nowhere."""
        linked: dict[str, str] = {}
        sent = {"User-Agent": f"kvchat/{kvchat.__version__}", "Accept-Encoding": "identity", **headers}
        for _ in range(_MOST_REDIRECTS):
            self.check()
            body = self._open(url, sent)
            for name, meant in _LINKED.items():
                if body.headers.get(name):
                    linked.setdefault(meant, str(body.headers[name]))
            target = body.headers.get("Location")
            if body.status not in _REDIRECTS or not target:
                return Answer(body.status or 0, _headers(body), linked, body)
            body.close()
            url, sent = _followed(url, target, sent)
        raise KvchatError(f"{host_of(url)} redirects without an end", "try again later, or another URL")

    def _open(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse | HTTPError:
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 (`split_url` and `_followed` check)
        try:
            response: http.client.HTTPResponse = self._opener.open(request, timeout=SECONDS)
        except HTTPError as answer:
            return answer
        except OSError:
            self.check()
            raise
        return response

    def _keep(self, made: socket.socket) -> None:
        with self._lock:
            self._socket = made
            if self._stopped.is_set():
                made.close()
        self.check()


def _headers(body: http.client.HTTPResponse | HTTPError) -> Mapping[str, str]:
    """By their usual spelling, whatever the server's; of several the first, which is what counts for http.client."""
    return {name.title(): value for name, value in reversed(body.headers.items())}


def split_url(url: str) -> SplitResult:
    """The parts of an http or https URL. KvchatError when it is none."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        known = known and "@" not in parts.netloc  # a password has no place there
    except ValueError:
        known = False
    if not known or any(character.isspace() or ord(character) < 32 for character in url):
        raise KvchatError(f"{url[:200]!r} is not a URL that can be fetched", "it begins with https:// and has a host")
    return parts


def ascii_url(url: str) -> str:
    """The same URL as it is sent: other characters percent-encoded. KvchatError: its host has such."""
    if not split_url(url).netloc.isascii():
        raise KvchatError(f"{url[:200]!r} has a host that cannot be asked for", "write it as xn--...")
    return quote(url, safe="%!#$&'()*+,/:;=?@[]~")


def host_of(url: str) -> str:
    """For a message: with whom we speak."""
    return urlsplit(url).hostname or "the server"


def _followed(url: str, target: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Where a redirect leads and what may be sent there."""
    try:
        target = urljoin(url, target)
    except ValueError:
        raise KvchatError(f"{host_of(url)} redirects to an address that is none", "use another URL") from None
    before, after = split_url(url), split_url(target)
    if (before.scheme, after.scheme) == ("https", "http"):
        raise KvchatError(f"{before.hostname} redirects to an address without encryption", "use another URL")
    target = ascii_url(target)
    same = (before.scheme, before.netloc) == (after.scheme, after.netloc)
    return target, {name: value for name, value in headers.items() if same or name != _FOR_ONE_HOST}


Keep = Callable[[socket.socket], None]


class _KeptHttp(http.client.HTTPConnection):
    """Hands its socket over."""

    keep: Keep

    def connect(self) -> None:
        super().connect()
        self.keep(self.sock)


class _KeptHttps(http.client.HTTPSConnection):
    keep: Keep

    def connect(self) -> None:
        super().connect()
        self.keep(self.sock)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._made, request)

    def _made(self, host: str, **options: Any) -> _KeptHttp:
        connection = _KeptHttp(host, **options)
        connection.keep = self._keep
        return connection


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._made, request)

    def _made(self, host: str, **options: Any) -> _KeptHttps:
        connection = _KeptHttps(host, **options)
        connection.keep = self._keep
        return connection
