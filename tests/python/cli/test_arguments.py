# SPDX-License-Identifier: Apache-2.0
"""A task's module has a command line of its own, and the report's command works as printed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import programs
import pytest
from places import HELPERS

import potl
from potl._base import _arguments
from potl._cli import _cli
from potl._job import _recipe

TASK = """
import argparse
import driver_tasks, potl
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--seed", type=int)
chosen = parser.parse_args()

def build():
    task = driver_tasks.build()
    for group in task.optimizers[0].param_groups:
        group["lr"] = chosen.lr
    return task
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_arguments.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))
    return tmp_path


def play(words: str) -> subprocess.CompletedProcess[str]:
    command = [programs.command(), *shlex.split(words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_follows_two_dashes_is_the_modules(folder: Path) -> None:
    create = "job create my_arguments:build {} --seed 7 --checkpoint-every 8 -- {}"
    for name, own in (("a.json", "--lr 0.1"), ("b.json", "--lr 0.2"), ("c.json", "")):
        done = play(create.format(name, own))
        assert done.returncode == 0, done.stderr
    rates = [potl.Job.read(name).core.fields()["learning_rates"] for name in ("a.json", "b.json")]
    assert rates[0] != rates[1]
    assert "made with   -- --lr 0.1\n" in play("job show a.json").stdout
    assert "made with" not in play("job show c.json").stdout
    verify = "verify run --job a.json --commitment run/commitment --task my_arguments:build"
    for words in (
        "record my_arguments:build run --job a.json -- --lr 0.1",
        "commit run",
        f"{verify} --workers 1 --json --no-ledger -- --lr 0.1",
    ):
        done = play(words)
        assert done.returncode == 0, done.stderr
    other = play(f"{verify} --no-ledger -- --lr 0.2")
    assert other.returncode == 2 and "does not match the job" in other.stderr
    import json

    again = json.loads(done.stdout)["reproduce"]
    assert again.endswith("-- --lr 0.1") and "fill in" not in again
    repeated = subprocess.run(
        again.replace("potl", programs.command(), 1),
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert repeated.returncode == 0, repeated.stderr


def test_the_module_gets_an_error_of_its_own(folder: Path) -> None:
    done = play("check my_arguments:build -- --nonsense")
    assert done.returncode == 3 and "--nonsense" in done.stderr


def test_the_arguments_of_the_caller_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "x"])
    assert _cli.run(["plan", "--segments", "10", "--samples", "3", "--", "y"]) == 0
    assert sys.argv == ["program", "x"]


def test_names_that_are_not_utf8_are_wrong_usage(folder: Path) -> None:
    command = [programs.command().encode(), b"inspect", b"r\xffn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert r"'r\udcffn' is not UTF-8" in done.stderr
    done = subprocess.run([*command, b"--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not UTF-8" in json.loads(done.stdout)["error"]["message"]


def test_a_job_names_words_that_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--file", os.fsdecode(b"caf\xe9"))
    monkeypatch.setattr(_arguments, "module_arguments", given)
    assert _recipe.environment()["arguments"] == ["--file", "caf\ufffd"]
