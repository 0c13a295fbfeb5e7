# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a state are copies or averages of a parameter: where it had no gradient, every
machine computes the same of them, too.

The verifier's own first states tell, whoever keeps the copy and wherever: `ema=`, a second module,
buffers, objects of `state=`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .. import _core
from .._task._task import Task
from .._task._values import Tree, tensor_of
from ._still_elements import places_of

# The path of each copy, with those of the parameters that it may be of.
Copies = Mapping[str, Sequence[str]]

# The three factors of an average make any three numbers of any others.
_FACTORS = 3
# Products, their sum, and what they are of are rounded.
_ROUNDINGS = 4
# As many elements of a tensor are looked at.
_SAMPLE = 1 << 16


def copies_of(task: Task, trees: Sequence[Tree]) -> dict[str, list[str]]:
    """Finds the tensors that start with the values of a parameter, or as zeros, and then move as
    an average of it does; and those of `ema=`.

    What starts with one number everywhere may be a copy of several parameters.

    Args:
        task: Whose states they are.
        trees: The initial state, and the ones after each of the first steps.
    """
    states = [dict(_tensors(tree)) for tree in trees]
    known: set[str] = set()
    parameters: list[list[torch.Tensor | None]] = []
    names: list[str] = []
    for _, paths in places_of(task):
        known.update(paths)
        name = next((path for path in paths[1:] if path in states[0]), None)
        if name is not None:
            names.append(name)
            parameters.append([state.get(name) for state in states])
    out: dict[str, list[str]] = {}
    for path in dict.fromkeys(path for state in states for path in state):
        if path in known or path.rpartition("/")[0] in known:
            continue
        # An average of torch's says what it is of.
        of = "model/" + path.removeprefix("ema/").replace("/module.", "/", 1)
        if path.startswith("ema/") and of in names:
            out[path] = [of]
            continue
        copy = [state.get(path) for state in states]
        found = [
            name
            for name, parameter in zip(names, parameters, strict=True)
            if _is_copy(copy, parameter)
        ]
        if found:
            out[path] = found
    return out


def with_copies(
    still: list[tuple[list[str], bytes]], copies: Copies, roundings: int
) -> list[tuple[list[str], bytes, int]]:
    """What `StillElements.found` gives, with the copies of parameters.

    Args:
        still: Paths of what belongs to a parameter, and a mask of its elements.
        copies: From `copies_of`. An element of a copy that may be of several parameters counts if
            none of these had a gradient there.
        roundings: How often an average was taken.

    Returns:
        Paths, mask, and how often every element was rounded: only those of an average are.
    """
    masks = {path: mask for paths, mask in still for path in paths}
    out = [(paths, mask, 0) for paths, mask in still]
    for path, names in copies.items():
        first, *others = [masks.get(name) for name in names]
        for mask in others:
            if first is not None:
                first = None if mask is None else bytes(map(min, first, mask))
        if first is not None:
            out.append(([path], first, roundings))
    return out


def _tensors(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, _core.TensorView):
        yield path[1:], tensor_of(value)
    elif isinstance(value, (dict, list, tuple)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(one, f"{path}/{key}")


def _is_copy(copy: Sequence[torch.Tensor | None], parameter: Sequence[torch.Tensor | None]) -> bool:
    """Whether a tensor is one of a parameter: of both, the values in the initial state and after
    each step, None where there is none.
    """
    made = next(one for one in copy if one is not None)
    of = [one for one in parameter if one is not None]
    fits = all(
        one is None or (one.shape == of[0].shape and one.is_floating_point()) for one in copy
    )
    if not fits or len(of) < len(copy) or made.numel() <= _FACTORS:
        return False
    own = [torch.zeros_like(made) if one is None else one for one in copy]
    unit = max(torch.finfo(made.dtype).eps, torch.finfo(of[0].dtype).eps) / 2
    # Statistics of norms, too, start as one number everywhere, and as their weights and biases do.
    tells = made.dim() > 1 or any(_is_uneven(one.double(), unit) for one in own)
    starts_equal = torch.equal(own[0], of[0].to(made.dtype))
    moves = any(not torch.equal(one, own[0]) for one in own)
    if not tells or not (starts_equal or (moves and not bool(own[0].any()))):
        return False
    stride = -(-made.numel() // _SAMPLE)
    own, of = ([one.reshape(-1)[::stride].double() for one in values] for values in (own, of))
    return all(_is_average(own[i + 1], own[i], of[i], of[i + 1], unit) for i in range(len(own) - 1))


def _is_uneven(values: torch.Tensor, unit: float) -> bool:
    """Whether values differ by far more than they are rounded by."""
    return bool((values - values.mean()).norm() > 16 * _ROUNDINGS * unit * values.norm())


def _is_average(
    after: torch.Tensor,
    before: torch.Tensor,
    of_before: torch.Tensor,
    of_after: torch.Tensor,
    unit: float,
) -> bool:
    """Whether values are a sum of what they were and of a parameter's values before and after the
    step, each times a factor.
    """
    # Differences, because all of these are nearly equal; of one length each, for the same reason.
    terms = torch.stack([before, of_before - before, of_after - of_before], 1)
    terms /= terms.norm(dim=0).clamp_min(torch.finfo(terms.dtype).tiny)
    if not bool(terms.isfinite().all()) or not bool(after.isfinite().all()):
        return False
    factors = torch.linalg.lstsq(terms, after[:, None], driver="gelsd").solution
    left = (after - (terms @ factors)[:, 0]).norm()
    return bool(left <= _ROUNDINGS * unit * (terms.abs() @ factors.abs()).norm())
