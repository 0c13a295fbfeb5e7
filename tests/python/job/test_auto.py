# SPDX-License-Identifier: Apache-2.0
"""Jobs are in an exact arithmetic unless something stands in the way, which is then named."""

import json
import logging
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import tasks as small_tasks
import torch
from torch import nn

import potl
from potl._arithmetic import _arithmetic, _deterministic, _library
from potl._task._collated import form_of

pytest.importorskip("potl._torch", reason="potl was built without torch")


def create(build: Any = tasks.build, **options: Any) -> potl.Job:
    return potl.Job.create(build, **{"seed": 3, "checkpoint_every": 4, **options})


def arithmetic_of(job: potl.Job) -> str:
    document = json.loads(job.core.text)
    assert document["arithmetic"] == job.core.arithmetic != "auto"
    return str(document["arithmetic"])


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arithmetic, "_said", set())


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


class Special(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.erfcx(x) * torch.special.log_ndtr(x)


def build_special() -> potl.Task:
    return potl.Task(**tasks.options(model=nn.Sequential(Special(), nn.Linear(16, 4))))


def in_doubles() -> potl.Task:
    x, y = tasks.DATA.tensors
    data = torch.utils.data.TensorDataset(x.double(), y)
    return potl.Task(**tasks.options(model=tasks.model().double(), dataset=data))


def in_bfloat16() -> potl.Task:
    x, y = tasks.DATA.tensors
    data = torch.utils.data.TensorDataset(x.bfloat16(), y)
    return potl.Task(**tasks.options(model=tasks.model().bfloat16(), dataset=data))


# ---------------------------------------------------------------------- what is chosen


@pytest.mark.parametrize(
    "build", [tasks.build, in_doubles, in_bfloat16, small_tasks.autocast, small_tasks.dropout]
)
def test_a_job_is_exact_by_default(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert arithmetic_of(create(build)) == "ord32"
    assert potl.check(build) == []
    assert warnings_of(caplog) == []


def test_a_run_without_a_job_is_exact_too(tmp_path: Path) -> None:
    run = potl.record(tasks.build, tmp_path / "run", seed=3, checkpoint_every=4)
    assert arithmetic_of(run.job) == "ord32"


def test_operators_in_the_way_are_named_with_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert arithmetic_of(create(build_special)) == "stock"
    create(build_special, seed=4)
    [said] = warnings_of(caplog)
    assert "aten::special_erfcx" in said and "outside the block" in said
    assert "aten::special_log_ndtr" in said  # not the first refusal alone
    assert "within a tolerance" in said


def test_a_task_that_no_exact_arithmetic_takes_is_refused_where_one_was_asked_for() -> None:
    with pytest.raises(potl.NotReplayable, match="special_erfcx") as refused:
        create(build_special, arithmetic="ord32")
    assert {one.prevents for one in refused.value.problems} == {"replay"}


def test_the_check_tells_refusals_from_what_prevents_exactness() -> None:
    found = potl.check(build_special)
    assert len(found) == 2 and {one.prevents for one in found} == {"exact"}
    assert potl.check(build_special, arithmetic="stock") == []
    assert {one.prevents for one in potl.check(build_special, arithmetic="cr32")} == {"replay"}


def test_without_operators_for_this_torch_the_job_says_stock_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise potl.UnsupportedError("potl's operators were built against torch 1.0", "build again")

    monkeypatch.setattr(_library, "module", missing)
    assert arithmetic_of(create()) == "stock"
    [said] = warnings_of(caplog)
    assert "built against torch 1.0" in said and "build again" in said
    [problem] = potl.check(tasks.build)
    assert problem.prevents == "exact"
    with pytest.raises(potl.UnsupportedError):
        create(arithmetic="ord32")


def test_a_broken_environment_is_refused_and_not_taken_for_stock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise potl.NotReproducible("subnormal numbers are flushed to zero", "do not")

    monkeypatch.setattr(_deterministic, "deterministic", broken)
    with pytest.raises(potl.NotReplayable, match="flushed to zero"):
        create()
    assert arithmetic_of(create(arithmetic="stock")) == "stock"


class Choosy(potl.Task):
    """Fails inside of blocks, or everywhere."""

    everywhere = False

    def step(self, batch: Any) -> Any:
        if Choosy.everywhere or self.inside():
            raise RuntimeError("not here")
        return super().step(batch)

    @staticmethod
    def inside() -> bool:
        # The block replaces exp by potl's polynomial, which differs somewhere.
        x = torch.linspace(-5, 5, 4096)
        return not torch.equal(x.exp(), Choosy.outside)

    outside = torch.linspace(-5, 5, 4096).exp()


def build_choosy() -> potl.Task:
    return Choosy(**tasks.options())


def test_a_step_that_fails_in_the_exact_arithmetic_alone_is_no_reason_to_refuse(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert arithmetic_of(create(build_choosy)) == "stock"
    assert "not here" in warnings_of(caplog)[0]


def test_a_step_that_always_fails_raises_what_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choosy, "everywhere", True)
    with pytest.raises(RuntimeError, match="not here") as error:
        create(build_choosy)
    if hasattr(error.value, "__notes__"):  # from Python 3.11
        (note,) = error.value.__notes__
        assert note == "step 1 was given the batch [float32[16, 16], int64[16]]"


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (
            {"ids": torch.zeros(2, 3, dtype=torch.int64), "names": ["a", "b"]},
            "{ids: int64[2, 3], names: [str, str]}",
        ),
        ([torch.zeros(()), None], "[float32[], NoneType]"),
        ((1,) * 7, "[int, int, int, int, int, int, ...]"),
    ],
)
def test_a_batch_is_named_by_types_and_shapes(batch: Any, text: str) -> None:
    assert form_of(batch) == text


def test_stock_by_choice_is_explained_once(caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(2):
        assert arithmetic_of(create(arithmetic="stock", seed=seed)) == "stock"
    [said] = warnings_of(caplog)
    assert "within a tolerance" in said and 'arithmetic="auto"' in said


def test_without_a_check_the_arithmetic_is_found_out_all_the_same() -> None:
    assert arithmetic_of(create(check=False)) == "ord32"
    assert arithmetic_of(create(build_special, check=False)) == "stock"


class Counting(torch.optim.SGD):
    """Counts its steps among its options, and takes them along something without an exact form."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.01)
        self.param_groups[0]["k"] = 0

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["k"] += 1
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = torch.special.erfcx(parameter.grad)
        return super().step(closure)


def huge_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 1e3 * nn.functional.cross_entropy(output, target)


def build_skipping() -> potl.Task:
    """A scaler whose scale is too large for the first steps."""
    net = tasks.model()
    options = tasks.options(model=net, optimizer=Counting(net.parameters()), loss=huge_loss)
    return potl.Task(**options, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**127))


@pytest.mark.parametrize("check", [True, False])
def test_an_optimizer_whose_first_updates_are_skipped_is_tried_too(check: bool) -> None:
    job = create(build_skipping, check=check)
    assert arithmetic_of(job) == "stock"
    if check:
        assert job.core.fields()["task"]["varying"] == {
            "optimizers": [["k", "lr"]],
            "schedulers": [],
        }
    assert any("erfcx" in one.what for one in potl.check(build_skipping))


class Alternating(torch.optim.SGD):
    """Its second step puts back what its first one changed."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.01)
        self.param_groups[0]["is_odd"] = False

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["is_odd"] = not self.param_groups[0]["is_odd"]
        return super().step(closure)


def test_an_option_that_comes_and_goes_is_one_that_steps_change(tmp_path: Path) -> None:
    def build() -> potl.Task:
        net = tasks.model()
        return potl.Task(**tasks.options(model=net, optimizer=Alternating(net.parameters())))

    job = potl.Job.create(build, seed=7, checkpoint_every=1)
    assert job.core.fields()["task"]["varying"]["optimizers"] == [["is_odd", "lr"]]
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(
        run, job=job, commitment=run.commit(), task=build, checks=[potl.Replay()], ledger=None
    )
    assert report.verdict == "accepted"


def test_auto_is_no_arithmetic_of_a_session() -> None:
    with pytest.raises(potl.UsageError, match="auto"):
        potl.Session.open(tasks.build, seed=1, arithmetic="auto")


# ---------------------------------------------------------------------- what it costs


class Counted(potl.Task):
    losses = 0

    def compute_loss(self, batch: Any, reduction: str = "mean") -> Any:
        Counted.losses += 1
        return super().compute_loss(batch, reduction)


class OwnStep(Counted):
    def step(self, batch: Any) -> Any:
        return super().step(batch)


@pytest.mark.parametrize("kind", [Counted, OwnStep])
def test_making_a_job_takes_some_steps_twice(
    kind: type[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a few more, such as where a step of its own leaves gradients."""
    builds, said = [], []

    def build() -> potl.Task:
        builds.append(1)
        return kind(**tasks.options())

    monkeypatch.setattr(Counted, "losses", 0)
    create(build, progress=said.append)
    assert 2 * 24 <= Counted.losses <= 2 * 24 + 8
    assert len(builds) == 2
    assert any("step 2 in ord32" in text for text in said)
    assert any("hashing" in text for text in said)
