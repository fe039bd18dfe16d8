"""One server, by HTTP: which models it serves, and a streamed answer. Owns the connections and what is said when they
fail; must not know turns.

The only module that imports httpx2 (the extra `remote`). Belongs to one event loop. Nothing is sent twice, no redirect
is followed, and what a server says is cut short before it reaches a person.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kvchat
from kvchat.backend.choices import Remote
from kvchat.backend.remote_key import hidden
from kvchat.clean import clean_line
from kvchat.errors import KvchatError

if TYPE_CHECKING:
    import httpx2

_LARGEST_ANSWER = 4 << 20  # bytes of a list of models
_LARGEST_EVENT = 1 << 20  # bytes of one piece of a streamed answer
_LARGEST_ERROR = 64 << 10  # bytes that are read of what a server says of a failure
_LONGEST_WORDS = 200  # characters that are shown of it
_END = "[DONE]"
_LATER = "try again later; what is written is kept"
KEPT = "what had come is kept; it can be asked for again"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: until there is a connection, until a list of models has come, without a byte of an answer. A server may
    read a long prompt, or load a model, before the first one."""

    connect: float = 10.0
    models: float = 20.0
    silence: float = 600.0


USUAL = Patience()


class Refused(KvchatError):
    """The server answered with a status that is no success; `said` is its own reason."""

    def __init__(self, status: int, said: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.said = said


class Wire:
    """Requests to a server, with its key."""

    def __init__(self, remote: Remote, key: str, patience: Patience) -> None:
        """KvchatError without httpx2."""
        try:
            import httpx2
        except ImportError as error:
            raise KvchatError("servers need httpx2", "pip install 'kvchat[remote]'") from error
        self._http = httpx2
        self._remote = remote
        self._key = key
        self._patience = patience
        headers = {"User-Agent": f"kvchat/{kvchat.__version__}", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        timeout = httpx2.Timeout(patience.silence, connect=patience.connect)
        try:  # the environment may name a proxy, which is not for what stays on this machine
            self._client = httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=remote.leaves, auth=_no_auth)
        except (OSError, ValueError) as error:
            hint = "look at SSL_CERT_FILE and HTTPS_PROXY"
            raise KvchatError(f"no connection can be made: {error}", hint) from error

    async def close(self) -> None:
        """Give the connections up."""
        await self._client.aclose()

    async def models(self) -> list[Mapping[str, Any]]:
        """What the server serves, by its own description. KvchatError as `stream`; Refused where it tells nothing."""
        with self._failures():
            timeout = self._http.Timeout(self._patience.models, connect=self._patience.connect)
            async with self._client.stream("GET", f"{self._remote.url}/models", timeout=timeout) as response:
                await self._check(response)
                data = await _bounded(response, _LARGEST_ANSWER)
        found = self._parsed(data.decode(errors="replace")).get("data")
        if not isinstance(found, list):
            raise self._strange("no list of models")
        return [each for each in found if isinstance(each, dict) and isinstance(each.get("id"), str)]

    @asynccontextmanager
    async def stream(self, body: bytes) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        """The events of a streamed answer, up to its end; leaving the context closes the connection, by which servers
        know that nobody listens. KvchatError: no connection, refused, cut off, or not what such a server answers."""
        with self._failures():
            headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
            url = f"{self._remote.url}/chat/completions"
            async with self._client.stream("POST", url, content=body, headers=headers) as response:
                await self._check(response)
                yield self._events(response)

    async def _events(self, response: httpx2.Response) -> AsyncIterator[Mapping[str, Any]]:
        kind = response.headers.get("content-type", "nothing").partition(";")[0].strip()
        if kind.lower() != "text/event-stream":
            raise self._strange(f"{kind} in place of a stream")
        response.encoding = "utf-8-sig"  # as such streams are, whatever the server calls it; a mark may come first
        async for event in self._http.EventSource(response, _LARGEST_EVENT):
            if event.data.strip() == _END:
                return
            if not event.data:  # a sign of life
                continue
            found = self._parsed(event.data)
            if found.get("error"):
                words = self._words(found)
                raise KvchatError(f"{self._remote.host} gave up{': ' if words else ''}{words}", _LATER)
            yield found

    # ------------------------------------------------------------------ failures

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Errors of the library become those that a person reads."""
        http = self._http
        try:
            yield
        except (http.HTTPError, http.StreamError, http.InvalidURL) as error:
            raise self._failed(error) from error

    async def _check(self, response: httpx2.Response) -> None:
        if "," in response.headers.get("content-encoding", ""):  # each layer may unpack to a thousand times its size
            raise self._strange("something that is packed more than once")
        if response.is_success:
            return
        words = ""
        if not response.is_redirect:
            data = (await _bounded(response, _LARGEST_ERROR)).decode(errors="replace")
            try:
                words = self._words(json.loads(data))
            except (ValueError, RecursionError):
                words = "" if data.lstrip().startswith("<") else self._shown(data)
        raise self._refused(response, words)

    def _refused(self, response: httpx2.Response, words: str) -> Refused:
        status, host = response.status_code, self._remote.host
        reason = f": {words}" if words else ""
        message, hint = f"{host} answered {status}{reason}", _LATER
        match status:
            case 401 | 403:
                kind = "does not take the key" if self._key else "wants a key"
                message = f"{host} {kind} ({status}){reason}"
                hint = "key_env or keyring in [remote.NAME] says where it is; with --remote URL it is KVCHAT_REMOTE_KEY"
            case 404:
                message = f"{host} has no such model or address (404){reason}"
                hint = f"the URL is {self._remote.url}; -m NAME names another model, /model goes on with one of here"
            case 429:
                wait = _seconds(response.headers.get("retry-after", ""))
                message = f"{host} is asked too often (429){reason}"
                hint = f"try again in {wait} s" if wait else "try again in a while"
            case _ if 300 <= status < 400:
                target = self._shown(response.headers.get("location", "")) or "nowhere"
                message, hint = f"{host} sends us elsewhere ({status}), to {target}", "if that is right, name that URL"
            case _ if status >= 500:
                message = f"{host} failed ({status}){reason}"
            case _ if "context" in words.lower():
                hint = "a longer context is chosen where the server is started; /new starts another chat"
            case _:
                hint = "the server does not take this request; what is written is kept"
        return Refused(status, words, message, hint)

    def _parsed(self, text: str) -> Mapping[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise self._strange("no valid JSON") from None
        if not isinstance(found, dict):
            raise self._strange("JSON of another form")
        return found

    def _strange(self, what: str) -> KvchatError:
        hint = f"is {self._remote.url} the base of an OpenAI-compatible API?"
        return KvchatError(f"{self._remote.host} answered {self._shown(what)}", hint)

    def strange(self, what: str) -> None:
        """Raises what is said of an answer that has another form."""
        raise self._strange(what)

    def _words(self, found: object) -> str:
        """The reason in an error of a server's, in any of the usual forms."""
        error = found.get("error", found) if isinstance(found, dict) else found
        if isinstance(error, dict):
            error = error.get("message") or error.get("detail") or ""
        return self._shown(error if isinstance(error, str) else json.dumps(error))

    def _shown(self, text: str) -> str:
        words = clean_line(hidden(text, self._key))
        return words if len(words) <= _LONGEST_WORDS else words[: _LONGEST_WORDS - 3] + "..."

    def _failed(self, error: Exception) -> KvchatError:
        http, host = self._http, self._remote.host
        match error:
            case http.ConnectTimeout():
                return KvchatError(f"{host} does not answer", "is the server on, and can it be reached from here?")
            case http.TimeoutException():
                return KvchatError(f"{host} has been silent for too long", KEPT)
            case http.SSEError():
                return self._strange("a stream that is none")
            case http.ConnectError():
                reason = self._shown(str(error))
                return KvchatError(f"{host} cannot be reached: {reason}", "is the server on, and is this its address?")
        reason = self._shown(str(error)) or type(error).__name__
        return KvchatError(f"the connection to {host} broke: {reason}", KEPT)


def _no_auth(request: httpx2.Request) -> httpx2.Request:
    """Names and passwords of a .netrc are not for this."""
    return request


async def _bounded(response: httpx2.Response, most: int) -> bytes:
    """The beginning of a body."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > most:
            break
    return bytes(data[:most])


def _seconds(text: str) -> int | None:
    """The seconds of a Retry-After; None for a date, or nonsense."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
