# SPDX-License-Identifier: Apache-2.0
"""Forged C++ trainings are rejected for what was forged, or not judged where decision 43 says so;
honest ones of other machines, seeds and sessions are accepted."""

import subprocess
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("potl._torch", reason="potl was built without torch")

from libtorch_played import Played  # noqa: E402

Play = Callable[..., Played]

# In way 2 a trainer computes in another arithmetic than the verifier, as another machine may: every
# segment ends in other bits, and is judged by its tolerance.
ELSEWHERE = {"arithmetic": "stock", "dark": 1, "way": 2}


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adam_alone"])
def test_an_honest_run_of_another_machine_is_accepted(
    play: Play, optimizer: str, seed: int
) -> None:
    played = play(**ELSEWHERE, optimizer=optimizer, seed=seed, interrupt=seed)
    assert (played.verdict, played.rules()) == ("accepted", set())
    equal = [f for f in played.report["findings"] if "bit for bit" in f["reason"]]
    assert len(equal) <= seed  # before the restart it computed as the verifier does


def test_an_honest_run_with_other_threads_is_accepted(play: Play) -> None:
    played = play(arithmetic="stock", dark=1, optimizer="adam", trainers=2, threads=3)
    assert (played.verdict, played.rules()) == ("accepted", set())


@pytest.mark.parametrize(
    ("optimizer", "cheat", "by", "rule"),
    [
        ("sgd", "lazy", 0, "replay.update_relative"),
        ("sgd", "copied", 0, "replay.update_relative"),
        ("sgd", "loss", 0.5, "loss.recomputed"),
        ("sgd", "rate", 2, "replay.update_relative"),
        ("sgd", "start", 0.01, "agreed.initial_state"),
        ("sgd", "splice", 0, "replay.parameters"),
        ("sgd", "buffers", 0.1, "replay.buffers"),
        ("sgd", "trigger", 0.1, "replay.parameters"),
    ],
)
def test_a_forged_run_is_rejected_for_what_was_forged(
    play: Play, optimizer: str, cheat: str, by: float, rule: str
) -> None:
    played = play(**ELSEWHERE, optimizer=optimizer, cheat=cheat, by=by)
    assert played.verdict == "rejected"
    assert rule in played.rules()


# A program without potl's arithmetics. The verifier's own repeats are ways 1 and 2.
ROUGH = {"arithmetic": "stock", "exact": 0, "dark": 1, "way": 3}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adam_alone"])
def test_without_potls_arithmetics_an_honest_run_of_another_machine_is_accepted(
    play: Play, optimizer: str
) -> None:
    played = play(**ROUGH, optimizer=optimizer, interrupt=12, threads=2)
    assert (played.verdict, played.rules()) == ("accepted", set())
    equal = [f for f in played.report["findings"] if "bit for bit" in f["reason"]]
    assert len(equal) <= 12


@pytest.mark.parametrize(
    ("optimizer", "cheat", "by", "rule"),
    [
        ("sgd", "lazy", 0, "replay.update_relative"),
        ("sgd", "copied", 0, "replay.update_relative"),
        ("adam_alone", "lazy", 0, "replay.update_relative"),
        ("sgd", "rate", 2, "replay.update_relative"),
        ("sgd", "splice", 0, "replay.parameters"),
        ("sgd", "buffers", 0.1, "replay.buffers"),
    ],
)
def test_without_potls_arithmetics_a_forged_run_is_rejected_too(
    play: Play, optimizer: str, cheat: str, by: float, rule: str
) -> None:
    played = play(**ROUGH, optimizer=optimizer, cheat=cheat, by=by)
    assert played.verdict == "rejected"
    assert rule in played.rules()


def test_a_moment_where_no_gradient_is_is_rejected_for_what_the_next_step_makes_of_it(
    play: Play,
) -> None:
    played = play(**ELSEWHERE, optimizer="adam_alone", cheat="moment", by=1e-5)
    assert (played.verdict, played.rules()) == ("rejected", {"replay.optimizer"})
    reasons = [f["reason"] for f in played.report["findings"] if f["result"] == "reject"]
    assert all("first.weight a step later is" in one for one in reasons)


@pytest.mark.parametrize(
    ("optimizer", "cheat", "where"),
    [
        ("sgd", "moment", "momentum_buffer where it has no gradient"),
        ("adam_alone", "moment", "exp_avg where it has no gradient"),
        ("sgd", "trigger", "first.weight where it has no gradient"),
    ],
)
def test_what_hides_where_no_gradient_is_is_not_accepted(
    play: Play, optimizer: str, cheat: str, where: str
) -> None:
    played = play(**ELSEWHERE, optimizer=optimizer, cheat=cheat, by=1e-8)
    assert (played.verdict, played.rules()) == ("inconclusive", set())
    assert any(where in f["reason"] for f in played.report["findings"])


def test_an_average_that_an_honest_model_keeps_is_accepted(play: Play) -> None:
    played = play(**ELSEWHERE, teacher=1, seed=11)
    assert (played.verdict, played.rules()) == ("accepted", set())


def test_what_hides_in_an_average_where_no_gradient_is_is_not_accepted(play: Play) -> None:
    played = play(**ELSEWHERE, teacher=1, cheat="teacher", by=1e-8)
    assert (played.verdict, played.rules()) == ("inconclusive", set())
    reasons = [f["reason"] for f in played.report["findings"]]
    assert any("buffers/teacher where it has no gradient" in one for one in reasons)


@pytest.mark.parametrize(
    ("cheat", "by", "rule"),
    [
        ("moment", 1e-9, "replay.optimizer"),
        ("trigger", 1e-9, "replay.parameters"),
        ("buffers", 1e-9, "replay.buffers"),
        ("loss", 1e-3, "loss.recomputed"),
        ("copied", 0, "replay.parameters"),
        ("splice", 0, "replay.parameters"),
    ],
)
def test_in_an_exact_arithmetic_whatever_was_forged_is_rejected(
    play: Play, cheat: str, by: float, rule: str
) -> None:
    played = play(arithmetic="ord32", dark=1, cheat=cheat, by=by)
    assert played.verdict == "rejected"
    assert rule in played.rules()


def test_a_client_whose_machine_makes_other_gradients_judges_nobody(play: Play) -> None:
    played = play(arithmetic="ord32", gradients="client")
    assert (played.verdict, played.rules()) == ("inconclusive", set())
    reasons = [f["reason"] for f in played.report["findings"]]
    assert any("step 1 ends in other bits on this machine" in one for one in reasons)


def test_a_trainer_whose_machine_makes_other_gradients_is_told_at_the_first_step(
    rehearse: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = rehearse(arithmetic="ord32", gradients="trainer")
    assert done.returncode == 2 and "step 1 ends in other bits on this machine" in done.stderr


@pytest.mark.parametrize("mode", ["stock", "ord32"])
def test_a_client_whose_losses_have_changed_judges_nobody(
    rehearse: Callable[..., "subprocess.CompletedProcess[str]"], mode: str
) -> None:
    done = rehearse(arithmetic=mode, losses="other")
    assert done.returncode == 2
    assert "the loss of step 1 is" in done.stderr
    assert "is not the agreed one" in done.stderr
