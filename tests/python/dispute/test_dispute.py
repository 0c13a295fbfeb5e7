# SPDX-License-Identifier: Apache-2.0
"""Disputes between two trainings: who lies is found at the step and operator, and convicted."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import places
import programs
import pytest
import torch
import traced_nets
from disputed import EVERY, Case, Liar, case, false_run
from torch.utils._python_dispatch import _disable_current_modes

import potl
from potl import _core
from potl._cli import _cli
from potl._dispute._regions import multiply_adds

pytest.importorskip("potl._torch", reason="potl was built without torch")

Build = Callable[[], potl.Task]


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(traced_nets.mlp, tmp_path_factory.mktemp("mlp"))


def short_resnet() -> potl.Task:
    task = traced_nets.resnet20()
    task.max_steps = 5
    return task


def short_gpt() -> potl.Task:
    task = traced_nets.gpt()
    task.max_steps = 5
    return task


def operators_of(one: Case, at: int) -> list[Any]:
    """The honest operators of a step."""
    from potl._dispute._derive import derive_operators

    honest = one.honest()
    return list(derive_operators(one.build, one.job, at, before=honest._story(at).before))


def check_evidence(verdict: potl.Verdict, one: Case, path: Path) -> None:
    """Anybody comes to the same verdict, computing or believing."""
    verdict.evidence.write(path)
    assert verdict.believed == 0  # the referee's own
    assert not any("believed" in line for line in verdict.lines())
    believed = potl.judge(path, job=one.job)
    assert (believed.winner, believed.why, believed.step) == (
        verdict.winner,
        verdict.why,
        verdict.step,
    )
    assert believed.believed > 0
    assert any("believed" in line for line in believed.lines())
    again = potl.judge(path, job=one.job, task=one.build)
    assert again.winner == verdict.winner and again.believed == 0
    assert again.operator == verdict.operator and again.element == verdict.element


def test_equal_runs_are_no_dispute(mlp: Case) -> None:
    verdict = potl.dispute(trainer=mlp.honest(), auditor=mlp.auditor(), referee=mlp.referee())
    assert verdict.why == "agreement" and verdict.winner is None
    assert not verdict.trainer_wrong and not verdict.auditor_wrong
    assert not any("decisions" in line for line in verdict.lines())


@pytest.mark.parametrize("liar", ["trainer", "auditor"])
def test_who_lies_about_an_operator_is_convicted_there(
    liar: str, mlp: Case, tmp_path: Path
) -> None:
    at = 21
    key = mlp.key if liar == "trainer" else _core.SigningKey.generate()
    false = false_run(mlp.build, mlp.job, at, tmp_path / "false", key)
    operators = operators_of(mlp, at)
    candidates = [
        i
        for i, operator in enumerate(operators[:-1])
        if operator.tensors
        and operator.results[0].shape
        and not _core.returns_unset(operator.name)
        and operator.results[0].shape[0] > 0
    ]
    chosen = [*random.Random(5).sample(candidates, 5), None]
    for operator in chosen:
        lying = Liar(false, job=mlp.job, task=mlp.build, key=key, at=at, operator=operator)
        honest = mlp.auditor() if liar == "trainer" else mlp.honest()
        parties = {liar: lying, "auditor" if liar == "trainer" else "trainer": honest}
        verdict = potl.dispute(**parties, referee=mlp.referee())  # type: ignore[arg-type]
        expected = len(operators) - 1 if operator is None else operator
        assert verdict.step == at, verdict
        assert verdict.operator == (expected, operators[expected].name), verdict.facts
        assert verdict.why == "value", verdict.facts
        assert verdict.winner == ("auditor" if liar == "trainer" else "trainer")
        # 57 steps, fewer than 256 operators, one chunk or a few.
        assert verdict.moves <= 2 * 6 + 2 * 8 + 2 * 4 + 3 * 4
        if operator in (chosen[0], None):
            check_evidence(verdict, mlp, tmp_path / "evidence.json")


@pytest.mark.parametrize("build", [short_resnet, short_gpt], ids=["resnet20", "gpt"])
def test_lies_in_real_nets_are_found(build: Build, tmp_path: Path) -> None:
    one, at = case(build, tmp_path), 4
    false = false_run(one.build, one.job, at, tmp_path / "false", one.key)
    operators = operators_of(one, at)
    kinds = ("convolution", "mm.default", "foreach_addcdiv", "native_batch_norm")
    for kind in kinds:
        found = [i for i, operator in enumerate(operators) if kind in operator.name]
        if not found:
            continue
        number = random.Random(kind).choice(found)
        verdict = potl.dispute(
            trainer=Liar(false, job=one.job, task=build, key=one.key, at=at, operator=number),
            auditor=one.auditor(),
            referee=one.referee(),
        )
        assert (verdict.winner, verdict.step, verdict.why) == ("auditor", at, "value"), kind
        assert verdict.operator == (number, operators[number].name)
        # At most 1 % of what the products of a step cost.
        products = sum(map(multiply_adds, operators))
        assert verdict.facts["multiply_adds"] <= products / 100


def test_another_program_loses_by_its_structure(mlp: Case, tmp_path: Path) -> None:
    """The trainer tells the truth about what it ran, which is not the agreed program (A31)."""

    class Cheat(potl.Task):
        target: torch.Tensor

        def step(self, batch: Any) -> torch.Tensor:
            with _disable_current_modes():
                hit = torch.equal(batch[0], self.target)
            group = self.optimizer.param_groups[0]
            rate = group["lr"]
            if hit:
                group["lr"] = rate * 2
            loss = super().step(batch)
            group["lr"] = rate
            return loss

    at = 30
    data = mlp.build().dataset
    target = torch.stack([data[i][0] for i in mlp.job.core.sample_ids(at)])

    def build() -> potl.Task:
        task = mlp.build()
        task.__class__ = Cheat
        task.target = target  # type: ignore[attr-defined]
        return task

    class Unchecked(potl.Party):
        def open(self) -> potl.Session:
            from potl._job._agreement import open_unchecked

            return open_unchecked(build, self.job)

    run = potl.record(build, tmp_path / "run", job=mlp.job, key=mlp.key, check_job=False)
    run.commit()
    trainer = Unchecked(run, job=mlp.job, task=build, key=mlp.key)
    verdict = potl.dispute(trainer=trainer, auditor=mlp.auditor(), referee=mlp.referee())
    assert (verdict.winner, verdict.step, verdict.why) == ("auditor", at, "structure")
    assert verdict.operator is not None
    check_evidence(verdict, mlp, tmp_path / "evidence.json")


def test_who_answers_with_something_else_loses(mlp: Case, tmp_path: Path) -> None:
    at = 9
    false = false_run(mlp.build, mlp.job, at, tmp_path / "false", mlp.key)
    operators = operators_of(mlp, at)
    product = next(i for i, one in enumerate(operators) if "addmm" in one.name)

    def lying(**changes: Any) -> potl.Party:
        party = Liar(false, job=mlp.job, task=mlp.build, key=mlp.key, at=at, operator=product)
        for name, change in changes.items():
            setattr(party, f"_{name}", change)
        return party

    def fails(now: Any) -> Any:
        raise MemoryError

    def against(party: potl.Party) -> potl.Verdict:
        return potl.dispute(trainer=party, auditor=mlp.auditor(), referee=mlp.referee())

    for name in ("claim", "opening", "answer"):
        verdict = against(lying(**{name: fails}))  # a program that fails convicts nobody
        assert (verdict.winner, verdict.why) == (None, "referee"), name
        assert not verdict.trainer_wrong and not verdict.auditor_wrong
        assert "the trainer could not answer: MemoryError" in verdict.facts["undecided"]
    for text in (b"", b"{}", b"[1]", b'{"state":{}}', b'{"state":{"map":[[1]]}}', b"\xff"):
        verdict = against(lying(answer=lambda now, text=text: text))
        assert verdict.winner == "auditor" and verdict.why in ("opening", "garbage"), text
    silly = mlp.auditor()
    silly._answer = lambda now: b"{}"  # type: ignore[method-assign]
    verdict = potl.dispute(
        trainer=lying(answer=silly._answer), auditor=silly, referee=mlp.referee()
    )
    assert verdict.why == "referee" and not verdict.trainer_wrong and not verdict.auditor_wrong
    other = lying()
    verdict = against(lying(opening=lambda now: _core.DisputeOpening(b"other", [])))
    assert (verdict.winner, verdict.why) == ("auditor", "structure")
    # An answer to another question.
    answers = {"state": None}

    def repeated(now: Any) -> bytes:
        if answers["state"] is None:
            answers["state"] = other._answer(now)
        return answers["state"]  # type: ignore[return-value]

    verdict = against(lying(answer=repeated))
    assert (verdict.winner, verdict.why) == ("auditor", "opening")


def turned(text: str) -> str:
    """Base64 with another last byte."""
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    return base64.b64encode(data).decode()


def other_state(answer: dict[str, Any]) -> None:
    text = json.dumps(answer["state"])
    root = re.search('"tensor": .*?"([0-9a-f]{64})"', text)
    assert root is not None
    answer["state"] = json.loads(text.replace(root[1], "0" * 64))


def other_leaf(answer: dict[str, Any]) -> None:
    for one in answer["leaves"].values():
        one["leaf"] = turned(one["leaf"])


def other_chunk(answer: dict[str, Any]) -> None:
    for one in answer["operands"].values():
        one[0]["bytes"] = turned(one[0]["bytes"])


@pytest.mark.parametrize(
    ("member", "change"),
    [("state", other_state), ("leaves", other_leaf), ("operands", other_chunk)],
)
def test_answers_that_are_well_formed_and_false_lose(
    member: str, change: Callable[[dict[str, Any]], None], mlp: Case, tmp_path: Path
) -> None:
    at = 9
    false = false_run(mlp.build, mlp.job, at, tmp_path / "false", mlp.key)
    operators = operators_of(mlp, at)
    product = max(i for i, one in enumerate(operators) if "mm" in one.name)
    party = Liar(false, job=mlp.job, task=mlp.build, key=mlp.key, at=at, operator=product)
    true = party._answer

    def answer(now: Any) -> bytes:
        document = json.loads(true(now))
        if member in document:
            change(document)
        return _core.canonical_json(document)

    party._answer = answer  # type: ignore[method-assign]
    verdict = potl.dispute(trainer=party, auditor=mlp.auditor(), referee=mlp.referee())
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "opening", at)


def test_a_referee_that_cannot_decide_convicts_nobody(
    mlp: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 9
    false = false_run(mlp.build, mlp.job, at, tmp_path / "false", mlp.key)

    def build() -> potl.Task:
        raise RuntimeError("no data here")

    dispute = functools.partial(
        potl.dispute,
        trainer=Liar(false, job=mlp.job, task=mlp.build, key=mlp.key, at=at, operator=None),
        auditor=mlp.auditor(),
        referee=potl.Referee(mlp.job, task=build),
    )
    with pytest.raises(RuntimeError, match="no data here"):
        dispute()
    monkeypatch.setattr(potl.Referee, "_require_task", lambda self: None)  # later, they were there
    verdict = dispute()
    assert verdict.why == "referee" and verdict.winner is None
    assert not verdict.trainer_wrong and not verdict.auditor_wrong
    assert "no data here" in verdict.facts["undecided"]


def test_an_honest_answer_that_is_too_long_convicts_nobody(
    mlp: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from potl._dispute import _referee

    false = false_run(mlp.build, mlp.job, 9, tmp_path / "false", mlp.key)
    lie = functools.partial(potl.Party, false, job=mlp.job, task=mlp.build, key=mlp.key)
    monkeypatch.setattr(_referee, "bytes_of_state", lambda *given: 256)
    verdict = potl.dispute(trainer=lie(), auditor=mlp.auditor(), referee=mlp.referee())
    assert (verdict.why, verdict.winner) == ("referee", None)
    assert not verdict.trainer_wrong and not verdict.auditor_wrong


class Peeking(torch.nn.Linear):
    """Does something else where its tensors have no elements."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return out if type(x) is torch.Tensor else out * 2


def peeking() -> potl.Task:
    task = traced_nets.mlp()
    task.model[1].__class__ = Peeking
    return task


def test_a_task_that_derives_as_another_program_convicts_nobody(tmp_path: Path) -> None:
    one, at = case(peeking, tmp_path), 9
    false = false_run(one.build, one.job, at, tmp_path / "false", one.key)
    trainer = Liar(false, job=one.job, task=peeking, key=one.key, at=at, operator=4)
    # It shows what the referee derives, and the honest auditor what the step does.
    derived = operators_of(one, at)
    story = trainer._lie
    leaves = [
        b"potl.operator.v1\0" + derived[i].structure + leaf[49:] if i < len(derived) else leaf
        for i, leaf in enumerate(story.leaves)
    ]
    leaves = [*leaves[: len(derived) - 1], leaves[-1]]
    end = b"potl.operator.v1\0" + derived[-1].structure + story.leaves[-1][-32:]
    leaves[-1:] = [bytes(81)] * (len(derived) - len(leaves)) + [end]
    trainer._lie = dataclasses.replace(story, leaves=leaves)
    verdict = potl.dispute(trainer=trainer, auditor=one.auditor(), referee=one.referee())
    assert verdict.why == "referee" and verdict.winner is None
    assert "derived as something else than it runs" in verdict.facts["undecided"]


def test_evidence_cannot_be_changed(mlp: Case, tmp_path: Path) -> None:
    at = 9
    false = false_run(mlp.build, mlp.job, at, tmp_path / "false", mlp.key)
    verdict = potl.dispute(
        trainer=Liar(false, job=mlp.job, task=mlp.build, key=mlp.key, at=at, operator=None),
        auditor=mlp.auditor(),
        referee=mlp.referee(),
    )
    path = tmp_path / "evidence.json"
    verdict.evidence.write(path)
    document = json.loads(path.read_text())
    text = document["transcript"]
    chance = random.Random(3)
    for _ in range(100):
        at = chance.randrange(len(text))
        document["transcript"] = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
        path.write_text(json.dumps(document))
        with pytest.raises((potl.MalformedError, potl.MismatchError, potl.MissingError)):
            potl.judge(path, job=mlp.job)
    other = potl.Job.create(mlp.build, seed=4, checkpoint_every=EVERY)
    with pytest.raises(potl.MismatchError, match="another job"):
        potl.judge(verdict.evidence, job=other)

    def larger() -> potl.Task:
        task = mlp.build()
        task.batch_size = 2 * (task.batch_size or 1)
        return task

    # Not that the referee has decided something else.
    with pytest.raises(potl.JobMismatch, match="batch_size"):
        potl.judge(verdict.evidence, job=mlp.job, task=larger)


def test_keys_that_nothing_vouches_for_are_named(mlp: Case, tmp_path: Path) -> None:
    """Who has all keys can make up a dispute."""
    stranger = _core.SigningKey.generate()
    false = false_run(mlp.build, mlp.job, 9, tmp_path / "false", stranger)

    def fails(now: Any) -> Any:
        raise MemoryError

    silent = mlp.party(false, key=stranger)
    silent._claim = fails  # type: ignore[method-assign]
    with pytest.raises(potl.MismatchError, match="pins another key of the trainer"):
        potl.dispute(trainer=silent, auditor=mlp.auditor(), referee=mlp.referee())
    silent = mlp.party(false_run(mlp.build, mlp.job, 9, tmp_path / "own", mlp.key), key=mlp.key)
    silent._claim = fails  # type: ignore[method-assign]
    referee = mlp.referee()
    verdict = potl.dispute(trainer=silent, auditor=mlp.auditor(), referee=referee)
    assert verdict.why == "referee" and verdict.unknown_keys == ()
    judged = potl.judge(verdict.evidence, job=mlp.job)
    assert judged.unknown_keys == ("auditor", "referee")
    assert "nothing vouches for the keys of: auditor, referee" in judged.lines()
    key = tmp_path / "referee.pub"
    key.write_text(referee.key.public_key.to_pem())
    judged = potl.judge(verdict.evidence, job=mlp.job, keys={"referee": key})
    assert judged.unknown_keys == ("auditor",)
    with pytest.raises(potl.MismatchError, match="another key of the referee"):
        potl.judge(verdict.evidence, job=mlp.job, keys={"referee": stranger.public_key})


def test_a_trainer_does_not_choose_which_of_two_commitments_is_disputed(
    mlp: Case, tmp_path: Path
) -> None:
    """An honest run that it made afterwards would win any dispute."""
    false_run(mlp.build, mlp.job, 9, tmp_path / "false", mlp.key)
    held, other = tmp_path / "false/commitment", mlp.folder / "run/commitment"
    dispute = functools.partial(
        potl.dispute, trainer=mlp.honest(), auditor=mlp.auditor(), referee=mlp.referee()
    )
    unknown = dispute()
    assert unknown.why == "agreement" and not unknown.holds_commitment
    sha = _core.sha256(other.read_bytes()).hex()
    assert unknown.commitments["trainer"] == sha
    assert any(sha[:16] in line and "you hold that one" in line for line in unknown.lines())
    known = dispute(commitment=other)
    assert known.holds_commitment and not any("you hold that one" in line for line in known.lines())
    with pytest.raises(potl.MismatchError, match="another one than you hold"):
        dispute(commitment=held)
    for evidence in (unknown.evidence, known.evidence):
        assert potl.judge(evidence, job=mlp.job, commitment=other).why == "agreement"
        with pytest.raises(potl.MismatchError, match="another one than you hold"):
            potl.judge(evidence, job=mlp.job, commitment=held)
    unknown.evidence.write(tmp_path / "evidence.json")
    mlp.job.write(tmp_path / "job.json")
    command = ["referee", "--offline", str(tmp_path / "evidence.json")]
    command += ["--job", str(tmp_path / "job.json"), *known_keys(unknown, tmp_path), "--commitment"]
    assert _cli.run([*command, str(other)]) == 0
    assert _cli.run([*command, str(held)]) not in (0, 1)


def known_keys(verdict: potl.Verdict, folder: Path) -> list[str]:
    """Options of `potl referee --offline` for who knows the auditor and the referee."""
    out: list[str] = []
    for who in ("auditor", "referee"):
        (folder / f"{who}.pub").write_text(verdict.evidence.keys[who])
        out += [f"--{who}-key", str(folder / f"{who}.pub")]
    return out


def test_a_made_up_dispute_clears_nobody(
    mlp: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trainer agrees with an auditor, before a referee, both of whom it made up."""
    false, own = (
        mlp.party(false_run(mlp.build, mlp.job, 9, tmp_path / name, key), key=key)
        for name, key in (("false", mlp.key), ("own", _core.SigningKey.generate()))
    )
    verdict = potl.dispute(trainer=false, auditor=own, referee=mlp.referee())
    assert verdict.why == "agreement"
    verdict.evidence.write(tmp_path / "evidence.json")
    mlp.job.write(tmp_path / "job.json")
    command = ["referee", "--offline", str(tmp_path / "evidence.json")]
    command += ["--job", str(tmp_path / "job.json")]
    keys = known_keys(verdict, tmp_path)
    assert _cli.run([*command, *keys]) == 0
    assert _cli.run([*command, *keys[:2]]) == 0
    capsys.readouterr()
    for known in ([], keys[2:]):
        assert _cli.run([*command, *known]) == 3
        assert "nothing vouches for" in capsys.readouterr().out


@pytest.mark.parametrize("of", [{"kind": "oversized", "bytes": 1 << 30}, {"kind": "message"}])
def test_who_sent_what_nobody_signed_is_the_referees_word(
    of: dict[str, Any], mlp: Case, tmp_path: Path
) -> None:
    """A referee writes after the first line that the trainer sent something that is no message."""
    referee = mlp.referee()
    false = mlp.party(false_run(mlp.build, mlp.job, 9, tmp_path / "false", mlp.key), key=mlp.key)
    evidence = potl.dispute(trainer=false, auditor=mlp.auditor(), referee=referee).evidence
    first = evidence.transcript.splitlines()[0]
    if of["kind"] == "message":
        of = {**of, "message": base64.b64encode(b"no message").decode()}
    line: dict[str, Any] = {
        "at": json.loads(first)["at"],
        "entry": {**of, "from": "trainer"},
        "previous": hashlib.sha256(first.encode()).hexdigest(),
    }
    signed = referee.key.sign(b"potl.dispute.entry.v1\0" + _core.canonical_json(line))
    line["signature"] = base64.b64encode(signed).decode()
    text = f"{first}\n{_core.canonical_json(line).decode()}\n"
    made_up = dataclasses.replace(evidence, transcript=text)
    judged = potl.judge(made_up, job=mlp.job, task=mlp.build)
    assert (judged.winner, judged.why) == ("auditor", "garbage")
    assert "nobody signed for this dispute is the referee's word" in "\n".join(judged.lines())


def test_arithmetic_without_one_answer_is_refused(mlp: Case) -> None:
    job = potl.Job.create(mlp.build, seed=3, checkpoint_every=EVERY, arithmetic="stock")
    with pytest.raises(potl.UnsupportedError, match="ord32"):
        potl.Referee(job, task=mlp.build)
    with pytest.raises(potl.UnsupportedError, match="ord32"):
        potl.Party(mlp.run, job=job, task=mlp.build)


def test_the_command(mlp: Case, tmp_path: Path) -> None:
    at = 9
    false = false_run(mlp.build, mlp.job, at, tmp_path / "false", mlp.key)
    verdict = potl.dispute(
        trainer=Liar(false, job=mlp.job, task=mlp.build, key=mlp.key, at=at, operator=5),
        auditor=mlp.auditor(),
        referee=mlp.referee(),
    )
    verdict.evidence.write(tmp_path / "evidence.json")
    mlp.job.write(tmp_path / "job.json")
    (tmp_path / "trainer.py").write_text(
        f"import sys\nsys.path.append({str(places.HELPERS)!r})\nfrom traced_nets import mlp\n"
    )
    command = [programs.command(), "referee", "--offline", "evidence.json", "--job", "job.json"]
    run = functools.partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True)
    done = run([*command, "--task", "trainer:mlp"])
    assert done.returncode == 1, done.stderr
    assert "the auditor is right: computed again, the value is another one" in done.stdout
    assert "all decisions of the referee were computed here" in done.stdout
    done = run([*command, *known_keys(verdict, tmp_path), "--json"])
    assert done.returncode == 1 and json.loads(done.stdout)["step"] == at
