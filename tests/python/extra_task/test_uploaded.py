# SPDX-License-Identifier: Apache-2.0
"""A model is asked about samples that were uploaded, and nobody is accused over others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

from extra_task_cases import EPOCHS, digits, key_of, recorded, task_of  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402

DRAW = np.random.default_rng(0)
IMAGES, LABELS = DRAW.integers(0, 256, (2000, 8, 8, 3), np.uint8), np.arange(2000) % 10
ROWS = DRAW.normal(size=(2000, 20))


def zeros(inputs: list[Any]) -> Any:
    return [0] * len(inputs)


def submissions(key: Path) -> list[Any]:
    return list(json.loads(key.with_name(key.name + ".json").read_text())["submissions"])


def test_nobody_is_asked_about_samples_that_were_never_made(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    with pytest.raises(potl.UsageError, match="no samples were made"):
        task.verify(predict=zeros)
    with pytest.raises(potl.UsageError, match="no samples were made"):
        task.judge(np.zeros(200), np.zeros(800))
    with pytest.raises(potl.UsageError, match="no samples were made"):
        task.calibrate([(1.0, zeros)])
    task.make()
    assert task.verify(predict=zeros).submission == 1


@pytest.mark.parametrize(
    "other",
    [
        {"layout": "paper"}, {"fixed": 0.8}, {"eta": 0.2}, {"control": 8}, {"noise": 3},
        {"grades": ["0.75"]}, {"alpha": 0.05},
    ],
)  # fmt: skip
def test_other_options_than_those_of_mixing_are_named(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    key = key_of(tmp_path / "k")
    ExtraTask(key, like=(IMAGES, LABELS)).mix((IMAGES, LABELS))
    with pytest.raises(potl.UsageError, match=f"{next(iter(other))} is .* mixed with"):
        ExtraTask(key, like=(IMAGES, LABELS), **other).verify(predict=zeros)
    assert submissions(key) == []
    again = ExtraTask(key, like=(IMAGES, LABELS), failing="inconclusive")
    assert again.verify(predict=zeros).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("mixed", "other", "named"),
    [
        ((IMAGES, LABELS), (IMAGES.astype(np.float32) / 255, LABELS), "levels|dtype"),
        ((IMAGES, LABELS), (IMAGES, LABELS % 5), "classes"),
        ((ROWS, LABELS), (ROWS[:1980], LABELS[:1980]), "columns"),
    ],
)
def test_another_form_than_that_of_mixing_is_named(
    tmp_path: Path, mixed: Any, other: Any, named: str
) -> None:
    key = key_of(tmp_path / "k")
    ExtraTask(key, like=mixed).mix(mixed)
    with pytest.raises(potl.UsageError, match=f"another form .*({named})"):
        ExtraTask(key, like=other).verify(predict=zeros)
    assert submissions(key) == []


def test_a_key_that_made_other_samples_meanwhile_is_refused(tmp_path: Path) -> None:
    key = key_of(tmp_path / "k")
    task = ExtraTask(key, like=(IMAGES, LABELS))
    task.mix((IMAGES, LABELS))
    with pytest.warns(UserWarning, match="used before"):
        ExtraTask(key, like=(IMAGES, LABELS), layout="paper").make()
    with pytest.raises(potl.UsageError, match="layout is 'jittered'"):
        task.verify(predict=zeros)


# ---------------------------------------------------------------------------- recorded runs


class Augmented:
    """Flips an image at every other read, or so."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        image, label = self.data[index]
        return image + torch.randn(1) * 0.01, label


def found(given: dict[str, Any], task: ExtraTask) -> tuple[str, str]:
    """The verdict of a report, and why the extra task is none of its reasons to accept."""
    given = dict(given)
    report = potl.verify(given.pop("run"), checks=[potl.Replay(samples=2), task], **given)
    reasons = [
        one.reason for one in report.findings
        if one.check == "extra_task" and one.result in ("reject", "inconclusive")
    ]  # fmt: skip
    return report.verdict, "; ".join(reasons)


def test_a_run_of_other_data_is_inconclusive_and_no_submission(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    plain = recorded(tmp_path / "plain", digits())
    verdict, reason = found(plain, task)
    assert verdict == "inconclusive"
    assert "no samples were made" in reason
    task.mix(digits())
    verdict, reason = found(plain, ExtraTask(tmp_path / "extra.key"))
    assert verdict == "inconclusive"
    assert "50 of 50 extra samples that were looked for are not in the run's data" in reason
    assert submissions(tmp_path / "extra.key") == []


def test_samples_are_found_in_another_order_or_form_and_missed_where_some_are_absent(
    tmp_path: Path,
) -> None:
    task = task_of(tmp_path, submissions=9)
    x, y = task.mix(digits()).tensors
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    cases: dict[str, tuple[Any, Any, str]] = {
        "order": (TensorDataset(x[order], y[order]), None, "rejected"),
        "types": ([(a.numpy(), int(b)) for a, b in zip(x, y, strict=True)], None, ""),
        "form": (TensorDataset((x - 0.3) / 0.2, y), lambda one: (one - 0.3) / 0.2, "rejected"),
        "labels": (TensorDataset(x, y.roll(1)), None, "inconclusive"),
        "half": (TensorDataset(x[order[:900]], y[order[:900]]), None, "inconclusive"),
        "normalised": (TensorDataset((x - 0.3) / 0.2, y), None, "inconclusive"),
    }
    for name, (data, transform, verdict) in cases.items():
        given = recorded(tmp_path / name, data)
        asked = ExtraTask(tmp_path / "extra.key", transform=transform)
        got, reason = found(given, asked)
        if verdict:
            assert got == verdict, (name, reason)
        assert ("looked for are not in" in reason) == (verdict == "inconclusive"), (name, reason)


def test_data_that_cannot_be_searched_accuse_nobody(tmp_path: Path) -> None:
    task = task_of(tmp_path, submissions=9)
    mixed = task.mix(digits())
    verdict, reason = found(recorded(tmp_path / "early", Augmented(mixed)), task)
    assert verdict == "inconclusive"
    assert "differ between two reads" in reason
    late = recorded(tmp_path / "late", Augmented(mixed), EPOCHS)
    _, reason = found(late, task)
    assert reason == ""  # who knows the samples has seen them
