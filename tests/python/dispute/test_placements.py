# SPDX-License-Identifier: Apache-2.0
"""A cheat at a random step of 2,000 is found at that step and operator, whoever of the two cheats.

One honest run is recorded. A false one has its records up to the step, the state that the cheat
leads to, and states after it that are nobody's: no dispute looks behind the first step that
differs. With POTL_FULL each cheat is placed 100 times, and on ResNet-20 and a GPT.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pure_format
import pytest
import torch
import traced_nets
import zoo
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

import potl
from potl import _core
from potl._dispute._contents import contents_of
from potl._dispute._encoding import Reference, leaves
from potl._dispute._operators import leaf_bytes
from potl._dispute._outline import StateOutline
from potl._dispute._party import Story, paths_of
from potl._dispute._regions import multiply_adds
from potl._dispute._values import state_tensors, trace_values
from potl._job._agreement import open_unchecked

pytest.importorskip("potl._torch", reason="potl was built without torch")

FULL = bool(os.environ.get("POTL_FULL"))
PLACES = 100 if FULL else 1
STEPS, EVERY = 2000, 20
Build = Callable[[], potl.Task]


def tiny() -> potl.Task:
    net = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 10))
    )
    task = traced_nets.task(net, zoo.digits(), 4, traced_nets.sgd(net))
    task.epochs, task.max_steps = 5, STEPS
    return task


def shortened(build: Build) -> Build:
    def short() -> potl.Task:
        task = build()
        task.max_steps = 6
        return task

    return short


class Cheating(potl.Task):
    """Does something else in each step, while nobody sees an operator of it."""

    cheat: str
    draw: random.Random

    def step(self, batch: Any) -> torch.Tensor:
        with _disable_current_modes():
            if self.cheat == "batch":
                ids = [self.draw.randrange(len(self.dataset)) for _ in batch[1]]
                for i, one in enumerate(batch):
                    one.copy_(torch.stack([self.dataset[j][i] for j in ids]))
            if self.cheat == "poison":
                batch[1][0] = (batch[1][0] + 1 + self.draw.randrange(9)) % 10
        groups = self.optimizer.param_groups
        rates = [group["lr"] for group in groups]
        dropouts = [one for one in self.model.modules() if isinstance(one, nn.Dropout)]
        for group in groups if self.cheat == "rate" else ():
            group["lr"] = group["lr"] * 1.5
        for one in dropouts if self.cheat == "dropout" else ():
            one.eval()
        loss = super().step(batch)
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        for one in dropouts:
            one.train()
        return loss


# Another batch, a poisoned sample, another rate, no dropout, one weight or one state of the
# optimizer that is off by one ulp; and why each loses.
CHEATS = {
    "batch": "value",
    "poison": "value",
    "rate": "structure",
    "dropout": "structure",
    "weight": "value",
    "state": "value",
}


class Told(potl.Party):
    """A party whose story of the disputed step is known."""

    told: Story

    def _story(self, step: int) -> Story:
        return self.told


@dataclass
class Scene:
    """A job with an honest run of it, and a session to compute steps in."""

    build: Build
    job: potl.Job
    run: Path
    folder: Path
    session: Any
    numbers: Iterator[int]

    def states(self, step: int) -> Any:
        """The state before a step, computed from the newest stored one."""
        stored = (step - 1) // EVERY * EVERY
        evidence = _core.Evidence.open(str(self.run), job=None, commitment=None)
        self.session.restore(evidence.load_state(stored))
        for at, _, batch in self.session.batches(stored + 1, step - 1):
            self.session.run_step(at, batch)
        return self.session.capture()

    def copy(self, key: _core.SigningKey, at: int = 0, state: bytes = b"") -> Path:
        """The run under another key, with other states from a step on."""
        path = self.folder / str(next(self.numbers))
        shutil.copytree(
            self.run, path, copy_function=os.link, ignore=shutil.ignore_patterns("commitment", "t*")
        )
        shutil.copy(self.run / "transcript.log", path)
        shutil.copy(self.run / "telemetry.log", path)
        for one in (path / "checkpoints").iterdir():
            if at and int("".join(filter(str.isdigit, one.name)) or 0) >= at:
                one.unlink()
        run = pure_format.Run.read(path)
        run.change(0, trainer=key.public_key.raw)
        for place in run.steps():
            record: Any = run.records[place]
            if at and record.step >= at:
                said = state if record.step == at else hashlib.sha256(record.state).digest()
                run.change(place, state=said)
        last: Any = run.records[run.steps()[-1]]
        run.change(len(run.records) - 1, state=last.state)
        run.write()
        _core.commit_run(str(path), key)
        return path


@contextmanager
def scene(build: Build, folder: Path) -> Iterator[Scene]:
    job = potl.Job.create(build, seed=3, checkpoint_every=EVERY, arithmetic="ord32")
    run = potl.record(build, folder / "run", job=job)
    run.commit()
    with open_unchecked(build, job) as session, session.active():
        yield Scene(build, job, folder / "run", folder, session, iter(range(10**6)))


def told(session: Any, at: int, before: Any, alter: str, draw: random.Random) -> tuple[Story, Any]:
    """What a session's program makes of a step, and the digest of the state after it. `alter`
    begins the path of a tensor of the state, one element of which is moved by one ulp.
    """

    def executed(use: Callable[[], Any]) -> Any:
        session.restore(before)
        if isinstance(session.task, Cheating):
            session.task.draw = random.Random(at)
        return use()

    ids = session.sample_ids(at)
    trace = executed(lambda: trace_values(session, at, ids))
    after, kept = StateOutline.of(session.capture()), {}
    operators = list(trace.operators)
    if alter:
        written = [
            (path, leaf.path)
            for path, leaf in leaves(operators[-1].arguments["state"])
            if isinstance(leaf, Reference) and leaf.path.startswith("operator/")
        ]
        live = {path: one.detach() for path, one, _ in state_tensors(session, after)}
        choices = [
            (live["state/" + path.removesuffix("/0")], reference)
            for path, reference in written
            if path.startswith(alter)
        ]
        tensor, reference = draw.choice([one for one in choices if one[0].is_floating_point()])
        flat = tensor.view(-1)
        element = draw.randrange(len(flat))
        flat[element] = torch.nextafter(flat[element], flat[element] + 1)
        after = StateOutline.of(session.capture())
        kept[reference] = bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy())
    digest = after.digest()
    lines = [leaf_bytes(one) for one in operators]
    for reference, data in kept.items():
        number, result = map(int, reference.split("/")[1:])
        before_it = sum(hasattr(one, "root") for one in operators[number].results[:result])
        head = len(b"potl.operator.v1\0") + 32 + 32 * before_it
        leaf = lines[number]
        lines[number] = leaf[:head] + _core.content_root(data) + leaf[head + 32 :]
    lines[-1] = lines[-1][:-32] + _core.content_root(digest)

    def content(path: str) -> bytes:
        if path not in kept:
            wanted = {path}
            for number, one in enumerate(operators):
                if path in (all_of := paths_of(one, number)):
                    wanted.update(all_of)
            found = executed(lambda: contents_of(session, at, wanted))
            kept.update({name: data for name, data in found.items() if name not in kept})
        return kept[path]

    return Story(StateOutline.of(before), lines, operators, content), digest


def place(
    one: Scene, program: Any, referee: potl.Referee, at: int, liar: str, draw: random.Random
) -> tuple[potl.Verdict, int, list[Any]] | None:
    """A dispute about one step of a cheating program; None where the cheat changes nothing. Returns
    the operator, too, at which the two stories part.
    """
    before = one.states(at)
    true, honest = told(one.session, at, before, "", draw)
    alter = {"weight": "model", "state": "optimizers"}.get(program.task.cheat, "")
    false, digest = told(program, at, before, alter, draw)
    if digest == honest:  # where no unit is active, dropout does nothing
        return None
    pairs = zip(true.leaves, false.leaves, strict=False)
    number = next(i for i, (mine, theirs) in enumerate(pairs) if mine != theirs)

    def content(path: str) -> bytes:
        """What both agreed on a liar shows as it is."""
        return (own if path.startswith(f"operator/{number}/") else true).content(path)

    own, false = false, dataclasses.replace(false, content=content)
    parties: dict[str, Any] = {}
    for who in ("trainer", "auditor"):
        key = _core.SigningKey.generate()
        path = one.copy(key, at, digest) if who == liar else one.copy(key)
        party = parties[who] = Told(path, job=one.job, task=one.build, key=key)
        party.told = false if who == liar else true
    verdict = potl.dispute(**parties, referee=referee)
    for party in parties.values():
        party.close()
        shutil.rmtree(party.directory)
    return verdict, number, list(true.operators)


@contextmanager
def program_of(one: Scene, cheat: str) -> Iterator[Any]:
    """A session of a program that cheats."""

    def cheating() -> potl.Task:
        task = one.build()
        task.__class__ = Cheating
        task.cheat = cheat  # type: ignore[attr-defined]
        return task

    with open_unchecked(cheating, one.job) as session, session.active():
        yield session


def placed(one: Scene, cheats: dict[str, str], places: int, seed: int) -> None:
    """Every cheat at random steps: the step, the operator, who lost, and why."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    referee = potl.Referee(one.job, task=one.build)
    for cheat, why in cheats.items():
        draw = random.Random(f"{cheat} {seed}")
        with program_of(one, cheat) as program:
            for turn in range(places):
                liar = "auditor" if (turn + len(cheat)) % 4 == 1 else "trainer"
                placed_at = None
                while placed_at is None:
                    at = draw.randrange(2, one.job.core.steps + 1)
                    placed_at = place(one, program, referee, at, liar, draw)
                verdict, number, operators = placed_at
                said = (cheat, at, liar, number, verdict.lines())
                assert verdict.winner == ("auditor" if liar == "trainer" else "trainer"), said
                assert (verdict.step, verdict.why) == (at, why), said
                assert verdict.operator is not None and verdict.operator[0] == number, said
                products = sum(map(multiply_adds, operators))
                cost = verdict.facts.get("multiply_adds", 0)
                assert isinstance(cost, int) and (cost <= 64 or 100 * cost <= products), said
                found[cheat, verdict.operator[1]] += 1
    for (cheat, name), count in sorted(found.items()):
        print(f"{cheat}: {count} at {name}, all at their step")


def test_cheats_at_random_steps_are_found(tmp_path: Path) -> None:
    with scene(tiny, tmp_path) as one:
        assert one.job.core.steps == STEPS
        placed(one, CHEATS, PLACES, 1)


@pytest.mark.skipif(not FULL, reason="POTL_FULL")
@pytest.mark.parametrize("name", ["resnet20", "gpt"])
def test_cheats_in_real_nets_are_found(name: str, tmp_path: Path) -> None:
    cheats = {cheat: why for cheat, why in CHEATS.items() if cheat != "dropout"}
    if name == "gpt":
        del cheats["poison"]  # its targets are a row of characters
    with scene(shortened(traced_nets.NETS[name]), tmp_path) as one:
        placed(one, cheats, 4, 2)
