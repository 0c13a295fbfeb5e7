# SPDX-License-Identifier: Apache-2.0
"""Statistics of batch norms in a witness: those of any honest arithmetic are taken or computed
again, and with them the result has the bits of a training.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from potl import UsageError, _core
from potl._spot_check import _batch_norms
from potl._spot_check._products import ProductsOutcome, check_products, record_products

Tensors = list[torch.Tensor]
ULP = 2.0**-23


def images(seed: int = 0, mean: float = 0.5) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(24, 16, 12, 12, generator=random)
    return x * torch.linspace(0.1, 30, 16).view(-1, 1, 1) + mean


def checked(
    layer: nn.Module, x: torch.Tensor, witness: Tensors
) -> tuple[ProductsOutcome, torch.Tensor | None]:
    out = None
    with check_products(witness) as outcome:
        out = layer(x)
    return outcome, out


def statistics(layer: nn.Module, x: torch.Tensor) -> Tensors:
    with record_products() as witness, torch.no_grad():
        layer(x)
    return witness.tensors


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    "layout", [torch.contiguous_format, torch.channels_last], ids=["packed", "channels last"]
)
def test_an_honest_batch_norm_has_the_bits_of_a_training(
    affine: bool, layout: torch.memory_format
) -> None:
    layer, plain = (nn.BatchNorm2d(16, affine=affine, momentum=0.3) for _ in range(2))
    if affine:
        with torch.no_grad():
            for one in (layer, plain):
                one.weight.copy_(torch.linspace(-2, 3, 16))
                one.bias.copy_(torch.linspace(5, -1, 16))
    for seed in range(5):
        x = images(seed).contiguous(memory_format=layout)
        witness = statistics(nn.BatchNorm2d(16, affine=affine), x)
        assert [one.shape for one in witness] == [(16,), (16,)]
        outcome, out = checked(layer, x, witness)
        assert outcome.holds, outcome.failure
        assert layout == torch.channels_last or outcome.unusual == []
        expected = plain(x)
        assert out is not None
        assert torch.equal(out, expected) and out.stride() == expected.stride()
        torch.testing.assert_close(layer.running_mean, plain.running_mean)
        torch.testing.assert_close(layer.running_var, plain.running_var)
        assert layer.num_batches_tracked == plain.num_batches_tracked


def test_other_sizes_have_the_bits_of_a_training() -> None:
    for shape in ((3, 5, 4000), (2, 7, 6, 20, 20), (64, 33, 5, 7)):
        x = torch.randn(*shape) * 3 - 1
        layer = nn.LazyBatchNorm1d() if len(shape) == 3 else nn.LazyBatchNorm2d()
        layer = nn.LazyBatchNorm3d() if len(shape) == 5 else layer
        layer(x)  # makes its parameters
        outcome, out = checked(layer, x, statistics(layer, x))
        assert outcome.holds and outcome.verified == 2
        assert out is not None and torch.equal(out, layer(x))


Change = Callable[[torch.Tensor], torch.Tensor]
# What is off by so little is taken; by more it is computed; no sum of float32 is further off.
OFF: dict[str, tuple[int, Change, str]] = {
    "mean by a unit": (0, lambda m: torch.nextafter(m, m + 1), "taken"),
    "deviation by a unit": (1, lambda s: torch.nextafter(s, s + 1), "taken"),
    "mean by 16 units": (0, lambda m: m * (1 + 16 * ULP) + 16 * ULP, "computed"),
    "deviation by 16 units": (1, lambda s: s * (1 + 16 * ULP), "computed"),
    "mean of another batch": (0, lambda m: m * 1.3 + 0.5, "false"),
    "deviation of another batch": (1, lambda s: s * 1.3, "false"),
    "one channel": (0, lambda m: m + torch.eye(16)[3], "false"),
    "NaN": (1, lambda s: s * float("nan"), "not finite"),
    "infinity": (0, lambda m: m + float("inf"), "not finite"),
}


@pytest.mark.parametrize("name", OFF)
def test_statistics_that_are_off_are_taken_computed_or_false(name: str) -> None:
    index, change, verdict = OFF[name]
    layer, x = nn.BatchNorm2d(16), images()
    witness = statistics(layer, x)
    witness[index] = change(witness[index])
    outcome, out = checked(layer, x, witness)
    if verdict in ("taken", "computed"):
        assert outcome.holds
        assert outcome.unusual == ([] if verdict == "taken" else [index])
        assert out is not None
        torch.testing.assert_close(out, layer(x), rtol=1e-5, atol=1e-5)
        assert torch.equal(out, layer(x)) == (verdict == "computed")
    else:
        assert outcome.failure is not None
        reason = "inconsistent" if verdict == "false" else verdict
        assert (outcome.failure.reason, outcome.failure.index) == (reason, index)


def test_a_channel_of_zeros_hides_no_false_one() -> None:
    x = images()
    x[:, 2] = 0
    layer = nn.BatchNorm2d(16)
    witness = statistics(layer, x)
    outcome, out = checked(layer, x, [one.clone() for one in witness])
    assert outcome.holds and outcome.unusual == []
    assert out is not None and torch.equal(out, layer(x))
    for channel in (2, 9):
        false = witness[0] + torch.eye(16)[channel]
        outcome, _ = checked(layer, x, [false, witness[1]])
        assert outcome.failure is not None
        assert outcome.failure.reason == "inconsistent"
        assert f"row {channel} " in outcome.failure.detail


@pytest.mark.parametrize("mean", [0.0, 0.5, 30.0, 300.0])
def test_no_order_of_float32_sums_is_called_false(mean: float) -> None:
    x = images(mean=mean)
    rows = x.transpose(0, 1).reshape(16, -1).numpy()
    count = np.float32(rows.shape[1])
    sums = np.cumsum(rows, axis=1, dtype=np.float32)[:, -1]
    squares = np.cumsum(rows * rows, axis=1, dtype=np.float32)[:, -1]
    means = sums / count
    inverse = 1 / np.sqrt(np.maximum(squares / count - means * means, 0) + np.float32(1e-5))
    layer = nn.BatchNorm2d(16)
    outcome, out = checked(layer, x, [torch.from_numpy(means), torch.from_numpy(inverse)])
    assert outcome.holds, outcome.failure
    assert out is not None
    torch.testing.assert_close(out, layer(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-44, 1e-40, 1e-25, 1e17, 1e19, 3e37])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-40])
def test_numbers_at_the_ends_of_float32_accuse_nobody(scale: float, epsilon: float) -> None:
    """Sums of squares overflow, or vanish, in a torch that rounds them to float32."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(24, 16, 12, 12, generator=random) * scale
    layer = nn.BatchNorm2d(16, eps=epsilon)
    honest = statistics(layer, x)
    flushed = [honest[0].where(honest[0].abs() >= 2.0**-126, torch.zeros(())), honest[1]]
    for witness in (honest, flushed):
        outcome, out = checked(layer, x, [one.clone() for one in witness])
        assert outcome.holds, outcome.failure
        assert out is not None
        torch.testing.assert_close(out, layer(x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_batch_that_diverged_accuses_nobody() -> None:
    x = images()
    x[3, 2, 1, 0] = float("nan")
    layer = nn.BatchNorm2d(16)
    outcome, _ = checked(layer, x, statistics(layer, x))
    assert outcome.failure is None and not outcome.holds
    assert outcome.diverged is not None and outcome.diverged.index == 0


def test_a_torch_with_other_bits_without_training_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _batch_norms._forms_are_alike()
    without = _batch_norms._with_statistics

    def other(*args: torch.Tensor) -> torch.Tensor:
        return torch.nextafter(without(*args), torch.zeros(()))

    layer, x = nn.BatchNorm2d(16), images()
    witness = statistics(layer, x)
    monkeypatch.setattr(_batch_norms, "_with_statistics", other)
    _batch_norms._forms_are_alike.cache_clear()
    try:
        outcome, out = checked(layer, x, witness)
    finally:
        _batch_norms._forms_are_alike.cache_clear()
    assert outcome.holds
    assert out is not None and torch.equal(out, layer(x))


@pytest.mark.parametrize(
    "layer, x",
    [
        (nn.BatchNorm2d(16).eval(), images()),
        (nn.BatchNorm2d(16).double(), images().double()),
        (nn.BatchNorm2d(16), images()[:, :, :3, :3]),
        (nn.BatchNorm1d(64), torch.randn(4096, 64)),
    ],
    ids=["not training", "float64", "small", "no positions"],
)
def test_other_batch_norms_are_computed(layer: nn.Module, x: torch.Tensor) -> None:
    assert statistics(layer, x) == []
    outcome, _ = checked(layer, x, [])
    assert outcome.holds and outcome.verified == 0


def test_sums_of_channels() -> None:
    x = images().numpy()
    rows = x.reshape(-1, 144)
    for pool in (None, _core.ThreadPool(2)):
        sums, squares = _core.channel_sums(rows, 16, pool)
        exact = x.astype(np.float64)
        np.testing.assert_allclose(sums, exact.sum((0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(squares, (exact * exact).sum((0, 2, 3)), rtol=1e-12)
    for channels in (0, 7):
        with pytest.raises(UsageError, match="not as many"):
            _core.channel_sums(rows, channels)
