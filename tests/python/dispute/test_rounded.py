# SPDX-License-Identifier: Apache-2.0
"""Places in the rounding log: derived ones are those of the kernels, and one element is recomputed
with its entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import traced_nets
import zoo

import potl
from potl import _core
from potl._arithmetic import _arithmetic, _rounded_steps
from potl._dispute import _recompute, _values
from potl._dispute._derive import derivation_fault, derive_operators
from potl._dispute._operators import Operator
from potl._dispute._rounded import Entries

pytest.importorskip("potl._torch", reason="potl was built without torch")

aten = torch.ops.aten
NETS = {
    **traced_nets.NETS,
    "bilstm": functools.partial(zoo.build, "bilstm"),
    "autoencoder": functools.partial(zoo.build, "autoencoder"),
}


@pytest.mark.parametrize("name", NETS)
def test_derived_places_are_those_of_the_kernels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(NETS[name], seed=3, checkpoint_every=8, arithmetic="log64")
    assert derivation_fault(NETS[name], job, 1, None) is None
    rounded = [one.rounded for one in derive_operators(NETS[name], job, 1) if one.rounded]
    ends = [first + count for first, count in rounded]
    assert [first for first, _ in rounded] == [0, *ends[:-1]] and len(rounded) > 3


def cancelling(*shape: int, along: int) -> torch.Tensor:
    """Large values, of which the second half cancels the first where both are weighed alike."""
    draw = torch.Generator().manual_seed(sum(shape))
    half = list(shape)
    half[along] //= 2
    first = torch.randn(half, generator=draw) + 30_000
    return torch.cat([first, torch.randn(half, generator=draw) - first], along)


def alike(*shape: int, along: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(sum(shape) + 1)
    half = list(shape)
    half[along] //= 2
    first = torch.randn(half, generator=draw)
    return torch.cat([first, first], along)


def convolution(stride: int, padding: int, dilation: int, groups: int) -> list[Any]:
    pair = [[stride] * 2, [padding] * 2, [dilation] * 2]
    return [*pair, False, [0, 0], groups]


CONV = convolution(1, 1, 1, 1)
ODD = convolution(2, 2, 2, 2)
Case = tuple[Callable[..., Any], list[torch.Tensor], list[Any], int]


def backward(mask: list[bool], how: list[Any]) -> Callable[..., Any]:
    return lambda dy, x, w: aten.convolution_backward.default(dy, x, w, None, *how, mask)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "mm": (
        aten.mm.default,
        lambda: [cancelling(40, 48, along=1), alike(48, 50, along=0)],
    ),
    "addmm": (
        aten.addmm.default,
        lambda: [torch.ones(50), cancelling(40, 48, along=1), alike(48, 50, along=0)],
    ),
    "mv": (aten.mv.default, lambda: [cancelling(900, 48, along=1), alike(48, along=0)]),
    "bmm": (
        aten.bmm.default,
        lambda: [cancelling(3, 30, 16, along=2), alike(3, 16, 20, along=1)],
    ),
    "convolution": (
        lambda x, w, b: aten.convolution.default(x, w, b, *CONV),
        lambda: [cancelling(4, 8, 9, 9, along=1), alike(6, 8, 3, 3, along=1), torch.ones(6)],
    ),
    "odd convolution": (
        lambda x, w: aten.convolution.default(x, w, None, *convolution(2, 2, 2, 1)),
        lambda: [cancelling(8, 8, 11, 11, along=1), alike(6, 8, 3, 3, along=1)],
    ),
    "input gradient": (
        backward([True, True, True], CONV),
        lambda: [
            cancelling(4, 6, 9, 9, along=1),
            torch.randn(4, 8, 9, 9, generator=torch.Generator().manual_seed(1)),
            alike(6, 8, 3, 3, along=0),
        ],
    ),
    "odd input gradient": (
        backward([True, False, False], convolution(2, 2, 2, 1)),
        lambda: [
            cancelling(4, 6, 6, 6, along=1),
            torch.zeros(4, 8, 11, 11),
            alike(6, 8, 3, 3, along=0),
        ],
    ),
    "weight gradient": (
        backward([True, True, False], ODD),
        lambda: [
            cancelling(8, 40, 6, 6, along=0),
            alike(8, 8, 11, 11, along=0),
            torch.zeros(40, 4, 3, 3),
        ],
    ),
    "attention": (
        lambda q, k, v: aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v),
        lambda: [
            cancelling(2, 3, 20, 8, along=3),
            alike(2, 3, 20, 8, along=3),
            torch.ones(2, 3, 20, 8),
        ],
    ),
}


def followed(
    run: Callable[..., Any], operands: list[torch.Tensor], log: bytes
) -> tuple[Operator, list[torch.Tensor]]:
    """The operator, and what it returns if it follows a log."""
    follower = _rounded_steps.Follower()
    follower.expect(log, _core.rounding_log_digest(log))
    named = [(f"state/{i}", one, None) for i, one in enumerate(operands)]
    tracer = _values._ValueTracer(named, follower)
    with _arithmetic.block("log64"), follower.around(1), tracer:
        out = run(*operands)
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    return tracer.operators[-1], results


def opened(operator: Operator, needed: list[_recompute.Need], operands: list[torch.Tensor]) -> Any:
    out = {}
    for need in needed:
        data = bytes(operands[need.operand].reshape(-1).view(torch.uint8).numpy())
        form = operator.inputs[need.operand]
        holder = _recompute.Opened(
            type(form)(form.dtype, form.shape, _core.content_root(data), form.memory_format)
        )
        for chunk in need.chunks:
            part = data[chunk * _recompute.CHUNK : (chunk + 1) * _recompute.CHUNK]
            holder.add(chunk, part, _core.open_chunk(data, chunk))
        out[need.operand] = holder
    return out


def turned(log: bytes) -> bytes:
    """Every entry the other way."""
    found = _core.decode_rounding_log(log)
    entries = [(position, not up) for position, up in found["entries"]]
    return _core.encode_rounding_log(bits=32, values=found["values"], entries=entries)


def places(results: Sequence[torch.Tensor | None], position: int) -> tuple[int, int]:
    """The result and the element at a place of an operator's part of the log."""
    for number, one in enumerate(results):
        size = 0 if one is None else one.numel()
        if position < size:
            return number, position
        position -= size
    raise AssertionError(position)


@pytest.mark.parametrize("name", CASES)
def test_an_element_is_recomputed_with_its_entry(name: str) -> None:
    run, make = CASES[name]
    operands = make()
    trainer = _rounded_steps.Trainer()
    with _arithmetic.block("log64"), trainer.around(1):
        run(*operands)
    log = turned(trainer.log)
    operator, results = followed(run, operands, log)
    _, exact = followed(run, operands, _rounded_steps.without_entries(0))
    entries = _core.decode_rounding_log(log)["entries"]
    assert len(entries) > 5 and operator.rounded == (0, trainer.values)
    recomputed = functools.partial(_recompute.recompute, arithmetic="log64")
    steered = 0
    for position, _ in entries[:: max(1, len(entries) // 40)]:
        number, element = (
            (0, position % results[0].numel()) if name == "attention" else places(results, position)
        )
        at = (operator, number, *divmod(element, _recompute.CHUNK // 4))
        holders = opened(operator, _recompute.needs(*at), operands)
        found = recomputed(*at, holders, entries=Entries(log))
        true = results[number].reshape(-1)[element]
        assert found.element == true.numpy().tobytes()
        if name == "attention":
            continue
        assert found.rounding is not None
        before = exact[number].reshape(-1)[element]
        assert recomputed(*at, holders).element == before.numpy().tobytes()
        if true != before:
            steered += 1
            assert found.rounding["fault"] == "none"
        else:
            assert found.rounding["fault"] in ("none", "wrong_direction")
    assert steered > 2 or name == "attention"
