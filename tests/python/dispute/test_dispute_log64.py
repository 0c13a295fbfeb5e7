# SPDX-License-Identifier: Apache-2.0
"""Disputes in log64: the trainer's committed rounding log decides, within what it may decide."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import near_ties
import pytest
from disputed import Liar, false_run

import potl
from potl import _core
from potl._arithmetic import _rounded_steps

pytest.importorskip("potl._torch", reason="potl was built without torch")

Patch = pytest.MonkeyPatch
AT, PRODUCT = 7, 1
# The element whose last bit a Liar turns: the middle of the first product.
ELEMENT = near_ties.BATCH * near_ties.HIDDEN // 2


@dataclasses.dataclass
class Case:
    job: potl.Job
    key: _core.SigningKey
    honest: Path

    def party(self, run: Path, key: _core.SigningKey | None = None) -> potl.Party:
        return potl.Party(run, job=self.job, task=near_ties.build, key=key)

    def record(self, folder: Path, key: _core.SigningKey) -> Path:
        run = potl.record(near_ties.build, folder, job=self.job, key=key, check_job=False)
        run.commit()
        return folder

    def alone(self, folder: Path) -> potl.Party:
        """An auditor that follows nobody's log."""
        key = _core.SigningKey.generate()
        return self.party(self.record(folder, key), key)

    def audit(self, run: Path, log: Path) -> potl.Party:
        found = potl.audit(run, job=self.job, task=near_ties.build, log=log, to_the_end=True)
        assert found.commitment is not None
        return self.party(log)

    def liar(self, run: Path, key: _core.SigningKey, operator: int | None) -> Liar:
        false = false_run(near_ties.build, self.job, AT, run, key)
        return Liar(false, job=self.job, task=near_ties.build, key=key, at=AT, operator=operator)

    def dispute(self, trainer: potl.Party, auditor: potl.Party) -> potl.Verdict:
        verdict = potl.dispute(
            trainer=trainer, auditor=auditor, referee=potl.Referee(self.job, task=near_ties.build)
        )
        again = potl.judge(verdict.evidence, job=self.job, task=near_ties.build)
        assert again.believed == 0 and again.why == verdict.why
        assert potl.judge(verdict.evidence, job=self.job).winner == verdict.winner
        return verdict


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder, key = tmp_path_factory.mktemp("log64"), _core.SigningKey.generate()
    (folder / "trainer.pub").write_text(key.public_key.to_pem())
    job = potl.Job.create(
        near_ties.build,
        seed=3,
        checkpoint_every=3,
        arithmetic="log64",
        trainer=folder / "trainer.pub",
    )
    made = Case(job, key, folder / "run")
    made.record(made.honest, key)
    return made


def test_who_adds_in_another_order_has_nothing_to_dispute(
    case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as other:
        near_ties.other_order(other)
        run = case.record(tmp_path / "run", case.key)
    verdict = case.dispute(case.party(run, case.key), case.audit(run, tmp_path / "log"))
    assert verdict.why == "agreement"


@pytest.mark.parametrize("operator", [None, PRODUCT, 3, 8])
def test_a_lie_is_found_at_its_step_and_operator(
    operator: int | None, case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as other:  # another machine's logs, which the auditor follows
        near_ties.other_order(other)
        trainer = case.liar(tmp_path / "false", case.key, operator)
    verdict = case.dispute(trainer, case.audit(tmp_path / "false", tmp_path / "log"))
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "value", AT)
    if operator is not None:
        assert verdict.operator is not None and verdict.operator[0] == operator
    assert ("rounding" in verdict.facts) == (operator == PRODUCT)


def test_an_auditor_that_lies_loses(case: Case, tmp_path: Path) -> None:
    auditor = case.liar(tmp_path / "false", _core.SigningKey.generate(), PRODUCT)
    verdict = case.dispute(case.party(case.honest, case.key), auditor)
    assert (verdict.winner, verdict.why, verdict.step) == ("trainer", "value", AT)


def test_the_trainers_log_decides_between_two_roundings_that_are_possible(
    case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Both are honest ways to round; the auditor has to follow the trainer's."""
    own, other = near_ties.two_logs(AT)
    with monkeypatch.context() as steered:
        steered.setattr(
            _rounded_steps, "Trainer", _made(near_ties.Steered(AT, rounded=other, shown=other))
        )
        run = case.record(tmp_path / "run", case.key)
    trainer = case.party(run, case.key)
    follows = case.audit(run, tmp_path / "log")
    assert case.dispute(trainer, follows).why == "agreement"
    does_not = case.alone(tmp_path / "own")
    verdict = case.dispute(trainer, does_not)
    assert (verdict.winner, verdict.why, verdict.step) == ("trainer", "value", AT)
    assert verdict.facts["rounding"]["fault"] == "none"
    assert own != other


def test_a_trainer_that_contradicts_its_own_log_loses(
    case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    """It rounds as it may, and logs something else."""
    own, other = near_ties.two_logs(AT)
    with monkeypatch.context() as steered:
        steered.setattr(
            _rounded_steps, "Trainer", _made(near_ties.Steered(AT, rounded=other, shown=own))
        )
        run = case.record(tmp_path / "run", case.key)
    trainer = case.party(run, case.key)
    honest, follower = trainer._logs, _rounded_steps.Follower()

    def logs(step: int) -> Any:
        follower.expect(other, _core.rounding_log_digest(other))
        return follower if step == AT else honest(step)

    trainer._logs = logs
    verdict = case.dispute(trainer, case.audit(run, tmp_path / "log"))
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "value", AT)


def with_entry(log: bytes) -> bytes:
    """An entry at the element that a Liar turns, which is far from every tie."""
    found = _core.decode_rounding_log(log)
    entries = sorted({*found["entries"], (ELEMENT, True)})
    return _core.encode_rounding_log(bits=32, values=found["values"], entries=entries)


def test_an_entry_outside_the_band_excuses_nobody(
    case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as forger:
        near_ties.forge(forger, with_entry, at=AT)
        trainer = case.liar(tmp_path / "false", case.key, PRODUCT)
        run = case.record(tmp_path / "run", case.key)
    verdict = case.dispute(trainer, case.audit(tmp_path / "false", tmp_path / "log"))
    assert (verdict.winner, verdict.why, verdict.element) == ("auditor", "value", ELEMENT)
    assert verdict.facts["rounding"]["fault"] == "outside_window"
    # The entry is a fault though the trainer rounds rightly. Here the auditor lies, too.
    auditor = case.liar(tmp_path / "other", _core.SigningKey.generate(), PRODUCT)
    verdict = case.dispute(case.party(run, case.key), auditor)
    assert verdict.winner is None and verdict.trainer_wrong and verdict.auditor_wrong


def test_a_log_that_is_none_counts_as_one_without_entries(
    case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as forger:
        near_ties.forge(forger, lambda log: log + b"\0", at=AT)
        trainer = case.liar(tmp_path / "false", case.key, PRODUCT)
    verdict = case.dispute(trainer, case.audit(tmp_path / "false", tmp_path / "log"))
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "value", AT)


def left_out(rounding: dict[str, Any]) -> None:
    rounding.clear()


def other_log(rounding: dict[str, Any]) -> None:
    rounding["log"] = "AAAA"


def no_log(rounding: dict[str, Any]) -> None:
    rounding["log"] = None


def other_record(rounding: dict[str, Any]) -> None:
    rounding["records"][0]["index"] -= 1


def many_records(rounding: dict[str, Any]) -> None:
    rounding["records"] *= 100


@pytest.mark.parametrize("change", [left_out, other_log, no_log, other_record, many_records])
def test_a_trainer_that_does_not_show_its_log_loses(
    change: Callable[[dict[str, Any]], None], case: Case, tmp_path: Path
) -> None:
    trainer = case.liar(tmp_path / "false", case.key, PRODUCT)
    true = trainer.answer

    def answer(now: Any) -> bytes:
        document = json.loads(true(now))
        if "rounding" in document:
            change(document["rounding"])
        return _core.canonical_json(document)

    trainer.answer = answer  # type: ignore[method-assign]
    verdict = case.dispute(trainer, case.audit(tmp_path / "false", tmp_path / "log"))
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "opening", AT)


def test_the_last_record_of_a_resumed_run_counts(
    case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The disputed step was recorded twice, with two logs."""
    run, at = tmp_path / "run", 8
    own, other = near_ties.two_logs(at)
    with monkeypatch.context() as steered:
        steered.setattr(
            _rounded_steps, "Trainer", _made(near_ties.Steered(at, rounded=other, shown=other))
        )
        with potl.Prover(near_ties.build, run, job=case.job, key=case.key) as prover:
            for step in prover.steps():
                if step.number == at:
                    break
    case.record(run, case.key)
    evidence = _core.Evidence.open(str(run), job=None, commitment=None)
    assert [evidence.rounding_digest(at, i) for i in (0, 1)] == [
        _core.rounding_log_digest(one) for one in (other, own)
    ]
    does_not = case.alone(tmp_path / "own")
    assert case.dispute(case.party(run, case.key), does_not).why == "agreement"
    # Who claims the state of the first record has the second one's log against it.
    trainer = case.party(run, case.key)
    with monkeypatch.context() as steered:
        steered.setattr(
            _rounded_steps, "Trainer", _made(near_ties.Steered(at, rounded=other, shown=other))
        )
        lying = case.alone(tmp_path / "other")
    verdict = case.dispute(trainer, lying)
    assert (verdict.winner, verdict.step) == ("trainer", at)


def _made(one: Any) -> Callable[[], Any]:
    return lambda: one
