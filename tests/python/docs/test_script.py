# SPDX-License-Identifier: Apache-2.0
"""The example of the README runs as written: from a plain, unguarded script and from a notebook."""

import os
import subprocess
import textwrap
from pathlib import Path

import programs
import pytest

DATA = """
import torch
from sklearn.datasets import load_digits
digits = load_digits()
train_set = torch.utils.data.TensorDataset(
    torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target))
"""

EXAMPLE = """
import torch, torch.nn.functional as F, potl
from torch import nn

def build() -> potl.Task:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return potl.Task(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
                     dataset=train_set, loss=F.cross_entropy, batch_size=32, epochs=5)

job = potl.Job.create(build, seed=7, checkpoint_every=20); job.write("job.json")
run = potl.record(build, "runs/1", job=job, key="trainer.pem")
commitment = run.commit()
report = potl.verify("runs/1", job=job, commitment=commitment, task=build,
                     checks=[potl.Telemetry(), potl.PEV(fraction=0.1), potl.Replay(samples=12)])
print(report.verdict, [f.reason for f in report.findings])
report.write("report.html"); report.write("report.json"); report.write("junit.xml")
report.raise_for_verdict()
"""


def run_python(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(folder / "state"),
    }
    return subprocess.run(
        [programs.python(), str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_example_runs_as_written_from_an_unguarded_script(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    done = run_python(DATA + EXAMPLE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accepted ")
    for name in (
        "job.json",
        "report.html",
        "report.json",
        "junit.xml",
        "trainer.pem",
        "trainer.pub",
    ):
        assert (tmp_path / name).stat().st_size > 0
    assert "trainer.pem" in done.stderr, "the new key is announced"
    assert (tmp_path / "trainer.pem").stat().st_mode & 0o777 == 0o600


def test_the_example_can_be_run_again_after_its_run_was_deleted(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    assert run_python(DATA + EXAMPLE, tmp_path).returncode == 0
    done = run_python("import shutil; shutil.rmtree('runs')\n" + DATA + EXAMPLE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_runs_in_a_notebook(tmp_path: Path) -> None:
    # A notebook executes cells by exec: no source file and no importable module.
    pytest.importorskip("sklearn")
    cells = f"cells = [{DATA!r}, {EXAMPLE!r}]\nspace = {{'__name__': '__main__'}}\n"
    cells += "import sys\nsys.modules['__main__'].__dict__.pop('__file__', None)\n"
    cells += "for number, cell in enumerate(cells):\n"
    cells += "    exec(compile(cell, f'<cell {number}>', 'exec'), space)\n"
    done = run_python(cells, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accepted ")


# A script that names itself as the module of its task, and counts how often it is executed.
SELF = """
import os, sys
with open("executions", "a") as count:
    print(os.getpid(), file=count)
if sum(1 for _ in open("executions")) > 6:
    os._exit(9)  # else a broken guard would start processes for ever
import torch, potl
from torch import nn
from torch.utils.data import TensorDataset

data = TensorDataset(torch.zeros(16, 4), torch.zeros(16, dtype=torch.long))

def build():
    model = nn.Linear(4, 2)
    return potl.Task(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                     dataset=data, loss=nn.functional.cross_entropy, batch_size=4, epochs=2)

def main():
    job = potl.Job.create(build, seed=1, checkpoint_every=2)
    run = potl.record(build, "run", job=job)
    return potl.verify(run, job=job, commitment=run.commit(), task="script:build",
                       checks=[potl.Replay()], workers=WORKERS)
"""
UNGUARDED = "report = main(); print(report.verdict, report.sentence)\n"
GUARDED = "if __name__ == '__main__': report = main(); print(report.verdict)\n"


def executions(folder: Path) -> int:
    return len((folder / "executions").read_text().splitlines())


def test_a_script_that_names_itself_is_not_run_again(tmp_path: Path) -> None:
    done = run_python(SELF.replace("WORKERS", "0") + UNGUARDED, tmp_path)
    assert done.stdout.startswith("accepted "), done.stdout + done.stderr
    assert executions(tmp_path) == 1


def test_workers_of_an_unguarded_script_start_nothing_and_say_what_to_do(tmp_path: Path) -> None:
    done = run_python(SELF.replace("WORKERS", "1") + UNGUARDED, tmp_path)
    assert done.stdout.startswith("inconclusive "), done.stdout + done.stderr
    assert 'if __name__ == "__main__"' in done.stdout
    assert executions(tmp_path) <= 3


def test_workers_of_a_guarded_script_replay(tmp_path: Path) -> None:
    done = run_python(SELF.replace("WORKERS", "1") + GUARDED, tmp_path)
    assert done.stdout == "accepted\n", done.stdout + done.stderr
    assert executions(tmp_path) == 2
