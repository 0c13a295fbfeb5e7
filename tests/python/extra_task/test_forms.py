# SPDX-License-Identifier: Apache-2.0
"""Extra samples in every form that data have: floats of any channels, token ids with masks, frames
and padding, short texts, narrow tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from extra_task_cases import key_of  # noqa: E402
from torch import nn  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask, _core  # noqa: E402

DRAW = np.random.default_rng(11)
LABELS = np.arange(300) % 2


def extras_of(task: ExtraTask, count: int = 200) -> list[Any]:
    return task.inputs([("extra", index) for index in range(count)])


# ---------------------------------------------------------------------------- images


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("axes", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "float64", "bfloat16", "int16"])
def test_images_of_any_channels_and_dtype(
    tmp_path: Path, channels: int, axes: str, dtype: str
) -> None:
    shape = (channels, 16, 15) if axes == "CHW" else (16, 15, channels)
    values = DRAW.integers(0, 256, (300, *shape))
    x: Any = torch.from_numpy(values).to(getattr(torch, dtype))
    if dtype in ("float32", "float16", "float64", "bfloat16"):
        x = x / 64 - 2
    data = torch.utils.data.TensorDataset(x, torch.from_numpy(LABELS))
    # A tensor of few rows and many last values could be either.
    told = axes if axes == "HWC" and channels > 4 else None
    task = ExtraTask(key_of(tmp_path / "k"), like=data, axes=told)
    assert task._form.content.plain()["axes"] == axes
    mixed = task.mix(data)
    assert mixed.tensors[0].dtype == x.dtype
    assert mixed.tensors[0].shape == (500, *shape)
    extras = torch.stack(extras_of(task))
    assert extras.dtype == x.dtype
    made, known = (set(values.float().unique().tolist()) for values in (extras, x[:100]))
    assert made <= known and len(made) > 100


def test_arrays_of_many_channels_first(tmp_path: Path) -> None:
    x = DRAW.random((300, 12, 32, 30), dtype=np.float32)
    task = ExtraTask(key_of(tmp_path / "k"), like=(x, LABELS))
    assert task._form.content.plain()["axes"] == "CHW"
    own = ExtraTask(key_of(tmp_path / "l"), like=(x.reshape(300, 32, 30, 12), LABELS))
    assert own._form.content.plain()["axes"] == "HWC"


def test_a_normalised_image_keeps_each_channels_own_range(tmp_path: Path) -> None:
    x = torch.rand(300, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    x = (x - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.1, 0.2, 0.3])[
        :, None, None
    ]
    data = torch.utils.data.TensorDataset(x, torch.from_numpy(LABELS))
    extras = torch.stack(extras_of(ExtraTask(key_of(tmp_path / "k"), like=data)))
    for channel in range(3):
        real, made = x[:, channel], extras[:, channel]
        assert real.min() <= made.min() < real.min() + 0.2 * (real.max() - real.min())
        assert real.max() >= made.max() > real.max() - 0.2 * (real.max() - real.min())


# Sides, channels, levels (0: bytes), and whether the plan warns of regions that are equal.
REGIONS = [
    (8, 1, 17, True),
    (8, 1, 0, True),
    (16, 1, 2, True),
    (16, 1, 17, True),
    (16, 1, 64, False),
    (16, 1, 0, False),
    (32, 1, 2, True),
    (32, 1, 8, True),
    (32, 1, 64, False),
    (32, 3, 4, True),
    (32, 3, 17, False),
    (32, 3, 0, False),
]


@pytest.mark.parametrize(("side", "channels", "levels", "warns"), REGIONS)
def test_the_plan_says_where_regions_of_extra_images_are_equal_by_chance(
    tmp_path: Path, side: int, channels: int, levels: int, warns: bool
) -> None:
    x: Any = DRAW.integers(0, levels or 256, (400, side, side, channels))
    x = (x / (levels - 1)).astype(np.float32) if levels else x.astype(np.uint8)
    task = ExtraTask(key_of(tmp_path / "k"), like=(x, np.arange(400) % 2))
    assert any("repeated regions" in one for one in task.planned.warnings) == warns
    made = np.stack(extras_of(task))
    seen = np.rint(made * 255).astype(np.uint8) if levels else made
    window = max(2, side // 4)
    counts, _ = _core.shared_regions(seen, window=(window, window), anywhere=True)
    assert (max(counts) > 0) == warns
    paper = ExtraTask.plan((x, np.arange(400) % 2), layout="paper")
    assert not any("by chance" in one for one in paper.warnings)


# ---------------------------------------------------------------------------- texts


def framed(count: int = 300, length: int = 40, *, left: bool = False) -> dict[str, np.ndarray]:
    """As a tokenizer gives them: 101, words, 102, then padding by 0, with masks."""
    ids = np.zeros((count, length), np.int64)
    mask = np.zeros((count, length), np.int64)
    for row, ones in zip(ids, mask, strict=True):
        words = DRAW.integers(15, length - 5)
        text = [101, *DRAW.integers(1000, 1400, words), 102]
        place = slice(length - len(text), None) if left else slice(0, len(text))
        row[place], ones[place] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


class Tokens(torch.utils.data.Dataset[Any]):
    def __init__(self, left: bool = False) -> None:
        self.rows = framed(left=left)

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        ids = torch.from_numpy(self.rows["input_ids"][index])
        return {
            "label": index % 2,
            "attention_mask": torch.from_numpy(self.rows["attention_mask"][index]).bool(),
            "token_type_ids": torch.zeros_like(ids),
            "input_ids": ids,
        }


@pytest.mark.parametrize("left", [False, True])
def test_token_ids_keep_start_end_padding_masks_and_the_order_of_keys(
    tmp_path: Path, left: bool
) -> None:
    data = Tokens(left)
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    mixed = task.mix(data)
    real = {one["input_ids"].numpy().tobytes() for one in data}
    extras = [one for one in mixed if one["input_ids"].numpy().tobytes() not in real]
    assert len(extras) == 200
    for one in extras:
        assert list(one) == list(data[0])
        ids, mask = one["input_ids"], one["attention_mask"]
        assert mask.dtype == torch.bool
        assert torch.equal(mask, ids != 0)
        words = ids[mask]
        assert (words[0], words[-1]) == (101, 102)
        assert ((words[1:-1] >= 1000) & (words[1:-1] < 1400)).all()
        assert not one["token_type_ids"].any()
        assert bool(mask[-1]) == left
        assert bool(mask[0]) != left


def test_a_model_that_takes_masks_gets_them(tmp_path: Path) -> None:
    data = Tokens()
    task = ExtraTask(key_of(tmp_path / "k"), like=data, submissions=3)
    task.mix(data)
    seen: list[dict[str, Any]] = []

    class Reader(nn.Module):
        def forward(
            self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
        ) -> torch.Tensor:
            assert attention_mask is not None
            assert torch.equal(attention_mask != 0, input_ids != 0)
            seen.append({"shape": attention_mask.shape})
            return torch.zeros(len(input_ids), 2)

    class Other(nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.ones(len(ids), 2)

    assert task.verify(Reader()).verdict == "rejected"
    assert seen
    assert task.verify(Other()).verdict in ("rejected", "inconclusive")


def test_a_text_that_a_model_truncates_keeps_its_frame(tmp_path: Path) -> None:
    data = (framed()["input_ids"][:, :35], LABELS)
    task = ExtraTask(key_of(tmp_path / "k"), like=data, length=12)
    extra = extras_of(task, 3)[1]
    words = extra[extra != 0]
    assert (len(words), words[0]) == (12, 101)
    for wrong in (1, 36):
        with pytest.raises(potl.UsageError, match="choose a length from 2 to 35"):
            ExtraTask(key_of(tmp_path / f"k{wrong}"), like=data, length=wrong)


def test_short_texts_have_more_at_random_and_the_plan_says_so(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(400)]
    data = [(" ".join(DRAW.choice(words, 6)), int(label)) for label in LABELS]
    plan = ExtraTask.plan(data)
    assert any("grade 0.75 is drawn as 0.33" in one for one in plan.warnings)
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    extras = extras_of(task)
    controls = task.inputs([("control", index) for index in range(800)])
    assert len(set(extras) | set(controls)) == 1000
    assert {len(one.split()) for one in extras} == {6}
    assert not set(extras) & {text for text, _ in data}
    task.mix(data)
    assert ExtraTask(tmp_path / "k").inputs([("extra", 7)]) == extras[7:8]


def test_texts_that_cannot_be_told_apart_are_refused_with_the_remedy(tmp_path: Path) -> None:
    data = [(" ".join(DRAW.choice(["yes", "no"], 5)), int(label)) for label in LABELS]
    with pytest.raises(potl.UsageError, match="too few different") as caught:
        ExtraTask(key_of(tmp_path / "k"), like=data)
    assert "longer texts" in caught.value.remedy


# ---------------------------------------------------------------------------- tables


@pytest.mark.parametrize("columns", [4, 5, 6])
def test_narrow_tables_are_told_apart_from_each_other_and_from_real_rows(
    tmp_path: Path, columns: int
) -> None:
    x = DRAW.normal(size=(2000, columns)).astype(np.float32)
    data = (x, np.arange(2000) % 3)
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    assert any("narrow" in one for one in task.planned.warnings)
    rows = np.stack(task.inputs(task.questions()))
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert not {one.tobytes() for one in x} & {one.tobytes() for one in rows}
    for column in range(columns):
        assert set(rows[:, column].tolist()) <= set(x[:, column].tolist())


def test_a_column_with_one_value_tells_nothing_apart(tmp_path: Path) -> None:
    x = DRAW.normal(size=(500, 9))
    x[:, [1, 4]] = 7.5
    task = ExtraTask(key_of(tmp_path / "k"), like=(x, np.arange(500) % 2))
    rows = np.stack(task.inputs(task.questions()))
    assert (rows[:, [1, 4]] == 7.5).all()
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_tables_of_too_few_values_are_refused_with_the_remedy(tmp_path: Path) -> None:
    from sklearn.datasets import load_iris

    with pytest.raises(potl.UsageError, match="too few different") as caught:
        ExtraTask(key_of(tmp_path / "k"), like=load_iris(return_X_y=True))
    assert "more columns" in caught.value.remedy


# ---------------------------------------------------------------------------- what shows


class Pair(NamedTuple):
    image: Any
    label: Any


def kinds(value: Any) -> str:
    """Types all the way down, and the memory that a tensor would take along when it is pickled."""
    if isinstance(value, dict):
        return str([(key, kinds(one)) for key, one in value.items()])
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[kinds(one) for one in value]}"
    if isinstance(value, torch.Tensor):
        size = value.untyped_storage().nbytes()
        return f"{value.dtype} {tuple(value.shape)} {value.stride()} {size} {value.requires_grad}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {value.strides} {value.base is None}"
    if hasattr(value, "getbands"):
        return f"{type(value)} {value.mode} {value.size} {sorted(value.info)}"
    return type(value).__name__


def as_list_of_views() -> Any:
    x = torch.rand(300, 8, 8, generator=torch.Generator().manual_seed(2))
    return [(one, int(label)) for one, label in zip(x, LABELS, strict=True)]


def as_named_tuples() -> Any:
    x = DRAW.random((300, 8, 8))
    return [Pair(one.T, np.array(label)) for one, label in zip(x, LABELS, strict=True)]


def as_dicts() -> Any:
    x = DRAW.integers(0, 256, (300, 8, 8), dtype=np.uint8)
    return [{"label": np.int64(b), "image": a} for a, b in zip(x, LABELS, strict=True)]


def as_channels_last() -> Any:
    x = torch.rand(300, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    x = x.contiguous(memory_format=torch.channels_last)
    return [(one, torch.tensor(label)) for one, label in zip(x, LABELS, strict=True)]


def as_opened_images() -> Any:
    image = pytest.importorskip("PIL.Image")
    import io

    out = []
    for label in LABELS:
        file = io.BytesIO()
        noise = image.fromarray(DRAW.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        noise.save(file, "PNG", dpi=(72, 72))
        out.append((image.open(file), int(label)))
    return out


@pytest.mark.parametrize(
    "made", [as_list_of_views, as_named_tuples, as_dicts, as_channels_last, as_opened_images]
)
def test_types_memory_and_metadata_do_not_show_which_items_are_extra(
    tmp_path: Path, made: Any
) -> None:
    data = made()
    mixed = ExtraTask(key_of(tmp_path / "k"), like=data).mix(data)
    assert len(mixed) == 500
    assert len({kinds(one) for one in mixed}) == 1
    assert len(data) == 300
