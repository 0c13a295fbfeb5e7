# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler in a `deterministic` block, and in recorded trainings."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tasks import mlp, task
from torch import nn, optim
from verifying import judged

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

aten = torch.ops.aten


def scaled(dtype: torch.dtype = torch.bfloat16) -> potl.Task:
    model = mlp(nn.Dropout(0.2))
    return task(
        model,
        optim.AdamW(model.parameters(), lr=0.01),
        autocast=dtype,
        grad_clip=1.0,
        # Overflows twice, then doubles after every second step.
        scaler=torch.amp.GradScaler(
            "cpu", init_scale=3e38, backoff_factor=2.0**-60, growth_interval=2
        ),
    )


def half() -> potl.Task:
    return scaled(torch.float16)


@pytest.mark.parametrize("build", [scaled, half])
def test_a_scaled_training_is_recorded_and_verified_on_other_threads(
    tmp_path: Path, build: object, set_threads: Callable[[int], None]
) -> None:
    digests = []
    for threads in (1, 2):
        set_threads(threads)
        job = potl.Job.create(build, seed=3, checkpoint_every=3, arithmetic="ord32")
        run = potl.record(build, tmp_path / str(threads), job=job)
        digests.append(str(run.commit()).split("final ")[1].split()[0])
    set_threads(1)
    report = judged(run, job, build, potl.Replay(samples=4))
    assert digests[0] == digests[1]
    assert report.verdict == "accepted", report.sentence
    assert all(replay["equal"] for replay in report.document["replays"])


def trained(name: str, form: str, scale: float) -> tuple[list[torch.Tensor], list[float]]:
    start = torch.arange(35, dtype=torch.float32).view(5, 7) / 16 - 1
    weight = nn.Parameter(start)
    options = {"foreach": False} if form == "plain" else {form: True}
    make = {
        "sgd": lambda p: optim.SGD(p, lr=1e-3, momentum=0.9, **options),
        "adamw": lambda p: optim.AdamW(p, lr=0.01, **options),
        "adagrad": lambda p: optim.Adagrad(p, lr=0.01, **options),
    }[name]
    optimizer = make([weight])
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
    x = torch.arange(20, dtype=torch.float32).view(4, 5) / 8 - 1
    scales = []
    for step in range(12):
        optimizer.zero_grad()
        with potl.deterministic():
            loss = ((x @ weight - step / 8) ** 2).sum()
            scaler.scale(loss * (torch.inf if step == 7 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
    assert weight.isfinite().all()
    return [weight.detach()], scales


# torch itself writes the foreach form of Adagrad as other operations.
FORMS = {"sgd": ("foreach", "fused"), "adamw": ("foreach", "fused"), "adagrad": ("fused",)}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("scale", [1000.0, 3e38])  # no power of two; the first step overflows
def test_all_forms_of_an_optimizer_give_the_same_bits_under_a_scaler(
    name: str, scale: float
) -> None:
    plain, scales = trained(name, "plain", scale)
    assert scales[7] == scales[6] / 2  # a step was skipped
    for form in FORMS[name]:
        other, others = trained(name, form, scale)
        assert torch.equal(plain[0].view(torch.int32), other[0].view(torch.int32))
        assert scales == others


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_an_unscaled_gradient_depends_on_its_element_alone(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    values = (torch.randn(101, generator=generator) * 1e3).to(dtype)
    factor = torch.tensor(1 / 1000.7)
    whole, alone, strided = values.clone(), values.clone(), torch.zeros(101, 3, dtype=dtype)[:, 1]
    strided.copy_(values)
    with potl.deterministic():
        found = torch.zeros(())
        aten._amp_foreach_non_finite_check_and_unscale_([whole, strided], found, factor)
        assert found == 0
        for one in alone.split(1):
            aten._amp_foreach_non_finite_check_and_unscale_([one], found, factor)
        wide = values.double() if dtype == torch.float64 else values.float()
        want = (wide * factor).to(dtype)
    for got in (whole, strided, alone):
        assert torch.equal(got, want)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("place", [0, 40, 100])
def test_a_gradient_that_is_not_finite_is_found(
    value: float, dtype: torch.dtype, place: int
) -> None:
    gradients = [torch.ones(7, dtype=dtype), torch.ones(101, dtype=dtype)]
    gradients[1][place] = value
    with potl.deterministic():
        found = torch.zeros(())
        aten._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.tensor(0.5))
    assert found == 1
