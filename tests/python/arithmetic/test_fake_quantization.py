# SPDX-License-Identifier: Apache-2.0
"""Fake quantisation gives torch's bits on every machine, and a training with it is exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lawful import net, task
from verifying import judged

import potl
from potl import Task

Form = Callable[[torch.Tensor, float, int, int, int], torch.Tensor]


def _plain(x: torch.Tensor, scale: float, point: int, low: int, high: int) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(x, scale, point, low, high)


def _of_tensors(x: torch.Tensor, scale: float, point: int, low: int, high: int) -> torch.Tensor:
    kept = torch.tensor(point, dtype=torch.int32)
    return torch.fake_quantize_per_tensor_affine(x, torch.tensor(scale), kept, low, high)


def _of_channels(x: torch.Tensor, scale: float, point: int, low: int, high: int) -> torch.Tensor:
    scales = scale * torch.arange(1, x.shape[1] + 1)
    points = torch.full((x.shape[1],), point, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, scales, points, 1, low, high)


FORMS = [_plain, _of_tensors, _of_channels]


def _value_and_gradient(
    form: Form, x: torch.Tensor, scale: float, point: int, low: int, high: int
) -> list[torch.Tensor]:
    leaf = x.clone().requires_grad_()
    out = form(leaf, scale, point, low, high)
    (gradient,) = torch.autograd.grad(out.sum(), leaf)
    return [out.detach(), gradient]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bounds", [(-128, 127), (0, 255), (-8, 7)])
def test_values_and_gradients_are_torchs(form: Form, bounds: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (0.01, 1.0, 100.0):
        # Quarters lie halfway between two values now and then.
        x = torch.randn(4, 6, 3, generator=generator) * size
        x = torch.cat([x, (x * 4).round() / 4])
        for scale, point in ((0.1, 0), (0.5, 3), (2.0, 7)):
            stock = _value_and_gradient(form, x, scale, point, *bounds)
            with potl.deterministic():
                exact = _value_and_gradient(form, x, scale, point, *bounds)
            assert all(map(torch.equal, stock, exact))


def test_what_is_not_finite_stays_as_it_is_or_meets_a_bound() -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30])
    with potl.deterministic():
        value, mask = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.5, 0, -8, 7)
    assert value[0].isnan() and value[1:].tolist() == [3.5, -4.0, 3.5]
    assert not mask.any()


def test_a_switch_leaves_all_as_it_is() -> None:
    scale, point, off = torch.tensor([0.5]), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    x = torch.tensor([0.3, 1e9])
    form = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    with potl.deterministic():
        value, mask = form(x, scale, point, off, -8, 7)
    assert torch.equal(value, x) and mask.all()


def test_a_zero_point_between_whole_numbers_is_refused() -> None:
    x, ones = torch.ones(2, 3), torch.ones(3)
    with potl.deterministic(), pytest.raises(potl.NotReproducible, match="zero point"):
        torch.fake_quantize_per_channel_affine(x, ones, ones / 2, 1, -8, 7)


class Quantised(Task):
    def compute_loss(self, batch: list[torch.Tensor], reduction: str = "mean") -> torch.Tensor:
        weights = {
            name: _plain(each, 0.05, 0, -128, 127) if each.ndim > 1 else each
            for name, each in self.model.named_parameters()
        }
        out = torch.func.functional_call(
            self.model, weights, (_of_tensors(batch[0], 0.1, 8, 0, 15),)
        )
        return torch.nn.functional.cross_entropy(out, batch[1], reduction=reduction)


def build() -> Task:
    return task(net(), kind=Quantised, loss=None)


def test_a_training_that_knows_its_quantisation_is_exact(tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=7, checkpoint_every=3)
    assert job.arithmetic == "ord32"
    run = potl.record(build, tmp_path / "run", job=job)
    assert judged(run, job, build, potl.Replay(samples=3)).verdict == "accepted"
