# SPDX-License-Identifier: Apache-2.0
"""Where two runs part: the first step from their logs, the first operator by executing that step
again, and why, as far as it can be told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import MalformedError, MissingError, UsageError
from .._record._records import Records
from .._record._trace import OperatorTrace, trace
from .._remote._remote import AnyRun, Place, opened

if TYPE_CHECKING:
    from .._task._task import Task
    from ._step_here import StepHere

# Members of a job that say how a run is stored or who trains it, and not what is computed.
_BESIDE = ("checkpoint_every", "max_segment", "store_every", "limits", "tolerance_cap", "trainer")

# Members that follow from the seed, and are other ones whenever it is.
_OF_THE_SEED = ("initial_state/", f"task/{_core.FIRST_STEPS}", "task/initialisers")

_NAMES = ("first", "second")
_ANOTHER_RESULT = "another result"


@dataclass(frozen=True)
class OperatorDifference:
    """The first operator of a step at which two runs part.

    Attributes:
        number: From 1.
        count: Operators of the step in the first run; 0 where it is not known.
        name: With its overload, such as "aten.mm.default".
        what: "another result", "another attribute, ...", "another wiring, ..." or
            "another operator, ...".
    """

    number: int
    count: int
    name: str
    what: str

    def __str__(self) -> str:
        of = f" of {self.count}" if self.count else ""
        return f"operator {self.number}{of}, {self.name}: {self.what}"


@dataclass(frozen=True)
class Difference:
    """How two runs differ.

    Attributes:
        step: The first step whose record differs; 0 for the initial state; None where all steps
            that both runs have agree.
        compared: Steps that both runs have.
        steps: Steps of the first and of the second run.
        parts: What differs in that record: "samples", "learning rates", "random draws", "loss",
            "state"; or "state" alone for the initial one.
        operator: The first operator that differs; None where nobody could tell.
        reproduced: Whether this machine ends the step in the state of the first run, and in that of
            the second; None where the step was not executed.
        causes: Sentences, what explains most first.
    """

    step: int | None
    compared: int
    steps: tuple[int, int]
    parts: tuple[str, ...] = ()
    operator: OperatorDifference | None = None
    reproduced: tuple[bool | None, bool | None] = (None, None)
    causes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether no step differs that both runs have."""
        return self.step is None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.step is None:
            yield f"the runs agree on all {self.compared} steps that both have"
            if self.steps[0] != self.steps[1]:
                yield f"the first has {self.steps[0]} steps, the second {self.steps[1]}"
        elif self.step == 0:
            yield "the runs begin with other states"
        else:
            yield f"the first step that differs is {self.step}, in {', '.join(self.parts)}"
        if self.operator is not None:
            yield f"the first operator that differs is {self.operator}"
        for name, done in zip(_NAMES, self.reproduced, strict=True):
            if done is not None:
                verb = "ends" if done else "does not end"
                yield f"on this machine the step {verb} in the state of the {name} run"
        yield from self.causes


def diff(
    a: AnyRun,
    b: AnyRun,
    *,
    task: Callable[[], Task] | str | None = None,
    other_task: Callable[[], Task] | str | None = None,
) -> Difference:
    """Finds the first step at which two runs part, and with a task the first operator.

    The step comes from the logs alone. For the operator, the step is executed on this machine under
    the job of each run, from a stored state before it. Where both come out alike, the traces that
    `potl.trace` left in the run directories are compared. Nothing is proven: neither run's
    commitment is looked at.

    Args:
        a: A run directory, or where the run is (a URL, `potl.Remote`).
        b: Another.
        task: `build` or "module:function" of the first run's task; None for the logs alone.
        other_task: The same of the second run; None for the first run's.

    Raises:
        MalformedError: A run cannot be read, or no further than the step up to which both agree.
        UsageError: A run directory is not there, or `other_task` is given without `task`.

    Example:
        >>> print(potl.diff("runs/1", "runs/2", task=build))  # doctest: +SKIP
        the first step that differs is 9, in loss, state
        the first operator that differs is operator 3 of 106, aten.addmm.default: another result
    """
    if other_task is not None and task is None:
        raise UsageError("other_task needs task", "pass task=, the first run's")
    with opened(a, None) as first, opened(b, None) as second:
        return _compared((first, second), task, task if other_task is None else other_task)


def _compared(
    places: tuple[Place, Place],
    task: Callable[[], Task] | str | None,
    other_task: Callable[[], Task] | str | None,
) -> Difference:
    runs = _Runs(places)
    step, parts = runs.first_step()
    if step is None:
        runs.require_whole()
    found = Difference(step, runs.compared, runs.steps, parts)
    causes = list(runs.causes(step, parts))
    if step is None or step == 0 or task is None or other_task is None:
        return _with(found, causes)
    builds = _Builds(places, task, other_task)
    operator, reproduced = builds.execute(runs, step, causes)
    return _with(found, causes, operator=operator, reproduced=reproduced)


def _with(
    found: Difference,
    causes: list[str],
    operator: OperatorDifference | None = None,
    reproduced: tuple[bool | None, bool | None] = (None, None),
) -> Difference:
    return Difference(
        found.step, found.compared, found.steps, found.parts, operator, reproduced, tuple(causes)
    )


class _Runs:
    """Two runs as their logs have them."""

    def __init__(self, places: tuple[Place, Place]) -> None:
        self.a, self.b = (
            _core.Evidence.open(str(one.directory), job=None, commitment=None, fetch=one.fetch)
            for one in places
        )
        self._places = places
        # Reads the logs alone, which were brought for the evidence.
        self._facts = [_core.inspect_run(str(one.directory)) for one in places]
        self._columns = (self.a.steps(), self.b.steps())
        self.steps = (len(self._columns[0]["step"]), len(self._columns[1]["step"]))
        self.compared = min(self.steps)

    def first_step(self) -> tuple[int | None, tuple[str, ...]]:
        """The first step whose record differs, and in what."""
        if self.a.state_digest(0) != self.b.state_digest(0):
            return 0, ("state",)
        mine, theirs = self._columns
        for i in range(self.compared):
            step = mine["step"][i]
            pairs = {
                "learning rates": (mine["rates"][i], theirs["rates"][i]),
                "random draws": (mine["random_draws"][i], theirs["random_draws"][i]),
                "loss": (_bits(mine["loss"][i]), _bits(theirs["loss"][i])),
                "state": (mine["state"][i], theirs["state"][i]),
            }
            parts = [name for name, (one, other) in pairs.items() if one != other]
            if parts and not self.same_samples(step):
                parts.insert(0, "samples")
            if parts:
                return step, tuple(parts)
        return None, ()

    def require_whole(self) -> None:
        """MalformedError: nobody knows what a log holds behind the steps that were compared."""
        for name, run in zip(_NAMES, (self.a, self.b), strict=True):
            for finding in run.findings():
                # Without a commitment that is damage, and no end that a crash left.
                if finding.rule == "transcript.chain" and finding.result == "reject":
                    raise MalformedError(
                        f"the runs agree on the first {self.compared} steps, but the log of the "
                        f"{name} run cannot be read to its end: {finding.reason}",
                        "compare an undamaged copy of that run",
                    )

    def same_samples(self, step: int) -> bool:
        """Whether both runs made a step of the same samples."""
        # By their records: a job says in a line that it has more samples than memory holds.
        own, other = (_samples(place.directory, step) for place in self._places)
        return own == other

    def causes(self, step: int | None, parts: tuple[str, ...]) -> Iterator[str]:
        """What the logs and jobs explain."""
        if step is None:
            return
        if step == 0:
            yield from self._initial()
        for what, sentence in _OF_PARTS.items():
            if what in parts and step > 0:
                yield sentence
        if step > 0 and "loss" not in parts and "state" in parts:
            yield "the losses agree: backward pass or update differ, the forward pass does not"
        if step > 0 and all(one.has_diverged_by(step) for one in (self.a, self.b)):
            yield (
                "the loss or a gradient is not finite by then in both runs: the bits of a NaN are "
                "the processor's"
            )
        fields = [dict(one.job.fields()) for one in (self.a, self.b)]
        surroundings = [one.pop("environment", {}) for one in fields]
        for one in fields:
            for name in _BESIDE:
                one.pop(name, None)
        differ = [*_differences(fields[0], fields[1])]
        if fields[0]["seed"] != fields[1]["seed"]:
            differ = [one for one in differ if not one.startswith(_OF_THE_SEED)]
            seed = next(k for k, one in enumerate(differ) if one.startswith("seed "))
            differ[seed] += "; the initial states and the first steps follow from it"
        yield from (f"the jobs differ: {one}" for one in differ)
        made = _differences(surroundings[0], surroundings[1])
        said = [f"the jobs were made in other environments: {one}" for one in made]
        software = [one["software"] for one in self._facts]
        if software[0] != software[1]:
            said.append(f"recorded with other software: {software[0]}; {software[1]}")
        yield from said
        if fields[0] == fields[1] and step > 0 and self.a.job.arithmetic == "stock":
            yield (
                "both computed in stock arithmetic, whose bits depend on processor, threads and "
                'library versions: an arithmetic such as "ord32" has the same bits everywhere'
            )
        for name, run in zip(_NAMES, (self.a, self.b), strict=True):
            for finding in run.findings():
                if finding.result == "reject":
                    yield f"the log of the {name} run contradicts itself: {finding.reason}"

    def _initial(self) -> Iterator[str]:
        from ._encoding import TensorOutline, leaves
        from ._outline import StateOutline

        try:
            mine, theirs = (
                dict(leaves(StateOutline.of(one.load_state(0)).tree)) for one in (self.a, self.b)
            )
        except MissingError:
            return
        paths = sorted(
            {*mine, *theirs}, key=lambda one: (isinstance(mine.get(one), TensorOutline), one)
        )
        for path in paths:
            own, other = mine.get(path), theirs.get(path)
            if path not in mine or path not in theirs:
                yield f"only the {'first' if path in mine else 'second'} run's state has {path}"
            elif own != other and isinstance(own, TensorOutline):
                yield f"the first tensor that differs is {path}"
            elif own != other:
                yield f"{path} is {_short(own)} in the first, {_short(other)} in the second"
                continue
            else:
                continue
            return


# In the order of a step: what comes first explains the rest.
_OF_PARTS = {
    "samples": "the step was made of other samples",
    "learning rates": "the step was made with other learning rates",
    "random draws": "the step drew another number of random numbers: the code that ran is another",
}


class _Builds:
    """Two runs whose step is executed again."""

    def __init__(
        self, places: tuple[Place, Place], a: Callable[[], Task] | str, b: Callable[[], Task] | str
    ) -> None:
        from .._base import _executors, _imports

        for place in places:
            _imports.close(place.directory)
        self._places = places
        self._builds = [
            _executors.load_task(one) if isinstance(one, str) else one for one in (a, b)
        ]

    def execute(
        self, runs: _Runs, step: int, causes: list[str]
    ) -> tuple[OperatorDifference | None, tuple[bool | None, bool | None]]:
        """The first operator that differs, and which run's step is reproduced; adds to the
        causes.
        """
        from ._step_here import step_here

        both = (runs.a, runs.b)
        here = [
            step_here(build, run, step, states=both)
            for build, run in zip(self._builds, both, strict=True)
        ]
        for name, one in zip(_NAMES, here, strict=True):
            if one.problem:
                causes.append(f"the step of the {name} run was not executed: {one.problem}")
        reproduced = (_reproduced(here[0]), _reproduced(here[1]))
        operator = _between(here[0], here[1])
        if operator is not None and operator.what == _ANOTHER_RESULT:
            causes[:0] = self._of_values(runs, step, here)
        if operator is None and all(one.trace is not None for one in here):
            operator = self._left(step, here)
            if operator is None:
                causes.append(_elsewhere(step, here))
        return operator, reproduced

    def _left(self, step: int, here: list[StepHere]) -> OperatorDifference | None:
        """By the traces that were left in the directories. Where there is none, the step as it is
        executed here stands for a run that it reproduces.
        """
        traces = []
        for place, build, one in zip(self._places, self._builds, here, strict=True):
            left = OperatorTrace.read(place.directory, step)
            if left is None and one.reproduced and place.fetch is None:
                left = trace(place.directory, step=step, task=build)
            traces.append(left)
        mine, theirs = traces
        if mine is None or theirs is None:
            return None
        for number, (own, other) in enumerate(zip(mine.operators, theirs.operators, strict=False)):
            if own != other:
                what = _ANOTHER_RESULT if own[0] == other[0] else f"another operator, {other[0]}"
                return OperatorDifference(number + 1, len(mine.operators), own[0], what)
        return None

    def _of_values(self, runs: _Runs, step: int, here: list[StepHere]) -> Iterator[str]:
        """Why one operator gave two results."""
        from ._step_here import step_here

        again = step_here(self._builds[0], runs.a, step, states=(runs.a, runs.b))
        repeated = _between(here[0], again)
        if repeated is not None:
            yield f"the step is not repeatable even on this machine: {repeated}"
        if again.batch != here[0].batch:
            yield "its batch has other values whenever it is read: seed what reads draw"
        elif here[0].batch != here[1].batch and runs.same_samples(step):
            yield "the batches of the step hold other values"


def _elsewhere(step: int, here: list[StepHere]) -> str:
    names = [name for name, one in zip(_NAMES, here, strict=True) if not one.reproduced]
    return (
        "both runs' steps come out alike here, so what differs is the machine, the libraries or "
        f"the code of the {' and the '.join(names)} run: run `potl trace --step {step}` there, "
        "and compare again to see the operator"
    )


def _reproduced(here: StepHere) -> bool | None:
    return None if here.trace is None else here.reproduced


def _between(a: StepHere, b: StepHere) -> OperatorDifference | None:
    """The first operator at which two executions part."""
    if a.trace is None or b.trace is None:
        return None
    index = a.trace.first_difference(b.trace)
    if index is None:
        return None
    mine, theirs = a.trace.operators, b.trace.operators
    if index >= len(mine) or index >= len(theirs):
        longer = mine if len(mine) > len(theirs) else theirs
        what = "only one of the runs has it"
        return OperatorDifference(index + 1, len(mine), longer[index].name, what)
    what = mine[index].difference(theirs[index]) or _ANOTHER_RESULT
    return OperatorDifference(index + 1, len(mine), mine[index].name, what)


def _samples(directory: Path, step: int) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    log = os.open(directory / _core.LOG_NAME, flags)
    try:
        records = Records(log)
        records.scan()
        return records.samples_of(step)
    finally:
        os.close(log)


def _bits(value: float) -> str:
    return float(value).hex()


def _differences(a: object, b: object, path: str = "") -> Iterator[str]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            place = f"{path}/{key}" if path else str(key)
            yield from _differences(a.get(key), b.get(key), place)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _differences(one, other, f"{path}/{index}")
    elif a != b:
        yield f"{path} is {_short(a)} in the first, {_short(b)} in the second"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"
