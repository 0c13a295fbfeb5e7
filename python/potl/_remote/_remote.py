# SPDX-License-Identifier: Apache-2.0
"""`Remote`: a run elsewhere, and how it is reached."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .. import _core
from .._base._errors import LimitError, UsageError
from .._record._inputs import Recorded, run_directory
from ._mirror import Mirror, new_root, sizes_of

if TYPE_CHECKING:
    from ._http import Http
    from ._source import Source

CACHE_BYTES = 8 << 30
_MOST_FILES = 1 << 20
_MAX_TOKEN = 4096
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")

Fetch: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Remote:
    """A run elsewhere: at a URL that `potl serve` serves (http, https), or on storage that fsspec
    reaches (s3 and others).

    Args:
        url: Where it is.
        token: What the server wants to hear, or as a path the file that holds it.
        key: File of your secret key for encryption (`potl keygen --encryption`), whose public half
            the server has (`potl serve --for`). Answers that are not encrypted to it are refused.
        ca: File of the certificates that vouch for the server, instead of the system's.
        timeout: Seconds without an answer after which a server counts as not reachable; on top of
            it, an answer may take a second for each 16 KiB.
        cache_bytes: Bytes that are held in the folder for temporary files at a time.
        options: For storage: what fsspec's file system takes, such as credentials.

    Example:
        >>> run = potl.Remote("https://trainer.example", token="...")  # doctest: +SKIP
        >>> report = potl.verify(run, job=job, commitment=note, task=build)  # doctest: +SKIP
    """

    url: str
    token: str | os.PathLike[str] | None = field(default=None, kw_only=True, repr=False)
    key: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    ca: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    timeout: float = field(default=30.0, kw_only=True)
    cache_bytes: int = field(default=CACHE_BYTES, kw_only=True)
    options: Mapping[str, object] = field(default_factory=dict, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not is_url(self.url):
            raise UsageError(f'"{self.url}" is not a URL', "write for example https://host:port")
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise UsageError(
                "a URL with a name and a password would stand in the report",
                "pass token=, or for storage options=",
            )
        if not self.timeout > 0 or self.cache_bytes <= 0:
            raise UsageError("timeout and cache_bytes are above 0", "")
        token = self._word
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise UsageError(
                "a token is one word of visible ASCII characters",
                "check the token, or whether its file holds anything else",
            )
        if not self._is_served and token is not None:
            raise UsageError("a token is for http and https", "pass credentials as options")
        if not self._is_served and self.key is not None:
            raise UsageError(
                "a key is for http and https", "storage holds a run as it is: keep others out of it"
            )

    @property
    def _is_served(self) -> bool:
        return self.url.lower().startswith(("http://", "https://"))

    @property
    def _word(self) -> str | None:
        return read_token(self.token) if isinstance(self.token, os.PathLike) else self.token

    def _flags(self) -> list[tuple[str, object]]:
        """What a command line says beside the URL. A token that is no file has no name there."""
        token = object() if isinstance(self.token, str) else self.token
        room = None if self.cache_bytes == CACHE_BYTES else str(self.cache_bytes)
        return [
            ("--token-file", token),
            ("--open-with", self.key),
            ("--tls-ca", self.ca),
            ("--cache-bytes", room),
        ]

    def _served(self) -> Http:
        """Connects to a server. UsageError: it is not a server's URL."""
        if not self._is_served:
            raise UsageError(f"{self.url} is not a server", "write https://host:port")
        from ._http import Http
        from ._sealed import read_opening_key

        key = None if self.key is None else read_opening_key(self.key)
        return Http(self.url, token=self._word, key=key, ca=self.ca, timeout=self.timeout)

    def _source(self, job: _core.Job | None) -> Source:
        """Connects. Of a server, only answers about a run of this job count."""
        if self._is_served:
            server = self._served()
            if job is not None:
                server.require_job(job.id.hex())
            return server
        from ._storage import Storage

        return Storage(self.url, self.options)


AnyRun: TypeAlias = str | os.PathLike[str] | Recorded | Remote


@dataclass(frozen=True)
class Place:
    """Where a verification reads a run.

    Attributes:
        directory: The run directory, or a mirror of one.
        fetch: Brings what of a mirror is read; None for a directory.
        name: What the user calls it.
        remote: Of a mirror: what it mirrors.
    """

    directory: Path
    fetch: Fetch | None
    name: str
    remote: Remote | None = None

    @staticmethod
    def of(directory: Path) -> Place:
        """A directory."""
        return Place(directory, None, str(directory))


def as_remote(run: AnyRun) -> Remote | None:
    """What a user names, if it is elsewhere."""
    if isinstance(run, str) and is_url(run):
        return Remote(run)
    return run if isinstance(run, Remote) else None


@contextlib.contextmanager
def opened(run: AnyRun, job: _core.Job | None) -> Iterator[Place]:
    """The place of a run. A mirror ends with the context.

    Args:
        run: What a user names.
        job: The verifier's own, which says how many files there can be.

    Raises:
        LimitError: There are more.
        UsageError: There is no such directory.
        StorageError: Nobody answers at the URL.
    """
    remote = as_remote(run)
    if remote is None:
        yield Place.of(run_directory(run))  # type: ignore[arg-type]
        return
    with new_root() as root, contextlib.closing(remote._source(job)) as source:
        sizes = source.sizes()
        require_few(remote, sizes, job)
        mirror = Mirror(source, sizes, root=Path(root), room=remote.cache_bytes)
        yield Place(mirror.directory, mirror.fetch, remote.url, remote)


def require_few(remote: Remote, names: Collection[str], job: _core.Job | None) -> None:
    """LimitError: a run has more files than its job can make. Each costs an entry in the verifier's
    own file system, whoever lists it.
    """
    if len(names) > _most_files(job):
        raise LimitError(f"{remote.url} has {len(names)} files, more than its job allows", "")


def _most_files(job: _core.Job | None) -> int:
    if job is None:
        return _MOST_FILES
    superseded = job.fields()["limits"]["max_superseded"]
    return min(_MOST_FILES, 1024 + 2 * (job.steps + superseded))


def again(remote: Remote, directory: Path, job: _core.Job) -> Place:
    """A mirror for a worker process, beside the one of its parent, with which it goes."""
    # One that nothing tried before it is in: a request whose server failed is tried again.
    root = Path(tempfile.mkdtemp(prefix="worker-", dir=directory.parent))
    mirror = Mirror(remote._source(job), sizes_of(directory), root=root, room=remote.cache_bytes)
    mirror.copy_from(directory)
    return Place(mirror.directory, mirror.fetch, remote.url, remote)


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file: its first and only word."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_MAX_TOKEN + 1)
    except FileNotFoundError as error:
        raise UsageError(f"there is no token file {os.fspath(path)}", "check the path") from error
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be read: {error}", "") from error
    return raw.decode("ascii", "replace").strip()  # whoever uses it says whether it is a token


def is_url(text: str) -> bool:
    """Whether a run is named by a URL."""
    return _URL.match(text) is not None
