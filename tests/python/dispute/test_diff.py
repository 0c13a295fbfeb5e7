# SPDX-License-Identifier: Apache-2.0
"""Two runs that part are told where and why."""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
import torch.nn.functional as F
import traced_nets
import zoo
from torch import nn

import potl
from potl import _core
from potl._cli import _cli

pytest.importorskip("potl._torch", reason="potl was built without torch")

Build = Callable[[], potl.Task]
AT = 6


class Layer(nn.Linear):
    """Adds a thousandth at the calls that it is told."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        self.calls.add_(1)
        for step in Layer.broken:
            out = out + 1e-3 * (self.calls == step)
        return out

    broken: tuple[int, ...] = ()


def restless_batch(samples: list[Any]) -> Any:
    """Adds noise that nothing seeds."""
    x, y = torch.utils.data.default_collate(samples)
    return x + 1e-3 * next(NOISE), y


NOISE = itertools.count()


def brighter(samples: list[Any]) -> Any:
    x, y = torch.utils.data.default_collate(samples)
    return x + 1.0, y


def of(*, momentum: float = 0.9, later: float = 1.0, batch: int = 16, width: int = 32) -> potl.Task:
    net = nn.Sequential(nn.Flatten(), Layer(64, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=momentum)
    return potl.Task(
        model=net,
        optimizer=optimizer,
        dataset=zoo.digits(),
        loss=F.cross_entropy,
        batch_size=batch,
        max_steps=12,
        scheduler=torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 1.0 if step < AT else later
        ),
    )


def restless() -> potl.Task:
    made = of()
    made.collate_fn = restless_batch
    return made


@pytest.fixture(autouse=True)
def _honest() -> Any:
    yield
    Layer.broken = ()


def recorded(
    folder: Path, build: Build, *, seed: int = 7, arithmetic: str = "ord32", job: Any = None
) -> potl.Run:
    job = job or potl.Job.create(build, seed=seed, checkpoint_every=4, arithmetic=arithmetic)
    return potl.record(build, folder, job=job)


def test_two_honest_runs_are_the_same(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / name, of) for name in "ab"]
    found = potl.diff(*runs, task=of)
    assert found.same
    assert (found.compared, found.steps, found.causes) == (12, (12, 12), ())
    assert "agree on all 12 steps" in str(found)


@pytest.mark.parametrize("damaged", [0, 1])
def test_runs_are_not_the_same_where_one_cannot_be_read(tmp_path: Path, damaged: int) -> None:
    runs = [recorded(tmp_path / name, of).path for name in "ab"]
    log = runs[damaged] / "transcript.log"
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)
    name = ("first", "second")[damaged]
    said = rf"agree on the first \d steps, but the log of the {name} run cannot be read to its end"
    with pytest.raises(potl.MalformedError, match=said):
        potl.diff(*runs)
    assert _cli.run(["diff", *map(str, runs)]) == 4
    # What differs before the damage is told all the same.
    other = recorded(tmp_path / "c", of, seed=8).path
    assert potl.diff(runs[damaged], other).step == 0
    assert "the log is damaged" in str(potl.diff(runs[damaged], other))


def test_a_run_that_still_grows_is_the_same_as_far_as_it_goes(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / name, of).path for name in "ab"]
    log = runs[1] / "transcript.log"
    log.write_bytes(log.read_bytes()[:-400])
    found = potl.diff(*runs)
    assert found.same and found.steps[1] < found.steps[0]


@pytest.mark.parametrize("arithmetic", ["ord32", "log64"])
def test_a_broken_machine_is_named_by_step_and_by_which_run_is_reproduced(
    tmp_path: Path, arithmetic: str
) -> None:
    a = recorded(tmp_path / "a", of, arithmetic=arithmetic)
    Layer.broken = (AT,)
    b = recorded(tmp_path / "b", of, job=a.job)
    left = potl.trace(b, step=AT, task=of)
    Layer.broken = ()
    alone = potl.diff(a, b)
    assert (alone.step, alone.parts, alone.operator) == (AT, ("loss", "state"), None)
    found = potl.diff(a, b, task=of)
    assert found.step == AT
    assert found.reproduced == (True, False)
    assert found.operator is None
    assert any("potl trace --step 6" in cause and "second" in cause for cause in found.causes)
    if arithmetic == "log64":
        return
    # With the trace of the machine where it was trained, the operator too.
    left.write(b.path)
    told = potl.diff(a, b, task=of)
    assert told.operator is not None
    assert told.operator.what.startswith("another operator, aten.")
    assert potl.diff(b, a, task=of).reproduced == (False, True)


@pytest.mark.parametrize(
    ("change", "step", "part", "operator", "cause"),
    [
        ({"later": 0.5}, AT, "state", "capture", "learning_rates"),
        ({"batch": 24}, 1, "samples", "view", "other samples"),
    ],
)
def test_other_jobs_are_explained(
    tmp_path: Path, change: dict[str, Any], step: int, part: str, operator: str, cause: str
) -> None:
    other = functools.partial(of, **change)
    runs = recorded(tmp_path / "a", of), recorded(tmp_path / "b", other)
    found = potl.diff(*runs, task=of, other_task=other)
    assert found.step == step
    assert part in found.parts
    assert found.reproduced == (True, True)
    assert found.operator is not None
    assert operator in found.operator.name
    assert any(cause in one for one in found.causes), found.causes


def test_a_job_that_claims_more_samples_than_there_is_memory_is_compared(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", of)
    fields = run.job.core.fields()
    fields = {**fields, "data": {**fields["data"], "count": 1 << 40}, "batch_size": 1 << 32}
    other = _core.Job.parse(_core.canonical_json(fields))
    recorder = _core.Recorder.create(
        str(tmp_path / "b"), other, _core.SigningKey.generate(), software="other"
    )
    evidence = _core.Evidence.open(str(run.path), job=None, commitment=None)
    state = evidence.load_state(0)
    recorder.append_initial(state)
    rest = {"epoch": 0, "rates": [0.05], "random_draws": 0, "flags": 0, "duration_ns": 1}
    recorder.append_step(state, step=1, sample_ids=[0], loss=9.0, checkpoint=False, **rest)
    recorder.abandon()
    found = potl.diff(run, tmp_path / "b")
    assert found.step == 1 and found.parts[0] == "samples"
    assert any("other samples" in one for one in found.causes)


def test_other_options_are_named(tmp_path: Path) -> None:
    other = functools.partial(of, momentum=0.8)
    runs = recorded(tmp_path / "a", of), recorded(tmp_path / "b", other)
    found = potl.diff(*runs)
    assert found.step == 0
    assert "param_groups/0/momentum is 0.9 in the first, 0.8 in the second" in found.causes[0]


def test_another_initial_state_names_its_first_tensor(tmp_path: Path) -> None:
    runs = recorded(tmp_path / "a", of), recorded(tmp_path / "b", of, seed=8)
    found = potl.diff(*runs, task=of)
    assert found.step == 0
    assert "model/parameters/1.bias" in found.causes[0]
    (jobs,) = [one for one in found.causes if one.startswith("the jobs differ")]
    assert "seed is 7 in the first, 8 in the second; the initial states and the first" in jobs
    assert "begin with other states" in str(found)


def test_reads_that_nothing_seeds_are_named(tmp_path: Path) -> None:
    # Such runs are recorded by no current potl: it makes a batch again, and an exact job pins them.
    job = potl.Job.create(restless, seed=7, checkpoint_every=4, arithmetic="stock", check=False)
    runs = [potl.record(restless, tmp_path / name, job=job, check_job=False) for name in "ab"]
    found = potl.diff(*runs, task=restless)
    assert found.step == 1
    assert found.operator is not None
    assert found.operator.what == "another result"
    assert "not repeatable even on this machine: operator 1 of" in found.causes[0]
    assert "whenever it is read" in found.causes[1]


def test_steps_before_that_end_elsewhere_are_said(tmp_path: Path) -> None:
    Layer.broken = (AT - 1,)
    a = recorded(tmp_path / "a", of)
    Layer.broken = (AT - 1, AT)
    b = recorded(tmp_path / "b", of, job=a.job)
    Layer.broken = ()
    found = potl.diff(a, b, task=of)
    assert (found.step, found.reproduced) == (AT, (None, None))
    assert any("steps 5 to 5 end in another state here" in one for one in found.causes)


def test_batches_of_other_data_are_named(tmp_path: Path) -> None:
    def bright() -> potl.Task:
        made = of()
        made.collate_fn = brighter
        return made

    a, b = recorded(tmp_path / "a", of), recorded(tmp_path / "b", bright)
    found = potl.diff(a, b, task=of, other_task=bright)
    assert (found.step, found.reproduced) == (1, (True, True))
    assert found.causes[0] == "the batches of the step hold other values"
    long = r"first_steps/0 is '[0-9a-f]+\.\.\.' in the first, '[0-9a-f]+\.\.\.' in the second"
    assert any(re.search(long, one) for one in found.causes), found.causes


def test_stock_arithmetic_is_named_as_a_cause(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", of, arithmetic="stock")
    Layer.broken = (AT,)
    b = recorded(tmp_path / "b", of, job=a.job)
    Layer.broken = ()
    assert any("stock arithmetic" in one for one in potl.diff(a, b).causes)


def test_a_task_that_is_not_the_job_s_is_said(tmp_path: Path) -> None:
    wide = functools.partial(of, width=33)
    a = recorded(tmp_path / "a", of)
    Layer.broken = (AT,)
    b = recorded(tmp_path / "b", of, job=a.job)
    Layer.broken = ()
    found = potl.diff(a, b, task=of, other_task=wide)
    assert found.reproduced == (True, None)
    assert any("second run was not executed" in one for one in found.causes)
    with pytest.raises(potl.UsageError, match="needs task"):
        potl.diff(a, b, other_task=wide)
    with pytest.raises(potl.UsageError, match="no run directory"):
        potl.diff(a, tmp_path / "c")


def test_a_run_without_states_is_compared_by_its_log(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", of)
    Layer.broken = (AT,)
    b = recorded(tmp_path / "b", of, job=a.job)
    Layer.broken = ()
    for run in (a, b):
        for file in (run.path / "checkpoints").iterdir():
            file.unlink()
    found = potl.diff(a, b, task=of)
    assert found.step == AT
    assert any("no state before step 6 is stored" in one for one in found.causes)


def test_the_command_prints_the_same_and_ends_with_one(tmp_path: Path) -> None:
    runs = (
        recorded(tmp_path / "a", traced_nets.mlp),
        recorded(tmp_path / "b", traced_nets.mlp, seed=8),
    )
    command = [programs.command(), "diff", str(runs[0].path), str(runs[1].path)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert (document["same"], document["step"]) == (False, 0)
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "the runs begin with other states" in printed.stdout
    command[3] = command[2]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
