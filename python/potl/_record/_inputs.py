# SPDX-License-Identifier: Apache-2.0
"""What users pass - objects, text or paths - as the values that the drivers work with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from .. import _core
from .._base._errors import MalformedError, UsageError
from .._job._job import Job

_MADE_BY = {
    "job": "check the path; potl job create makes one",
    "commitment": "check the path; the trainer's potl commit prints one",
    "model": "check the path; the trainer's potl export writes one",
}


class Recorded(Protocol):
    """A `potl.Run`, as far as its directory goes."""

    @property
    def path(self) -> Path:
        """Where it lies."""


def run_directory(run: str | os.PathLike[str] | Recorded) -> Path:
    """The directory of a run, which must exist.

    Raises:
        UsageError: There is no such directory, it holds no run, or this is no run.
    """
    given = getattr(run, "path", run)
    if not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"a run is a directory or what record() returned, not {type(run).__name__}",
            "name the run first, and the task as task=",
        )
    path = Path(given)
    if not path.is_dir():
        raise UsageError(
            f"there is no run directory {path}",
            "check the path, and that potl record has begun to write there; the address of a "
            "server begins with http:// or https://",
        )
    try:
        os.lstat(path / _core.LOG_NAME)
    except FileNotFoundError:
        raise UsageError(
            f"{path} holds no run: there is no {_core.LOG_NAME}",
            "name the folder that potl record wrote",
        ) from None
    except OSError:
        pass  # whoever reads it says why it cannot
    return path


def as_job(job: Job | str | os.PathLike[str]) -> Job:
    """A `potl.Job` as it is, or the one in a file."""
    if not isinstance(job, (str, os.PathLike)):
        return job
    require_file(job, "job")
    return Job.read(job)


def as_own_job(job: Job | str | os.PathLike[str], run: object) -> Job:
    """The same for who judges a run: a file in its directory says what the trainer likes.

    Raises:
        UsageError: The file lies in the run directory.
    """
    folder = getattr(run, "path", run)
    if (
        isinstance(job, (str, os.PathLike))
        and isinstance(folder, (str, os.PathLike))
        and Path(folder).is_dir()  # if it is none, whoever opens the run says so
        # The folder of the name, too: a link there leads where the trainer likes.
        and any(
            Path(os.path.realpath(one)).is_relative_to(os.path.realpath(folder))
            for one in (job, Path(job).parent)
        )
    ):
        raise UsageError(
            f"{os.fspath(job)} lies in the run directory, which the trainer wrote",
            "pass your own copy: the file that you gave to the trainer",
        )
    return as_job(job)


def as_note(commitment: object) -> str:
    """The text of a commitment: of a `potl.Commitment`, of a file, or the text itself (which has
    line ends, a path has none).
    """
    if isinstance(commitment, str) and "\n" in commitment:
        return commitment
    if isinstance(commitment, (str, os.PathLike)):
        require_file(commitment, "commitment")
        text = read_note(commitment)
        try:
            _core.SignedNote.parse(text)
        except MalformedError as error:
            raise MalformedError(
                f"{os.fspath(commitment)}: {error.message}", "pass what potl commit printed"
            ) from error
        return text
    return str(commitment)


def as_notes(given: Iterable[object], name: str) -> list[str]:
    """The texts of several notes, each as `as_note` takes it.

    Args:
        given: The notes.
        name: Of the argument that they are passed as.
    """
    if isinstance(given, (str, os.PathLike)) or not isinstance(given, Iterable):
        raise UsageError(f"{name}= takes several notes", f"pass {name}=[note]")
    return [as_note(one) for one in given]


def read_note(path: str | os.PathLike[str]) -> str:
    """The text of a note.

    Raises:
        MalformedError: It is not text.
        LimitError: It is far longer than a note.
    """
    raw = _core.read_file(os.fspath(path), max_bytes=_core.MAX_NOTE_BYTES)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError(
            f"{os.fspath(path)} is not a signed note: not UTF-8",
            "pass what potl commit printed",
        ) from error


def require_file(path: str | os.PathLike[str], what: str) -> None:
    """Raises UsageError where there is no file of that name."""
    if not Path(path).is_file():
        raise UsageError(
            f"there is no {what} file {os.fspath(path)}",
            _MADE_BY.get(what, "check the path"),
        )
