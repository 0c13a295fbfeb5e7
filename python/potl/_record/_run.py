# SPDX-License-Identifier: Apache-2.0
"""A recorded run and its commitment as values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import MalformedError, UsageError
from . import _keys
from ._inputs import read_note, run_directory

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._values import Tree


class Commitment:
    """A signed note over a finished run: its size and Merkle root. From here the prover cannot
    change its story.
    """

    def __init__(self, text: str, *, own: bool = False) -> None:
        self._note = _core.SignedNote.parse(text)
        self._text = text
        self._own = own

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Commitment:
        """Reads what `write` wrote.

        Raises:
            MalformedError: It is not a signed note.
        """
        return Commitment(read_note(path))

    @property
    def root(self) -> bytes:
        """Merkle root over the records."""
        return self._note.note.root

    @property
    def size(self) -> int:
        """Number of records."""
        return self._note.note.size

    @property
    def own(self) -> bool:
        """Whether this process signed it itself: then prover and verifier are one party."""
        return self._own

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the note's text."""
        _core.write_file(os.fspath(path), self._text.encode())

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Commitment(size={self.size}, root={self.root.hex()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Commitment) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class Run:
    """A run directory.

    Args:
        path: The directory.
        key: Signing key that `commit` uses when it is given none: a PEM file, or None for the one
            in the directory.

    Raises:
        UsageError: There is no such directory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str | os.PathLike[str] | _core.SigningKey | None = None,
    ) -> None:
        self._path = run_directory(path)
        self._key = key

    @property
    def path(self) -> Path:
        """The directory."""
        return self._path

    @property
    def job(self) -> Job:
        """The job as the run directory has it; a client compares with its own."""
        from .._job._job import Job

        return Job.of_run(self._path)

    @property
    def losses(self) -> list[float]:
        """Mean batch loss of every step."""
        return self._history()["loss"]

    @property
    def final_digest(self) -> bytes:
        """Digest of the state after the last recorded step."""
        return self._history()["state"][-1]

    def inspect(self) -> _core.RunFacts:
        """What the directory holds: steps, checkpoints, sizes, losses, gaps, resumes, damage."""
        return _core.inspect_run(str(self._path))

    def commit(self, key: str | os.PathLike[str] | _core.SigningKey | None = None) -> Commitment:
        """Signs the finished run; the note is also kept in the directory.

        Raises:
            UsageError: The run is not finished, there is no such key, it is not the run's, or
                another commitment is there.
        """
        chosen = _keys.of_recorded(self._key if key is None else key, self._path)
        return Commitment(_core.commit_run(str(self._path), chosen), own=True)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the final model's parameters and buffers as plain safetensors, under their names
        in the model.

        That file is what a prover delivers and `verify(model=...)` compares. Tensors that share
        memory are written once, under the name that comes first. What `get_extra_state` returns is
        left out.

        Raises:
            MalformedError: The last state has no model's tensors: no recorder of potl wrote it.
            MissingError: The last state is not there.
            MismatchError: It is not the recorded one.
            UsageError: The run is not finished.
        """
        evidence = _core.Evidence.open(str(self._path), job=None, commitment=None)
        if max(evidence.steps()["step"], default=0) < evidence.job.steps:
            raise UsageError("the run is not finished", "resume the recording, then export")
        write_model(evidence.load_state(evidence.job.steps), path)

    def _history(self) -> _core.StepColumns:
        return _core.Evidence.open(str(self._path), job=None, commitment=None).steps()

    def __repr__(self) -> str:
        return f"Run({str(self._path)!r})"


def write_model(state: _core.State, path: str | os.PathLike[str]) -> None:
    """Writes a state's parameters and buffers as plain safetensors, under their names in the
    model.

    Raises:
        MalformedError: Somebody recorded a state that has none.
    """
    try:
        model: Tree = state.tree()["model"]
        tensors = [
            (name, _core.safetensors_dtype(value.dtype), value.shape, value.data)
            for group in ("parameters", "buffers")
            for name, value in model[group].items()
            if isinstance(value, _core.TensorView)
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise MalformedError("the state has no parameters and buffers of a model", "") from error
    _core.write_safetensors(os.fspath(path), tensors, {"format": "pt"})
