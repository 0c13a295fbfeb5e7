# SPDX-License-Identifier: Apache-2.0
"""A referee computes one element of any result from opened parts of the operands, to the bit."""

from __future__ import annotations

import functools
import math
import os
import random
from typing import Any

import many_operators
import pytest
import torch
import torch.nn.functional as F
import traced_nets
import zoo
from kept_values import Values, executed
from torch import nn

import potl
from potl import _core
from potl._dispute import _recompute, _regions
from potl._dispute._call import call
from potl._dispute._encoding import Reference, TensorOutline
from potl._dispute._operators import CAPTURE, Operator, ValueTrace

pytest.importorskip("potl._torch", reason="potl was built without torch")


FULL = bool(os.environ.get("POTL_FULL"))


def opened(operator: Operator, needed: list[_recompute.Need], values: Values) -> Any:
    """The parties' side: chunks with proofs, against the roots that were agreed."""
    out = {}
    for need in needed:
        data = values[operator.operands[need.operand].path]
        out[need.operand] = holder = _recompute.Opened(operator.inputs[need.operand])
        for chunk in need.chunks:
            part = data[chunk * _recompute.CHUNK : (chunk + 1) * _recompute.CHUNK]
            holder.add(chunk, part, _core.open_chunk(data, chunk))
    return out


def check(
    trace: ValueTrace, values: Values, arithmetic: str, elements: int, seed: int
) -> tuple[dict[str, int], int]:
    """Recomputes random elements of every result. Returns elements by operator, and the largest
    cost.
    """
    draw = random.Random(seed)
    done: dict[str, int] = {}
    worst = 0
    for index, one in enumerate(trace.operators):
        for number, outline in enumerate(one.results):
            if not isinstance(outline, TensorOutline) or outline.root is None:
                continue
            data = values.get(f"operator/{index}/{number}", trace.after)
            size = _recompute.DTYPE_OF[outline.dtype].itemsize
            for _ in range(elements if data else 0):
                place = draw.randrange(len(data) // size)
                each = _recompute.CHUNK // size
                at = (one, number, place // each, place % each)
                if one.name == CAPTURE:
                    holders = {i: _recompute.Opened(o) for i, o in enumerate(one.inputs)}
                else:
                    holders = opened(one, _recompute.needs(*at), values)
                found = _recompute.recompute(*at, holders, arithmetic=arithmetic)
                said = f"operator {index}, {one.name}, result {number}, element {place}"
                assert found.element == data[place * size : (place + 1) * size], said
                done[one.name] = done.get(one.name, 0) + 1
                worst = max(worst, found.multiply_adds)
    return done, worst


CASES = [(name, "ord32") for name in traced_nets.NETS] + [("mlp", "log64"), ("gpt", "log64")]


@pytest.mark.parametrize(("name", "arithmetic"), CASES)
def test_every_result_of_a_step_is_recomputed_to_the_bit(
    name: str, arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, values = executed(traced_nets.NETS[name], 2, arithmetic, monkeypatch)
    done, worst = check(trace, values, arithmetic, 2 if "mlp" in name else 1, 3)
    assert done[CAPTURE] > 0
    total = sum(map(_regions.multiply_adds, trace.operators))
    assert worst > 0
    if name in ("resnet20", "gpt"):
        assert worst <= 0.01 * total, (worst, total)


class Many(nn.Module):
    """Operators that the nets do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(17, 12)
        self.grouped = nn.Conv2d(12, 8, 3, stride=2, padding=2, dilation=2, groups=4)
        self.wide = nn.Conv1d(8, 6, 5, stride=3, padding=1)
        self.odd = nn.Conv2d(6, 4, 1, stride=2)
        self.back = nn.ConvTranspose2d(4, 5, 3, stride=2)
        self.norm = nn.GroupNorm(1, 6)
        self.head = nn.Linear(5, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x * 16).to(torch.int64).flatten(1)
        y = self.embed(tokens).transpose(1, 2).reshape(-1, 12, 8, 8)
        y = F.max_pool2d(F.silu(self.grouped(y)), 2, 1)
        y = torch.cat([y, y.flip(2)], 3).flatten(2)
        y = self.norm(F.leaky_relu(self.wide(y)))
        y = torch.bmm(y, y.transpose(1, 2)).softmax(1)
        y = torch.stack([y, y * y], 2)[:, :, :, 1:]
        y = self.back(self.odd(y)).amax((2, 3))
        out: torch.Tensor = self.head(y.tanh().clamp(max=0.5))
        return out


def many() -> potl.Task:
    net = Many()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=True)
    return traced_nets.task(net, zoo.digits(), 6, optimizer, grad_clip=0.1)


def test_other_operators_are_recomputed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, values = executed(many, 2, "ord32", monkeypatch)
    done, _ = check(trace, values, "ord32", 6, 5)
    names = " ".join(done)
    for wanted in ("bmm", "convolution_backward", "cat", "_foreach_add_", "_foreach_norm", "flip"):
        assert wanted in names


@pytest.mark.parametrize("arithmetic", ["ord32", *(("cr32", "xint16", "log64") if FULL else ())])
def test_every_kind_of_operator_is_recomputed(
    arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, values = executed(many_operators.task, 1, arithmetic, monkeypatch)
    done, _ = check(trace, values, arithmetic, 2, 7)
    assert len(done) > 150, len(done)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_fused_optimizers_and_pools_are_recomputed_from_parts(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> potl.Task:
        net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.AvgPool2d(2))
        net.extend([nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 10)])
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(net.parameters(), lr=0.01, fused=True, **options)
        return traced_nets.task(net, zoo.digits(), 300, optimizer)

    trace, values = executed(build, 2, "ord32", monkeypatch)
    done, _ = check(trace, values, "ord32", 4, 5)
    parts = ("_fused_", "max_pool2d_with_indices", "avg_pool2d", "nll_loss_backward")
    for part in parts:
        assert part in " ".join(done)
    for one in trace.operators[:-1]:
        if any(part in one.name for part in parts):
            count = sum(len(need.chunks) for need in _recompute.needs(one, 0, 0, 0))
            assert count <= 2 + len(one.inputs) / (3 if "_fused_" in one.name else 1), one.name


def listing() -> potl.Task:
    """Lists of tensors: copied, zeroed, reduced, one tensor twice; an optimizer that counts."""

    class Listing(potl.Task):
        def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
            loss = super().compute_loss(batch, reduction)
            with torch.no_grad():
                made = [one * 2 for one in self.model.parameters()]
                into = [torch.empty_like(one) for one in made]
                torch._foreach_copy_(into, made)
                torch._foreach_zero_(made)
                twice = torch._foreach_mul([into[0], into[0]], [into[0], into[0]])
                none = torch.zeros(0, 4).sum()
                rest = [*torch._foreach_max(into), *made, *twice, none]
            return loss + sum(one.sum() for one in rest) * 1e-9

    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1, fused=True)
    made = traced_nets.task(net, zoo.digits(), 4, optimizer)
    made.__class__ = Listing
    return made


def mixed_norm() -> potl.Task:
    """A norm whose input is bfloat16, by autocast, and whose statistics are float32."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    made = traced_nets.task(net, zoo.digits(), 4, traced_nets.sgd(net))
    made.autocast = torch.bfloat16
    return made


def test_norms_under_autocast_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, values = executed(mixed_norm, 2, "ord32", monkeypatch)
    done, _ = check(trace, values, "ord32", 3, 5)
    assert "native_batch_norm" in " ".join(done)
    norm = operator_of(trace, "native_batch_norm")
    assert [one.dtype for one in norm.tensors] == ["bfloat16", *["float32"] * 4]


def test_lists_of_tensors_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, values = executed(listing, 2, "ord32", monkeypatch)
    done, _ = check(trace, values, "ord32", 3, 5)
    for name in ("copy_", "zero_", "mul", "max"):
        assert f"aten._foreach_{name}" in " ".join(done)
    # The elements of a copy are those of what is copied, and one chunk of it is opened.
    copied = operator_of(trace, "_foreach_copy_")
    assert [need.operand for need in _recompute.needs(copied, 0, 0, 5)] == [2]
    counted = operator_of(trace, "_fused_adagrad_")
    assert len(counted.results) == 8


def operator_of(trace: ValueTrace, name: str) -> Operator:
    return next(one for one in trace.operators if name in one.name)


def test_what_is_opened_is_small_for_products_and_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, _ = executed(functools.partial(wide_net, 2048), 2, "ord32", monkeypatch)
    for name in ("threshold_backward", "add_."):
        one = operator_of(trace, name)
        assert [need.chunks for need in _recompute.needs(one, 0, 1, 3)] == [(1,), (1,)]
    last = [one for one in trace.operators if "addmm" in one.name][-1]
    # The bias, and the row of the left operand; a column of the other one is everywhere.
    assert [need.chunks for need in _recompute.needs(last, 0, 0, 25)][:2] == [(0,), (1,)]


VIEWS: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "t.default": ({}, (5, 3), 0),
    "transpose.int": ({"dim0": 0, "dim1": -1}, (5, 3, 2), 0),
    "permute.default": ({"dims": [2, 0, 1]}, (5, 2, 3), 0),
    "expand.default": ({"size": [4, 2, 3, 5], "implicit": False}, (4, 2, 3, 5), 0),
    "slice.Tensor": ({"dim": 2, "start": 1, "end": 5, "step": 2}, (2, 3, 2), 0),
    "select.int": ({"dim": 1, "index": -1}, (2, 5), 0),
    "unbind.int": ({"dim": 1}, (2, 5), 2),
    "split.Tensor": ({"split_size": 2, "dim": 2}, (2, 3, 1), 2),
    "diagonal.default": ({"offset": 1, "dim1": 1, "dim2": 2}, (2, 3), 0),
    "unfold.default": ({"dimension": 2, "size": 3, "step": 2}, (2, 3, 2, 3), 0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_an_element_of_a_view_is_found_where_it_lies(name: str) -> None:
    attributes, shape, result = VIEWS[name]
    operand = (3, 5) if name == "t.default" else (2, 3, 5)
    count = math.prod(operand)
    one = Operator(
        f"aten.{name}",
        {"self": Reference("batch/0"), **attributes},
        tuple(TensorOutline("float32", shape, None) for _ in range(result + 1)),
        inputs=(TensorOutline("float32", operand, None),),
    )
    seen = call(one, [torch.arange(count).reshape(operand)], {})[result]
    assert tuple(seen.shape) == shape
    for element, place in enumerate(seen.reshape(-1).tolist()):
        (places,) = _regions.plan(one, result, element).places
        assert places is not None and places.tolist() == [place]


def test_an_element_of_a_large_view_takes_no_memory() -> None:
    """The liar chooses the operator."""
    large = (1 << 20, 1 << 20)
    form = TensorOutline("float32", large, None)
    one = Operator("aten.t.default", {"self": Reference("batch/0")}, (form,), inputs=(form,))
    (places,) = _regions.plan(one, 0, 5).places
    assert places is not None and places.tolist() == [5 << 20]


def wide_net(width: int) -> potl.Task:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    return traced_nets.task(net, zoo.digits(), 32, traced_nets.sgd(net))


def test_chunks_that_are_not_the_operand_s_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, values = executed(traced_nets.mlp, 1, "ord32", monkeypatch)
    one = operator_of(trace, "addmm")
    need = _recompute.needs(one, 0, 0, 0)[0]
    data = values[one.operands[need.operand].path]
    chunk, proof = bytearray(data[: _recompute.CHUNK]), _core.open_chunk(data, 0)
    chunk[0] ^= 1
    with pytest.raises(potl.MismatchError):
        _recompute.Opened(one.inputs[need.operand]).add(0, bytes(chunk), proof)
    with pytest.raises(potl.MissingError, match="was not opened"):
        _recompute.recompute(one, 0, 0, 0, {}, arithmetic="ord32")
    unset = operator_of(trace, "aten.empty")
    with pytest.raises(potl.UnsupportedError, match="leaves memory as it is"):
        _recompute.recompute(unset, 0, 0, 0, {}, arithmetic="ord32")
    with pytest.raises(potl.UsageError, match="is not a tensor"):
        _recompute.needs(replaced(one), 0, 0, 0)


def replaced(one: Operator) -> Operator:
    return Operator(one.name, one.arguments, (3.0,), inputs=one.inputs)


def bytes_of(dtype: torch.dtype, *bits: int) -> bytes:
    """Elements of these bits."""
    kind = {2: torch.uint16, 4: torch.uint32}[dtype.itemsize]
    return bytes(torch.tensor(bits, dtype=kind).view(torch.uint8).numpy())


@pytest.mark.parametrize(
    ("dtype", "one", "nan", "other"),
    [("float32", 0x3F800000, 0x7FC00000, 0xFFC00001), ("bfloat16", 0x3F80, 0x7FC0, 0xFFFF)],
)
def test_what_is_not_a_number_has_any_bits(dtype: str, one: int, nan: int, other: int) -> None:
    number, mine, theirs = (bytes_of(getattr(torch, dtype), bits) for bits in (one, nan, other))
    computed = _recompute.Recomputed(mine, 0, dtype=dtype)
    assert computed.is_shown_by(mine) and computed.is_shown_by(theirs)
    assert not computed.is_shown_by(number)
    assert not _recompute.Recomputed(number, 0, dtype=dtype).is_shown_by(mine)
    # What was only moved has the bits that it had.
    assert not _recompute.Recomputed(mine, 0).is_shown_by(theirs)
    differs = functools.partial(_recompute.disputed_element, dtype=dtype)
    assert differs(number + mine + number, number + theirs + mine) == 2
    assert differs(number + mine + mine, number + theirs + theirs) == 1


def test_integers_and_complex_numbers_are_what_their_bits_are() -> None:
    data = bytes_of(torch.float32, 0x7FC00000, 0xFFC00001)
    assert not any(_recompute.not_numbers(data, "int32"))
    assert not any(_recompute.not_numbers(data, "complex64"))
    assert all(_recompute.not_numbers(data, "float8_e5m2")[3::4])
