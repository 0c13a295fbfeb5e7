# SPDX-License-Identifier: Apache-2.0
"""What a sealed job says of its files before their bytes come: docs/format/sealed_job.md.

A file has a name, a size and a digest, and nothing else can be said of it: no link, no device, no
owner, no mode, nothing that expands. Whoever made the list, it is looked at as a whole before the
first byte is written.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from .. import _core
from .._base._errors import LimitError, MalformedError, UsageError
from .._base._printable import printable

if TYPE_CHECKING:
    from .._job._job import Job

JOB, INITIAL = "job.json", "job.initial.safetensors"
MAX_LIST = 16 << 20
# Python prefers what lies in the one to the source beside it, which a reader looks at; git and
# Mercurial run what the others name, and a shell that shows the branch calls them. A folder with a
# file HEAD may be for git what .git is.
ACTING = frozenset({"__pycache__", ".git", ".hg"})
ANOTHER = "ask the client to seal the job again"

_FEWER = "pack many small files into few large ones, and let the task read those"

_PIECE = 1 << 20
_MAX_NAME, _MAX_PART, _MAX_DEPTH = 1000, 255, 32
# Files and folders: a name may bring 31 folders, each of which takes memory, and room on a disk.
_MAX_PLACES = 1 << 18
# What Python prefers to the source of the same name.
_COMPILED = (".pyc", ".pyd", ".so")
# The log and key of a run: `potl record` would go on with them as if they were the trainer's.
_FOUND_THERE = ("/head", "/transcript.log", "/key.pem")
_INNER = "/__init__.py"
_TASK = re.compile(r"[^\s:-][^\s:]*:[^\s:]+")


class FileDocument(TypedDict):
    """What is said of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SealedJob:
    """What is in a sealed job.

    Attributes:
        path: The sealed file, or the folder that was written of it.
        job: What was agreed.
        task: Names the build function, "module:function".
        arguments: Command line of its module, what follows "--" on potl's.
        files: Names and sizes in bytes.
        contents: SHA-256 over names, sizes and bytes of all files, over `task` and `arguments`;
            hexadecimal.
    """

    path: Path
    job: Job
    task: str
    arguments: tuple[str, ...]
    files: Mapping[str, int]
    contents: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The list.

    Attributes:
        task: Names the build function.
        arguments: Command line of its module.
        files: What is said of each.
    """

    task: str
    arguments: tuple[str, ...]
    files: Mapping[str, FileDocument]

    def text(self) -> bytes:
        """The list as canonical JSON.

        Raises:
            LimitError: It is longer than a reader takes.
        """
        out = _core.canonical_json(
            {"task": self.task, "arguments": self.arguments, "files": self.files}
        )
        if len(out) > MAX_LIST:
            raise LimitError(f"{len(self.files)} files are more than a sealed job can list", _FEWER)
        return out

    @staticmethod
    def parse(text: bytes) -> Contents:
        """Reads what `text` wrote, or somebody else.

        Raises:
            MalformedError: It is no list, or names what must not be written.
        """
        try:
            return _parsed(_core.parse_json(text, max_bytes=MAX_LIST))
        except (AttributeError, KeyError, TypeError, ValueError, UsageError, LimitError) as error:
            raise MalformedError(f"its list of files cannot be used: {error}", ANOTHER) from error

    def sealed(self, path: Path, job: Job) -> SealedJob:
        """The value that users get."""
        return SealedJob(
            path=path,
            job=job,
            task=self.task,
            arguments=self.arguments,
            files={name: self.files[name]["size"] for name in sorted(self.files)},
            contents=hashlib.sha256(self.text()).hexdigest(),
        )


# Any: it comes from a file. What is not as it should be raises here, and `parse` says so.
def _parsed(document: Any) -> Contents:
    if set(document) != {"task", "arguments", "files"}:
        raise ValueError("it has other fields")
    task, arguments, files = document["task"], document["arguments"], document["files"]
    if not isinstance(task, str) or not _TASK.fullmatch(task) or printable(task) != task:
        raise ValueError("a task is named module:function")
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise ValueError("arguments are text")
    for name, one in files.items():
        size, digest = one["size"], one["sha256"]
        if type(size) is not int or size < 0 or set(one) != {"size", "sha256"}:
            raise ValueError(f"{printable(name)} has no size, or more than that")
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"{printable(name)} has no digest")
    require_names(files)
    if JOB not in files:
        raise ValueError(f"there is no {JOB}")
    return Contents(task=task, arguments=tuple(arguments), files=files)


def require_names(names: Collection[str]) -> None:
    """That each name is below a folder, is shown as it is, is a file of its own on any disk, and
    that nobody is led to run what was not read.

    Raises:
        LimitError: They are too many, with their folders.
        UsageError: One is not; the message names it.
    """
    # By the number of its folder and its name as a disk has it that folds case and accents: the
    # number and the name, which ends with a slash for a folder.
    taken: dict[tuple[int, str], tuple[int, str]] = {}
    for name in names:
        parts = name[: _MAX_NAME + 1].split("/")
        if (
            not {"", ".", ".."}.isdisjoint(parts)
            or len(parts) > _MAX_DEPTH
            or len(name) > _MAX_NAME
            or any(len(one.encode("utf-8", "replace")) > _MAX_PART for one in parts)
            or printable(name) != name
            or any(one != one.strip() for one in parts)
        ):
            raise UsageError(
                f'"{printable(name)}" cannot be the name of a packed file',
                "rename it: no invisible characters, and in each part of a path at most 255 bytes "
                "and no space at an end",
            )
        _require_readable(name, parts, names)
        folder = 0
        for depth, part in enumerate(parts, start=1):
            folded = unicodedata.normalize("NFC", part).casefold()
            shown = part + "/" if depth < len(parts) else part
            folder, known = taken.setdefault((folder, folded), (len(taken) + 1, shown))
            if known != shown:
                other = "/".join([*parts[: depth - 1], known])
                raise UsageError(f'"{name}" and "{other}" are one name on some disks', "rename one")
        if len(taken) > _MAX_PLACES:
            raise LimitError("there are more files and folders than a sealed job can have", _FEWER)


def _require_readable(name: str, parts: Sequence[str], names: Collection[str]) -> None:
    folded = f"/{name}".casefold()
    if folded.endswith(_COMPILED):
        raise UsageError(
            f'"{name}" is not packed: who reads the code does not see what it does',
            "pack its source, or install it as a package on both sides",
        )
    if folded.endswith(_FOUND_THERE) or any(one.casefold() in ACTING for one in parts):
        raise UsageError(
            f'"{name}" is not packed: Python, git, hg or potl would act on it where it lies',
            "leave it out, or rename it if the task reads it",
        )
    hidden = name.removesuffix(_INNER) + ".py"
    if name.endswith(_INNER) and hidden in names:
        raise UsageError(f'Python imports "{name}" in the place of "{hidden}"', "rename one")


def described(path: Path) -> FileDocument:
    """What is said of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return {"size": size, "sha256": digest.hexdigest()}
