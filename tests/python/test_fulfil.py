# SPDX-License-Identifier: Apache-2.0
"""Whose fault an error is, with a session and evidence that fail on command."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from potl import LimitError, MismatchError, MissingError, StorageError
from potl._verify._fulfil import Replayer

SEGMENT = {
    "kind": "segment",
    "start": 4,
    "end": 8,
    "noise_repeats": 2,
    "superseded": False,
    "start_branch": 0,
}
LOSS = {"kind": "loss", "step": 5, "noise_repeats": 1}


class State:
    def __init__(self, name: str) -> None:
        self.name = name
        self.nbytes = len(name)

    def digest(self, threads: int = 1) -> bytes:
        return self.name.encode()


class Session:
    """Restores and runs names of states; `on_step`, `on_restore` and `on_batch` may raise."""

    def __init__(self) -> None:
        self.now = "own"
        self.on_step: Callable[[str, int], None] = lambda state, step: None
        self.on_restore: Callable[[str], None] = lambda state: None
        self.on_batch: Callable[[int], None] = lambda step: None
        self.perturbed: list[int] = []
        self.other = False
        self.is_reproducible = False

    def active(self) -> "contextlib.AbstractContextManager[None]":
        return contextlib.nullcontext()

    def capture(self) -> State:
        return State(self.now)

    def restore(self, state: State) -> None:
        self.on_restore(state.name)
        self.now = state.name

    def sample_ids(self, step: int) -> list[int]:
        return [step]

    def batches(self, first: int, last: int) -> Iterator[tuple[int, list[int], int]]:
        for step in range(first, last + 1):
            self.on_batch(step)
            yield step, [step], step

    def run_step(self, step: int, batch: int, *, rounding: Any = None) -> Any:
        self.on_step(self.now, step)
        self.now = f"{self.now}+"
        return SimpleNamespace(
            loss=1.0,
            rates=[0.1],
            random_draws=0,
            skipped=False,
            non_finite=False,
            gradient_norm=2.0,
        )

    def loss_at(
        self, step: int, ids: list[int], *, keep: bool = True, rounding: Any = None
    ) -> float:
        self.on_step(self.now, step)
        return 0.5

    @contextlib.contextmanager
    def perturb(self, index: int, *, threads_only: bool = False) -> Iterator[bool]:
        self.perturbed.append(index)
        self.other = not threads_only
        try:
            yield not threads_only
        finally:
            self.other = False


class Evidence:
    job = SimpleNamespace(arithmetic="stock", accumulate=1)

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.logged = 1.0
        self.poisoned = ""

    def not_finite(self, state: State) -> str:
        return f"{state.name} holds NaN" if state.name == self.poisoned else ""

    def expect_state_bytes(self, initial: int) -> None:
        assert initial > 0

    def load_state(self, step: int, branch: "int | None" = None) -> State:
        if self.error is not None:
            raise self.error
        return State(f"s{step}" if branch is None else f"b{branch}s{step}")

    def superseded(self) -> "list[dict[str, int]]":
        return [
            {"branch": 0, "from_step": 2, "last_step": 3, "start_branch": 0},
            {"branch": 1, "from_step": 4, "last_step": 6, "start_branch": 0},
        ]

    def superseded_steps(self) -> "dict[str, list[bytes]]":
        return {"state": [b"b0s2+", b"b0s4+", b"b0s4++"]}

    def steps(self) -> "dict[str, list[float]]":
        return {"loss": [1.0, 1.0, 1.0, 1.0, self.logged]}

    def state_digest(self, step: int) -> bytes:
        return b"s4" + b"+" * (step - 4)


def replayer(session: Session, evidence: "Evidence | None" = None, **options: Any) -> Replayer:
    return Replayer(session, evidence or Evidence(), **options)  # type: ignore[arg-type]


def test_a_replay_that_ends_in_the_recorded_state_needs_no_noise() -> None:
    session = Session()
    answer = replayer(session).fulfil(SEGMENT)
    assert answer["status"] == "ok" and answer["digest_equal"]
    assert answer["losses"] == [1.0] * 4 and answer["gradient_norm_mean"] == 2.0
    assert session.perturbed == []


@pytest.mark.parametrize("poisoned", ["s4", "s4++++"])
def test_states_of_a_replay_that_ends_in_the_recorded_bits_are_looked_at(poisoned: str) -> None:
    evidence = Evidence()
    evidence.poisoned = poisoned
    answer = replayer(Session(), evidence).fulfil(SEGMENT)
    assert answer["digest_equal"] and answer["not_finite"] == f"{poisoned} holds NaN"


def test_the_state_of_a_recomputed_loss_is_looked_at() -> None:
    evidence = Evidence()
    evidence.poisoned = "s4"
    assert replayer(Session(), evidence).fulfil(LOSS)["not_finite"] == "s4 holds NaN"


def test_a_superseded_range_is_compared_with_its_own_records() -> None:
    request = {**SEGMENT, "end": 6, "branch": 1, "superseded": True, "start_branch": 0}
    assert replayer(Session()).fulfil(request)["digest_equal"]
    other = {**request, "branch": 0, "start": 2, "end": 3}
    assert replayer(Session()).fulfil(other)["digest_equal"]


def test_a_loss_that_equals_the_log_needs_no_noise() -> None:
    session, evidence = Session(), Evidence()
    evidence.logged = 0.5
    assert replayer(session, evidence).fulfil(LOSS)["noise"] == []
    assert session.perturbed == []


def test_a_loss_that_differs_is_repeated_under_perturbation() -> None:
    session = Session()
    answer = replayer(session).fulfil(LOSS)
    assert (answer["loss"], answer["noise"]) == (0.5, [0.5])
    assert session.perturbed == [0]


def test_a_state_that_is_not_there_is_withheld() -> None:
    evidence = Evidence()
    evidence.error = MissingError("no step-4.safetensors")
    assert replayer(Session(), evidence).fulfil(SEGMENT)["status"] == "withheld"


def test_a_state_with_another_digest_is_tampered() -> None:
    evidence = Evidence()
    evidence.error = MismatchError("step-4.safetensors")
    assert replayer(Session(), evidence).fulfil(SEGMENT)["status"] == "tampered"


@pytest.mark.parametrize(
    "error",
    [StorageError("read error"), LimitError("vast"), OSError("gone"), MemoryError()],
)
def test_trouble_with_the_verifiers_own_disk_or_memory_is_its_own(error: Exception) -> None:
    evidence = Evidence()
    evidence.error = error
    assert replayer(Session(), evidence).fulfil(SEGMENT)["status"] == "verifier_error"


def test_a_step_that_always_fails_is_the_verifiers_error() -> None:
    session = Session()

    def fail(state: str, step: int) -> None:
        raise RuntimeError("no such operator")

    session.on_step = fail
    answer = replayer(session).fulfil(SEGMENT)
    assert answer["status"] == "verifier_error"
    assert "no such operator" in answer["message"]


def test_a_step_that_fails_only_on_the_recorded_state_is_the_provers() -> None:
    session = Session()

    def fail(state: str, step: int) -> None:
        if state.startswith("s4"):
            raise RuntimeError("index out of range")

    session.on_step = fail
    assert replayer(session).fulfil(SEGMENT)["status"] == "prover_error"
    assert replayer(session).fulfil(LOSS)["status"] == "prover_error"


def test_a_failure_that_does_not_come_again_is_forgotten() -> None:
    session = Session()
    failures = [RuntimeError("once")]

    def fail(state: str, step: int) -> None:
        if state.startswith("s4") and failures:
            raise failures.pop()

    session.on_step = fail
    assert replayer(session).fulfil(SEGMENT)["status"] == "ok"


def test_a_state_that_cannot_be_restored_is_the_provers() -> None:
    session = Session()

    def fail(state: str) -> None:
        if state == "s4":
            raise ValueError("unexpected tensor")

    session.on_restore = fail
    assert replayer(session).fulfil(SEGMENT)["status"] == "prover_error"


def test_memory_running_out_in_a_step_is_the_verifiers_error() -> None:
    session = Session()

    def fail(state: str, step: int) -> None:
        if state.startswith("s4"):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    session.on_step = fail
    assert replayer(session).fulfil(SEGMENT)["status"] == "verifier_error"


def test_data_that_cannot_be_read_is_the_verifiers_error() -> None:
    session = Session()

    def fail(step: int) -> None:
        if step == 6:
            raise KeyError("image 6")

    session.on_batch = fail
    assert replayer(session).fulfil(SEGMENT)["status"] == "verifier_error"


def test_a_replay_beyond_its_time_limit_is_the_verifiers_error() -> None:
    answer = replayer(Session(), timeout=-1.0).fulfil(SEGMENT)
    assert answer["status"] == "verifier_error" and "time limit" in answer["message"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_passed_on(interrupt: type[BaseException]) -> None:
    session = Session()

    def fail(state: str, step: int) -> None:
        raise interrupt

    session.on_step = fail
    with pytest.raises(interrupt):
        replayer(session).fulfil(SEGMENT)


def test_a_replay_that_ends_elsewhere_is_not_equal() -> None:
    evidence = Evidence()
    evidence.superseded_steps = lambda: {"state": [b"b0s2+", b"b0s4+", b"another"]}
    request = {**SEGMENT, "end": 6, "superseded": True, "branch": 1, "noise_repeats": 0}
    session = Session()
    session.is_reproducible = True
    answer = replayer(session, evidence).fulfil(request)
    assert answer["status"] == "ok" and not answer["digest_equal"]
    assert answer["first_differing_step"] == 6


def superseded(
    monkeypatch: pytest.MonkeyPatch, *, repeats: int
) -> "tuple[Evidence, dict[str, Any]]":
    monkeypatch.setattr("potl._core.compare_states", lambda *states: [])
    evidence = Evidence()
    evidence.superseded_steps = lambda: {"state": [b"b0s2+", b"b0s4+", b"another"]}
    request = {**SEGMENT, "end": 6, "superseded": True, "branch": 1, "noise_repeats": repeats}
    return evidence, request


def test_a_repeat_runs_in_another_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, request = superseded(monkeypatch, repeats=2)
    session = Session()
    answer = replayer(session, evidence).fulfil(request)
    assert session.perturbed == [0, 1]
    assert answer["other_arithmetic"] and len(answer["noise"]) == len(answer["noise_losses"]) == 2


def test_noise_is_between_the_replay_and_repeats_from_the_same_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence, request = superseded(monkeypatch, repeats=2)
    compared: list[tuple[str, ...]] = []

    def compare(*states: State) -> list[Any]:
        compared.append(tuple(state.name for state in states))
        return []

    monkeypatch.setattr("potl._core.compare_states", compare)
    session = Session()
    session.on_step = lambda state, step: setattr(
        session, "now", session.now + ("~" if session.other else "")
    )
    answer = replayer(session, evidence).fulfil(request)
    assert compared == [("b0s4", "b0s4++", "b0s4~+~+")] * 2
    assert answer["noise_losses"] == [[1.0, 1.0]] * 2


def test_what_fails_in_another_arithmetic_alone_is_repeated_with_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence, request = superseded(monkeypatch, repeats=1)
    session = Session()

    def refuse(state: str, step: int) -> None:
        if session.other:
            raise ValueError("no form in it")

    session.on_step = refuse
    answer = replayer(session, evidence).fulfil(request)
    assert answer["status"] == "ok" and len(answer["noise"]) == 1
    assert not answer["other_arithmetic"]


def test_noise_is_measured_of_equal_bits_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("potl._core.compare_states", lambda *states: [])
    request = {**SEGMENT, "noise_repeats": 2, "noise_if_equal": True}
    answer = replayer(Session()).fulfil(request)
    assert answer["digest_equal"] and len(answer["noise"]) == 2


def test_a_step_that_fails_in_another_way_each_time_blames_nobody() -> None:
    session = Session()
    kinds = [ValueError, KeyError]

    def fail(state: str, step: int) -> None:
        if state != "own":
            raise kinds.pop(0)("s4")

    session.on_step = fail
    assert replayer(session).fulfil(SEGMENT)["status"] == "verifier_error"
    assert kinds == []
