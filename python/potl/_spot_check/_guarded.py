# SPDX-License-Identifier: Apache-2.0
"""The training that a trusted side owns: its updates, and what of it is final."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import torch

from .. import _core
from .._base._errors import MalformedError, UsageError
from ._gradients import Gradients, bytes_of, weights_of

if TYPE_CHECKING:
    from .._job._session import Session

_FORMAT = "potl-guard-v1"
_FILE = "guard.json"
_MOST_BYTES = 1 << 20
# By which a gradient may exceed the clip, because torch's norm is rounded; the plan counts it.
CLIP_SLACK = 1.0001


class Kept(TypedDict):
    """What a folder says of a guarded training."""

    format: str
    job: str  # its id
    options: dict[str, float]  # of the plan
    step: int  # the final one
    state: str  # its digest
    stopped: int  # sessions that ended at a check


class Folder:
    """Where the final state of a guarded training is kept, so that it goes on after a restart.

    Args:
        path: A folder of the trusted side's own; it is made when there is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Kept | None = None  # what is kept as far as this guard knows
        _core.create_directory(str(path))

    def read(self) -> Kept | None:
        """What is kept; None in a new folder.

        Raises:
            MalformedError: The file is not one of potl's.
        """
        self._seen = self._there()
        return self._seen

    def _there(self) -> Kept | None:
        file = self._path / _FILE
        if not file.exists():
            return None
        try:
            found = json.loads(_core.read_file(str(file), max_bytes=_MOST_BYTES))
        except ValueError as error:
            raise MalformedError(f"{file} is not JSON", "restore it from a copy") from error
        wanted = Kept.__annotations__.keys()
        if not isinstance(found, dict) or found.keys() != wanted or found["format"] != _FORMAT:
            raise MalformedError(f"{file} is none of a guarded training", "name another folder")
        return found  # type: ignore[return-value]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Here nobody else trains: two guards would delete each other's final states.

        Raises:
            UsageError: Another guard trains in the folder, or has done so since.
        """
        lock = _core.DirectoryLock(
            str(self._path),
            f"another guard trains in {self._path}",
            "end it first, or name another folder",
        )
        try:
            kept = self._there()
            if kept is not None and kept != self._seen:
                raise UsageError(
                    f"another guard has trained in {self._path} meanwhile",
                    "make this one anew: it goes on from there",
                )
            yield
        finally:
            lock.release()

    def state(self, kept: Kept) -> _core.State:
        """The final state."""
        return _core.State.load(str(self._state(kept)), bytes.fromhex(kept["state"]))

    def write(self, kept: Kept, state: _core.State | None) -> None:
        """Writes a final state first, and then what names it."""
        if state is not None:
            state.save(str(self._state(kept)))
        _core.write_file(str(self._path / _FILE), json.dumps(kept, indent=1).encode())
        self._seen = {**kept}
        for old in self._path.glob("state-*.safetensors"):
            if old != self._state(kept):
                old.unlink()

    def _state(self, kept: Kept) -> Path:
        return self._path / f"state-{kept['step']}-{kept['state'][:16]}.safetensors"


class Guarded:
    """What `_core.spot_check_guard` trains: its methods have the names of guarded_training's.

    Args:
        session: Owns weights and optimizers. Its present state is the first final one, unless the
            folder has a later one.
        gradients: Of the same session: knows how gradients are laid out.
        clip: Largest norm of a gradient.
        options: Of the plan: a folder of another plan is refused.
        folder: None keeps final states in memory.
    """

    def __init__(
        self,
        session: Session,
        gradients: Gradients,
        *,
        job: _core.Job,
        clip: float,
        options: dict[str, float],
        folder: Folder | None,
    ) -> None:
        self._session = session
        self._gradients = gradients
        self._folder = folder
        self._clip = clip
        self._kept: dict[int, _core.State] = {}
        self._final = session.capture()
        self._about = Kept(
            format=_FORMAT,
            job=job.id.hex(),
            options=options,
            step=session.step,
            state=self._final.digest().hex(),
            stopped=0,
        )
        if folder is not None:
            self._resume(folder)

    @property
    def step(self) -> int:
        """Updates done so far."""
        return self._session.step

    @property
    def final_step(self) -> int:
        """The last step that is final."""
        return self._about["step"]

    @property
    def final(self) -> _core.State:
        """The state after it."""
        return self._final

    @property
    def stopped(self) -> int:
        """Sessions so far that ended at a check."""
        return self._about["stopped"]

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A block in which no other guard trains in the folder."""
        if self._folder is None:
            return contextlib.nullcontext()
        return self._folder.held()

    def weights(self) -> list[memoryview]:
        """What gradients are computed from."""
        return bytes_of(weights_of(self._session.task))

    def update(self, step: int, gradient: memoryview, norm: float, loss: float) -> None:
        """Clips and applies a reported gradient."""
        parts = self._gradients.split(gradient)
        if not norm <= self._clip and self._is_beyond(parts, norm):
            # Twice the root: the whole factor may be less than what float32 holds exactly.
            root = math.sqrt(self._clip / norm)
            torch.frombuffer(gradient, dtype=torch.float32).mul_(root).mul_(root)
            parts = self._gradients.split(gradient)  # on a GPU they are copies
        self._session.apply(step, parts, loss)

    def keep(self) -> None:
        """Remembers the present state."""
        self._kept[self.step] = self._session.capture()

    def finalise(self, step: int) -> None:
        """Makes the state after a step final."""
        self._final = self._kept[step]
        self._kept = {other: state for other, state in self._kept.items() if other > step}
        self._write(step, self._final)

    def roll_back(self) -> None:
        """Goes back to the final state."""
        self._kept.clear()
        self._session.restore(self._final)

    def count_stopped(self) -> None:
        """Writes down that a session ended at a check."""
        self._about["stopped"] += 1
        if self._folder is not None:
            self._folder.write(self._about, None if self.final_step else self._final)

    def replace_final(self) -> None:
        """Takes the present state for the final one of the same step."""
        self._final = self._session.capture()
        self._write(self.final_step, self._final)

    def _is_beyond(self, parts: list[torch.Tensor | None], norm: float) -> bool:
        """Whether torch would clip them too little, or to nothing: what a check compares is clipped
        by the norm, and moves the weights.

        torch adds up squares in float32, in which millions of small ones vanish beside a large one,
        and large ones are infinite: whoever chooses the gradient chooses what the norm misses.
        """
        torchs = float(torch.nn.utils.get_total_norm([part for part in parts if part is not None]))
        return norm > CLIP_SLACK * torchs or torchs == math.inf

    def _write(self, step: int, state: _core.State) -> None:
        self._about["step"] = step
        if self._folder is not None:
            self._about["state"] = state.digest().hex()
            self._folder.write(self._about, state)

    def _resume(self, folder: Folder) -> None:
        kept = folder.read()
        if kept is None:
            return
        for name in ("job", "options"):
            if kept[name] != self._about[name]:
                raise UsageError(
                    f"the folder is of another training: {name} differs",
                    "name another folder, or pass what this one was made with",
                )
        self._final = folder.state(kept)
        self._about = kept
        self._session.restore(self._final)
