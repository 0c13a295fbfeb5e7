# SPDX-License-Identifier: Apache-2.0
"""The checks of docs/guide/adding_a_check*.md, as code of somebody else's: a C++ project that finds
the installed library, and a Python package that announces a class.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import programs
import pytest

ROOT = Path(__file__).resolve().parents[2]
POTL = str(Path(sys.executable).with_name("potl"))
PAGES = "".join(path.read_text() for path in sorted(ROOT.glob("docs/guide/adding_a_check*.md")))


def file_of_page(name: str) -> str:
    found = re.search(rf"^```\w+ [^\n]*file={re.escape(name)}\n(.*?)^```", PAGES, re.M | re.S)
    assert found is not None
    return found[1]


def run(*command: object, expected: int = 0, **options: Any) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, **options
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own_check")
    (folder / "largest_weight.hpp").write_text(file_of_page("largest_weight.hpp"))
    run(
        *("cmake", "-S", ROOT / "tests/install/own_check", "-B", folder / "build", "-G", "Ninja"),
        *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DOWN_CHECK_HEADERS={folder}"),
    )
    run("cmake", "--build", folder / "build")
    return folder / "build/own_check"


@pytest.mark.parametrize(("most", "verdict"), [("100", "accepted"), ("0.5", "rejected")])
def test_a_check_of_a_cpp_program_is_judged_like_potls_own(
    program: Path, tmp_path: Path, most: str, verdict: str
) -> None:
    report = json.loads(run(program, tmp_path, most))
    assert report["verdict"] == verdict, report["sentence"]
    [found] = [one for one in report["findings"] if one["check"] == "largest_weight"]
    assert found["reason"].startswith("the largest weight of step ")
    assert {"check": "largest_weight", "options": {"most": float(most)}} in report["checks"]
    assert {"check": "largest_weight", "text": "Weights that are wrong and small."} in report[
        "limits"
    ]
    assert "the largest weight of drawn states" in report["looked_at"]
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    assert "largest_weight" in json.dumps(ledger)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, with a package that announces the check."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "held_out.py").write_text(file_of_page("held_out.py"))
    info = folder / "held_out-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: held_out\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[potl.checks]\nheld_out = held_out:HeldOut\n")
    return folder


def potl(
    package: Path, *arguments: object, expected: int = 0, command: str = POTL, **options: Any
) -> str:
    environment = {**os.environ, "PYTHONPATH": str(package), "COLUMNS": "200", "NO_COLOR": "1"}
    return run(command, *arguments, expected=expected, env=environment, **options)


def test_a_check_of_a_python_package_has_flags_and_help(package: Path, tmp_path: Path) -> None:
    for command in ("verify", "challenge"):
        text = " ".join(potl(package, command, "--help", cwd=tmp_path).split())
        assert "--held-out-samples" in text and "--held-out-gain" in text
        assert "Stored states that are looked at, beside the first and the last" in text
        assert "replay, held_out" in text


TRAINER = """
from docs_setup_digits import train_set
import torch, torch.nn.functional as F, potl
from torch import nn

def build():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return potl.Task(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                     dataset=train_set, loss=F.cross_entropy, batch_size=64, epochs=2)
"""

RECORD = """
import potl, trainer
job = potl.Job.create(trainer.build, seed=1, checkpoint_every=8)
job.write("job.json")
potl.record(trainer.build, "run", job=job).commit().write("note.txt")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copy(ROOT / "tests/python/helpers/docs_setup_digits.py", folder)
    (folder / "trainer.py").write_text(TRAINER)
    (folder / "record.py").write_text(RECORD)
    run(programs.python(), "record.py", cwd=folder)
    return folder


@pytest.mark.parametrize("workers", [0, 1])
def test_a_check_of_a_python_package_verifies_from_the_command_line(
    package: Path, recorded: Path, tmp_path: Path, workers: int
) -> None:
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    # Checks that are announced are known to a process from its start.
    path = os.pathsep.join([str(package), str(ROOT / "python")])
    announced = str(programs.folder(PYTHONPATH=path) / "potl")
    verify = functools.partial(potl, package, cwd=tmp_path, command=announced)
    arguments = (
        *("verify", "run", "--job", "job.json", "--commitment", "note.txt"),
        *("--task", "trainer:build", "--check", "replay", "--held-out-samples", "1"),
        *("--ledger", "ledger.json", f"--workers={workers}", "--json"),
    )
    report = json.loads(verify(*arguments))
    assert report["verdict"] == "accepted"
    [found] = [one for one in report["findings"] if one["check"] == "held_out"]
    assert found["result"] == "pass" and found["statistic"] > 0.5
    assert "--held-out-samples 1" in report["reproduce"]
    # What nobody learns in two epochs rejects, and what the ledger holds is asked again.
    refused = json.loads(verify(*arguments, "--held-out-gain", "0.99", expected=1))
    asked = [one["options"]["gain"] for one in refused["checks"] if one["check"] == "held_out"]
    assert refused["verdict"] == "rejected" and 0.99 in asked
    # Where nobody announces it any more, the report says that it was not repeated.
    without = [one for one in arguments if one not in ("--held-out-samples", "1")]
    report = json.loads(
        potl(tmp_path / "nothing", *without, cwd=tmp_path, command=programs.command())
    )
    assert report["verdict"] == "accepted"
    assert "the check held_out, asked in an earlier verification" in json.dumps(report)


def test_a_check_that_cannot_be_loaded_is_warned_of(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    shutil.copytree(package, folder)
    (folder / "held_out.py").write_text("raise ImportError('no such thing')\n")
    done = subprocess.run(
        [sys.executable, "-m", "potl", "verify", "--help"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0
    assert "--replay-samples" in done.stdout and "held-out" not in done.stdout
    assert 'the check "held_out" of held_out:HeldOut cannot be used' in done.stderr


def test_the_working_directory_announces_nothing(package: Path, tmp_path: Path) -> None:
    """It may be what the trainer delivered."""
    marker = tmp_path / "ran"
    folder = tmp_path / "run"
    shutil.copytree(package, folder)
    (folder / "held_out.py").write_text(f"open({str(marker)!r}, 'w')\n")
    done = subprocess.run(
        [sys.executable, "-m", "potl", "verify", "--help"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "held-out" not in done.stdout
    assert not marker.exists()
