# SPDX-License-Identifier: Apache-2.0
"""An element that is a sum of many terms: its parts make it, and each part follows from the one
before. In a dispute one block of terms is opened, and who lies about a part is convicted there.
"""

from __future__ import annotations

import functools
import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import traced_nets
import zoo
from disputed import Case, Liar, case, false_run
from kept_values import executed
from torch import nn

import potl
from potl import _core
from potl._dispute import _answers, _parts, _party, _recompute
from potl._dispute._encoding import TensorOutline
from potl._dispute._folds import Chains, InOrder, Trees
from potl._dispute._long_sums import LongSum, long_sum, order_of
from potl._dispute._operators import CAPTURE, Operator

pytest.importorskip("potl._torch", reason="potl was built without torch")

Build = Callable[[], potl.Task]
FULL = bool(os.environ.get("POTL_FULL"))


class Sums(nn.Module):
    """Long sums of all kinds: strides, groups, dilation, transposed convolutions, frozen places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(17, 12, padding_idx=3)
        self.grouped = nn.Conv2d(12, 8, 3, stride=2, padding=2, dilation=2, groups=4)
        self.norm = nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 80, 3, padding=1, bias=False)
        self.back = nn.ConvTranspose2d(80, 6, 3, stride=2, padding=1, groups=2, dilation=2)
        self.rows = nn.LayerNorm(9)
        self.head = nn.Linear(6 * 9 * 9, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x * 16).to(torch.int64).flatten(1)
        y = self.embed(tokens).transpose(1, 2).reshape(-1, 12, 8, 8)
        y = self.wide(self.norm(self.grouped(y)))
        y = self.rows(self.back(y)[:, :, :9, :9])
        y = torch.cat([y, torch.full_like(y[:, :, :, :1], -0.0)], 3)[..., :9]
        return self.head(y.flatten(1)) - y.mean() * y.sum((0, 2, 3)).sum()  # type: ignore[no-any-return]


def sums() -> potl.Task:
    net = Sums()
    loss = functools.partial(F.cross_entropy, ignore_index=3)
    return traced_nets.task(net, zoo.digits(), 24, traced_nets.sgd(net), grad_clip=0.1, loss=loss)


def long_ones(trace: Any, values: dict[str, bytes]) -> Any:
    """Every operator and result that has a rule, with its content and a reader of its operands."""
    for index, one in enumerate(trace.operators):
        if one.name == CAPTURE:
            continue
        paths = _party.paths_of(one, index)
        for number, outline in enumerate(one.results):
            data = values.get(f"operator/{index}/{number}")
            if data and isinstance(outline, TensorOutline) and outline.root is not None:
                yield one, number, data, _parts.reader(one, lambda i, p=paths: values[p[i]])


def check(one: Operator, long: LongSum, read: Any, draw: random.Random) -> bytes:
    """The element that the parts make; some parts follow from those before."""
    parts = _parts.parts_of(long, read)
    settled = {number: read(number, where) for number, where in long.settled.items()}
    assert len(parts) == _parts.count_bytes(long, settled) <= _parts.most_bytes(long)
    size = _parts.size_of(long)
    count = len(parts) // size
    for number in {draw.randrange(count), count - 1} if count else ():
        block = long.block(number, settled)
        rows = {operand: read(operand, where) for operand, where in block.items()}
        again = _parts.part_again(long, number, parts, settled, rows)
        assert again == parts[number * size : (number + 1) * size], one.name
    return _parts.finished(long, parts, settled)


NETS = [sums, traced_nets.gpt, *([traced_nets.resnet20] if FULL else [])]


MODES = ("cr32", "log64", "xint24", "xint16")
CASES = [*((net, "ord32") for net in NETS), *((sums, mode) for mode in MODES)]


@pytest.mark.parametrize(("build", "arithmetic"), CASES)
def test_parts_make_the_element_that_the_operator_made(
    build: Build, arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, values = executed(build, 2, arithmetic, monkeypatch)
    draw = random.Random(2)
    done: dict[tuple[str, int], int] = {}
    for one, result, data, read in long_ones(trace, values):
        width = _recompute.DTYPE_OF[one.results[result].dtype].itemsize
        elements = [draw.randrange(len(data) // width) for _ in range(8 if FULL else 1)]
        if (padding := one.arguments.get("padding_idx", -1)) > 0:
            elements.append(padding * one.results[result].shape[-1])
        for element in elements:
            long = long_sum(one, result, element, arithmetic)
            if long is not None:
                said = f"{one.name}, result {result}, element {element}"
                found = check(one, long, read, draw)
                assert found == data[element * width : (element + 1) * width], said
                done[one.name, result] = done.get((one.name, result), 0) + 1
    if build is sums:
        names = {name.split(".")[1] for name, _ in done}
        wanted = {"convolution_backward", "sum", "mean"}
        products = {"addmm", "mm", "convolution"}
        assert products & names == (products if arithmetic == "ord32" else set())
        gradients = {0, 1, 2} if arithmetic == "ord32" else {2}
        assert wanted | {"native_batch_norm", "native_batch_norm_backward"} <= names
        assert {"embedding", "embedding_dense_backward", "nll_loss_forward"} <= names
        assert {result for name, result in done if "native_batch_norm." in name} == set(range(5))
        assert {result for name, result in done if "batch_norm_backward" in name} == {0, 1, 2}
        assert {result for name, result in done if "convolution_backward" in name} == gradients
        assert {result for name, result in done if "layer_norm_backward" in name} == {1, 2}


def test_what_is_made_of_other_results_is_disputed_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, _ = executed(sums, 2, "ord32", monkeypatch)
    named = {one.name.removeprefix("aten.").split(".")[0]: one for one in trace.operators}
    orders = {name: order_of(one) for name, one in named.items() if "norm" in name}
    assert orders["native_batch_norm"] == [1, 2, 3, 4, 0]
    assert orders["native_batch_norm_backward"] == [1, 2, 0]
    assert orders["native_layer_norm_backward"] == [0, 1, 2]


def test_an_index_outside_of_its_tensor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, _ = executed(sums, 2, "ord32", monkeypatch)
    (operator,) = (one for one in trace.operators if one.name == "aten.embedding.default")
    long = long_sum(operator, 0, 0, "ord32")
    assert long is not None
    assert long.rows({1: torch.tensor([16])})[0] == 16 * 12
    for outside in (17, -1):
        with pytest.raises(potl.MismatchError, match="index outside"):
            long.rows({1: torch.tensor([outside])})


HOSTILE = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-30, -1e-30, 3e38, -3e38, math.inf, math.nan]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 511, 512, 513, 4096, 4097, 9000])
@pytest.mark.parametrize("finite", [6, 10, 12])
def test_hostile_terms_give_the_same_sums(count: int, finite: int) -> None:
    """Signs of zero, subnormals, overflow and NaN, against the kernels."""
    draw = torch.Generator().manual_seed(count * 100 + finite)
    numbers = torch.tensor(HOSTILE[:finite])
    left, right = numbers[torch.randint(0, finite, (2, count), generator=draw)]
    with _recompute.in_arithmetic("ord32"):
        zeros = torch.zeros(1, 2)
        kernels = (
            (Chains(), torch.stack([left, right]), torch.mm(left[None], right[:, None])),
            (Trees(count), left, left.sum()),
            (InOrder(), left, zeros[0, :1].index_add(0, torch.zeros(count).long(), left)),
        )
        for fold, terms, expected in kernels:
            parts = fold.parts(terms)
            total = fold.total(parts)
            assert equal(total.reshape(1), expected.reshape(1)), type(fold)
            for number in range(0, len(parts), max(1, len(parts) // 9)):
                block = terms[..., number * fold.block : (number + 1) * fold.block]
                before = None if fold.is_first(number) else parts[number - 1]
                assert equal(fold.part(before, block), parts[number])


def test_hostile_signs_of_zero_go_on() -> None:
    """A chain that stands at -0 after a block, and stays there."""
    least = torch.full((64,), 2.0**-149)
    zeros, ones = torch.full((64,), -0.0), torch.ones(64)
    terms = torch.stack([torch.cat([-least, zeros]), torch.cat([least, ones])])
    with _recompute.in_arithmetic("ord32"):
        parts = Chains().parts(terms)
        expected = torch.mm(terms[0][None], terms[1][:, None]).reshape(1)
        assert equal(expected, torch.tensor([-0.0])) and equal(parts[1], expected)
        assert equal(Chains().part(parts[0], terms[:, 64:]), parts[1])


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


# ---------------------------------------------------------------------- disputes


def wide() -> potl.Task:
    net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Flatten())
    net.append(nn.Linear(6 * 64, 10))
    return traced_nets.task(net, zoo.digits(), 600, traced_nets.sgd(net))


@pytest.fixture(scope="module")
def wide_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(wide, tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def logged_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(wide, tmp_path_factory.mktemp("logged"), "log64")


class Consistent(Liar):
    """Lies about one element of a result, and about the parts of its sum so that they make it."""

    def lie(self, operator: int, result: int, number: int | None) -> LongSum:
        true = potl.Party._story(self, self._at)
        self._operator = None
        story = self._lie  # ends in the claimed state
        one = true.operators[operator]
        path = f"operator/{operator}/{result}"
        data = true.content(path)
        width = _recompute.DTYPE_OF[one.results[result].dtype].itemsize
        element = len(data) // width // 2
        long = long_sum(one, result, element, self.job.core.arithmetic)
        assert long is not None
        paths = _party.paths_of(one, operator)
        read = _parts.reader(one, lambda i: true.content(paths[i]))
        parts = bytearray(_parts.parts_of(long, read))
        settled = {i: read(i, where) for i, where in long.settled.items()}
        size = _parts.size_of(long)
        count = len(parts) // size
        if number is not None and count:
            self.part = number % count
            parts[self.part * size + 3] ^= 1
            for later in range(self.part + 1, count):  # goes on from there as it should
                if long.fold.is_first(later):
                    break
                block = long.block(later, settled)
                rows = {operand: read(operand, where) for operand, where in block.items()}
                again = _parts.part_again(long, later, bytes(parts), settled, rows)
                parts[later * size : (later + 1) * size] = again
        said = _parts.finished(long, bytes(parts), settled)
        if number is None or not count:
            said = bytes([said[0] ^ 1]) + said[1:]
        false = data[: element * width] + said + data[(element + 1) * width :]
        assert false != data
        leaves = list(story.leaves)
        head = (
            len(b"potl.operator.v1\0")
            + 32
            + 32
            * [i for i, o in enumerate(one.results) if isinstance(o, TensorOutline)].index(result)
        )
        leaf = leaves[operator]
        leaves[operator] = leaf[:head] + _core.content_root(false) + leaf[head + 32 :]
        content = story.content
        self._lie = type(story)(
            story.before,
            leaves,
            story.operators,
            lambda other: false if other == path else content(other),
        )
        self._said = bytes(parts)
        return long

    def _parts(self, now: Any) -> tuple[LongSum, bytes]:
        return super()._parts(now)[0], self._said


def places(one: Case, at: int) -> list[tuple[int, int]]:
    """Operators and results that have long sums in a net."""
    story = one.honest()._story(at)
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for index, operator in enumerate(story.operators[:-1]):
        for result, outline in enumerate(operator.results):
            if not isinstance(outline, TensorOutline) or not math.prod(outline.shape):
                continue
            middle = math.prod(outline.shape) // 2
            each = _recompute.CHUNK // _recompute.DTYPE_OF[outline.dtype].itemsize
            where = (operator, result, middle // each, middle % each)
            if _parts.sum_to_open(*where, arithmetic=one.job.core.arithmetic) is not None:
                found[operator.name, result] = (index, result)
    return list(found.values())


@pytest.mark.parametrize("name", ["wide_case", "logged_case"])
def test_who_lies_about_a_long_sum_is_convicted(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    one, at = request.getfixturevalue(name), 2
    false = false_run(one.build, one.job, at, tmp_path / "false", one.key)
    operators = one.honest()._story(at).operators
    found = places(one, at)
    names = {operators[index].name for index, _ in found}
    assert {"aten.convolution_backward.default", "aten.native_batch_norm.default"} <= names
    chosen = found if FULL else random.Random(4).sample(found, 4)
    for turn, (index, result) in enumerate(chosen):
        for number in (None, turn):
            liar = Consistent(false, job=one.job, task=one.build, key=one.key, at=at, operator=None)
            operator = operators[index]
            bare = liar.lie(index, result, number).most == 0  # made of other results
            if number is not None and bare:
                continue
            verdict = potl.dispute(trainer=liar, auditor=one.auditor(), referee=one.referee())
            said = (operator.name, result, number, verdict.facts)
            assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "value", at), said
            assert verdict.operator == (index, operator.name), said
            if number is None:
                assert ("true" if bare else "made_of_parts") in verdict.facts, said
            else:
                part: Any = verdict.facts["part"]
                assert part["number"] == liar.part, said
                assert part["true"] == part["auditor"] != part["trainer"], said
            assert len(verdict.evidence.transcript) < 2_500_000, said
            again = potl.judge(verdict.evidence, job=one.job, task=one.build)
            assert again.winner == "auditor" and again.believed == 0, said
            onlooked = potl.judge(verdict.evidence, job=one.job)
            assert onlooked.winner == "auditor" and onlooked.facts == verdict.facts, said


def test_parts_that_are_none_lose(wide_case: Case, tmp_path: Path) -> None:
    one, at = wide_case, 2
    false = false_run(one.build, one.job, at, tmp_path / "false", one.key)
    (index, result) = places(one, at)[-1]

    def against(change: Callable[[dict[str, Any]], object], both: bool = False) -> potl.Verdict:
        liar = Consistent(false, job=one.job, task=one.build, key=one.key, at=at, operator=None)
        liar.lie(index, result, 0)
        auditor = one.auditor()
        for party in (liar, auditor) if both else (liar,):
            true = party._answer

            def answer(now: Any, true: Any = true) -> bytes:
                document = json.loads(true(now))
                if "parts" in document:
                    change(document)
                return _core.canonical_json(document)

            party._answer = answer  # type: ignore[method-assign]
        return potl.dispute(trainer=liar, auditor=auditor, referee=one.referee())

    for change in (
        lambda document: document.pop("parts"),
        lambda document: document.update(parts=None),
        lambda document: document.update(parts=""),
        lambda document: document.update(parts=document["parts"][:-8]),
        lambda document: document.update(parts=document["parts"] * 2),
    ):
        verdict = against(change)
        assert (verdict.winner, verdict.why) in (("auditor", "opening"), ("auditor", "garbage"))

    def turned(document: dict[str, Any]) -> None:
        data = bytearray(_answers.as_bytes(document["parts"]))
        data[-2] ^= 0x40
        document["parts"] = _answers.as_text(bytes(data))

    verdict = against(turned, both=True)
    assert verdict.why == "referee" and not verdict.trainer_wrong and not verdict.auditor_wrong
