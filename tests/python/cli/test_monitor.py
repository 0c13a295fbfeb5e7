# SPDX-License-Identifier: Apache-2.0
"""`potl monitor` as a command: lines, document, page and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_lines import command
from growing_runs import Growing
from places import ROOT

import potl
from potl._verify import _monitor
from potl._verify._workload import Workload

TASK = "--task driver_tasks:build"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job and a finished run of 24 steps."""
    folder = tmp_path_factory.mktemp("story")
    for words in (
        "keygen trainer",
        "job create driver_tasks:build job.json --seed 7 --checkpoint-every 4 "
        "--trainer trainer.pub",
        "record driver_tasks:build run --job job.json --key trainer.pem",
    ):
        done = command(folder, words)
        assert done.code == 0, done.err
    return folder


MONITOR = f"monitor run --job job.json {TASK} --every 0 --samples 100"


def test_a_finished_run_ends_with_3_and_a_line_for_each_segment(story: Path) -> None:
    done = command(story, MONITOR)
    assert done.code == 3, done.err
    lines = [line for line in done.out.splitlines() if line.startswith("step 24 of 24: ")]
    assert len(lines) == 6
    pattern = r"step 24 of 24: segment 8-12 ends in the recorded state, bit for bit \(4 steps, .+\)"
    assert re.fullmatch(pattern, lines[2])
    assert "interim look" in done.out
    assert re.search("verify +potl verify run --job job.json --commitment COMMITMENT", done.out)


def test_json_is_the_report_of_the_last_look_and_nothing_else(story: Path) -> None:
    done = command(story, MONITOR + " --json")
    document = json.loads(done.out)
    assert (done.code, document["verdict"]) == (3, "inconclusive")
    assert len(document["replays"]) == 6
    assert "step 24 of 24" in done.err
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(document, json.loads((ROOT / "docs/format/report.schema.json").read_text()))


def test_a_page_is_written_at_each_look(
    story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Growing(story / "run", tmp_path / "run")
    (tmp_path / "job.json").write_bytes((story / "job.json").read_bytes())
    growing.show(9)
    pages: list[str] = []

    def next_piece(_: float) -> None:
        pages.append((tmp_path / "page.html").read_text())
        growing.show(None)

    monkeypatch.setattr(_monitor.time, "sleep", next_piece)
    done = command(tmp_path, MONITOR + " --html page.html")
    assert done.code == 3, done.err
    (first,) = pages
    last = (tmp_path / "page.html").read_text()
    assert "the record of 9 steps" in first and "the record of 24 steps" in last
    assert "whose draw is not told" in last
    assert "after the trainer had committed" not in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.json", "page.html", "run"]


def test_a_false_run_ends_with_1(story: Path, tmp_path: Path) -> None:
    growing = Growing(story / "run", tmp_path / "run")
    (tmp_path / "job.json").write_bytes((story / "job.json").read_bytes())
    growing.show(None)
    (tmp_path / "run/checkpoints/step-8.safetensors").unlink()
    done = command(tmp_path, MONITOR)
    assert done.code == 1, done.err
    assert "waiting: what may be wrong is looked at once more" in done.out
    assert "\u2717 Rejected" in done.out


def test_a_page_that_cannot_be_written_takes_no_verdict_away(
    story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Growing(story / "run", tmp_path / "run")
    (tmp_path / "job.json").write_bytes((story / "job.json").read_bytes())
    growing.show(None)
    (tmp_path / "run/checkpoints/step-8.safetensors").unlink()

    def full(path: str, data: bytes) -> None:
        raise potl.StorageError(f"cannot write {path}: No space left on device", "")

    monkeypatch.setattr(potl._report._page._core, "write_file", full)
    done = command(tmp_path, MONITOR + " --html page.html")
    assert done.code == 1, done.err
    assert "no page of this look: cannot write page.html: No space left" in done.out
    assert "\u2717 Rejected" in done.out


def test_a_run_that_does_not_come_in_time_is_an_error(story: Path) -> None:
    done = command(story, MONITOR.replace("run", "later", 1) + " --timeout 0")
    assert done.code == 3
    assert "waiting: there is no run later yet" in done.out
    assert "there is no run later yet (check the path)" in done.err


def test_an_interrupt_ends_with_130(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Workload, step: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Workload, "run_step", interrupted)
    done = command(story, MONITOR + " --json")
    assert done.code == 130
    assert json.loads(done.out)["exit_code"] == 130


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--samples -1", "samples"),
        ("--every nan", "every"),
        ("--timeout -3", "timeout"),
        ("--html missing/page.html", "no folder"),
        ("--token-file token", "begins with http:// or https://"),
    ],
)
def test_a_mistake_in_the_command_is_2(story: Path, more: str, said: str) -> None:
    done = command(story, f"{MONITOR} {more}")
    assert done.code == 2
    assert said in done.err


def test_the_help_has_the_words_of_the_check(story: Path) -> None:
    done = command(story, "monitor --help")
    assert done.code == 0
    told = " ".join(done.out.split())
    assert "Segments drawn at random, beside the first, the last and superseded ones." in told
    assert "Default: 12." in told
    assert "Examples: potl monitor runs/1 --job job.json --task trainer:build" in told
