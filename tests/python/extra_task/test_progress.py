# SPDX-License-Identifier: Apache-2.0
"""Progress: what calibrates it, and what is no calibration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

from extra_task_cases import digits, key_of, task_of

import potl
from potl import ExtraTask


def zeros(inputs: list[Any]) -> Any:
    return [0] * len(inputs)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "half", None])
def test_shares_of_a_training_are_from_0_to_1(tmp_path: Path, share: Any) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError, match="share of the training"):
        task.calibrate([(share, zeros)])


@pytest.mark.parametrize(
    "answer",
    [lambda inputs: [float("nan")] * len(inputs), lambda inputs: [None, *[0] * (len(inputs) - 1)]],
)
def test_a_reference_without_answers_is_refused(tmp_path: Path, answer: Callable[..., Any]) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError, match=r"the model at 0\.5 of the training"):
        task.calibrate([(0.5, answer)])


def test_progress_needs_labels(tmp_path: Path) -> None:
    images = digits().tensors[0].reshape(-1, 8, 8)
    task = ExtraTask(key_of(tmp_path / "k"), like=images, kind="autoencoder")
    task.mix(images)
    with pytest.raises(potl.UsageError, match="no labels"):
        task.calibrate([(0.5, lambda inputs: inputs)])


def test_curves_know_with_how_many_samples_they_were_measured(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    curves = task.calibrate([(0.0, zeros), (1.0, lambda inputs: [3] * len(inputs))])
    assert [(grade, samples) for grade, _, samples in curves] == [
        ("0.6", 70), ("0.75", 70), ("0.85", 60)
    ]  # fmt: skip
    for wrong in (-1, 2.5, "many"):
        with pytest.raises(potl.UsageError, match="reference curves"):
            ExtraTask(tmp_path / "extra.key", calibration=[("0.75", [(0, 0.1)], wrong)])
    flat = [(0.0, 0.1), (1.0, 0.9)]
    widths = []
    for samples in ([], [70], [10**9]):
        given = [(grade, flat, *samples) for grade in ("0.6", "0.75", "0.85")]
        one = ExtraTask(tmp_path / "extra.key", calibration=given, submissions=1)
        extra = np.where(np.arange(200) % 2 == 0, np.arange(200) % 10, 99 % 10.0)
        progress = one.judge(extra, np.arange(800) // 10 % 10.0).progress
        assert progress is not None
        widths.append(progress.high - progress.low)
    # No number is taken for as many samples as the task has; an exact curve is the narrowest.
    assert widths[0] == pytest.approx(widths[1], rel=0.1)
    assert widths[2] < 0.8 * widths[1]
