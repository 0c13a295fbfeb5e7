# SPDX-License-Identifier: Apache-2.0
"""Work that operators spare: the bits are those of the long way, and the operators that would do
the rest of it do not run.
"""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.profiler import profile
from torch.nn import functional as F

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

COPIES = {"aten::clone", "aten::copy_", "aten::contiguous", "aten::_to_copy"}
LAST = torch.channels_last


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def same_bits(x: Tensor, y: Tensor) -> bool:
    return x.contiguous().numpy().tobytes() == y.contiguous().numpy().tobytes()


def ran(work: Callable[[], object]) -> Counter[str]:
    """How often each operator ran."""
    with profile() as profiled:
        work()
    return Counter(event.name for event in profiled.function_events)


REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum, kept": lambda x: x.sum((2, 3), keepdim=True),
    "sum": lambda x: x.sum((0, 2, 3)),
    "mean": lambda x: x.mean((-1, -2)),
    "amax": lambda x: x.amax(1),
    "prod": lambda x: x.prod(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=(2, 3)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_read_channels_last_as_it_lies(name: str) -> None:
    x = drawn(3, 5, 17, 9).contiguous(memory_format=LAST)
    with potl.deterministic():
        want = REDUCTIONS[name](x.contiguous())
        used = ran(lambda: REDUCTIONS[name](x))
        got = REDUCTIONS[name](x)
    assert not COPIES - {"aten::contiguous"} & used.keys()
    assert got.shape == want.shape
    assert same_bits(got, want)


CHANNELWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "conv2d": lambda x: F.conv2d(x, drawn(16, 16, 3, 3).to(x.dtype)),
    "conv2d of one place": lambda x: F.conv2d(x, drawn(16, 16, 1, 1).to(x.dtype)),
    "group_norm": lambda x: F.group_norm(x, 4),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CHANNELWISE)
def test_channels_last_stays_and_is_turned_by_potl(name: str, dtype: torch.dtype) -> None:
    """torch's own copies between the layouts take several times as long as potl's."""
    function = CHANNELWISE[name]
    first = drawn(3, 16, 18, 26).to(dtype).requires_grad_()
    last = first.detach().clone(memory_format=LAST).requires_grad_()
    with potl.deterministic():
        want = function(first)
        dy = drawn(*want.shape).to(dtype)
        (slope,) = torch.autograd.grad(want, first, dy)
        got, used = [], Counter[str]()

        def work() -> None:
            y = function(last)
            got[:] = [y, *torch.autograd.grad(y, last, dy.contiguous(memory_format=LAST))]

        work()
        used = ran(work)
    assert all(tensor.is_contiguous(memory_format=LAST) for tensor in got)
    assert same_bits(got[0].detach().double(), want.detach().double())
    assert same_bits(got[1].double(), slope.double())
    # One is the test's own, of dy.
    assert used["aten::contiguous"] <= 1
    assert used["aten::clone"] <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["ord32", "cr32", "xint24", "log64"])
def test_convolutions_of_one_place_have_the_bits_of_either_layout(
    mode: str, dtype: torch.dtype
) -> None:
    """With channels last they are matrix products; 520 terms take a second chunk."""

    def convolved(x: Tensor, dy: Tensor, bias: Tensor | None) -> list[Tensor]:
        weight = drawn(12, x.shape[1], *(1 for _ in x.shape[2:])).to(dtype).requires_grad_()
        leaves = [one for one in (x, weight, bias) if one is not None]
        y = (F.conv2d if x.dim() == 4 else F.conv3d)(x, weight, bias)
        return [y.detach(), *torch.autograd.grad(y, leaves, dy)]

    for shape, layout in (((2, 520, 19, 14), LAST), ((3, 7, 4, 3, 5), torch.channels_last_3d)):
        x, dy = drawn(*shape).to(dtype), drawn(shape[0], 12, *shape[2:]).to(dtype)
        x[0, 1], dy[1, 2, 1, 1:] = 2.0**-10, torch.inf
        last, turned = (one.contiguous(memory_format=layout) for one in (x, dy))
        for bias in (None, drawn(12).to(dtype).requires_grad_()):
            with potl.deterministic(mode):
                want = convolved(x.requires_grad_(), dy, bias)
                for slope in (dy, turned):
                    got = convolved(last.detach().requires_grad_(), slope, bias)
                    assert got[0].is_contiguous(memory_format=layout)
                    assert got[1].is_contiguous(memory_format=layout)
                    for one, other in zip(got, want, strict=True):
                        assert same_bits(one.double(), other.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_of_another_type_gives_gradients_of_the_operands(dtype: torch.dtype) -> None:
    x, weight, dy = drawn(2, 6, 5, 7), drawn(9, 6, 1, 1).to(dtype), drawn(2, 9, 5, 7)
    wide = dy if dtype == torch.bfloat16 else dy.bfloat16()
    found = []
    with potl.deterministic("ord32"):
        for layout in (torch.contiguous_format, LAST):
            operands = (wide, x.to(dtype).contiguous(memory_format=layout), weight)
            options = ([9], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3)
            found.append(torch.ops.aten.convolution_backward(*operands, *options))
    for first, last in zip(*found, strict=True):
        assert first.dtype == last.dtype == dtype and torch.equal(first, last)


def test_a_transposed_matrix_is_reduced_as_it_lies() -> None:
    x = drawn(700, 33).t()
    with potl.deterministic():
        for dim in (0, 1):
            want = x.contiguous().sum(dim)
            assert not {"aten::clone", "aten::copy_"} & ran(lambda dim=dim: x.sum(dim)).keys()
            assert same_bits(x.sum(dim), want)


def normed(x: Tensor, training: bool) -> list[Tensor]:
    own = x.clone().requires_grad_()
    weight, bias = (drawn(x.shape[1]).requires_grad_() for _ in range(2))
    statistics = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
    y = F.batch_norm(own, *statistics, weight, bias, training)
    y.backward(torch.cos(y.detach()))  # type: ignore[no-untyped-call]
    grads = [one.grad for one in (own, weight, bias)]
    return [y.detach(), *statistics, *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_reads_channels_last_as_it_lies(training: bool) -> None:
    x = drawn(3, 37, 43, 9).contiguous(memory_format=LAST)
    with potl.deterministic():
        want = normed(x.contiguous(), training)
        got = normed(x, training)
        norm = lambda: F.batch_norm(x, torch.zeros(37), torch.ones(37), training=training)  # noqa: E731
        assert not {"aten::clone", "aten::copy_"} & ran(norm).keys()
    assert got[0].is_contiguous(memory_format=LAST)
    assert len(got) == len(want) == 6
    assert all(same_bits(one, other) for one, other in zip(got, want, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_of_samples_is_one_of_places(training: bool) -> None:
    x = drawn(4500, 19)
    with potl.deterministic():
        got, want = normed(x, training), normed(x.t()[None].contiguous(), training)
    want[0], want[3] = want[0][0].t(), want[3][0].t()
    assert all(same_bits(one, other) for one, other in zip(got, want, strict=True))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_interpolation_reads_channels_last_as_it_lies(mode: str) -> None:
    x = drawn(2, 5, 9, 7).contiguous(memory_format=LAST)

    def resized(given: Tensor) -> tuple[Tensor, Tensor]:
        own = given.clone().requires_grad_()
        y = F.interpolate(own, size=(13, 5), mode=mode)
        y.backward(torch.cos(y.detach()))  # type: ignore[no-untyped-call]
        assert own.grad is not None
        return y.detach(), own.grad

    with potl.deterministic():
        got, want = resized(x), resized(x.contiguous())
        used = ran(lambda: F.interpolate(x, size=(13, 5), mode=mode))
    assert not {"aten::clone", "aten::copy_"} & used.keys()
    assert got[0].is_contiguous(memory_format=LAST)
    assert all(same_bits(one, other) for one, other in zip(got, want, strict=True))


AVERAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "windows": lambda x: F.avg_pool3d(x, 2, stride=1),
    "adaptive": lambda x: F.adaptive_avg_pool3d(x, 2),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_a_volume_without_samples_has_no_channels_that_lie_last(name: str) -> None:
    # Of (channels, depth, height, width), torch takes the depth for channels.
    x = drawn(2, 3, 4, 5).contiguous(memory_format=LAST)

    def averaged(given: Tensor) -> tuple[Tensor, Tensor]:
        own = given.clone().requires_grad_()
        y = AVERAGES[name](own)
        y.backward(torch.cos(y.detach()))  # type: ignore[no-untyped-call]
        assert own.grad is not None
        return y.detach(), own.grad

    with potl.deterministic():
        got, want = averaged(x), averaged(x.contiguous())
    assert all(same_bits(one, other) for one, other in zip(got, want, strict=True))


TURNED: dict[str, Callable[[Tensor], Tensor]] = {
    "channels first": lambda x: x.contiguous(memory_format=LAST).contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=LAST),
    "transposed": lambda x: x.flatten(1).t().contiguous(),
    "groups": lambda x: x.flatten(2).mT.contiguous(),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("shape", [(5, 33, 17, 9), (70, 3, 4, 7), (1, 128, 64, 1)])
def test_matrices_are_turned_without_the_general_copy(
    name: str, shape: tuple[int, int, int, int]
) -> None:
    x = drawn(*shape)
    want = TURNED[name](x)
    with potl.deterministic():
        got = TURNED[name](x)
        used = ran(lambda: TURNED[name](x))
    assert got.stride() == want.stride()
    assert torch.equal(got, want)
    assert "aten::copy_" not in used


def test_an_expanded_index_counts_as_one_of_rows() -> None:
    to, source = drawn(40, 24), drawn(300, 24)
    index = torch.randint(40, (300,), generator=torch.Generator().manual_seed(1))
    wide = index[:, None].expand(300, 24)
    with potl.deterministic():
        for name in ("sum", "mean", "amax", "amin", "prod"):
            got = to.scatter_reduce(0, wide, source, name)
            assert same_bits(got, to.scatter_reduce(0, wide.contiguous(), source, name))
        used = ran(lambda: to.clone().scatter_add_(0, wide, source))
    assert used["aten::clone"] == 1  # that of the test itself


def test_a_choice_has_the_bits_of_its_operands() -> None:
    x = drawn(9, 31)
    x.view(torch.int32)[0, :3] = torch.tensor([-1, 0x7FA00001, -0x80000000])
    y, wide, condition = x.flip(1), x.double(), x > 0
    others = [(x, y), (x, 0.5), (-0.0, y), (x, wide), (2, 3), (x.t(), y.t()), (x[:1], y)]
    for one, other in others:
        given = condition.t() if isinstance(one, Tensor) and one.shape == x.t().shape else condition
        want = torch.where(given, one, other)
        with potl.deterministic():
            got = torch.where(given, one, other)
            out = torch.empty_like(want)
            if isinstance(one, Tensor) and isinstance(other, Tensor):
                torch.where(given, one, other, out=out)
                assert same_bits(out, want)
        assert got.dtype == want.dtype
        assert got.stride() == want.stride()
        assert same_bits(got, want)


def test_a_step_of_an_lstm_has_few_operators() -> None:
    """A net of tiny layers spends its time between operators."""
    lstm = torch.nn.LSTM(3, 8)

    def count(steps: int) -> int:
        return sum(ran(lambda: lstm(drawn(steps, 2, 3))[0].sum().backward()).values())

    with potl.deterministic():
        count(2)
        per_step = (count(12) - count(2)) / 10
    assert per_step < 50  # 43 with torch 2.13; 98 where each function of the cells is an operator


def test_a_frame_of_ctc_has_few_operators() -> None:
    targets, lengths = torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([3, 2])

    def count(frames: int) -> int:
        logs = drawn(frames, 2, 5).log_softmax(-1).requires_grad_()
        times = torch.full((2,), frames)
        return sum(ran(lambda: F.ctc_loss(logs, targets, times, lengths).backward()).values())

    with potl.deterministic():
        count(4)
        per_frame = (count(14) - count(4)) / 10
    assert per_frame < 100  # 69 with torch 2.13; 180 where a frame shifts the one before by copies
