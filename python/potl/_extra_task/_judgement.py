# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a model's answers, and which answers count as a submission."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from .. import _core
from .._base._errors import UsageError
from ._design import Design, Uses
from ._key import ExtraKey
from ._outputs import most_common
from ._result import Curves, ExtraResult
from ._submissions import kept, place_of
from ._values import Floats


class Judgement:
    """Judges answers about the samples of a design."""

    def __init__(self, key: ExtraKey, design: Design, uses: Uses, curves: Curves) -> None:
        self._key, self._design, self._uses, self._curves = key, design, uses, curves

    def submitted(self, extra: Floats, control: Floats, model: str | None) -> ExtraResult:
        """Judges answers, and counts them as a submission unless they, or about the same answers of
        the model with this digest, were judged before: then those are.

        Raises:
            UsageError: These samples were never made with this key.
        """
        with self._key._changing() as known:
            self._uses.require_made(known)
            before = submitted = known["submissions"]
            answers = np.concatenate([extra, control]).astype(np.float64)
            again = model and place_of(submitted, model, answers, self._design.form.classes)
            if again:
                place, first = again
                before = submitted[:place]
                extra, control = np.split(first, [len(extra)])
            found = self._found(extra, control, [bytes.fromhex(one["answers"]) for one in before])
            if found["invalid"] and _is_unread(found["invalid"], answers):
                return ExtraResult._of(self._unjudged(found, answers))
            if not again and int(found["submission"]) > len(submitted):
                values = None if model is None else kept(answers, len(submitted))
                submitted.append({"answers": bytes(found["hash"]).hex(), "model": model})
                if values is not None:
                    submitted[-1]["values"] = values
        return ExtraResult._of(found)

    def alone(self, extra: Floats, control: Floats) -> ExtraResult:
        """Judges answers as if they were the first ones, and counts nothing."""
        return ExtraResult._of(self._found(extra, control, ()))

    def _found(
        self, extra: Floats, control: Floats, earlier: Sequence[bytes], curves: bool = True
    ) -> _core.ExtraJudged:
        plan, known = self._design.plan, self._curves if curves else ()
        # Whoever wrote no number of samples down is taken to have measured with as many.
        own = plan.samples // len(plan.grades)
        return _core.judge_extra_task(
            options=self._design.options,
            samples=plan.samples,
            classes=self._design.form.classes,
            extra=np.ascontiguousarray(extra, np.float64),
            control=np.ascontiguousarray(control, np.float64),
            earlier=list(earlier),
            curves=[(grade, points) for grade, points, _ in known],
            measured=[measured or own for *_, measured in known],
        )

    def _unjudged(self, found: _core.ExtraJudged, answers: Floats) -> _core.ExtraJudged:
        """A result without what it would say of the model."""
        reason, form = str(found["reason"]), self._design.form
        if form.classes:
            known = answers[np.isfinite(answers)]
            classes = np.arange(form.classes)
            wrong = [form.items.number_of(float(one)) for one in known[~np.isin(known, classes)]]
            if wrong:
                reason += f", as {most_common([int(x) if x.is_integer() else x for x in wrong])}"
            labels = form.items.values
            some = ", ".join(map(str, labels[:5])) + (", ..." if len(labels) > 5 else "")
            reason += f"; classes are {some or f'0 to {form.classes - 1}'}"
        reason += (
            ". Nothing was judged, and this is not a submission: correct how answers are written"
        )
        findings = [copy.copy(one) for one in found["findings"]]
        for one in findings:
            one.reason = reason
        return {
            **found, "reason": reason, "hits": 0, "control_hits": 0, "known": 0.0,
            "grades": [{**row, "hits": 0} for row in found["grades"]],
            "findings": findings,
        }  # fmt: skip

    def curves(
        self,
        models: Iterable[tuple[float, Any]],
        ask: Callable[[Any], tuple[Floats, Floats]],
    ) -> Curves:
        """Reference curves of (share of the training, model) pairs.

        Raises:
            UsageError: There are no labels, a share is not within 0 and 1, or a model gives answers
                that are none.
        """
        if self._design.form.classes == 0:
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
            found = self._found(*ask(model), (), curves=False)
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


def _is_unread(invalid: int, answers: Floats) -> bool:
    """Whether answers were written wrongly, so that they say nothing of the model: some are numbers
    that are not classes, or all are missing. (A missing one here and there is the model's own.)
    Such answers are not judged and are not a submission. Nothing is said of their hits, so that
    nobody can choose among models this way.
    """
    missing = int((~np.isfinite(answers)).sum())
    return missing == len(answers) or invalid > missing
