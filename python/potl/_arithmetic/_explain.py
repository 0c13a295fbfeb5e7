# SPDX-License-Identifier: Apache-2.0
"""`explain`: what each operator of a model would run as in a reproducible arithmetic."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .._base._errors import NotReproducible, UsageError
from ._deterministic import deterministic, refusal_of
from ._library import module

_FLOATS = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
_OF_THE_MODE = "of the mode"


@dataclass(frozen=True)
class OperatorUse:
    """One operator, in one part of a step.

    Attributes:
        phase: "forward", "backward" or "update".
        operator: As torch spells it, for example "add.Tensor".
        calls: How often it ran.
        types: Floating-point types of its operands.
        runs: "exact" (torch's own kernel, which has the same bits everywhere), "kernel" (potl's),
            "composed" (of other operators) or "refused".
        note: What is computed, or why it is refused.
        remedy: What to do about a refusal.
    """

    phase: str
    operator: str
    calls: int
    types: tuple[str, ...]
    runs: str
    note: str
    remedy: str = ""


@dataclass(frozen=True)
class Explanation:
    """How the operators of a model would run. It prints as a table.

    Attributes:
        mode: The arithmetic.
        operators: In the order of their first calls.
    """

    mode: str
    operators: tuple[OperatorUse, ...]

    @property
    def refused(self) -> tuple[OperatorUse, ...]:
        """What would raise `NotReproducible`."""
        return tuple(one for one in self.operators if one.runs == "refused")

    def document(self) -> dict[str, object]:
        """For JSON."""
        rows = [{**vars(one), "types": list(one.types)} for one in self.operators]
        return {"arithmetic": self.mode, "reproducible": not self.refused, "operators": rows}

    def __str__(self) -> str:
        rows = [("phase", "operator", "calls", "types", "runs", "note")]
        for one in self.operators:
            note = f"{one.note}; {one.remedy}" if one.remedy else one.note
            types = " ".join(one.types)
            rows.append((one.phase, one.operator, str(one.calls), types, one.runs, note))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        return "\n".join(
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]
            )
            for row in rows
        )


def explain(
    model: nn.Module,
    example: Any,
    *,
    mode: str = "ord32",
    loss: Callable[[Any], Tensor] | None = None,
) -> Explanation:
    """Runs a copy of a model forward and backward, and says how each operator would run.

    Nothing raises `NotReproducible`: what is refused in a block runs on torch's own kernels here.
    The model, its buffers and torch's generator stay as they are.

    Args:
        model: What is to be trained.
        example: Its input: a tensor, a tuple of arguments, or a dict of keyword arguments.
        mode: The arithmetic.
        loss: From the model's output to a scalar; without it the sum of everything that has a
            gradient.

    Raises:
        UsageError: There is no such mode.
        UnsupportedError: This installation has no reproducible operators.

    >>> import potl, torch
    >>> print(potl.explain(torch.nn.Linear(3, 2, bias=False), torch.ones(1, 3)))
    phase     operator    calls  types    runs      note
    forward   t           1      float32  exact     a view
    """
    if not isinstance(model, nn.Module):
        raise UsageError("explain takes a torch.nn.Module and an example of its input")
    own = copy.deepcopy(model)

    def run() -> None:
        with torch.enable_grad():
            out = _call(own, example)
            total = _sum(out) if loss is None else loss(out)
            if total is not None and total.requires_grad:
                total.backward()  # type: ignore[no-untyped-call]

    with torch.random.fork_rng(devices=[]):
        return explain_call(run, mode=mode)


def explain_call(run: Callable[[], object], *, mode: str) -> Explanation:
    """The same for a function without arguments: a step of a training."""
    with deterministic(mode), _Watcher(mode) as watcher:
        run()
    return Explanation(mode, tuple(watcher.uses()))


def _call(model: nn.Module, example: Any) -> Any:
    if isinstance(example, Mapping):
        return model(**example)
    if isinstance(example, (tuple, list)):
        return model(*example)
    return model(example)


def _sum(out: Any) -> Tensor | None:
    total: Tensor | None = None
    for leaf in tree_leaves(out):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            total = leaf.sum() if total is None else total + leaf.sum()
    return total


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what comes out of autograd and tries it in the block's arithmetic."""

    def __init__(self, mode: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode = mode
        self._table = {name: (runs, note) for name, runs, note in module().operators()}
        self._calls: dict[tuple[str, str, tuple[str, ...], str, str, str], int] = {}
        self._was_backward = False

    def uses(self) -> Iterator[OperatorUse]:
        for (phase, operator, types, runs, note, remedy), calls in self._calls.items():
            yield OperatorUse(phase, operator, calls, types, runs, note, remedy)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "profiler":  # marks for profilers compute nothing
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if func._schema.overload_name:
            name += "." + func._schema.overload_name
        kinds = _types((args, kwargs))
        try:
            out = func(*args, **kwargs)
            runs, note = self._entry(name, kinds)
            remedy = ""
        except (NotReproducible, RuntimeError) as error:
            refusal = error if isinstance(error, NotReproducible) else refusal_of(error)
            if refusal is None:
                raise
            runs, note, remedy = "refused", refusal.message, refusal.remedy
            stock = module().StockBlock()
            try:
                out = func(*args, **kwargs)
            finally:
                stock.leave()
        key = (self._phase(), name, kinds, runs, note, remedy)
        self._calls[key] = self._calls.get(key, 0) + 1
        return out

    def _phase(self) -> str:
        if torch._C._current_graph_task_id() != -1:
            self._was_backward = True
            return "backward"
        if self._was_backward and not torch.is_grad_enabled():
            return "update"
        return "forward"

    def _entry(self, name: str, kinds: tuple[str, ...]) -> tuple[str, str]:
        runs, note = self._table.get(name, ("", ""))
        if not runs:
            # The fallback lets pass what holds no floating-point number; the rest was composed by
            # torch's generator out of the operator's other form.
            return ("composed", "its other form, and a copy") if kinds else ("exact", "integers")
        if note.startswith("as "):
            note = self._table.get(note[3:], ("", note))[1]
        return runs, note.replace(_OF_THE_MODE, f"in {self._products(kinds)}")

    def _products(self, kinds: tuple[str, ...]) -> str:
        if "bfloat16" in kinds:
            return "xint16"
        return "float64, as ord32" if "float64" in kinds else self._mode


def _types(operands: Any) -> tuple[str, ...]:
    found = {leaf.dtype for leaf in tree_leaves(operands) if isinstance(leaf, Tensor)}
    return tuple(
        sorted(_FLOATS.get(dtype, str(dtype)) for dtype in found if dtype.is_floating_point)
    )
