# SPDX-License-Identifier: Apache-2.0
"""Containers that data come in: columns of any kind, items with masks, stored channels first; what
is none is named with the remedy, and so are options that say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from extra_task_cases import key_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import IterableDataset, TensorDataset  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402

DRAW = np.random.default_rng(13)
WORDS = [f"w{number}" for number in range(300)]
TEXTS = [" ".join(DRAW.choice(WORDS, 20)) for _ in range(300)]
IMAGES = DRAW.random((300, 3, 8, 8), dtype=np.float32)
LABELS = np.arange(300) % 3


# ---------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (TEXTS, LABELS.tolist()),
        (TEXTS, LABELS),
        (np.array(TEXTS), LABELS),
        (np.array(TEXTS, object), torch.from_numpy(LABELS)),
        (list(torch.from_numpy(IMAGES)), LABELS.astype("<U1")),
        (list(IMAGES), LABELS.tolist()),
    ],
    ids=["lists", "list and array", "strings", "objects", "tensors and names", "arrays"],
)
def test_a_pair_of_columns_of_any_kind_stays_one(tmp_path: Path, inputs: Any, labels: Any) -> None:
    task = ExtraTask(key_of(tmp_path / "k"), like=(inputs, labels))
    mixed = task.mix((inputs, labels))
    assert [type(one) for one in mixed] == [type(inputs), type(labels)]
    assert [len(one) for one in mixed] == [501, 501]
    for column, real in zip(mixed, (inputs, labels), strict=True):
        assert {(type(one), getattr(one, "shape", ())) for one in column} == {
            (type(real[0]), getattr(real[0], "shape", ()))
        }
        # Strings may be longer than the longest real one, and the column has room for them.
        dtypes = [str(getattr(one, "dtype", "")).strip("0123456789") for one in (column, real)]
        assert dtypes[0] == dtypes[1]
    shared = [one for one in mixed[0] if hasattr(one, "untyped_storage")]
    assert all(one.untyped_storage().nbytes() == one.nbytes for one in shared)


def test_ids_with_a_mask_and_a_label_stay_three_tensors(tmp_path: Path) -> None:
    ids = torch.from_numpy(DRAW.integers(5, 300, (300, 40)))
    mask = torch.ones_like(ids)
    for row, count in enumerate(DRAW.integers(20, 40, 300)):
        ids[row, count:], mask[row, count:] = 0, 0
    data = TensorDataset(ids, mask, torch.from_numpy(LABELS))
    task = ExtraTask(key_of(tmp_path / "k"), like=data, submissions=2)
    mixed = task.mix(data)
    assert [one.dtype for one in mixed.tensors] == [torch.int64] * 3
    assert [one.shape for one in mixed.tensors] == [(501, 40), (501, 40), (501,)]
    assert torch.equal(mixed.tensors[1] == 1, mixed.tensors[0] != 0)
    seen = []

    class Reader(nn.Module):
        def forward(
            self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
        ) -> torch.Tensor:
            assert attention_mask is not None
            assert torch.equal(attention_mask != 0, input_ids != 0)
            seen.append(len(input_ids))
            return torch.zeros(len(input_ids), 3)

    assert ExtraTask(tmp_path / "k").verify(Reader()).verdict == "rejected"
    assert sum(seen) == 201 * 5


def kinds(value: Any) -> Any:
    """The types of all that a value holds; one for the numbers of a column of texts."""
    if not isinstance(value, (list, tuple)):
        return type(value)
    inner = [kinds(one) for one in value]
    return type(value), inner[0] if len(set(map(str, inner))) == 1 else inner


FLOATS = DRAW.random((300, 8))
ROWS: dict[str, list[Any]] = {
    "whole numbers and fractions": [[int(99 * row[0]), *row[1:].tolist()] for row in FLOATS],
    "in tuples": [(*row[:7].tolist(), int(99 * row[7])) for row in FLOATS],
    "numbers of NumPy": list(map(list, FLOATS.astype(np.float32))),
    "pixels": DRAW.integers(0, 256, (300, 8, 8)).tolist(),
    "ids of NumPy": [list(DRAW.integers(0, 400, 20 + row % 9)) for row in range(300)],
    "strings of NumPy": list(map(np.str_, TEXTS)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("how", ["items", "columns"])
def test_numbers_in_lists_are_of_the_types_of_real_ones(
    tmp_path: Path, name: str, how: str
) -> None:
    labels = [np.str_("abc"[label]) for label in LABELS]
    data: Any = (
        (ROWS[name], labels) if how == "columns" else list(zip(ROWS[name], labels, strict=True))
    )
    task = ExtraTask(key_of(tmp_path / "k"), like=data, control=1)
    mixed = task.mix(data)
    items = list(zip(*mixed, strict=True)) if how == "columns" else mixed
    assert len(items) == 501
    assert len({str(kinds(item)) for item in items}) == 1
    assert {str(kinds(item)) for item in task.samples.items()} == {str(kinds(items[0]))}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[number, 0.5] * 4 if number % 2 else [0.5] * 8 for number in range(300)], "column alike"),
        ([[torch.tensor(0.5)] * 8] * 300, "lists of a Tensor"),
        ([[list(range(8)), row.tolist()] for row in FLOATS], "lists of a list"),
    ],
)
def test_lists_of_other_numbers_are_refused(tmp_path: Path, rows: Any, words: str) -> None:
    with pytest.raises(potl.UsageError, match=words):
        ExtraTask(key_of(tmp_path / "k"), like=list(zip(rows, LABELS.tolist(), strict=True)))


class ChannelsFirst:
    """As torchvision's SVHN and STL10 keep images."""

    def __init__(self) -> None:
        self.data = (IMAGES * 255).astype(np.uint8)
        self.labels = LABELS
        self.transform: Any = to_tensor

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        image = Image.fromarray(self.data[index].transpose(1, 2, 0))
        return self.transform(image), int(self.labels[index])


def to_tensor(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1)


def test_images_that_are_stored_channels_first_reach_the_model_as_in_training(
    tmp_path: Path,
) -> None:
    pytest.importorskip("PIL")
    data = ChannelsFirst()
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    mixed = task.mix(data)
    known = {mixed[index][0].numpy().tobytes(): mixed[index][1] for index in range(len(mixed))}

    class Table(nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            answers = [known.get(one.numpy().tobytes(), 0) for one in batch]
            return torch.eye(3)[answers]

    result = task.verify(Table())
    assert (result.verdict, result.hits) == ("accepted", 201)


# ---------------------------------------------------------------------------- no data


class Stream(IterableDataset[Any]):
    def __len__(self) -> int:
        return 300

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(IMAGES, LABELS, strict=True))


@pytest.mark.parametrize(
    ("data", "words", "remedy"),
    [
        (Stream(), "its own order", "list"),
        ({"x": IMAGES, "y": LABELS}, "no order", "(inputs, labels)"),
        ("photos", "not training data", "mix"),
        ([IMAGES, LABELS], "could be two items", "tuple"),
        ((IMAGES, LABELS[:-1]), "300 and 299", ""),
        (([*IMAGES], LABELS[:7]), "300 and 7", ""),
        ((IMAGES, LABELS[:, None]), "shape [1] is not a class", "reshape(-1)"),
        ((IMAGES, np.eye(3)[LABELS]), "shape [3] is not a class", "argmax(1)"),
        ((IMAGES, LABELS.astype(np.float32)), "is not a class", "integers"),
        ([(one, float(label)) for one, label in zip(IMAGES, LABELS, strict=True)], "0.0", "integ"),
        ([(one, 1, 2, "a") for one in IMAGES], "4 parts", "pairs"),
        ([(["red", 1.0, 2.0], 1)] * 300, "not a number: 'red'", "categories"),
        ([([1.0] * (4 + place % 2), 1) for place in range(300)], "4 to 5 columns", "same"),
        ([(None if place == 7 else TEXTS[0], 1) for place in range(300)], "NoneType", "use"),
        ([([1] if place == 7 else TEXTS[0], 1) for place in range(300)], "str, list", "one type"),
    ],
)
def test_what_is_no_data_set_is_named_with_the_remedy(
    tmp_path: Path, data: Any, words: str, remedy: str
) -> None:
    with pytest.raises(potl.UsageError) as caught:
        ExtraTask(key_of(tmp_path / "k"), like=data)
    assert words in str(caught.value)
    assert remedy in caught.value.remedy


# ---------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ((IMAGES, LABELS), {"length": 5}, "length= says nothing"),
        ((IMAGES, LABELS), {"padding": 0}, "padding= says nothing"),
        ((TEXTS, LABELS), {"padding": 0}, "padding= says nothing"),
        ((TEXTS, LABELS), {"axes": "CHW"}, "axes= says nothing"),
        ((IMAGES, LABELS), {"axes": "chw"}, "no axes 'chw'"),
        ((IMAGES, LABELS), {"axes": "XYZ"}, "no axes 'XYZ'"),
        ((IMAGES.reshape(300, -1), LABELS), {"kind": "text"}, "not integers"),
    ],
)
def test_options_that_say_nothing_of_the_data_are_refused(
    tmp_path: Path, data: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(potl.UsageError, match=words):
        ExtraTask(key_of(tmp_path / "k"), like=data, **options)


def test_options_of_the_form_after_mixing_are_compared_with_the_mixed_data(tmp_path: Path) -> None:
    ids = DRAW.integers(5, 300, (300, 21))
    sets: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
        "images": (
            (IMAGES, LABELS),
            {"classes": 3, "kind": "image", "axes": "CHW"},
            {"classes": 5, "kind": "text", "axes": "HWC", "length": 7, "padding": 0},
        ),
        "texts": ((TEXTS, LABELS), {"kind": "text", "length": 20}, {"length": 19, "axes": "HW"}),
        "reconstruction": (
            IMAGES,
            {"kind": "autoencoder", "classes": 0},
            {"kind": "language", "classes": 2},
        ),
        "pairs": (
            [(one[:-1], one[1:]) for one in ids],
            {"kind": "language", "length": 20},
            {"kind": "autoencoder", "length": 21},
        ),
    }
    for name, (data, same, other) in sets.items():
        key = key_of(tmp_path / name)
        task = ExtraTask(key, like=data)
        task.mix(data)
        assert ExtraTask(key, **same).planned.samples == task.planned.samples
        for option, value in other.items():
            with pytest.raises(potl.UsageError, match=f"{option} is {value!r}, but") as caught:
                ExtraTask(key, **{option: value})
            assert "leave it out" in caught.value.remedy
