# SPDX-License-Identifier: Apache-2.0
"""`seal`: packs a job with its code and data, tries whether that is enough, and encrypts it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .. import _core
from .._base import _arguments
from .._base._durable import new_file, stored
from .._base._errors import UsageError
from .._base._executors import load_task, require_own_call
from .._base._progress import Phases, phases
from .._record._inputs import as_job
from .._remote._sealed import FRAME_BYTES, Enclosing, read_sealing_key
from ._contents import INITIAL, JOB, Contents, SealedJob, described
from ._frames import head_of
from ._packing import sources
from ._trial import require_enough

if TYPE_CHECKING:
    from .._job._job import Job


def seal(
    task: str,
    job: Job | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    reader: str | os.PathLike[str],
    files: Iterable[str | os.PathLike[str]] = (),
    progress: Phases = None,
) -> SealedJob:
    """Puts a job, the code of its task and other files into one file that one reader can open.

    Before anything is written, the packed files are tried: a new process that has nothing else
    builds the task, and compares its code, its data and its first state with the job.

    Args:
        task: Names the build function, "module:function". The modules that hold its code are
            packed.
        job: What was agreed: a `potl.Job` or its file.
        path: The file to write. It must not exist.
        reader: File of the trainer's public key (`potl keygen --encryption`).
        files: Files and folders below the current directory that the task reads. They keep their
            relative paths.
        progress: What is done: None for a line when stderr is a terminal, a bool, or a function of
            one text.

    Example:
        >>> sealed = potl.seal(
        ...     "trainer:build", "job.json", "job.sealed", reader="box.pub", files=["data"]
        ... )  # doctest: +SKIP

    Raises:
        JobMismatch: The task does not match the job.
        LimitError: There are more files than can be listed.
        StorageError: A file cannot be read or written, or the disk is full.
        UsageError: What is packed is not enough to open the task, or a file cannot be packed; the
            message names it, with the remedy.
    """
    require_own_call("seal a job")
    key, agreed, out = read_sealing_key(reader), as_job(job), Path(path)
    if os.path.lexists(out):
        raise UsageError(f"{out} exists and is not replaced", "choose another name")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", "make it first")
    own = Path.cwd().resolve()
    with phases("sealing", progress) as say, tempfile.TemporaryDirectory(prefix="potl-") as made:
        tree = Path(made).resolve()
        say("building the task")
        build = load_task(task)
        found = sources(build, agreed, task, own, files)
        say("copying what is packed")
        with stored():
            for name, source in found.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, tree / name)
            agreed.write(tree / JOB)
            kept = [*found, JOB, *([INITIAL] if agreed.initial is not None else [])]
            contents = Contents(
                task=task,
                arguments=_arguments.module_arguments,
                files={name: described(tree / name) for name in kept},
            )
        text = contents.text()
        say("building the task from what is packed")
        require_enough(tree, own, build, task, agreed)
        say("encrypting")
        with stored(), new_file(out, mode=0o644) as file:
            _write(file, key, text, tree, contents)
        _core.sync_directory(str(out.absolute().parent))
    return contents.sealed(out, agreed)


def _write(
    file: BinaryIO, key: _core.SealingKey, text: bytes, tree: Path, contents: Contents
) -> None:
    file.write(head_of(key))
    frames = Enclosing(key, head_of(key))
    file.writelines(frames.take(len(text).to_bytes(8, "big") + text, last=False))
    for name in sorted(contents.files):
        digest = hashlib.sha256()
        with (tree / name).open("rb") as source:
            while piece := source.read(FRAME_BYTES):
                digest.update(piece)
                file.writelines(frames.take(piece, last=False))
        if digest.hexdigest() != contents.files[name]["sha256"]:
            raise UsageError(
                f"the task changed {name} while it was built",
                "let it write to a file of another name",
            )
    file.writelines(frames.take(b"", last=True))
