# SPDX-License-Identifier: Apache-2.0
"""A run that `potl serve` serves, as a verifier reads it: docs/format/http.md.

A server is not believed: sizes come first and are compared, an answer has to be of potl's form and
of exactly the bytes that were asked for, redirections are not followed, and nothing takes longer
than it may. What is not so is StorageError, which never rejects a run.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _core
from .._base._errors import MalformedError, MissingError, PotlError, StorageError, UsageError
from . import _source
from ._sealed import (
    ANSWER_HEADER,
    FRAME_BYTES,
    MEDIA_TYPE,
    SEAL_HEADER,
    Opening,
    bound,
    opened_size,
)
from ._source import Sizes, Write

if TYPE_CHECKING:
    import httpx


T = TypeVar("T")

JOB_HEADER = "Potl-Job"
_MAX_LISTING = 32 << 20
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5  # before the second one; twice as long before the next
_BUSY = (429, 502, 503, 504)
# A transfer below this is a stalled one, also of what a server is sent.
LEAST_BYTES_PER_SECOND = 16 << 10


class _AgainError(Exception):
    """What may be different the next time."""


class Http:
    """One server.

    Args:
        url: Where it is.
        token: What it wants to hear.
        key: Only what is encrypted to it counts; None: only what is in the open.
        ca: File of the certificates that vouch for it, instead of the system's.
        timeout: Seconds of `potl.Remote`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        key: _core.OpeningKey | None,
        ca: str | os.PathLike[str] | None,
        timeout: float,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise UsageError(f"reading {url} needs httpx", 'pip install "potl[remote]"') from error
        self._httpx = httpx
        self._timeout = timeout
        self._key = key
        self._base = url.rstrip("/")
        self._job = ""
        self._gone = False  # then one attempt shows whether it is back
        # A loop of its own, because only there a whole answer can have a time limit, and the caller
        # may be within another one.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._client = self._run(self._connect(token, ca))
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Ends the connections."""
        try:
            self._run(self._end())
        finally:
            self._stop()

    def require_job(self, job: str) -> None:
        """From now on only answers about this job count."""
        self._job = job

    def get(self, path: str, *, limit: int) -> bytes:
        """All that a path has. MissingError: nothing."""
        parts: list[bytes] = []
        # What came of an answer that broke is not part of the next one.
        self._run(self._answered(path, parts.clear, parts.append, limit=limit))
        return b"".join(parts)

    def post(self, path: str, body: bytes, *, limit: int) -> bytes:
        """The answer to something that is sent, once."""
        parts: list[bytes] = []
        try:
            self._run(self._once(path, None, parts.append, limit, body=body))
        except (_AgainError, OSError, self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            raise self._odd(path, f"{type(error).__name__} {error}".strip()) from error
        except asyncio.TimeoutError as error:
            raise self._odd(path, "it is too slow") from error
        return b"".join(parts)

    def sizes(self) -> Sizes:
        raw = self.get("/v1/run", limit=_MAX_LISTING)
        try:
            document: Any = _core.parse_json(raw, max_bytes=_MAX_LISTING)
            listed = _listed(document)
        except (PotlError, KeyError, TypeError, ValueError) as error:
            raise MalformedError(f"{self._base} does not list a run: {error}", "") from error
        self._job = self._job or document["job"]
        return listed

    def read(self, name: str, offset: int, size: int, write: Write) -> None:
        at = offset

        def counted(piece: bytes) -> None:
            nonlocal at
            write(piece)
            at += len(piece)

        def left() -> tuple[int, int]:
            return at, offset + size

        try:
            self._run(self._answered(_path_of(name), left, counted, limit=size))
        except MissingError:
            if name == _source.LOG or not self._log_is_there():
                raise StorageError(f"{self._base} has no run any more", "") from None
            raise

    def _log_is_there(self) -> bool:
        try:
            self._run(
                self._answered(_path_of(_source.LOG), lambda: (0, 1), lambda _: None, limit=1)
            )
        except PotlError:
            return False
        return True

    async def _connect(
        self, token: str | None, ca: str | os.PathLike[str] | None
    ) -> httpx.AsyncClient:
        import ssl
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        headers = {"Accept-Encoding": "identity", "User-Agent": f"potl {_core.version()}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            context = ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
        except OSError as error:
            raise UsageError(f"{ca} holds no certificates: {error}", "") from error
        return self._httpx.AsyncClient(
            headers=headers,
            verify=context,
            # None: a server would fill memory with them, and every request to come.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            timeout=self._timeout,
            follow_redirects=False,
            # None is kept: what a server or proxy says too much would be the next answer.
            limits=self._httpx.Limits(max_connections=1, max_keepalive_connections=0),
        )

    async def _end(self) -> None:
        # What an interrupt left would be destroyed with the loop, and said so.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._client.aclose()

    async def _answered(
        self,
        path: str,
        left: Callable[[], tuple[int, int] | None],
        write: Write,
        *,
        limit: int,
    ) -> None:
        """Gives what a path has: all of it, or what is `left` when it is asked again."""
        trouble = remedy = ""
        for attempt in range(1 if self._gone else _ATTEMPTS):
            if attempt:
                await asyncio.sleep(min(_PAUSE_SECONDS * 2 ** (attempt - 1), self._timeout / 2))
            wanted = left()
            if wanted is not None and wanted[0] == wanted[1]:
                break
            try:
                await self._once(path, wanted, write, limit)
                break
            except _AgainError as error:
                trouble, remedy = str(error), ""
            except self._httpx.TransportError as error:
                trouble = f"{type(error).__name__} {error}".strip()
                remedy = self._remedy(error)
            except (asyncio.TimeoutError, TimeoutError):
                self._gone = True
                raise self._odd(path, "it is too slow") from None
            except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
                raise self._odd(path, str(error)) from error
        else:
            self._gone = True
            raise self._odd(path, trouble, remedy)
        self._gone = False

    async def _once(
        self,
        path: str,
        wanted: tuple[int, int] | None,
        write: Write,
        limit: int,
        *,
        body: bytes | None = None,
    ) -> None:
        headers = {} if wanted is None else {"Range": f"bytes={wanted[0]}-{wanted[1] - 1}"}
        asked = headers.get("Range", "")
        method, nonce = "GET" if body is None else "POST", os.urandom(16).hex()
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        if self._key is not None:
            headers[SEAL_HEADER] = f"{self._key.public_key.key_id} {nonce}"
        request = self._client.build_request(
            method, self._base + path, headers=headers, content=body
        )
        seconds = self._timeout + len(body or b"") / LEAST_BYTES_PER_SECOND
        answer = await asyncio.wait_for(self._client.send(request, stream=True), seconds)
        try:
            self._require_potls(answer, path)
            length = answer.headers.get("Content-Length", "")
            size = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else -1
            status, given = answer.status_code, answer.headers.get("Content-Range", "")
            opening = None
            if self._key is not None:
                self._require_sealed(answer)
                said = answer.headers.get(ANSWER_HEADER, "")
                info = bound(method, path, asked, answer.headers[JOB_HEADER], nonce, said)
                try:
                    status, given, size = int(said[:3]), said[4:], opened_size(size)
                except ValueError:
                    raise self._odd(path, "it answers with what nothing is encrypted in") from None
                opening = Opening(self._key, info, size)
                if status not in (200, 206):
                    if size > FRAME_BYTES:
                        raise self._odd(path, "it says too much of why it does not answer")
                    # That it has no such thing, too, has to be an answer to this request.
                    await self._within(answer, path, size, lambda _: None, opening)
            self._require_there(status, path)
            if wanted is not None:
                expected = f"bytes {wanted[0]}-{wanted[1] - 1}/"
                if status != 206 or not given.startswith(expected):
                    raise self._odd(path, "it answers with other bytes than were asked for")
                if size != wanted[1] - wanted[0]:
                    raise self._odd(path, "it announces more or fewer bytes than it should")
            elif status != 200 or not 0 <= size <= limit:
                raise self._odd(path, "it answers with too much, or without saying with how much")
            await self._within(answer, path, size, write, opening)
        finally:
            await answer.aclose()

    async def _within(
        self, answer: httpx.Response, path: str, size: int, write: Write, opening: Opening | None
    ) -> None:
        seconds = self._timeout + size / LEAST_BYTES_PER_SECOND
        await asyncio.wait_for(self._take(answer, path, size, write, opening), seconds)

    async def _take(
        self, answer: httpx.Response, path: str, size: int, write: Write, opening: Opening | None
    ) -> None:
        came = 0
        async for piece in answer.aiter_raw():
            for part in [piece] if opening is None else self._opened(opening, piece, path):
                came += len(part)
                if came > size:
                    raise self._odd(path, "it sends more than it announces")
                write(part)
        if came != size or not (opening is None or opening.ended):
            raise _AgainError("the answer ends too early")

    def _opened(self, opening: Opening, piece: bytes, path: str) -> list[bytes]:
        try:
            return opening.take(piece)
        except PotlError as error:
            raise self._odd(path, f"it is not encrypted for this request: {error}") from error

    def _require_sealed(self, answer: httpx.Response) -> None:
        if answer.headers.get("Content-Type", "") != MEDIA_TYPE or answer.status_code != 200:
            raise StorageError(
                f"{self._base} answers without encrypting to your key",
                "the trainer has to start it with potl serve --for and your public key",
            )

    def _require_potls(self, answer: httpx.Response, path: str) -> None:
        status = answer.status_code
        if status == 401:
            raise UsageError(
                f"{self._base} does not know who is asking (status {status})",
                "pass the token that the trainer gave you: potl.Remote(url, token=...), or "
                "--token-file",
            )
        if status == 403:
            raise UsageError(
                f"{self._base} does not answer you (status {status})",
                "it may encrypt to certain keys alone: give the trainer your public key for potl "
                "serve --for, and pass the secret one: potl.Remote(url, key=...), or --open-with",
            )
        if status == 421:
            raise UsageError(
                f"{self._base} is not answered by that name (status {status})",
                "on the server's own machine ask for localhost or 127.0.0.1; a proxy has to send "
                "that in the Host header, or the server needs a token",
            )
        if 300 <= status < 400:
            raise self._odd(path, f"it sends elsewhere (status {status}), which is not followed")
        if status in _BUSY:
            raise _AgainError(f"status {status}")
        job = answer.headers.get(JOB_HEADER, "")
        if not job or (self._job and job != self._job):
            raise self._odd(
                path,
                f"this is not an answer of potl serve about the run ({status})",
                "see that the address is that of the run, and the job the one that was agreed",
            )
        if "Content-Encoding" in answer.headers:
            raise self._odd(path, "it answers in an encoding that was not asked for")

    def _require_there(self, status: int, path: str) -> None:
        if status in _BUSY:
            raise _AgainError(f"status {status}")
        if status in (404, 410):
            remedy = "pass the address that potl serve printed" if path == "/v1/run" else ""
            raise MissingError(f"{self._base} has no {path}", remedy)
        if status >= 400:
            raise self._odd(path, f"status {status}", "ask who serves it: potl serve says why")

    def _odd(self, path: str, what: str, remedy: str = "") -> StorageError:
        return StorageError(f"{self._base}{path}: {what}", remedy)

    def _remedy(self, error: httpx.TransportError) -> str:
        """What a connection that does not come about asks for."""
        is_tls = self._base.lower().startswith("https:")
        if is_tls and "not valid for" in str(error):
            return "reach it by a name that is in its certificate, or ask for one with this name"
        if is_tls and ("has expired" in str(error) or "not yet valid" in str(error)):
            return "ask who serves it for a certificate that is valid today, and compare clocks"
        if is_tls and "CERTIFICATE" in str(error):
            return "pass the certificates that vouch for the server: --tls-ca, or ca="
        if is_tls and "SSL" in str(error):
            return "if it serves without a certificate, its address begins with http://"
        if isinstance(error, self._httpx.ConnectError):
            return "see that potl serve runs there, and that the address is what it printed"
        if not is_tls and isinstance(error, self._httpx.RemoteProtocolError):
            return "if it serves with a certificate, its address begins with https://"
        return ""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _path_of(name: str) -> str:
    fixed = {_source.LOG: "/v1/log", _source.JOB: "/v1/job", _source.TELEMETRY: "/v1/telemetry"}
    if name in fixed:
        return fixed[name]
    state, branch = _source.state_of(name), _source.rounding_of(name)
    if state is not None:
        return f"/v1/checkpoints/{state[0]}/{state[1]}"
    assert branch is not None, name
    return f"/v1/rounding/{branch}"


# Any: it comes from a server. What is not as it should be raises here, and `sizes` says so.
def _listed(document: Any) -> Sizes:
    if document["format"] != "potl-run-v1":
        raise ValueError('the format is not "potl-run-v1"')
    if len(bytes.fromhex(document["job"])) != 32:
        raise ValueError("a job id has 64 hexadecimal digits")
    found = [
        (name, document[key])
        for name, key in (
            (_source.LOG, "log"),
            (_source.JOB, "job_bytes"),
            (_source.TELEMETRY, "telemetry"),
        )
        if document[key] is not None
    ]
    found += [
        (_core.checkpoint_entry(one["step"], one["branch"]), one["bytes"])
        for one in document["checkpoints"]
    ]
    found += [(_core.rounding_entry(one["branch"]), one["bytes"]) for one in document["rounding"]]
    if not all(type(size) is int and size >= 0 for _, size in found):
        raise ValueError("a size is not a number of bytes")
    listed = _source.known(found)
    if len(listed) != len(found):
        raise ValueError("something is listed twice, or is nothing of a run")
    return listed
