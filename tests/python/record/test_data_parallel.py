# SPDX-License-Identifier: Apache-2.0
"""A training that several processes share has the record of one process."""

import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import programs
import pytest
import rank_runs
import tasks
import torch
from places import HELPERS

import potl
from potl._cli import _cli
from potl._job._running_statistics import fma
from potl._record import _data_parallel, _record
from potl._record._data_parallel import plain_modules

# Of torch's own arithmetic, whose moves of running statistics are not potl's.
ROUNDED = "batch norm stock"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every shared task, recorded by this process and by three."""
    folder = tmp_path_factory.mktemp("shared")
    for name, make in rank_runs.SHARED.items():
        build = rank_runs.cut(make)
        job = potl.Job.create(build, seed=7, checkpoint_every=4, arithmetic=name.rpartition(" ")[2])
        job.write(folder / f"{name}.json")
        potl.record(build, folder / f"{name}.alone", job=job)
    rank_runs.together("shared", folder)
    return folder


@pytest.mark.parametrize("name", sorted(rank_runs.SHARED.keys() - {ROUNDED}))
def test_bits_are_those_of_one_process(trained, name):
    found = potl.diff(trained / f"{name}.alone", trained / f"{name}.run")
    assert found.same and found.compared >= 12, found


@pytest.mark.parametrize("name", ["accumulated ord32", ROUNDED])
def test_one_process_verifies_them(trained, name):
    run = potl.Run(trained / f"{name}.run")
    report = potl.verify(
        run,
        job=trained / f"{name}.json",
        commitment=run.commit(),
        task=rank_runs.cut(rank_runs.SHARED[name]),
        checks=[potl.Replay(samples=3), potl.PEV(fraction=1.0)],
        ledger=None,
    )
    assert report.verdict == "accepted", report.findings


def test_goes_on_where_a_process_died(trained, tmp_path):
    """The others say so, and the run is as if nothing had happened."""
    (tmp_path / "job.json").write_bytes((trained / "accumulated ord32.json").read_bytes())
    found = rank_runs.together("interrupted", tmp_path)
    assert found[1] == ["OSError", "the disk is gone"]
    for rank in (0, 2):
        kind, text = found[rank]
        assert kind == "StorageError" and "a process of the group is gone or late" in text
        assert "gloo" not in text and text.isascii()
    rank_runs.together("resumed", tmp_path)
    found = potl.diff(trained / "accumulated ord32.alone", tmp_path / "run")
    assert found.same and found.compared == 12, found


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    return rank_runs.together("refused", tmp_path_factory.mktemp("refused"))


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("mean of all", "UnsupportedError", "changes in the forward pass"),
        ("hidden_buffers", "UnsupportedError", "changes in the forward pass"),
        ("extra_state", "UnsupportedError", "changes in the forward pass"),
        ("own_step", "UnsupportedError", "cannot share a step of the task's own"),
        ("noisy_update", "UnsupportedError", "the update draws random numbers"),
        ("clipped sums", "UnsupportedError", "the gradients of the step are not those that one"),
        ("sums of one", "UnsupportedError", "the gradients of the step are not those that one"),
        ("read statistics", "UnsupportedError", "the loss and the gradients of the step are not"),
        ("sparse", "UnsupportedError", "several processes cannot add up sparse gradients"),
        ("begins later", "UnsupportedError", "model/buffers/passes changes in the forward pass"),
        ("one part", "UsageError", "3 processes share 1 micro-batch of a step"),
        ("log64", "UnsupportedError", "a rounding log is of one process"),
        ("wrapped", "UnsupportedError", "DistributedDataParallel is not supported"),
        ("another task", "UsageError", "rank 2 could not begin: the task does not match the job"),
        ("occupied", "UsageError", "which is no file of a run"),
        ("another machine", "MismatchError", "ranks 0 and 1 have different states after step 4"),
    ],
)
def test_every_process_says_what_prevents_it(refused, name, kind, text):
    assert refused[0][name][0] == kind
    for rank, found in enumerate(refused):
        own = name == "another task" and rank == 2
        assert (text.partition(": ")[2] if own else text) in found[name][1]


class Wrapped(torch.nn.parallel.DistributedDataParallel):
    """As torch's begins, without processes to talk to."""

    def __init__(self):
        torch.nn.Module.__init__(self)
        self.module = torch.nn.Linear(1, 1)


def test_recordings_in_two_threads_refuse_wrapped_modules_each_for_itself():
    made = torch.nn.parallel.DistributedDataParallel.__init__
    first, second = plain_modules(), plain_modules()
    with ThreadPoolExecutor(1) as other:
        first.__enter__()
        other.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        Wrapped()
        with pytest.raises(potl.UnsupportedError, match="DistributedDataParallel is not"):
            other.submit(Wrapped).result()
        other.submit(second.__exit__, None, None, None).result()
        other.submit(Wrapped).result()
    assert torch.nn.parallel.DistributedDataParallel.__init__ is made


@pytest.mark.parametrize("first", ["potl.Task", ""], ids=["before", "after"])
def test_threads_of_a_group_end_with_it(first, tmp_path):
    """One that is late, when the interpreter ends, would abort the process. Also where torch is
    told of the group before potl imports what holds the group that there is.
    """
    program = f"""
import gc, pathlib, potl, torch, torch.distributed as dist
from torch.nn.functional import cross_entropy
gc.disable()
{first}
dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
def build():
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.long))
    return potl.Task(model=model, optimizer=torch.optim.AdamW(model.parameters()), dataset=data,
                     loss=cross_entropy, batch_size=4, epochs=1)
potl.record(build, "{tmp_path}/run", seed=7, checkpoint_every=1, group=dist.group.WORLD)
dist.destroy_process_group()
print([(one / "comm").read_text().strip() for one in pathlib.Path("/proc/self/task").iterdir()])
"""
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python" in there.stdout and "gloo" not in there.stdout


def test_torchrun_starts_the_command(tmp_path):
    """Rank 0 alone has the job and the key, and prints: one document, with --json."""
    (tmp_path / "0").mkdir()
    (tmp_path / "1").mkdir()
    assert _cli.run(["keygen", str(tmp_path / "0/trainer")]) == 0
    job = potl.Job.create(
        rank_runs.build, seed=7, checkpoint_every=4, trainer=tmp_path / "0/trainer.pub"
    )
    job.write(tmp_path / "0/job.json")
    launch = [programs.python(), "-m", "torch.distributed.run", "--nproc-per-node=2"]
    record = ["record", "rank_runs:build", "run", "--job", "job.json", "--key", "trainer.pem"]
    done = subprocess.run(
        [*launch, rank_runs.__file__, "command", *record, "--data-parallel", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HELPERS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 12


class ZeroRedundancyOptimizer(torch.optim.SGD):
    """As torch's, it has no state to show before all processes have sent theirs."""

    def state_dict(self):
        raise RuntimeError("Optimizer state has not been consolidated on this rank")


def test_an_optimizer_without_the_whole_state_is_refused():
    def build():
        model = tasks.mlp()
        return tasks.task(model, ZeroRedundancyOptimizer(model.parameters(), lr=0.1))

    (found,) = potl.check(build)
    assert found.remedy == "use the optimizer that it wraps"


def test_a_process_that_follows_needs_no_job_file(monkeypatch):
    """Its machine has the task's code and data alone."""

    @contextlib.contextmanager
    def launched():
        yield SimpleNamespace(rank=lambda: 1)

    given = []
    monkeypatch.setattr(_data_parallel, "launched", launched)
    monkeypatch.setattr(_record, "record", lambda *_, **options: given.append(options["job"]))
    run = ["record", "rank_runs:build", "run", "--job", "no.json", "--data-parallel"]
    assert _cli.run(run) == 0
    assert given == [Path("no.json")]


def test_the_option_needs_a_launcher(tmp_path, capsys):
    run = ["record", "rank_runs:build", str(tmp_path / "run"), "--seed", "7"]
    assert _cli.run([*run, "--checkpoint-every", "4", "--data-parallel"]) == 2
    assert "torchrun --nproc-per-node" in capsys.readouterr().err


def test_moves_are_rounded_once():
    """1 + 2^-23 + (2^-24 - 2^-64) is a tie in float64, and below one in truth."""
    factor, number = np.float32(0.5 * (1 + 2**-20)), np.float32(2**-23 * (1 - 2**-20))
    rest = np.array([1 + 2**-23], np.float32)
    assert fma(factor, np.array([number]), rest) == rest
    assert np.float32(np.float64(factor) * number + rest) != rest
