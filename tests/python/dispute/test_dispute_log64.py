# SPDX-License-Identifier: Apache-2.0
"""Disputes in log64: the trainer's committed rounding log decides, within what it may decide."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import disputed
import near_ties
import pure_format
import pytest
import torch
import traced_nets
import zoo
from disputed import Liar, false_run
from places import HELPERS
from torch import nn

import potl
from potl import _core
from potl._arithmetic import _rounded_steps
from potl._dispute._derive import derive_operators
from potl._dispute._regions import multiply_adds

pytest.importorskip("potl._torch", reason="potl was built without torch")

Patch = pytest.MonkeyPatch
FULL = bool(os.environ.get("POTL_FULL"))
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


RECORD = """
import sys, near_ties, potl
potl.record(near_ties.build, sys.argv[1], job=sys.argv[2], key=sys.argv[3]).commit()
"""


def elsewhere(*command: str) -> None:
    """Runs on a machine without vector instructions, in one thread."""
    environment = {
        **os.environ,
        "POTL_ISA": "portable",
        "ATEN_CPU_CAPABILITY": "default",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("recorded", ["here", *(["elsewhere"] if FULL else [])])
def test_another_machine_has_nothing_to_dispute(
    recorded: str, case: Case, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Other instructions, other threads, and of the run that is made here another order."""
    run, log, job = (tmp_path / one for one in ("run", "log", "job.json"))
    key = tmp_path / "key.pem"
    key.write_text(case.key.to_pem())
    case.job.write(job)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        if recorded == "here":
            with monkeypatch.context() as other:
                near_ties.other_order(other)
                case.record(run, case.key)
            how = ["--job", str(job), "--task", "near_ties:build", "--log", str(log)]
            elsewhere("-m", "potl", "audit", str(run), *how, "--to-the-end")
        else:
            elsewhere("-c", RECORD, str(run), str(job), str(key))
            case.audit(run, log)
        verdict = case.dispute(case.party(run, case.key), case.party(log))
    finally:
        torch.set_num_threads(before)
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


def test_a_long_log_hides_nobody(case: Case, tmp_path: Path, monkeypatch: Patch) -> None:
    """Of as many entries as fit; what is longer no record binds."""
    most = _core.MAX_ROUNDING_LOG_BYTES
    size = most if FULL else most // 8
    values = (size - 20) * 4  # every one logged, with two bits
    flood = struct.pack("<BBBBQQ", 1, 32, 0, 0, values, values) + b"\xff" * (size - 20)
    assert _core.part_of_rounding_log(
        flood, bits=32, first=values - 2, count=9, place=3, values=9
    ) == _core.encode_rounding_log(bits=32, values=9, entries=[(3, True), (4, True)])
    with monkeypatch.context() as forger:
        near_ties.forge(forger, lambda log: flood, at=AT)
        trainer = case.liar(tmp_path / "false", case.key, PRODUCT)
    auditor = case.audit(tmp_path / "false", tmp_path / "log")
    verdict = case.dispute(trainer, auditor)
    assert (verdict.winner, verdict.why, verdict.element) == ("auditor", "value", ELEMENT)
    with monkeypatch.context() as forger:
        near_ties.forge(forger, lambda log: bytes(most + 1), at=AT)
        with pytest.raises(potl.UsageError, match="more than 4194304 bytes"):
            case.record(tmp_path / "longer", case.key)
    false = pure_format.Run.read(tmp_path / "false")
    false.change(false.steps()[AT - 1], rounding=(bytes(32), most + 1))
    false.write()
    (tmp_path / "false" / "commitment").unlink()
    with pytest.raises(potl.PotlError, match=f"rounding log of {most + 1} bytes"):
        case.audit(tmp_path / "false", tmp_path / "other log")


def test_a_log_leaves_room_for_the_outline_of_a_large_state(case: Case) -> None:
    referee, outline = potl.Referee(case.job, task=near_ties.build), 800 << 10
    referee.__dict__["_first"] = (outline, 1)
    level = SimpleNamespace(asked=False, claimed=(bytes(32), bytes(32)))
    # Both open one end, so that a NaN in it may be shown, too.
    ends = (SimpleNamespace(leaf=b""), SimpleNamespace(leaf=b""))
    now: Any = SimpleNamespace(step=1, bisections=[level], openings=ends)
    asked = referee._in_steps(now)
    assert isinstance(asked, _core.DisputeQuestion)
    assert json.loads(asked.text) == {"ask": "state", "end": True}
    log = _core.MAX_ROUNDING_LOG_BYTES * 4 // 3
    assert log + 6 * outline < asked.max_bytes <= 16 << 20


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
    true = trainer._answer

    def answer(now: Any) -> bytes:
        document = json.loads(true(now))
        if "rounding" in document:
            change(document["rounding"])
        return _core.canonical_json(document)

    trainer._answer = answer  # type: ignore[method-assign]
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


def small_convolutions() -> potl.Task:
    net = nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2)),
        *(nn.Flatten(), nn.Linear(72, 10)),
    )
    return short(traced_nets.task(net, zoo.digits(), 4, traced_nets.sgd(net)))


def short(task: potl.Task) -> potl.Task:
    task.max_steps = 5
    return task


REAL: dict[str, Callable[[], potl.Task]] = {
    "small": small_convolutions,
    "resnet20": lambda: short(traced_nets.resnet20()),
    "gpt": lambda: short(traced_nets.gpt()),
}


@pytest.mark.parametrize("name", list(REAL) if FULL else ["small"])
def test_lies_in_nets_are_found(name: str, tmp_path: Path) -> None:
    build, at = REAL[name], 4
    one = disputed.case(build, tmp_path, "log64")
    assert (
        potl.dispute(trainer=one.honest(), auditor=one.auditor(), referee=one.referee()).why
        == "agreement"
    )
    before = one.honest()._story(at).before
    operators = list(derive_operators(build, one.job, at, before=before))
    products = sum(map(multiply_adds, operators))
    lies = {}
    for number, operator in enumerate(operators):
        if operator.rounded is not None and operator.results[0] is not None:
            lies[operator.name] = number
    assert len(lies) > 3
    for who in ("trainer", "auditor"):
        key = one.key if who == "trainer" else _core.SigningKey.generate()
        path = tmp_path / who
        false_run(build, one.job, at, path, key)
        followed = tmp_path / "log"
        if who == "trainer":
            potl.audit(path, job=one.job, task=build, log=followed, to_the_end=True)
        some = lies.values() if FULL or who == "trainer" else list(lies.values())[:1]
        for number in some:
            liar = Liar(path, job=one.job, task=build, key=key, at=at, operator=number)
            honest = one.party(followed) if who == "trainer" else one.honest()
            trainer, auditor = (liar, honest) if who == "trainer" else (honest, liar)
            verdict = potl.dispute(trainer=trainer, auditor=auditor, referee=one.referee())
            other = "auditor" if who == "trainer" else "trainer"
            assert (verdict.winner, verdict.why, verdict.step) == (other, "value", at)
            assert verdict.operator == (number, operators[number].name)
            cost = verdict.facts["multiply_adds"]
            assert isinstance(cost, int) and (name == "small" or cost <= products / 100)
