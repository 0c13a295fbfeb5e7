# SPDX-License-Identifier: Apache-2.0
"""Reads what a model returned about a batch: one number per sample, a class or an error."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._form import Form
from ._values import Array, Floats, as_array, carrier_of


def answers_of(output: Any, inputs: Sequence[Any], form: Form) -> Floats:
    """The answers in what a model returned for a batch.

    With labels: rows of scores (the largest counts; NaN where a score is NaN), class numbers, names
    of classes, or for two classes one score or probability; `settled` reads rows of one number.
    Without: reconstructions of `inputs`, in the form in which the model got these, scores of next
    words, or errors.

    Raises:
        UsageError: The output has another shape than the task's.
    """
    if isinstance(output, np.ndarray) and output.dtype.kind == "U" and output.ndim == 1:
        output = output.tolist()
    if form.classes and isinstance(output, (list, tuple)):
        output = _numbered(output, form) if any(isinstance(one, str) for one in output) else output
    values = _values(output)
    if values.ndim == 0 or len(values) != len(inputs):
        raise UsageError(
            f"{len(inputs)} samples were asked about, and the output has shape "
            f"{list(values.shape)}",
            "return one row per sample",
        )
    if values.ndim == 1:
        return values
    if form.objective == "reconstruction":
        return _reconstruction(values, inputs)
    if form.objective == "language":
        return _language(values, inputs, form)
    if values.ndim != 2 or (values.shape[1] < form.classes and values.shape[1] != 1):
        raise UsageError(
            f"the model answers with shape {list(values.shape)} for {form.classes} classes",
            "return one score per class, or class numbers",
        )
    if values.shape[1] == 1:
        return values
    best = np.where(np.isnan(values).any(1), np.nan, values.argmax(1))
    return form.items.numbers_of(best, values.shape[1])


def _values(output: Any) -> Floats:
    if hasattr(output, "logits"):
        output = output.logits
    elif isinstance(output, Mapping):
        if "logits" not in output:
            raise UsageError(
                f"the model returned a mapping of {', '.join(map(str, output))}",
                "wrap it in a function that returns scores, and pass that as predict=",
            )
        output = output["logits"]
    elif isinstance(output, tuple) and output and hasattr(output[0], "shape"):
        output = output[0]
    if not isinstance(output, (list, tuple)) and not hasattr(output, "shape"):
        raise UsageError(
            f"predict returned a {type(output).__name__}", "return an array or a list of answers"
        )
    try:
        if isinstance(output, (list, tuple)):
            values = np.asarray(
                [_unmasked(one) if hasattr(one, "shape") else one for one in output]
            )
        else:
            values = _unmasked(output)
        # Objects may be numbers beside None; text and dates become numbers too easily.
        if values.dtype.kind not in "biufO":
            raise TypeError(f"they are {values.dtype}")
        return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # the last is torch's
        raise UsageError(f"the model's output is not an array of numbers: {error}", "") from error


def _unmasked(output: Any) -> Array:
    """What is masked is missing, whatever lies below it."""
    if not isinstance(output, np.ma.MaskedArray):
        return as_array(output)
    return np.where(np.ma.getmaskarray(output), np.nan, output.data)


def _stacked(inputs: Sequence[Any]) -> Array:
    if hasattr(inputs, "shape"):
        return as_array(inputs)
    return np.stack([as_array(one) for one in inputs])


def _reconstruction(values: Floats, inputs: Sequence[Any]) -> Floats:
    stored = _stacked(inputs)
    wanted = stored.astype(np.float64)
    flat = (len(wanted), wanted[0].size)
    if not (
        values.shape == wanted.shape
        or (flat in (values.shape, wanted.shape) and values.size == wanted.size)
        or _without_ones(values) == _without_ones(wanted)
    ):
        raise UsageError(
            f"reconstructions have shape {list(values.shape)}, and what the model gets has "
            f"{list(wanted.shape)}",
            "return one reconstruction, or one error, per sample",
        )
    if stored.dtype.kind in "iu" and wanted.max() > 2 and 0 <= values.min() < values.max() <= 1:
        raise UsageError(
            f"reconstructions lie within 0 and 1, and what they are of reaches {wanted.max():g}",
            "return them in the scale of the inputs, pass transform= that scales these, or return "
            "one error per sample",
        )
    difference = (values - wanted.reshape(values.shape)).reshape(len(values), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        errors: Floats = np.square(difference).mean(1)
    return errors


def _without_ones(values: Floats) -> list[int]:
    return [size for size in values.shape[1:] if size != 1]


def _language(values: Floats, inputs: Sequence[Any], form: Form) -> Floats:
    if carrier_of(inputs[0]) == "str":
        raise UsageError(
            f"the model answers with shape {list(values.shape)} about strings, whose words have no "
            "numbers",
            "return one loss per sample, or pass transform=, which makes ids of a string",
        )
    words = _stacked(inputs)
    if words.ndim != 2 or words.dtype.kind not in "iu":
        raise UsageError(
            f"the model gets texts of shape {list(words.shape)} and type {words.dtype}, whose next "
            "words are not known",
            "return one loss per sample",
        )
    # Of a pair the caller holds inputs and targets in one text of one more word.
    targets = words[:, 1:]
    scores = values[:, : targets.shape[1]]
    if values.ndim != 3 or scores.shape[1] != targets.shape[1] or values.shape[2] <= targets.max():
        raise UsageError(
            f"the model answers with shape {list(values.shape)} for texts of "
            f"{words.shape[1] - form.pairs} words",
            "return [sample, word, score of each next word], or one loss per sample",
        )
    top = scores.max(2, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.log(np.exp(scores - top).sum(2)) + top[..., 0]
        chosen = np.take_along_axis(scores, targets[..., None].astype(np.int64), 2)[..., 0]
        losses: Floats = (total - chosen).mean(1)
    return losses


def _numbered(names: Sequence[Any], form: Form) -> Floats:
    """Class numbers, or labels that are numbers, of names of classes; NaN for None."""
    known = {str(name): index for index, name in enumerate(form.items.names)}
    known = known or {str(number): number for number in form.labels}
    # Answers of a program may be lists, of which no dict can be asked.
    unknown = [
        one for one in names if one is not None and not (isinstance(one, str) and one in known)
    ]
    if unknown:
        some = ", ".join(map(repr, itertools.islice(known, 5)))
        raise UsageError(
            f"answers are not classes: {most_common(unknown)}",
            f"answer with names ({some}{', ...' if len(known) > 5 else ''}) or numbers of classes, "
            "with None where the model has no answer",
        )
    return np.asarray([np.nan if one is None else known[one] for one in names], np.float64)


def most_common(values: Sequence[Any]) -> str:
    """'cat' (3 times), ..."""
    counts = Counter(map(repr, values)).most_common(4)
    named = ", ".join(f"{one[:40]} ({count} times)" for one, count in counts[:3])
    return named + (", ..." if len(counts) > 3 else "")


def settled(values: Floats, form: Form) -> Floats:
    """Classes from 0 on, or errors, of all answers together: rows of one number are read here,
    because two classes may have a probability, a score or class numbers in them, which one batch
    does not tell.
    """
    flat = values.reshape(-1)
    known = flat[np.isfinite(flat)]
    whole = bool((known == np.rint(known)).all())
    labels = set(form.items.values or (0, 1))
    numbers = values.ndim == 1 or (set(known) <= labels and not np.isinf(flat).any())
    if form.classes != 2 or (whole and numbers):
        return form.items.classes_of(flat) if form.classes else flat
    # Scores that all lie within 0 and 1 are of one class when read as logits: no model answers so.
    is_probability = bool(known.size and known.min() >= 0 and known.max() <= 1)
    return np.where(np.isnan(flat), np.nan, flat > (0.5 if is_probability else 0.0))
