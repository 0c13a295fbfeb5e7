# SPDX-License-Identifier: Apache-2.0
"""`ExtraTask`: secret samples in the training data show whether the returned model converged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _core
from .._base._errors import UsageError
from .._checks._checks import AnyCheck
from ._data import View
from ._design import Design, ExtraOptions, Uses, plan_of, with_defaults
from ._form import Form, Hints
from ._judgement import Judgement
from ._key import ExtraKey
from ._questions import BATCH, Ask, Questions
from ._result import Curves, ExtraPlan, ExtraResult, curves_of
from ._samples import Samples
from ._submissions import digest_of
from ._values import Floats

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ExtraTask(AnyCheck):
    """Secret samples with random labels, mixed into training data and asked about afterwards.

    A model learns them only after its real task, so many right answers say "trained until it
    converged". In `potl.verify` it adds evidence: it can reject, and never accepts alone.

    After `mix` the key's file is enough: it knows the form of the data and the options.

    Args:
        key: The key's file, from `ExtraTask.keygen`. Use one key for one model.
        like: Training data, whose form the samples take. None: as the key's file says, after `mix`.
        classes: Of the data: number of classes; None: as the labels say; 0: no labels.
        kind: Of the data: "image", "text", "table", "autoencoder" or "language"; None: detected.
        length: Words of an extra text, no more than the model reads; None: the median of the data.
        padding: Of the data: id of padding; None: detected.
        axes: Of the data: "HW", "HWC" or "CHW"; None: detected.
        transform: From an item's input to the model's, as in evaluation; None: that of a
            torchvision data set, else none.
        calibration: Reference curves from `calibrate`, for `progress`.
        **options: How samples are made and judged: see `ExtraOptions`.

    Raises:
        UsageError: The data have no form that samples could take, or an option does not fit.
    """

    name: ClassVar[str] = "extra_task"
    __eq__ = object.__eq__
    __hash__ = object.__hash__

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
        **options: Unpack[ExtraOptions],
    ) -> None:
        hints = Hints(classes=classes, kind=kind, length=length, padding=padding, axes=axes)
        self.key = key if isinstance(key, ExtraKey) else ExtraKey(key)
        self._transform, self._transform_given = transform, transform is not None
        curves = curves_of(calibration)
        recorded = None
        if like is not None:
            view = View(like)
            self._transform = transform or view.transform
            form, chosen = Form.learn(view, hints), with_defaults(options)
            self.design = Design(form, len(view), view.through_pillow, chosen)
        else:
            recorded = self.key._known().get("task")
            if recorded is None:
                raise UsageError(
                    f"nothing was mixed with {self.key.path} yet",
                    f"mix its samples into your data first, or put back {self.key.path}.json, "
                    "which `potl extra-task mix` wrote; in Python, like= takes the data instead",
                )
            self.design = Design.opened(recorded, hints, options)
        self.samples = Samples(self.key, self.design)
        self._uses = Uses(self.key, self.design, recorded)
        self._questions = Questions(self.key, self.design, self.samples)
        self.judgement = Judgement(self.key, self.design, self._uses, curves)

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
    def plan(
        data: Any,
        *,
        classes: int | None = None,
        kind: str | None = None,
        length: int | None = None,
        padding: int | None = None,
        axes: str | None = None,
        **options: Unpack[ExtraOptions],
    ) -> ExtraPlan:
        """Sizes, threshold, power and cost for a data set, or for a number of samples.

        Args:
            data: Training data, or the number of samples; then `classes` is needed.
            classes: As for `ExtraTask`.
            kind: As for `ExtraTask`.
            length: As for `ExtraTask`.
            padding: As for `ExtraTask`.
            axes: As for `ExtraTask`.
            **options: See `ExtraOptions`.
        """
        chosen = with_defaults(options)
        if isinstance(data, Integral):
            if classes is None:
                raise UsageError("a number of samples says nothing of classes", "pass classes=")
            count = int(data)
            if not 0 < count < 2**63 or classes < 0:
                raise UsageError(
                    f"there are {count} samples of {classes} classes", "pass 1 or more"
                )
            return plan_of(count, classes, chosen)
        view = View(data)
        hints = Hints(classes=classes, kind=kind, length=length, padding=padding, axes=axes)
        form = Form.learn(view, hints)
        return plan_of(len(view), form.classes, chosen, form)

    def __repr__(self) -> str:
        plan = self.planned
        return f"ExtraTask({plan.samples} samples, {plan.classes} classes, {plan.needed} needed)"

    def options(self) -> dict[str, object]:
        """All options of the field table. The key is none of them."""
        return {**self.design.options, "grades": list(self.design.options["grades"])}

    @property
    def planned(self) -> ExtraPlan:
        """Sizes, threshold, power and cost of this task."""
        return self.design.plan

    @property
    def _form(self) -> Form:
        """How the data look."""
        return self.design.form

    @property
    def transform(self) -> Callable[[Any], Any] | None:
        """What makes a model's input of an item's."""
        return self._transform

    @property
    def _reads_stored_images(self) -> bool:
        """Whether `transform` gets Pillow images of what a torchvision data set stores."""
        return self.design.through_pillow

    # ------------------------------------------------------------------ making the upload

    def mix(self, data: Any) -> Any:
        """The data with the extra samples among them, in a secret order: this is uploaded.

        The same kind of container: arrays, tensors, a `TensorDataset`, a torchvision data set, a
        list; any other map-style data set is read and becomes a plain list of its items. What is
        returned holds neither the key nor a mark of which items are extra. What a training needs
        to know of it, such as its length, is the mixed data's.

        Raises:
            UsageError: The data have another form than `like`.
        """
        view = View(data)
        if len(view) != self.design.training_samples:
            raise UsageError(
                f"there are {len(view)} samples, and the task was made for "
                f"{self.design.training_samples}",
                "pass like= the same data",
            )
        self.samples.require_like(view)
        mixed = view.mixed(*self._uploads())
        if self._form.classes:
            View(mixed).require_labels(self._form.items, self._form.labels)
        self._uses.add("mix")
        return mixed

    def uploads(self) -> tuple[list[Any], list[int]]:
        """The extra items, and the secret order of real ones (their numbers) and extra ones (the
        numbers after them): what `mix` mixes.
        """
        made = self._uploads()
        self._uses.add("mix")
        return made

    def _uploads(self) -> tuple[list[Any], list[int]]:
        return self.samples.items(), self.samples.order(self.design.training_samples).tolist()

    def make(self) -> list[Any]:
        """The extra items alone, in a secret order, for data that are mixed by other means.

        Put them at places that nobody can guess: `mix` does that.
        """
        made = self.samples.items(self.samples.order(0).tolist())
        self._uses.add("make")
        return made

    def _using(self) -> AbstractContextManager[None]:
        """What `uploads` and `make` give in this block counts as a use of the key only if the block
        ends well: data that could not be written are none. Who is killed on the way has used it.
        """
        return self._uses.undone_on_error()

    # ------------------------------------------------------------------ asking and judging

    def questions(self) -> list[tuple[str, int]]:
        """("extra" | "control", index) of every question, in the secret order of asking."""
        return self._questions.order()

    def inputs(self, questions: Sequence[tuple[str, int]]) -> list[Any]:
        """What a model is asked."""
        return self._questions.inputs(questions)

    def _sorted(self, answers: Floats) -> tuple[Floats, Floats]:
        """Answers in the order of `questions`, as those of extra and of control samples."""
        return self._questions.sorted(answers)

    def _as_asked(self, transform: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        """What makes a model's input of a stored one; None: nothing has to."""
        return self._questions.as_asked(transform or self._transform)

    def answers(
        self,
        model: Any = None,
        *,
        predict: Ask | None = None,
        batch_size: int = BATCH,
        transform: Callable[[Any], Any] | None = None,
    ) -> tuple[Floats, Floats]:
        """Answers for all extra and all control samples, in order of indices. Judges nothing."""
        if predict is not None and (transform is not None or self._transform_given):
            raise UsageError(
                "transform= is for torch modules: predict gets inputs as they were uploaded",
                "leave transform= out, and transform inputs in predict",
            )
        return self._questions.answers(model, predict, batch_size, transform or self._transform)

    def verify(
        self,
        model: Any = None,
        *,
        predict: Ask | None = None,
        batch_size: int = BATCH,
        transform: Callable[[Any], Any] | None = None,
    ) -> ExtraResult:
        """Asks a model about the extra samples and about controls, and judges the answers.

        Args:
            model: A torch module. It is evaluated without gradients; its mode is restored.
            predict: Instead, a function of a list of inputs that returns class numbers or rows of
                scores (without labels: reconstructions, scores of next words, or errors). Extra and
                control samples come in a secret order.
            batch_size: Samples asked about at once.
            transform: As for `ExtraTask`.

        Raises:
            PredictionError: `predict` raised. This is neither a verdict nor a submission.
            UsageError: The answers have the wrong shape, neither a model nor a function was
                given, or these samples were never mixed or made with this key.
        """
        self._require_made()
        with ThreadPoolExecutor(1) as beside:
            digest = None if model is None else beside.submit(digest_of, model)
            answers = self.answers(
                model, predict=predict, batch_size=batch_size, transform=transform
            )
        return self.judge(*answers, model=None if digest is None else digest.result())

    def judge(self, extra: Floats, control: Floats, *, model: str | None = None) -> ExtraResult:
        """Judges answers in order of indices, and counts them as a submission unless they, or about
        the same answers of the model with this digest, were judged before: then those are.

        Raises:
            UsageError: These samples were never mixed or made with this key, so that no model can
                know them.
        """
        return self.judgement.submitted(extra, control, model)

    def _require_made(self) -> None:
        """Refuses to ask about samples that were never uploaded.

        Raises:
            UsageError: These samples were never mixed or made with this key.
        """
        self._uses.require_made()

    def calibrate(
        self,
        models: Iterable[tuple[float, Any]],
        *,
        transform: Callable[[Any], Any] | None = None,
    ) -> Curves:
        """Reference curves from models along a training of the client's own, on data that were
        mixed with this key (another one than that of the job).

        Args:
            models: (share of the training that a converged model needs, torch module or predict
                function) pairs, looked at one by one.
            transform: As for `ExtraTask`.

        Returns:
            What `calibration=` takes; JSON values.

        Raises:
            UsageError: There are no labels, a share is not within 0 and 1, or a model gives answers
                that are none.
        """
        self._require_made()

        def ask(model: Any) -> tuple[Floats, Floats]:
            if hasattr(model, "parameters"):
                return self.answers(model, transform=transform)
            return self.answers(predict=model)

        return self.judgement.curves(models, ask)
