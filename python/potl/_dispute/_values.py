# SPDX-License-Identifier: Apache-2.0
"""Executes a step and keeps what each of its operators returned, as content roots."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from .. import _core
from .._base._errors import NotReplayable, Problem
from .._job._steps import as_number
from .._task._capture import TreeBuilder, is_standard, memory_format
from .._task._values import Tree
from ._encoding import AliasOutline, TensorOutline, joined, leaves, mapped
from ._operators import CAPTURE, Operator, ValueTrace, captured_digest
from ._outline import StateOutline
from ._roots import root_of_tensor
from ._tracer import Look, Memory, Tracer, look_at, overlap, refused

if TYPE_CHECKING:
    from .._arithmetic._rounded_steps import Rounding
    from .._job._session import Session
    from .._task._task import Task


def trace_values(
    session: Session,
    step: int,
    batch: Any,
    *,
    before: StateOutline | None = None,
    after: bytes | None = None,
    rounding: Rounding | None = None,
) -> ValueTrace:
    """Runs a step from the session's present state, and keeps what its operators returned.

    Args:
        session: Its state is the one before the step, and afterwards the one after it.
        step: 1-based.
        batch: The collated batch of the step, or its sample ids.
        before: Of the state before the step, where it is known.
        after: What the digest of the state after the step should be. Where the operators' results
            have it, the state is not hashed again.
        rounding: Makes or follows the step's rounding log (log64).

    Raises:
        NotReplayable: The step does what cannot be wired: writes a part of a tensor that is read
            as a whole later, draws from a generator of its own. The operator and the remedy are
            named.
    """
    batch = session._batches.on_device(step, batch)
    if before is None:
        before = StateOutline.of(session.capture())
    tracer = _ValueTracer([*state_tensors(session, before), *batch_tensors(batch)], rounding)
    traced_step(session, step, batch, tracer, as_number, rounding)
    tree = live_tree(session)
    capture = capture_of(tree, tracer)
    digest = captured_digest(capture, capture.inputs)
    if digest != after:
        _require_written_by_operators(tree, capture)
    result = TensorOutline("uint8", (32,), _core.content_root(digest))
    operators = (*tracer.operators, replace(capture, results=(result,)))
    return ValueTrace(step, before.digest(), digest, operators)


def traced_step(
    session: Session,
    step: int,
    batch: Any,
    tracer: Tracer,
    number: Callable[[torch.Tensor], float],
    rounding: Rounding | None = None,
) -> None:
    """Runs a step so that the tracer sees the operators of `Task.step` and no others. `number`
    makes a number of its loss.
    """
    task = session.task
    seed = task._before_micro_batch

    def unseen(index: int) -> None:
        with _disable_current_modes():
            seed(index)

    task._before_micro_batch = unseen
    try:
        with _without_collections():
            session._steps.traced(step, batch, rounding, tracer, number)
    finally:
        task._before_micro_batch = seed


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Python does not look for garbage: a trace keeps what it makes, and looking through all of it
    time after time is 2 to 4 % of the traced step of a small GPT.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _ValueTracer(Tracer):  # type: ignore[no-untyped-call]
    """Hashes every result before the next operator can change it."""

    def __init__(self, named: Any, rounding: Rounding | None = None) -> None:
        super().__init__(named)
        self._rounding, self._first = rounding, 0

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, object]) -> Any:
        self._first = 0 if self._rounding is None else self._rounding.values
        return super().run(func, args, kwargs)

    def rounded(self, operator: Operator) -> tuple[int, int] | None:
        count = 0 if self._rounding is None else self._rounding.values - self._first
        return (self._first, count) if count else None

    def content(
        self, tensor: torch.Tensor, look: Look, memory: Memory, *, unset: bool
    ) -> bytes | None:
        if unset:
            return None
        for _, other, outline in memory.values.values():
            if overlap(other.span, look.span):
                if outline.root is None:  # a view of memory that nobody has written
                    return None
                same_bytes = look.flat and other.flat and other.span == look.span
                if same_bytes or other.geometry == look.geometry:
                    return outline.root
        return root_of_tensor(tensor)


# ---------------------------------------------------------------------- states and batches


class _Live(TreeBuilder):
    """Walks over a task, and leaves its tensors where they are."""

    def _unmoved(self, tensor: torch.Tensor) -> Any:
        return None

    def _describe_anew(self, tensor: torch.Tensor, path: str) -> Any:
        return tensor


def live_tree(session: Session) -> Tree:
    """The training state of a session, with the task's own tensors and aliases of them.

    Raises:
        NotReplayable: It holds tensors that only copies are known of.
    """
    task = session.task
    _require_known(task)
    state = session._state
    builder, state._builder = state._builder, _Live(task)
    try:
        tree = state.tree()
    finally:
        state._builder = builder
    first: dict[Any, str] = {}

    def tied(path: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        place = (
            (leaf.untyped_storage()._cdata, *look_at(leaf).geometry) if leaf.numel() else id(leaf)
        )
        known = first.setdefault(place, path)
        return leaf if known == path else AliasOutline(known)

    return mapped(tree, tied)  # type: ignore[no-any-return]


def _require_known(task: Task) -> None:
    copies = [f"optimizers/{i}" for i, one in enumerate(task.optimizers) if not is_standard(one)]
    copies += [joined("state", name) for name in task.state]
    if task.ema is not None and not isinstance(task.ema, torch.nn.Module):
        copies.append("ema")
    if copies:
        raise NotReplayable(
            Problem(
                what="its state_dict() may return copies, so that nobody knows which operator "
                "wrote what it holds",
                where=copies[0],
                remedy="keep trained tensors in modules and in optimizers with torch's own "
                "state_dict",
            )
        )


def state_tensors(
    session: Session, outline: StateOutline | None
) -> Iterator[tuple[str, torch.Tensor, bytes | None]]:
    """The live tensors of a session's state by name, with their content roots, if `outline` is of
    that state.
    """
    outlines = {} if outline is None else outline.tensors()
    found: dict[str, torch.Tensor] = {}
    mapped(live_tree(session), lambda path, leaf: found.__setitem__(path, leaf))
    for path, leaf in found.items():
        if isinstance(leaf, torch.Tensor):
            known = outlines.get(path)
            root = known.root if isinstance(known, TensorOutline) else None
            yield f"state/{path}", leaf, root


def batch_tensors(batch: Any) -> Iterator[tuple[str, torch.Tensor, bytes | None]]:
    """The tensors of a batch by name."""
    tensors = (leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor))
    for index, leaf in enumerate(tensors):
        yield f"batch/{index}", leaf, root_of_tensor(leaf)


def capture_of(tree: Tree, tracer: Tracer) -> Operator:
    """The last operator: makes the digest of the state out of its tensors. Its result has no root.

    Args:
        tree: What `live_tree` has found after the step.
        tracer: Has seen the step.
    """
    inputs: list[TensorOutline] = []

    def operand(path: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = tracer.present(leaf, f"{CAPTURE} of {path}")
        inputs.append(known.outline)
        return known.reference, memory_format(leaf)

    state = mapped(tree, operand)
    result = TensorOutline("uint8", (32,), None)
    return Operator(CAPTURE, {"state": state}, (result,), inputs=tuple(inputs))


def _require_written_by_operators(tree: Tree, capture: Operator) -> None:
    """Looks at every tensor of the state after a step.

    Raises:
        NotReplayable: One was written behind the operators' back.
    """
    known = zip(capture.operands, capture.inputs, strict=True)
    for path, leaf in leaves(tree):
        if isinstance(leaf, torch.Tensor):
            reference, outline = next(known)
            if root_of_tensor(leaf) != outline.root:
                raise refused(
                    reference.path,
                    f"it was written by something that is not an operator, and is {path} now",
                    "write tensors with torch's operators, not through NumPy or pointers",
                )
