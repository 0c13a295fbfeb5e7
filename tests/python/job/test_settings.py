# SPDX-License-Identifier: Apache-2.0
"""Who repeats a run computes with the settings of torch that its job names."""

import contextlib
from collections.abc import Callable, Iterator

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


def attentive() -> potl.Task:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 8, 0.0), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.layer(x[:, None].expand(-1, 5, -1)).mean(1))
            return out

    return tasks.task(Attentive())


def state_within(
    around: contextlib.AbstractContextManager[object], build: Callable[[], potl.Task], job: potl.Job
) -> bytes:
    """After two steps, and the loss of the third."""
    with around, open_checked(build, job) as session, session.active():
        for step, _, batch in session.batches(1, 2):
            session.run_step(step, batch)
        loss = session.loss_at(3, session.sample_ids(3))
        return session.capture().digest() + loss.hex().encode()


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
@pytest.mark.parametrize("build", [tasks.plain, tasks.autocast])
@pytest.mark.parametrize("enabled", [True, False])
def test_an_autocast_of_the_calling_program_is_none_of_the_tasks(
    enabled: bool, build: Callable[[], potl.Task], arithmetic: str
) -> None:
    job = potl.Job.create(build, seed=1, checkpoint_every=2, arithmetic=arithmetic)
    own = state_within(contextlib.nullcontext(), build, job)
    around = torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)
    assert state_within(around, build, job) == own


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
def test_an_inference_mode_of_the_calling_program_ends_no_training(arithmetic: str) -> None:
    own = state_within(contextlib.nullcontext(), tasks.plain, job_in(arithmetic))
    with torch.inference_mode():
        assert potl.check(tasks.plain) == []
        job = job_in(arithmetic)
        assert torch.is_inference_mode_enabled()
    assert state_within(torch.inference_mode(), tasks.plain, job) == own


@contextlib.contextmanager
def without_flash() -> Iterator[None]:
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        yield
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


def test_a_way_of_attention_that_a_program_forbids_changes_no_bit_of_an_exact_job() -> None:
    job = potl.Job.create(attentive, seed=1, checkpoint_every=2, arithmetic="ord32")
    own = state_within(contextlib.nullcontext(), attentive, job)
    assert state_within(without_flash(), attentive, job) == own


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
