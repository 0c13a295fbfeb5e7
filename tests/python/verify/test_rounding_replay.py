# SPDX-License-Identifier: Apache-2.0
"""Jobs in log64: the run keeps its rounding logs, replay follows them under another order of
summation, and a dishonest log is a finding whose proof a third party checks.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import near_ties
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl
from potl import _core
from potl._arithmetic import _rounded_steps
from potl._verify import _workload

pytest.importorskip("potl._torch", reason="potl was built without torch")

HIDDEN, BATCH = 32, 32


def build(epochs: int = 4, accumulate: int = 1) -> potl.Task:
    first, last = nn.Linear(near_ties.FEATURES, HIDDEN, bias=False), nn.Linear(HIDDEN, 4)
    with torch.no_grad():
        half = near_ties.FEATURES // 2
        first.weight[:, half:] = first.weight[:, :half]
    groups: list[Any] = [
        {"params": first.parameters(), "lr": 1e-12},
        {"params": last.parameters(), "lr": 0.05},
    ]
    return potl.Task(
        model=nn.Sequential(first, nn.ReLU(), last),
        optimizer=torch.optim.SGD(groups, lr=0.05, momentum=0.9),
        dataset=near_ties.dataset(24_000),
        loss=functional.cross_entropy,
        batch_size=BATCH,
        epochs=epochs,
        accumulate=accumulate,
    )


def in_parts() -> potl.Task:
    return build(accumulate=3)


class Delivery:
    """A job in log64, its run and commitment."""

    def __init__(
        self, folder: Path, job: potl.Job | None = None, task: Callable[[], potl.Task] = build
    ) -> None:
        self.job = job or potl.Job.create(build, seed=3, checkpoint_every=3, arithmetic="log64")
        self.task = task
        self.run = potl.record(task, folder / "run", job=self.job, key=folder / "key.pem")
        self.commitment = self.run.commit()
        self.path = folder / "run"

    def verify(self) -> potl.Report:
        return potl.verify(
            self.run,
            job=self.job,
            commitment=self.commitment,
            task=self.task,
            checks=[potl.PEV(), potl.Replay(samples=4)],
            ledger=None,
        )

    def evidence(self) -> _core.Evidence:
        return _core.Evidence.open(str(self.path), job=self.job.core, commitment=None)


@pytest.fixture
def other_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier adds in another order than the trainer, as another device would."""
    auditor = functools.partial(_rounded_steps.Auditor, order=5)
    monkeypatch.setattr(_workload._rounded_steps, "Auditor", auditor)


def rejections(report: potl.Report) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for finding in report.findings:
        if finding.result == "reject":
            out.setdefault(finding.rule, []).append(finding)
    return out


@pytest.mark.usefixtures("other_order")
def test_an_honest_run_is_accepted_by_a_verifier_that_adds_in_another_order(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    evidence = delivery.evidence()
    entries = [
        len(_core.decode_rounding_log(evidence.load_rounding_log(step))["entries"])
        for step in range(1, delivery.job.steps + 1)
    ]
    assert sum(entries) > 100
    report = delivery.verify()
    assert report.verdict == "accepted", [finding.reason for finding in report.findings]
    assert all(replay["equal"] for replay in report.document["replays"])


def build_above_ties() -> potl.Task:
    """Every sum is a tie and a little more, so that everybody rounds it up."""
    draw = torch.Generator().manual_seed(4)
    digits = torch.randint(1 << 22, (HIDDEN * 4, 3), generator=draw)
    first, last = nn.Linear(3, HIDDEN * 4, bias=False), nn.Linear(HIDDEN * 4, 4)
    with torch.no_grad():
        first.weight.copy_((digits * 2 + torch.tensor([0, 1, 0])) * 2.0**-23 + 1)
        first.weight[:, 2] *= 2.0**-51
    groups: list[Any] = [
        {"params": first.parameters(), "lr": 1e-30},
        {"params": last.parameters(), "lr": 0.05},
    ]
    return potl.Task(
        model=nn.Sequential(first, nn.ReLU(), last),
        optimizer=torch.optim.SGD(groups, lr=0.05),
        dataset=TensorDataset(torch.ones(96, 3), torch.randint(4, (96,), generator=draw)),
        loss=functional.cross_entropy,
        batch_size=BATCH,
        epochs=2,
    )


@pytest.mark.usefixtures("other_order")
def test_an_honest_run_whose_ties_all_go_one_way_is_accepted(tmp_path: Path) -> None:
    job = potl.Job.create(build_above_ties, seed=3, checkpoint_every=3, arithmetic="log64")
    delivery = Delivery(tmp_path, job, build_above_ties)
    entries = _core.decode_rounding_log(delivery.evidence().load_rounding_log(1))["entries"]
    assert sum(up for _, up in entries) > 0.99 * len(entries) > 1000
    report = delivery.verify()
    assert report.verdict == "accepted", [finding.reason for finding in report.findings]


def test_losses_of_micro_batches_follow_the_log_from_part_to_part() -> None:
    """Backward passes lie between them: without those every later entry would be elsewhere."""
    from potl._job._session import Session

    job = potl.Job.create(in_parts, seed=3, checkpoint_every=3, arithmetic="log64")
    trainer, auditor = _rounded_steps.Trainer(), _rounded_steps.Auditor(order=5)
    entries = 0
    with Session.open(in_parts, seed=job.seed, job=job) as session, session.active():
        for step in range(1, job.steps + 1):
            before, ids = session.capture(), session.sample_ids(step)
            logged = session.run_step(step, ids, rounding=trainer).loss
            after = session.capture()
            auditor.expect(trainer.log, _core.rounding_log_digest(trainer.log))
            entries += len(_core.decode_rounding_log(trainer.log)["entries"])
            session.restore(before)
            assert session.loss_at(step, ids, rounding=auditor.beside) == logged
            assert all(p.grad is None for p in session.task.model.parameters())
            session.restore(before)
            auditor.forget()
            assert session.loss_at(step, ids, rounding=auditor) == logged
            # The last backward pass is all that a judge of the whole step misses.
            assert [each.fault for each in auditor.summary.rejections] == ["wrong_size"]
            session.restore(after)
    assert entries > 100


@pytest.mark.usefixtures("other_order")
def test_the_logs_of_a_resumed_run_are_followed_on_both_branches(tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=3, checkpoint_every=3, arithmetic="log64")
    with potl.Prover(build, tmp_path / "run", job=job, key=tmp_path / "key.pem") as prover:
        for step in prover.steps():
            if step.number == 5:
                break
    delivery = Delivery(tmp_path, job)
    assert len(list((delivery.path / "rounding").iterdir())) == 2
    report = delivery.verify()
    assert report.verdict == "accepted", [finding.reason for finding in report.findings]


@pytest.mark.usefixtures("other_order")
def test_a_forged_entry_is_a_finding_whose_proof_a_third_party_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def add_entry(log: bytes) -> bytes:
        seen.append(near_ties.with_entry(log))
        return seen[-1]

    near_ties.forge(monkeypatch, add_entry)
    delivery = Delivery(tmp_path)
    found = rejections(delivery.verify())
    assert set(found) == {"replay.rounding"}
    details = dict(found["replay.rounding"][0].details)
    assert details["fault"] == "outside_window"
    proof = base64.b64decode(details["proof"])

    # The third party: the opened state before step 2, the agreed samples, one exact dot product.
    evidence = delivery.evidence()
    with _session_at(delivery, evidence) as (weights, x):

        def operands(position: int) -> tuple[Any, Any]:
            row, column = divmod(position, HIDDEN)
            return x[row], weights[column]

        values = _core.decode_rounding_log(seen[-1])["values"]
        facts: dict[str, Any] = {"bits": 32, "values": values, "operands": operands}
        _core.referee_rounding(proof, committed=evidence.rounding_digest(2), **facts)
        with pytest.raises(_core.MismatchError):
            _core.referee_rounding(proof, committed=evidence.rounding_digest(1), **facts)


class _session_at:  # noqa: N801
    """First weights and inputs of step 2, from a replay of step 1."""

    def __init__(self, delivery: Delivery, evidence: _core.Evidence) -> None:
        self._delivery, self._evidence = delivery, evidence

    def __enter__(self) -> tuple[Any, Any]:
        from potl._job._session import Session

        job = self._delivery.job
        with Session.open(build, seed=job.seed, job=job) as session, session.active():
            session.restore(self._evidence.load_state(0))
            session.run_step(1, session.sample_ids(1))
            model: Any = session.task.model
            weights = np.ascontiguousarray(model[0].weight.detach().numpy().copy())
            samples = near_ties.dataset(24_000).tensors[0][session.sample_ids(2)]
        return weights, np.ascontiguousarray(samples.numpy())

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.usefixtures("other_order")
@pytest.mark.parametrize(
    ("change", "rules", "fault"),
    [
        (lambda log: log + b"\0", {"replay.rounding"}, "malformed"),
        # A step that binds no log ends the work: nothing is replayed.
        (lambda log: None, {"transcript.rounding"}, None),
        (lambda log: near_ties.changed(log, bits=31), {"replay.rounding"}, "wrong_size"),
        (near_ties.changed, {"replay.rounding"}, "missing_entry"),
    ],
    ids=["not canonical", "late", "other rounding", "entries left out"],
)
def test_a_dishonest_log_is_rejected(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Any,
    rules: set[str],
    fault: str | None,
) -> None:
    near_ties.forge(monkeypatch, change)
    found = rejections(Delivery(tmp_path).verify())
    assert rules <= set(found)
    faults = {dict(each.details)["fault"] for each in found.get("replay.rounding", ())}
    assert fault in faults if fault is not None else not faults


def test_a_log_that_was_changed_or_lost_after_the_commitment_is_rejected(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    kept = delivery.path / "rounding" / "branch-0.log"
    data = bytearray(kept.read_bytes())
    data[25] ^= 1
    kept.write_bytes(data)
    assert set(rejections(delivery.verify())) == {"transcript.checkpoint"}
    kept.unlink()
    assert "transcript.withheld" in rejections(delivery.verify())
