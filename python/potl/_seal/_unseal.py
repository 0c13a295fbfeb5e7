# SPDX-License-Identifier: Apache-2.0
"""`unseal`: writes the files of a sealed job, and runs nothing of them.

Anybody who has the public key can have made the file. Claims: whatever is in it, nothing is written
outside the target, the target is there only when all of it was opened and was what its list says,
memory holds the list and two frames, and disk as much as the file has, and a bounded number of
files and folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .. import _core
from .._base._durable import new_file, stored
from .._base._errors import MalformedError, PotlError, UsageError
from .._base._progress import Progress, track
from .._job._job import Job
from .._record._inputs import require_file
from .._remote._sealed import read_opening_key
from ._contents import ANOTHER, MAX_LIST, Contents, FileDocument, SealedJob
from ._frames import Plain


def unseal(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str],
    progress: Progress = None,
) -> SealedJob:
    """Opens a sealed job and writes its files. Nothing of it is imported or run.

    Who sealed it is not proven: compare `contents` with the client by another channel, and read
    the code before you record with it.

    Args:
        path: What `potl.seal` wrote.
        target: The folder to make. It must not exist, or be empty. Only its owner can read it.
        key: File of the secret key (`potl keygen --encryption`).
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total),
            in bytes.

    Example:
        >>> order = potl.unseal("job.sealed", "order", key="box.pem")  # doctest: +SKIP

    Raises:
        LimitError: The job in it is longer than a job can be.
        MalformedError: It is not a sealed job, not a whole one, or names what must not be written.
        MismatchError: It was altered after it was sealed.
        StorageError: A file cannot be read or written, or the disk is full.
        UnsupportedError: It is of a later version.
        UsageError: It is sealed for another key, or the target holds something.
    """
    require_file(path, "sealed job")
    secret, out = read_opening_key(key), Path(target)
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not an empty folder", "choose another name")
    parent = out.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", "make it first")
    with stored(), _named(path), Path(path).open("rb") as file:
        plain = Plain(file, secret)
        contents = _contents(plain)
        with _folder(parent) as made, track("opening", plain.left, progress) as advance:
            whole = plain.left
            for name in sorted(contents.files):
                for _ in _written(plain, made / name, contents.files[name]):
                    if advance is not None:
                        advance(whole - plain.left)
            job = Job.of_run(made)
            for folder in {made, *(one for one in made.rglob("*") if one.is_dir())}:
                _core.sync_directory(str(folder))
            made.replace(out)
        _core.sync_directory(str(parent))
    return contents.sealed(out, job)


def _contents(plain: Plain) -> Contents:
    size = int.from_bytes(b"".join(plain.read(8)), "big")
    if size > MAX_LIST:
        raise MalformedError("its list of files is longer than it can be", ANOTHER)
    contents = Contents.parse(b"".join(plain.read(size)))
    if sum(one["size"] for one in contents.files.values()) != plain.left:
        raise MalformedError("its files have other sizes than its list says", ANOTHER)
    return contents


def _written(plain: Plain, path: Path, said: FileDocument) -> Iterator[None]:
    """Writes a file, a piece at a time."""
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path, mode=0o644) as file:
        for piece in plain.read(said["size"]):
            digest.update(piece)
            file.write(piece)
            yield
    if digest.hexdigest() != said["sha256"]:
        raise MalformedError(f"{path.name} is not what its list says", ANOTHER)


@contextlib.contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """A new folder, which is gone if the block raises."""
    made = Path(tempfile.mkdtemp(prefix=".potl-", dir=parent))
    try:
        yield made
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors say which file they are about."""
    try:
        yield
    except PotlError as error:
        raise type(error)(f"{os.fspath(path)}: {error.message}", error.remedy) from error
