# SPDX-License-Identifier: Apache-2.0
"""The design of an extra task: the form of the data, their number, and the options.

With the key it determines every sample. The file beside the key keeps it, so that the key is enough
to ask about the samples. It also protects the trainer: a model cannot know samples that were never
uploaded, and rejecting it for them would blame the trainer for a mistake of the client's.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

from .. import _core
from .._base._errors import UsageError
from ._form import Form, Hints
from ._key import ExtraKey, FormDocument, Known, Task
from ._result import ExtraPlan


class ExtraOptions(TypedDict, total=False):
    """How extra samples are made, and what a model must know of them: keyword arguments of
    `ExtraTask` and `ExtraTask.plan`.

    Attributes:
        eta: Extra samples as a share of the training data; small sets get more, so that there are
            200. Default 0.008.
        fixed: Share of an extra sample that all of them have in common. Default 0.75.
        alpha: Probability of accepting a model that learned no more than epsilon of them. Default
            0.01.
        epsilon: Share of the extra samples that a model may learn without being called trained.
            Default 0.03.
        least_known: An accepted model knows more than this share of the extra samples; between
            epsilon and this the result is inconclusive. Default 0.15.
        least_effect: Without labels: an accepted model's error on an extra sample is below that on
            a control with more than this probability; 0.5: any significant difference is enough.
            Default 0.68.
        layout: "jittered" (default): no region has equal bytes in two samples, except by chance in
            images that are small or have few levels; "paper": random rows and columns first, the
            rest equal.
        grades: Fixed shares of the difficulty ladder, as in "0.75" or "noisy:0.75" (three copies,
            one mislabelled); empty (default): the layout's own.
        control: Control samples, never uploaded, for each extra sample. Default 4.
        submissions: Models that may be handed in for one key; they share alpha. Default 1.
        jitter: Jittered: how far a sample is shifted, as a share of its side or length. Default 1.
        noise: Jittered: levels (of 255) by which each pixel moves. Default 6.
        brightness: Jittered: levels by which a whole image moves. Default 12.
        failing: "reject" (default) or "inconclusive": verdict for a model that has not learned the
            extra samples.
    """

    eta: float
    fixed: float
    alpha: float
    epsilon: float
    least_known: float
    least_effect: float
    layout: str
    grades: Sequence[str]
    control: int
    submissions: int
    jitter: float
    noise: int
    brightness: int
    failing: str


def with_defaults(given: Mapping[str, object]) -> ExtraOptions:
    """All options: those that are given, and the others as the field table in C++ has them."""
    usual = {row["name"]: _default(row) for row in _core.check_fields("extra_task")}
    grades = list(cast(Sequence[str], given.get("grades", ())))
    return cast(ExtraOptions, {**usual, **given, "grades": grades})


def _default(row: _core.CheckField) -> object:
    # JSON has no 1.0: a whole number is read back as an integer.
    default = row["default"]
    return float(default) if row["type"] == "number" and isinstance(default, int) else default


def plan_of(
    training_samples: int, classes: int, options: ExtraOptions, form: Form | None = None
) -> ExtraPlan:
    """Sizes, threshold, power and cost of a task with all these options.

    Raises:
        UsageError: An option does not fit, or samples of this form could not be told apart.
    """
    found = _core.plan_extra_task(
        training_samples=training_samples,
        classes=classes,
        options=options,
        content=None if form is None else form.content.description(),
    )
    if form is not None:
        jittered = options["layout"] == "jittered"
        found["warnings"] += form.warnings(found["samples"], jittered, options["noise"])
    return ExtraPlan._of(found)


@dataclass(frozen=True)
class Design:
    """What determines the samples, apart from the key, and how answers are judged.

    Attributes:
        training_samples: Items of the data.
        through_pillow: `transform` gets Pillow images of what a torchvision data set stores.
        options: All of them, not only those that were given.
    """

    form: Form
    training_samples: int
    through_pillow: bool
    options: ExtraOptions

    @staticmethod
    def opened(task: Task, hints: Hints | None = None, given: ExtraOptions | None = None) -> Design:
        """The design that a key's file keeps. An option that is missing there has its default.

        Args:
            task: What `plain` gave.
            hints: What the caller says of the data.
            given: The options that the caller gives. `failing` may differ from the file's.

        Raises:
            UsageError: A hint or another option differs from the file.
        """
        form, options = Form.of(task["form"]), with_defaults(task["options"])
        chosen: ExtraOptions = {} if given is None else given.copy()
        if "grades" in chosen:
            chosen["grades"] = list(chosen["grades"])
        options["failing"] = chosen.get("failing", options["failing"])
        said = {} if hints is None else hints.given()
        _require_equal({**said, **chosen}, {**form.hints(), **options}, "it")
        return Design(form, task["training_samples"], task["through_pillow"], options)

    @functools.cached_property
    def plan(self) -> ExtraPlan:
        """Sizes, threshold, power and cost."""
        return plan_of(self.training_samples, self.form.classes, self.options, self.form)

    @functools.cached_property
    def plain(self) -> Task:
        """What the file beside the key keeps, as it is read from there."""
        return {
            "form": cast(FormDocument, _as_read(self.form.plain())),
            "training_samples": self.training_samples,
            "through_pillow": self.through_pillow,
            "options": self.options,
            "samples": self.plan.samples,
        }


class Uses:
    """Whether the samples of a design were made with a key, as the file beside it says."""

    def __init__(self, key: ExtraKey, design: Design, recorded: Task | None = None) -> None:
        self._key, self._design = key, design
        # The record in the key's file that is known to be of this design; None: not compared yet.
        self._recorded = recorded

    def add(self, what: str) -> None:
        """Notes that the samples were made, and warns if the key was used before."""
        with self._key._changing() as known:
            if known["uses"]:
                warnings.warn(
                    f"{self._key.path} was used before: two data sets with the same extra samples "
                    "show which ones these are; use a new key for every model",
                    stacklevel=3,
                )
            known["task"] = self._design.plain
            known["uses"].append({"what": what, "time": time.time()})
        self._recorded = self._design.plain

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Takes back what is added in this block if the block raises."""
        before, recorded = self._key._known(), self._recorded
        try:
            yield
        except Exception:
            with self._key._changing() as known:
                if known["uses"][:-1] == before["uses"]:  # nobody else has used it since
                    known["uses"] = before["uses"]
                    known.pop("task", None)
                    if "task" in before:
                        known["task"] = before["task"]
            self._recorded = recorded
            raise

    def require_made(self, known: Known | None = None) -> None:
        """Refuses to ask about samples that were not made with this key last.

        Args:
            known: What the file beside the key holds; None: it is read unless it was before.

        Raises:
            UsageError: The samples were never made, or with another form or other options.
        """
        if known is None and self._recorded is not None:
            return
        recorded = (self._key._known() if known is None else known).get("task")
        if recorded is None:
            raise UsageError(
                f"no samples were made with {self._key.path} yet, so that no model can know any",
                "mix(data) or make() first, and train on that; if the file NAME.json beside the "
                "key was lost, mix the same data again: that gives the same samples",
            )
        if recorded == self._recorded:
            return
        own, other = self._design.plain, Design.opened(recorded)
        options = {**self._design.options, "failing": other.options["failing"]}
        _require_equal(options, other.options, "like= and options")
        differing = [
            *_differing(own["form"], _as_read(other.form.plain())),
            *(["samples"] if own["samples"] != recorded["samples"] else []),
            *(["through_pillow"] if own["through_pillow"] != recorded["through_pillow"] else []),
        ]
        if differing:
            raise UsageError(
                "like= has another form than the data that were mixed: "
                f"{', '.join(differing[:4])} differ",
                "leave like= out: the file beside the key knows the form",
            )
        self._recorded = recorded


def _as_read(document: Mapping[str, object]) -> Mapping[str, object]:
    """A document as it is read from a file."""
    read: Mapping[str, object] = json.loads(json.dumps(document))
    return read


def _require_equal(given: Mapping[str, object], own: Mapping[str, object], what: str) -> None:
    for name, value in given.items():
        if value != own.get(name):
            raise UsageError(
                f"{name} is {value!r}, but the data were mixed with {own.get(name)!r}",
                f"leave {what} out: the file beside the key knows",
            )


def _differing(own: object, other: object, name: str = "") -> Iterator[str]:
    if isinstance(own, dict) and isinstance(other, dict):
        for key in own.keys() | other.keys():
            yield from _differing(own.get(key), other.get(key), key)
    elif own != other:
        yield name
