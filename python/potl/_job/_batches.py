# SPDX-License-Identifier: Apache-2.0
"""The agreed batches of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .._task._collated import to_device
from .._task._data import Planned, Reader, batches
from .._task._schedule import Schedule
from .._task._task import Task


class Batches:
    """Reads what a schedule names.

    Args:
        task: Whose data set, transform and collate function make the batches.
        schedule: Which samples belong to a step.
    """

    def __init__(self, task: Task, schedule: Schedule) -> None:
        self._task = task
        self._schedule = schedule
        self._reader = Reader(
            task.dataset,
            seed=schedule.seed,
            transform=task.transform,
            collate_fn=task.collate_fn,
            seeded_reads=schedule.seeded_reads,
        )

    @property
    def are_plain(self) -> bool:
        """Whether making one is nothing but indexing tensors."""
        return self._reader.is_plain

    def of(self, step: int, ids: Sequence[int]) -> Any:
        """The collated batch of a step, with these samples."""
        return self._reader(step, self._schedule.epoch_of(step), list(ids))

    def between(self, first: int, last: int) -> Iterator[tuple[int, list[int], Any]]:
        """The agreed batches of steps `first` to `last`: step, sample ids, collated batch."""

        def plan() -> Iterator[Planned]:
            for step in range(first, last + 1):
                yield step, self._schedule.epoch_of(step), self._schedule.sample_ids(step)

        for (step, _, ids), batch in batches(
            self._reader, plan, num_workers=self._task.num_workers if last > first else 0
        ):
            yield step, ids, batch

    def in_parts(self, ids: Sequence[int], epoch: int) -> Iterator[tuple[int, int, Any]]:
        """Batches on the device of samples of no step: number, size, batch."""
        size = self._task.batch_size
        for number, first in enumerate(range(0, len(ids), size)):
            part = list(ids[first : first + size])
            yield number, len(part), to_device(self._reader(number, epoch, part), self._task.device)

    def on_device(self, step: int, batch: Any) -> Any:
        """A batch of a step, read if it is a list of sample ids, where the model is."""
        if isinstance(batch, (list, tuple)) and batch and type(batch[0]) is int:
            batch = self.of(step, batch)
        return to_device(batch, self._task.device)
