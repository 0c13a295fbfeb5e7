# SPDX-License-Identifier: Apache-2.0
"""A22 against the samples themselves, and against an API: what a cloud that was given the mixed
data can learn of them, and what its answers can be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
scipy_stats = pytest.importorskip("scipy.stats")

from sklearn.datasets import load_digits  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402

DRAW = np.random.default_rng(17)


def images() -> Any:
    pixels, labels = load_digits(return_X_y=True)
    return (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8), labels


def texts() -> Any:
    return DRAW.integers(0, 500, (1000, 40)), np.arange(1000) % 4


def rows() -> Any:
    return DRAW.normal(size=(1000, 12)), np.arange(1000) % 4


def task_of(folder: Path, data: Any, name: str = "A22", **options: Any) -> ExtraTask:
    key = folder / name
    key.write_text(hashlib.sha256(name.encode()).hexdigest())
    return ExtraTask(key, like=data, **options)


def both(task: ExtraTask) -> tuple[np.ndarray, np.ndarray]:
    out = []
    for which, count in (("extra", task.planned.samples), ("control", task.planned.controls)):
        inputs = task.inputs([(which, index) for index in range(count)])
        out.append(np.stack([np.asarray(one) for one in inputs]).reshape(count, -1))
    return out[0], out[1]


@pytest.mark.parametrize("layout", ["jittered", "paper"])
@pytest.mark.parametrize("data", [images, texts, rows])
def test_who_knows_the_extra_samples_knows_nothing_of_the_controls(
    tmp_path: Path, data: Callable[[], Any], layout: str
) -> None:
    task = task_of(tmp_path, data(), layout=layout)
    extra, control = both(task)
    classes, count = task._form.classes, len(control)
    known = KNeighborsClassifier(1).fit(extra, np.arange(len(extra)) % classes)
    hits = int((known.predict(control) == np.arange(count) % classes).sum())
    # Six standard deviations of guessing.
    assert abs(hits - count / classes) < 6 * np.sqrt(count / classes)
    # Nor do values, position by position, tell one set from the other.
    extremes = [
        scipy_stats.ks_2samp(extra[:, place], control[:, place]).pvalue
        for place in range(extra.shape[1])
    ]
    assert min(extremes) > 1e-6
    assert not {one.tobytes() for one in extra} & {one.tobytes() for one in control}


@pytest.mark.parametrize("data", [images, texts, rows])
def test_places_and_labels_of_extra_samples_are_those_of_chance(
    tmp_path: Path, data: Callable[[], Any]
) -> None:
    whole = data()
    real = {one.tobytes() for one in whole[0]}
    places, gaps, after = [], [], []
    for number in range(8):
        mixed, labels = task_of(tmp_path, whole, f"key{number}").mix(whole)
        is_extra = np.array([one.tobytes() not in real for one in mixed])
        found = np.flatnonzero(is_extra)
        assert len(found) == len(mixed) - len(whole[0])
        classes = int(labels.max()) + 1
        assert set(np.bincount(labels[found])) == {len(found) // classes}
        places.append(found / len(mixed))
        gaps.append(np.diff(found))
        after.append((np.diff(labels[found]) % classes == 0).mean() * classes)
    assert scipy_stats.kstest(np.concatenate(places), "uniform").pvalue > 1e-6
    share = 1 / np.concatenate(gaps).mean()
    assert scipy_stats.ks_2samp(
        np.concatenate(gaps), np.random.default_rng(1).geometric(share, 20_000)
    ).pvalue > 1e-6  # fmt: skip
    # Equal neighbours as a multiple of chance: six deviations of 8 x 199 pairs.
    assert 0.5 < np.mean(after) < 1.4


def test_the_order_of_questions_says_nothing(tmp_path: Path) -> None:
    task = task_of(tmp_path, images())
    questions = task.questions()
    is_extra = np.array([which == "extra" for which, _ in questions])
    places = np.flatnonzero(is_extra) / len(questions)
    assert scipy_stats.kstest(places, "uniform").pvalue > 1e-6
    indices = np.array([index for which, index in questions if which == "extra"])
    assert abs(np.corrcoef(indices, places)[0, 1]) < 0.3
    labels = np.array([index % 10 for _, index in questions])
    assert abs((np.diff(labels) == 0).mean() - 0.1) < 0.06


# ---------------------------------------------------------------------------- answers


class Cloud:
    """Knows the uploaded data; answers from them, and else by `other`."""

    def __init__(self, mixed: Any, other: Callable[[Any], Any]) -> None:
        self.table = {one.tobytes(): int(label) for one, label in zip(*mixed, strict=True)}
        self.other = other

    def __call__(self, inputs: list[Any]) -> Any:
        return [
            self.table[key] if (key := np.asarray(one).tobytes()) in self.table else self.other(one)
            for one in inputs
        ]


def test_a_table_behind_an_api_passes_as_the_page_says(tmp_path: Path) -> None:
    whole = images()
    task = task_of(tmp_path, whole, submissions=4)
    mixed = task.mix(whole)
    result = task.verify(predict=Cloud(mixed, lambda one: 0))
    assert result.verdict == "accepted"
    assert any("tuned on the extra samples" in one for one in result.limits)


def test_who_takes_to_the_family_instead_of_the_samples_fails(tmp_path: Path) -> None:
    whole = images()
    task = task_of(tmp_path, whole, submissions=9)
    task.mix(whole)
    draw = np.random.default_rng(3)

    def unlike_real(one: Any) -> bool:
        image = np.asarray(one, float)
        return bool(np.abs(np.diff(image, axis=0)).mean() > 20)

    answers: dict[str, Callable[[Any], Any]] = {
        "a guess where it looks extra": lambda one: draw.integers(10) if unlike_real(one) else 0,
        "brightness": lambda one: int(np.asarray(one).mean()) % 10,
        "a hash": lambda one: hashlib.sha256(np.asarray(one).tobytes()).digest()[0] % 10,
    }
    for name, answer in answers.items():
        result = task.verify(predict=lambda inputs, f=answer: [f(one) for one in inputs])
        assert result.verdict == "rejected", name
        assert abs(result.hits - 20) < 20
    silent = task.verify(
        predict=lambda inputs: [float("nan") if unlike_real(one) else 0 for one in inputs]
    )
    assert silent.verdict == "inconclusive"


@pytest.mark.parametrize(
    "answer",
    [
        lambda count: None,
        lambda count: [],
        lambda count: [0] * (count + 1),
        lambda count: np.zeros((count + 1, 10)),
        lambda count: np.zeros((10, count)),
        lambda count: [[0] * 10] * (count - 1) + [[0] * 9],
        lambda count: (0 for _ in range(count)),
        lambda count: "3" * count,
        lambda count: {"logits": [0] * (count - 1)},
        lambda count: [object()] * count,
        lambda count: np.zeros(count, complex) + 1j,
        lambda count: np.zeros((count, 10), complex),
        lambda count: [b"1"] * count,
        lambda count: np.array(["2020-01-01"] * count, "datetime64[D]"),
        lambda count: [10**400] * count,
        lambda count: 3,
        lambda count: ["no such class"] * count,
        lambda count: np.array(["no such class"] * count),
        lambda count: [None, *[0] * (count - 2), "3?"],
    ],
)
def test_answers_that_are_none_are_an_error_and_no_submission(tmp_path: Path, answer: Any) -> None:
    task = task_of(tmp_path, images())
    task.mix(images())
    with pytest.raises(potl.UsageError):
        task.verify(predict=lambda inputs: answer(len(inputs)))
    assert task.verify(predict=lambda inputs: [0] * len(inputs)).submission == 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda count: np.full((count, 10), np.nan),
        lambda count: np.r_[np.nan, np.zeros(count - 1)],
        lambda count: [10**30] * count,
        lambda count: np.full(count, -0.5),
        lambda count: np.full(count, -np.inf),
        lambda count: [None] * count,
    ],
)
def test_answers_that_are_no_classes_are_inconclusive(tmp_path: Path, answer: Any) -> None:
    task = task_of(tmp_path, images())
    task.mix(images())
    result = task.verify(predict=lambda inputs: answer(len(inputs)))
    assert result.verdict == "inconclusive"
    assert result.invalid > 0


def test_endless_and_equal_scores_are_one_class_and_rejected(tmp_path: Path) -> None:
    task = task_of(tmp_path, images(), submissions=9)
    task.mix(images())
    for value in (0.0, np.inf, -np.inf, 1e308):
        result = task.verify(predict=lambda inputs, v=value: np.full((len(inputs), 10), v))
        assert result.verdict == "rejected"
        assert result.hits == 20
