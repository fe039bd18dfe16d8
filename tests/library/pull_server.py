"""A web server on this machine that does what a test wants: ranges, redirects, cut connections, wrong answers."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Page:
    """A file of the server. `cuts`: bytes that the next answers send before the connection breaks. `headers` are sent
    too. `location`: it is elsewhere. `status`: answers of that status, so many times, instead. `gate`: the body stops
    in the middle until it is set. `ranges` False: the whole file always. `sized` False: without Content-Length."""

    data: bytes = b""
    etag: str = ""
    cuts: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    location: str = ""
    status: list[int] = field(default_factory=list)
    gate: threading.Event | None = None
    ranges: bool = True
    sized: bool = True


@dataclass
class Asked:
    path: str
    headers: dict[str, str]


class Web:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []
        self.halfway = threading.Event()  # a gated body has stopped in the middle

    def put(self, path: str, data: bytes, **options: object) -> Page:
        page = Page(data, etag=f'"{hashlib.md5(data).hexdigest()}"')
        for name, value in options.items():
            setattr(page, name, value)
        self.pages[path] = page
        return page

    def ranges(self) -> list[str]:
        """What the requests so far asked for."""
        return [asked.headers.get("Range", "") for asked in self.asked]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.web.asked.append(Asked(self.path, {name.title(): value for name, value in self.headers.items()}))
        page = self.web.pages.get(path)
        if page is None:
            self._plain(404)
        elif page.status:
            self._plain(page.status.pop(0), page.headers)
        elif page.location:
            self._plain(302, {"Location": page.location, **page.headers})
        else:
            self._send(page)

    do_HEAD = do_GET

    def _plain(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, page: Page) -> None:
        start, total = 0, len(page.data)
        asked = self.headers.get("Range", "")
        tag = page.etag or page.headers.get("Last-Modified", "")
        same = self.headers.get("If-Range", tag) == tag
        if asked and page.ranges and same:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        if start > total or (start == total and start):
            self._plain(416, {"Content-Range": f"bytes */{total}"})
            return
        self.send_response(206 if start else 200)
        if start and "Content-Range" not in page.headers:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if page.etag:
            self.send_header("ETag", page.etag)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if page.sized:
            self.send_header("Content-Length", str(total - start))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        body = page.data[start:]
        if page.cuts:
            self.wfile.write(body[: page.cuts.pop(0)])
            self.close_connection = True
            return
        if page.gate is not None:
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            self.web.halfway.set()
            page.gate.wait(20)
            body = body[half:]
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Not on the screen."""


@contextmanager
def serving() -> Iterator[Web]:
    """A server while the test runs."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    web = Web(server.server_port)
    handler.web = web  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        for page in web.pages.values():
            if page.gate is not None:
                page.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
