# SPDX-License-Identifier: Apache-2.0
"""What an extra task says: plans, results and progress as values. Decided in C++."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from .. import _core
from .._base._errors import UsageError

# (grade, ((share of a converged training, hit rate), ...), samples it was measured with or 0)
Curves = tuple[tuple[str, tuple[tuple[float, float], ...], int], ...]


T = TypeVar("T")


class Row(Mapping[str, T]):
    """A mapping that nobody changes, and that prints like a dictionary."""

    def __init__(self, values: Mapping[str, T]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> T:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))


# Any: what C++ gives has a member for each field, of the field's type.
def _values(found: Mapping[str, object], **changed: object) -> dict[str, Any]:
    return {**found, **changed}


@dataclass(frozen=True, kw_only=True)
class ExtraPlan:
    """What an extra task would be for a data set.

    Attributes:
        training_samples: Samples of the data set.
        classes: 0: no labels.
        samples: Extra samples (N).
        uploads: Items that are mixed in; more than `samples` where a grade is noisy.
        controls: Samples that are never uploaded.
        eta: N as a share of the training samples, which may be more than was asked for.
        chance: Hit rate of a model that knows epsilon of them and guesses.
        level: alpha, shared by the planned submissions.
        needed: Hits that the binomial test asks for; 0 without labels.
        grades: The ladder of difficulty.
        needed_for_acceptance: Hits that acceptance takes where controls are hit by chance; 0
            without labels.
        needed_effect: Without labels: the effect that acceptance takes (see `ExtraResult`).
        powers: Rows {"power", "learned", "share"}: what must have been learned so that the model
            is not rejected, with probability `power`.
        acceptance: The same rows: so that it is accepted.
        cost: Share of the training steps that the extra samples add.
        accuracy: {"expected", "most", "measured"}: points of accuracy that they cost, by the
            experiments in docs/experiments/extra_task.md; another task may lose more. `measured` is
            False if no experiment had as large a share; the points are then in proportion to it.
        warnings: What speaks against this plan.
    """

    training_samples: int
    classes: int
    samples: int
    uploads: int
    controls: int
    eta: float
    chance: float
    level: float
    needed: int
    grades: tuple[str, ...]
    needed_for_acceptance: int
    needed_effect: float
    powers: tuple[Mapping[str, float], ...]
    acceptance: tuple[Mapping[str, float], ...]
    cost: float
    accuracy: Mapping[str, float]
    warnings: tuple[str, ...]

    @staticmethod
    def _of(plan: _core.ExtraPlanned) -> ExtraPlan:
        values = _values(
            plan,
            grades=tuple(plan["grades"]),
            powers=tuple(map(Row, plan["powers"])),
            acceptance=tuple(map(Row, plan["acceptance"])),
            accuracy=Row(plan["accuracy"]),
            warnings=tuple(plan["warnings"]),
            cost=plan["uploads"] / (plan["training_samples"] + plan["uploads"]),
        )
        return ExtraPlan(**values)

    def document(self) -> dict[str, object]:
        """JSON values."""
        return {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True)
class ExtraProgress:
    """How far the training came, by reference curves.

    Attributes:
        share: Most likely share of what a converged model needs.
        low: Of the interval.
        high: Of the interval.
        text: "about 60 to 75 % of the training that a converged model needs".
    """

    share: float
    low: float
    high: float
    text: str


@dataclass(frozen=True, kw_only=True)
class ExtraResult:
    """What a model's answers say.

    Attributes:
        verdict: "accepted"; "rejected": it was not seen to know more than epsilon of the extra
            samples; "inconclusive": it knows some, but no more than `least_known`, or nothing can
            be said.
        reason: One sentence with the numbers in it.
        samples: Extra samples that were asked about.
        controls: Control samples that were asked about.
        classes: 0: no labels.
        hits: Extra samples answered with their label.
        control_hits: Control samples answered with their label.
        invalid: Answers that do not count: not finite, or not a class.
        needed: Hits that the binomial test asks for.
        needed_against_control: Hits that the other test asks for, given the controls' hits.
        needed_for_acceptance: Hits that acceptance takes, given the controls' hits: no fewer than
            the other two.
        known: Estimated share of the extra samples that the model knows.
        effect: Without labels: share of pairs of one grade in which the extra sample has a smaller
            error than the control; 0.5 by chance.
        needed_effect: Without labels: what acceptance takes; more than 1 when nothing is enough.
        p_value: Of the binomial test (without labels: of the ranks of errors).
        control_p_value: Of the comparison with the controls.
        acceptance_p_value: Of the comparison with what a model hits that knows `least_known`
            (without labels: with `least_effect`).
        level: What all three are compared with.
        submission: Which submission this was, from 1 on.
        grades: Rows {"grade", "samples", "hits"}, easiest first.
        progress: None without reference curves.
        limits: What this result does not say.
        findings: As reports have them.
    """

    verdict: str
    reason: str
    samples: int
    controls: int
    classes: int
    hits: int
    control_hits: int
    invalid: int
    needed: int
    needed_against_control: int
    needed_for_acceptance: int
    known: float
    effect: float
    needed_effect: float
    p_value: float
    control_p_value: float
    acceptance_p_value: float
    level: float
    submission: int
    grades: tuple[Mapping[str, str | int], ...]
    progress: ExtraProgress | None
    limits: tuple[str, ...]
    findings: tuple[_core.Finding, ...] = field(repr=False)

    @staticmethod
    def _of(found: _core.ExtraJudged) -> ExtraResult:
        progress = found["progress"]
        values = _values(
            found,
            grades=tuple(map(Row, found["grades"])),
            progress=None if progress is None else ExtraProgress(**progress),
            limits=tuple(found["limits"]),
            findings=tuple(found["findings"]),
        )
        del values["hash"]
        return ExtraResult(**values)

    @property
    def exit_code(self) -> int:
        """0 accepted, 1 rejected, 3 inconclusive."""
        return {"accepted": 0, "rejected": 1, "inconclusive": 3}[self.verdict]

    def document(self) -> dict[str, object]:
        """JSON values: no key, no samples."""
        names = [name for name in self.__dataclass_fields__ if name != "findings"]
        return {name: _plain(getattr(self, name)) for name in names}

    def json(self) -> str:
        """`document` as JSON."""
        return json.dumps(self.document(), indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, ExtraProgress):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def curves_of(given: Sequence[Any]) -> Curves:
    """Reference curves from JSON values.

    Raises:
        UsageError: They are none.
    """
    try:
        return tuple(_curve(*one) for one in given)
    except (OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"a calibration holds no reference curves: {error}",
            "give [[grade, [[share of the training, hit rate], ...], samples], ...]",
        ) from error


def _curve(
    grade: Any, points: Any, samples: Any = 0
) -> tuple[str, tuple[tuple[float, float], ...], int]:
    if isinstance(samples, bool) or int(samples) != samples or samples < 0:
        raise ValueError(f"{samples!r} is not a number of samples")
    return str(grade), tuple((float(share), float(rate)) for share, rate in points), int(samples)
