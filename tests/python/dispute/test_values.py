# SPDX-License-Identifier: Apache-2.0
"""The trace of a step with values is the same on every machine, and one other bit anywhere in it
names the operator.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
import traced_nets
from places import HELPERS
from torch import nn
from torch.utils._pytree import tree_leaves

import potl
from potl import _core
from potl._dispute import _values
from potl._dispute._encoding import AliasOutline, Reference, TensorOutline, encode
from potl._dispute._operators import CAPTURE, captured_digest
from potl._dispute._outline import StateOutline

pytest.importorskip("potl._torch", reason="potl was built without torch")


def root_elsewhere(name: str, arithmetic: str, threads: int, *, portable: bool = False) -> str:
    """The root in another process, on the least that this processor can be taken for."""
    at_start = {"ATEN_CPU_CAPABILITY": "default"} if portable else {}
    environment = {**os.environ, **at_start} | ({"POTL_ISA": "portable"} if portable else {})
    command = [programs.python(**at_start), str(HELPERS / "traced_nets.py"), name]
    command += ["--arithmetic", arithmetic, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.parametrize("arithmetic", ["ord32", "log64"])
@pytest.mark.parametrize("name", traced_nets.NETS)
def test_threads_instructions_and_restarts_do_not_change_the_root(
    name: str, arithmetic: str
) -> None:
    here = traced_nets.traced(traced_nets.NETS[name], arithmetic=arithmetic).root.hex()
    assert root_elsewhere(name, arithmetic, 2) == here
    assert root_elsewhere(name, arithmetic, 1, portable=True) == here


@pytest.mark.parametrize("name", traced_nets.NETS)
def test_a_trace_begins_and_ends_with_the_states_that_records_bind(name: str) -> None:
    with traced_nets.before_step(traced_nets.NETS[name], 2) as (session, batch):
        before = session.capture().digest()
        trace = _values.trace_values(session, 2, batch)
        assert trace.before == before
        after = session.capture()
    with traced_nets.before_step(traced_nets.NETS[name], 3) as (session, _):
        assert trace.after == session.capture().digest() == after.digest()
    unset = {one.name for one in trace.operators for made in one.tensors if made.root is None}
    assert all(name.startswith("aten.empty") for name in unset)
    # A referee makes the digest out of what earlier operators returned, and nothing else.
    outline = traced_nets.outline(traced_nets.NETS[name], 2)
    known: dict[str, Any] = {f"state/{path}": one for path, one in outline.tensors().items()}
    for index, one in enumerate(trace.operators):
        known |= {f"operator/{index}/{i}": r for i, r in enumerate(one.results)}
    capture = trace.operators[-1]
    operands = [known[one.path] for one in capture.operands]
    assert capture.name == CAPTURE
    assert captured_digest(capture, operands) == trace.after
    assert capture.tensors[0].root == _core.content_root(trace.after)


def changed_by_one_ulp(tensor: torch.Tensor, place: int) -> None:
    tensor.detach().view(torch.int32).view(-1)[place] += 1


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_one_ulp_in_a_result_names_its_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = traced_nets.NETS[name]
    honest = traced_nets.traced(build)
    made = [
        index
        for index, one in enumerate(honest.operators[:-1])
        if one.tensors
        and all(t.dtype == "float32" and t.root is not None for t in one.tensors[:1])
        and not any(word in one.name for word in VIEWS)
    ]
    draw = random.Random(3)
    chosen = sorted(draw.sample(made, 12))
    run = _values._ValueTracer.run
    for index in chosen:

        def altered(self: Any, func: Any, args: Any, kwargs: Any, index: int = index) -> Any:
            out = run(self, func, args, kwargs)
            if len(self.operators) == index:
                results = [t for t in tree_leaves((out, args)) if isinstance(t, torch.Tensor)]
                changed_by_one_ulp(results[0], draw.randrange(results[0].numel()))
            return out

        monkeypatch.setattr(_values._ValueTracer, "run", altered)
        found = honest.first_difference(traced_nets.traced(build))
        assert found == index, honest.operators[index].name


VIEWS = ("view", "detach", ".t.", "slice", "expand", "permute", "transpose", "unbind", "lift")


class Secret(nn.Linear):
    """Changes a weight behind torch's back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x.flatten(1))
        assert self.bias is not None
        self.bias.detach().numpy()[0] += 1e-3
        return out


def test_a_write_that_is_no_operator_is_refused() -> None:
    def build() -> potl.Task:
        net = Secret(64, 10)
        return traced_nets.task(net, traced_nets.zoo.digits(), 32, torch.optim.SGD([net.weight]))

    with pytest.raises(potl.NotReplayable, match="not an operator"):
        traced_nets.traced(build, 1)
    with traced_nets.before_step(build, 1) as (session, batch):
        before = session.capture()
        session.run_step(1, batch)
        after = session.capture().digest()
        session.restore(before)
        with pytest.raises(potl.NotReplayable, match="not an operator"):
            _values.trace_values(session, 1, batch, after=after)


def test_a_state_that_comes_out_as_it_should_is_not_hashed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed, true = 0, _values.root_of_tensor

    def counted(tensor: torch.Tensor) -> bytes:
        nonlocal hashed
        hashed += 1
        return true(tensor)

    monkeypatch.setattr(_values, "root_of_tensor", counted)
    build, counts, traces = traced_nets.NETS["mlp"], [], []
    for after in (None, bytes(32), traced_nets.traced(build).after):
        with traced_nets.before_step(build, 2) as (session, batch):
            tensors = len(list(_values.state_tensors(session, None)))
            hashed = 0
            traces.append(_values.trace_values(session, 2, batch, after=after).root)
            counts.append(hashed)
    assert len(set(traces)) == 1
    assert counts[0] == counts[1] == counts[2] + tensors


class Patched(nn.Module):
    """Writes into a view of what it reads as a whole afterwards."""

    def __init__(self, clone: bool) -> None:
        super().__init__()
        self.inner, self.clone = nn.Linear(64, 10), clone

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1).clone()
        if self.clone:
            x = torch.cat([torch.zeros(len(x), 3), x[:, 3:]], 1)
        else:
            x[:, :3] = 0
        out: torch.Tensor = self.inner(x)
        return out


def test_a_write_through_a_part_is_refused_with_the_remedy() -> None:
    def build(clone: bool) -> potl.Task:
        net = Patched(clone)
        return traced_nets.task(net, traced_nets.zoo.digits(), 32, traced_nets.sgd(net))

    with pytest.raises(potl.NotReplayable, match=r"another view.*torch\.cat"):
        traced_nets.traced(lambda: build(False), 1)
    assert traced_nets.traced(lambda: build(True), 1).operators


class Halves(nn.Linear):
    """Writes into one half of a memory, and reads the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten().clone()
        halves = flat[: len(flat) // 2], flat[len(flat) // 2 :]
        halves[0].mul_(0.5)
        return super().forward(torch.cat(halves).reshape(-1, 64))


def test_a_write_next_to_a_view_does_not_change_it() -> None:
    def build() -> potl.Task:
        net = Halves(64, 10)
        return traced_nets.task(net, traced_nets.zoo.digits(), 32, traced_nets.sgd(net))

    trace = traced_nets.traced(build, 1)
    (put_together,) = (one for one in trace.operators if one.name == "aten.cat.default")
    made = [trace.operators[int(one.path.split("/")[1])].name for one in put_together.operands]
    assert made == ["aten.mul_.Tensor", "aten.slice.Tensor"]


class Apart(nn.Linear):
    """Draws where nobody looks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return super().forward(x.flatten(1) + torch.rand(64, generator=generator))


def test_a_generator_of_ones_own_is_refused_with_the_remedy() -> None:
    def build() -> potl.Task:
        net = Apart(64, 10)
        return traced_nets.task(net, traced_nets.zoo.digits(), 32, traced_nets.sgd(net))

    with pytest.raises(potl.NotReplayable, match=r"generator of its own.*torch's own generator"):
        traced_nets.traced(build, 1)


class Filling(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.empty(4, 16)
        turned = mask.t()
        turned.fill_(0.5)
        return super().forward(x.flatten(1) * turned.reshape(64))


def test_memory_that_nobody_has_written_has_no_content() -> None:
    def build() -> potl.Task:
        net = Filling(64, 10)
        return traced_nets.task(net, traced_nets.zoo.digits(), 32, traced_nets.sgd(net))

    trace = traced_nets.traced(build, 1)
    first = next(i for i, one in enumerate(trace.operators) if "aten.empty" in one.name)
    empty, view, filled = trace.operators[first : first + 3]
    assert [one.tensors[0].root for one in (empty, view)] == [None, None]
    assert filled.tensors[0].root is not None


def test_traces_of_other_states_are_not_compared() -> None:
    first, second = (traced_nets.traced(traced_nets.mlp, step) for step in (1, 2))
    with pytest.raises(potl.UsageError, match="same state"):
        first.first_difference(second)
    assert first.first_difference(traced_nets.traced(traced_nets.mlp, 1)) is None


def test_an_outline_has_the_digest_of_its_state() -> None:
    with traced_nets.before_step(traced_nets.gpt, 3) as (session, _):
        state = session.capture()
        outline = StateOutline.of(state)
        assert outline.digest() == state.digest()
        session.restore(outline.zeros())
        assert StateOutline.of(session.capture()).tensors().keys() == outline.tensors().keys()


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_an_outline_has_the_memory_format_of_its_tensors(memory_format: str) -> None:
    place = (ctypes.c_char * 32)()
    tensor = _core.Tensor(
        "float32", (1, 2, 2, 2), memory_format, ctypes.addressof(place), 32, place
    )
    state = _core.State.capture({"w": tensor})
    assert StateOutline.of(state).digest() == state.digest()


def test_zeros_take_no_memory() -> None:
    tensor = TensorOutline("float32", (16 << 20,), None)
    small = TensorOutline("float32", (), None, data=struct.pack("<f", 2.5))
    outline = StateOutline({"a": tensor, "b": small, "c": tensor, "d": AliasOutline("a")})
    before = resident()
    tree = outline.zeros().tree()
    assert bytes(tree["b"].data) == struct.pack("<f", 2.5)
    zeros = memoryview(tree["a"].data)
    assert not any(zeros[:: 1 << 12]) and len(zeros) == 64 << 20
    assert tree["d"].path == "a"
    assert resident() - before < 8 << 20


def test_a_state_over_memory_keeps_it_and_has_the_digest_of_a_copy() -> None:
    memory = bytearray(struct.pack("<2f", 1.0, 2.5))

    def tree(place: Any) -> dict[str, object]:
        made = _core.Tensor("float32", (2,), "contiguous", ctypes.addressof(place), 8, place)
        return {"b": made, "a": [1, made]}

    def adopted() -> _core.State:
        place = (ctypes.c_char * 8).from_buffer(memory)
        return _core.State.adopt(tree(place), place)

    state = adopted()
    assert (
        state.digest()
        == _core.State.capture(tree((ctypes.c_char * 8).from_buffer(memory))).digest()
    )
    assert bytes(state.tree()["a"][1].data) == memory
    with pytest.raises(BufferError):
        memory.extend(b"more")  # the state still looks at it
    del state
    memory.extend(b"more")


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_leaf_has_the_bytes_of_the_format_page() -> None:
    """Written from docs/format/operator_trace.md, with struct and hashlib alone."""

    def text(tag: int, value: str) -> bytes:
        return bytes([tag]) + struct.pack("<Q", len(value)) + value.encode()

    def tensor(dtype: str, dims: tuple[int, ...]) -> bytes:
        head = bytes([10, len(dtype)]) + dtype.encode() + bytes([10]) + b"contiguous"
        return head + bytes([len(dims)]) + struct.pack(f"<{len(dims)}Q", *dims) + bytes(32)

    trace = traced_nets.traced(traced_nets.mlp)
    index, one = next((i, o) for i, o in enumerate(trace.operators) if "addmm" in o.name)
    arguments = {
        "self": one.arguments["self"].path,
        "mat1": one.arguments["mat1"].path,
        "mat2": one.arguments["mat2"].path,
    }
    encoded = bytes([9]) + struct.pack("<Q", 5)
    encoded += text(5, "alpha") + bytes([3]) + struct.pack("<q", 1)
    encoded += text(5, "beta") + bytes([3]) + struct.pack("<q", 1)
    for key in ("mat1", "mat2", "self"):
        encoded += text(5, key) + text(12, arguments[key])
    body = bytes([7]) + struct.pack("<Q", 4) + text(5, "aten.addmm.default") + encoded
    body += bytes([7]) + struct.pack("<Q", 1) + tensor("F32", (32, 48)) + bytes([0])
    structure = hashlib.sha256(b"potl.operator.structure.v1\0" + body).digest()
    assert one.structure == structure
    root = one.tensors[0].root
    assert root is not None
    leaf = hashlib.sha256(b"\0" + b"potl.operator.v1\0" + structure + root).digest()
    assert one.leaf == leaf == trace.tree.leaf(index)


def test_values_without_an_encoding_are_refused() -> None:
    assert encode(Reference("batch/0")) == b"\x0c" + struct.pack("<Q", 7) + b"batch/0"
    assert encode(TensorOutline("bool", (), None))[:6] == bytes([10, 4]) + b"BOOL"
    with pytest.raises(TypeError, match=r"cannot hold set at state\['a'\]"):
        encode({"a": {1}})
