# SPDX-License-Identifier: Apache-2.0
"""Answers in usual forms are read as they are meant, and others are mended before they count."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

from extra_task_cases import key_of  # noqa: E402
from torch import nn  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (1500, 8, 8), np.uint8)
Answer = Callable[[list[Any]], Any]


def task_of(path: Path, classes: int, names: str = "") -> tuple[ExtraTask, Answer]:
    """A task, and a model that knows its extra samples and guesses others."""
    labels = np.arange(1500) % classes
    data: Any = (IMAGES, labels)
    if names:
        data = [(image, names[label]) for image, label in zip(*data, strict=True)]
    task = ExtraTask(key_of(path / "k"), like=data)
    task.mix(data)
    questions = task.questions()
    table = {
        np.asarray(value).tobytes(): index % classes if which == "extra" else index // 7 % classes
        for (which, index), value in zip(questions, task.inputs(questions), strict=True)
    }
    return task, lambda inputs: np.array([table[np.asarray(one).tobytes()] for one in inputs])


def count(task: ExtraTask) -> int:
    return len(task.key._known()["submissions"])


PROBABILITIES = np.array([0.03, 0.97])


@pytest.mark.parametrize(
    "form",
    [
        lambda a: PROBABILITIES[a],
        lambda a: PROBABILITIES[a][:, None],
        lambda a: PROBABILITIES[a] * 20 - 10,
        lambda a: (PROBABILITIES[a] * 20 - 10)[:, None],
        lambda a: (2 * a - 1)[:, None],
        lambda a: np.where(a > 0, np.inf, -np.inf)[:, None],
        lambda a: a,
        lambda a: a[:, None],
        lambda a: a.astype(bool),
        lambda a: np.eye(2)[a],
        lambda a: [str(one) for one in a],
    ],
)
def test_two_classes_may_be_one_score_or_probability(tmp_path: Path, form: Any) -> None:
    task, answer = task_of(tmp_path, 2)
    # One at a time, a batch does not tell a probability from a score.
    result = task.verify(predict=lambda inputs: form(answer(inputs)), batch_size=1)
    assert result.verdict == "accepted", result
    assert result.hits == result.samples


def test_a_module_may_end_in_a_sigmoid(tmp_path: Path) -> None:
    task, answer = task_of(tmp_path, 2)

    class Keras(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor(PROBABILITIES[answer(list(x.numpy()))])[:, None]

    assert task.verify(Keras()).verdict == "accepted"


@pytest.mark.parametrize(
    "form",
    [
        lambda names: names,
        lambda names: np.array(names),
        lambda names: tuple(names),
        lambda names: [ord(one) - ord("a") for one in names],
    ],
)
def test_classes_may_be_named(tmp_path: Path, form: Any) -> None:
    task, answer = task_of(tmp_path, 3, "abc")
    result = task.verify(predict=lambda inputs: form(["abc"[one] for one in answer(inputs)]))
    assert (result.verdict, result.invalid) == ("accepted", 0)


def test_unknown_names_are_an_error_that_names_them(tmp_path: Path) -> None:
    task, answer = task_of(tmp_path, 3, "abc")
    with pytest.raises(potl.UsageError, match=r"'B' \(\d+ times\).*names \('a', 'b', 'c'\)"):
        task.verify(predict=lambda inputs: ["aBc"[one] for one in answer(inputs)])
    assert count(task) == 0
    silent = task.verify(predict=lambda inputs: [None, *["a"] * (len(inputs) - 1)])
    assert (silent.verdict, silent.submission, count(task)) == ("inconclusive", 1, 1)


@pytest.mark.parametrize(
    ("form", "named"),
    [
        (lambda a: a + 1, r"10 \(\d+ times\); classes are 0 to 9"),
        (lambda a: a - 0.5, r"-0\.5 \("),
        (lambda a: a * np.nan, "classes are 0 to 9"),
        (lambda a: np.full((len(a), 10), np.nan), "classes are 0 to 9"),
        (lambda a: [None] * len(a), "classes are 0 to 9"),
    ],
)
def test_numbers_that_are_no_class_are_named_and_spend_nothing(
    tmp_path: Path, form: Any, named: str
) -> None:
    task, answer = task_of(tmp_path, 10)
    result = task.verify(predict=lambda inputs: form(answer(inputs)))
    assert result.verdict == "inconclusive"
    assert "not a submission" in result.reason
    # What a submission would have said of the model is not said.
    assert (result.hits, result.control_hits) == (0, 0)
    assert {row["hits"] for row in result.grades} == {0}
    assert re.search(named, result.reason), result.reason
    assert count(task) == 0
    json.dumps(result.document())
    assert task.verify(predict=answer).verdict == "accepted"


def test_an_answer_that_is_missing_here_and_there_is_the_models_own(tmp_path: Path) -> None:
    task, answer = task_of(tmp_path, 10)

    def sometimes(inputs: list[Any]) -> Any:
        out = answer(inputs).astype(float)
        out[0] = np.nan
        return out

    assert task.verify(predict=sometimes).verdict == "inconclusive"
    assert count(task) == 1


def test_labels_that_do_not_start_at_0_are_named_where_an_answer_is_none(tmp_path: Path) -> None:
    labels = np.arange(1500) % 4 + 1
    task = ExtraTask(key_of(tmp_path / "k"), like=(IMAGES, labels))
    task.mix((IMAGES, labels))
    result = task.verify(predict=lambda inputs: np.arange(len(inputs)) % 4)
    assert result.verdict == "inconclusive"
    assert re.search(r"as 0 \(\d+ times\); classes are 1, 2, 3, 4\.", result.reason), result.reason
    assert count(task) == 0
    assert task.verify(predict=lambda inputs: [2] * len(inputs)).verdict == "rejected"
