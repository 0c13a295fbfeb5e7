# SPDX-License-Identifier: Apache-2.0
"""Freivalds' check on tensors: products, convolutions and optimizers are those of torch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

import potl

KEY = bytes(range(32))


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_products_of_torch_are_consistent_and_an_edited_one_is_not() -> None:
    a, b = _normal(60, 300), _normal(300, 50, seed=1)
    c = a @ b
    found = potl.freivalds(a, b, c, threads=2)
    assert found.holds
    assert found.outcome == "consistent"
    assert found.compared == 60 * 4
    c[17, 3] += 3
    found = potl.freivalds(a, b, c)
    assert (found.outcome, found.row) == ("inconsistent", 17)
    assert not found.holds


def test_views_arrays_and_batches_are_read_where_they_lie() -> None:
    a, b = _normal(300, 60).T, _normal(50, 300, seed=1).T
    assert potl.freivalds(a, b, a @ b).outcome == "consistent"
    left, right = _normal(5, 8, 30), _normal(5, 30, 6, seed=2)
    product = torch.bmm(left, right)
    assert potl.freivalds(left, right, product).outcome == "consistent"
    product[3, 2, 1] += 1
    assert potl.freivalds(left, right, product).row == 3 * 8 + 2
    double = a.double().numpy() @ b.double().numpy()
    assert potl.freivalds(a.double().numpy(), b.double(), double).outcome == "consistent"


def test_gradients_and_devices_do_not_get_in_the_way() -> None:
    a, b = _normal(20, 30).requires_grad_(), _normal(30, 10).requires_grad_()
    assert potl.freivalds(a, b, a @ b).outcome == "consistent"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_results_are_compared_with_their_own_rounding(dtype: torch.dtype) -> None:
    a, b = _normal(64, 200).to(dtype), _normal(200, 64).to(dtype)
    c = a @ b
    assert potl.freivalds(a, b, c).outcome == "consistent"
    assert potl.freivalds(a, b, c.float()).outcome != "consistent"
    c[5] = 0
    assert potl.freivalds(a, b, c).row == 5
    assert potl.freivalds(a, b, c).outcome == "inconsistent"
    with pytest.raises(potl.UsageError):  # would widen its own tolerance
        potl.freivalds(a.float(), b.float(), c)


def test_whole_numbers_are_exact() -> None:
    random = np.random.default_rng(0)
    a = random.integers(-1000, 1000, (20, 40), dtype=np.int32)
    b = random.integers(-1000, 1000, (40, 30), dtype=np.int32)
    c = a.astype(np.int64) @ b.astype(np.int64)
    assert potl.freivalds(a, b, c).outcome == "consistent"
    c[0, 0] += 1
    assert potl.freivalds(a, b, c).outcome == "inconsistent"


def test_a_key_repeats_a_check_and_fresh_vectors_differ() -> None:
    a, b = _normal(20, 30), _normal(30, 10)
    c = a @ b + 0.01
    once, again = (potl.freivalds(a, b, c, key=KEY).worst for _ in range(2))
    assert once == again
    assert potl.freivalds(a, b, c).worst != potl.freivalds(a, b, c).worst


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((_normal(2, 3), _normal(2, 3), _normal(2, 3)), {}),
        ((_normal(2, 3), _normal(3, 2).double(), _normal(2, 2)), {}),
        ((_normal(2, 3), _normal(3, 2), _normal(4)), {}),
        ((_normal(2, 2, 3), _normal(1, 3, 2), _normal(2, 2, 2)), {}),
        ((_normal(2, 3), _normal(3, 2), _normal(2, 2)), {"probes": 0}),
        ((_normal(2, 3), _normal(3, 2), _normal(2, 2)), {"false_alarm": 0.0}),
        ((_normal(2, 3), _normal(3, 2), _normal(2, 2)), {"threads": 0}),
    ],
)
def test_what_does_not_fit_is_a_usage_error(
    arguments: tuple[Any, Any, Any], options: dict[str, Any]
) -> None:
    with pytest.raises(potl.UsageError):
        potl.freivalds(*arguments, **options)


GEOMETRIES: list[dict[str, Any]] = [
    {"padding": 1},
    {"stride": (2, 1), "dilation": 2},
    {"groups": 2, "padding": (0, 2)},
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolutions_of_torch_and_their_gradients(geometry: dict[str, Any]) -> None:
    x = _normal(3, 6, 11, 12).requires_grad_()
    w = _normal(8, 6 // geometry.get("groups", 1), 3, 3, seed=1).requires_grad_()
    y = torch.nn.functional.conv2d(x, w, **geometry)
    dy = _normal(*y.shape, seed=2)
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    tensors: dict[Literal["", "input", "weight"], tuple[torch.Tensor, ...]] = {
        "": (x, w, y.detach()),
        "input": (dy, w, dx),
        "weight": (x, dy, dw),
    }
    for gradient, (first, second, claimed) in tensors.items():
        found = potl.freivalds_convolution(first, second, claimed, gradient=gradient, **geometry)
        assert found.outcome == "consistent", (gradient, found.usual)
        claimed.view(-1)[claimed.numel() // 2] += 20_000
        found = potl.freivalds_convolution(first, second, claimed, gradient=gradient, **geometry)
        assert found.outcome == "inconsistent", gradient


def test_convolutions_in_one_and_three_dimensions() -> None:
    x, w = _normal(2, 3, 20), _normal(4, 3, 5)
    assert potl.freivalds_convolution(x, w, torch.nn.functional.conv1d(x, w)).holds
    x, w = _normal(2, 3, 5, 6, 7), _normal(4, 3, 2, 3, 3)
    y = torch.nn.functional.conv3d(x, w, stride=(1, 2, 2))
    assert potl.freivalds_convolution(x, w, y, stride=(1, 2, 2)).holds
    with pytest.raises(potl.UsageError):
        potl.freivalds_convolution(x, w, y, stride=(1, 2))
    with pytest.raises(potl.UsageError):
        potl.freivalds_convolution(x, w, y[:, :, :, :, :2], stride=(1, 2, 2))
    with pytest.raises(potl.UsageError):
        potl.freivalds_convolution(x[0, 0], w, y)
    with pytest.raises(potl.UsageError):  # as many elements, another shape
        potl.freivalds_convolution(x, w, y.reshape(2, 4, 4, 3, 2), stride=(1, 2, 2))


Trained = tuple[potl.LayerState, potl.LayerState, list[potl.LayerStep]]


def _train(optimizer_of: Any, steps: int = 24, before: int = 0) -> Trained:
    """A layer trained by torch, with gradients clipped to a norm."""
    torch.manual_seed(3)
    layer = torch.nn.Linear(40, 24, bias=False)
    optimizer = optimizer_of(layer.parameters())
    start, recorded = None, []

    def state() -> potl.LayerState:
        held = optimizer.state[layer.weight]
        first = held.get("momentum_buffer", held.get("exp_avg"))
        copies = [
            None if one is None else one.detach().clone()
            for one in (layer.weight, first, held.get("exp_avg_sq"))
        ]
        return potl.LayerState(weights=copies[0], first=copies[1], second=copies[2])

    for index in range(before + steps):
        if index == before:
            start = state()
        x = torch.randn(2, 8, 40)
        y = layer(x)
        y.retain_grad()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(y, torch.randn(2, 8, 24)).backward()
        norm = float(torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.05))
        rate = 0.1 / (1 + index)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        if index >= before:
            scale = min(1.0, 0.05 / (norm + 1e-6))
            recorded.append(
                potl.LayerStep(inputs=x, output_gradients=y.grad, rate=rate, scale=scale)
            )
    assert start is not None
    return start, state(), recorded


SGD: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.01},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    {"momentum": 0.9, "dampening": 0.4},
]


@pytest.mark.parametrize("before", [0, 7])
@pytest.mark.parametrize("options", SGD)
def test_segments_of_torch_sgd(options: dict[str, Any], before: int) -> None:
    start, end, steps = _train(lambda p: torch.optim.SGD(p, lr=0.1, **options), before=before)
    check: dict[str, Any] = {**options, "steps_before": before, "key": KEY}
    honest = potl.freivalds_segment(start, end, steps, **check)
    assert honest.holds
    assert honest.weights.outcome == "consistent"
    assert honest.first.outcome == "consistent"
    for false in (steps[:-1], [*steps[:5], *steps[6:]], [*steps[:5], steps[6], *steps[6:]]):
        found = potl.freivalds_segment(start, end, false, **check)
        assert found.weights.outcome == "inconsistent"
        assert found.weights.rounding > 100 * honest.weights.rounding


@pytest.mark.parametrize("before", [0, 7])
def test_segments_of_torch_adamw(before: int) -> None:
    start, end, steps = _train(
        lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.99)), before=before
    )
    check: dict[str, Any] = {"betas": (0.9, 0.99), "weight_decay": 0.01, "steps_before": before}
    found = potl.freivalds_segment(start, end, steps, **check)
    assert found.holds
    assert (found.sampled, found.columns) == (8, 40)
    for false in (steps[:-1], [*steps[:5], steps[6], *steps[6:]]):
        found = potl.freivalds_segment(start, end, false, **check)
        assert found.first.outcome == "inconsistent"
    end.second.mul_(1.001)
    assert potl.freivalds_segment(start, end, steps, **check).second.outcome == "inconsistent"


def test_adam_without_an_epsilon_is_refused_and_not_found_false() -> None:
    start, end, steps = _train(lambda p: torch.optim.AdamW(p, lr=0.1, eps=0.0))
    with pytest.raises(potl.UsageError, match="without an epsilon"):
        potl.freivalds_segment(start, end, steps, betas=(0.9, 0.999), weight_decay=0.01, eps=0.0)


def test_a_segment_asks_for_one_step_at_a_time() -> None:
    start, end, steps = _train(lambda p: torch.optim.SGD(p, lr=0.1))
    asked: list[int] = []

    class Stored(list[potl.LayerStep]):
        def __getitem__(self, index: Any) -> Any:
            asked.append(index)
            return super().__getitem__(index)

    assert potl.freivalds_segment(start, end, Stored(steps)).holds
    assert asked == list(range(len(steps)))


def test_an_error_while_a_step_is_loaded_is_the_callers() -> None:
    start, end, steps = _train(lambda p: torch.optim.SGD(p, lr=0.1))

    class Broken(list[potl.LayerStep]):
        def __getitem__(self, index: Any) -> Any:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        potl.freivalds_segment(start, end, Broken(steps))
    with pytest.raises(potl.UsageError):
        potl.freivalds_segment(start, end, steps, momentum=0.9)
