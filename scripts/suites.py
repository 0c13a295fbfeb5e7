#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of `make test`, and prints a line for each as it ends and all of them at the end.

The build comes first, then two suites at a time: tests that wait for a process or a time-out leave
a core to the other suite. A line says what its suite took, and how much of that were processors.

What a suite prints goes to build/suites/NAME.log; its closing lines are shown, and all of it when
the suite fails. A suite that ran no test has failed. Results for machines: build/junit-*.xml.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build/suites"
# How the runners close: ctest and Catch, pytest, scripts/fuzz.
CLOSING = re.compile(
    r"^(?:\d+: )?(\d+% tests passed, .*|All tests passed .*|test cases: .*|Total Test time .*"
    r"|=* ?\d+ (?:passed|failed|skipped|deselected|errors?)\b.*|no tests ran.*)$"
)
SHOWN_OF_A_FAILURE = 400
AT_A_TIME = 2


@dataclass(frozen=True)
class Suite:
    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    name: str
    good: bool
    counts: str
    seconds: float
    processor_seconds: float = 0.0

    def line(self) -> str:
        state = "passed" if self.good else "FAILED"
        took = f"{self.seconds:6.0f} s  {self.processor_seconds:6.0f} s of processors"
        return f"{state}  {self.name:8}{took}  {self.counts}"


def pytest(name: str, *arguments: str, workers: int, **environment: str) -> Suite:
    # The workers share the cores, so torch gets one thread in each unless a test asks for more.
    return Suite(
        name,
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--durations=20"),
            *(f"--junit-xml=build/junit-{name}.xml", *arguments),
        ],
        {"OMP_NUM_THREADS": "1", **environment},
    )


BUILD = Suite("build", ["cmake", "--build", "build/test"])


def suites() -> list[Suite]:
    """In the order in which they begin: the longest first."""
    cores = len(os.sched_getaffinity(0))
    return [
        # Each worker begins with a part of its own, so that what a file prepares is prepared once.
        pytest("python", "tests/python", "--dist=worksteal", workers=cores),
        # By file, because what a file builds is built once.
        pytest("install", "tests/install", "--dist=loadfile", workers=cores),
        Suite(
            "cpp",
            [
                *("ctest", "--test-dir", "build/test", "--verbose", "--no-tests=error"),
                *("--parallel", str(cores)),
                *("--output-junit", str(ROOT / "build/junit-cpp.xml")),
            ],
        ),
        pytest("attacks", "tests/attacks", "--dist=worksteal", workers=cores, POTL_HOOKS="1"),
        Suite("fuzz", ["scripts/fuzz", "2"]),
    ]


def counted(closing: list[str]) -> tuple[int, str]:
    """How many tests passed, and what happened to all, by the runner's closing lines."""
    for line in reversed(closing):
        ctest = re.match(r"\d+% tests passed, (\d+) tests? failed out of (\d+)", line)
        if ctest:
            failed, all_ = int(ctest[1]), int(ctest[2])
            return all_ - failed, f"{all_ - failed} passed, {failed} failed"
        found = re.findall(r"(\d+) (passed|failed|skipped|xfailed|errors?)\b", line)
        if found:
            text = ", ".join(f"{count} {what}" for count, what in found)
            return sum(int(count) for count, what in found if what == "passed"), text
    return 0, "no test ran"


def judged(name: str, status: int, output: str, seconds: float) -> Outcome:
    """What became of a suite that printed `output`."""
    if name == "build":
        steps = re.findall(r"^\[(\d+)/\1\]", output, re.MULTILINE)
        counts = f"{steps[-1]} steps" if steps else "nothing to do"
        return Outcome(name, status == 0, counts, seconds)
    passed, counts = counted(closing_lines(output))
    if skipped := len(re.findall(r"^\s+\d+ - \S+ \(Skipped\)$", output, re.MULTILINE)):
        passed, counts = passed - skipped, f"{counts}, {skipped} of them skipped"
    return Outcome(name, status == 0 and passed > 0, counts, seconds)


def closing_lines(output: str) -> list[str]:
    return [found[1] for line in output.splitlines() if (found := CLOSING.match(line.rstrip()))]


def run(suite: Suite) -> Outcome:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{suite.name}.log"
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            suite.command,
            cwd=ROOT,
            # Python files are compiled once, not by every process of every test.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **suite.environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_text(errors="replace")
    outcome = judged(suite.name, process.returncode, output, time.monotonic() - began)
    return replace(outcome, processor_seconds=used.ru_utime + used.ru_stime)


def report(outcome: Outcome) -> None:
    log = LOGS / f"{outcome.name}.log"
    output = log.read_text(errors="replace")
    if not outcome.good:
        print("\n".join(output.splitlines()[-SHOWN_OF_A_FAILURE:]))
        print(f"all of it is in {log.relative_to(ROOT)}")
    print(*closing_lines(output), outcome.line(), sep="\n", flush=True)


def main() -> int:
    began = time.monotonic()
    outcomes = [run(BUILD)]
    report(outcomes[0])
    if outcomes[0].good:
        with ThreadPoolExecutor(AT_A_TIME) as lanes:
            for ended in as_completed([lanes.submit(run, suite) for suite in suites()]):
                outcomes.append(ended.result())
                report(outcomes[-1])
    failed = [one.name for one in outcomes if not one.good]
    print(f"\n== {time.monotonic() - began:.0f} s", *(one.line() for one in outcomes), sep="\n")
    print(f"failed: {' '.join(failed)}" if failed else "all suites passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
