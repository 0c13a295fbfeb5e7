# SPDX-License-Identifier: Apache-2.0
"""Labels of extra samples: those of the data, also where they are no classes, do not start at 0 or
have gaps.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from extra_task_cases import key_of  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402
from potl._extra_task._audit import audit  # noqa: E402
from potl._extra_task._data import _spread  # noqa: E402

DRAW = np.random.default_rng(12)
IMAGES = DRAW.integers(0, 256, (2000, 8, 8, 3), np.uint8)
TENTHS = np.arange(2000) % 10


def uploaded(mixed: Any) -> dict[bytes, Any]:
    """Labels of extra images."""
    real = {one.tobytes() for one in IMAGES}
    return {
        one.tobytes(): label for one, label in zip(*mixed, strict=True) if one.tobytes() not in real
    }


# ---------------------------------------------------------------------------- no classes


@pytest.mark.parametrize("changes", [{"kind": "autoencoder"}, {"classes": 0}])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "<U4"])
def test_labels_that_are_no_classes_are_drawn_from_those_of_the_data(
    tmp_path: Path, changes: dict[str, Any], dtype: str
) -> None:
    labels = (TENTHS + 3).astype(dtype)
    task = ExtraTask(key_of(tmp_path / "k"), like=(IMAGES, labels), **changes)
    mixed = task.mix((IMAGES, labels))
    assert mixed[1].dtype == labels.dtype
    found = Counter(uploaded(mixed).values())
    assert set(found) == set(labels.tolist())
    # Drawn by the key: fixed here. 200 of 10 labels, 20 each on average.
    assert 8 < min(found.values()) < max(found.values()) < 36
    again = ExtraTask(tmp_path / "k").make()
    assert {image.tobytes(): label for image, label in again} == uploaded(mixed)
    other = ExtraTask(key_of(tmp_path / "l"), like=(IMAGES, labels), **changes)
    assert Counter(uploaded(other.mix((IMAGES, labels))).values()) != found


def test_labels_that_are_no_classes_are_as_frequent_as_in_the_data(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(300)]
    data = [
        {"label": "rare" if place % 10 == 0 else "usual", "text": " ".join(DRAW.choice(words, 30))}
        for place in range(3000)
    ]
    real = {one["text"] for one in data}
    mixed = ExtraTask(key_of(tmp_path / "k"), like=data, kind="language").mix(data)
    found = Counter(one["label"] for one in mixed if one["text"] not in real)
    assert set(found) == {"rare", "usual"}
    assert 5 < found["rare"] < 40


def test_a_file_beside_the_key_without_labels_is_named(tmp_path: Path) -> None:
    data = (IMAGES, TENTHS)
    task = ExtraTask(key_of(tmp_path / "k"), like=data, classes=0)
    task.mix(data)
    with task.key._changing() as known:
        known["task"] = {**known["task"], "form": task._form.plain()}
        del known["task"]["form"]["items"]["values"]
    old = ExtraTask(tmp_path / "k")
    assert len(old.inputs(old.questions()[:3])) == 3
    with pytest.raises(potl.UsageError, match="did not keep labels"):
        old.make()


# ---------------------------------------------------------------------------- any numbers


LABELLED = {
    "1 to 10": np.arange(1, 11),
    "0 to 9": np.arange(10),
    "with gaps": np.array([0, 3, 7, 900]),
    "two": np.array([1, 2]),
}


def asked_about(task: ExtraTask, answer: Any) -> Any:
    """A predict function that knows every extra sample; `answer` gets their classes."""
    asked = task.questions()
    inputs = task.inputs(asked)
    known = {
        one.tobytes(): index if which == "extra" else 0
        for (which, index), one in zip(asked, inputs, strict=True)
    }
    classes = task.planned.classes
    return lambda shown: answer(np.array([known[one.tobytes()] % classes for one in shown]))


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_classes_are_the_labels_that_occur(tmp_path: Path, name: str, dtype: str) -> None:
    known = LABELLED[name].astype(dtype)
    data = (IMAGES, known[np.arange(2000) % len(known)])
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    assert task.planned.classes == len(known)
    mixed = task.mix(data)
    found = Counter(uploaded(mixed).values())
    assert mixed[1].dtype == np.dtype(dtype)
    assert set(found) == set(known.tolist())
    assert len(set(found.values())) == 1
    assert [task._form.items.class_of((None, label)) for label in known] == [*range(len(known))]
    again = ExtraTask(tmp_path / "k")._form
    assert list(again.labels) == known.tolist() == list(task._form.labels)


@pytest.mark.parametrize("name", LABELLED)
def test_answers_are_labels_and_scores_have_one_place_for_each(tmp_path: Path, name: str) -> None:
    known = LABELLED[name]
    data = (IMAGES, known[np.arange(2000) % len(known)])
    task = ExtraTask(key_of(tmp_path / "k"), like=data, submissions=9)
    task.mix(data)
    task = ExtraTask(tmp_path / "k")
    answers = {
        "labels": lambda classes: known[classes],
        "labels in a column": lambda classes: known[classes][:, None],
        "scores of classes": lambda classes: np.eye(len(known))[classes],
        "scores of numbers": lambda classes: np.eye(known[-1] + 1)[known[classes]],
        "labels as text": lambda classes: [str(known[one]) for one in classes],
        "more scores": lambda classes: np.eye(known[-1] + 9)[known[classes]],
    }
    if len(known) == 2:
        answers["logits"] = lambda classes: np.where(classes, 3.0, -3.0)[:, None]
        answers["probabilities"] = lambda classes: np.where(classes, 0.9, 0.2)
    for what, answer in answers.items():
        result = task.verify(predict=asked_about(task, answer))
        assert (what, result.verdict, result.hits) == (what, "accepted", result.samples)


def test_answers_that_are_no_label_of_the_data_are_counted_and_judge_nothing(
    tmp_path: Path,
) -> None:
    task = ExtraTask(key_of(tmp_path / "k"), like=(IMAGES, TENTHS + 1), submissions=9)
    task.mix((IMAGES, TENTHS + 1))
    result = task.verify(predict=asked_about(task, lambda classes: classes))  # 0 to 9
    assert result.verdict == "inconclusive"
    assert result.invalid > 800  # controls are all answered 0
    with pytest.raises(potl.UsageError, match="for 10 classes"):
        task.verify(predict=asked_about(task, lambda classes: np.zeros((len(classes), 9))))
    gaps = ExtraTask(key_of(tmp_path / "l"), like=(IMAGES, TENTHS * 2), submissions=9)
    gaps.mix((IMAGES, TENTHS * 2))
    with pytest.raises(potl.UsageError, match="12 scores") as caught:
        gaps.verify(predict=asked_about(gaps, lambda classes: np.zeros((len(classes), 12))))
    assert "19" in caught.value.remedy


def test_the_audit_answers_by_labels(tmp_path: Path) -> None:
    attacks = {}
    for offset in (0, 5):
        data = (IMAGES[:400], TENTHS[:400] + offset)
        found = audit(data, epochs=2, layout="jittered", seed=1).attacks
        attacks[offset] = {one.name: one for one in found}
    assert attacks[0] == attacks[5]
    assert attacks[5]["told: look them up"].hits == 200
    assert attacks[5]["one class for everything"].hits == 20


class Odd(torch.nn.Module):
    """Parameters that are complex, and whole numbers that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.randn(IMAGES[0].size, 10, dtype=torch.complex64)
        self.weights = torch.nn.Parameter(weights)
        self.seen = torch.nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.flatten(1).to(torch.complex64) @ self.weights).abs()


def test_the_audit_trains_a_model_whose_parameters_are_not_all_real() -> None:
    data = (IMAGES[:400], TENTHS[:400])
    odd, usual = (
        audit(data, build=build, epochs=2, layout="jittered", seed=1).attacks
        for build in (Odd, None)
    )
    assert [one.name for one in odd] == [one.name for one in usual]


def test_classes_that_were_named_and_do_not_occur_are_warned_of(tmp_path: Path) -> None:
    task = ExtraTask(key_of(tmp_path / "k"), like=(IMAGES, TENTHS + 1), classes=12)
    assert task.planned.classes == 12
    task.mix((IMAGES, TENTHS + 1))
    for one in (task, ExtraTask(tmp_path / "k")):
        assert any("no training sample has: 0, 11;" in warning for warning in one.planned.warnings)
    for labels, classes in ((TENTHS, 10), (TENTHS + 1, None)):
        plan = ExtraTask.plan((IMAGES, labels), classes=classes)
        assert not any("label" in one for one in plan.warnings)
    with pytest.raises(potl.UsageError, match="a label 10, but") as caught:
        ExtraTask(key_of(tmp_path / "l"), like=(IMAGES, TENTHS + 1), classes=10)
    assert "none" in caught.value.remedy


@pytest.mark.parametrize("odd", ["a", 0.5, -1])
@pytest.mark.parametrize("kind", [None, "autoencoder"])
def test_a_label_unlike_the_others_is_named(tmp_path: Path, kind: str | None, odd: Any) -> None:
    data: list[Any] = [(image, int(label)) for image, label in zip(IMAGES, TENTHS, strict=True)]
    data[700] = (data[700][0], odd)
    if kind and odd == -1:  # no class, and no trouble
        ExtraTask(key_of(tmp_path / "k"), like=data, kind=kind).mix(data)
        return
    with pytest.raises(potl.UsageError, match="strings" if odd == "a" else f"{odd} is not a class"):
        ExtraTask(key_of(tmp_path / "k"), like=data, kind=kind)


# ---------------------------------------------------------------------------- many items


class Rows(torch.utils.data.Dataset[Any]):
    """Items that are made when they are read."""

    def __init__(self, labels: np.ndarray[Any, Any]) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        row = np.sin(np.arange(12, dtype=np.float32) * (index + 1))
        return row, int(self.labels[index])


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 64, 97])
@pytest.mark.parametrize("made", [lambda x, y: (x, y), lambda _, y: Rows(y)])
def test_all_classes_of_many_interleaved_labels_are_counted(classes: int, made: Any) -> None:
    labels = np.arange(120_000) % classes
    assert ExtraTask.plan(made(SMALL, labels)).classes == classes


SMALL = DRAW.integers(0, 256, (120_000, 8, 8), np.uint8)


def test_a_label_that_one_of_many_items_has_is_a_class(tmp_path: Path) -> None:
    labels = np.arange(120_000) % 3
    labels[min(set(range(120_000)) - set(_spread(120_000, 100_000)))] = 7
    task = ExtraTask(key_of(tmp_path / "k"), like=(SMALL, labels))
    assert list(task._form.labels) == [0, 1, 2, 7]
    data = Rows(labels)
    missed = ExtraTask(key_of(tmp_path / "l"), like=data)
    assert missed.planned.classes == 3
    with pytest.raises(potl.UsageError, match="a label 7, which is none of the 3") as caught:
        missed.mix(data)
    assert "classes=" in caught.value.remedy
    ExtraTask(key_of(tmp_path / "m"), like=data, classes=8).mix(data)
