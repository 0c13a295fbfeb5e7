#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The long tests, cut into shards of at most half an hour on two cores.

`scripts/test_full.py i/n` runs part i of n; `--list` prints what the part holds. A unit is a
libFuzzer target, a build with other compilers or sanitizers, or a test file that has a long version
(it reads POTL_FULL). Units go to shards by their expected minutes, longest first.
"""

import argparse
import functools
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ_MINUTES = 5
TEST_MINUTES = 10
KERNEL_MINUTES = 6
MUTANT_PARTS, MUTANT_MINUTES = 14, 25
LIMIT_MINUTES = 30
# Expected minutes where it is not TEST_MINUTES.
MINUTES: dict[str, int] = {
    "tests/python/record/test_recovery.py": 3,
    "tests/attacks/test_adversary.py": 20,
    "tests/python/dispute/test_placements.py": 12,
}
# Files that are too long for one unit.
PARTS: dict[str, int] = {
    "tests/python/arithmetic/test_whole_trainings.py": 11,
    "tests/attacks/test_adversary.py": 4,
}


@dataclass(frozen=True)
class Unit:
    name: str
    minutes: int
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def build_unit(preset: str, minutes: int) -> Unit:
    """Configures a preset, builds it and runs its C++ tests."""
    steps = f"source scripts/env.sh && configure {preset} && cmake --build build/{preset} && "
    steps += f"ctest --test-dir build/{preset} --output-on-failure --no-tests=error"
    return Unit(f"build {preset}", minutes, ["bash", "-c", steps], {"POTL_FULL": "1"})


def hidden_unit(name: str, preset: str, tag: str, minutes: int) -> Unit:
    """The C++ tests with a tag that a plain run leaves out."""
    steps = f"source scripts/env.sh && configure {preset} && "
    steps += f"cmake --build build/{preset} --target potl_unit_tests && "
    steps += f"build/{preset}/potl_unit_tests '{tag}'"
    return Unit(name, minutes, ["bash", "-c", steps])


def kernel_units() -> list[Unit]:
    """Kernels by every compiler, at every level of optimization: their digests are the same."""
    return [
        Unit(
            f"kernels {compiler} -O{level}",
            KERNEL_MINUTES,
            ["scripts/kernel_matrix", compiler, str(level)],
            {"POTL_FULL": "1"},
        )
        for compiler in ("g++", "clang++-14")
        for level in range(4)
    ]


@functools.cache
def helpers() -> list[str]:
    """The modules of tests that do more with POTL_FULL, for all tests that import them."""
    sources = (ROOT / "tests").rglob("helpers/*.py")
    return sorted(one.stem for one in sources if "POTL_FULL" in one.read_text())


def has_long_version(source: Path) -> bool:
    text = source.read_text()
    imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    return re.search(r"\bPOTL_FULL\b", text) is not None or not {*helpers()}.isdisjoint(imported)


def units() -> list[Unit]:
    found = [build_unit("asan", 15), build_unit("clang", 10), *kernel_units()]
    for part in range(1, MUTANT_PARTS + 1):
        share = f"{part}/{MUTANT_PARTS}"
        found.append(Unit(f"mutants {share}", MUTANT_MINUTES, ["scripts/mutants", "--part", share]))
    for half in ("first", "second"):
        tag = f"[exhaustive_{half}]"
        found.append(hidden_unit(f"elementwise, {half} half", "test", tag, 25))
    found.append(hidden_unit("elementwise levels", "test", "[exhaustive_levels]", 20))
    found.append(hidden_unit("elementwise powers", "test", "[exhaustive_powers]", 20))
    found.append(hidden_unit("disputes", "test", "[dispute_all]", 5))
    found.append(hidden_unit("freivalds", "test", "[freivalds_million]", 5))
    for preset in ("test", "clang"):
        found.append(hidden_unit(f"elementwise digests, {preset}", preset, "[digests]", 10))
    for source in sorted((ROOT / "tests/fuzz").glob("*_fuzz.cpp")):
        command = ["scripts/fuzz", str(FUZZ_MINUTES * 60), source.stem]
        found.append(Unit(f"fuzz {source.stem}", FUZZ_MINUTES + 1, command))
    for folder in ("python", "attacks", "install"):
        for source in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            if not has_long_version(source):
                continue
            name = source.relative_to(ROOT).as_posix()
            environment = {"POTL_FULL": "1"}
            if folder == "attacks":
                environment["POTL_HOOKS"] = "1"
            minutes = MINUTES.get(name, TEST_MINUTES)
            command = [sys.executable, "-m", "pytest", "-q", "--durations=10", name]
            count = PARTS.get(name, 1)
            for part in range(1, count + 1):
                which = f" {part}/{count}" if count > 1 else ""
                arguments = ["--part", f"{part}/{count}"] if count > 1 else []
                found.append(Unit(name + which, minutes, [*command, *arguments], environment))
    return found


def shards(everything: list[Unit], count: int) -> list[list[Unit]]:
    """Splits by expected time: each unit, longest first, to the shard that has least."""
    parts: list[list[Unit]] = [[] for _ in range(count)]
    for unit in sorted(everything, key=lambda one: (-one.minutes, one.name)):
        min(parts, key=lambda part: sum(one.minutes for one in part)).append(unit)
    return parts


def run(unit: Unit) -> bool:
    print(f"\n== {unit.name}", flush=True)
    start = time.monotonic()
    try:
        status = subprocess.run(
            unit.command,
            cwd=ROOT,
            env={**os.environ, **unit.environment},
            timeout=LIMIT_MINUTES * 60,
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"{unit.name} took more than {LIMIT_MINUTES} minutes")
        status = 1
    print(f"{unit.name}: {time.monotonic() - start:.0f} s, exit {status}", flush=True)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shard", nargs="?", default="1/1", help="i/n")
    parser.add_argument("--list", action="store_true", help="print the units, run nothing")
    arguments = parser.parse_args()
    matched = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", arguments.shard)
    if matched is None or int(matched[1]) > int(matched[2]):
        parser.error(f"a shard is i/n with 1 <= i <= n, not {arguments.shard!r}")
    part = shards(units(), int(matched[2]))[int(matched[1]) - 1]
    print(f"shard {arguments.shard}: {', '.join(unit.name for unit in part) or 'nothing'}")
    if arguments.list:
        return 0
    passed = [run(unit) for unit in part]
    for unit, good in zip(part, passed, strict=True):
        print(f"{'passed' if good else 'FAILED'}  {unit.name}")
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
