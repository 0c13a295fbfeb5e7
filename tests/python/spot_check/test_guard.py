# SPDX-License-Identifier: Apache-2.0
"""A guarded training: what an honest worker trains is what the client would have trained; what a
false one reports is caught where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import guarded
import pytest
import torch
from docs_setup_digits import train_set
from guarded import KEY, Cheat, build
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import potl
from potl._spot_check._coarse import CoarseGradients

STEPS = 58
Change = Callable[[int, torch.Tensor, Cheat], None]


@pytest.fixture(scope="module", params=["stock", "ord32"])
def job(request: pytest.FixtureRequest) -> potl.Job:
    return potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic=request.param)


@pytest.fixture(scope="module")
def exact() -> potl.Job:
    return potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="ord32")


def wide() -> potl.Task:
    """One step of a net with four million weights, in which nothing but one gradient counts."""
    model = nn.Sequential(nn.Linear(64, 62_500, bias=False), nn.Linear(62_500, 1, bias=False))
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        dataset=torch.utils.data.TensorDataset(torch.zeros(1, 64), torch.zeros(1, 1)),
        loss=nn.functional.mse_loss,
        batch_size=1,
        epochs=1,
        grad_clip=1.0,
    )


def unclipped() -> potl.Task:
    return build(clip=None)


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [one.detach().clone() for one in model.parameters()]


def plain(job: potl.Job, steps: int = STEPS) -> list[torch.Tensor]:
    with potl.Session.open(build, seed=job.core.seed, job=job) as session:
        for step, _, batch in session.batches(1, steps):
            session.run_step(step, batch)
        return weights(session.task.model)


def test_an_honest_worker_trains_what_a_plain_training_does(job: potl.Job) -> None:
    """Bit for bit, dropout, momentum, schedule and clipping included."""
    with potl.SpotCheck(build, job=job, key=KEY, steps_at_risk=10) as guard:
        seen: list[tuple[int, int]] = []
        report = guard.train(
            potl.spot_check.Worker(build), progress=lambda done, all_: seen.append((done, all_))
        )
        assert report.verdict == "accepted", report.sentence
        assert guard.final_step == STEPS and seen[-1] == (STEPS, STEPS)
        for ours, theirs in zip(weights(guard.task.model), plain(job), strict=True):
            assert torch.equal(ours, theirs)
        (finding,) = report.findings
        assert finding.check == "spot_check" and finding.result == "pass"
        assert float(finding.details["displacement"]) == pytest.approx(
            guard.plan.certificate.displacement
        )
        assert guard.plan.certificate.sentence in report.sentence
        assert [limit["check"] for limit in report.document["limits"]] == ["spot_check"] * 4
        assert report.document["looked_at"][0] == "58 steps, each updated by your own side"
        with pytest.raises(potl.UsageError, match="58 of 58 steps are final"):
            guard.train(potl.spot_check.Worker(build))


def test_running_statistics_are_the_guards_own(exact: potl.Job) -> None:
    """Whatever a worker's model has in its buffers: they are means over the last batches."""
    with potl.SpotCheck(build, job=exact, key=KEY) as guard:
        guard.train(potl.spot_check.Worker(build))
        norm = guard.task.model[2]
        assert isinstance(norm, nn.BatchNorm2d)
        with potl.Session.open(build, seed=3, job=exact) as session:
            for own, theirs in zip(
                session.task.model.parameters(), guard.task.model.parameters(), strict=True
            ):
                own.data.copy_(theirs)
            outputs = []
            session.task.model[1].register_forward_hook(
                lambda module, inputs, output: outputs.append(output.detach())
            )
            for step in range(STEPS - 49, STEPS + 1):
                session.gradients(step, session.sample_ids(step))
        means = torch.stack([one.mean((0, 2, 3)) for one in outputs]).mean(0)
        assert norm.running_mean is not None
        assert torch.allclose(norm.running_mean, means, atol=1e-6)
        assert norm.momentum == 0.1


def test_statistics_are_there_at_a_pause(exact: potl.Job) -> None:
    """A model that is evaluated then has those of its weights, not those of the beginning."""
    with potl.SpotCheck(build, job=exact, key=KEY) as guard:
        guard.train(potl.spot_check.Worker(build), until=30)
        norm = guard.task.model[2]  # type: ignore[index]
        assert norm.num_batches_tracked == 30
        assert guard.train(potl.spot_check.Worker(build)).verdict == "accepted"
        for ours, theirs in zip(weights(guard.task.model), plain(exact), strict=True):
            assert torch.equal(ours, theirs)


def test_statistics_are_there_after_a_stop_at_the_very_end(
    exact: potl.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with (
        potl.SpotCheck(build, job=exact, key=KEY, path=tmp_path / "guard") as guard,
        monkeypatch.context() as patch,
        pytest.raises(KeyboardInterrupt),
    ):
        patch.setattr("potl._spot_check._guard.settle_statistics", stop)
        guard.train(potl.spot_check.Worker(build))
    with potl.SpotCheck(build, job=exact, key=KEY, path=tmp_path / "guard") as guard:
        assert guard.final_step == STEPS
        assert guard.task.model[2].num_batches_tracked == 50  # type: ignore[index]


class Frozen(nn.BatchNorm2d):
    """Normalises with the statistics that it came with."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(False)
        return self


def frozen() -> potl.Task:
    task = build()
    given = Frozen(4).eval()
    given.load_state_dict(
        {
            "running_mean": torch.ones(4),
            "running_var": torch.full((4,), 4.0),
            "num_batches_tracked": torch.tensor(7),
        },
        strict=False,
    )
    given.requires_grad_(False)
    task.model[2] = given  # type: ignore[index]
    return task


def test_statistics_that_no_step_changes_stay() -> None:
    """Those of a pretrained net that is tuned with its norms frozen."""
    job = potl.Job.create(frozen, seed=3, checkpoint_every=10, arithmetic="ord32")
    with potl.SpotCheck(frozen, job=job, key=KEY) as guard:
        assert guard.train(potl.spot_check.Worker(frozen)).verdict == "accepted"
        kept = guard.task.model[2]  # type: ignore[index]
        assert torch.equal(kept.running_mean, torch.ones(4))
        assert torch.equal(kept.running_var, torch.full((4,), 4.0))
        assert kept.num_batches_tracked == 7


CHEATS: dict[str, Change] = {
    "zero gradient": lambda step, gradient, _: gradient.zero_() if step == 23 else None,
    "sign flip": lambda step, gradient, _: gradient.neg_() if step == 23 else None,
    "clipped away": lambda step, gradient, _: (
        gradient[:1].fill_(1e30) if step == 23 else None  # type: ignore[func-returns-value]
    ),
}


def stale(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
    """Sends the gradient of step 22 again."""
    if step == 22:
        cheat.before = gradient.clone()  # type: ignore[attr-defined]
    elif step == 23:
        gradient.copy_(cheat.before)  # type: ignore[attr-defined]


def another_step(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
    """Computes step 24 in the place of step 23."""
    if step == 23:
        cheat.honest(24, cheat.weights, gradient.numpy().data)


def smaller_batch(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
    """Computes on half of the batch."""
    if step == 23:
        session = cheat.session
        _, found = session.gradients(step, session.sample_ids(step)[:32])
        gradient.copy_(torch.cat([one.reshape(-1) for one in found if one is not None]))


@pytest.mark.parametrize(
    "change",
    [*CHEATS.values(), stale, another_step, smaller_batch],
    ids=[*CHEATS, "stale", "another step", "smaller batch"],
)
def test_a_false_gradient_is_caught(job: potl.Job, change: Change) -> None:
    with potl.SpotCheck(build, job=job, key=KEY, steps_at_risk=1, probability=0.999999) as guard:
        report = guard.train(guarded.worker(change))
        assert report.verdict == "rejected", report.sentence
        (finding,) = report.findings
        assert finding.rule == "spot_check.gradients" and finding.first_step == 23
        assert "gradient of step 23 is false" in finding.reason
        assert finding.details["tensor"] in dict(guard.task.model.named_parameters())
        # The last final state, and another worker goes on from it.
        assert guard.final_step == 20
        for ours, theirs in zip(weights(guard.task.model), plain(job, 20), strict=True):
            assert torch.equal(ours, theirs)
        again = guard.train(potl.spot_check.Worker(build))
        assert again.verdict == "accepted"
        assert "the certificate counts each of them" in again.sentence


def test_a_gradient_that_is_not_finite_is_always_checked(exact: potl.Job) -> None:
    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        if step == 23:
            gradient[7] = float("nan")

    with potl.SpotCheck(build, job=exact, key=KEY, displacement=1e6) as guard:
        assert guard.plan.expected_checks == 0
        report = guard.train(guarded.worker(change))
        assert report.verdict == "rejected"
        assert "not finite, but computed honestly it is" in report.sentence


def test_what_vanishes_in_float32_is_clipped_too() -> None:
    """One large entry, and millions whose squares are lost beside its own."""
    job = potl.Job.create(wide, seed=3, checkpoint_every=1, arithmetic="stock")
    moved: list[float] = []

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        gradient.fill_(2.0**-13)
        gradient[0] = 1.0

    with potl.SpotCheck(wide, job=job, key=KEY, displacement=1e6) as guard:
        before = torch.cat([one.reshape(-1) for one in weights(guard.task.model)])
        cheating = potl.spot_check.Worker(wide, wrap=lambda honest: Cheat(honest, change))
        guard.train(cheating)
        after = torch.cat([one.reshape(-1) for one in weights(guard.task.model)])
        moved.append(float(torch.linalg.vector_norm(after - before, dtype=torch.float64)))
    # One step of rate 1 and clip 1. With the norm that torch computes it would be 1.0035.
    assert moved[0] <= 1.0001, moved


def test_a_gradient_whose_squares_overflow_moves_the_weights_as_it_was_judged() -> None:
    """Clipped it is the true one, but torch, whose norm is infinite, would make it zero."""
    stock = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="stock")

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        if float(gradient.norm()) > 1:
            gradient.mul_(1e25)

    with potl.SpotCheck(build, job=stock, key=KEY, steps_at_risk=1) as guard:
        report = guard.train(guarded.worker(change))
        assert report.verdict == "accepted", report.sentence
        for ours, theirs in zip(weights(guard.task.model), plain(stock), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-3)


def small_clip() -> potl.Task:
    """One step."""
    model = nn.Linear(64, 16, bias=False)
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e5),
        dataset=torch.utils.data.TensorDataset(torch.ones(1, 64), torch.ones(1, 16)),
        loss=nn.functional.mse_loss,
        batch_size=1,
        epochs=1,
        grad_clip=1e-5,
    )


def test_a_gradient_that_no_float32_clips_moves_the_weights_as_it_was_judged() -> None:
    """Clipped it is the true one, but the factor of the clip is 0 in float32."""
    job = potl.Job.create(small_clip, seed=3, checkpoint_every=1, arithmetic="stock")

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        gradient.div_(gradient.abs().max()).mul_(3e38)

    with potl.SpotCheck(small_clip, job=job, key=KEY, steps_at_risk=1) as guard:
        before = weights(guard.task.model)[0]
        cheating = potl.spot_check.Worker(small_clip, wrap=lambda one: Cheat(one, change))
        assert guard.train(cheating).verdict == "accepted"
        moved = float(torch.linalg.vector_norm(weights(guard.task.model)[0] - before))
    # torch adds 1e-6 to the norm that it divides by.
    assert moved == pytest.approx(1 / 1.1, abs=1e-3)


def test_a_worker_that_cheats_only_where_it_believes_nobody_looks(exact: potl.Job) -> None:
    """Its belief has nothing to rest on: what it sees of a checked step is what it sees of any."""
    seen: list[int] = []

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        # Checked steps would be those after which the other side takes longer, if any did.
        seen.append(step)
        if step % 3 == 1:
            gradient.mul_(0.5)

    with potl.SpotCheck(build, job=exact, key=KEY, steps_at_risk=5) as guard:
        report = guard.train(guarded.worker(change))
    assert report.verdict == "rejected"
    assert report.findings[0].first_step is not None
    assert report.findings[0].first_step % 3 == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_other_arithmetic_of_an_honest_worker_passes(threads: int) -> None:
    """A worker whose sums are added up in another order, as on another machine."""
    stock = potl.Job.create(build, seed=5, checkpoint_every=10, arithmetic="stock")

    class Elsewhere(Cheat):
        def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
            return super(Cheat, self).gradient(step, weights, threads, out)

    with potl.SpotCheck(build, job=stock, key=KEY, steps_at_risk=2) as guard:
        elsewhere = potl.spot_check.Worker(
            build, wrap=lambda honest: Elsewhere(honest, lambda *_: None)
        )
        report = guard.train(elsewhere)
    assert report.verdict == "accepted", report.sentence
    assert 0 < float(report.findings[0].details["largest"]) <= guard.tolerance / 8


def on_digits(model: nn.Module, **options: Any) -> potl.Task:
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=train_set,
        loss=nn.functional.cross_entropy,
        batch_size=64,
        grad_clip=1.0,
        **{"epochs": 1, **options},
    )


def convolutions() -> potl.Task:
    layers = [nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()]
    return on_digits(nn.Sequential(*layers, nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 10)))


def recurrent() -> potl.Task:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.cells(x)[0][:, -1])
            return out

    return on_digits(Last())


class TensorCores(TorchDispatchMode):
    """Products of a GPU, which ignore the low bits of their operands."""

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(name in str(func) for name in ("convolution", ".mm.", ".addmm.")):
            args = tuple(
                (one.view(torch.int32) & -0x2000).view(torch.float32)
                if isinstance(one, torch.Tensor)
                else one
                for one in args
            )
        return func(*args, **(kwargs or {}))


class OnGpu(Cheat):
    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        with TensorCores():
            return super().gradient(step, weights, way, out)


@pytest.mark.parametrize(("task", "kind"), [(convolutions, "conv"), (recurrent, "rnn")])
@pytest.mark.parametrize("agreed", [None, "tf32", "ieee"])
def test_tf32_accuses_nobody_unless_the_job_excludes_it(
    task: Callable[[], potl.Task], kind: str, agreed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is torch's default for some operators on a GPU, and the trusted side may have none."""
    stock = potl.Job.create(task, seed=3, checkpoint_every=10, arithmetic="stock")
    fields = stock.core.fields()
    if agreed is not None:
        name = f"torch.backends.cudnn.{kind}.fp32_precision"
        fields["task"]["settings"] = {"cuda": {name: agreed}}
    made = SimpleNamespace(core=SimpleNamespace(fields=lambda: fields))
    monkeypatch.setattr(
        "potl._spot_check._guard.CoarseGradients",
        lambda plain, _: CoarseGradients(plain, made),  # type: ignore[arg-type]
    )
    worker = potl.spot_check.Worker(task, wrap=lambda honest: OnGpu(honest, lambda *_: None))
    with potl.SpotCheck(task, job=stock, key=KEY, steps_at_risk=1) as guard:
        wanted = "rejected" if agreed == "ieee" else "inconclusive"
        assert guard.train(worker).verdict == wanted
    with potl.SpotCheck(task, job=stock, key=KEY, steps_at_risk=1, tolerance=0.05) as guard:
        assert guard.train(worker).verdict == "accepted"


def rough() -> potl.Task:
    """Norms in bfloat16: rounding moves the gradient by some percent."""
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 10))
    return on_digits(model, epochs=2, autocast=torch.bfloat16)


def test_a_tolerance_that_lets_a_worker_compute_nothing_is_refused() -> None:
    stock = potl.Job.create(rough, seed=3, checkpoint_every=29, arithmetic="stock")
    with pytest.raises(potl.UnsupportedError, match="a quarter of the clip") as refused:
        potl.SpotCheck(rough, job=stock, key=KEY)
    assert "tolerance=" in refused.value.remedy
    guard = potl.SpotCheck(rough, job=stock, key=KEY, tolerance=1.0)
    with guard, pytest.raises(potl.UsageError, match="computes nothing"):
        guard.train(potl.spot_check.Worker(rough))
    potl.SpotCheck(rough, job=stock, key=KEY, tolerance=0.2).close()


def test_a_training_goes_on_from_its_folder(exact: potl.Job, tmp_path: Path) -> None:
    folder = tmp_path / "guard"
    with potl.SpotCheck(build, job=exact, key=KEY, path=folder) as guard:
        paused = guard.train(potl.spot_check.Worker(build), until=25)
        assert paused.verdict == "inconclusive" and "pause after step 25" in paused.sentence
        assert guard.final_step == 25

    def interrupt(done: int, total: int) -> None:
        if done == 37:
            raise KeyboardInterrupt

    with potl.SpotCheck(build, job=exact, key=KEY, path=folder) as guard:
        assert guard.final_step == 25
        with pytest.raises(KeyboardInterrupt):
            guard.train(potl.spot_check.Worker(build), progress=interrupt)
        assert guard.final_step == 30
    with potl.SpotCheck(build, job=exact, key=KEY, path=folder) as guard:
        assert guard.final_step == 30
        assert guard.train(potl.spot_check.Worker(build)).verdict == "accepted"
        for ours, theirs in zip(weights(guard.task.model), plain(exact), strict=True):
            assert torch.equal(ours, theirs)
        guard.save_model(tmp_path / "model.safetensors")
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved["6.weight"], plain(exact)[4])
    with pytest.raises(potl.UsageError, match="another training: options"):
        potl.SpotCheck(build, job=exact, key=KEY, path=folder, steps_at_risk=3)
    (folder / "guard.json").write_text("{}")
    with pytest.raises(potl.MalformedError, match="none of a guarded training"):
        potl.SpotCheck(build, job=exact, key=KEY, path=folder)


def test_a_worker_with_another_task_says_so_and_nobody_is_accused(exact: potl.Job) -> None:
    def other() -> potl.Task:
        task = build()
        task.optimizers[0].param_groups[0]["lr"] = 0.2
        return task

    with potl.SpotCheck(build, job=exact, key=KEY) as guard:
        report = guard.train(potl.spot_check.Worker(other))
    assert report.verdict == "inconclusive"
    assert "the worker cannot go on" in report.sentence
    assert report.findings[0].rule == "spot_check.session"


class OwnUpdate(potl.Task):
    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)


class NoUpdate(potl.Task):
    def step(self, batch: object) -> torch.Tensor:
        self.optimizers[0].zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
        self.optimizers[0].step()
        return loss.detach()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x


def remade(kind: type[potl.Task]) -> Callable[[], potl.Task]:
    def make() -> potl.Task:
        task = build()
        task.__class__ = kind
        return task

    return make


class Clamped(nn.Linear):
    """Changes its weights beside the optimizer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.01, 0.01)
        return super().forward(x)


def clamped() -> potl.Task:
    task = build()
    task.model.append(Clamped(10, 10))  # type: ignore[operator]
    assert task.optimizer is not None
    task.optimizer.add_param_group({"params": [*task.model[7].parameters()]})  # type: ignore[index]
    task.schedulers = ()
    return task


def counting() -> potl.Task:
    task = build()
    task.model.append(Counting())  # type: ignore[operator]
    return task


def adam() -> potl.Task:
    task = build()
    task.optimizers = (torch.optim.Adam(task.model.parameters()),)
    task.schedulers = ()
    return task


def twice() -> potl.Task:
    task = build()
    again = torch.optim.SGD(task.model[6].parameters(), lr=0.1)  # type: ignore[index]
    task.optimizers = (*task.optimizers, again)
    return task


def one_memory() -> potl.Task:
    task = build()
    view = nn.Linear(4, 1)
    view.weight = nn.Parameter(task.model[6].weight.data[:1, :4])  # type: ignore[index]
    task.model[6].view = view  # type: ignore[index, union-attr]
    task.optimizers = (*task.optimizers, torch.optim.SGD([view.weight], lr=0.1))
    return task


class Taught(potl.Task):
    """Learns from the average of its own weights."""

    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        assert isinstance(self.ema, nn.Module)
        head, own = self.ema.module[6], self.model[6]  # type: ignore[index]
        apart = (own.weight - head.weight.detach()).square().sum()
        return super().compute_loss(batch, reduction) + apart


class Renormalised(nn.BatchNorm2d):
    """Reads its running statistics while it trains."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.running_mean is not None
        out: torch.Tensor = super().forward(x)
        return out + 0.5 * (x - self.running_mean.clone().view(1, -1, 1, 1))


def renormalised() -> potl.Task:
    task = build()
    norm = Renormalised(4)
    norm.requires_grad_(False)
    task.model[2] = norm  # type: ignore[index]
    return task


def taught() -> potl.Task:
    task = remade(Taught)()
    task.ema = torch.optim.swa_utils.AveragedModel(task.model)
    return task


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (taught, "depends on more than the weights"),
        (renormalised, "depends on more than the weights"),
        (remade(OwnUpdate), "an update of its own"),
        (remade(NoUpdate), "called self.update 0 times"),
        (counting, "changes 7.count"),
        (clamped, "changes 7.weight"),
        (adam, "no certificate for Adam"),
        (twice, "weights that a step moves twice"),
        (one_memory, "weights that a step moves twice"),
    ],
)
def test_what_cannot_be_split_is_refused_with_a_remedy(
    make: Callable[[], potl.Task], said: str
) -> None:
    own = potl.Job.create(make, seed=3, checkpoint_every=10, arithmetic="stock")
    with pytest.raises(potl.UnsupportedError, match=said) as refused:
        potl.SpotCheck(make, job=own, key=KEY)
    assert refused.value.remedy


def test_arguments_that_do_not_fit_are_refused(exact: potl.Job, tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match="the job agreed 1"):
        potl.SpotCheck(build, job=exact, key=KEY, clip=2.0)
    with pytest.raises(potl.UsageError, match="a key of 3 bytes"):
        potl.SpotCheck(build, job=exact, key=b"abc")
    with pytest.raises(potl.UsageError, match="there is no key"):
        potl.SpotCheck(build, job=exact, key=tmp_path / "none")
    with pytest.raises(potl.UsageError, match="the worker has no key"):
        potl.spot_check.Worker(build).serve("unix:/tmp/none.sock")
    loose = potl.Job.create(unclipped, seed=3, checkpoint_every=10, arithmetic="stock")
    with pytest.raises(potl.UsageError, match="nothing limits the gradients"):
        potl.SpotCheck(unclipped, job=loose, key=KEY)
