# SPDX-License-Identifier: Apache-2.0
"""Collated batches: how many samples they have, how they are cut, and how they are moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .._base._errors import UsageError
from ._records import fields_of, with_fields

# What a collated batch lists one by one, for each sample. Targets of detectors are dicts, the last.
_IN_LISTS = (str, bytes, int, float, Mapping)

# Of a container, in a message.
_TOLD = 6


def batch_length(batch: Any, *, in_maps: bool = True) -> int:
    """Samples in a collated batch: the size of dimension 0 of its first tensor.

    Args:
        batch: Tensors, and containers of them.
        in_maps: Whether tensors in lists of maps count.
    """
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 0
    length = partial(batch_length, in_maps=in_maps)
    named = batch if isinstance(batch, Mapping) else fields_of(batch)
    if named is not None:
        return next((n for n in map(length, _targets_last(named.values())) if n), 0)
    if isinstance(batch, (list, tuple)):
        if batch and isinstance(batch[0], (str, bytes)):
            return len(batch)
        if batch and isinstance(batch[0], Mapping) and not in_maps:
            return 0
        kinds = [v[0] for v in batch if isinstance(v, (list, tuple)) and v]
        if any(isinstance(v, Mapping) for v in kinds) and any(map(torch.is_tensor, kinds)):
            return 0  # lists of images and of their targets: no tensor counts samples
        return next((n for n in map(length, _targets_last(batch)) if n), 0)
    return 0


def form_of(batch: Any) -> str:
    """Types and shapes of what is in a collated batch, as a message names them."""
    if isinstance(batch, torch.Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')}{list(batch.shape)}"
    if isinstance(batch, Mapping):
        return f"{{{', '.join(f'{key}: {form_of(batch[key])}' for key in [*batch][:_TOLD])}}}"
    if isinstance(batch, (list, tuple)):
        more = ["..."] if len(batch) > _TOLD else []
        return f"[{', '.join([*map(form_of, batch[:_TOLD]), *more])}]"
    return type(batch).__name__


def split_batch(batch: Any, parts: int, batch_size: int) -> list[tuple[Any, float]]:
    """Cuts a collated batch of at most `batch_size` samples along dimension 0 into at most `parts`
    consecutive parts of about equal size.

    Raises:
        UsageError: Nothing in it counts samples, or more than one thing may.
    """
    if parts == 1:
        return [(batch, 1.0)]
    count = batch_length(batch)
    sizes = {one.shape[0] for one in tree_leaves(batch) if torch.is_tensor(one) and one.dim()}
    if count == 0 or (count > batch_size and len(sizes) > 1):
        raise UsageError(
            f"a batch {form_of(batch)} of {batch_size} samples cannot be cut into micro-batches",
            "override Task.step, or collate into tensors whose dimension 0 counts samples: pad "
            "what an EmbeddingBag takes as one tensor with offsets",
        )
    size = -(-count // parts)
    bounds = [(first, min(first + size, count)) for first in range(0, count, size)]
    return [
        (select_samples(batch, slice(a, b), count), 1.0 if b - a == count else (b - a) / count)
        for a, b in bounds
    ]


def select_samples(batch: Any, which: slice | torch.Tensor, count: int) -> Any:
    """`batch` with only the samples `which`: tensors and lists of `count` entries are cut, the rest
    is kept.
    """
    # Where nothing beside them counts samples, as many maps as samples are views of all of them.
    views = not batch_length(batch, in_maps=False)
    return _selected(batch, which, count, _IN_LISTS[:-1] if views else _IN_LISTS)


def _selected(
    batch: Any, which: slice | torch.Tensor, count: int, listed: tuple[type[Any], ...]
) -> Any:
    def select(value: Any) -> Any:
        return _selected(value, which, count, listed)

    if isinstance(batch, torch.Tensor):
        return batch[which] if batch.dim() and batch.shape[0] == count else batch
    if isinstance(batch, Mapping):
        cut = {key: select(value) for key, value in batch.items()}
        return cut if type(batch) is dict else type(batch)(cut)  # type: ignore[call-arg]
    if (named := fields_of(batch)) is not None:
        return with_fields(batch, {key: select(value) for key, value in named.items()})
    if isinstance(batch, (list, tuple)):
        if len(batch) == count and batch and isinstance(batch[0], listed):
            picked = (
                list(batch[which])
                if isinstance(which, slice)
                else [batch[i] for i in which.tolist()]
            )
            return type(batch)(picked)
        items = [select(value) for value in batch]
        if isinstance(batch, tuple) and hasattr(batch, "_fields"):
            return type(batch)(*items)
        return type(batch)(items)
    return batch


def to_device(batch: Any, device: torch.device) -> Any:
    """`batch` with its tensors on `device`; an object with a method `to` moves itself."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, Mapping):
        moved = {key: to_device(value, device) for key, value in batch.items()}
        return moved if type(batch) is dict else type(batch)(moved)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(value, device) for value in batch)
    if (named := fields_of(batch)) is not None:
        return with_fields(batch, {key: to_device(value, device) for key, value in named.items()})
    return batch


def _targets_last(values: Iterable[Any]) -> list[Any]:
    """Lists of maps at the end: what a detector's targets hold does not count samples."""

    def is_listed(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)

    return sorted(values, key=is_listed)
