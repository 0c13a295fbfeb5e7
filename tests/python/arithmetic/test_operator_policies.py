# SPDX-License-Identifier: Apache-2.0
"""What operators of a `deterministic` block do with types, layouts, and where results go."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

MODES = ("ord32", "cr32", "log64", "xint24", "xint16")


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


A, B = drawn(9, 40), drawn(40, 11)


def same_bits(x: Tensor, y: Tensor) -> bool:
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and x.numpy(force=True).tobytes() == (y.numpy(force=True).tobytes())
    )


# ---------------------------------------------------------------------- types of products

PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": lambda a, b: a @ b,
    "bmm": lambda a, b: torch.bmm(a[None], b[None])[0],
    "linear": lambda a, b: F.linear(a, b.t().contiguous()),
    "conv1d": lambda a, b: F.conv1d(a[:, :, None], b.t()[:, :, None])[:, :, 0],
    "conv2d": lambda a, b: F.conv2d(a[:, :, None, None], b.t()[:, :, None, None])[:, :, 0, 0],
    "mv": lambda a, b: torch.stack([torch.mv(a, column) for column in b.t()], 1),
}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("mode", MODES)
def test_bfloat16_products_are_xint16_in_every_mode(product: str, mode: str) -> None:
    a, b = A.bfloat16(), B.bfloat16()
    with potl.deterministic(mode):
        got = PRODUCTS[product](a, b)
    with potl.deterministic("xint16"):
        want = PRODUCTS[product](a.float(), b.float()).bfloat16()
    assert torch.equal(got, want)
    assert got.dtype == torch.bfloat16


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("mode", MODES)
def test_float16_products_are_the_modes_rounded_once(product: str, mode: str) -> None:
    a, b = A.half(), B.half()
    with potl.deterministic(mode):
        got = PRODUCTS[product](a, b)
        want = PRODUCTS[product](a.float(), b.float()).half()
    assert torch.equal(got, want)
    assert got.dtype == torch.float16


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("mode", MODES)
def test_float64_products_are_one_chain_in_every_mode(product: str, mode: str) -> None:
    a, b = A.double(), B.double()
    with potl.deterministic(mode):
        got = PRODUCTS[product](a, b)
    with potl.deterministic("ord32"):
        want = PRODUCTS["mm"](a, b)
    assert torch.equal(got, want)
    torch.testing.assert_close(got, a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_modes_differ_for_float32(product: str) -> None:
    results = []
    for mode in MODES:
        with potl.deterministic(mode):
            results.append(PRODUCTS[product](A, B))
    assert len({x.numpy().tobytes() for x in results}) >= 4  # log64 and cr32 agree but for ties


@pytest.mark.parametrize("mode", MODES)
def test_the_float32_product_is_the_modes(mode: str) -> None:
    with potl.deterministic(mode):
        got = A @ B
    exact = A.double() @ B.double()
    if mode in ("cr32", "log64"):
        assert torch.equal(got, exact.float())
    tolerance = {"ord32": 1e-6, "cr32": 1e-7, "log64": 1e-7, "xint24": 1e-6, "xint16": 1e-4}[mode]
    assert (got.double() - exact).abs().max() <= tolerance * exact.abs().max() * 8


# ---------------------------------------------------------------------- types of the rest

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "log1p": lambda x: torch.log1p(x.abs()),
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "sin": torch.sin,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "pow": lambda x: torch.pow(x.abs(), 1.7),
    "add alpha": lambda x: torch.add(x, x * 3, alpha=0.3),
    "lerp": lambda x: torch.lerp(x, x * 3, 0.3),
    "addcmul": lambda x: torch.addcmul(x, x * 3, x, value=0.3),
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(0),
    "cumsum": lambda x: x.cumsum(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "var": lambda x: x.var(1),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)),
}

WIDENED: dict[str, Callable[[Tensor], Tensor]] = {
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logit": lambda x: torch.logit(x, 0.01),
    "glu": F.glu,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_the_same_in_all_modes(name: str) -> None:
    results = []
    for mode in MODES:
        with potl.deterministic(mode):
            results.append(FUNCTIONS[name](A))
    assert all(same_bits(results[0], x) for x in results)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_computed_wider_and_rounded_once(name: str, dtype: torch.dtype) -> None:
    x = A.to(dtype)
    with potl.deterministic():
        got = FUNCTIONS[name](x)
        if name in ("add alpha", "lerp", "addcmul"):  # x * 3 is rounded before
            return
        want = FUNCTIONS[name](x.float()).to(dtype)
    assert got.dtype == dtype
    if name in ("log1p", "rsqrt", "pow"):  # two operators
        torch.testing.assert_close(got, want)
    else:
        assert same_bits(got.view(torch.int16), want.view(torch.int16))


@pytest.mark.parametrize("name", WIDENED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bodies_of_several_operations_round_narrow_types_once(
    name: str, dtype: torch.dtype
) -> None:
    def both(x: Tensor, dy: Tensor) -> list[Tensor]:
        x = x.requires_grad_()
        y = WIDENED[name](x)
        return [y.detach(), torch.autograd.grad(y, x, dy)[0]]

    x = (drawn(40, 10) * 3).to(dtype)
    dy = drawn(40, 5 if name == "glu" else 10).to(dtype)
    with potl.deterministic():
        got = both(x.clone(), dy)
        want = [t.to(dtype) for t in both(x.float(), dy.float())]
    for one, other in zip(got, want, strict=True):
        assert same_bits(one.view(torch.int16), other.view(torch.int16))


@pytest.mark.parametrize("order", [3, 6, -2.5])
@pytest.mark.parametrize("size", [1, 300])
def test_powers_of_a_norm_do_not_overflow_in_float16(order: float, size: float) -> None:
    x = (drawn(2000) * size).half()
    with potl.deterministic():
        got = torch.linalg.vector_norm(x, order)
        want = torch.linalg.vector_norm(x.float(), order).half()
        typed = torch.linalg.vector_norm(x.float(), order, dtype=torch.float16)
        distance = torch.dist(x, torch.zeros_like(x), order)
    assert got.isfinite()
    assert torch.equal(got, want)
    assert torch.equal(typed, want)
    assert torch.equal(distance, want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_stays_float64(name: str) -> None:
    x = A.double()
    with potl.deterministic():
        got = FUNCTIONS[name](x)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, FUNCTIONS[name](x), rtol=1e-12, atol=1e-12)


def test_integers_become_the_default_type() -> None:
    with potl.deterministic():
        got = torch.exp(torch.arange(5))
        want = torch.exp(torch.arange(5.0))
    assert same_bits(got, want)


# ---------------------------------------------------------------------- autocast


def test_under_autocast_products_are_xint16_and_sums_float32() -> None:
    net = nn.Sequential(nn.Linear(40, 8), nn.GELU(), nn.Linear(8, 3))
    results = []
    for mode in ("ord32", "xint16"):
        net.zero_grad()
        with potl.deterministic(mode):
            with torch.autocast("cpu", torch.bfloat16):
                out = net(A)
            assert out.dtype == torch.bfloat16
            out.float().sum().backward()
        grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        results.append([out.detach().float(), *grads])
    assert all(same_bits(x, y) for x, y in zip(*results, strict=True))


# ---------------------------------------------------------------------- layouts and forms

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t().contiguous().t(),
    "strided": lambda x: torch.stack([x, -x], 2)[:, :, 0],
    "offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "negative step": lambda x: x.flip(1).flip(1).as_strided(x.shape, x.stride()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*FUNCTIONS, *PRODUCTS])
def test_layouts_change_no_bit(name: str, layout: str) -> None:
    moved = LAYOUTS[layout](A)
    with potl.deterministic():
        if name in PRODUCTS:
            got, want = PRODUCTS[name](moved, LAYOUTS[layout](B)), PRODUCTS[name](A, B)
        else:
            got, want = FUNCTIONS[name](moved), FUNCTIONS[name](A)
    assert same_bits(got.contiguous(), want.contiguous())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_expanded_operands_count_as_their_copies(name: str) -> None:
    x = A[:1].expand(9, 40)
    with potl.deterministic():
        got, want = FUNCTIONS[name](x), FUNCTIONS[name](x.contiguous())
    assert same_bits(got.contiguous(), want.contiguous())


def test_expanded_operands_of_products_count_as_their_copies() -> None:
    x = A[:1].expand(9, 40)
    with potl.deterministic():
        for product in PRODUCTS.values():
            assert same_bits(product(x, B).contiguous(), product(x.contiguous(), B).contiguous())


@pytest.mark.parametrize("mode", MODES)
def test_channels_last_changes_no_bit_and_stays(mode: str) -> None:
    x, w = drawn(2, 6, 9, 8), drawn(4, 6, 3, 3)
    last = torch.channels_last
    results = []
    with potl.deterministic(mode):
        for layout in (torch.contiguous_format, last):
            own = x.clone(memory_format=layout).requires_grad_()
            kernel = w.clone(memory_format=layout).requires_grad_()
            y = F.gelu(F.conv2d(own, kernel, stride=2, padding=1))
            assert y.is_contiguous(memory_format=layout)
            (y * y).sum(dtype=torch.float64).backward()
            assert own.grad is not None
            assert kernel.grad is not None
            results.append([y.detach(), own.grad, kernel.grad])
    for one, two in zip(*results, strict=True):
        assert same_bits(one.contiguous(), two.contiguous())


IN_PLACE: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Tensor]]] = {
    "exp_": (lambda x: x.exp_(), torch.exp),
    "tanh_": (lambda x: x.tanh_(), torch.tanh),
    "sigmoid_": (lambda x: x.sigmoid_(), torch.sigmoid),
    "add_ alpha": (lambda x: x.add_(A, alpha=0.3), lambda x: torch.add(x, A, alpha=0.3)),
    "lerp_": (lambda x: x.lerp_(A * 2, 0.3), lambda x: torch.lerp(x, A * 2, 0.3)),
    "addcmul_": (lambda x: x.addcmul_(A, A, value=0.3), lambda x: x.addcmul(A, A, value=0.3)),
    "addcdiv_": (
        lambda x: x.addcdiv_(A, A + 9, value=0.3),
        lambda x: x.addcdiv(A, A + 9, value=0.3),
    ),
    "cumsum_": (lambda x: x.cumsum_(1), lambda x: x.cumsum(1)),
    "pow_": (lambda x: x.abs_().pow_(1.3), lambda x: x.abs().pow(1.3)),
    "silu": (lambda x: F.silu(x, inplace=True), F.silu),
    "addmm_": (lambda x: x.addmm_(A, drawn(40, 40)), lambda x: x.addmm(A, drawn(40, 40))),
    "sqrt_": (lambda x: x.abs_().sqrt_(), lambda x: x.abs().sqrt()),
    "elu_": (F.elu_, F.elu),
    "hardswish": (lambda x: F.hardswish(x, inplace=True), F.hardswish),
    "hardsigmoid": (lambda x: F.hardsigmoid(x, inplace=True), F.hardsigmoid),
    "logit_": (lambda x: x.logit_(0.1), lambda x: x.logit(0.1)),
    "xlogy_": (lambda x: x.xlogy_(A.abs()), lambda x: x.xlogy(A.abs())),
    "fmod_": (lambda x: x.fmod_(A), lambda x: x.fmod(A)),
    "remainder_": (lambda x: x.remainder_(A), lambda x: x.remainder(A)),
    "floor_divide_": (lambda x: x.floor_divide_(A), lambda x: x.floor_divide(A)),
    "div_ trunc": (
        lambda x: x.div_(A.flip(0), rounding_mode="trunc"),
        lambda x: x.div(A.flip(0), rounding_mode="trunc"),
    ),
    "div_ None": (
        lambda x: torch.ops.aten.div_.Tensor_mode(x, A + 9, rounding_mode=None),
        lambda x: x / (A + 9),
    ),
    "clamp_": (lambda x: x.clamp_(A.neg(), A), lambda x: x.clamp(A.neg(), A)),
    "clamp_min_": (lambda x: x.clamp_min_(A), lambda x: x.clamp_min(A)),
    "cumprod_": (lambda x: x.cumprod_(0), lambda x: x.cumprod(0)),
}


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms_give_the_bits_of_plain_ones(name: str, strided: bool) -> None:
    change, plain = IN_PLACE[name]
    memory = torch.zeros(9, 40, 2)
    x = memory[:, :, 1].copy_(A * 0.5) if strided else A * 0.5
    with potl.deterministic():
        want = plain(x.contiguous())
        change(x)
    assert same_bits(x.contiguous(), want)
    assert not memory[:, :, 0].any()


OUT: dict[str, Callable[..., Tensor]] = {
    "mm": lambda **o: torch.mm(A, B, **o),
    "addmm": lambda **o: torch.addmm(drawn(11), A, B, beta=0.5, **o),
    "exp": lambda **o: torch.exp(A, **o),
    "add": lambda **o: torch.add(A, A, alpha=0.3, **o),
    "sum": lambda **o: torch.sum(A, 1, **o),
    "mean": lambda **o: torch.mean(A, 0, **o),
    "lerp": lambda **o: torch.lerp(A, A * 2, 0.3, **o),
    "softmax": lambda **o: torch.softmax(A, 1, **o),
    "norm": lambda **o: torch.linalg.vector_norm(A, dim=1, **o),
}


MASK = A > 0
OUT |= {
    "clamp_min": lambda **o: torch.clamp_min(A, A.flip(0), **o),
    "clamp_max": lambda **o: torch.clamp_max(A, A.flip(0), **o),
    "nansum": lambda **o: torch.nansum(torch.where(MASK, A, torch.nan), 1, **o),
    "nanmean": lambda **o: torch.nanmean(torch.where(MASK, A, torch.nan), 1, **o),
    "log_sigmoid": lambda **o: torch._C._nn.log_sigmoid(A, **o),
    "conj_physical": lambda **o: torch.conj_physical(A, **o),
    "softshrink": lambda **o: torch._C._nn.softshrink(A, 0.3, **o),
    "copysign": lambda **o: torch.copysign(A, A.flip(0), **o),
    "sqrt": lambda **o: torch.sqrt(A.abs(), **o),
    "softplus": lambda **o: torch._C._nn.softplus(A, **o),
    "elu": lambda **o: torch._C._nn.elu(A, **o),
    "hardswish": lambda **o: torch._C._nn.hardswish(A, **o),
    "logit": lambda **o: torch.logit(A, 0.1, **o),
    "pow": lambda **o: torch.pow(A.abs(), A, **o),
    "pow of a number": lambda **o: torch.pow(2.5, A, **o),
    "fmod": lambda **o: torch.fmod(A, A.flip(0), **o),
    "maximum": lambda **o: torch.maximum(A, A.flip(0), **o),
    "div floor": lambda **o: torch.div(A, A.flip(0), rounding_mode="floor", **o),
    "clamp": lambda **o: torch.clamp(A, A.flip(0), **o),
    "addcmul": lambda **o: torch.addcmul(A, A, A.flip(0), value=0.3, **o),
    "addcdiv": lambda **o: torch.addcdiv(A, A, A.flip(0), value=0.3, **o),
    "prod": lambda **o: torch.prod(A, 1, **o),
    "amax": lambda **o: torch.amax(A, 1, **o),
    "max": lambda **o: torch.max(A, **o),
    "var": lambda **o: torch.var(A, 1, **o),
    "cumsum": lambda **o: torch.cumsum(A, 1, **o),
    "cumprod": lambda **o: torch.cumprod(A, 0, **o),
    "tanh_backward": lambda **o: torch.ops.aten.tanh_backward(
        A, A, **({"grad_input": o["out"]} if o else {})
    ),
}


@pytest.mark.parametrize("name", OUT)
def test_out_forms_give_the_bits_of_plain_ones(name: str) -> None:
    with potl.deterministic():
        want = OUT[name]()
        fresh, full = torch.empty(0), torch.full_like(want, 7)
        memory = torch.zeros(*want.shape, 2)
        OUT[name](out=fresh)
        OUT[name](out=full)
        OUT[name](out=memory[..., 1])
    assert same_bits(fresh, want)
    assert same_bits(full, want)
    assert same_bits(memory[..., 1].contiguous(), want)
    assert not memory[..., 0].any()


def test_results_over_part_of_their_operand_are_refused_as_in_torch() -> None:
    b = drawn(9)
    with potl.deterministic():
        calls: list[tuple[Callable[..., Tensor], int]] = [
            (torch.exp, 1), (torch.copysign, 2), (torch.maximum, 2), (torch.addcmul, 3),
        ]  # fmt: skip
        for function, operands in calls:
            with pytest.raises(RuntimeError, match="memory location"):
                function(*[b[:8]] * operands, out=b[1:])


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.clamp_(A[0, :4]),
        lambda x: x.logit_(),
        lambda x: x.pow_(0.5),
        lambda x: x.cumsum_(0, dtype=torch.float32),
        lambda x: F.hardswish(x, inplace=True),
    ],
)
def test_integers_do_not_take_the_result_of_an_in_place_form(
    change: Callable[[Tensor], Any],
) -> None:
    x = torch.arange(4)
    with potl.deterministic(), pytest.raises(RuntimeError, match="can't be cast"):
        change(x)
    assert torch.equal(x, torch.arange(4))


def test_in_place_forms_of_integers_are_torchs() -> None:
    x, y = torch.arange(-4, 5, dtype=torch.int8), torch.arange(1, 10)
    changes: list[Callable[[Tensor], Any]] = [
        lambda x: x.fmod_(y), lambda x: x.remainder_(y), lambda x: x.floor_divide_(y),
        lambda x: x.addcmul_(x, x), lambda x: x.cumsum_(0), lambda x: x.clamp_(y),
        lambda x: x.pow_(2),
    ]  # fmt: skip
    for change in changes:
        want, got = x.clone(), x.clone()
        change(want)
        with potl.deterministic():
            change(got)
        assert torch.equal(got, want)


def test_a_log_sum_of_integers_or_over_no_dimension_is_refused_as_in_torch() -> None:
    with potl.deterministic():
        with pytest.raises(NotImplementedError, match="Long"):
            torch.arange(4).logcumsumexp(0)
        with pytest.raises(IndexError, match="Dimension"):
            A.sum().logcumsumexp(1)


def test_a_sums_result_has_the_type_that_was_asked_for() -> None:
    with potl.deterministic():
        for function in (torch.sum, torch.mean, torch.prod, torch.nansum):
            with pytest.raises(RuntimeError, match="ouble"):
                function(A, 1, dtype=torch.float64, out=torch.empty(9))
            twice = torch.empty(9, dtype=torch.float64)
            function(A, 1, dtype=torch.float64, out=twice)
            assert torch.equal(twice, function(A, 1, dtype=torch.float64))
            assert torch.equal(twice, function(A, 1, out=torch.empty(9, dtype=torch.float64)))


def test_errors_of_the_call_are_torchs() -> None:
    x, target = A[:, :3], torch.full((9,), 3)
    with potl.deterministic():
        with pytest.raises(IndexError, match="nll_loss"):
            F.nll_loss(x, target)
        with pytest.raises(RuntimeError, match="2 dimensions"):
            torch.renorm(A[0, 0], 2, 0, 1.0)


def test_real_numbers_are_their_own_conjugates() -> None:
    x = A.clone()
    with potl.deterministic():
        assert torch.equal(x.conj_physical_(), A)


def test_masked_scatter_has_gradients() -> None:
    def gradients() -> tuple[Tensor, ...]:
        x, source = A.clone().requires_grad_(), drawn(500).requires_grad_()
        y = x.masked_scatter(MASK, source)
        return torch.autograd.grad(y, (x, source), A)

    with potl.deterministic():
        got = gradients()
    assert all(torch.equal(x, y) for x, y in zip(got, gradients(), strict=True))


def test_products_into_an_operand_do_not_read_what_they_wrote() -> None:
    a, b = drawn(40, 40), drawn(3, 40, 40)
    with potl.deterministic():
        want, batch = a @ a.T, torch.bmm(b, b)
        torch.mm(a, a.T, out=a)
        torch.bmm(b, b, out=b)
    assert same_bits(a, want)
    assert same_bits(b, batch)


# ---------------------------------------------------------------------- threads


def shared_out() -> list[Tensor]:
    x, w = drawn(2, 6, 30, 31).requires_grad_(), drawn(12, 6, 3, 3).requires_grad_()
    long = drawn(70_000)
    with potl.deterministic():
        y = F.conv2d(x, w)
        y.tanh().sum().backward()
        wide = drawn(65, 700) @ drawn(700, 67)
        rest = [long.exp().sum(), long.cumsum(0), F.softmax(long.view(700, 100), 1)]
    assert x.grad is not None
    assert w.grad is not None
    return [y.detach(), x.grad, w.grad, wide, *rest]


def test_threads_change_no_bit(set_threads: Callable[[int], None]) -> None:
    set_threads(1)
    one = shared_out()
    for count in (2, 4):
        set_threads(count)
        assert all(same_bits(x, y) for x, y in zip(one, shared_out(), strict=True))


def copied_to(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    out = torch.empty_like(x)
    return torch.index_copy(x, 0, index, values, out=out)


def put(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Rows, element by element."""
    width = x.shape[1]
    places = (index[:, None] * width + torch.arange(width)).reshape(-1)
    return x.put(places, values.reshape(-1))


ASSIGNMENTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_copy_": lambda x, i, v: x.clone().index_copy_(0, i, v),
    "index_copy, out=": copied_to,
    "index_copy of columns": lambda x, i, v: x.t().index_copy(1, i, v.t()).t(),
    "index_put": lambda x, i, v: x.index_put((i,), v),
    "index_put_ of numbers from the end": lambda x, i, v: x.clone().index_put_((i - len(x),), v),
    "put": put,
    "scatter": lambda x, i, v: x.scatter(0, i[:, None].expand_as(v), v),
}


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_of_several_values_for_one_place_the_last_stays(
    name: str, set_threads: Callable[[int], None]
) -> None:
    """torch's threads write at once, unless they are kept from it."""
    set_threads(4)
    for shape in ((9, 5), (2_000, 33), (40, 4_000)):
        values = drawn(*shape)
        index = torch.arange(len(values)) * 5 % 6  # nothing is put into the last row
        x = drawn(7, shape[1])
        want = x.clone()
        for row, value in zip(index.tolist(), values, strict=True):
            want[row] = value
        with potl.deterministic():
            for dtype in (torch.float32, torch.bfloat16, torch.int64):
                got = ASSIGNMENTS[name](x.to(dtype), index, values.to(dtype))
                assert torch.equal(got, want.to(dtype)), (shape, dtype)


@pytest.mark.parametrize("dims", [2, 3])
def test_of_several_maxima_that_are_put_back_to_one_place_the_last_stays(
    dims: int, set_threads: Callable[[int], None]
) -> None:
    unpool = F.max_unpool2d if dims == 2 else F.max_unpool3d
    values = drawn(1, 2, *[1] * (dims - 1), 40_000)
    places = torch.arange(40_000) * 5 % 6
    want = torch.zeros(1, 2, 40_000)
    for place in range(6):
        want[..., place] = values.flatten(2)[..., (places == place).nonzero()[-1, 0]]
    set_threads(4)
    with potl.deterministic():
        got = unpool(values, places.expand_as(values), 1)
    assert torch.equal(got.flatten(2), want)


def test_places_that_are_none_are_refused_as_torch_does() -> None:
    x, values = torch.zeros(3, 2), torch.ones(4, 2)
    with potl.deterministic():
        for last in (3, -1):
            with pytest.raises(IndexError, match="out of"):
                x.index_copy(0, torch.tensor([0, 1, 1, last]), values)
        with pytest.raises(IndexError, match="Number of indices"):
            x.index_copy(0, torch.tensor([0, 0]), values)
