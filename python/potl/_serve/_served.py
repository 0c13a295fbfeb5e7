# SPDX-License-Identifier: Apache-2.0
"""A run directory as its trainer shows it: what the log names, and nothing else.

A name that a client sends is a step, a branch or an index, never a path. Files are opened beneath
the directory without following a link.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from .._base._errors import MissingError, StorageError, UsageError
from .._record._inputs import read_note
from .._record._records import Records
from .._remote import _source

_MAX_HEADER = 32 << 20
_TREE, _WHOLE = "potl.state", "potl-checkpoint-v1"


@dataclass(frozen=True)
class StoredState:
    """A checkpoint that is there."""

    step: int
    branch: int
    bytes: int


@dataclass(frozen=True)
class StoredRounding:
    """The rounding logs of a branch."""

    branch: int
    bytes: int


@dataclass(frozen=True)
class Listing:
    """What is there. A size is null where the file is not."""

    format: str
    job: str
    job_bytes: int | None
    log: int
    records: int
    commitment: int | None
    telemetry: int | None
    checkpoints: list[StoredState]
    rounding: list[StoredRounding]


@dataclass(frozen=True)
class OpenedRecord:
    """A record, and that it is among the first `size`, whose Merkle root is `root`."""

    index: int
    size: int
    root: str
    record: str
    proof: list[str]


@dataclass(frozen=True)
class OpenedChunk:
    """A chunk of a tensor of `bytes` bytes, and that it lies under the tensor's content root."""

    tensor: str
    bytes: int
    index: int
    root: str
    chunk: str
    proof: list[str]


@dataclass(frozen=True)
class File:
    """An open file of the run."""

    descriptor: int
    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of it; fewer only where it became shorter."""
        parts = []
        while size > 0 and (part := os.pread(self.descriptor, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Once, by who opened it."""
        os.close(self.descriptor)


class ServedRun:
    """What a server answers from.

    Args:
        directory: The run directory.

    Raises:
        PotlError: There is no run that can be read, or a link in it.
    """

    def __init__(self, directory: Path) -> None:
        # What a verifier could not even open is nothing to serve: the trainer should know.
        evidence = _core.Evidence.open(str(directory), job=None, commitment=None)
        self.job = evidence.job.id.hex()
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._log = self.open(_source.LOG)
        self._records = Records(self._log.descriptor)
        self._lock = threading.Lock()
        self._directory = directory

    def close(self) -> None:
        """Ends the use of the directory."""
        self._log.close()
        os.close(self._root)

    def open(self, name: str) -> File:
        """A file by its name in the format. MissingError: it is not there, or not the run's.

        Raises:
            StorageError: It cannot be opened, which does not say that it is not there.
        """
        *folders, last = name.split("/")
        place = self._root
        try:
            for folder in folders:
                opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
                if place != self._root:
                    os.close(place)
                place = opened
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(last, flags, dir_fd=place)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise MissingError(f"{name} is not there", "") from error
            raise _refused(name, error.errno) from error
        finally:
            if place != self._root:
                os.close(place)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            os.close(descriptor)
            raise MissingError(f"{name} is not a file", "")
        return File(descriptor, about.st_size)

    def open_state(self, step: int, branch: int) -> File:
        """The checkpoint of a recorded step."""
        with self._scanned() as records:
            if not records.names_state(step, branch):
                raise MissingError("the log names no such state", "")
        return self.open(_core.checkpoint_entry(step, branch))

    def open_rounding(self, branch: int) -> File:
        """The rounding logs of a branch."""
        with self._scanned() as records:
            if branch >= len(records.branches):
                raise MissingError("the log names no such branch", "")
        return self.open(_core.rounding_entry(branch))

    def rounding_log(self, step: int, branch: int) -> tuple[int, int]:
        """Where in that file a step's log lies."""
        with self._scanned() as records:
            place = records.rounding_log(step, branch)
        if place is None or place[1] == 0:
            raise MissingError("the log names no such rounding log", "")
        return place

    def listing(self) -> Listing:
        """What is there now."""
        with self._scanned() as records:
            states = [
                StoredState(step=found[0], branch=found[1], bytes=size)
                for name, size in self._files_in(_source.CHECKPOINTS)
                if (found := _source.state_of(name)) and records.names_state(*found)
            ]
            rounding = [
                StoredRounding(branch=branch, bytes=size)
                for name, size in self._files_in(_source.ROUNDING)
                if (branch := _source.rounding_of(name)) is not None
                and branch < len(records.branches)
            ]
            count, log = len(records), records.bytes
        return Listing(
            format="potl-run-v1",
            job=self.job,
            job_bytes=self._size_of(_source.JOB),
            log=log,
            records=count,
            commitment=self._size_of(_source.COMMITMENT),
            telemetry=self._size_of(_source.TELEMETRY),
            checkpoints=sorted(states, key=lambda one: (one.branch, one.step)),
            rounding=sorted(rounding, key=lambda one: one.branch),
        )

    def open_record(self, index: int, size: int | None) -> OpenedRecord:
        """A record among the first `size`; None: those of the commitment, or all."""
        with self._scanned() as records:
            wanted = self._committed() if size is None else size
            count = len(records) if wanted is None else wanted
            if not index < count <= len(records):
                raise MissingError("there is no such record", "")
            return OpenedRecord(
                index=index,
                size=count,
                root=records.root_at(count).hex(),
                record=records.record(index).hex(),
                proof=[one.hex() for one in records.proof(index, count)],
            )

    def open_step(self, step: int, branch: int, size: int | None) -> OpenedRecord:
        """The record of a step."""
        with self._scanned() as records:
            index = records.index_of(step, branch)
        if index is None:
            raise MissingError("the log names no such step", "")
        return self.open_record(index, size)

    def tree(self, step: int, branch: int) -> bytes:
        """The encoding of a state, which its digest is of and which names every content root."""
        with contextlib.closing(self.open_state(step, branch)) as file:
            return self._tensor(file, _Header.of(file), _TREE)

    def open_chunk(self, step: int, branch: int, tensor: str, index: int) -> OpenedChunk:
        """A chunk of a tensor of a stored state."""
        with contextlib.closing(self.open_state(step, branch)) as file:
            header = _Header.of(file)
            if tensor in header.places or not header.leaves_out:
                data = self._tensor(file, header, tensor)
            else:
                with contextlib.closing(self.open_state(0, 0)) as first:
                    data = self._tensor(first, _Header.of(first), tensor)
        chunk = _core.CONTENT_CHUNK_BYTES
        try:
            proof = _core.open_chunk(data, index)
        except UsageError as error:
            raise MissingError("the tensor has no such chunk", "") from error
        return OpenedChunk(
            tensor=tensor,
            bytes=len(data),
            index=index,
            root=_core.content_root(data).hex(),
            chunk=data[index * chunk : (index + 1) * chunk].hex(),
            proof=[one.hex() for one in proof],
        )

    def _committed(self) -> int | None:
        if self._size_of(_source.COMMITMENT) is None:
            return None
        note = read_note(self._directory / _source.COMMITMENT)
        return _core.SignedNote.parse(note).note.size

    @contextlib.contextmanager
    def _scanned(self) -> Iterator[Records]:
        """The records with those that were appended meanwhile, for one caller at a time."""
        with self._lock:
            self._follow()
            self._records.scan()
            yield self._records

    def _follow(self) -> None:
        """Reads the log that is there now: who copies a run again, or begins it anew, puts another
        file in its place. By the old one, states of the new one would not be the run's.
        """
        now = self.open(_source.LOG)
        if os.path.samestat(os.fstat(now.descriptor), os.fstat(self._log.descriptor)):
            now.close()
            return
        try:
            records = self._records_of_another(now)
        except BaseException:
            now.close()
            raise
        self._log.close()
        self._log, self._records = now, records

    def _records_of_another(self, log: File) -> Records:
        """Those of a log that has taken the place of the first one. What is still being copied is
        not said to be missing, which a verifier would hold against the trainer.
        """
        copied = f"{self._directory} is not whole, and may still be copied"
        try:
            job = _core.Evidence.open(str(self._directory), job=None, commitment=None).job
            committed = self._committed()
        except MissingError as error:
            raise StorageError(copied, "") from error
        if job.id.hex() != self.job:
            raise StorageError(
                f"{self._directory} holds a run of another job than when it was first served",
                "end potl serve, and start it again",
            )
        records = Records(log.descriptor)
        records.scan()
        if committed is not None and len(records) < committed:
            raise StorageError(copied, "")
        return records

    def _size_of(self, name: str) -> int | None:
        try:
            file = self.open(name)
        except MissingError:
            return None
        file.close()
        return file.size

    def _files_in(self, folder: str) -> Iterator[tuple[str, int]]:
        try:
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused(folder, error.errno) from error
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if not _source.is_of_a_run(name):
                        continue
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        about = entry.stat(follow_symlinks=False)
                        if stat.S_ISLNK(about.st_mode):
                            raise _refused(name, errno.ELOOP)
                        if stat.S_ISREG(about.st_mode):
                            yield name, about.st_size
        except OSError as error:
            raise _refused(folder, error.errno) from error
        finally:
            os.close(place)

    @staticmethod
    def _tensor(file: File, header: _Header, name: str) -> bytes:
        if name not in header.places:
            raise MissingError("the state has no such tensor", "")
        start, end = header.places[name]
        data = file.read(header.data + start, end - start)
        if len(data) != end - start:
            raise StorageError("the checkpoint ends too early", "")
        return data


def _refused(name: str, why: int | None) -> StorageError:
    """What is not said to be missing, since a verifier would hold that against the trainer: the
    system may be short of something, and a link may lead to where somebody moved it.
    """
    is_link = why in (errno.ELOOP, errno.ENOTDIR)
    return StorageError(
        f"{name} cannot be opened: {os.strerror(why or errno.EIO)}",
        "links are not followed: put what it leads to in its place" if is_link else "",
    )


@dataclass(frozen=True)
class _Header:
    """What the head of a checkpoint says; the trainer's own recorder wrote it."""

    data: int
    places: dict[str, tuple[int, int]]
    leaves_out: bool

    @staticmethod
    def of(file: File) -> _Header:
        try:
            (length,) = struct.unpack("<Q", file.read(0, 8))
            if length > _MAX_HEADER:
                raise ValueError("a longer header than potl writes")
            entries: Any = json.loads(file.read(8, length))  # Any: a file's
            metadata = entries.pop("__metadata__")
            places = {}
            for name, entry in entries.items():
                start, end = entry["data_offsets"]
                if not 0 <= start <= end <= file.size - 8 - length:
                    raise ValueError("data beyond the end")
                places[name] = (start, end)
            return _Header(8 + length, places, metadata["format"] != _WHOLE)
        except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
            raise StorageError(f"the checkpoint cannot be read: {error}", "") from error
