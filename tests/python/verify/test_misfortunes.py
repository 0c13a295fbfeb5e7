# SPDX-License-Identifier: Apache-2.0
"""Whose fault an error is, with a workload that fails on command: the table that C++ goes through,
too (tests/misfortunes.json), and what only Python has.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import potl
from potl import _core
from potl._attacks import Scene, _tasks as tasks
from potl._attacks._story import Build
from potl._job._session import Session
from potl._verify._schema import Schema
from potl._verify._workload import Workload

CASES = json.loads((Path(__file__).parents[2] / "misfortunes.json").read_text())["cases"]
START, END = 4, 8
REQUESTS = {
    "segment": _core.SegmentRequest(start=START, end=END, noise_repeats=2),
    "loss": _core.LossRequest(step=START + 1, noise_repeats=1),
    "subset_loss": _core.SubsetLossRequest(step=START, sample_ids=[0, 1, 2]),
}
ERRORS: dict[str, list[BaseException]] = {
    "ordinary": [ValueError("no such operator")],
    "alternating": [ValueError("no such operator"), KeyError("image 6")],
    "memory": [MemoryError()],
    "allocation": [RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    "files": [OSError("Input/output error")],
}


class Failing(Workload):
    """Fails in one function, on the recorded state or always, so many times (0: without end)."""

    where = ""
    always = True
    left = 0
    errors: Iterator[BaseException] = iter(())
    perturbed: list[int]

    def prepare(self, where: str, *, at: str, times: int, errors: list[BaseException]) -> None:
        self.where, self.always = where, at == "always"
        self.left = times or 1 << 30
        self.errors = itertools.cycle(errors)

    def _maybe_fail(self, where: str, *, recorded: bool) -> None:
        if where == self.where and self.left and (recorded or self.always):
            self.left -= 1
            raise next(self.errors)

    @property
    def _is_recorded(self) -> bool:
        return self._restored != self.initial().digest()

    def load_state(self, state: _core.State, step: int) -> None:
        self._restored = state.digest()
        self._maybe_fail("load_state", recorded=self._is_recorded)
        super().load_state(state, step)

    def fetch(self, step: int, ids: list[int]) -> None:
        self._maybe_fail("fetch", recorded=self._is_recorded)
        super().fetch(step, ids)

    def run_step(self, step: int) -> Any:
        self._maybe_fail("run_step", recorded=self._is_recorded)
        return super().run_step(step)

    def capture(self) -> _core.State:
        self._maybe_fail("capture", recorded=self._is_recorded)
        return super().capture()

    def batch_loss(self, step: int) -> float:
        self._maybe_fail("batch_loss", recorded=self._is_recorded)
        return super().batch_loss(step)

    def subset_loss(self, ids: list[int]) -> tuple[float, float]:
        self._maybe_fail("subset_loss", recorded=self._is_recorded)
        return super().subset_loss(ids)

    def perturb(self, way: int, threads_only: bool) -> bool:
        if way:
            self.perturbed.append(way)
        return super().perturb(way, threads_only)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), tasks.plain, checkpoint_every=4)


class Driven:
    """A copy of an honest run under a workload that fails on command."""

    def __init__(self, scene: Scene, session: Session, run: Path, **options: Any) -> None:
        self.evidence = _core.Evidence.open(
            str(run), job=scene.job.core, commitment=scene.honest.commitment
        )
        schema = Schema(session, self.evidence)
        self.work = Failing(session, schema, follows=False)
        self.work.perturbed = []
        self.session = session
        self.replayer = _core.Replayer(self.evidence, self.work, **options)

    def answer(self, request: _core.Request) -> Any:
        with self.session.active():
            return self.replayer.answer(request)


@pytest.fixture
def session(scene: Scene) -> Iterator[Session]:
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_misfortune_ends_as_in_cpp(scene: Scene, session: Session, case: dict[str, Any]) -> None:
    run = scene.copy_of(scene.honest.run, "misfortune", uncommitted=False)
    late = {"timeout": 1e-9} if case["in"] == "time" else {}
    driven = Driven(scene, session, run, **late)
    checkpoint = run / "checkpoints" / f"step-{START}.safetensors"
    if case["in"] == "missing file":
        checkpoint.unlink()
    elif case["in"] == "damaged file":
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"?")
    driven.work.prepare(
        case["in"], at=case["at"], times=case["times"], errors=ERRORS[case["error"]]
    )
    answer = driven.answer(REQUESTS[case["request"]])
    assert answer.status == case["status"], answer.message
    assert (answer.message == "") == (answer.status == "ok")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit()])
@pytest.mark.parametrize("where", ["load_state", "fetch", "run_step", "capture"])
def test_interrupts_are_passed_on(
    scene: Scene, session: Session, interrupt: BaseException, where: str
) -> None:
    driven = Driven(scene, session, scene.honest.run)
    driven.work.prepare(where, at="recorded", times=0, errors=[interrupt])
    with pytest.raises(type(interrupt)):
        driven.answer(REQUESTS["segment"])


def test_a_replay_that_ends_in_the_recorded_state_needs_no_noise(
    scene: Scene, session: Session
) -> None:
    driven = Driven(scene, session, scene.honest.run)
    answer = driven.answer(REQUESTS["segment"])
    assert answer.digest_equal and len(answer.losses) == END - START
    assert answer.gradient_norm_mean > 0
    assert driven.work.perturbed == []
    asked = _core.SegmentRequest(start=START, end=END, noise_repeats=2, noise_if_equal=True)
    answer = driven.answer(asked)
    assert driven.work.perturbed == [1, 2]
    assert len(answer.noise) == len(answer.noise_losses) == 2


def test_a_loss_that_equals_the_log_needs_no_noise(scene: Scene, session: Session) -> None:
    driven = Driven(scene, session, scene.honest.run)
    assert driven.answer(REQUESTS["loss"]).noise == []
    assert driven.work.perturbed == []


def test_the_state_of_a_request_is_looked_at(
    scene: Scene, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = Driven(scene, session, scene.honest.run)
    monkeypatch.setattr(driven.work, "not_finite", lambda state: "w holds NaN")
    for request in REQUESTS.values():
        assert driven.answer(request).not_finite == "w holds NaN"


@pytest.mark.parametrize("at", [START, END])
def test_both_ends_of_a_segment_are_looked_at(
    scene: Scene, session: Session, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    driven = Driven(scene, session, scene.honest.run)
    poisoned = driven.evidence.state_digest(at)
    monkeypatch.setattr(
        driven.work,
        "not_finite",
        lambda state: "w holds NaN" if state.digest() == poisoned else "",
    )
    answer = driven.answer(REQUESTS["segment"])
    assert answer.digest_equal and answer.not_finite == "w holds NaN"


def test_a_state_that_is_none_of_the_tasks_ends_the_request(
    scene: Scene, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = Driven(scene, session, scene.honest.run)
    for status in ("unknown_form", "unlawful"):
        monkeypatch.setattr(driven.work, "problem", lambda *_, s=status: (s, "model/w"))
        for request in REQUESTS.values():
            answer = driven.answer(request)
            assert answer.status == status and answer.message.endswith(": model/w")
        driven = Driven(scene, session, scene.honest.run)  # which keeps no state


class Stock:
    """A run in stock arithmetic, whose segment of steps 5 to 8 ends elsewhere here."""

    off = 1e-5

    @pytest.fixture
    def driven(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
        scene = Scene(tmp_path, tasks.plain, checkpoint_every=4, arithmetic="stock")
        with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
            driven = Driven(scene, session, scene.honest.run)
            step = driven.work.run_step

            def elsewhere(number: int) -> Any:
                done = step(number)
                with potl.deterministic():
                    for parameter in session.task.model.parameters():
                        parameter.data += self.off
                return done

            monkeypatch.setattr(driven.work, "run_step", elsewhere)
            monkeypatch.setattr(driven.work, "is_linear", lambda: False)
            yield driven


def at_rates(share_at: Callable[[int], float]) -> Build:
    """A task with these shares of its rate."""

    def build() -> potl.Task:
        task = tasks.plain()
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            task.optimizers[0], lambda before: share_at(before + 1)
        )
        task.schedulers = (scheduler,)
        return task

    return build


@pytest.mark.parametrize(
    ("share", "behind", "linear", "groups"),
    [
        (0.5, 1, True, 4),
        (0.4, 1, True, 6),
        (0.5, 1, False, 6),
        (1, -2, True, 4),
        (1, -2.5, True, 6),
        (-1, -0.4, True, 4),
    ],
)
def test_no_step_behind_a_segment_is_taken_where_nothing_divides_and_no_rate_grows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    behind: float,
    linear: bool,
    groups: int,
) -> None:
    build = at_rates(lambda step: share if step <= END else behind)
    scene = Scene(tmp_path, build, checkpoint_every=4, arithmetic="stock")
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        driven = Driven(scene, session, scene.honest.run)
        assert driven.work.is_linear()
        monkeypatch.setattr(driven.work, "is_linear", lambda: linear)
        # The honest run ends in the same bits: the repeat shows how far was looked.
        asked = _core.SegmentRequest(start=START, end=END, noise_repeats=1, noise_if_equal=True)
        (repeat,) = driven.answer(asked).noise
        assert len(repeat) == groups


def test_steps_are_taken_until_rates_below_zero_are_no_longer_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = at_rates(lambda step: -0.4 if step == END + 1 else -1)
    scene = Scene(tmp_path, build, checkpoint_every=4, arithmetic="stock")
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        driven = Driven(scene, session, scene.honest.run)
        monkeypatch.setattr(driven.work, "is_linear", lambda: False)
        run_step, taken = driven.work.run_step, []

        def counted(step: int) -> Any:
            taken.append(step)
            return run_step(step)

        monkeypatch.setattr(driven.work, "run_step", counted)
        driven.answer(_core.SegmentRequest(start=START, end=END, noise_if_equal=True))
        assert taken == [*range(START + 1, END + 1), END + 1, END + 2]


class TestFar(Stock):
    off = 1e-3

    def test_the_first_segment_is_repeated_once_where_only_noise_could_excuse(
        self, driven: Driven
    ) -> None:
        for _ in range(2):
            assert driven.answer(REQUESTS["segment"]).status == "ok"
        assert driven.work.perturbed == [1, 2] * 3  # of both requests, and of steps 1 to 4

    def test_a_failure_of_the_first_segment_accuses_no_other(
        self, driven: Driven, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = driven.work.run_step

        def refuse(number: int) -> Any:
            if number <= START:
                raise ValueError("no such operator")
            return step(number)

        monkeypatch.setattr(driven.work, "run_step", refuse)
        answer = driven.answer(REQUESTS["segment"])
        assert answer.status == "verifier_error"

    def test_repeats_of_the_first_segment_have_one_time_limit(
        self, driven: Driven, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step = driven.work.run_step

        def slow(number: int) -> Any:
            if number <= START:
                time.sleep(0.05)
            return step(number)

        monkeypatch.setattr(driven.work, "run_step", slow)
        driven.replayer = _core.Replayer(driven.evidence, driven.work, timeout=0.6)
        answer = driven.answer(REQUESTS["segment"])
        assert answer.status == "verifier_error" and "time limit" in answer.message


class TestStock(Stock):
    def test_a_repeat_runs_in_another_arithmetic(self, driven: Driven) -> None:
        answer = driven.answer(REQUESTS["segment"])
        assert not answer.digest_equal and answer.other_arithmetic
        assert driven.work.perturbed == [1, 2]
        assert len(answer.noise) == len(answer.noise_losses) == 2
        assert answer.distances[0].group == "parameters"

    def test_the_step_after_the_segment_is_compared_too(self, driven: Driven) -> None:
        answer = driven.answer(_core.SegmentRequest(start=START, end=END, noise_repeats=1))
        (noise,) = answer.noise
        for groups in (answer.distances, noise):
            assert [one.group for one in groups[4:]] == ["next", "next_buffers"]
            assert 0 < groups[4].l2 < 2 * groups[0].l2
            assert all(one.path.endswith(" a step later") for one in groups[4].tensors)
        assert len(answer.losses) == END - START
        last = driven.evidence.job.steps
        answer = driven.answer(_core.SegmentRequest(start=last - 4, end=last, noise_repeats=1))
        assert len(answer.distances) == len(answer.noise[0]) == 4

    @pytest.mark.parametrize(
        ("updated", "steps"),
        [
            ({}, END - START),
            ({END + 1: "ab"}, 1),
            ({END + 2: "ab"}, 2),
            ({END + 1: "a", END + 2: "b"}, 2),
            ({END + 1: "b", END + 3: "a"}, 3),
        ],
    )
    def test_steps_are_taken_until_everything_was_updated_again(
        self,
        driven: Driven,
        monkeypatch: pytest.MonkeyPatch,
        updated: dict[int, str],
        steps: int,
    ) -> None:
        """A scaler leaves steps out, and optimizers may take turns. `c` was never updated."""
        step, taken = driven.work.run_step, []

        def counted(number: int) -> Any:
            taken.append(number)
            return step(number)

        def still() -> list[tuple[list[str], bytes, int]]:
            now = "ab" if taken[-1] <= END else updated.get(taken[-1], "")
            return [([one], bytes([1, one not in now]), 0) for one in "abc"]

        monkeypatch.setattr(driven.work, "run_step", counted)
        monkeypatch.setattr(driven.work, "still", still)
        driven.answer(_core.SegmentRequest(start=START, end=END))
        further = range(END + 1, END + 1 + steps)
        assert taken == [*range(START + 1, END + 1), *further, *further]

    @pytest.mark.parametrize(
        ("rates", "steps"),
        [
            ([0.05], 1),
            ([0.026], 1),
            ([0.024, 0.05], 2),
            ([0.0] * 9, END - START),
            ([None, 0.05], 2),
        ],
    )
    def test_steps_are_taken_until_rates_are_no_longer_low(
        self,
        driven: Driven,
        monkeypatch: pytest.MonkeyPatch,
        rates: list[float | None],
        steps: int,
    ) -> None:
        """Agreed is 0.05. None: the scaler leaves the step out."""
        step, taken = driven.work.run_step, []

        def at_a_rate(number: int) -> Any:
            taken.append(number)
            done = step(number)
            if number <= END:
                return done
            rate = rates[number - END - 1]
            return dataclasses.replace(
                done, rates=[0.05 if rate is None else rate], skipped=rate is None
            )

        monkeypatch.setattr(driven.work, "run_step", at_a_rate)
        monkeypatch.setattr(driven.work, "still", list)
        driven.answer(_core.SegmentRequest(start=START, end=END))
        further = range(END + 1, END + 1 + steps)
        assert taken == [*range(START + 1, END + 1), *further, *further]

    def test_what_had_no_gradient_is_compared_by_itself(self, driven: Driven) -> None:
        answer = driven.answer(_core.SegmentRequest(start=START, end=END))
        still = [one for one in answer.distances[0].tensors if one.judged == "unmoved"]
        weight = next(one for one in still if one.path.startswith("model/parameters/0.weight"))
        unused = (tasks.digits(tasks.SMALL).tensors[0] == 0).all(0)
        assert weight.count >= 32 * int(unused.sum()) > 0
        assert weight.excess > 0

    def test_a_repeat_with_rough_sums_is_told_apart_from_noise(self, driven: Driven) -> None:
        asked = _core.SegmentRequest(start=START, end=END, noise_repeats=1, rough_repeats=2)
        answer = driven.answer(asked)
        assert len(answer.noise) == 1 and len(answer.rough) == len(answer.rough_losses) == 2
        assert answer.repeat_skipped == [answer.skipped] * 3
        (noise,), rough = answer.noise, answer.rough
        assert 0 < noise[0].l2 < 1e-3 and all(0 < one[0].l2 < 1e-3 for one in rough)
        assert rough[0][0].l2 != rough[1][0].l2
        plain = driven.answer(REQUESTS["segment"])
        assert plain.rough == [] and plain.losses == answer.losses

    def test_what_fails_with_rough_sums_alone_is_nobodys_fault(
        self, driven: Driven, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        roughen, perturb, step = driven.work.roughen, driven.work.perturb, driven.work.run_step
        rough = [False]

        def roughening(seed: int) -> bool:
            rough.append(True)
            return roughen(seed)

        def perturbing(way: int, threads_only: bool) -> bool:
            rough.append(False)
            return perturb(way, threads_only)

        def refuse(number: int) -> Any:
            if rough[-1]:
                raise ValueError("too rough")
            return step(number)

        monkeypatch.setattr(driven.work, "roughen", roughening)
        monkeypatch.setattr(driven.work, "perturb", perturbing)
        monkeypatch.setattr(driven.work, "run_step", refuse)
        asked = _core.SegmentRequest(start=START, end=END, noise_repeats=1, rough_repeats=2)
        answer = driven.answer(asked)
        assert answer.status == "ok" and answer.rough == [] and len(answer.noise) == 1
        assert rough.count(True) == 2 and not rough[-1]

    def test_what_fails_in_another_arithmetic_alone_is_repeated_with_other_threads(
        self, driven: Driven, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        perturb, step = driven.work.perturb, driven.work.run_step
        ways: list[tuple[int, bool]] = [(0, False)]

        def perturbing(way: int, threads_only: bool) -> bool:
            ways.append((way, threads_only))
            return perturb(way, threads_only)

        def refuse(number: int) -> Any:
            if ways[-1][0] and not ways[-1][1]:
                raise ValueError("no form in it")
            return step(number)

        monkeypatch.setattr(driven.work, "perturb", perturbing)
        monkeypatch.setattr(driven.work, "run_step", refuse)
        answer = driven.answer(_core.SegmentRequest(start=START, end=END, noise_repeats=1))
        assert answer.status == "ok" and len(answer.noise) == 1
        assert not answer.other_arithmetic
