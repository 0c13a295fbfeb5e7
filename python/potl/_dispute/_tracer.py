# SPDX-License-Identifier: Apache-2.0
"""Sees the operators of a step and wires them: which operand is the result of which operator."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .. import _core
from .._base._errors import NotReplayable, Problem
from .._task._values import DTYPES, Tree
from ._encoding import Reference, TensorOutline
from ._operators import Operator

# Marks for profilers and questions about a tensor compute nothing.
_SILENT = ("profiler", "prim")
# The ends of names of arguments that are attributes of torch.
_TORCH_S_OWN = ("dtype", "memory_format", "layout")
# Where something is computed is not part of what is computed.
_PLACES = frozenset(("device", "pin_memory"))
# Operators that write operands without saying so in their schema.
_UNDECLARED = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::cudnn_batch_norm": ("running_mean", "running_var"),
    "aten::miopen_batch_norm": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
}

_PLAIN = frozenset((type(None), bool, int, float, str))

_DENSE = "use dense tensors of the dtypes that docs/reference/task.md lists"

Geometry = tuple[Any, ...]
Span = tuple[int, int]


class Look(NamedTuple):
    """How a tensor looks at its memory.

    Attributes:
        geometry: Equal where two tensors have the same elements.
        span: The bytes of the storage within which the elements lie.
        flat: Whether the elements are these bytes, in their order.
    """

    geometry: Geometry
    span: Span
    flat: bool


class Value(NamedTuple):
    """What somebody sees who looks at a memory."""

    reference: Reference
    look: Look
    outline: TensorOutline


@dataclass
class Memory:
    """A storage, and what is known of it."""

    # Keeps the address from being used again.
    weak: StorageWeakRef
    values: dict[Geometry, Value] = field(default_factory=dict)
    written: bool = False

    def write(self, span: Span) -> list[Geometry]:
        """Forgets what overlaps these bytes, and says what that was."""
        self.written = True
        gone = [key for key, value in self.values.items() if overlap(value.look.span, span)]
        for key in gone:
            del self.values[key]
        return gone


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What executed and derived traces have in common.

    Attributes:
        operators: Those seen so far.
    """

    def __init__(self, named: Iterable[tuple[str, torch.Tensor, bytes | None]]) -> None:
        """`named`: the tensors of the state ("state/...") and of the batch ("batch/..."), with
        their content roots where these are known. The first name of a place counts.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[Operator] = []
        self._inputs: list[TensorOutline] = []
        self._memories: dict[int, Memory] = {}
        for path, tensor, root in named:
            memory = self._memory(tensor)
            look = look_at(tensor)
            known = Value(Reference(path), look, outline_of(tensor, root))
            memory.values.setdefault(look.geometry, known)

    # ------------------------------------------------------------------ what kinds differ in

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, object]) -> Any:
        """Runs an operator."""
        return func(*args, **kwargs)

    def rounded(self, operator: Operator) -> tuple[int, int] | None:
        """Where the elements that the last operator rounded stand in the rounding log (log64)."""
        return None

    def content(
        self, tensor: torch.Tensor, look: Look, memory: Memory, *, unset: bool
    ) -> bytes | None:
        """The content root of a tensor; None where it has no agreed content, or none is known."""
        raise NotImplementedError

    # ------------------------------------------------------------------ operators

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _SILENT:
            return func(*args, **kwargs)
        form = self.form(func)
        given = form.given(args, kwargs)
        self._inputs = []
        arguments = {name: self._attribute(value, name, form.name) for name, value in given.items()}
        inputs = tuple(self._inputs)
        generator = None
        if form.draws:
            with _disable_current_modes():
                generator = bytes(torch.default_generator.get_state().numpy())
        out = self.run(func, args, kwargs)
        # Written operands are results too; a schema returns some of them as well.
        written = form.written_of(given)
        returned = form.returned(out)
        results = []
        for tensor in written:
            self._memory(tensor).write(look_at(tensor).span)
        for index, one in enumerate((*returned, *written)):
            if isinstance(one, torch.Tensor):
                reference = Reference(f"operator/{len(self.operators)}/{index}")
                results.append(self._result(one, reference, unset=form.unset))
            else:
                results.append(_plain(one, form.name))
        made = Operator(form.name, arguments, tuple(results), generator, inputs)
        rounded = self.rounded(made)
        self.operators.append(made if rounded is None else replace(made, rounded=rounded))
        return out

    @staticmethod
    def form(func: Any) -> Form:
        """What the operator's schema says."""
        return _form_of(func)

    def present(self, tensor: torch.Tensor, operator: str) -> Value:
        """The present value of a tensor that an operator reads: where it comes from.

        Raises:
            NotReplayable: Part of it was written through another view.
        """
        memory, look = self._memory(tensor), look_at(tensor)
        known = memory.values.get(look.geometry)
        if known is None:
            if memory.written or any(
                not one.reference.path.startswith("constant/") for one in memory.values.values()
            ):
                raise refused(
                    operator,
                    "it reads memory that was written through another view",
                    "write whole tensors: call .clone() on the view before it is written, or "
                    "compute a new tensor (torch.where, torch.cat)",
                )
            root = self.constant(tensor, look, memory)
            reference = Reference(f"constant/{root.hex()}")
            known = Value(reference, look, outline_of(tensor, root))
            memory.values[look.geometry] = known
        return known

    def constant(self, tensor: torch.Tensor, look: Look, memory: Memory) -> bytes:
        """The content root of a tensor that neither the state nor an operator has made."""
        root = self.content(tensor, look, memory, unset=False)
        assert root is not None
        return root

    # ------------------------------------------------------------------ parts

    def _result(self, tensor: torch.Tensor, reference: Reference, *, unset: bool) -> TensorOutline:
        if tensor.layout is not torch.strided or tensor.dtype not in DTYPES:
            raise refused(
                reference.path,
                f"it returns a tensor of {tensor.dtype}, {tensor.layout}",
                _DENSE,
            )
        memory, look = self._memory(tensor), look_at(tensor)
        outline = outline_of(tensor, self.content(tensor, look, memory, unset=unset))
        memory.values[look.geometry] = Value(reference, look, outline)
        return outline

    def _memory(self, tensor: torch.Tensor) -> Memory:
        storage = tensor.untyped_storage()
        key = storage._cdata
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return memory

    def _attribute(self, value: Any, name: str, operator: str) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.dtype not in DTYPES:
                what = f"{name} is a tensor of {value.dtype}, {value.layout}"
                raise refused(operator, what, _DENSE)
            known = self.present(value, operator)
            self._inputs.append(known.outline)
            return known.reference
        if isinstance(value, (list, tuple)):
            return [self._attribute(item, name, operator) for item in value]
        if isinstance(value, torch.Generator):
            raise refused(
                operator, "it draws from a generator of its own", "draw from torch's own generator"
            )
        return _plain(value, operator)


class Form:
    """An operator's schema, as far as a trace needs it."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name = str(func)
        arguments = [one for one in schema.arguments if one.name not in _PLACES]
        self._positional = [one.name for one in schema.arguments if not one.kwarg_only]
        self._defaults = {one.name: one.default_value for one in arguments}
        self.names = list(self._defaults)
        undeclared = _UNDECLARED.get(schema.name, ())
        self.written = [
            one.name
            for one in schema.arguments
            if one.name in undeclared or (one.alias_info is not None and one.alias_info.is_write)
        ]
        self._new = [
            one.alias_info is None or not one.alias_info.is_write for one in schema.returns
        ]
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self.unset = _core.returns_unset(self.name)

    def given(self, args: Sequence[Any], kwargs: Mapping[str, object]) -> Tree:
        """Every argument by name, in the schema's order, defaults included."""
        named = self._defaults.copy()
        named.update(zip(self._positional, args, strict=False))
        named.update(kwargs)
        if len(named) > len(self._defaults):  # a place was given
            return {name: named[name] for name in self._defaults}
        return named

    def called(self, arguments: Tree) -> Tree:
        """Arguments as they are encoded, as the operator takes them."""
        return {
            name: getattr(torch, value)
            if isinstance(value, str) and is_torch_s_own(name)
            else complex(value["real"], value["imaginary"])
            if isinstance(value, dict)
            else value
            for name, value in arguments.items()
        }

    def written_of(self, given: Tree) -> list[torch.Tensor]:
        """The operands that it writes."""
        flat = [one for name in self.written for one in _items(given.get(name))]
        return [one for one in flat if isinstance(one, torch.Tensor)]

    def returned(self, out: Any) -> list[Any]:
        """What an operator returned that is not one of its operands."""
        outs = out if len(self._new) > 1 else (out,) if self._new else ()
        fresh = [one for one, new in zip(outs, self._new, strict=True) if new]
        return [item for one in fresh for item in _items(one)]


def _items(value: Any) -> Sequence[Any]:
    """A list's items, or the value alone."""
    return value if isinstance(value, (list, tuple)) else (value,)


def is_torch_s_own(name: str) -> bool:
    """Whether an argument of that name, where it is a text, stands for a value of torch's."""
    return name.endswith(_TORCH_S_OWN)


@functools.cache
def _form_of(func: Any) -> Form:
    return Form(func)


def refused(operator: str, what: str, remedy: str) -> NotReplayable:
    """The refusal of a step that cannot be wired."""
    return NotReplayable(Problem(what=what, where=operator, remedy=remedy))


def outline_of(tensor: torch.Tensor, root: bytes | None) -> TensorOutline:
    """The form of a tensor with this content root."""
    return TensorOutline(DTYPES[tensor.dtype], tuple(tensor.shape), root)


def look_at(tensor: torch.Tensor) -> Look:
    """How a tensor looks at its memory."""
    shape, size = tuple(tensor.shape), tensor.element_size()
    offset = int(tensor.storage_offset())
    signs = tensor.is_conj() or tensor.is_neg()
    kind: Any = (tensor.is_conj(), tensor.is_neg(), tensor.dtype) if signs else tensor.dtype
    count = tensor.numel()
    if tensor.is_contiguous():  # the shape says what its strides are
        span = (offset * size, (offset + count) * size) if count else (0, 0)
        return Look((offset, shape, None, kind), span, not signs)
    # The stride of a dimension of one element says nothing.
    strides = tuple(0 if n == 1 else s for n, s in zip(shape, tensor.stride(), strict=True))
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    span = offset * size, (offset + int(last) + 1) * size
    return Look((offset, shape, strides, kind), span, flat=False)


def overlap(one: Span, other: Span) -> bool:
    """Whether two parts of a memory have bytes in common."""
    return one[0] < other[1] and other[0] < one[1]


def _plain(value: Any, operator: str) -> Any:
    """An attribute, or a result that is not a tensor, as it is encoded."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return {"real": value.real, "imaginary": value.imag}
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    raise refused(operator, f"a {type(value).__name__} is not an attribute that can be agreed", "")
