# SPDX-License-Identifier: Apache-2.0
"""`calibrate`: how far honest replays of a task drift from each other on this machine."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._arithmetic import _arithmetic
from .._base._errors import NotReplayable, Problem, UsageError
from .._base._progress import Progress, track

if TYPE_CHECKING:
    from .._task._task import Task
    from ._session import Session

# Honest noise should leave this much room below the job's tolerance cap, because a run that lands
# above the cap cannot be judged at all.
_MARGIN = 10.0

_HEADER_HARDLY_COUNTS = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Distance between honest replays of the same steps, relative to what the steps changed.

    Attributes:
        steps: Length of the replay.
        group: "parameters", "buffers", "optimizer" or "other".
        median: Middle one of the repeats.
        largest: Largest of the repeats.
        worst_tensor: The tensor that is furthest off, relative to its own update; empty when all
            are equal.
    """

    steps: int
    group: str
    median: float
    largest: float
    worst_tensor: str


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A trade of disk against replaying.

    Attributes:
        checkpoint_every: Length of a segment.
        store_every: Steps between stored states; above `checkpoint_every` only with `rederive`.
        segments: Segments of the run.
        samples: Segments to replay for the strength that was asked for.
        bytes: Disk that the checkpoints take.
        verification_fraction: Time of these replays as a share of the training.
        rederivation_fraction: Time that the trainer needs to derive the challenged states, as a
            share of the training.
        noise_fits: Whether honest noise over such a segment stays as low as `calibrate` recommends.
            A reproducible arithmetic, which `rederive` needs, has none.
    """

    checkpoint_every: int
    store_every: int
    segments: int
    samples: int
    bytes: int
    verification_fraction: float
    rederivation_fraction: float
    noise_fits: bool


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What `calibrate` measured.

    Attributes:
        noise: One entry per length and group, shortest first.
        deterministic: Whether every repeat gave the same bits.
        repeats: Number of honest replays that were compared.
        tolerance_cap: Largest tolerance that a job allows by default.
        checkpoint_every: Longest measured segment whose noise stays ten times below the cap; None
            when even one step exceeds that.
        seconds_per_step: Median time of a step.
        checkpoint_bytes: Size of one stored state, with the optimizer's.
    """

    noise: tuple[Noise, ...]
    deterministic: bool
    repeats: int
    tolerance_cap: float
    checkpoint_every: int | None
    seconds_per_step: float
    checkpoint_bytes: int

    def json(self) -> str:
        """The measurements as JSON. Noise without a bound is "inf"."""
        document = asdict(self)
        for entry in document["noise"]:
            for name in ("median", "largest"):
                if not math.isfinite(entry[name]):
                    entry[name] = str(entry[name])
        return json.dumps(document, indent=1, allow_nan=False)

    def table(self) -> str:
        """The measurements as text, one line per length."""
        groups = list(dict.fromkeys(entry.group for entry in self.noise))
        lines = ["steps  " + "  ".join(f"{group:>12}" for group in groups)]
        for steps in dict.fromkeys(entry.steps for entry in self.noise):
            row = {entry.group: entry.largest for entry in self.noise if entry.steps == steps}
            lines.append(f"{steps:5d}  " + "  ".join(f"{row[group]:12.2e}" for group in groups))
        if self.checkpoint_every is None:
            lines.append(
                "One step drifts too far: a replay could not be told from a cheat. "
                "Use float32, or deterministic operators."
            )
        else:
            lines.append(
                f"checkpoint_every={self.checkpoint_every} keeps honest noise ten times below the "
                f"cap of {self.tolerance_cap:g}; {self.checkpoint_bytes:,} bytes per checkpoint."
            )
        return "\n".join(lines)

    def storage(
        self,
        *,
        steps: int,
        budget_bytes: float,
        probability: float = 0.95,
        cheat_fraction: float = 0.05,
        rederive: bool = False,
    ) -> Storage:
        """The checkpoint interval that makes verification cheapest within a disk budget.

        Short segments cost disk and save replaying: strength is counted in segments.

        Args:
            steps: Length of the run.
            budget_bytes: Disk for its checkpoints.
            probability: Probability with which a cheat must be seen.
            cheat_fraction: Share of the segments that are false, wherever they are.
            rederive: Whether states between the stored ones are derived when they are challenged,
                for jobs with a reproducible arithmetic: pass both intervals to `Job.create`.
        """
        plan = _core.storage_plan(
            steps=steps,
            step_seconds=self.seconds_per_step,
            state_bytes=self.checkpoint_bytes,
            budget_bytes=budget_bytes,
            probability=probability,
            cheat_fraction=cheat_fraction,
            rederive=rederive,
        )
        return Storage(
            checkpoint_every=int(plan["checkpoint_every"]),
            store_every=int(plan["store_every"]),
            segments=int(plan["segments"]),
            samples=int(plan["samples"]),
            bytes=int(plan["bytes"]),
            verification_fraction=float(plan["verification_fraction"]),
            rederivation_fraction=float(plan["rederivation_fraction"]),
            noise_fits=rederive
            or (
                self.checkpoint_every is not None
                and plan["checkpoint_every"] <= self.checkpoint_every
            ),
        )


def calibrate(
    build: Callable[[], Task],
    *,
    seed: int = 0,
    steps: int = 100,
    repeats: int = 4,
    progress: Progress = None,
) -> Calibration:
    """Measures the noise of honest replays in stock arithmetic, to choose `checkpoint_every` before
    a job is agreed. A job in a reproducible arithmetic, which is the default, has none.

    The first `steps` steps are trained once, and `repeats` times more as a verifier with other
    thread counts and orders of summation would. At lengths 1, 2, 5, 10, ... the states are
    compared, relative to what the steps changed.

    Args:
        build: Makes the task.
        seed: Seed of the job that is tried.
        steps: Length of the longest segment that is measured; at most one run.
        repeats: Honest replays to compare.
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).

    Returns:
        The noise at each length. `table` shows it, `storage` plans intervals with it.

    Example:
        >>> print(potl.calibrate(build, steps=50).table())  # doctest: +SKIP

    Raises:
        NotReplayable: The task cannot be replayed at all, or diverges within `steps`.
    """
    if steps < 1 or repeats < 1:
        raise UsageError("calibrate needs at least one step and one repeat", "")
    from ._session import Session
    from ._trial import run_trial

    trial = run_trial(build, seed=seed, arithmetic=_arithmetic.STOCK)
    if trial.problems:
        raise NotReplayable(trial.problems)
    with Session.open(build, seed=seed) as session:
        return _measured(session, min(steps, session.task.steps), repeats, progress)


def _measured(session: Session, steps: int, repeats: int, progress: Progress) -> Calibration:
    lengths = _lengths(steps)
    with track("calibrating", (repeats + 1) * steps, progress) as advance:
        start = session.capture()
        seconds: list[float] = []

        def run(before: int) -> dict[int, _core.State]:
            session.restore(start)
            kept: dict[int, _core.State] = {}
            for step, _, batch in session.batches(1, steps):
                began = time.perf_counter()
                session.run_step(step, batch)
                seconds.append(time.perf_counter() - began)
                if step in lengths:
                    kept[step] = session.capture()
                if advance is not None:
                    advance(before + step)
            return kept

        honest = run(0)
        for length in lengths:
            if found := _core.not_finite(honest[length], start):
                raise NotReplayable(
                    Problem(
                        what=f"after {length} steps, {found}, and no verifier accepts what is not "
                        "finite",
                        where=found.split(" ")[0],
                        remedy="lower the learning rate or pass grad_clip=; in float16 pass "
                        "scaler=",
                    )
                )
        per_step = sorted(seconds)[len(seconds) // 2]
        perturbed: list[Mapping[int, _core.State]] = []
        for index in range(repeats):
            with session._perturb(index):
                perturbed.append(run((index + 1) * steps))
        noise = tuple(
            entry
            for length in lengths
            for entry in _compare(
                length, start, honest[length], [states[length] for states in perturbed]
            )
        )
    return Calibration(
        noise=noise,
        deterministic=all(
            states[length].digest() == honest[length].digest()
            for states in perturbed
            for length in lengths
        ),
        repeats=repeats,
        tolerance_cap=_core.TOLERANCE_CAP,
        checkpoint_every=_longest(noise, lengths, _core.TOLERANCE_CAP / _MARGIN),
        seconds_per_step=per_step,
        checkpoint_bytes=_stored_bytes(honest[steps]),
    )


def _stored_bytes(state: _core.State) -> int:
    """Size of a checkpoint's file: the tensors, and a header that matters where they are small."""
    if state.nbytes > _HEADER_HARDLY_COUNTS:
        return state.nbytes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        state.save(str(path))
        return path.stat().st_size


def _lengths(steps: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 ... below `steps`, and `steps`."""
    scale, found = 1, []
    while scale < steps:
        found += [scale * factor for factor in (1, 2, 5) if scale * factor < steps]
        scale *= 10
    return [*found, steps]


def _compare(
    steps: int, start: _core.State, honest: _core.State, others: Sequence[_core.State]
) -> list[Noise]:
    seen: dict[str, list[_core.GroupDistance]] = {}
    for other in others:
        for distance in _core.compare_states(start, honest, other):
            seen.setdefault(distance.group, []).append(distance)
    entries = []
    for group, distances in seen.items():
        ordered = sorted(distances, key=_relative)
        entries.append(
            Noise(
                steps=steps,
                group=group,
                median=_relative(ordered[len(ordered) // 2]),
                largest=_relative(ordered[-1]),
                worst_tensor=ordered[-1].worst_tensor,
            )
        )
    return entries


def _relative(distance: _core.GroupDistance) -> float:
    if not distance.finite or not distance.structure_equal:
        return float("inf")
    # What cannot be within any share of its update, such as a list that is longer in a repeat.
    free = [one for one in distance.tensors if one.judged == "codes"]
    if any(one.l2 > one.update_l2 == 0 for one in free):
        return float("inf")
    if distance.l2 == 0:
        return 0.0
    return float(distance.l2 / distance.update_l2) if distance.update_l2 else float("inf")


def _longest(noise: Sequence[Noise], lengths: Sequence[int], limit: float) -> int | None:
    best = None
    for length in lengths:
        if not all(entry.largest <= limit for entry in noise if entry.steps == length):
            break
        best = length
    return best
