# SPDX-License-Identifier: Apache-2.0
"""Verdicts of an extra task on models: what they answer is judged, and counted as a submission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any

import numpy as np

from .. import _core
from .._base._errors import UsageError
from ._asking import BATCH, Asking
from ._identity import digest_of, kept, place_of
from ._predict import Ask, Floats
from ._result import Curves, ExtraResult
from ._unread import is_unread, unjudged
from ._uploaded import require_same


class Judging(Asking):
    """`verify`, `judge`, `calibrate` and what they need."""

    _curves: Curves

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
        self.require_made()
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
        with self._key.changing() as known:
            self._require_made(known)
            before = submitted = known["submissions"]
            answers = np.concatenate([extra, control]).astype(np.float64)
            again = model and place_of(submitted, model, answers, self._form.classes)
            if again:
                before = submitted[: again[0]]
                if again[1] is not None:
                    extra, control = np.split(again[1], [len(extra)])
            found = self._judged(extra, control, [bytes.fromhex(one["answers"]) for one in before])
            if found["invalid"] and is_unread(found, answers):
                return ExtraResult._of(unjudged(found, answers, self._form))
            if not again and int(found["submission"]) > len(submitted):
                values = None if model is None else kept(answers, len(submitted))
                one = {"answers": bytes(found["hash"]).hex(), "model": model}
                submitted.append(one if values is None else {**one, "values": values})
        return ExtraResult._of(found)

    def require_made(self) -> None:
        """Asks about nothing that was never uploaded.

        Raises:
            UsageError: These samples were never mixed or made with this key.
        """
        if self._recorded is None:
            self._require_made(self._key.known())

    def _require_made(self, known: Mapping[str, Any]) -> None:
        recorded = known.get("task")
        if recorded is None or recorded != self._recorded:
            require_same(self.record(), recorded, usual_options(), self._key.path)
            self._recorded = recorded

    def _judged(
        self, extra: Floats, control: Floats, earlier: Sequence[bytes], curves: bool = True
    ) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if curves and self._curves:
            # Whoever wrote no number of samples down is taken to have measured with as many.
            own = self._planned.samples // len(self._planned.grades)
            given = {
                "curves": [(grade, points) for grade, points, _ in self._curves],
                "measured": [samples or own for *_, samples in self._curves],
            }
        return _core.judge_extra_task(
            options=self.options(),
            samples=self._planned.samples,
            classes=self._form.classes,
            extra=np.ascontiguousarray(extra, np.float64),
            control=np.ascontiguousarray(control, np.float64),
            earlier=list(earlier),
            **given,
        )

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
        self.require_made()
        if self._form.classes == 0:
            raise UsageError(
                "progress is estimated from hits, and these data have no labels",
                "without labels compare the effects of results",
            )
        points: dict[str, list[tuple[float, float]]] = {}
        counts: dict[str, int] = {}
        for share, model in models:
            if not isinstance(share, Real) or not 0 <= share <= 1:
                raise UsageError(
                    f"a share of the training is {share!r}",
                    "shares are from 0 to 1, which is what a converged model needs",
                )
            is_module = hasattr(model, "parameters")
            extra, control = self.answers(
                model if is_module else None,
                predict=None if is_module else model,
                transform=transform if is_module else None,
            )
            found = self._judged(extra, control, (), curves=False)
            if found["invalid"]:
                raise UsageError(
                    f"the model at {share:g} of the training: {found['reason']}",
                    "a reference model answers every sample with a class",
                )
            for row in found["grades"]:
                rate = row["hits"] / max(1, row["samples"])
                counts[str(row["grade"])] = int(row["samples"])
                points.setdefault(str(row["grade"]), []).append((float(share), rate))
        if not points:
            raise UsageError("there are no reference models", "give one or more")
        return tuple((grade, tuple(sorted(rows)), counts[grade]) for grade, rows in points.items())


def usual_options() -> dict[str, Any]:
    """The defaults, which files that were written before an option existed have."""
    return {row["name"]: row["default"] for row in _core.check_fields("extra_task")}
