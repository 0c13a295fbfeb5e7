# SPDX-License-Identifier: Apache-2.0
"""Data: the root that binds every sample, and batches that are a function of the job.

What is random in the data pipeline is seeded by the job, so that it never has to be recorded: a
sample is read and transformed under PRF(seed, epoch, index), and a batch is collated under
PRF(seed, step), by whichever process.
"""

from __future__ import annotations

import functools
import multiprocessing
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from .. import _core
from .._base._errors import NotReplayable, Problem
from . import _own_files, _random
from ._reading import reading
from ._sample_bytes import first_difference, raw_bytes, sample_bytes, tensor_header, tuple_header

# Samples read between two looks at the state of the random number generators.
_CHUNK = 64
# Samples that are read a second time although they drew nothing.
_SECOND_READS = 256
# Samples that a check reads before anything is trained.
_TRIED = 32

_MAP_STYLE = (
    "use a map-style data set, with __getitem__ and __len__: [*data] if it fits into memory, else "
    "a class that finds sample i in its files; a step that makes its own samples takes range(n)"
)

Planned = tuple[int, int, list[int]]
"""Step, epoch and sample ids of one batch."""


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What a data set holds."""

    count: int
    """Samples."""
    root: bytes
    """RFC 6962 Merkle root over the canonical bytes of every sample."""
    seeded_reads: bool
    """Whether reading a sample draws random numbers (augmentation in `__getitem__`)."""


def check_dataset(dataset: Any) -> list[Problem]:
    """What makes a data set unfit, without reading it."""
    if isinstance(dataset, DataLoader):
        return [
            Problem(
                what=f"{type(dataset).__name__} makes batches, and a task makes its own",
                where="dataset",
                remedy="pass loader.dataset as dataset=, and to the task what the loader was "
                "given: batch_size=, collate_fn=, sampler= or shuffle=False, drop_last=, "
                "num_workers=",
            )
        ]
    if isinstance(dataset, IterableDataset):
        return [
            Problem(
                what=f"{type(dataset).__name__} is an IterableDataset: its samples have no "
                "numbers to draw",
                where="dataset",
                remedy=_MAP_STYLE,
            )
        ]
    missing = [name for name in ("__getitem__", "__len__") if not hasattr(dataset, name)]
    if missing:
        return [
            Problem(
                what=f"{type(dataset).__name__} has no {' and no '.join(missing)}",
                where="dataset",
                remedy=_MAP_STYLE,
            )
        ]
    if len(dataset) == 0:
        return [Problem(what="the data set is empty", where="dataset", remedy="add samples")]
    return []


def check_reads(dataset: Any, transform: Callable[[Any], Any] | None = None) -> list[Problem]:
    """Reads a few samples as `scan` reads all of them, and looks whether a transform leaves them
    as they are in the data set.
    """
    plain = _is_plain(dataset)
    if plain and transform is None:
        return []
    with reading():
        for index in range(0, len(dataset), max(1, len(dataset) // _TRIED)):
            try:
                leaf, drawn = _seeded_leaf(dataset, index)
                if not plain:
                    _compare_second_read(dataset, index, leaf, drawn)
            except NotReplayable as error:
                return list(error.problems)
            if transform is None:
                continue
            first, second = (_drawn_by(transform, dataset, index) for _ in range(2))
            if first != second:
                return [_keeps_what_it_drew("it", "transform")]
            if _seeded_leaf(dataset, index)[0] != leaf:
                return [
                    Problem(
                        what=f"it changes {type(dataset).__name__}[{index}] itself, so that later "
                        "epochs read another sample",
                        where="transform",
                        remedy="let it change a copy (x = x.clone(), or inplace=False)",
                    )
                ]
    return []


def scan(dataset: Any) -> DataFacts:
    """Hashes every sample, reading it under a PRF of its index.

    Raises:
        NotReplayable: Two reads of one sample under the same randomness differ, or a sample has no
            canonical bytes.
    """
    problems = check_dataset(dataset)
    if problems:
        raise NotReplayable(problems)
    tree = _core.MerkleTree()
    if _is_plain(dataset):
        for leaf in _plain_leaves(dataset):
            tree.append(leaf)
        return DataFacts(count=len(dataset), root=tree.root(), seeded_reads=False)
    seeded = False
    with reading():
        again = max(1, len(dataset) // _SECOND_READS)
        for first in range(0, len(dataset), _CHUNK):
            indices = range(first, min(first + _CHUNK, len(dataset)))
            leaves = None
            if not seeded:
                _random.seed_all(_core.derive_key(0, "data", first))
                before = _generators()
                leaves = [_leaf(dataset[index]) for index in indices]
                seeded = _generators() != before
            reads: list[tuple[bytes, tuple[Any, ...] | None]]
            if seeded or leaves is None:
                reads = [_seeded_leaf(dataset, index) for index in indices]
            else:
                reads = [(leaf, None) for leaf in leaves]
            for index, (leaf, drawn) in zip(indices, reads, strict=True):
                if seeded or index % again == 0:
                    _compare_second_read(dataset, index, leaf, drawn)
                tree.append(leaf)
    return DataFacts(count=len(dataset), root=tree.root(), seeded_reads=seeded)


def _leaf(sample: Any) -> bytes:
    return _core.leaf_hash(sample_bytes(sample))


def _seeded_leaf(dataset: Any, index: int) -> tuple[bytes, tuple[Any, ...]]:
    """The leaf of a sample, and where reading it leaves the generators."""
    leaf = _leaf(_seeded_sample(dataset, index))
    return leaf, _generators()


def _seeded_sample(dataset: Any, index: int) -> Any:
    _random.seed_all(_core.derive_key(0, "data", index))
    return dataset[index]


def _drawn_by(transform: Callable[[Any], Any], dataset: Any, index: int) -> tuple[Any, ...]:
    _random.seed_all(_core.derive_key(0, "data", index))
    transform(dataset[index])
    return _generators()


def _keeps_what_it_drew(what: str, where: str) -> Problem:
    return Problem(
        what=f"{what} draws random numbers when it gets a sample first, and fewer or others when "
        "it gets it again: a replay that begins in a later epoch makes another sample of it",
        where=where,
        remedy="keep no sample that random numbers have changed: cache it before it is augmented",
    )


def _compare_second_read(
    dataset: Any, index: int, leaf: bytes, drawn: tuple[Any, ...] | None
) -> None:
    # None: the first read was not seeded, and drew nothing.
    again, drawn_again = _seeded_leaf(dataset, index)
    if again != leaf:
        found = _difference(dataset, index, lambda: _seeded_sample(dataset, index))
        raise NotReplayable(
            Problem(
                what=f"{type(dataset).__name__}[{index}] differs between two reads under the "
                f"same randomness{found}",
                where="dataset",
                remedy="draw from torch, random or numpy.random (their global generators, which "
                "potl seeds), keep no state between reads, or move the augmentation to transform=",
            )
        )
    if drawn is not None and drawn_again != drawn:
        raise NotReplayable(_keeps_what_it_drew(f"{type(dataset).__name__}[{index}]", "dataset"))
    many = getattr(dataset, "__getitems__", None)
    if many is None or drawn is not None:
        return
    # By the bytes of the first read: both may fill the same memory.
    if _leaf(next(iter(many([index])))) != leaf:
        found = _difference(dataset, index, lambda: next(iter(many([index]))))
        raise NotReplayable(
            Problem(
                what=f"{type(dataset).__name__}.__getitems__([{index}]) is not "
                f"[__getitem__({index})]{found}",
                where="dataset",
                remedy="make both return the same sample: only one of them is hashed",
            )
        )


def _difference(dataset: Any, index: int, other: Callable[[], Any]) -> str:
    """Where another read differs, in brackets, or "": the message does without what further reads
    do not show.
    """
    try:
        found = first_difference(_seeded_sample(dataset, index), other())
    except Exception:  # of the data set's own code
        return ""
    return f" ({found})" if found else ""


def _generators() -> tuple[Any, ...]:
    """The state of every global generator that reading a sample might draw from."""
    words: Any
    kind, words, *rest = np.random.get_state(legacy=True)
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        kind,
        words.tobytes(),
        *rest,
    )


def _is_plain(dataset: Any) -> bool:
    """Whether reading is nothing but indexing tensors."""
    return type(dataset) is TensorDataset and all(
        t.device.type == "cpu" and t.layout is torch.strided and t.is_contiguous()
        and not t.requires_grad and type(t) is torch.Tensor
        for t in dataset.tensors
    )  # fmt: skip


def _plain_leaves(dataset: TensorDataset) -> Iterator[bytes]:
    columns = []
    for tensor in dataset.tensors:
        data = raw_bytes(tensor)
        columns.append(
            (tensor_header(tensor.dtype, tuple(tensor.shape[1:])), data, len(data) // len(tensor))
        )
    head = tuple_header(len(columns))
    for index in range(len(dataset)):
        parts = [head]
        for header, data, size in columns:
            parts += (header, data[index * size : (index + 1) * size])
        yield _core.leaf_hash(b"".join(parts))


class Reader:
    """Makes the batch of a step. The same in this process and in workers.

    Args:
        dataset: Map-style.
        seed: The job's.
        transform: Applied to each sample.
        collate_fn: None for torch's default.
        seeded_reads: Whether reading draws random numbers; True is always right, False is faster.

    Attributes:
        is_plain: Whether making a batch is nothing but indexing tensors.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        seed: int,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        seeded_reads: bool = True,
    ) -> None:
        self._dataset = dataset
        self._seed = seed
        self._transform = transform
        self._collate = default_collate if collate_fn is None else collate_fn
        self._seeded_collate = self._collate is not default_collate
        self.is_plain = _is_plain(dataset) and transform is None and not self._seeded_collate
        self._seeded_reads = seeded_reads and not _is_plain(dataset)

    def __call__(self, step: int, epoch: int, ids: Sequence[int]) -> Any:
        """The collated batch of a step, on the CPU."""
        if self.is_plain:
            which = torch.tensor(ids, dtype=torch.int64)
            return [tensor.index_select(0, which) for tensor in self._dataset.tensors]
        with reading():
            samples = self._samples(epoch, ids)
            if not self._seeded_collate:
                return _collated(samples, ids)
            _random.seed_all(_core.derive_key(self._seed, "collate", step))
            return self._collate(samples)

    def __getitem__(self, planned: Planned) -> Any:
        return self(*planned)

    def _samples(self, epoch: int, ids: Sequence[int]) -> list[Any]:
        if not self._seeded_reads:
            many = getattr(self._dataset, "__getitems__", None)
            samples = list(many(list(ids)) if many else (self._dataset[i] for i in ids))
            if self._transform is not None:
                for position, index in enumerate(ids):
                    self._seed_sample(epoch, index)
                    samples[position] = self._transform(samples[position])
            return samples
        samples = []
        for index in ids:
            self._seed_sample(epoch, index)
            sample = self._dataset[index]
            samples.append(sample if self._transform is None else self._transform(sample))
        return samples

    def _seed_sample(self, epoch: int, index: int) -> None:
        _random.seed_all(_core.derive_key(self._seed, "sample", epoch, index))


def _collated(samples: list[Any], ids: Sequence[int]) -> Any:
    """torch's default batch of samples, or why there is none."""
    try:
        return default_collate(samples)
    except (TypeError, KeyError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "equal size" not in str(error):
            raise
        cause = error
    none = [index for index, sample in zip(ids, samples, strict=True) if sample is None]
    if none:
        what = f"dataset[{none[0]}] is None"
        remedy = "leave such samples out of the data set, or drop them in a collate_fn="
    else:
        said = f"{type(cause).__name__}: {cause}".splitlines()[0]
        what = f"samples such as dataset[{ids[0]}] do not make a batch ({said})"
        remedy = (
            "pass transform=, which makes tensors of a sample, or collate_fn=, which makes a batch "
            "of a list of samples; arrays of all inputs and all labels are TensorDataset(x, y)"
        )
    raise NotReplayable(Problem(what=what, where="dataset", remedy=remedy))


class _Plan:
    """A sampler over planned batches, made one by one."""

    def __init__(self, planned: Iterable[Planned]) -> None:
        self._planned = planned

    def __iter__(self) -> Iterator[Planned]:
        return iter(self._planned)


def batches(
    reader: Reader, planned: Callable[[], Iterable[Planned]], *, num_workers: int
) -> Iterator[tuple[Planned, Any]]:
    """The batches of a plan in order, made here or by `num_workers` processes that read ahead."""
    if num_workers == 0:
        for one in planned():
            yield one, reader(*one)
        return
    # Forked, like torch's own default on Linux: spawned workers would import the user's main script
    # again, which an unguarded script does not survive. Workers use one thread, so they never wait
    # for threads of the parent.
    forked = "fork" in multiprocessing.get_all_start_methods()
    with _random.scope(), warnings.catch_warnings():
        # Said anew for every segment: that there are fewer processors, and that torch has threads.
        warnings.filterwarnings("ignore", message="This DataLoader will create", module="torch")
        warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)
        loader: Iterator[Any] = iter(
            DataLoader(
                reader,  # type: ignore[arg-type]
                batch_size=None,
                sampler=_Plan(planned()),
                num_workers=num_workers,
                collate_fn=_identity,
                worker_init_fn=functools.partial(
                    _enter_scope, _own_files.positions() if forked else {}
                ),
                multiprocessing_context="fork" if forked else "spawn",
            )
        )
    for one in planned():
        yield one, next(loader)


def _identity(batch: Any) -> Any:
    return batch


def _enter_scope(files: dict[int, int], worker: int) -> None:
    _own_files.open_again(files)
    _worker_scope.append(_random.scope())
    _worker_scope[-1].__enter__()


# Keeps the scope of a worker process open for as long as the process lives.
_worker_scope: list[Any] = []
