# SPDX-License-Identifier: Apache-2.0
"""Who repeats a run computes with the settings of torch that its job names."""

from collections.abc import Iterator

import pytest
import tasks
import torch
from torch import nn

import potl
from potl._job._agreement import open_checked
from potl._job._settings import setting_differences, settings
from potl._task._visible import visible

MATMUL = torch.backends.mkldnn.matmul
NAME = "torch.backends.mkldnn.matmul.fp32_precision"


@pytest.fixture
def in_less() -> Iterator[None]:
    """Products of float32 are computed in bfloat16."""
    before = MATMUL.fp32_precision
    MATMUL.fp32_precision = "bf16"
    yield
    MATMUL.fp32_precision = before


def job_in(arithmetic: str) -> potl.Job:
    return potl.Job.create(tasks.plain, seed=1, checkpoint_every=2, arithmetic=arithmetic)


def test_other_settings_than_agreed_are_named(in_less: None) -> None:
    job = job_in("stock")
    open_checked(tasks.plain, job).close()
    MATMUL.fp32_precision = "ieee"
    with pytest.raises(potl.JobMismatch, match=f"{NAME} is 'ieee', agreed was 'bf16'"):
        open_checked(tasks.plain, job)


def test_what_nobody_set_is_what_ieee_says() -> None:
    job = job_in("stock")
    before = MATMUL.fp32_precision
    try:
        torch.set_float32_matmul_precision("highest")
        open_checked(tasks.plain, job).close()
    finally:
        MATMUL.fp32_precision = before


def test_exact_arithmetic_depends_on_none(in_less: None) -> None:
    job = job_in("ord32")
    MATMUL.fp32_precision = "ieee"
    open_checked(tasks.plain, job).close()


def test_a_repetition_on_another_kind_of_device_has_its_own(in_less: None) -> None:
    job = job_in("stock")
    elsewhere = {**job.core.fields()["task"], "settings": {"cuda": settings("cuda")}}
    before_there_were_any = {**job.core.fields()["task"]}
    del before_there_were_any["settings"]
    MATMUL.fp32_precision = "ieee"
    for described in (elsewhere, before_there_were_any):
        open_checked(tasks.plain, job.replace(task=described)).close()


def test_every_setting_of_a_gpu_is_compared() -> None:
    agreed = settings("cuda")
    assert len(agreed) == 10
    assert settings("a device that nobody knows") == {}
    for name in agreed:
        own = {"cuda": {**agreed, name: "another"}}
        (said,) = setting_differences({"cuda": agreed}, own)
        assert said.startswith(f"{name} is 'another', agreed was {agreed[name]!r}")
    for nonsense in (None, 3, {"cuda": 3}, {"cuda": {}}, {3: {3: 3}}):
        assert not list(setting_differences(nonsense, {"cuda": agreed}))


def test_a_model_on_several_devices_is_refused() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tasks.mlp()
            self.register_buffer("far", torch.zeros(2, device="meta"), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    problems = list(visible(tasks.task(Split())))
    assert [one.where for one in problems] == ["model.far"]
    assert "on meta, the first parameter on cpu" in problems[0].what
    assert "model.to(device)" in problems[0].remedy
