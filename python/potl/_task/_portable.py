# SPDX-License-Identifier: Apache-2.0
"""Which operators of a `build()` may give other bits on another machine.

Initial weights are re-derived from the seed wherever the job is checked, so they must not depend on
the processor. potl's own random operators do not; neither do copies, views, comparisons and single
IEEE operations. Everything else (LAPACK in `orthogonal_`, exp and sin in position tables, sums,
products of matrices) is assumed to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Names of operators without a trailing underscore (in-place forms count as their namesake).
_MOVING = """
    alias arange as_strided bernoulli cat clone constant_pad_nd copy _copy_from
    _copy_from_and_resize detach diagonal empty empty_like empty_permuted empty_strided expand eye
    fill flip full full_like gather index index_put index_select is_same_size item lift lift_fresh
    _local_scalar_dense masked_fill masked_scatter masked_select narrow new_empty new_empty_strided
    new_full new_ones new_zeros nonzero ones ones_like permute repeat reshape resize roll
    scalar_tensor scatter select set slice split split_with_sizes squeeze stack t _to_copy _to
    transpose tril triu unbind unfold unsqueeze unsafe_split _unsafe_view view view_as_real
    view_as_complex where zero zeros zeros_like _reshape_alias
"""
_ROUNDED_ONCE = """
    abs add all any bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min
    div eq equal floor ge gt isfinite isinf isnan le logical_and logical_not logical_or lt
    max maximum min minimum mul ne neg reciprocal round rsub sign sqrt sub trunc amax amin argmax
    argmin sort topk
"""
_DRAWN_BY_POTL = """
    _sample_dirichlet _standard_gamma binomial cauchy exponential geometric multinomial normal
    poisson rand rand_like randint randint_like randn randn_like random randperm uniform
"""
_EXACT = frozenset(f"{_MOVING} {_ROUNDED_ONCE} {_DRAWN_BY_POTL}".split())


class Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the names of operators whose floating-point results may depend on the machine."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not _is_exact(name, kwargs or {}) and any(map(_is_floating, _tensors((result, args)))):
            self.operators.add(name.rstrip("_"))
        return result


def _is_exact(name: str, named: Mapping[str, object]) -> bool:
    # add(a, b, alpha=c) may or may not be fused to one rounding.
    return name.rstrip("_").removesuffix("_copy") in _EXACT and named.get("alpha", 1) == 1


def _is_floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
