#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What building potl from nothing costs, in seconds of processor time, without a compiler cache.

`build.library` is the library with its bindings and the operators for torch, `build.tests` what
`make test` builds beside that: tests, rule switches, header checks, fuzzers. Below each: its
targets, and the ten files that cost most. Compilers and linkers run under this file
(`build_bench.py --launch RECORDS COMMAND...`), which writes down what each took.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = {"potl_objects", "potl", "potl_bindings", "_core", "potl_libtorch_arithmetic", "_torch"}
AT_MOST_SECONDS = 420
DEAREST = 10

Record = tuple[str, str, float]
"""Target, file and seconds."""


def launch(records: Path, command: list[str]) -> int:
    """Runs a compiler or linker, and appends its processor time, and its children's, to a file."""
    _, status, used = os.wait4(os.posix_spawnp(command[0], command, os.environ), 0)
    out = command[command.index("-o") + 1] if "-o" in command else ""
    source = command[command.index("-c") + 1] if "-c" in command else out
    line = json.dumps([out, source, used.ru_utime + used.ru_stime])
    with records.open("a") as file:
        file.write(line + "\n")
    return os.waitstatus_to_exitcode(status)


def record_of(line: str, preset: str, tree: Path) -> Record:
    out, source, seconds = json.loads(line)
    found = re.search(r"CMakeFiles/([^/]+)\.dir/", out)
    target = found[1] if found else Path(out).name.split(".")[0]
    if preset != "test":
        target = f"{preset}.{target}"
    path = Path(source)
    for folder in (tree, ROOT):
        if path.is_relative_to(folder):
            path = path.relative_to(folder)
    return target, path.as_posix(), seconds


def built(preset: str, targets: list[str], folder: Path) -> list[Record]:
    """Builds a preset in a folder of its own."""
    tree, records = folder / preset, folder / f"{preset}.records"
    launcher = f"{sys.executable};{Path(__file__).resolve()};--launch;{records}"
    languages = {f"-DCMAKE_{one}_COMPILER_LAUNCHER={launcher}" for one in ("CXX", "CUDA")}
    options = [
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPOTL_PYTHON_OUTPUT={tree}/python",
        f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}",
        *sorted(languages),
    ]
    run(["cmake", "--preset", preset, "-B", str(tree), *options])
    run(["cmake", "--build", str(tree), "--target", *targets])
    return [record_of(line, preset, tree) for line in records.read_text().splitlines()]


def run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-4000:] + done.stderr[-4000:])


def results_of(name: str, records: list[Record], bound: float) -> list[dict[str, Any]]:
    """One figure, its targets and its dearest files."""
    import measuring

    targets: dict[str, float] = defaultdict(float)
    for target, _, seconds in records:
        targets[target] += seconds
    dearest = sorted(records, key=lambda record: -record[2])[:DEAREST]
    rows = sorted(targets.items(), key=lambda one: -one[1])
    files = f"{len(records)} compilations and links"
    return [
        measuring.result(name, sum(targets.values()), "s", files, at_most=bound),
        *(measuring.result(f"{name}.{target}", value, "s", "target") for target, value in rows),
        *(measuring.result(file, seconds, "s", target) for target, file, seconds in dearest),
    ]


def main() -> None:
    """Measures and writes build/bench/build.json."""
    import measuring

    os.environ["CCACHE_DISABLE"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = built("test", ["all", "potl_header_checks"], folder)
        records += built("fuzz", ["all"], folder)
    library = [one for one in records if one[0] in LIBRARY]
    tests = [one for one in records if one[0] not in LIBRARY]
    measuring.write(
        "build",
        [
            *results_of("build.library", library, AT_MOST_SECONDS),
            *results_of("build.tests", tests, AT_MOST_SECONDS),
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        sys.exit(launch(Path(sys.argv[2]), sys.argv[3:]))
    main()
