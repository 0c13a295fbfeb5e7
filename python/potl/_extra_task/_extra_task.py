# SPDX-License-Identifier: Apache-2.0
"""`ExtraTask`: secret samples in the training data show whether the returned model converged."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _core
from .._base._errors import UsageError
from .._checks._checks import Check
from ._data import View
from ._form import Form
from ._form_options import require_mixed
from ._judging import Judging, usual_options
from ._key import ExtraKey
from ._mixing import Mixing
from ._result import ExtraPlan, curves_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")


def _remembering(init: Callable[P, None]) -> Callable[P, None]:
    """Keeps which options were given, so that a default that is given is not taken for none."""

    @functools.wraps(init)
    def remembering(*arguments: P.args, **options: P.kwargs) -> None:
        made: Any = arguments[0]
        made._given = frozenset(options)
        init(*arguments, **options)

    return remembering


class ExtraTask(Mixing, Judging, Check):
    """Secret samples with random labels, mixed into training data and asked about afterwards.

    A model learns them only after its real task, so many right answers say "trained until it
    converged". In `potl.verify` it adds evidence: it can reject, and never accepts alone.

    Args:
        key: The key's file, from `ExtraTask.keygen`. Use one key for one model.
        like: Training data, whose form the samples take. None: as the key's file says, after `mix`.
        classes: Classes of the task; None: as the labels say; 0: no labels.
        kind: "image", "text", "table", "autoencoder" or "language"; None: detected.
        length: Words of an extra text, no more than the model reads; None: the median of the data.
        padding: Id of padding; None: detected.
        axes: "HW", "HWC" or "CHW"; None: detected.
        transform: From an item's input to the model's, as in evaluation; None: that of a
            torchvision data set, else none.
        calibration: Reference curves from `calibrate`, for `progress`.
        eta: Extra samples as a share of the training data; small sets get more, so that there are
            200.
        fixed: Share of an extra sample that all of them have in common.
        alpha: Probability of accepting a model that learned no more than epsilon of them.
        epsilon: Share of the extra samples that a model may learn without being called trained.
        least_known: An accepted model knows more than this share of the extra samples; between
            epsilon and this the result is inconclusive.
        least_effect: Without labels: an accepted model's error on an extra sample is below that on
            a control with more than this probability; 0.5: any significant difference is enough.
        layout: "jittered": no region has equal bytes in two samples, except by chance in images
            that are small or have few levels; "paper": random rows and columns first, the rest
            equal.
        grades: Fixed shares of the difficulty ladder, as in "0.75" or "noisy:0.75" (three copies,
            one mislabelled); empty: the layout's own.
        control: Control samples, never uploaded, for each extra sample.
        submissions: Models that may be handed in for one key; they share alpha.
        jitter: Jittered: how far a sample is shifted, as a share of its side or length.
        noise: Jittered: levels (of 255) by which each pixel moves.
        brightness: Jittered: levels by which a whole image moves.
        failing: "reject" or "inconclusive": verdict for a model that has not learned the extra
            samples.

    Raises:
        UsageError: The data have no form that samples could take, or an option does not fit.
    """

    name: ClassVar[str] = "extra_task"
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    _given: frozenset[str]

    @_remembering
    def __init__(
        self,
        key: ExtraKey | str | os.PathLike[str],
        *,
        like: Any = None,
        classes: int | None = None,
        kind: str | None = None,
        length: int | None = None,
        padding: int | None = None,
        axes: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        calibration: Sequence[Any] = (),
        eta: float = 0.008,
        fixed: float = 0.75,
        alpha: float = 0.01,
        epsilon: float = 0.03,
        least_known: float = 0.15,
        least_effect: float = 0.68,
        layout: str = "jittered",
        grades: Sequence[str] = (),
        control: int = 4,
        submissions: int = 1,
        jitter: float = 1.0,
        noise: int = 6,
        brightness: int = 12,
        failing: str = "reject",
    ) -> None:
        own = {
            "eta": eta, "fixed": fixed, "alpha": alpha, "epsilon": epsilon,
            "least_known": least_known, "least_effect": least_effect, "layout": layout,
            "grades": list(grades), "control": control, "submissions": submissions,
            "jitter": jitter, "noise": noise, "brightness": brightness, "failing": failing,
        }  # fmt: skip
        self._key = key if isinstance(key, ExtraKey) else ExtraKey(key)
        self._curves = curves_of(calibration)
        self._through_pillow = False
        self._recorded = None
        self._transform_given = transform is not None
        known = self._key.known()
        if like is not None:
            view = View(like)
            self._form = Form.learn(
                view, classes=classes, kind=kind, length=length, padding=padding, axes=axes
            )
            self._training_samples = len(view)
            self._options = own
            self._through_pillow = view.through_pillow
            transform = transform or view.transform
        elif "task" not in known:
            raise UsageError(
                f"nothing was mixed with {self._key.path} yet",
                "pass like=, the training data, or keep the file NAME.json beside the key",
            )
        else:
            task = known["task"]
            self._form = Form.of(task["form"])
            require_mixed(
                self._form, self._key.path, kind,
                classes=classes, length=length, padding=padding, axes=axes,
            )  # fmt: skip
            self._training_samples = int(task["training_samples"])
            self._through_pillow = bool(task["through_pillow"])
            # Files that were written before an option existed have its default.
            self._options = usual_options() | task["options"]
            self._refuse_changes(own)
            learning = {"length": length, "padding": padding, "axes": axes}
            self._refuse_other_form({"classes": classes, "kind": kind, **learning})
            self._recorded = task
        self._transform = transform
        self._planned = plan_of(
            self._training_samples, self._form.classes, self._options, self._form
        )
        self._samples = _core.ExtraSamples(
            self._key.secret,
            self._form.content.description(),
            samples=self._planned.samples,
            classes=self._form.classes,
            options=self._options,
        )

    @staticmethod
    def keygen(path: str | os.PathLike[str]) -> ExtraKey:
        """Writes a new secret key, readable by its owner alone. Existing files are never replaced.

        Raises:
            UsageError: The file exists.
        """
        return ExtraKey.generate(path)

    @staticmethod
    def needed_hits(
        *,
        samples: int,
        classes: int,
        alpha: float = 0.01,
        epsilon: float = 0.03,
        submissions: int = 1,
    ) -> int:
        """Hits that the binomial test asks for; samples + 1 when no number is enough.

        >>> ExtraTask.needed_hits(samples=400, classes=10, alpha=0.01, epsilon=0.03)
        68
        """
        for name, value in (
            ("samples", samples),
            ("classes", classes),
            ("submissions", submissions),
        ):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
                raise UsageError(f"{name} is {value!r}", "pass a whole number")
        return _core.extra_needed_hits(
            samples=samples, classes=classes, alpha=alpha, epsilon=epsilon, submissions=submissions
        )

    @staticmethod
    def plan(data: Any, *, classes: int | None = None, **options: Any) -> ExtraPlan:
        """Sizes, threshold, power and cost for a data set, or for a number of samples.

        Args:
            data: Training data, or the number of samples; then `classes` is needed.
            classes: As for `ExtraTask`.
            options: Of `ExtraTask`: eta, fixed, alpha, ...
        """
        if isinstance(data, Integral):
            if classes is None:
                raise UsageError("a number of samples says nothing of classes", "pass classes=")
            count = int(data)
            if not 0 < count < 2**63 or classes < 0:
                raise UsageError(
                    f"there are {count} samples of {classes} classes", "pass 1 or more"
                )
            return plan_of(count, classes, options)
        view = View(data)
        learning = {
            name: options.pop(name)
            for name in ("kind", "length", "padding", "axes")
            if name in options
        }
        form = Form.learn(view, classes=classes, **learning)
        return plan_of(len(view), form.classes, options, form)

    def __repr__(self) -> str:
        plan = self._planned
        return f"ExtraTask({plan.samples} samples, {plan.classes} classes, {plan.needed} needed)"

    def _refuse_changes(self, given: dict[str, Any]) -> None:
        for name, value in given.items():
            if name in self._given and value != self._options[name]:
                if name == "failing":
                    self._options[name] = value
                    continue
                raise UsageError(
                    f"{name} is {value!r}, but the data were mixed with {self._options[name]!r}",
                    "leave it out: the file beside the key knows",
                )

    def _refuse_other_form(self, given: dict[str, Any]) -> None:
        form, content = self._form, self._form.content
        kinds = {"classes": content.plain()["kind"], "reconstruction": "autoencoder"}
        known = {
            "classes": form.classes,
            "kind": kinds.get(form.objective, form.objective),
            "length": getattr(content, "length", 0) - form.pairs or None,
            "padding": getattr(content, "padding", None),
            "axes": getattr(content, "axes", None),
        }
        for name, value in given.items():
            if value is not None and value != known[name]:
                raise UsageError(
                    f"{name} is {value!r}, but the data were mixed with {known[name]!r}",
                    "leave it out: the file beside the key knows",
                )


def plan_of(
    training_samples: int, classes: int, options: dict[str, Any], form: Form | None = None
) -> ExtraPlan:
    """The plan of a task with these sizes.

    Raises:
        UsageError: Samples of this form could not be told apart.
    """
    options = {**options, "grades": list(options.get("grades", ()))}
    found = _core.plan_extra_task(
        training_samples=training_samples,
        classes=classes,
        options=options,
        content=None if form is None else form.content.description(),
    )
    usual = {**usual_options(), **options}
    warnings = [] if form is None else form.warnings(found["samples"], usual)
    return ExtraPlan._of({**found, "warnings": [*found["warnings"], *warnings]})
