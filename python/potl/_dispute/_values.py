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
from ._encoding import AliasOutline, TensorOutline, joined, mapped
from ._operators import CAPTURE, Operator, ValueTrace
from ._outline import StateOutline
from ._roots import root_of_tensor
from ._tracer import Look, Memory, Tracer, look_at, outline_of, overlap, refused

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
    rounding: Rounding | None = None,
) -> ValueTrace:
    """Runs a step from the session's present state, and keeps what its operators returned.

    Args:
        session: Its state is the one before the step, and afterwards the one after it.
        step: 1-based.
        batch: The collated batch of the step, or its sample ids.
        before: Of the state before the step, where it is known.
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
    after = _outline_of_live(tree)
    tracer.operators.append(capture_of(tree, tracer, after))
    return ValueTrace(step, before.digest(), after.digest(), tuple(tracer.operators))


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


def _outline_of_live(tree: Tree) -> StateOutline:
    """The outline of a state that `live_tree` has found, of which no copy is made."""

    def outlined(_: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        data = leaf.detach().cpu().reshape(-1).view(torch.uint8) if leaf.numel() == 1 else None
        return replace(
            outline_of(leaf, root_of_tensor(leaf)),
            memory_format=memory_format(leaf),
            data=None if data is None else bytes(data.numpy()),
        )

    return StateOutline(mapped(tree, outlined))


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


def capture_of(tree: Tree, tracer: Tracer, after: StateOutline | None) -> Operator:
    """The last operator: makes the digest of the state out of its tensors.

    Args:
        tree: What `live_tree` has found after the step.
        tracer: Has seen the step.
        after: The state after the step; None where only the form is known.

    Raises:
        NotReplayable: A tensor of the state was written behind the operators' back.
    """
    outlines = {} if after is None else after.tensors()
    inputs: list[TensorOutline] = []

    def operand(path: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = tracer.present(leaf, f"{CAPTURE} of {path}")
        inputs.append(known.outline)
        held = outlines.get(path)
        if isinstance(held, TensorOutline) and known.outline.root != held.root:
            raise refused(
                known.reference.path,
                f"it was written by something that is not an operator, and is {path} now",
                "write tensors with torch's operators, not through NumPy or pointers",
            )
        return known.reference, memory_format(leaf)

    state = mapped(tree, operand)
    digest = bytes(32) if after is None else after.digest()
    result = TensorOutline("uint8", (32,), None if after is None else _core.content_root(digest))
    return Operator(CAPTURE, {"state": state}, (result,), inputs=tuple(inputs))
