# SPDX-License-Identifier: Apache-2.0
"""Reproducible operators on a device have the CPU's bits, or are refused by name.

Where there is no CUDA device the kernels run on simulated blocks (potl._simulated), for tensors
of the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import many_operators
import pytest
import torch
import zoo
from device_bits import DEVICE, GPU, both, hostile, same, simulated
from torch import Tensor

import potl
from potl import NotReproducible, Session, Task
from potl._arithmetic._library import module

F, aten = torch.nn.functional, torch.ops.aten


@pytest.fixture(autouse=True)
def _operators() -> None:
    module()


@pytest.fixture(autouse=True)
def _afterwards() -> Iterator[None]:
    yield
    simulated(False)


# What has no form for a device yet. Whoever adds one takes it out here.
REFUSED = {"softmax_d", "sum_d", "cumsum_d"}  # in float64
if GPU:
    # Not composed there as on the CPU; choices among equals; integers of the device's generator.
    REFUSED |= {"rms", "topk", "scatter", "rint"}


def of_function(name: str, device: str) -> list[Tensor]:
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(5, 6, 4, 3, generator=generator).to(device).requires_grad_()
    with torch.device(device):
        y = many_operators.FUNCTIONS[name](x)
    y = y.float()
    weight = torch.randn(y.shape, generator=generator).to(device)
    (y * weight).sum().backward()
    return [y.detach(), x.grad]


@pytest.mark.parametrize("name", many_operators.FUNCTIONS)
def test_an_operator_has_the_bits_of_the_cpu(name: str) -> None:
    here, there = both(functools.partial(of_function, name))
    assert (there is None) == (name in REFUSED)
    assert there is None or all(map(same, here, there))


def attention(
    heads: int, causal: bool, masked: bool, device: str, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Queries of three blocks; keys of fewer heads are shared."""
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()

    q, k, v = drawn(2, 4, 270, 8), drawn(2, heads, 270, 8), drawn(2, heads, 270, 8)
    mask = torch.rand(270, 270, generator=generator).to(device) > 0.3 if masked else None
    y = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=heads != 4
    )
    y.backward(torch.randn(y.shape, generator=generator).to(device, dtype))
    return [y.detach(), *(one.grad for one in (q, k, v) if one.grad is not None)]


@pytest.mark.parametrize("mode", ["xint24", "xint16", "cr32", "log64"])
@pytest.mark.parametrize("name", many_operators.FUNCTIONS)
def test_an_operator_in_another_mode_has_the_bits_of_the_cpu(name: str, mode: str) -> None:
    here, there = both(functools.partial(of_function, name), mode)
    is_refused = name in REFUSED or (mode == "log64" and name in ("sdpa", "sdpa_c", "sdpa_m"))
    assert (there is None) == is_refused
    assert there is None or all(map(same, here, there))


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (False, True)])
def test_attention_in_several_blocks_has_the_bits_of_the_cpu(
    heads: int, causal: bool, masked: bool
) -> None:
    here, there = both(functools.partial(attention, heads, causal, masked))
    assert there is not None and len(here) == 4
    assert all(map(same, here, there))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("xint24", torch.float32), ("xint16", torch.float16), ("ord32", torch.bfloat16)],
)
def test_attention_in_integers_has_the_bits_of_the_cpu(
    mode: str, dtype: torch.dtype, causal: bool
) -> None:
    here, there = both(functools.partial(attention, 2, causal, not causal, dtype=dtype), mode)
    assert there is not None and len(here) == 4
    assert all(map(same, here, there))


def narrow(device: str) -> list[Tensor]:
    """Products and a convolution of bfloat16: xint16 in every mode."""
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, torch.bfloat16).requires_grad_()

    x, w, image, kernel = drawn(70, 90), drawn(90, 33), drawn(2, 3, 9, 9), drawn(4, 3, 3, 3)
    y, z = x @ w, F.conv2d(image, kernel, padding=1)
    (y.sum() + z.sum()).backward()
    return [y.detach(), z.detach(), *(one.grad for one in (x, w, image, kernel))]


def test_products_of_bfloat16_have_the_bits_of_the_cpu() -> None:
    here, there = both(narrow)
    assert there is not None and all(map(same, here, there))


# name -> steps: on simulated blocks few, and small models.
TRAININGS = {
    "digits": 200 if GPU else 3,
    "resnet20": 200 if GPU else 1,
    "gpt": 200 if GPU else 2,
    "vit": 20 if GPU else 1,
    "text_cnn": 20 if GPU else 1,
    "autoencoder": 20 if GPU else 1,
}


def on(device: str, name: str) -> Task:
    task = zoo.build(name)
    task.model.to(device)
    return task


def states(name: str, device: str, arithmetic: str) -> list[str]:
    """The digest of the complete state after every step."""
    make = functools.partial(on, device, name)
    with Session.open(make, seed=11, arithmetic=arithmetic) as session, session.active():
        found = []
        for step, _, batch in session.batches(1, TRAININGS[name]):
            session.run_step(step, batch)
            found.append(session.capture().digest().hex())
    return found


@pytest.mark.parametrize("arithmetic", ["ord32", "xint24"])
@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_has_the_states_of_the_cpu_at_every_step(name: str, arithmetic: str) -> None:
    if name == "vit":
        pytest.importorskip("transformers", reason="the model is one of transformers'")
    here = states(name, "cpu", arithmetic)
    simulated(True)
    assert states(name, DEVICE, arithmetic) == here


@pytest.mark.skipif(not GPU, reason="no CUDA device, or a torch without CUDA")
def test_a_stock_training_has_other_states_there() -> None:
    assert states("gpt", "cuda", "stock")[-1] != states("gpt", "cpu", "stock")[-1]


def test_a_device_refuses_what_it_has_no_form_for() -> None:
    simulated(True)
    x = torch.ones(2, 2, device=DEVICE)
    q = torch.ones(1, 2, 4, 8, device=DEVICE)
    with potl.deterministic("log64"), pytest.raises(NotReproducible, match="in log64 on"):
        F.scaled_dot_product_attention(q, q, q)
    with potl.deterministic():
        with pytest.raises(NotReproducible, match="of float64 on"):
            x.double() @ x.double()
        with pytest.raises(NotReproducible, match="no form for this device"):
            torch.erfinv(x)


@pytest.mark.skipif(not GPU, reason="no CUDA device, or a torch without CUDA")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.topk(2),
        lambda x: torch.randint(5, (3,), device=x.device),
        lambda x: x.median(),
    ],
)
def test_stock_kernels_that_are_exact_on_the_cpu_alone_are_refused(
    call: Callable[[Tensor], object],
) -> None:
    with potl.deterministic(), pytest.raises(NotReproducible, match="not reproducible on a GPU"):
        call(torch.ones(2, 2, device="cuda"))


@pytest.mark.skipif(not GPU, reason="no CUDA device, or a torch without CUDA")
def test_a_scatter_of_one_value_for_each_place_is_exact_there() -> None:
    x = torch.arange(6.0, device="cuda").view(2, 3)
    with potl.deterministic():
        turned = x.scatter(1, torch.tensor([[2, 0, 1], [0, 1, 2]], device="cuda"), x)
        swapped = x.clone()
        swapped[torch.tensor([1, 0], device="cuda")] = x
        with pytest.raises(NotReproducible, match="several values for one place"):
            x.scatter(1, torch.zeros(2, 3, dtype=torch.int64, device="cuda"), x)
        with pytest.raises(NotReproducible, match="several values for one place"):
            swapped[torch.tensor([1, 1], device="cuda")] = x
    assert turned.tolist() == [[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]]
    assert swapped.tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]


def pairs() -> tuple[Tensor, Tensor]:
    few = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.4e38, 1e-45, float("inf"), float("nan")])
    return few.repeat_interleave(len(few)), few.repeat(len(few))


OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "clamp": lambda x, y: x.clamp(min=y, max=y + 1),
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "fmod": torch.fmod,
    "fmod_of_bits": lambda x, y: torch.fmod(hostile().to(x), hostile().to(x).flip(0)),
    "fmod_of_neighbours": lambda x, y: torch.fmod(hostile().to(x), hostile().to(x) * 0.9),
    "remainder": torch.remainder,
    "remainder_of_bits": lambda x, y: torch.remainder(hostile().to(x), hostile().to(x).flip(0)),
    "remainder_of_number": lambda x, y: torch.remainder(-0.7, y),
    "floor_divide": torch.floor_divide,
    "floor_divide_of_bits": lambda x, y: hostile().to(x) // hostile().to(x).roll(1),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "xlogy_of_number": lambda x, y: torch.xlogy(0.0, y),
    "pow": torch.pow,
    "sqrt": lambda x, y: x.sqrt(),
    "add_scaled": lambda x, y: torch.add(x, y, alpha=0.3),
    "lerp": lambda x, y: torch.lerp(x, y, y),
    "lerp_by_number": lambda x, y: torch.lerp(x, y, 0.7),
    "addcmul": lambda x, y: torch.addcmul(x, y, x, value=0.3),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x, value=0.3),
    "softshrink": lambda x, y: torch.nn.functional.softshrink(x, 0.5),
    "hardshrink_backward": lambda x, y: torch.ops.aten.hardshrink_backward(x, y, 0.5),
    "hardtanh_backward": lambda x, y: torch.ops.aten.hardtanh_backward(x, y, -0.5, 1.0),
    "elu": lambda x, y: torch.nn.functional.elu(x, 0.7),
    "elu_backward": lambda x, y: torch.ops.aten.elu_backward(x, 0.7, 1.1, 0.9, False, y),
    "elu_backward_of_result": lambda x, y: torch.ops.aten.elu_backward(x, 0.7, 1.1, 0.9, True, y),
    "softplus": lambda x, y: torch.nn.functional.softplus(x, 2.0, 1.0),
    "softplus_backward": lambda x, y: torch.ops.aten.softplus_backward(x, y, 2.0, 1.0),
    "cumsum": lambda x, y: x.view(10, 10).cumsum(0),
    "cumprod": lambda x, y: y.view(10, 10).cumprod(1),
    "prod": lambda x, y: torch.prod(y.view(10, 10), 1),
    "prod_of_columns": lambda x, y: torch.prod((x + 2).view(10, 10), 0),
    "prod_of_nothing": lambda x, y: torch.prod(x[:0].view(3, 0), 1),
    "var": lambda x, y: x.view(10, 10).var(1, correction=0),
    "std_of_one": lambda x, y: x.view(100, 1).std(1),
    "amin": lambda x, y: x.view(10, 10).amin(0),
    "infinity_norm": lambda x, y: torch.linalg.vector_norm(x.view(10, 10), float("inf"), 1),
    "logsumexp": lambda x, y: torch.logsumexp(x.view(10, 10), 1),
}


@pytest.mark.parametrize("name", OF_TWO)
def test_kernels_on_hostile_values_have_the_bits_of_the_cpu(name: str) -> None:
    x, y = pairs()
    here, there = both(lambda device: [OF_TWO[name](x.to(device), y.to(device))])
    assert there is not None
    # What a kernel computes has one NaN.
    assert torch.equal(here[0].view(-1).view(torch.uint8), there[0].view(-1).view(torch.uint8))


EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": lambda x: x.clamp(0, 6),
    "clamp_min": lambda x: x.clamp_min(-0.0),
    "clamp_max": lambda x: x.clamp_max(0.0),
    "clamp_crossed": lambda x: x.clamp(1.0, -1.0),
    "clamp_by_nan": lambda x: x.clamp(float("nan"), 1.0),
    "clamp_by_tensors": lambda x: x.clamp(x.flip(0), x.roll(7)),
    "div": lambda x: x / 3.0,
    "div_": lambda x: x.clone().div_(0.7),
    "div_integers": lambda x: x.nan_to_num(0, 0, 0).clamp(-9, 9).long() / 3,
    "div_bfloat16": lambda x: x.bfloat16() / 3.0,
    "add_bfloat16": lambda x: x.bfloat16() + 0.1,
    "rsub_bfloat16": lambda x: 0.1 - x.bfloat16(),
    "leaky": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "reciprocal": torch.reciprocal,
    "bfloat16": lambda x: x.bfloat16(),
    "sort": lambda x: x.nan_to_num().sign().sort(stable=True)[1],
    "argmax": lambda x: x[:4096].view(64, 64).nan_to_num().sign().argmax(1),
    "maxpool": lambda x: torch.nn.functional.max_pool2d(x[:4096].view(1, 1, 64, 64), 3, 2, 1),
}


@pytest.mark.skipif(not GPU, reason="no CUDA device, or a torch without CUDA")
@pytest.mark.parametrize("name", EXACT)
def test_stock_kernels_on_hostile_values_have_the_bits_of_the_cpu(name: str) -> None:
    here, there = both(lambda device: [EXACT[name](hostile().to(device))])
    assert there is not None and same(here[0], there[0])


def test_a_class_that_does_not_exist_makes_the_loss_and_its_gradient_nan_there() -> None:
    simulated(True)
    x = torch.zeros(3, 4, device=DEVICE, requires_grad=True)
    target = torch.tensor([1, 4, -2], device=DEVICE)
    with potl.deterministic():
        loss = torch.nn.functional.nll_loss(x, target, ignore_index=-2)
        loss.backward()
    assert loss.isnan() and x.grad is not None
    assert x.grad.isnan().all(1).tolist() == [False, True, False]


def elsewhere(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(sizes, dtype=dtype, device="cpu" if GPU else "meta")


def here(*sizes: int) -> Tensor:
    return torch.ones(sizes, device=DEVICE)


ON_TWO_DEVICES: dict[str, Callable[[], object]] = {
    "product": lambda: here(2, 3) @ elsewhere(3, 2),
    "convolution": lambda: F.conv2d(here(1, 1, 5, 5), elsewhere(1, 1, 3, 3)),
    "convolution_backward": lambda: aten.convolution_backward(
        elsewhere(1, 1, 3, 3),
        *(here(1, 1, 5, 5), here(1, 1, 3, 3)),
        *(None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3),
    ),
    "loss": lambda: F.nll_loss(here(4, 3), elsewhere(4, dtype=torch.int64)),
    "weights_of_classes": lambda: F.nll_loss(here(4, 3), here(4).long(), elsewhere(3)),
    "layer_norm": lambda: F.layer_norm(here(4, 3), (3,), elsewhere(3)),
    "group_norm": lambda: F.group_norm(here(4, 3), 1, here(3), elsewhere(3)),
    "batch_norm": lambda: F.batch_norm(here(4, 3), here(3), elsewhere(3), training=True),
    "embedding": lambda: aten.embedding_dense_backward(
        here(4, 3), elsewhere(4, dtype=torch.int64), 5, -1, False
    ),
    "embedding_bag": lambda: F.embedding_bag(elsewhere(4, dtype=torch.int64), here(5, 3), here(1)),
    "softmax": lambda: aten._softmax_backward_data(here(4), elsewhere(4), 0, torch.float32),
    "average_pooling": lambda: aten.avg_pool2d_backward(
        here(1, 1, 2, 2), elsewhere(1, 1, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None
    ),
    "index_add": lambda: here(4, 3).index_add(0, elsewhere(4, dtype=torch.int64), here(4, 3)),
    "step": lambda: aten._fused_sgd_(
        [here(3)],
        *([elsewhere(3)], []),
        weight_decay=0,
        momentum=0,
        lr=0.1,
        dampening=0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    ),
}


@pytest.mark.parametrize("name", ON_TWO_DEVICES)
def test_operands_on_two_devices_are_refused(name: str) -> None:
    simulated(True)
    with potl.deterministic(), pytest.raises(RuntimeError, match="on one device, got"):
        ON_TWO_DEVICES[name]()


def adamw(counts: list[Tensor], device: str) -> list[Tensor]:
    """The parameters after a step whose counts are as a loaded state gave them."""

    def values(seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [torch.rand(5, generator=generator).to(device) for _ in counts]

    parameters = values(0)
    torch.ops.aten._fused_adamw_(
        parameters,
        *(values(1), values(2), values(3), []),
        [one.to(device) for one in counts],
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.1,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return parameters


def test_a_step_count_that_is_no_number_ends_as_on_the_cpu() -> None:
    counts = [torch.tensor(one) for one in (1.0, float("nan"), float("nan"), 2.0, 2.0)]
    here, there = both(functools.partial(adamw, counts))
    assert there is not None
    assert all(map(same, here, there))


def test_a_step_count_without_a_value_is_refused() -> None:
    simulated(True)
    with potl.deterministic(), pytest.raises(ValueError, match="one step count"):
        adamw([torch.empty(0)], DEVICE)
