# SPDX-License-Identifier: Apache-2.0
"""Every state of an honest training is lawful, whatever it trains with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lawful import EPOCHS, SCHEDULERS, STEPS, Steps, data, net, sgd, task
from torch import nn
from torch.optim import lr_scheduler as schedules, swa_utils

import potl
from potl import Task
from potl._job._session import Session
from potl._task._schedule import rates_of, set_rates
from potl._verify._ahead import Ahead, Log, ScalerAhead
from potl._verify._schema import Schema


def violations(
    build: Callable[[], Task], *, resume_at: int | None = None, arithmetic: str = "auto"
) -> list[Any]:
    """Trains honestly, and judges every state by another build's laws."""
    job = potl.Job.create(build, seed=7, checkpoint_every=3, check=False, arithmetic=arithmetic)
    evidence, states = Steps(), []
    with Session.open(build, seed=7, job=job) as session:
        states.append(session.capture())
        for step in range(1, job.steps + 1):
            if step == resume_at:
                session.close()
                session = Session.open(build, seed=7, job=job)
                session.restore(states[-1])
            result = session.run_step(step, session.sample_ids(step))
            evidence.columns["loss"].append(result.loss)
            evidence.columns["flags"].append(int(result.skipped))
            states.append(session.capture())
    with Session.open(build, seed=7, job=job) as session, session.active():
        schema = Schema(session, evidence)  # type: ignore[arg-type]
        found: list[Any] = []
        # Not in order: segments are drawn.
        for step in [*range(0, len(states), 2), *range(1, len(states), 2)]:
            found += [schema.problem(states[step], step), schema.not_finite(states[step]) or None]
            found.append(schema.problem(states[step], step, logged=False))
    return [one for one in found if one is not None]


# ---------------------------------------------------------------------- optimizers

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    name: (getattr(torch.optim, name), options)
    for name, options in {
        "SGD": {"lr": 0.1},
        "Adadelta": {},
        "Adafactor": {},
        "Adagrad": {},
        "Adam": {},
        "AdamW": {},
        "Adamax": {},
        "ASGD": {},
        "NAdam": {},
        "RAdam": {},
        "RMSprop": {},
        "Rprop": {},
    }.items()
} | {
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "foreach": (torch.optim.Adam, {"foreach": True}),
    "fused": (torch.optim.AdamW, {"fused": True}),
    "capturable": (torch.optim.NAdam, {"foreach": False, "lr": 1e-3}),
    "tensor lr": (torch.optim.Adam, {"lr": torch.tensor(1e-3), "foreach": False}),
    "centered": (torch.optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "accumulator": (torch.optim.Adagrad, {"initial_accumulator_value": 0.1}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_of_torchs_optimizers_are_lawful(name: str) -> None:
    kind, options = OPTIMIZERS[name]

    def build() -> Task:
        model = net()
        return task(model, kind(model.parameters(), **options))

    assert violations(build) == []


def test_states_of_an_optimizer_with_a_state_dict_of_its_own_are_lawful() -> None:
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, base: torch.optim.Optimizer) -> None:
            super().__init__(base.param_groups, base.defaults)
            self.base, self.state = base, base.state
            self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]
            self.param_groups[0]["counter"] = 0

        def step(self, closure: Any = None) -> None:
            self.base.step()
            self.param_groups[0]["counter"] += 1
            if self.param_groups[0]["counter"] % 3 == 0:
                with torch.no_grad():
                    for slow, fast in zip(self.slow, self.param_groups[0]["params"], strict=True):
                        fast.copy_(slow.lerp_(fast, 0.5))

        def state_dict(self) -> dict[str, Any]:  # without the groups of torch's
            return {"base": self.base.state_dict(), "slow": self.slow}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.base.load_state_dict(state_dict["base"])
            self.param_groups, self.state = self.base.param_groups, self.base.state
            for slow, saved in zip(self.slow, state_dict["slow"], strict=True):
                slow.copy_(saved)

    class OwnStep(Task):
        def step(self, batch: Any) -> torch.Tensor:
            return super().step(batch)

    def build(kind: type[Task] = Task) -> Task:
        model = net()
        return task(model, Lookahead(torch.optim.Adam(model.parameters())), kind)

    assert violations(build, resume_at=4) == []
    assert violations(lambda: build(OwnStep)) == []


def test_states_of_muon_are_lawful() -> None:
    def build() -> Task:
        model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False))
        return task(model, torch.optim.Muon(model.parameters(), lr=1e-2))

    assert violations(build) == []


def test_states_with_sparse_gradients_are_lawful() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.words((x.abs() * 3).long().clamp(max=8)).mean(1))

    def build() -> Task:
        model = Words()
        sparse = torch.optim.SparseAdam(list(model.words.parameters()))
        return task(model, [sparse, torch.optim.Adam(model.head.parameters())])

    assert violations(build) == []


# ---------------------------------------------------------------------- schedulers


@pytest.mark.parametrize("interval", ["step", "epoch"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_states_of_torchs_schedulers_are_lawful(name: str, interval: str) -> None:
    def build() -> Task:
        model = net()
        kind = torch.optim.AdamW if name == "OneCycleLR" and interval == "step" else None
        optimizer = kind(model.parameters()) if kind else sgd(model)
        scheduler = SCHEDULERS[name](optimizer)
        return task(model, optimizer, scheduler=scheduler, scheduler_interval=interval)

    assert violations(build) == []


class Counting(torch.optim.Optimizer):
    """Keeps a counter, an estimate and a flag among the options of its groups."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "k": 0, "d": 1e-3, "begun": False, "fixed": 1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group.update(k=group["k"] + 1, d=group["d"] * 1.5, begun=True)
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"] / (1 + group["k"]))


class CountingFromNone(Counting):
    """Its first step makes the counter, as LAMB of timm does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1


def counting(kind: type[Counting] = Counting, **options: Any) -> Task:
    model = net()
    optimizer = kind(model.parameters())
    scheduler = schedules.CosineAnnealingLR(optimizer, STEPS)
    return task(model, optimizer, scheduler=scheduler, **options)


def counting_later(kind: type[Counting] = Counting) -> Task:
    """Its first updates are skipped: what they change shows in no state of the first steps."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-5)
    return counting(kind, loss=lambda x, y: 1e3 * F.cross_entropy(x, y), scaler=scaler)


def counting_in_an_own_step() -> Task:
    class Own(Task):
        def step(self, batch: Any) -> torch.Tensor:
            return super().step(batch)

    model = net()
    options = {"loss": F.cross_entropy, "batch_size": 8, "epochs": EPOCHS}
    return Own(
        model=model, optimizer=CountingFromNone(model.parameters()), dataset=data(), **options
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("arithmetic", ["auto", "stock"])
@pytest.mark.parametrize(
    "build",
    [
        counting,
        counting_later,
        lambda: counting(CountingFromNone),
        lambda: counting_later(CountingFromNone),
        counting_in_an_own_step,
    ],
    ids=["all", "later", "made", "made later", "made in an own step"],
)
def test_options_that_an_optimizer_changes_itself_are_lawful(
    build: Callable[[], Task], arithmetic: str
) -> None:
    assert violations(build, resume_at=8, arithmetic=arithmetic) == []


def test_an_option_that_the_first_step_makes_is_in_every_later_state() -> None:
    def build() -> Task:
        return counting(CountingFromNone)

    job = potl.Job.create(build, seed=7, checkpoint_every=3)
    with Session.open(build, seed=7, job=job) as session, session.active():
        for step in (1, 2):
            session.run_step(step, session.sample_ids(step))
        del session.task.optimizers[0].param_groups[0]["step"]
        without = session.capture()
    with Session.open(build, seed=7, job=job) as session, session.active():
        problem = Schema(session, Steps()).problem(without, 2, logged=False)  # type: ignore[arg-type]
    assert problem is not None
    assert str(problem).endswith("param_groups/0/step: the state does not have it")


def test_schedules_and_other_options_stay_laws_beside_them() -> None:
    job = potl.Job.create(counting, seed=7, checkpoint_every=3)
    wrong = {}
    with Session.open(counting, seed=7, job=job) as session, session.active():
        for step in (1, 2):
            session.run_step(step, session.sample_ids(step))
        honest = session.capture()
        (group,) = session.task.optimizers[0].param_groups
        for key, value in (("fixed", "2"), ("lr", 0.05), ("k", "many")):
            group[key], kept = value, group[key]
            wrong[f"param_groups/0/{key}"] = session.capture()
            group[key] = kept
        session.task.schedulers[0].T_max = 4
        wrong["T_max"] = session.capture()
    with Session.open(counting, seed=7, job=job) as session, session.active():
        schema = Schema(session, Steps())  # type: ignore[arg-type]
        assert schema.problem(honest, 2, logged=False) is None
        for place, state in wrong.items():
            problem = schema.problem(state, 2, logged=False)
            assert problem is not None
            assert place in problem.path


def test_states_of_a_momentum_that_a_schedule_raises_from_zero_are_lawful() -> None:
    class Raising(schedules.LRScheduler):
        def get_lr(self) -> list[float]:  # type: ignore[override]
            for group in self.optimizer.param_groups:
                group["momentum"] = 0.9 if self.last_epoch > 3 else 0.0
            return [group["lr"] for group in self.optimizer.param_groups]

    def build() -> Task:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        return task(model, optimizer, scheduler=Raising(optimizer))

    assert violations(build) == []


def warmed_up(epochs: int = 8) -> Task:
    """A warm-up and then a cosine, which the deterministic block computes as potl does."""
    model = net()
    optimizer = sgd(model)
    parts = [
        schedules.LinearLR(optimizer, 0.1, total_iters=4),
        schedules.CosineAnnealingLR(optimizer, 10),
    ]
    scheduler = schedules.SequentialLR(optimizer, parts, [4])
    return task(model, optimizer, scheduler=scheduler, epochs=epochs)


def test_states_after_a_warm_up_are_lawful_where_the_cosine_rounds_otherwise() -> None:
    assert violations(warmed_up) == []


def test_a_scheduler_whose_turn_is_over_keeps_its_rate_when_another_one_is_rounded() -> None:
    trained = warmed_up()
    (scheduler,) = trained.schedulers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no optimizer steps in between
        for _ in range(9):
            scheduler.step()
    (rate,) = rates_of(trained)
    over = list(scheduler._schedulers[0]._last_lr)
    set_rates(trained, [rate * (1 + 1e-12)])
    assert rates_of(trained) == scheduler._last_lr == scheduler._schedulers[1]._last_lr
    assert rates_of(trained) != [rate]
    assert scheduler._schedulers[0]._last_lr == over


def test_states_of_a_scheduler_of_the_users_own_are_lawful() -> None:
    class Halving:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer, self.seen = optimizer, []  # type: ignore[var-annotated]

        def step(self) -> None:
            self.seen.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.param_groups[0]["lr"] /= 2

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.seen = state["seen"]

    def build() -> Task:
        model = net()
        optimizer = sgd(model)
        return task(model, optimizer, scheduler=Halving(optimizer))

    assert violations(build) == []


# ---------------------------------------------------------------------- the rest of a recipe


def test_states_with_scaler_and_average_are_lawful() -> None:
    def build() -> Task:
        model = net()
        return task(
            model,
            scaler=torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=2),
            ema=swa_utils.AveragedModel(model, use_buffers=True),
        )

    assert violations(build) == []


def test_states_with_frozen_and_tied_weights_are_lawful() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
            self.second.weight = self.first.weight
            self.frozen, self.head = nn.Linear(6, 6), nn.Linear(6, 2)
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.frozen(self.second(self.first(x))))
            return out

    assert violations(lambda: task(Tied())) == []


class Experts(nn.Module):
    """Each batch trains one of three experts; a mask comes with the first batch, another moves."""

    mask: torch.Tensor | None
    moving: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 2) for _ in range(3))
        self.register_buffer("mask", None)
        self.register_buffer("late", None)
        self.register_buffer("moving", torch.zeros(24))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.full((2, 2), -torch.inf).triu(1)
        self.moving.zero_()[int(self.calls)] = -torch.inf
        self.calls += 1
        if self.calls == 5:
            self.late = torch.ones(3)
        out: torch.Tensor = self.experts[min(2, int(self.calls) // 3)](x)
        return out


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_states_of_parameters_without_gradients_are_lawful(kind: Any) -> None:
    def build() -> Task:
        model = Experts()
        return task(model, kind(model.parameters(), lr=0.1))

    assert violations(build) == []


def test_states_of_the_users_own_objects_are_lawful() -> None:
    class History:
        def __init__(self) -> None:
            self.best: float | None = None
            self.losses: list[float] = []
            self.by_epoch: dict[int, float] = {}

        def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = F.cross_entropy(output, target)
            self.losses.append(float(loss.detach()))
            if len(self.losses) % 4 == 0:
                self.best = min(self.losses)
                self.by_epoch[len(self.losses)] = self.best
            return loss

        def state_dict(self) -> dict[str, Any]:
            return dict(vars(self))

        def load_state_dict(self, state: dict[str, Any]) -> None:
            vars(self).update(state)

    def build() -> Task:
        history = History()
        return task(net(), loss=history, state={"history": history})

    assert violations(build) == []


def test_states_of_an_own_step_are_lawful() -> None:
    class Own(Task):
        def step(self, batch: Any) -> torch.Tensor:
            x, y = batch

            def closure() -> torch.Tensor:
                self.optimizers[0].zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()  # type: ignore[no-untyped-call]
                return loss

            loss: torch.Tensor = self.optimizers[0].step(closure)  # type: ignore[assignment]
            self.optimizers[0].param_groups[0]["lr"] *= 0.9
            self.model.train(not self.model.training)
            return loss

    def build() -> Task:
        model = net()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, history_size=2, max_iter=2)
        return task(model, optimizer, Own)

    assert violations(build) == []


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Rprop])
def test_states_of_what_an_own_step_unfreezes_late_are_lawful(kind: Any) -> None:
    class Unfreezing(Task):
        def step(self, batch: Any) -> torch.Tensor:
            self.model.steps += 1  # type: ignore[operator]
            late = int(self.model.steps) > 4  # type: ignore[arg-type]
            self.model[0].requires_grad_(late)  # type: ignore[index]
            if late and kind is torch.optim.SGD:
                self.optimizers[0].param_groups[0]["momentum"] = 0.9
            return super().step(batch)

    def build() -> Task:
        model = net()
        model[0].requires_grad_(False)  # type: ignore[index]
        model.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        return task(model, kind(model.parameters(), lr=0.01), Unfreezing)

    assert violations(build) == []


def test_states_of_a_resumed_training_are_lawful() -> None:
    def build() -> Task:
        model = net()
        optimizer = sgd(model)
        plateau = schedules.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        return task(model, optimizer, scheduler=plateau, scheduler_interval="epoch")

    assert violations(build, resume_at=5) == []


def test_a_training_of_one_step_is_lawful() -> None:
    assert violations(lambda: task(net(), batch_size=24, epochs=1)) == []


def test_what_one_log_makes_is_not_taken_for_anothers() -> None:
    """The verifier's own first steps are judged by the same laws as the trainer's."""

    def build() -> Task:
        model = net()
        optimizer = sgd(model)
        follows = schedules.ReduceLROnPlateau(optimizer)
        return task(model, optimizer, scheduler=follows, scheduler_interval="epoch")

    own, other = (Log([loss] * STEPS, [flag] * STEPS) for loss, flag in ((1.0, 0), (2.0, 1)))
    with Session.open(build, seed=7) as session:
        ahead = Ahead(session.task, session.schedule)
        for log, total in ((own, 2.0), (other, 4.0), (own, 2.0)):
            assert ahead.at(2, log)[2] == ("near", total, 0.0)
    scaler = ScalerAhead(torch.amp.GradScaler("cpu", init_scale=8.0).state_dict())
    for log, scale in ((own, 8.0), (other, 2.0), (own, 8.0)):
        assert scaler.at(2, log)[1]["scale"] == ("near", scale, 0.0)
