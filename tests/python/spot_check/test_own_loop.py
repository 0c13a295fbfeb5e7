# SPDX-License-Identifier: Apache-2.0
"""A worker's own loop under a guard: potl.SpotCheckedOptimizer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from guarded import KEY, build, own_loop as honest
from torch.nn import functional

import potl
from potl._spot_check._own_loop import OwnLoop

Loop = Callable[[OwnLoop], None]


def a_loop(
    loss_of: Callable[[int, torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor],
    before_step: Callable[[torch.nn.Module], object] = lambda model: None,
    after_step: Callable[[torch.nn.Module], object] = lambda model: None,
    at_first: Callable[[torch.nn.Module], object] = lambda model: None,
) -> Loop:
    """As somebody writes it, without zero_grad."""

    def loop(guard: OwnLoop) -> None:
        model = guard.task.model
        at_first(model)
        assert guard.task.optimizer is not None
        optimizer = potl.SpotCheckedOptimizer(guard.task.optimizer, guard)
        for number, (images, labels) in guard.steps():
            loss = loss_of(number, model, images, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            before_step(model)
            optimizer.step(loss)
            after_step(model)

    return loop


def agreed(
    number: int, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    return functional.cross_entropy(model(images), labels)


def smoothed(
    number: int,
    model: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    since: int = 1,
    share: float = 0.1,
) -> torch.Tensor:
    """Another loss than the agreed one."""
    share = share if number >= since else 0.0
    return functional.cross_entropy(model(images), labels, label_smoothing=share)


def looked_twice(
    number: int, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Draws the numbers of the agreed dropout for nothing."""
    model(images)
    return agreed(number, model, images, labels)


def halves(
    number: int, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    first = functional.cross_entropy(model(images[:32]), labels[:32]) / 2
    first.backward()  # type: ignore[no-untyped-call]
    return functional.cross_entropy(model(images[32:]), labels[32:]) / 2


def clip(model: torch.nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def forgetful(guard: OwnLoop) -> None:
    for _ in guard.steps():
        pass


def both(folder: Path, loop: Loop, arithmetic: str) -> tuple[potl.SpotCheck, potl.Report, str]:
    """Guard and loop, each in a thread: their steps take turns."""
    job = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic=arithmetic)
    address = f"unix:{folder}/loop.sock"
    guard = potl.SpotCheck(build, job=job, key=KEY, steps_at_risk=2)
    said: list[str] = []

    def run() -> None:
        with potl.spot_check.Worker(build, key=KEY).open(address) as link:
            try:
                loop(link)
                said.append(link.reason)
            except (potl.UsageError, potl.StorageError) as error:
                said.append(str(error))

    worker = threading.Thread(target=run)
    worker.start()
    # Steps of both sides would draw from one process's generators: checks wait for the segment.
    guard._background = False
    report = guard.train(address)
    worker.join()
    return guard, report, said[0]


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
def test_a_loop_of_ones_own_is_guarded(tmp_path: Path, arithmetic: str) -> None:
    guard, report, reason = both(tmp_path, honest, arithmetic)
    assert report.verdict == "accepted", report.sentence
    assert reason == ""
    with potl.Session.open(build, seed=3, job=guard._job) as session:
        for step, _, batch in session.batches(1, 58):
            session.run_step(step, batch)
        for ours, theirs in zip(
            guard.task.model.parameters(), session.task.model.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "loop",
    [a_loop(smoothed), a_loop(looked_twice), a_loop(halves), a_loop(agreed, clip)],
    ids=["another loss", "another pass", "two halves", "clipped"],
)
def test_a_loop_with_a_mistake_is_told_so_before_it_is_taken_for_a_cheat(
    tmp_path: Path, loop: Loop
) -> None:
    _, report, reason = both(tmp_path, loop, "ord32")
    assert report.verdict == "inconclusive", report.sentence
    assert "is not that of the agreed step" in reason and "do not clip" in reason
    # Whoever reads the report learns it, too, and nothing of the worker's stack.
    assert "is not that of the agreed step" in report.sentence
    assert ".py" not in report.sentence


def test_a_mistake_that_stock_arithmetic_could_almost_hide_is_told_too(tmp_path: Path) -> None:
    """Its gradients are less than 2 % off, and a guard takes them for false."""
    _, report, reason = both(tmp_path, a_loop(partial(smoothed, share=0.01)), "stock")
    assert report.verdict == "inconclusive", report.sentence
    assert "is not that of the agreed step" in reason


@pytest.mark.parametrize("train", [lambda model: None, lambda model: model.train()])
def test_a_loop_may_evaluate_before_its_first_step(
    tmp_path: Path, train: Callable[[torch.nn.Module], object]
) -> None:
    def loss_of(
        number: int, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        train(model)
        return agreed(number, model, images, labels)

    loop = a_loop(loss_of, at_first=lambda model: model.eval())
    _, report, _ = both(tmp_path, loop, "ord32")
    assert report.verdict == "accepted", report.sentence


def test_what_a_loop_leaves_behind_does_not_reach_its_next_step(tmp_path: Path) -> None:
    """Gradients of the step before, and a model that is evaluated."""
    loop = a_loop(agreed, after_step=lambda model: model.eval())
    _, report, _ = both(tmp_path, loop, "ord32")
    assert report.verdict == "accepted", report.sentence


def test_a_loop_that_is_false_later_is_caught(tmp_path: Path) -> None:
    _, report, reason = both(tmp_path, a_loop(partial(smoothed, since=5)), "ord32")
    assert report.verdict == "rejected"
    assert "is false" in reason


def test_a_closure_is_refused_with_a_remedy(tmp_path: Path) -> None:
    def closing(guard: OwnLoop) -> None:
        assert guard.task.optimizer is not None
        optimizer = potl.SpotCheckedOptimizer(guard.task.optimizer, guard)
        for _ in guard.steps():
            optimizer.step(lambda: 1.0)  # type: ignore[arg-type]

    _, report, reason = both(tmp_path, closing, "ord32")
    assert report.verdict == "inconclusive"
    assert "without a closure" in reason


def test_a_loop_that_sends_nothing_is_told_so(tmp_path: Path) -> None:
    _, report, reason = both(tmp_path, forgetful, "ord32")
    assert report.verdict == "inconclusive"
    assert "call optimizer.step(loss) in the loop" in reason


def test_only_the_tasks_own_optimizer_is_taken(tmp_path: Path) -> None:
    def other(guard: OwnLoop) -> None:
        potl.SpotCheckedOptimizer(torch.optim.SGD(guard.task.model.parameters(), lr=0.1), guard)

    _, report, reason = both(tmp_path, other, "ord32")
    assert report.verdict == "inconclusive"
    assert "not the agreed task's" in reason
