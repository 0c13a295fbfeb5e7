# SPDX-License-Identifier: Apache-2.0
"""Sparse runs: states between the stored ones are derived when they are challenged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import driver_tasks as tasks
import pytest
import torch
from places import HELPERS
from transcript_helpers import rejected_by

import potl
from potl import _core
from potl._cli import _cli
from potl._verify import _ledger

pytest.importorskip("potl._torch", reason="potl was built without torch")

CHECKS = [potl.PEV(), potl.Replay(samples=3)]


class Delivery(NamedTuple):
    job: potl.Job
    run: potl.Run
    note: potl.Commitment
    ledger: Path

    def draw(self, **options: Any) -> potl.Challenge:
        asked: dict[str, Any] = {"checks": CHECKS, "ledger": self.ledger, **options}
        return potl.challenge(self.run, job=self.job, commitment=self.note, **asked)

    def first_draw(self, wanted: Callable[[Sequence[int]], bool], **options: Any) -> potl.Challenge:
        """Records hold times, so draws differ between runs: the first draw of such states."""
        asked: dict[str, Any] = {"checks": [potl.Replay(samples=1)], "ledger": None, **options}
        draws = (self.draw(nonce=f"{seed:064x}", **asked) for seed in range(1, 1000))
        return next(one for one in draws if wanted(one.states))

    def verify(self, **options: Any) -> potl.Report:
        return potl.verify(
            self.run,
            job=self.job,
            commitment=self.note,
            task=tasks.build,
            policy=potl.Policy(probability=0),
            **{"ledger": self.ledger, **options},
        )

    def files(self) -> set[str]:
        return {path.name for path in (self.run.path / "checkpoints").iterdir()}


def create(**options: Any) -> potl.Job:
    """24 steps, 12 segments."""
    chosen = {"seed": 5, "checkpoint_every": 2, "store_every": 8, "arithmetic": "ord32", **options}
    return potl.Job.create(tasks.build, **chosen)


def deliver(folder: Path, **options: Any) -> Delivery:
    job = create(**options)
    run = potl.record(tasks.build, folder / "run", job=job)
    return Delivery(job, run, run.commit(), folder / "ledger.json")


@pytest.fixture
def sparse(tmp_path: Path) -> Delivery:
    return deliver(tmp_path)


STORED = {f"step-{step}.safetensors" for step in (0, 8, 16, 24)}


def test_only_some_states_are_stored_and_the_run_says_so(sparse: Delivery) -> None:
    assert sparse.files() == STORED
    assert sparse.job.checkpoint_every == 2 and sparse.job.store_every == 8
    facts = sparse.run.inspect()
    assert facts["gaps"] == [] and facts["unused"] == [] and len(facts["checkpoints"]) == 4


def test_a_challenged_run_derives_what_is_asked_for_and_is_accepted(sparse: Delivery) -> None:
    drawn = sparse.draw()
    assert drawn.states and all(step % 2 == 0 and step % 8 for step in drawn.states)
    done = potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)
    assert done.steps == drawn.states and 0 < done.trained <= 18
    assert sparse.files() == STORED | {f"step-{step}.safetensors" for step in drawn.states}
    report = sparse.verify(challenge=drawn)
    assert report.verdict == "accepted", report.json()
    assert report.document["nonce"] == drawn.nonce.hex()
    assert potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn).trained == 0
    assert sparse.run.inspect()["unused"] == []


def test_a_report_says_of_a_challenge_that_its_nonce_was_given(sparse: Delivery) -> None:
    """Also of one that was in a file, in which the trainer cannot leave it out."""
    for nonce in (None, f"{7:064x}"):
        drawn, file = sparse.draw(nonce=nonce), sparse.run.path.parent / "challenge.json"
        drawn.write(file)
        for challenge in (drawn, file):
            said = [one.reason for one in sparse.verify(challenge=challenge).findings]
            assert any("the nonce was given" in one for one in said) == (nonce is not None)
    document = json.loads(file.read_text())
    del document["given_nonce"]
    file.write_bytes(_core.canonical_json(document))
    with pytest.raises(potl.UsageError, match="as you drew it"):
        sparse.verify(challenge=file)


def test_the_end_of_a_cheated_segment_need_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cheating:
        cheat_at(11, cheating)
        sparse = deliver(tmp_path)
    # Only the start of the segment in which the cheat was.
    only = sparse.first_draw(lambda states: 10 in states)
    potl.rederive(sparse.run.path, task=tasks.build, challenge=only)
    assert "step-12.safetensors" not in sparse.files()
    reasons = [one.reason for one in sparse.verify(challenge=only).findings]
    assert any("segment 10-12 ends in another state than its record" in one for one in reasons)


def test_a_derived_state_has_the_bytes_of_one_that_was_stored(
    sparse: Delivery, tmp_path: Path
) -> None:
    """The same training with every state stored."""
    dense = potl.record(
        tasks.build, tmp_path / "dense", job=create(store_every=2), key=tmp_path / "key.pem"
    )
    potl.rederive(sparse.run.path, task=tasks.build)
    assert len(sparse.files()) == 13
    for name in sparse.files():
        same = (dense.path / "checkpoints" / name).read_bytes()
        assert (sparse.run.path / "checkpoints" / name).read_bytes() == same
    # Now that all are there, no challenge is needed beforehand.
    assert sparse.verify(checks=CHECKS).verdict == "accepted"


@pytest.mark.parametrize("timeout", [None, 1e-9])
def test_a_challenge_that_is_not_answered_rejects(sparse: Delivery, timeout: float | None) -> None:
    drawn = sparse.draw()
    report = sparse.verify(challenge=drawn, timeout=timeout)
    assert report.verdict == "rejected" and rejected_by(report.findings) == {"transcript.withheld"}


def test_a_state_that_comes_while_others_are_replayed_is_not_withheld(sparse: Delivery) -> None:
    drawn = sparse.draw()

    def deliver_once(done: int, total: int) -> None:
        if sparse.files() == STORED:
            potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)

    # The first segment, which starts at a stored state, is replayed first.
    assert sparse.verify(challenge=drawn, progress=deliver_once).verdict == "accepted"


def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are run from now on, as they are."""
    run_step, steps = potl.Session.run_step, []

    def counted(self: potl.Session, number: int, *args: Any, **options: Any) -> potl.StepResult:
        steps.append(number)
        return run_step(self, number, *args, **options)

    monkeypatch.setattr(potl.Session, "run_step", counted)
    return steps


@pytest.mark.parametrize("arithmetic", ["ord32", "log64"])
def test_what_nobody_has_asked_for_is_derived_by_the_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arithmetic: str
) -> None:
    sparse = deliver(tmp_path, arithmetic=arithmetic)
    steps = trained(monkeypatch)
    report = sparse.verify(checks=[potl.PEV(), potl.Replay(samples=12)])
    assert report.verdict == "accepted", report.json()
    assert {replay["equal"] for replay in report.document["replays"]} == {True}
    # Two steps say what a state holds; then every segment once, and none on the way to another.
    assert steps == [1, 2, *range(1, 25)]
    assert sparse.files() == STORED


def test_deriving_costs_no_more_than_the_job_says(
    sparse: Delivery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The first segment is replayed anyway, and leads nowhere near 14.
    drawn = sparse.first_draw(lambda states: len(states) == 2 and states[0] == 14)
    nonce = drawn.nonce.hex()
    steps = trained(monkeypatch)
    sparse.verify(checks=[potl.Replay(samples=1, reach=0)], nonce=nonce)
    # First and last segment, and the drawn one: two ways of six steps to their starts. Two steps
    # more say what a state holds.
    assert drawn.states[1] == 22 and len(steps) == 3 * 2 + 2 * 6 + 2
    [said] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "18 of 24 steps" in said and "12 of them" in said and "potl.challenge" in said
    # The first stretch, of eight steps, says what is usual.
    steps.clear()
    sparse.verify(checks=[potl.Replay(samples=1)], nonce=nonce)
    assert len(steps) == 3 * 2 + 2 * 6 + 2 + 8


def test_a_cheat_on_the_way_to_a_drawn_segment_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though that segment itself follows from the state that the record names."""
    with monkeypatch.context() as cheating:
        cheat_at(11, cheating)
        sparse = deliver(tmp_path)
    nonce = sparse.first_draw(lambda states: 14 in states).nonce.hex()
    report = sparse.verify(checks=[potl.Replay(samples=1)], nonce=nonce)
    assert report.verdict == "rejected" and rejected_by(report.findings) == {
        "transcript.checkpoint"
    }
    assert any("step 11 is the first that ends in other bits" in f.reason for f in report.findings)


@pytest.mark.parametrize("at", [19, 24], ids=["derived", "replayed"])
def test_a_verifier_that_computes_two_things_accuses_nobody(
    sparse: Delivery, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    with monkeypatch.context() as broken:
        cheat_once_at(at, broken)
        report = sparse.verify(checks=[potl.Replay(samples=1)], nonce="11" * 32)
    assert report.verdict == "inconclusive", report.json()


def test_workers_derive_too(sparse: Delivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HELPERS))
    report = sparse.verify(checks=[potl.Replay(samples=12)], workers=2)
    assert report.verdict == "accepted", report.json()


def test_states_that_the_agreement_stores_are_not_excused(sparse: Delivery) -> None:
    """Whether they are drawn or not, and however many are derived around them."""
    drawn = sparse.draw()
    potl.rederive(sparse.run.path, task=tasks.build)
    (sparse.run.path / "checkpoints" / "step-8.safetensors").unlink()
    assert "transcript.withheld" in rejected_by(sparse.verify(challenge=drawn).findings)


def test_lost_files_change_no_draw_and_are_derived_with_it(sparse: Delivery) -> None:
    nonce = "7" * 64
    whole = sparse.draw(nonce=nonce, ledger=None)
    checkpoints = sparse.run.path / "checkpoints"
    lost = (checkpoints / "step-8.safetensors").read_bytes()
    (checkpoints / "step-8.safetensors").unlink()
    drawn = sparse.draw(nonce=nonce)
    assert drawn.states and drawn.states == whole.states
    done = potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)
    assert set(done.steps) == {8, *drawn.states}
    assert (checkpoints / "step-8.safetensors").read_bytes() == lost
    assert sparse.verify(challenge=drawn).verdict == "accepted"


def test_an_earlier_challenge_is_repeated_by_the_next(sparse: Delivery) -> None:
    first = sparse.draw(nonce="11" * 32)
    other = sparse.first_draw(lambda states: not set(states) <= set(first.states), checks=CHECKS)
    second = sparse.draw(nonce=other.nonce.hex())
    assert set(first.states) < set(second.states)
    potl.rederive(sparse.run.path, task=tasks.build, challenge=first)
    with pytest.raises(potl.UsageError, match="was not asked for it"):
        sparse.verify(challenge=first)
    potl.rederive(sparse.run.path, task=tasks.build, challenge=second)
    assert sparse.verify(challenge=second).verdict == "accepted"


def cheat_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_step = potl.Session.run_step

    def lie(self: potl.Session, number: int, *args: Any, **options: Any) -> potl.StepResult:
        result = run_step(self, number, *args, **options)
        if number == step:
            with torch.no_grad():
                next(self.task.model.parameters())[0] += 1e-3
        return result

    monkeypatch.setattr(potl.Session, "run_step", lie)


def cheat_once_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of the machine that fails, and then does not."""
    run_step, failed = potl.Session.run_step, []

    def fail(self: potl.Session, number: int, *args: Any, **options: Any) -> potl.StepResult:
        result = run_step(self, number, *args, **options)
        if number == step and not failed:
            failed.append(number)
            with torch.no_grad():
                next(self.task.model.parameters())[0] += 1e-3
        return result

    monkeypatch.setattr(potl.Session, "run_step", fail)


def keep_one_in(stride: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Segments and bytes of a state, as they are asked about from here on."""
    asked = []

    def affordable(segments: int, state_bytes: int) -> int:
        asked.append((segments, state_bytes))
        return stride

    monkeypatch.setattr(_core, "affordable_stride", affordable)
    return asked


def test_a_run_is_stored_within_a_budget_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 steps of a state of some kilobytes."""
    assert create(store_every=None, checkpoint_every=1).core.store_every == 0
    asked = keep_one_in(3, monkeypatch)
    for every, segments in ((1, 24), (3, 8), (5, 5), (30, 1)):
        job = create(store_every=None, checkpoint_every=every)
        assert (job.core.store_every, asked.pop()[0]) == (3 * every, segments)
    assert create(store_every=1, checkpoint_every=1).core.store_every == 0
    assert create(store_every=None, max_segment=4).core.store_every == 0
    assert create(store_every=None, arithmetic="stock").core.store_every == 0
    assert asked == []


def test_the_budget_counts_what_optimizers_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    with potl.Session.open(tasks.build_adam, seed=5) as session:
        before = session.capture().nbytes
        session.run_step(1, session.sample_ids(1))
        after = session.capture().nbytes
    assert after > 2 * before
    asked = keep_one_in(1, monkeypatch)
    for check in (True, False):
        potl.Job.create(tasks.build_adam, seed=5, checkpoint_every=1, check=check)
    assert [state_bytes for _, state_bytes in asked] == [after, after]


def test_a_cheat_between_stored_states_is_seen_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cheating:
        cheat_at(11, cheating)
        sparse = deliver(tmp_path)
        # Every segment is drawn; the cheat derives what it committed to.
        drawn = sparse.draw(checks=[potl.Replay(samples=12)])
        potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)
    report = sparse.verify(challenge=drawn)
    assert report.verdict == "rejected"
    [found] = [
        one
        for one in report.findings
        if one.result == "reject" and one.rule == "replay.parameters" and one.first_step == 11
    ]
    assert "the first step that ends in other bits is 11" in found.reason


def test_an_honest_derivation_cannot_stand_in_for_a_cheat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cheating:
        cheat_at(11, cheating)
        sparse = deliver(tmp_path)
    drawn = sparse.draw(checks=[potl.Replay(samples=12)])
    with pytest.raises(potl.MismatchError, match="step 12"):
        potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)
    report = sparse.verify(challenge=drawn)
    assert report.verdict == "rejected"
    # Whichever comes first: the state that is not there, or the step that ends in other bits.
    assert rejected_by(report.findings) & {"transcript.withheld", "replay.parameters"}


def test_rounding_logs_are_followed(tmp_path: Path) -> None:
    sparse = deliver(tmp_path, arithmetic="log64")
    drawn = sparse.draw()
    potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)
    assert sparse.verify(challenge=drawn).verdict == "accepted"


def test_an_interrupted_recording_goes_on_from_a_stored_state(
    sparse: Delivery, tmp_path: Path
) -> None:
    job, folder = sparse.job, tmp_path / "again"
    with potl.Prover(tasks.build, folder, job=job) as prover:
        for step in prover.steps():
            if step.number == 15:
                break
    run = potl.record(tasks.build, folder, job=job)
    assert run.final_digest == sparse.run.final_digest
    again = Delivery(job, run, run.commit(), tmp_path / "other-ledger.json")
    drawn = again.draw()
    potl.rederive(run.path, task=tasks.build, challenge=drawn)
    assert again.verify(challenge=drawn).verdict == "accepted"


def test_derived_states_can_be_pruned_again(sparse: Delivery) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in sparse.run.path.rglob("*") if path.is_file())

    before = size()
    drawn = sparse.draw()
    potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)
    plan = potl.prune(sparse.run.path, max_bytes=before)
    assert len(plan.removed) == len(drawn.states) and plan.segment == 8
    assert sparse.files() == STORED


def test_stock_arithmetic_is_refused_with_the_reason() -> None:
    with pytest.raises(potl.UsageError, match="needs a reproducible arithmetic") as refused:
        create(arithmetic="stock")
    assert "ord32" in refused.value.remedy


@pytest.mark.parametrize("wrong", [1, 3, 7, 8.0, True])
def test_an_interval_of_storing_is_a_multiple_of_segments(wrong: Any) -> None:
    with pytest.raises(potl.UsageError, match="not a multiple of checkpoint_every"):
        create(store_every=wrong)


def test_storing_less_and_pruning_exclude_each_other() -> None:
    with pytest.raises(potl.UsageError, match="exclude each other"):
        create(max_segment=4)


def test_nothing_is_derived_on_demand_where_everything_is_stored(tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=5, checkpoint_every=2, arithmetic="stock")
    run = potl.record(tasks.build, tmp_path / "run", job=job)
    note = run.commit()
    with pytest.raises(potl.UsageError, match="every checkpoint stored") as refused:
        potl.challenge(run, job=job, commitment=note)
    assert "verify at once" in refused.value.remedy
    drawn = potl.Challenge(job=job.id, root=note.root, nonce=bytes(32), checks=(), states=(2,))
    with pytest.raises(potl.UsageError, match="in stock arithmetic a state need not"):
        potl.rederive(run.path, task=tasks.build, challenge=drawn)


def test_a_challenge_about_something_else_is_refused_by_both_sides(
    sparse: Delivery, tmp_path: Path
) -> None:
    drawn = sparse.draw()
    for name, value in (("job", bytes(32)), ("root", bytes(32))):
        other = potl.Challenge(**{**vars(drawn), name: value})
        with pytest.raises(potl.UsageError, match="is about another"):
            potl.rederive(sparse.run.path, task=tasks.build, challenge=other)
        with pytest.raises(potl.UsageError, match="is about another"):
            sparse.verify(challenge=other)
    with pytest.raises(potl.UsageError, match="says which checks"):
        sparse.verify(challenge=drawn, checks=CHECKS)
    (sparse.run.path / "commitment").unlink()
    with pytest.raises(potl.UsageError, match="no commitment"):
        potl.rederive(sparse.run.path, task=tasks.build, challenge=drawn)


def test_a_challenge_of_a_rejected_record_says_why_it_asks_for_nothing(
    sparse: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    assert sparse.draw().states
    assert not caplog.messages
    assert sparse._replace(job=create(seed=6)).draw(ledger=None).states == ()
    assert "the record itself is rejected: the run was recorded for job" in caplog.text


@pytest.mark.parametrize("edit", [{"nonce": "ab" * 32}, {"checks": []}, {"states": [2]}])
def test_an_edited_challenge_is_not_the_verifiers(
    sparse: Delivery, tmp_path: Path, edit: dict[str, Any]
) -> None:
    path = tmp_path / "challenge.json"
    drawn = sparse.draw()
    drawn.write(path)
    potl.rederive(sparse.run.path, task=tasks.build)
    assert sparse.verify(challenge=path).verdict == "accepted"
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    with pytest.raises(potl.UsageError, match="that you drew"):
        sparse.verify(challenge=path)


def test_without_a_memory_only_what_this_process_drew_is_its_own(
    sparse: Delivery, tmp_path: Path
) -> None:
    drawn = sparse.draw(ledger=None)
    potl.rederive(sparse.run.path, task=tasks.build)
    assert sparse.verify(challenge=drawn, ledger=None).verdict == "accepted"
    drawn.write(tmp_path / "challenge.json")
    for ledger in (None, sparse.ledger):
        with pytest.raises(potl.UsageError, match="that you drew"):
            sparse.verify(challenge=tmp_path / "challenge.json", ledger=ledger)


def test_a_ledger_that_somebody_else_writes_meanwhile_stops_a_challenge(
    sparse: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn would not repeat what the other one drew."""
    remember = _ledger.remember

    def late(path: Path, **what: Any) -> _ledger.Memory:
        other = _ledger.new_challenge(bytes(32), [("replay", potl.Replay().options())])
        remember(path, job_id=sparse.job.id, commitment=None, challenge=other)
        return remember(path, **what)

    with monkeypatch.context() as busy, pytest.raises(potl.StorageError, match="changed"):
        busy.setattr(_ledger, "remember", late)
        sparse.draw()
    assert sparse.draw().states


def test_a_challenge_survives_its_file(sparse: Delivery, tmp_path: Path) -> None:
    drawn, path = sparse.draw(), tmp_path / "challenge.json"
    drawn.write(path)
    assert potl.Challenge.read(path) == drawn


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": "potl-challenge-v2"}', "[" * 5000, "\xff"]
)
def test_a_file_that_is_no_challenge_is_unreadable(text: str, tmp_path: Path) -> None:
    path = tmp_path / "challenge.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(potl.MalformedError, match=r"challenge\.json is not a challenge"):
        potl.Challenge.read(path)


def test_a_stretch_between_stored_states_beyond_reach_is_replayed(sparse: Delivery) -> None:
    report = sparse.verify(checks=[potl.Replay(samples=1, reach=1, top_q=0)])
    assert report.verdict == "accepted", report.json()
    far = [r for r in json.loads(report.json())["replays"] if r["why"] == "reach"]
    assert [one["end"] - one["start"] for one in far] == [8]


def test_more_stretches_beyond_reach_than_samples_are_inconclusive(sparse: Delivery) -> None:
    report = sparse.verify(checks=[potl.Replay(samples=1, reach=1e-6, top_q=0)])
    assert report.verdict == "inconclusive", report.json()
    assert any(f.rule == "replay.reach" and f.result == "inconclusive" for f in report.findings)


def test_the_same_by_command_lines(
    sparse: Delivery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HELPERS))
    sparse.job.write("job.json")
    sparse.note.write("note.txt")
    mine = ["--job", "job.json", "--commitment", "note.txt"]
    alone = ["verify", "run", *mine, "--task", "driver_tasks:build", "--no-ledger"]
    mine += ["--ledger", "ledger.json"]
    answer = ["rederive", "run", "--task", "driver_tasks:build", "--challenge", "challenge.json"]
    verify = ["verify", "run", *mine, "--task", "driver_tasks:build"]
    draw = ["challenge", "run", "challenge.json", *mine, "--replay-samples", "2"]
    assert _cli.run([*alone, "--replay-samples", "2"]) == 3  # derives by itself
    assert _cli.run(draw) == 0
    assert _cli.run(draw) == 2  # the file is not replaced
    assert _cli.run([*answer, "--json"]) == 0
    assert _cli.run([*verify, "--challenge", "challenge.json"]) == 3  # two samples are too few
    # Two samples may fall into one segment, or start at stored states.
    assert re.search(r"\d states? (is|are) wanted", capsys.readouterr().out)


def test_the_planner_trades_storing_for_deriving() -> None:
    measured = potl.Calibration(
        noise=(),
        deterministic=True,
        repeats=1,
        tolerance_cap=0.1,
        checkpoint_every=None,
        seconds_per_step=0.01,
        checkpoint_bytes=10**6,
    )
    stored = measured.storage(steps=5000, budget_bytes=20e6)
    derived = measured.storage(steps=5000, budget_bytes=20e6, rederive=True)
    assert stored.store_every == stored.checkpoint_every
    assert stored.rederivation_fraction == 0 and not stored.noise_fits
    assert derived.store_every % derived.checkpoint_every == 0
    assert derived.checkpoint_every < derived.store_every and derived.bytes <= 20e6
    assert derived.verification_fraction < stored.verification_fraction
    assert derived.rederivation_fraction > 0 and derived.noise_fits
