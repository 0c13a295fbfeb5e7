# SPDX-License-Identifier: Apache-2.0
"""A training step checked without multiplying: its products come from the worker, and are verified.

The worker runs the step under `record_products`, which keeps the result of each matrix product and
convolution, forward and backward, and the statistics of each batch norm, in order: the witness. The
checker runs the same step on its own weights and batch under `check_products`. There each of these
results is taken from the witness instead of being computed, once Freivalds' check has compared it
with the operands, which are the checker's, or sums of the checker have. Everything else is
computed. So the gradients that come out are right up to the tolerances of these checks, and no
witness, however it was made, changes that.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn  # Any: torch's operators take anything

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core
from ._claims import Claim, claims_of
from ._not_finite import Again, is_finite, judged

_DETAILS = {
    "not finite": "a result is not finite, but that of its operands is",
    "inconsistent": "a result is finite where its operands are not, or off where they are",
}


@dataclass
class Witness:
    """What a step's products gave.

    Attributes:
        tensors: In the order of the step; float32, contiguous, on the processor. Copies: what the
            step does to its results later does not change them.
    """

    tensors: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class ProductFailure:
    """Why a witness does not hold.

    Attributes:
        reason: "missing" (the witness is too short), "malformed" (no plain, contiguous tensor of
            its own), "dtype", "shape", "not finite", "inconsistent" (no order of additions gives
            this), or "leftover" (the witness is too long). "diverged" accuses nobody.
        operator: The product, such as "mm" or "convolution (weight gradient)"; empty for what is
            left over.
        index: Its place in the witness.
        shape: What the checker's operands make of it.
        detail: A sentence.
    """

    reason: str
    operator: str
    index: int
    shape: tuple[int, ...]
    detail: str


@dataclass
class ProductsOutcome:
    """What came of a check. While the step runs nothing holds yet.

    Attributes:
        failure: The first product that is false; None without one.
        diverged: The first product that is not finite though nothing is false: the step's own
            numbers are not, or are too large. The step ends there, and shows nothing.
        verified: Products that were taken from the witness.
        unusual: Places of those that may be honest but are further off than usual. They were
            computed again, and the checker's own result was used.
    """

    failure: ProductFailure | None = None
    diverged: ProductFailure | None = None
    verified: int = 0
    unusual: list[int] = field(default_factory=list)
    finished: bool = False

    @property
    def holds(self) -> bool:
        """The step ended, and each of its products was verified or computed again."""
        return self.finished and self.failure is None and self.diverged is None


class _Ended(Exception):
    """Leaves the step at the first product that is false, or not finite."""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, witness: Witness) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tensors = witness.tensors

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        claims = claims_of(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        for claim in claims:
            product = result[claim.place] if isinstance(result, tuple) else result
            copy = torch.empty(claim.shape, dtype=torch.float32)
            self._tensors.append(copy.copy_(product.detach()))
        return result


@contextlib.contextmanager
def record_products() -> Iterator[Witness]:
    """Keeps the results of a step's products.

    Example:
        >>> weights = torch.randn(256, 256, requires_grad=True)
        >>> x = torch.randn(256, 256)
        >>> with record_products() as witness:
        ...     (x @ weights).square().mean().backward()
        >>> with check_products(witness.tensors) as outcome:
        ...     (x @ weights).square().mean().backward()
        >>> outcome.holds, outcome.verified
        (True, 2)
    """
    witness = Witness()
    with _Recorder(witness):
        yield witness


class _Checker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(
        self,
        tensors: Iterable[torch.Tensor],
        probes: int,
        false_alarm: float,
        threads: int,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.outcome = ProductsOutcome()
        self._tensors = iter(tensors)
        self._index = 0
        self._spans: list[tuple[int, int]] = []
        self._options = (probes, false_alarm)
        self._pool = None if threads == 1 else _core.ThreadPool(threads)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        claims = claims_of(func, args, kwargs or {})
        if not claims:
            return func(*args, **(kwargs or {}))

        def again(index: int, other: Mapping[int, torch.Tensor]) -> Claim:
            changed = tuple(other.get(at, one) for at, one in enumerate(args))
            return claims_of(func, changed, kwargs or {})[index]

        return claims[0].finish(
            [self._take(claim, partial(again, index)) for index, claim in enumerate(claims)]
        )

    def _take(self, claim: Claim, again: Again) -> torch.Tensor:
        """The next tensor of the witness, where it is what the claim says."""
        if self._is_over:  # the step went on regardless
            raise _Ended
        given = next(self._tensors, None)
        reason, detail = self._refusal(claim, given)
        if reason or given is None:
            self._fail(reason, claim, detail)
        given = given.detach()
        probes, false_alarm = self._options
        found = claim.check(given, probes, false_alarm, self._pool)
        if found.outcome == "not finite":
            said = judged(
                claim, again, given, probes=probes, false_alarm=false_alarm, pool=self._pool
            )
            if said in ("not finite", "inconsistent"):
                self._fail(said, claim, _DETAILS[said])
            if said == "diverged":
                self._diverge(claim)
        elif found.rejected:
            self._fail(
                found.outcome,
                claim,
                f"row {found.row} is off by {found.worst:.3g} of what rounding can do",
            )
        if not found.holds:
            own = claim.compute()
            # The worker goes on with other numbers than the checker.
            if not (is_finite(own) and is_finite(given)):
                self._diverge(claim)
            self._index += 1
            self.outcome.unusual.append(self._index - 1)
            return own
        self._index += 1
        self.outcome.verified += 1
        return claim.laid_out(given)

    def end(self) -> None:
        """The witness ends with the step."""
        if not self._is_over and next(self._tensors, None) is not None:
            self.outcome.failure = ProductFailure(
                "leftover", "", self._index, (), "the step has fewer products than the witness"
            )
        self.outcome.finished = True

    def _refusal(self, claim: Claim, given: object) -> tuple[str, str]:
        if given is None:
            return "missing", "the witness has fewer results than the step has products"
        if type(given) is not torch.Tensor or given.layout is not torch.strided:
            return "malformed", "a result is not a plain tensor"
        if given.dtype is not torch.float32:
            return "dtype", f"a result is {given.dtype}, not float32"
        if tuple(given.shape) != claim.shape:
            return "shape", f"a result is {tuple(given.shape)}, not {claim.shape}"
        if given.device.type != "cpu" or not given.is_contiguous() or given.is_neg():
            return "malformed", "a result is not contiguous, or not in this memory"
        # What shares memory with a result that was verified could change it afterwards.
        span = given.data_ptr(), given.data_ptr() + 4 * math.prod(claim.shape)
        if any(span[0] < end and begin < span[1] for begin, end in self._spans):
            return "malformed", "two results share memory"
        self._spans.append(span)
        return "", ""

    def _fail(self, reason: str, claim: Claim, detail: str) -> NoReturn:
        self.outcome.failure = ProductFailure(
            reason, claim.operator, self._index, claim.shape, detail
        )
        raise _Ended

    def _diverge(self, claim: Claim) -> NoReturn:
        self.outcome.diverged = ProductFailure(
            "diverged",
            claim.operator,
            self._index,
            claim.shape,
            "a result is not finite, and need not be: the training diverges",
        )
        raise _Ended

    @property
    def _is_over(self) -> bool:
        return self.outcome.failure is not None or self.outcome.diverged is not None


@contextlib.contextmanager
def check_products(
    tensors: Iterable[torch.Tensor],
    *,
    probes: int = 4,
    false_alarm: float = 1e-9,
    threads: int = 1,
) -> Iterator[ProductsOutcome]:
    """Runs a step with the products of a witness, each of them verified first.

    The step inside ends at the first product that is false, and at the first that is not finite, as
    those of a training that diverges are not: that accuses nobody (`outcome.diverged`). Read
    `outcome` after the block, and its gradients only where `outcome.holds`.

    Args:
        tensors: The witness, which nobody is trusted for. The step may write into them.
        probes: As in `potl.freivalds`, for each product.
        false_alarm: Probability that one honest product is found inconsistent.
        threads: How many threads check.

    Raises:
        UsageError: An option is out of range.
    """
    checker = _Checker(tensors, probes, false_alarm, threads)
    with contextlib.suppress(_Ended), checker:
        yield checker.outcome
        checker.end()
