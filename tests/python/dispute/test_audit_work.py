# SPDX-License-Identifier: Apache-2.0
"""An auditor that worked is told from one that copied the trainer's digests (A27)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import places
import pytest
import torch
import traced_nets
from disputed import false_build, kill_audit

import potl
from potl import _core
from potl._cli import _cli
from potl._dispute import _work_check

pytest.importorskip("potl._torch", reason="potl was built without torch")

EVERY, STEPS = 8, 57
NONCE = bytes(range(32))

build = traced_nets.mlp


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return potl.Job.create(build, seed=3, checkpoint_every=EVERY)


@pytest.fixture(scope="module")
def run(job: potl.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorded = potl.record(build, tmp_path_factory.mktemp("trainer") / "run", job=job)
    recorded.commit()
    return recorded.path


@pytest.fixture(scope="module")
def honest(run: Path, job: potl.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("auditor") / "log"
    note = (run / "commitment").read_text()
    found = potl.audit(run, job=job, task=build, log=log, nonce=NONCE, commitment=note)
    assert found.agrees is True
    return log


@pytest.fixture
def check(run: Path, job: potl.Job) -> Callable[..., potl.AuditCheck]:
    def checked(log: Path, **options: Any) -> potl.AuditCheck:
        given = {"run": run, "job": job, "task": build, "nonce": NONCE, "steps": STEPS}
        return potl.check_audit(log, **(given | options))

    return checked


Check = Callable[..., potl.AuditCheck]


def copy_of(log: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(log, tmp_path / "copy"))


def sign(log: Path, job: potl.Job, codes: list[bytes], key: _core.SigningKey | None = None) -> None:
    """Writes these codes and signs them, as an auditor can."""
    (log / "work.codes").write_bytes(_core.work_file_header(job.core.id, NONCE) + b"".join(codes))
    own = _core.SigningKey.from_pem((log / "key.pem").read_text())
    note = _core.sign_work_note(job.core.id, NONCE, None, codes, key or own)
    (log / "work.note").write_text(note)


def codes_of(log: Path) -> list[bytes]:
    data = (log / "work.codes").read_bytes()[_core.WORK_HEADER_BYTES :]
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def test_an_auditor_that_worked_is_believed(honest: Path, check: Check, run: Path) -> None:
    found = check(honest, commitment=(run / "commitment").read_text())
    assert found.worked is True, found.reason
    hidden = [one for one in range(1, STEPS) if one % EVERY]
    assert list(found.steps) == hidden and found.population == len(hidden)
    assert found.covered == STEPS and found.hidden == len(hidden) and found.seen(0.1) == 1.0
    few = check(honest, steps=5)
    assert few.worked is True and len(few.steps) == 5
    assert set(few.steps) <= set(hidden)
    assert few.seen(0.2) == pytest.approx(_core.strength(len(hidden), 5, 0.2))
    assert 0.5 < few.seen(0.2) < 1
    # It draws anew each time.
    assert len({check(honest, steps=5).steps for _ in range(4)}) > 1


def test_honest_under_other_threads_and_instructions(
    run: Path, job: potl.Job, check: Check, tmp_path: Path
) -> None:
    job.write(tmp_path / "job.json")
    code = (
        f"import sys; sys.path.append({str(places.HELPERS)!r})\n"
        "import potl, traced_nets, torch\n"
        "torch.set_num_threads(3)\n"
        f"found = potl.audit({str(run)!r}, job='job.json', task=traced_nets.mlp, log='log',\n"
        f"    nonce={NONCE.hex()!r})\n"
        "assert found.agrees\n"
    )
    environment = {**os.environ, "POTL_ISA": "portable", "OMP_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert check(tmp_path / "log").worked is True


def test_a_copied_log_is_no_work(
    honest: Path, run: Path, job: potl.Job, check: Check, tmp_path: Path
) -> None:
    """All digests, losses and stored states are the trainer's; the codes cannot be."""
    log = copy_of(honest, tmp_path)
    stored = {
        row["step"]: _core.Evidence.open(str(run), job=None, commitment=None).load_state(
            row["step"]
        )
        for row in _core.Evidence.open(str(run), job=None, commitment=None).checkpoints()
    }
    # What is nearest to a state that was not computed: one that the trainer gave away.
    codes = []
    for step in range(1, STEPS + 1):
        last = step - step % EVERY
        codes.append(_core.work_code(NONCE, job.core.id, step, stored[last], stored[last])[0])
    sign(log, job, codes)
    found = check(log, steps=1)
    assert found.worked is False and "is not that of its state" in found.reason


def test_a_part_that_was_left_out_is_seen_as_often_as_stated(
    honest: Path, job: potl.Job, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment of steps 17 to 23 is made up: 7 of the 50 steps that are drawn from."""
    log = copy_of(honest, tmp_path)
    codes = codes_of(log)
    for step in range(17, 24):
        codes[step - 1] = bytes(32)
    sign(log, job, codes)
    found = check(log)
    assert found.worked is False and "step 17 " in found.reason
    assert found.steps == tuple(one for one in range(1, 17) if one % EVERY)
    # The draw alone, of which nothing has to be computed.
    seen, rounds = 0, 400
    hidden = [one for one in range(1, STEPS) if one % EVERY]
    for _ in range(rounds):
        places = _core.draw_without_replacement(
            _core.fresh_nonce(), bytes(32), "potl.work", len(hidden), 5
        )
        seen += any(17 <= hidden[place] < 24 for place in places)
    assert seen / rounds == pytest.approx(_core.strength(len(hidden), 5, 7 / len(hidden)), abs=0.1)


def test_an_auditor_of_a_false_run_that_copied_it_is_seen(
    job: potl.Job, check: Check, tmp_path: Path
) -> None:
    """It repeated what the trainer did, and not what was agreed."""

    def smoothed() -> potl.Task:
        task = build()
        task.loss = lambda x, y: torch.nn.functional.cross_entropy(x, y, label_smoothing=0.1)
        return task

    false = potl.record(smoothed, tmp_path / "run", job=job, check_job=False)
    shutil.copytree(false.path, tmp_path / "log")
    log = tmp_path / "log"
    key = _core.SigningKey.from_pem((log / "key.pem").read_text())
    sign(log, job, [bytes(32)] * STEPS, key)
    found = check(log, run=false, steps=3)
    assert found.worked is False
    assert "does not end in the state that the logs name" in found.reason
    assert not found.steps


def false_run(at: int, job: potl.Job, path: Path) -> Path:
    return potl.record(false_build(build, job, at), path, job=job, check_job=False).path


def test_a_difference_ends_what_is_checked(job: potl.Job, check: Check, tmp_path: Path) -> None:
    """Whoever stopped there may have invented the difference, to have no more to do."""
    run = false_run(21, job, tmp_path / "run")
    audit = potl.audit(run, job=job, task=build, log=tmp_path / "log", nonce=NONCE)
    assert audit.difference is not None and audit.difference.step == 21
    found = check(tmp_path / "log", run=run)
    assert found.worked is None and found.covered == 20 and max(found.steps) == 20
    assert "differ at step 21: settle that by a dispute" in found.reason
    assert "the codes of 18 steps" in found.reason and found.population == 18
    assert found.seen(0.5) == 0.0 and found.seen(0.8) == 1.0
    sign(tmp_path / "log", job, [bytes(32)] * 20)
    assert check(tmp_path / "log", run=run).worked is False


def test_a_part_of_the_steps_is_not_the_work(
    run: Path,
    job: potl.Job,
    check: Check,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An auditor that repeated 10 of 57 steps of a finished run, and copied nothing."""
    short, log = tmp_path / "short", tmp_path / "log"
    with potl.Prover(build, short, job=job, key=run / "key.pem") as prover:
        for step in prover.steps():
            if step.number == 10:
                break
    assert potl.audit(short, job=job, task=build, log=log, nonce=NONCE).agrees is None
    for trainers in (run, short):
        found = check(log, run=trainers)
        assert found.worked is None and f"repeated 10 of {STEPS} steps" in found.reason
        assert found.covered == 10 and found.steps == (1, 2, 3, 4, 5, 6, 7, 9, 10)
        assert found.population == 9 and found.hidden == 49
        assert found.seen(0.5) == 0.0
    job.write(tmp_path / "job.json")
    given = ["audit", str(run), "--job", str(tmp_path / "job.json"), "--log", str(log), "--check"]
    assert _cli.run([*given, "--task", "traced_nets:mlp", "--nonce", NONCE.hex()]) == 3
    assert "undecided: repeated 10 of" in capsys.readouterr().out


def test_the_job_says_which_states_are_given_away(
    honest: Path, run: Path, job: potl.Job, check: Check, tmp_path: Path
) -> None:
    """Files beside those of the agreed states, and another job next to them, leave nothing out."""
    given = shutil.copytree(run, tmp_path / "run")
    fields = {**job.core.fields(), "checkpoint_every": 1, "max_segment": 1, "store_every": EVERY}
    (given / "job.json").write_bytes(_core.canonical_json(fields))
    states = given / "checkpoints"
    for step in range(1, STEPS):
        if step != 5 and step % EVERY:
            shutil.copyfile(states / "step-8.safetensors", states / f"step-{step}.safetensors")
    found = check(honest, run=given, steps=5)
    assert found.worked is True and found.population == found.hidden == 49
    (given / "job.json").unlink()
    assert check(honest, run=given, steps=1).worked is True


def test_steps_that_could_not_be_drawn_count_as_left_out(
    honest: Path, run: Path, job: potl.Job, check: Check, tmp_path: Path
) -> None:
    """States that a trainer derived later are given away, too, and are not drawn."""
    own = potl.Job.create(build, seed=3, checkpoint_every=4, store_every=16)
    whole = potl.record(build, tmp_path / "run", job=own)
    log = tmp_path / "log"
    audit = potl.audit(whole, job=own, task=build, log=log, nonce=NONCE)
    assert audit.agrees is True
    few = check(log, run=whole, job=own, steps=5)
    assert few.worked is True and few.population == few.hidden
    derived = tmp_path / "run" / "checkpoints" / "step-4.safetensors"
    state = (tmp_path / "run" / "checkpoints" / "step-16.safetensors").read_bytes()
    derived.write_bytes(state)
    less = check(log, run=whole, job=own, steps=5)
    assert less.worked is True and less.population == less.hidden - 1
    assert less.seen(0.5) == pytest.approx(
        _core.strength(less.population, 5, (less.hidden // 2 - 0.5) / less.population)
    )


def test_a_run_that_changes_while_it_is_checked_accuses_nobody(
    honest: Path,
    run: Path,
    job: potl.Job,
    check: Check,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trainer brings other states, and a log that names them, once both were compared."""
    false = false_run(8, job, tmp_path / "false")
    place, log = shutil.copytree(run, tmp_path / "run"), copy_of(honest, tmp_path)
    shutil.rmtree(log / "checkpoints")
    compare = _work_check._Pair.compare

    def swap(pair: _work_check._Pair) -> None:
        compare(pair)
        shutil.copytree(false, place, dirs_exist_ok=True)

    monkeypatch.setattr(_work_check._Pair, "compare", swap)
    found = check(log, run=place)
    assert found.worked is None and "changed while it was read" in found.reason


def test_codes_are_whole_signed_and_of_this_audit(
    honest: Path, run: Path, job: potl.Job, check: Check, tmp_path: Path
) -> None:
    whole = (honest / "work.codes").read_bytes()
    log = copy_of(honest, tmp_path)
    file, head = log / "work.codes", _core.WORK_HEADER_BYTES
    altered = bytearray(whole)
    altered[head + 32 * 40] ^= 1
    for data, error in (
        (bytes(altered), "not those that were signed"),
        (whole[:-32], "not those that were signed"),
        (whole[:-1], "ends too early"),
        (whole[: head - 1], "ends too early"),
        (b"x" + whole[1:], "another one"),
    ):
        file.write_bytes(data)
        with pytest.raises((potl.MalformedError, potl.MismatchError), match=error):
            check(log)
    file.write_bytes(whole + bytes(32))
    with pytest.raises(potl.LimitError):
        check(log)
    file.write_bytes(whole)
    with pytest.raises(potl.MismatchError, match="another nonce"):
        check(log, nonce=bytes([9] * 32))
    with pytest.raises(potl.MismatchError, match="another commitment"):
        check(log, commitment="another\nnote\n")
    with pytest.raises(potl.MissingError):
        check(log, auditor=_core.SigningKey.generate().public_key)
    sign(log, job, codes_of(log), _core.SigningKey.generate())
    with pytest.raises(potl.MissingError):
        check(log)
    (log / "work.note").unlink()
    with pytest.raises(potl.MissingError, match="not signed"):
        check(log)
    file.unlink()
    with pytest.raises(potl.MissingError, match="no codes of work"):
        check(log)
    file.symlink_to(honest / "work.codes")
    with pytest.raises((potl.PotlError, OSError)):
        check(log)


def test_codes_that_end_before_the_log_are_no_work(
    honest: Path, job: potl.Job, check: Check, tmp_path: Path
) -> None:
    log = copy_of(honest, tmp_path)
    sign(log, job, codes_of(log)[:20])
    found = check(log)
    assert found.worked is False and "end with step 20" in found.reason


def test_the_trainer_is_no_auditor(honest: Path, run: Path, check: Check, tmp_path: Path) -> None:
    trainer = _core.SigningKey.from_pem((run / "key.pem").read_text())
    (tmp_path / "trainer.pub").write_text(trainer.public_key.to_pem())
    own = potl.Job.create(build, seed=3, checkpoint_every=EVERY, trainer=tmp_path / "trainer.pub")
    potl.record(build, tmp_path / "run", job=own, key=trainer)
    with pytest.raises(potl.MismatchError, match="this is the trainer"):
        check(tmp_path / "run", run=tmp_path / "run", job=own)


def test_where_all_states_are_stored_nothing_can_be_said(check: Check, tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=3, checkpoint_every=1)
    run = potl.record(build, tmp_path / "run", job=job)
    potl.audit(run, job=job, task=build, log=tmp_path / "log", nonce=NONCE)
    found = check(tmp_path / "log", run=run, job=job)
    assert found.worked is None and "after every step" in found.reason
    assert found.seen(0.5) == 0.0


def test_states_that_cannot_be_read_decide_nothing(
    honest: Path, run: Path, check: Check, tmp_path: Path
) -> None:
    log, pruned = copy_of(honest, tmp_path), shutil.copytree(run, tmp_path / "pruned")
    for place in (log, pruned):
        for file in (place / "checkpoints").iterdir():
            if file.name != "step-0.safetensors":
                file.write_bytes(file.read_bytes()[:-1] + b"?")
    found = check(log, run=pruned, steps=2)
    # From the agreed initial state everything can be derived.
    assert found.worked is True
    for place in (log, pruned):
        (place / "checkpoints/step-0.safetensors").unlink()
    found = check(log, run=pruned, steps=2)
    assert found.worked is None and "can be read" in found.reason


def test_a_machine_that_computes_in_two_ways_accuses_nobody(
    honest: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = _work_check._Deriver._states

    def twice(self: Any, step: int) -> Any:
        calls.append(step)
        before, after = real(self, step)  # type: ignore[misc]
        return (before, before) if len(calls) == 1 else (before, after)

    monkeypatch.setattr(_work_check._Deriver, "_states", twice)
    found = check(honest, steps=1)
    assert found.worked is None and "in two ways" in found.reason


def test_an_audit_that_was_killed_goes_on_with_its_codes(
    run: Path, job: potl.Job, honest: Path, check: Check, tmp_path: Path
) -> None:
    (tmp_path / "nonce.txt").write_text(NONCE.hex() + "\n")
    log = kill_audit(run, job, tmp_path, "nonce.txt")
    with pytest.raises(potl.UsageError, match="begun under a nonce"):
        potl.audit(run, job=job, task=build, log=log)
    with pytest.raises(potl.UsageError, match="another nonce"):
        potl.audit(run, job=job, task=build, log=log, nonce=bytes([9] * 32))
    kept = (log / "work.codes").read_bytes()
    (log / "work.codes").write_bytes(kept[:100])
    with pytest.raises(potl.MissingError, match="codes of steps up to"):
        potl.audit(run, job=job, task=build, log=log, nonce=NONCE)
    # What was written after the state from which it goes on is written again.
    (log / "work.codes").write_bytes(kept + bytes(7))
    assert potl.audit(run, job=job, task=build, log=log, nonce=NONCE).agrees is True
    assert (log / "work.codes").read_bytes() == (honest / "work.codes").read_bytes()
    assert check(log).worked is True
    # Once finished, it only signs again.
    before = (log / "work.note").read_bytes()
    assert potl.audit(run, job=job, task=build, log=log, nonce=NONCE).agrees is True
    assert (log / "work.note").read_bytes() == before


def test_a_finished_audit_without_codes_is_told(run: Path, job: potl.Job, tmp_path: Path) -> None:
    potl.audit(run, job=job, task=build, log=tmp_path / "log")
    with pytest.raises(potl.MissingError, match="no codes of work"):
        potl.audit(run, job=job, task=build, log=tmp_path / "log", nonce=NONCE)


@pytest.mark.parametrize("nonce", [b"short", "abc", "zz" * 32, bytes(33), bytes(32), 7])
def test_a_nonce_has_32_bytes(nonce: Any, run: Path, job: potl.Job, tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match=r"a nonce is 32 bytes|nonce is zero"):
        potl.audit(run, job=job, task=build, log=tmp_path / "log", nonce=nonce)


def test_the_command(
    honest: Path,
    run: Path,
    job: potl.Job,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job.write(tmp_path / "job.json")
    log = copy_of(honest, tmp_path)

    def called(*more: str) -> int:
        given = ["audit", str(run), "--job", str(tmp_path / "job.json"), "--log", str(log)]
        given += ["--task", "traced_nets:mlp", "--nonce", NONCE.hex()]
        return _cli.run([*given, *more])

    assert called() == 0
    capsys.readouterr()
    assert called("--check", "--draw", "4", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["worked"] is True and len(document["steps"]) == 4
    sign(log, job, [bytes(32)] * STEPS)
    assert called("--check") == 1
    assert "did not do the work" in capsys.readouterr().out
    assert called("--check", "--follow") == 2
    assert called("--draw", "4") == 2
