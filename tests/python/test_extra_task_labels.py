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
    with task._key.changing() as known:
        known["task"] = {**known["task"], "form": task.form.plain()}
        del known["task"]["form"]["items"]["values"]
    old = ExtraTask(tmp_path / "k")
    assert len(old.inputs(old.questions()[:3])) == 3
    with pytest.raises(potl.UsageError, match="did not keep labels"):
        old.make()
