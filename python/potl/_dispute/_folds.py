# SPDX-License-Identifier: Apache-2.0
"""Long sums in parts. Each part is what has been added up after one block of terms more, in the
order that docs/reference/numerics.md defines. So a part follows from the one before and its block.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

from .._task._values import DTYPE_OF

# Whatever the job computes in: of products only its chains are added up in parts.
ORD32 = "ord32"
# docs/reference/gemm.md: a chain of fused multiply-adds has this many terms.
CHAIN = 512
# docs/reference/reduction.md: so many partial sums side by side, over chunks of so many terms.
SIDES, TREE = 32, 4096
# Terms between two parts of a chain, and the least of a tree.
_CHAIN_BLOCK, _TREE_BLOCK = 64, 128
_MOST_TREE_PARTS = 4096


class Fold(Protocol):
    """How terms are added up.

    Attributes:
        block: Terms from one part to the next.
        width: Numbers in a part.
    """

    block: int
    width: int

    def is_first(self, number: int) -> bool:
        """Whether a part does not continue the one before."""

    def parts(self, terms: torch.Tensor) -> torch.Tensor:
        """All of them, [count, width]. The last dimension of `terms` runs over the terms."""

    def part(self, before: torch.Tensor | None, terms: torch.Tensor) -> torch.Tensor:
        """The next part, from the one before (None where it is a first one) and its block."""

    def total(self, parts: torch.Tensor) -> torch.Tensor:
        """The sum, from all parts."""


def count_of(fold: Fold, terms: int) -> int:
    """How many parts so many terms have."""
    return -(-terms // fold.block)


def multiplied_and_added(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a b + c in one rounding, in ord32."""
    return _chain(torch.stack([a.reshape(1), b.reshape(1)]), c)


def factors(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two numbers whose product, added to +0 in one rounding, is the value. 1 does for all but -0,
    which is what a product that is too small rounds to.
    """
    if float(value) == 0 and math.copysign(1.0, float(value)) < 0:
        least = torch.tensor(5e-324 if value.dtype == torch.float64 else 2.0**-149).to(value.dtype)
        return -least, least
    return value, torch.ones_like(value)


def _chain(terms: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
    """One chain of fused multiply-adds, by the kernel of the mode."""
    left, right = terms
    if before is not None:
        one, other = factors(before.reshape(()))
        left, right = torch.cat([one[None], left]), torch.cat([other[None], right])
    return torch.mm(left[None], right[:, None]).reshape(())


class Chains:
    """Dot products of ord32; terms are [2, n]."""

    block, width = _CHAIN_BLOCK, 1

    def is_first(self, number: int) -> bool:
        return number * self.block % CHAIN == 0

    def parts(self, terms: torch.Tensor) -> torch.Tensor:
        count = terms.shape[1]
        whole = count // CHAIN * CHAIN
        found = []
        if whole:
            left, right = terms[:, :whole].reshape(2, -1, CHAIN)
            ends = range(self.block, CHAIN + 1, self.block)
            sums = [torch.bmm(left[:, None, :end], right[:, :end, None]) for end in ends]
            found.append(torch.stack([one.reshape(-1) for one in sums], 1).reshape(-1))
        for end in range(whole + self.block, count + self.block, self.block):
            found.append(_chain(terms[:, whole:end])[None])
        return torch.cat(found).reshape(-1, 1)

    def part(self, before: torch.Tensor | None, terms: torch.Tensor) -> torch.Tensor:
        return _chain(terms, before)[None]

    def total(self, parts: torch.Tensor) -> torch.Tensor:
        each = CHAIN // self.block
        ends = [*parts[each - 1 :: each, 0].unbind()]
        if len(parts) % each:
            ends.append(parts[-1, 0])
        if not ends:
            return torch.zeros((), dtype=parts.dtype)
        out = ends[0]
        for one in ends[1:]:
            out = canonical(out + one)
        return out


class Trees:
    """T of docs/reference/reduction.md; a part is the partial sums of its chunk so far."""

    width = SIDES

    def __init__(self, terms: int) -> None:
        self.block = _TREE_BLOCK
        while self.block < TREE and terms > _MOST_TREE_PARTS * self.block:
            self.block *= 2

    def is_first(self, number: int) -> bool:
        return number * self.block % TREE == 0

    def parts(self, terms: torch.Tensor) -> torch.Tensor:
        count = count_of(self, len(terms))
        chunks = _padded(terms, TREE).reshape(-1, TREE // self.block, self.block // SIDES, SIDES)
        sums = torch.zeros(len(chunks), SIDES, dtype=terms.dtype)
        found = []
        for block in range(chunks.shape[1]):
            for row in range(chunks.shape[2]):
                sums = canonical(sums + chunks[:, block, row])
            found.append(sums)
        return torch.stack(found, 1).reshape(-1, SIDES)[:count]

    def part(self, before: torch.Tensor | None, terms: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros(SIDES, dtype=terms.dtype) if before is None else before
        for row in _padded(terms, SIDES).reshape(-1, SIDES):
            sums = canonical(sums + row)
        return sums

    def total(self, parts: torch.Tensor) -> torch.Tensor:
        each = TREE // self.block
        ends = parts[each - 1 :: each]
        if len(parts) % each:
            ends = torch.cat([ends, parts[-1:]])
        if not len(ends):
            return torch.zeros((), dtype=parts.dtype)
        sums = ends
        while sums.shape[1] > 1:
            half = sums.shape[1] // 2
            sums = canonical(sums[:, :half] + sums[:, half:])
        chunks = sums[:, 0]
        return chunks[0] if len(chunks) == 1 else self.total(self.parts(chunks))


class InOrder:
    """One after the other, from +0."""

    block, width = _CHAIN_BLOCK, 1

    def is_first(self, number: int) -> bool:
        return number == 0

    def parts(self, terms: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for block in torch.split(terms, self.block):
            found.append(self.part(found[-1] if found else None, block))
        return torch.stack(found) if found else torch.zeros(0, 1, dtype=terms.dtype)

    def part(self, before: torch.Tensor | None, terms: torch.Tensor) -> torch.Tensor:
        out = torch.zeros((), dtype=terms.dtype) if before is None else before.reshape(())
        for one in terms.unbind():
            out = canonical(out + one)
        return out[None]

    def total(self, parts: torch.Tensor) -> torch.Tensor:
        return parts[-1, 0] if len(parts) else torch.zeros((), dtype=parts.dtype)


class Alone:
    """One element, which is the sum."""

    block, width = 1, 1

    def is_first(self, number: int) -> bool:
        return True

    def parts(self, terms: torch.Tensor) -> torch.Tensor:
        return terms.reshape(-1, 1)

    def part(self, before: torch.Tensor | None, terms: torch.Tensor) -> torch.Tensor:
        return terms.reshape(1)

    def total(self, parts: torch.Tensor) -> torch.Tensor:
        return parts[0, 0]


def _padded(terms: torch.Tensor, to: int) -> torch.Tensor:
    """With +0, which changes no partial sum: these are never -0."""
    return torch.cat([terms, torch.zeros(-len(terms) % to, dtype=terms.dtype)])


def canonical(values: torch.Tensor) -> torch.Tensor:
    """NaN is the canonical one, whatever the machine makes of payloads."""
    return torch.where(values != values, torch.full_like(values, math.nan), values)


FLOATS = {
    name: dtype for name, dtype in DTYPE_OF.items() if dtype in (torch.float32, torch.float64)
}
