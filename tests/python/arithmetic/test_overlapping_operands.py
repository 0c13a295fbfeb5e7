# SPDX-License-Identifier: Apache-2.0
"""Operators that write to memory which another operand reads: all of it is read first."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import potl
from potl._arithmetic._library import module

pytest.importorskip("potl._torch", reason="potl was built without torch")


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def same_bits(x: Tensor, y: Tensor) -> bool:
    return x.numpy().tobytes() == y.numpy().tobytes()


SHIFTS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "copy_": lambda to, given: to.copy_(given),
    "add_": lambda to, given: to.add_(given),
    "add_ with alpha": lambda to, given: to.add_(given, alpha=0.3),
    "sub_": lambda to, given: to.sub_(given),
    "sub_ with alpha": lambda to, given: to.sub_(given, alpha=0.3),
    "mul_": lambda to, given: to.mul_(given),
    "div_": lambda to, given: to.div_(given),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_memory_that_is_read_and_written_at_once_is_read_first(name: str) -> None:
    """As `queue[:, 1:] = queue[:, :-1]` does it: in torch the order is the processor's."""
    x = drawn(1_000, 400)
    places: list[Callable[[Tensor], tuple[Tensor, Tensor]]] = [
        lambda y: (y[:, 1:], y[:, :-1]),
        lambda y: (y[:, :-1], y[:, 1:]),
        lambda y: (y[1:, 3:], y[:-1, :-3]),
        lambda y: (y, y[:, :1]),
        lambda y: (y[:, ::2], y[:, 1::2]),  # which lie beside each other
        lambda y: (y[:500], y[500:]),
        lambda y: (y, y),
    ]
    with potl.deterministic():
        for pair in places:
            got, want = x.clone(), x.clone()
            SHIFTS[name](*pair(got))
            to, given = pair(want)
            SHIFTS[name](to, given.clone())
            assert same_bits(got, want)
            if given.shape == to.shape and name == "copy_":
                assert torch.equal(pair(got)[0], pair(x)[1])


# ---------------------------------------------------------------------- every exact operator

TYPES = [torch.float32, torch.float64, torch.int64, torch.bool]


def operands(schema: Any, memory: Tensor) -> tuple[list[Any], dict[str, Any]] | None:
    """Of one operator: it writes to all columns but the first, and reads all but the last."""
    places: list[Any] = []
    names: dict[str, Any] = {}
    for argument in schema.arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        columns = memory[:, 1:] if written else memory[:, :-1]
        known = {"Tensor": columns, "List[Tensor]": [columns], "number": 0.5, "int": 1}
        if str(argument.type) in known:
            value = known[str(argument.type)]
        elif argument.has_default_value():
            continue
        else:
            return None
        if argument.kwarg_only:
            names[argument.name] = value
        else:
            places.append(value)
    return places, names


def result(operator: Any, memory: Tensor, *, apart: bool) -> Tensor | None:
    """What is written; none if torch does not take such operands, or notices what they share."""
    memory = memory.clone()
    given = operands(operator._schema, memory)
    if given is None:
        return None

    def own(value: Any) -> Any:
        if isinstance(value, list):
            return [own(one) for one in value]
        is_read = isinstance(value, Tensor) and value.data_ptr() == memory.data_ptr()
        return value.clone() if is_read and apart else value

    try:
        operator(*map(own, given[0]), **{name: own(value) for name, value in given[1].items()})
    except (RuntimeError, IndexError):
        return None
    return memory


def writers() -> list[Any]:
    found, seeded = [], torch.Tag.nondeterministic_seeded
    for name, runs, _ in module().operators():
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        operator = getattr(packet, overload or "default", None)
        if runs != "exact" or operator is None or seeded in operator.tags:
            continue
        written = [
            one.alias_info is not None and one.alias_info.is_write
            for one in operator._schema.arguments
        ]
        if sum(written) == 1:
            found.append(operator)
    return found


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_exact_operators_read_is_not_yet_written(dtype: torch.dtype) -> None:
    memory = drawn(37, 66).mul(4).to(dtype)
    seen = set()
    with potl.deterministic():
        for operator in writers():
            want = result(operator, memory, apart=True)
            got = result(operator, memory, apart=False)
            if want is None or got is None:
                continue
            assert same_bits(got, want), operator
            seen.add(operator._schema.name)
    assert len(seen) > 20, seen
    assert "aten::copy_" in seen and "aten::cat" in seen
