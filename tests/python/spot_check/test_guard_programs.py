# SPDX-License-Identifier: Apache-2.0
"""Both sides as programs of their own, over Unix sockets and TCP; either of them may be killed."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import guarded
import programs
import pytest
import torch
from guarded import KEY
from places import HELPERS
from processor import torch_instruction_sets
from safetensors.torch import load_file

import potl

TASK = "guarded:build"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a job, a key, and the task."""
    (tmp_path / "key").write_bytes(KEY)
    for name in ("guarded.py", "docs_setup_digits.py"):
        (tmp_path / name).symlink_to(HELPERS / name)
    job = potl.Job.create(guarded.build, seed=3, checkpoint_every=10, arithmetic="ord32")
    job.write(tmp_path / "job.json")
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [programs.command(), "spot-check", *arguments]


@contextmanager
def worker(
    place: Path, address: str, key: str = "key"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A worker's program, and where it listens."""
    with subprocess.Popen(
        command("worker", TASK, "--listen", address, "--key", key, "--json"),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stderr is not None
            said = program.stderr.readline()
            found = re.match("listening at (.*)\n", said)
            assert found, said
            yield program, found[1]
        finally:
            program.kill()


def train(address: str, *more: str) -> list[str]:
    options = ("--job", "job.json", "--key", "key", "--worker", address, "--steps-at-risk", "10")
    return command("train", TASK, "guard", *options, *more)


def expected() -> dict[str, torch.Tensor]:
    """What the client would have trained alone."""
    job = potl.Job.create(guarded.build, seed=3, checkpoint_every=10, arithmetic="ord32")
    with potl.Session.open(guarded.build, seed=3, job=job) as session:
        for step, _, batch in session.batches(1, job.steps):
            session.run_step(step, batch)
        return {name: p.detach().clone() for name, p in session.task.model.named_parameters()}


def require_expected(path: Path) -> None:
    saved = load_file(path)
    for name, value in expected().items():
        assert torch.equal(saved[name], value), name


@pytest.mark.parametrize("address", ["unix:worker.sock", "tcp://127.0.0.1:0"])
def test_two_programs_train(place: Path, address: str) -> None:
    with worker(place, address) as (program, listening):
        done = subprocess.run(
            train(listening, "--model", "model.safetensors", "--html", "report.html", "--json"),
            cwd=place,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        out, _ = program.communicate(timeout=600)
        assert program.returncode == 0
    assert json.loads(out) == {"steps": 58, "finished": True, "reason": ""}
    document = json.loads(done.stdout)
    assert document["verdict"] == "accepted" and document["exit_code"] == 0
    assert document["checks"][0]["check"] == "spot_check"
    require_expected(place / "model.safetensors")
    page = (place / "report.html").read_text()
    assert "computed again, and none was false" in page

    # Whoever forgot to ask for the weights needs no worker to get them.
    (place / "model.safetensors").unlink()

    def again(*more: str) -> tuple[int, str]:
        done = subprocess.run(
            train(listening, *more), cwd=place, capture_output=True, text=True, timeout=600
        )
        return done.returncode, done.stdout + done.stderr

    code, said = again()
    assert code == 2 and "--model FILE writes the weights" in said
    code, said = again("--model", "model.safetensors")
    assert code == 0 and "all 58 steps were final already" in said
    require_expected(place / "model.safetensors")


def test_a_worker_with_another_key_is_not_believed(place: Path) -> None:
    (place / "other").write_bytes(KEY[::-1])
    with worker(place, "unix:worker.sock", "other") as (_, listening):
        done = subprocess.run(
            train(listening, "--json"), cwd=place, capture_output=True, text=True, timeout=600
        )
    assert done.returncode == 3
    assert "is the key the same on both sides?" in json.loads(done.stdout)["sentence"]


def wait_for_final(place: Path, step: int) -> None:
    """Until so many steps are final."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            if json.loads((place / "guard" / "guard.json").read_text())["step"] >= step:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    raise AssertionError("no step became final")


def test_either_side_may_be_killed(place: Path) -> None:
    """What is final stays, and the weights at the end are those of an undisturbed training."""
    # It stands still behind two of the final steps, until somebody was killed there.
    (place / "slow.py").write_text(
        "import json, time, guarded\n"
        "from pathlib import Path\n"
        f"place = Path({str(place)!r})\n"
        "def stands_still():\n"
        "    kept = place / 'guard/guard.json'\n"
        "    step = json.loads(kept.read_text())['step'] if kept.exists() else 0\n"
        "    return any(step >= at and not (place / f'beyond-{at}').exists() for at in (5, 20))\n"
        "class Slow(guarded.potl.Task):\n"
        "    def compute_loss(self, batch, reduction='mean'):\n"
        "        while stands_still():\n"
        "            time.sleep(0.01)\n"
        "        return super().compute_loss(batch, reduction)\n"
        "def build():\n"
        "    task = guarded.build()\n"
        "    task.__class__ = Slow\n"
        "    return task\n"
    )
    sys.path.insert(0, str(place))
    try:
        import slow as task  # type: ignore[import-not-found]

        job = potl.Job.create(task.build, seed=3, checkpoint_every=5, arithmetic="ord32")
    finally:
        sys.path.remove(str(place))
    job.write(place / "job.json")

    address = f"unix:{place}/worker.sock"
    serve = command("worker", "slow:build", "--listen", address, "--key", "key")
    both = [one.replace(TASK, "slow:build") for one in train(address)]
    programs = []

    def start(arguments: list[str]) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            arguments, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        programs.append(program)
        return program

    def kill(program: subprocess.Popen[bytes]) -> None:
        program.send_signal(signal.SIGKILL)
        program.communicate()  # until the program, which holds its output, is dead

    try:
        serving, guard = start(serve), start(both)
        wait_for_final(place, 5)
        kill(guard)
        (place / "beyond-5").touch()
        guard = start(both)  # the same worker waits for it
        wait_for_final(place, 20)
        kill(serving)
        (place / "beyond-20").touch()
        assert guard.wait(timeout=600) == 3  # nobody is accused
        kept = json.loads((place / "guard" / "guard.json").read_text())
        assert kept["step"] >= 20 and kept["stopped"] == 0
        serving = start(serve)
        finishing = start([*both, "--model", "model.safetensors"])
        assert finishing.wait(timeout=600) == 0
        assert serving.wait(timeout=600) == 0
    finally:
        for program in programs:
            with program:
                program.kill()
    require_expected(place / "model.safetensors")


def test_the_bench_measures_both(place: Path) -> None:
    done = subprocess.run(
        command("bench", TASK, "--job", "job.json", "--steps", "20", "--steps-at-risk", "10"),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"a step takes .* alone and .* guarded: [\d.]+ times as long", done.stdout)


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
def test_honest_workers_elsewhere_raise_no_alarm(place: Path, arithmetic: str) -> None:
    """Of workers with other numbers of threads and instruction sets. With POTL_FULL they take a
    thousand steps.
    """
    epochs = 35 if os.environ.get("POTL_FULL") else 6
    steps = 29 * epochs
    (place / "longer.py").write_text(
        f"import guarded\ndef build():\n    return guarded.build(epochs={epochs})\n"
    )
    sys.path.insert(0, str(place))
    try:
        longer = importlib.import_module("longer")
        job = potl.Job.create(longer.build, seed=8, checkpoint_every=100, arithmetic=arithmetic)
        elsewhere = [("1", torch_instruction_sets()[0]), ("2", torch_instruction_sets()[-1])]
        with potl.SpotCheck(
            longer.build, job=job, key=KEY, steps_at_risk=1, probability=0.9999
        ) as guard:
            for until, (threads, level) in zip((steps // 2, None), elsewhere, strict=True):
                at_start = {"OMP_NUM_THREADS": threads, "ATEN_CPU_CAPABILITY": level}
                serve = ["-m", "potl", "spot-check", "worker", "longer:build", "--key", "key"]
                with subprocess.Popen(
                    [programs.python(**at_start), *serve, "--listen", "unix:w.sock"],
                    cwd=place,
                    env={**os.environ, **at_start},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                ) as serving:
                    try:
                        report = guard.train(f"unix:{place}/w.sock", until=until)
                    finally:
                        serving.kill()
                        serving.communicate()  # until it is dead
            assert report.verdict == "accepted", report.sentence
            (finding,) = report.findings
            assert guard.final_step == steps
            assert int(finding.details["checked"]) > 0.48 * steps
            assert float(finding.details["largest"]) <= guard.tolerance / 2
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("longer", None)
