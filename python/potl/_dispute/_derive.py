# SPDX-License-Identifier: Apache-2.0
"""The operators of a step from the agreed task alone: nothing is computed.

The task is built, its tensors are replaced by ones without elements, and `Task.step` runs on those.
What it makes of values that everybody agrees on is computed: of counters with one element, such as
Adam's, and of what it makes from nothing, such as positions and masks. What a step decides by any
other value cannot be derived, and is refused.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from .._arithmetic import _rounded_steps
from .._base._errors import MismatchError, NotReplayable, Problem, UsageError
from .._job._agreement import open_checked
from .._task._schedule import end_epoch_metric
from ._operators import Operator, ValueTrace, structural_difference
from ._outline import StateOutline
from ._roots import root_of_tensor
from ._rounded import values_of
from ._tracer import Geometry, Look, Memory, Tracer, look_at, overlap
from ._values import (
    batch_tensors,
    capture_of,
    live_tree,
    state_tensors,
    trace_values,
    traced_step,
)
from ._weightless import weightless

if TYPE_CHECKING:
    from .._job._build import Build
    from .._job._job import Job
    from .._job._session import Session


def derive_operators(
    build: Build,
    job: Job,
    step: int,
    *,
    before: StateOutline | None = None,
    weights: bool = True,
) -> tuple[Operator, ...]:
    """The operators of a step in the order of execution, without what they return.

    Memory is taken for the state and the batch, not for activations and gradients.

    Args:
        build: Of the agreed task.
        job: What was agreed.
        step: 1-based.
        before: The agreed state before the step; None for the state that the job begins with.
        weights: False builds the task without its large tensors, so that memory is taken for the
            batch and one parameter. A task that looks at its weights, or draws after them, may then
            have other operators: who accuses somebody derives them with weights.

    Raises:
        NotReplayable: What the step does depends on the values of its tensors; the place in the
            task and the remedy are named.
        JobMismatch: The task does not match the job.
        MismatchError: `before` is not a state of the task before that step.
        UsageError: There is no such step, or its state is not given.
    """
    if not 1 <= step <= job.steps:
        raise UsageError(f"the job has no step {step}", f"use 1 to {job.steps}")
    if before is None and step > 1:
        raise UsageError(
            f"the operators of step {step} depend on the state before it", "pass before="
        )
    with contextlib.ExitStack() as held:
        with contextlib.nullcontext() if weights or before is None else weightless():
            session = held.enter_context(open_checked(build, job, weights=weights))
            held.enter_context(session.active())
            if before is not None:
                session.restore(before.zeros())
                if session.step != step - 1:
                    raise MismatchError(f"the state is one after step {session.step}")
        return derive_step(session, step)


def derivation_fault(build: Build, job: Job, step: int, before: StateOutline | None) -> str | None:
    """Whether a step, executed with zeros for elements that nobody knows, has other operators than
    those that are derived; a sentence where it has. The job's first step is executed, too.

    Raises:
        NotReplayable: It cannot be traced.
    """
    executed = {}
    with open_checked(build, job) as session, session.active():
        executed[1] = executed_first(session)
        if step > 1 and before is not None:
            session.restore(before.zeros())
            executed[step] = _traced(session, step).operators
    for at, operators in executed.items():
        derived = derive_operators(build, job, at, before=None if at == 1 else before)
        found = structural_difference(derived, operators)
        if found is not None:
            return f"step {at}, operator {found[0]} is {found[1]}"
    return None


def executed_first(session: Session) -> tuple[Operator, ...]:
    """The operators of a new session's first step, which it runs twice.

    Raises:
        NotReplayable: It cannot be traced, or computes something else then.
    """
    before, rounding = session.capture(), _rounding(session)
    session.run_step(1, session.sample_ids(1), rounding=rounding)
    after = session.capture().digest()
    session.restore(before)
    trace = _traced(session, 1)
    if trace.after != after:
        # torch's formulas for some gradients are others where somebody watches the operators.
        raise _depends(
            "the step computes something else when its operators are traced",
            "Task.step",
            "do without torch.prod, and reduce along dimensions: amax(dim) instead of max()",
        )
    return trace.operators


def _traced(session: Session, step: int) -> ValueTrace:
    return trace_values(session, step, session.sample_ids(step), rounding=_rounding(session))


def _rounding(session: Session) -> _rounded_steps.Trainer | None:
    return _rounded_steps.Trainer() if session._rounds_by_log else None


def derive_step(session: Session, step: int) -> tuple[Operator, ...]:
    """The operators of a step of a session in the state before it. The session's task is of no use
    afterwards: its tensors have no elements any more.
    """
    return tuple(_derived(session, step).operators)


def place_of(session: Session, step: int, operator: int) -> str:
    """The line of the user's code that calls a derived operator; see `derive_step`."""
    return _derived(session, step, watched=operator).place


def _derived(session: Session, step: int, watched: int | None = None) -> _Deriver:
    if end_epoch_metric(session.task):
        raise _depends("a schedule follows the loss", "scheduler", "use a schedule of steps")
    # Neither copied nor hashed: whoever uses the operators knows the state before the step.
    held = [(path, tensor) for path, tensor, _ in state_tensors(session, None)]
    elements = [tensor.detach().clone() if tensor.numel() == 1 else None for _, tensor in held]
    batch = session._batches.on_device(step, session.sample_ids(step))
    with _emptied([tensor for _, tensor in held]) as fake:
        roots = [root for _, _, root in batch_tensors(batch)]
        batch = tree_map(
            lambda one: fake.from_tensor(one) if isinstance(one, torch.Tensor) else one, batch
        )
        emptied = [one for one in tree_leaves(batch) if isinstance(one, torch.Tensor)]
        named: list[tuple[str, torch.Tensor, bytes | None]] = [(*one, None) for one in held]
        named += [(f"batch/{i}", one, roots[i]) for i, one in enumerate(emptied)]
        tracer = _Deriver(fake, named, watched, session._rounds_by_log)
        for (_, tensor), element in zip(held, elements, strict=True):
            if element is not None:
                tracer.know(tensor, element)
        traced_step(session, step, batch, tracer, _unknown)
        with fake:
            tracer.operators.append(capture_of(live_tree(session), tracer))
    return tracer


def _unknown(loss: torch.Tensor) -> float:
    return float("nan")


@contextlib.contextmanager
def _emptied(tensors: Sequence[torch.Tensor]) -> Iterator[FakeTensorMode]:
    """Takes the elements of tensors away, which stay the same objects."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    for tensor in tensors:
        with fake:
            empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        empty.requires_grad_(tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            empty._is_param = True
        _swap(tensor, empty)
    # Several tensors at once are worked on only where each is of a known class.
    _foreach_utils._foreach_supported_types.append(FakeTensor)
    asked = torch._subclasses.FakeTensor
    torch._subclasses.FakeTensor = _AsExecuted  # type: ignore[misc, assignment]
    try:
        yield fake
    finally:
        torch._subclasses.FakeTensor = asked  # type: ignore[misc]
        _foreach_utils._foreach_supported_types.remove(FakeTensor)


class _Asked(type):
    """Answers whether a tensor has no elements."""

    def __instancecheck__(cls, instance: object) -> bool:
        # torch must know. Others who ask, as transformers does before it looks at a mask, are to do
        # what they do when a step is executed.
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return asking.split(".")[0] == "torch" and isinstance(instance, FakeTensor)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, FakeTensor)


class _AsExecuted(metaclass=_Asked):
    """Stands for `torch._subclasses.FakeTensor` while a step is derived."""


def _swap(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """torch.utils.swap_tensors, also for tensors of which somebody holds a weak reference, as LSTMs
    do of their weights: it goes to the same object afterwards.
    """
    for name in ("__class__", "__dict__"):
        mine, theirs = getattr(tensor, name), getattr(other, name)
        setattr(tensor, name, theirs)
        setattr(other, name, mine)
    torch._C._swap_tensor_impl(tensor, other)


class _Deriver(Tracer):  # type: ignore[no-untyped-call]
    """Runs operators on tensors without elements, and those on agreed single elements for real."""

    def __init__(
        self, fake: FakeTensorMode, named: Any, watched: int | None, rounds_by_log: bool
    ) -> None:
        super().__init__(named)
        self._fake = fake
        self._watched = watched
        self.place = "Task.step"
        # Elements rounded so far, and by the last operator where that was counted.
        self._values: int | None = 0 if rounds_by_log else None
        self._counted: int | None = None
        # The elements that are known: memory -> view -> a tensor that has them.
        self._alive = 64
        self._known: dict[int, dict[Geometry, tuple[tuple[int, int], torch.Tensor]]] = {}

    def __enter__(self) -> Any:
        self._fake.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._fake.__exit__(kind, error, trace)

    def know(self, tensor: torch.Tensor, element: torch.Tensor) -> None:
        """Gives a tensor of one element that element."""
        self._remember(tensor, element)

    def content(
        self, tensor: torch.Tensor, look: Look, memory: Memory, *, unset: bool
    ) -> bytes | None:
        return None

    def constant(self, tensor: torch.Tensor, look: Look, memory: Memory) -> bytes:
        if isinstance(tensor, FakeTensor):
            raise _depends(
                "it reads a tensor that no operator has made",
                _place(),
                "make tensors with torch's operators inside Task.step, or in build()",
            )
        with _disable_current_modes():
            return root_of_tensor(tensor)

    def rounded(self, operator: Operator) -> tuple[int, int] | None:
        if self._values is None:
            return None
        count = values_of(operator) if self._counted is None else self._counted
        self._counted = None
        self._values += count
        return (self._values - count, count) if count else None

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, object]) -> Any:
        if len(self.operators) == self._watched:
            self.place = _place()
        operands = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        elements = [self._element(one) for one in operands]
        draws = torch.Tag.nondeterministic_seeded in func.tags
        form = self.form(func)
        known = not (draws or form.unset) and all(one is not None for one in elements)
        if draws:
            _on_zeros(func, args, kwargs)  # moves torch's generator on
        if known and str(func) == "aten._local_scalar_dense.default":
            assert elements[0] is not None
            with _disable_current_modes():
                return elements[0].item()
        try:
            if str(func) in _OWN_FORMS:
                counter = _rounded_steps.Trainer()
                with counter.around(0):
                    out = _without_elements(_on_zeros(func, args, kwargs))
                    self._counted = counter.values
            else:
                out = _in_stock(lambda: func(*args, **kwargs))
            if str(func) == "aten.native_batch_norm.default" and args[1] is not None:
                # torch says that they have the input's type, also where autocast made it another.
                out = (out[0], *(self._of_type(one, args[1].dtype) for one in out[1:]))
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise _reads_values(str(func)) from None
        outs = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        written = form.written_of(form.given(args, kwargs))
        for one in written:
            self._forget(one)
        if known and all(one.nbytes <= _KNOWN_BYTES for one in (*outs, *written)):
            given = dict(zip(map(id, operands), elements, strict=True))
            real = self._for_real(func, args, kwargs, given)
            for one, element in zip(
                outs, [r for r in tree_leaves(real) if isinstance(r, torch.Tensor)], strict=True
            ):
                self._remember(one, element)
            for one in written:
                self._remember(one, given[id(one)])
        return out

    @staticmethod
    def _of_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if tensor.dtype == dtype:
            return tensor
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype)

    # ------------------------------------------------------------------ elements

    def _element(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if tensor.nbytes > _KNOWN_BYTES:
            return None
        if not isinstance(tensor, FakeTensor):
            # Written here, it still has the elements that it had before.
            return None if self._memory(tensor).written else tensor
        known = self._known.get(tensor.untyped_storage()._cdata, {}).get(look_at(tensor).geometry)
        return None if known is None else known[1]

    def _remember(self, tensor: torch.Tensor, element: Any) -> None:
        if isinstance(tensor, FakeTensor):
            self._memory(tensor)  # keeps its address
            if len(self._known) > 2 * self._alive:
                gone = [
                    key
                    for key in self._known
                    if self._memories[key].weak.expired()  # type: ignore[no-untyped-call]
                ]
                for key in gone:
                    del self._known[key]
                self._alive = max(64, len(self._known))
            place = self._known.setdefault(tensor.untyped_storage()._cdata, {})
            look = look_at(tensor)
            place[look.geometry] = (look.span, element)

    def _forget(self, tensor: torch.Tensor) -> None:
        place = self._known.get(tensor.untyped_storage()._cdata, {})
        written = look_at(tensor).span
        for key in [key for key, (span, _) in place.items() if overlap(span, written)]:
            del place[key]

    def _for_real(
        self, func: Any, args: Any, kwargs: Any, given: dict[int, torch.Tensor | None]
    ) -> Any:
        """Runs an operator on known elements, in the arithmetic of the step."""
        real_args, real_kwargs = tree_map(
            lambda one: given[id(one)] if isinstance(one, torch.Tensor) else one, (args, kwargs)
        )
        with _disable_current_modes():
            return func(*real_args, **real_kwargs)


# Of what is known, so much is computed: positions and masks of long texts, and no activations.
_KNOWN_BYTES = 1 << 18

# Operators of which potl's own form returns another workspace than torch's.
_OWN_FORMS = frozenset(("aten.mkldnn_rnn_layer.default", "aten.mkldnn_rnn_layer_backward.default"))


def _on_zeros(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator for real, in the arithmetic of the step."""
    with _disable_current_modes():
        zeros = tree_map(
            lambda one: (
                torch.zeros(one.shape, dtype=one.dtype) if isinstance(one, torch.Tensor) else one
            ),
            (args, kwargs),
        )
        return func(*zeros[0], **zeros[1])


def _without_elements(out: Any) -> Any:
    """The forms of results."""
    return tree_map(
        lambda one: (
            torch.empty_strided(one.shape, one.stride(), dtype=one.dtype)
            if isinstance(one, torch.Tensor)
            else one
        ),
        out,
    )


def _in_stock(run: Callable[[], Any]) -> Any:
    """Runs something outside of the arithmetic of the block, which knows tensors with elements
    alone.
    """
    from .._arithmetic._library import module

    stock = module().StockBlock()
    try:
        return run()
    finally:
        stock.leave()


def _reads_values(operator: str) -> NotReplayable:
    return _depends(
        f"{operator} makes a number, a decision or a shape out of values that nobody has agreed",
        _place(),
        "decide with torch.where or masks, pass validate_args=False to torch.distributions, and "
        "read values (.item(), float(), if) outside of Task.step",
    )


def _depends(what: str, where: str, remedy: str) -> NotReplayable:
    return NotReplayable(Problem(what=what, where=where, remedy=remedy))


def _place() -> str:
    """The line of the user's code that is running."""
    own = str(Path(__file__).resolve().parent.parent)
    # torch need not lie where this interpreter keeps its packages.
    torch_s = str(Path(torch.__file__).resolve().parent)
    libraries = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), torch_s, own)
    for frame in reversed(traceback.extract_stack()):
        if not str(Path(frame.filename).resolve()).startswith(libraries):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return "Task.step"
