# SPDX-License-Identifier: Apache-2.0
"""The secret key of an extra task on disk, and beside it what is known about its use.

NAME holds 32 bytes as hexadecimal digits and is readable by its owner alone. NAME.json holds no
secret: the form of the data, the options, when the key was used, and hashes of the answers that
were handed in. It is replaced as a whole, so that a crash leaves the old or the new one, and
carries a code under the key, so that nobody else changes it unseen. That somebody puts an older one
back, or removes it, is not seen.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from .._base._durable import replace_private, write_new
from .._base._errors import MalformedError, StorageError, UsageError

_FORMAT = "potl-extra-task-v1"
_MAX_BYTES = 256 << 20


class Use(TypedDict):
    """When samples were made with a key: "mix" or "make", in seconds since 1970."""

    what: str
    time: float


class Submission(TypedDict, total=False):
    """A hash of the answers, the digest of the model if it has one, and its answers if they are not
    too many.
    """

    answers: str
    model: str | None
    values: str


class ItemsDocument(TypedDict):
    """The fields of `Items`; older files lack `values`."""

    container: str
    input_key: str | int | None
    label_key: str | int | None
    label: str
    dtype: str
    names: Sequence[str]
    masks: Sequence[Sequence[object]]
    values: Sequence[int]


class FormDocument(TypedDict):
    """A `Form` as JSON values; older files lack `absent`."""

    items: ItemsDocument
    content: Mapping[str, object]
    classes: int
    objective: str
    pairs: bool
    absent: Sequence[int]


class Task(TypedDict):
    """The samples that were made last, as a `Design` keeps them. `form` is JSON of a `Form`."""

    form: FormDocument
    training_samples: int
    through_pillow: bool
    options: Mapping[str, object]
    samples: int


class _Known(TypedDict):
    format: str
    key: str
    uses: list[Use]
    submissions: list[Submission]


class Known(_Known, total=False):
    """What the file beside a key holds; `task` where samples were made."""

    task: Task


class ExtraKey(os.PathLike[str]):
    """A key file. The secret is not part of its `repr`, and pickling it is refused.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._secret = _read(self.path)

    @staticmethod
    def generate(path: str | os.PathLike[str]) -> ExtraKey:
        """A new key.

        Raises:
            UsageError: The file, or the one beside it, exists.
            StorageError: It cannot be written there.
        """
        target = Path(path)
        for existing in (target, _beside(target)):
            if existing.exists():
                raise UsageError(f"{existing} exists and is not replaced", "choose another name")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_new(target, secrets.token_bytes(32).hex() + "\n")
        except OSError as error:
            raise StorageError(
                f"the key {target} cannot be written: {error.strerror or error}",
                "choose a file in a folder of yours",
            ) from error
        return ExtraKey(target)

    @property
    def id(self) -> str:
        """Names the key without revealing it."""
        return hashlib.sha256(b"potl extra task key id\0" + self._secret).hexdigest()[:16]

    def _seed(self, purpose: str) -> int:
        """A secret number for one purpose, such as the order of questions."""
        drawn = hmac.digest(self._secret, b"potl extra task " + purpose.encode(), "sha256")
        return int.from_bytes(drawn, "big")

    def _known(self) -> Known:
        """What the file beside the key holds; empty lists if there is none.

        Raises:
            MalformedError: It is damaged, or belongs to another key.
        """
        path = _beside(self.path)
        empty: Known = {"format": _FORMAT, "key": self.id, "uses": [], "submissions": []}
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise MalformedError(f"{path} is far too long", "restore it from a backup")
            text = path.read_text(encoding="utf-8")
            document = json.loads(text)
        except FileNotFoundError:
            return empty
        except (ValueError, RecursionError) as error:
            raise MalformedError(f"{path} is damaged: {error}", "restore it") from error
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise MalformedError(f"{path} is not what was written beside a key", "restore it")
        if document.get("key") != self.id:
            raise MalformedError(
                f"{path} belongs to another key than {self.path}", "keep both files together"
            )
        code = str(document.pop("code", ""))
        if not any(
            hmac.compare_digest(code.encode(), self._code(one).encode())
            for one in _under_code(text, code, document)
        ):
            raise MalformedError(
                f"{path} was changed by somebody who does not have the key",
                "restore it from a backup",
            )
        return cast(Known, {**empty, **document})

    def _code(self, text: str) -> str:
        return hmac.digest(self._secret, b"potl extra task file\0" + text.encode(), "sha256").hex()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Known]:
        """`known`, locked; what the block changes is written durably when it ends.

        Raises:
            StorageError: It cannot be written: then a submission would not be counted.
        """
        path = _beside(self.path)
        try:
            lock = path.with_name(path.name + ".lock").open("w")
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}", "make it writable") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            document = self._known()
            before = copy.deepcopy((document["uses"], document["submissions"]))
            task = document.get("task")
            yield document
            grown = (document["uses"], document["submissions"]) != before
            if grown or document.get("task") is not task:
                text = _plain(document)
                _write(path, text[:-1] + _ending(self._code(text)))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __repr__(self) -> str:
        return f"ExtraKey({os.fspath(self.path)!r})"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is not pickled: pass the name of its file")


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(67)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no key {path}",
            f"check the path; potl extra-task keygen {os.fspath(path)} makes one",
        ) from error
    except OSError as error:
        raise UsageError(
            f"the key {path} cannot be read: {error.strerror or error}",
            "name the file that keygen wrote",
        ) from error
    text = raw.decode("ascii", "replace").strip()
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise MalformedError(f"{path} is not an extra task key", "a key is 64 hexadecimal digits")
    return bytes.fromhex(text)


def _plain(document: Mapping[str, object]) -> str:
    return json.dumps(document, sort_keys=True)


def _ending(code: str) -> str:
    return f', "code": "{code}"}}'


def _under_code(text: str, code: str, document: Mapping[str, object]) -> Iterator[str]:
    """What the code may be of: the file as it was written, or the same values set otherwise."""
    ending = _ending(code) + "\n"
    if text.endswith(ending):
        yield text[: -len(ending)] + "}"
    yield _plain(document)


def _write(path: Path, text: str) -> None:
    try:
        replace_private(path, text + "\n")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error}", "make room or permit it"
        ) from error
