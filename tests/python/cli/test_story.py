# SPDX-License-Identifier: Apache-2.0
"""The whole story by command lines: agree, record, commit, verify, and what can go wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import programs
import pytest
from command_lines import command as potl
from places import ROOT

from potl import Job
from potl._cli import _cli

TASK = """
import os
import time
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
import potl

generator = torch.Generator().manual_seed(3)
x = torch.rand(96, 8, generator=generator)
data = TensorDataset(x, (x.sum(1) * 2).long() % 4)


class Task(potl.Task):
    def step(self, batch):
        print("a task that talks", flush=True)
        failure = os.environ.get("STORY_FAILS", "")
        if failure == "wait":
            time.sleep(3600)
        if failure:
            raise {"exit": SystemExit(0), "stop": KeyboardInterrupt(), "bug":
            ValueError("x")}[failure]
        return super().step(batch)


def build():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    return Task(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                dataset=data, loss=functional.cross_entropy, batch_size=16, epochs=4)
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, a job, a finished run and its commitment."""
    folder = tmp_path_factory.mktemp("story")
    (folder / "story_task.py").write_text(TASK)
    for words in (
        "keygen trainer",
        "job create story_task:build job.json --seed 7 --checkpoint-every 4 --trainer trainer.pub",
        "record story_task:build run --job job.json --key trainer.pem",
        "commit run --key trainer.pem --out note.txt",
    ):
        done = potl(folder, words)
        assert done.code == 0, done.err
    return folder


def test_a_key_is_shown_alike_when_it_is_made_and_pinned(story: Path) -> None:
    made = potl(story, "keygen shown")
    key = made.out.split()[-1]
    pinned = potl(
        story,
        "job create story_task:build shown.json --seed 7 --checkpoint-every 4 --trainer shown.pub",
    )
    assert re.search(f"^trainer +{key}$", pinned.out, re.MULTILINE)
    wrong = potl(story, "record story_task:build new --job shown.json --key trainer.pem")
    assert wrong.code == 2 and not (story / "new").exists()
    assert f"this is not the trainer's key: the job pins {key}" in wrong.err


VERIFY = (
    "verify run --job job.json --commitment note.txt --task story_task:build --no-ledger "
    "--check replay --replay-samples 4 --pev-fraction 0.5"
)


def test_an_honest_run_is_accepted_with_0_and_every_form_of_report(story: Path) -> None:
    done = potl(story, VERIFY + " --html r.html --junit j.xml --json")
    assert done.code == 0, done.err
    document = done.document
    assert document["verdict"] == "accepted"
    assert "<title>Accepted" in (story / "r.html").read_text()
    assert ElementTree.parse(story / "j.xml").getroot().tag == "testsuites"
    assert "a task that talks" in done.err


def test_the_json_follows_its_schema(story: Path) -> None:
    schema = ROOT / "docs/format/report.schema.json"
    jsonschema = pytest.importorskip("jsonschema")
    document = potl(story, VERIFY + " --json").document
    jsonschema.validate(document, json.loads(schema.read_text()))


def test_the_printed_command_asks_the_same_again(story: Path) -> None:
    first = potl(story, VERIFY + " --json").document
    words = shlex.split(first["reproduce"])
    assert words[0] == "potl"
    again = potl(story, shlex.join([*words[1:], "--json", "--no-ledger"])).document
    for name in ("verdict", "replays", "strength", "nonce", "checks", "reproduce"):
        assert again[name] == first[name]
    told, before = ([f["reason"] for f in one["findings"]] for one in (again, first))
    (news,) = (one for one in told if one not in before)
    assert news.startswith("the nonce was given")
    assert [one for one in told if one in before] == before


def test_a_rejected_run_ends_with_1(story: Path, tmp_path: Path) -> None:
    shutil.copytree(story, tmp_path, dirs_exist_ok=True)
    for checkpoint in (tmp_path / "run" / "checkpoints").glob("step-*8*"):
        checkpoint.unlink()
    done = potl(tmp_path, VERIFY)
    assert done.code == 1, done.err
    assert "\u2717 Rejected" in done.out


def test_a_fresh_process_ends_with_the_code_and_prints_json_alone(story: Path) -> None:
    done = subprocess.run(
        [programs.command(), *shlex.split(VERIFY), "--json", "--workers", "1"],
        cwd=story,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "accepted"
    assert "a task that talks" in done.stderr


@pytest.mark.parametrize("words", ["inspect run", "commit run --key trainer.pem"])
def test_output_is_utf8_in_every_locale(story: Path, words: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "potl", *words.split()],
        cwd=story,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert not found.stdout.decode("utf-8").isascii()


def test_without_the_verifiers_own_job_the_verdict_is_3(story: Path) -> None:
    done = potl(story, "verify run --commitment note.txt --task story_task:build --json")
    assert done.code == 3
    assert done.document["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("failure", "codes"), [("exit", {3}), ("stop", {130}), ("bug", {1, 3})], ids=str
)
def test_what_a_task_raises_never_accepts(story: Path, failure: str, codes: set[int]) -> None:
    done = potl(story, VERIFY, STORY_FAILS=failure)
    assert done.code in codes, (done.out, done.err)


def test_an_interrupt_is_no_finding(story: Path) -> None:
    done = potl(story, VERIFY + " --json", STORY_FAILS="stop")
    assert "findings" not in done.document


def test_a_signal_in_the_middle_of_a_replay_ends_the_process_with_130(story: Path) -> None:
    command = [sys.executable, "-m", "potl", *shlex.split(VERIFY)]
    environment = {**os.environ, "STORY_FAILS": "wait"}
    with subprocess.Popen(
        command,
        cwd=story,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What a shell starts in the background ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 130


def test_a_commitment_that_is_no_note_is_unreadable(story: Path) -> None:
    (story / "bad.txt").write_bytes(b"\xff\xfe nothing\n")
    assert potl(story, VERIFY.replace("note.txt", "bad.txt")).code == 4


def test_a_job_that_is_no_job_is_unreadable(story: Path) -> None:
    (story / "bad.json").write_text('{"a": 1, "a": 2}')
    assert potl(story, VERIFY.replace("job.json", "bad.json")).code == 4
    assert potl(story, "job show bad.json").code == 4


@pytest.mark.parametrize(
    "change",
    [
        ("story_task:build", "story_task:nothing"),
        ("story_task:build", "no_such_module:build"),
        ("job.json", "missing.json"),
        ("note.txt", "missing.txt"),
        ("--replay-samples 4", "--replay-samples many"),
        ("--replay-samples 4", "--replay-samples 99999999"),
        ("--check replay", "--check magic"),
        ("--no-ledger", "--no-ledger --ledger x"),
        ("--no-ledger", "--ledger none"),
        ("--no-ledger", "--html no/such/folder/r.html"),
        ("--no-ledger", "--html ."),
        ("--no-ledger", "--model missing.safetensors"),
        ("--no-ledger", "--nonce 12"),
    ],
    ids=lambda change: change[1],
)
def test_a_mistake_in_the_command_is_2(story: Path, change: tuple[str, str]) -> None:
    done = potl(story, VERIFY.replace(*change))
    assert done.code == 2, (done.out, done.err)


@pytest.mark.parametrize(
    "words",
    [
        "record story_task:build new --seed 7 --checkpoint-every 4 --key KEY",
        "audit run --job job.json --task story_task:build --log new --key KEY",
        "dispute --trainer run --auditor run --job job.json --task story_task:build "
        "--evidence new --trainer-key trainer.pem --auditor-key trainer.pem --referee-key KEY",
        "referee --listen 127.0.0.1:0 --job job.json --task story_task:build "
        "--auditor-key trainer.pub --transcripts new --key KEY",
    ],
    ids=lambda words: words.split()[0],
)
def test_no_key_is_made_of_a_mistyped_name(story: Path, words: str) -> None:
    done = potl(story, words.replace("KEY", "trianer.pem"))
    assert done.code == 2
    assert "there is no key trianer.pem (check the path, or make one: potl keygen" in done.err
    assert not (story / "trianer.pem").exists()
    assert not (story / "new").exists()


def test_a_file_that_is_no_private_key_is_named(story: Path) -> None:
    done = potl(story, "commit run --key trainer.pub")
    assert done.code == 4
    assert "trainer.pub: this is not a secret key, but a public one (name its other" in done.err


def test_the_command_that_record_prints_commits(story: Path) -> None:
    words = "record story_task:build run2 --seed 7 --checkpoint-every 4 --key trainer.pem"
    last = potl(story, words).out.splitlines()[-1]
    assert last == "next: potl commit run2 --key trainer.pem"
    assert potl(story, last.removeprefix("next: potl ")).code == 0


def test_a_mistake_that_the_command_finds_is_said_without_an_introduction(story: Path) -> None:
    done = potl(story, "plan --segments 250")
    assert (done.code, done.err) == (2, "potl: give either --probability or --samples\n")


def test_what_is_exported_is_the_recorded_model(story: Path) -> None:
    made = potl(story, "export run delivered.safetensors")
    assert made.code == 0 and "delivered.safetensors" in made.out, made.err
    done = potl(story, VERIFY + " --model delivered.safetensors --json")
    assert [f["result"] for f in done.document["findings"] if f["rule"] == "model.delivered"] == [
        "pass"
    ]
    again = potl(story, "export run delivered.safetensors")
    assert again.code == 2 and "is not replaced" in again.err


def test_inspect_shows_the_run(story: Path) -> None:
    facts = potl(story, "inspect run --json").document
    assert (facts["steps"], facts["closed"], facts["damage"]) == (24, True, [])
    assert "24 of 24 agreed" in potl(story, "inspect run").out


def test_a_damaged_run_is_still_shown(story: Path, tmp_path: Path) -> None:
    shutil.copytree(story / "run", tmp_path / "run")
    log = tmp_path / "run" / "transcript.log"
    log.write_bytes(log.read_bytes()[:-100])
    done = potl(tmp_path, "inspect run --json")
    assert done.code == 0, done.err
    assert done.document["damage"] or not done.document["closed"]


def test_a_replayable_task_has_no_problems(story: Path) -> None:
    document = potl(story, "check story_task:build --json").document
    assert document == {"replayable": True, "exact": True, "disputable": True, "problems": []}
    stock = potl(story, "check story_task:build --arithmetic stock --json").document
    assert stock == {"replayable": True, "exact": False, "disputable": False, "problems": []}


def test_calibrate_prints_a_table_and_json(story: Path) -> None:
    document = potl(story, "calibrate story_task:build --steps 2 --repeats 1 --json").document
    assert document["repeats"] == 1
    assert document["noise"]


def test_calibrate_plans_the_storage_of_a_run(story: Path) -> None:
    words = "calibrate story_task:build --steps 2 --repeats 1 --run-steps 500 --max-bytes 500kB"
    stored = potl(story, words + " --json").document["storage"]
    assert stored["store_every"] == stored["checkpoint_every"] and stored["bytes"] <= 500_000
    derived = potl(story, words + " --rederive --json").document["storage"]
    assert derived["store_every"] > derived["checkpoint_every"] and derived["bytes"] <= 500_000
    assert f"--store-every {derived['store_every']}" in potl(story, words + " --rederive").out
    assert potl(story, "calibrate story_task:build --run-steps 500").code == 2
    assert potl(story, "calibrate story_task:build --rederive").code == 2


def test_a_job_shows_what_was_agreed(story: Path) -> None:
    document = potl(story, "job show job.json --json").document
    assert document["job"]["seed"] == 7
    shown = potl(story, "job show job.json").out
    assert "24 in 4 epochs" in shown and ", of the seed" in shown


def test_a_job_shows_what_it_leaves_to_whoever_made_it(story: Path) -> None:
    own = Job.read(story / "job.json")
    beginning = {**own.core.fields()["initial_state"], "source": "file"}
    own.replace(
        arithmetic="stock",
        initial_state=beginning,
        limits={"max_resumes": 9000, "max_superseded": 1},
        max_segment=24,
        tolerance_cap=1.0,
    ).write(story / "theirs.json")
    shown = potl(story, "job show theirs.json").out
    for told in (
        "of a file, which need not follow from the seed",
        "left to the task",
        "segments of up to 24 steps",
        "at most 9,000, which replace 1 step at most",
        "at most 100 % of what a segment moves",
    ):
        assert told in shown


def test_an_existing_job_is_not_replaced(story: Path) -> None:
    words = "job create story_task:build job.json --seed 8 --checkpoint-every epoch"
    assert potl(story, words).code == 2


def test_plan_and_its_inverse_agree(capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*words: str) -> dict[str, Any]:
        assert _cli.run(["plan", "--segments", "250", "--json", *words]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    samples = planned("--probability", "0.95")["samples"]
    assert planned("--samples", str(samples))["probability"] >= 0.95
    assert planned("--samples", str(samples - 1))["probability"] < 0.95


def test_the_page_about_the_command_line_is_up_to_date() -> None:
    script = ROOT / "scripts" / "cli_docs.py"
    done = subprocess.run([programs.python(), str(script), "--check"], timeout=600, check=False)
    assert done.returncode == 0, "run scripts/cli_docs.py"
