# SPDX-License-Identifier: Apache-2.0
"""Samples and batches that are objects: data classes, graphs, and what moves itself to a device."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import potl
from potl._task._collated import select_samples, split_batch, to_device
from potl._task._sample_bytes import sample_bytes


@dataclasses.dataclass(frozen=True)
class Sample:
    x: Tensor
    y: int


@dataclasses.dataclass(frozen=True)
class Batch:
    x: Tensor
    y: Tensor
    size: int = dataclasses.field(init=False, default=0)


ROWS = [Sample(torch.full((3,), float(i % 4)), i % 2) for i in range(12)]


def collate(rows: list[Sample]) -> Batch:
    return Batch(torch.stack([row.x for row in rows]), torch.tensor([row.y for row in rows]))


class OfRecords(potl.Task):
    def compute_loss(self, batch: Batch, reduction: str = "mean") -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.x), batch.y, reduction=reduction)


def build() -> potl.Task:
    model = nn.Linear(3, 2)
    return OfRecords(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        ROWS,
        batch_size=4,
        epochs=1,
        accumulate=2,
        collate_fn=collate,
    )


class Graph:
    """What torch_geometric.data.data.BaseData is to potl."""

    def __init__(self, **values: Any) -> None:
        store = types.SimpleNamespace(_mapping=values, _parent=self)
        self._values, self.stores = values, [store]

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)


def test_a_run_on_data_classes_is_accepted(tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=3, checkpoint_every=1)
    assert job.core.arithmetic == "ord32"
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=build, ledger=None)
    assert report.verdict == "accepted", report.sentence


def test_a_data_class_is_hashed_by_all_its_fields() -> None:
    one = Sample(torch.zeros(2), 1)
    assert sample_bytes(one) == sample_bytes({"y": 1, "x": torch.zeros(2)})
    for other in (Sample(torch.ones(2), 1), Sample(torch.zeros(2), 0)):
        assert sample_bytes(other) != sample_bytes(one)
    with pytest.raises(potl.NotReplayable, match=r"sample\['y'\] is a builtins.object"):
        sample_bytes(dataclasses.replace(one, y=object()))  # type: ignore[arg-type]
    with pytest.raises(potl.NotReplayable, match="no canonical bytes"):
        sample_bytes(Sample)


@dataclasses.dataclass
class Derived:
    x: Tensor
    rows: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.x

    @functools.cached_property
    def first(self) -> Tensor:
        return self.x[:1]


def test_what_a_data_class_holds_beside_its_fields_is_hashed_cut_and_moved() -> None:
    one = Derived(torch.arange(4.0))
    before = sample_bytes(one)
    assert len(one.first) == 1 and sample_bytes(one) == before
    part = select_samples(one, slice(2, 4), 4)
    assert torch.equal(part.double, one.double[2:]) and torch.equal(part.first, one.x[2:3])
    assert to_device(one, torch.device("meta")).double.device.type == "meta"
    one.double = torch.zeros(4)
    assert sample_bytes(one) != before


def test_a_graph_is_hashed_by_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(x=torch.zeros(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(potl.NotReplayable, match="no canonical bytes"):
        sample_bytes(graph)
    package = types.ModuleType("torch_geometric.data.data")
    package.BaseData = Graph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    assert sample_bytes([graph]) == sample_bytes([graph.to_dict()])
    other = Graph(**{**graph.to_dict(), "x": torch.ones(2, 3)})
    assert sample_bytes([other]) != sample_bytes([graph])
    before = sample_bytes(graph)
    graph.stores[0]._weight = torch.ones(2)  # what graph._weight = does
    assert sample_bytes(graph) != before


class Slotted:
    __slots__ = ("__weight", "unset")

    def weigh(self, weight: float) -> None:
        self.__weight = weight


@dataclasses.dataclass
class OnSlots(Slotted):
    __slots__ = ("x",)
    x: Tensor


def test_what_slots_keep_is_hashed_and_copied() -> None:
    one = OnSlots(torch.zeros(2))
    before = sample_bytes(one)
    one.weigh(2.0)
    weighed = sample_bytes(one)
    assert weighed != before
    assert sample_bytes(to_device(one, torch.device("cpu"))) == weighed


def test_a_data_class_is_cut_into_micro_batches() -> None:
    batch = collate(ROWS[:4])
    (first, share), (second, _) = split_batch(batch, 2, 4)
    assert share == 0.5 and (len(first.x), len(second.y)) == (2, 2)
    assert torch.equal(second.x, batch.x[2:]) and batch.x.shape == (4, 3)
    assert select_samples(batch, torch.tensor([3]), 4).y.tolist() == [1]


def targets(count: int) -> list[dict[str, Tensor]]:
    return [{"boxes": torch.full((4, 4), float(i))} for i in range(count)]


def test_targets_of_a_detector_are_cut_by_sample() -> None:
    batch = {"pixel_values": torch.zeros(4, 3, 8, 8), "labels": targets(4)}
    parts = [part for part, _ in split_batch(batch, 2, 4)]
    assert [len(part["pixel_values"]) for part in parts] == [2, 2]
    found = [[t["boxes"].shape[0] + t["boxes"].sum() for t in part["labels"]] for part in parts]
    assert found == [[4, 20], [36, 52]]


def test_the_targets_of_a_detector_do_not_count_its_samples() -> None:
    boxes = [{"boxes": torch.zeros(2, 4)} for _ in range(3)]
    images = torch.zeros(3, 3, 8, 8)
    named, placed = {"labels": boxes, "pixel_values": images}, (boxes, images)
    assert [len(part["labels"]) for part, _ in split_batch(named, 3, 3)] == [1, 1, 1]
    assert [len(part[0]) for part, _ in split_batch(placed, 3, 3)] == [1, 1, 1]


@pytest.mark.parametrize("count", [2, 3])
def test_views_of_all_samples_are_cut_and_no_targets(count: int) -> None:
    views = [{"x": torch.arange(count) + 10 * number} for number in range(2)]
    for batch in (views, {"views": views}):
        parts = [part for part, _ in split_batch(batch, count, count)]
        found = [part["views"] if isinstance(part, dict) else part for part in parts]
        assert [[int(view["x"]) for view in part] for part in found] == [
            [i, 10 + i] for i in range(count)
        ]


def test_lists_of_images_and_of_their_targets_are_not_cut_into_micro_batches() -> None:
    # The size that comes first in them is that of the channels.
    images = [torch.zeros(3, 8, 8) for _ in range(4)]
    for batch in ((images, targets(4)), [images, targets(4)]):
        assert split_batch(batch, 1, 4) == [(batch, 1.0)]
        with pytest.raises(potl.UsageError, match="cannot be cut into micro-batches"):
            split_batch(batch, 2, 4)


def test_bags_of_several_sizes_are_not_cut_into_micro_batches() -> None:
    words, offsets, labels = torch.arange(30), torch.arange(0, 30, 5), torch.arange(6)
    for batch in ([words, offsets, labels], {"words": words, "bags": [offsets], "y": labels}):
        with pytest.raises(potl.UsageError, match=r"of 6 samples cannot be cut.*EmbeddingBag"):
            split_batch(batch, 2, 6)
    # Several rows for each sample, or a tensor beside the samples, are no bags.
    assert [len(part[0]) for part, _ in split_batch([words, words], 2, 6)] == [15, 15]
    assert [len(part[1]) for part, _ in split_batch([labels, words], 2, 6)] == [30, 30]


def test_batches_are_moved_with_what_they_hold() -> None:
    meta = torch.device("meta")
    moved = to_device([collate(ROWS[:4]), 5], meta)
    assert moved[0].x.device == moved[0].y.device == meta and moved[1] == 5
    # Lengths of packed sequences stay on the CPU, as the sequence itself knows.
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 2), torch.zeros(2, 2)])
    there = to_device({"words": packed}, meta)["words"]
    assert there.data.device == meta and there.batch_sizes.device.type == "cpu"
