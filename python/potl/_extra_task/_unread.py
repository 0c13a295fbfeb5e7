# SPDX-License-Identifier: Apache-2.0
"""Answers that say how they were written, and nothing of the model: they are not judged, and are no
submission. So that nobody chooses among models that way, nothing is said of what they hit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._form import Form
from ._predict import Floats, most_common


def is_unread(found: dict[str, Any], answers: Floats) -> bool:
    """Whether there are numbers that are not classes, or nothing but missing answers. A missing one
    here and there is the model's own.
    """
    missing = int((~np.isfinite(answers)).sum())
    return missing == len(answers) or int(found["invalid"]) > missing


def unjudged(found: dict[str, Any], answers: Floats, form: Form) -> dict[str, Any]:
    """A result without what it would say of the model."""
    reason = str(found["reason"])
    if form.classes:
        known = answers[np.isfinite(answers)]
        classes = np.arange(form.classes)
        wrong = [form.items.number_of(float(one)) for one in known[~np.isin(known, classes)]]
        if wrong:
            reason += f", as {most_common([int(x) if x.is_integer() else x for x in wrong])}"
        labels = form.items.values
        some = ", ".join(map(str, labels[:5])) + (", ..." if len(labels) > 5 else "")
        reason += f"; classes are {some or f'0 to {form.classes - 1}'}"
    reason += ". Nothing was judged, and this is not a submission: correct how answers are written"
    return {
        **found, "reason": reason, "hits": 0, "control_hits": 0, "known": 0.0,
        "grades": [{**row, "hits": 0} for row in found["grades"]],
        "findings": [{**one, "reason": reason} for one in found["findings"]],
    }  # fmt: skip
