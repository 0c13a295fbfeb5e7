#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the mutants of tests/mutants: each must be killed by a test.

A file there is named after the source that it changes, and says first which tests look at that
source:

    unit: challenge verify                  tests/unit/challenge_test.cpp, ...
    python: tests/python/test_challenge.py  arguments of pytest

    @ nonce-is-constant: the verifier's nonce is a constant
     a line of the source
    -the line that is taken away
    +the line in its place

A hunk has no line numbers: its old lines must occur exactly once, so that other changes do not
move it. `unit:` or `python:` behind a hunk's title replaces those of the file. Mutants of C++ are
compiled into a copy of the sources and its build folder; unit tests come first, then Python's. All
tests that a mutant can fail must pass without it, or nothing is played.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/mutants"
TREE = ROOT / "build/mutants"
# A mutant may loop for ever; the slowest honest test takes a tenth of this.
PATIENCE = 600


@dataclass
class Mutant:
    name: str
    what: str
    source: str
    """Path of the mutated file in the repository."""
    unit: list[str]
    python: list[str]
    old: str = ""
    new: str = ""

    def apply(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its old lines occur {text.count(self.old)} times")
        return text.replace(self.old, self.new)


@dataclass
class _Reader:
    source: str
    unit: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    found: list[Mutant] = field(default_factory=list)

    def read(self, line: str) -> None:
        now = self.found[-1] if self.found else None
        if line.startswith("@ "):
            name, _, what = line[2:].partition(": ")
            self.found.append(Mutant(name, what, self.source, self.unit, self.python))
        elif line.startswith(("unit:", "python:")):
            key, _, rest = line.partition(":")
            setattr(now or self, key, rest.split())
        elif now is not None and line[:1] in (" ", "-", "+"):
            now.old += "" if line[0] == "+" else f"{line[1:]}\n"
            now.new += "" if line[0] == "-" else f"{line[1:]}\n"
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"{self.source}: {line!r} is no line of a mutant")


def mutants() -> list[Mutant]:
    """All of them, by file."""
    found: list[Mutant] = []
    for path in sorted(FOLDER.rglob("*.mutants")):
        reader = _Reader(path.relative_to(FOLDER).as_posix().removesuffix(".mutants"))
        for line in path.read_text().splitlines():
            reader.read(line)
        found += reader.found
    return found


# ---------------------------------------------------------------------- playing


def copy_sources() -> None:
    """The tree of the repository as it is, unchanged files left alone so that little is built."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, TREE / name
        if not source.is_file():
            continue
        data = source.read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)


def run(command: list[str], **more: object) -> tuple[int, str]:
    """Exit status and output; a status of its own for what does not end."""
    try:
        done = subprocess.run(
            command, cwd=TREE, env=environment(), timeout=PATIENCE, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more,
        )  # type: ignore[call-overload]  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return 124, f"no end after {PATIENCE} s\n{error.output or ''}"
    return done.returncode, done.stdout


def environment() -> dict[str, str]:
    """The copy's package instead of the installed one, whose finder `-S` keeps out."""
    return {
        **os.environ,
        "PYTHONPATH": f"{TREE / 'python'}:{site_packages()}",
        "POTL_HOOKS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CCACHE_BASEDIR": str(TREE),
    }


def site_packages() -> Path:
    return Path(sysconfig.get_paths()["platlib"])


def build(target: str) -> tuple[int, str]:
    return run(["cmake", "--build", "build/test", "--target", target])


def prepare() -> None:
    copy_sources()
    python = f"-DPython_EXECUTABLE={sys.executable}"
    for command in (
        ["cmake", "--preset", "test", python],
        ["cmake", "--build", "build/test", "--target", "potl_unit_tests", "_core_hooks"],
    ):
        status, output = run(command)
        if status:
            sys.exit(f"{' '.join(command)} failed:\n{output[-3000:]}")
    # What no mutant is compiled into is taken from the environment.
    for module in (site_packages() / "potl").glob("_*"):
        if module.suffix in (".so", ".version"):
            link = TREE / "python/potl" / module.name
            link.unlink(missing_ok=True)
            link.symlink_to(module)


def unit_tests(names: list[str]) -> list[str]:
    tags = ",".join(f"[#{name}_test]" for name in names)
    return ["build/test/potl_unit_tests", "-#", "-a", tags]


def python_tests(arguments: list[str]) -> list[str]:
    return [sys.executable, "-S", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]


def stages(mutant: Mutant) -> Iterator[tuple[str | None, list[str]]]:
    """What is built, and what is run then."""
    compiled = not mutant.source.endswith(".py")
    if mutant.unit:
        yield "potl_unit_tests" if compiled else None, unit_tests(mutant.unit)
    if mutant.python:
        yield "_core_hooks" if compiled else None, python_tests(mutant.python)


def killer(mutant: Mutant) -> str:
    """The test that notices, or nothing."""
    for target, command in stages(mutant):
        if target is not None:
            status, output = build(target)
            if status:
                raise RuntimeError(f"{mutant.name} does not compile:\n{output[-2000:]}")
        status, output = run(command)
        if status:
            return first_failure(output) or f"exit {status}"
    return ""


def first_failure(output: str) -> str:
    for pattern in (r"^FAILED (\S+)", r"^ERROR (\S+)", r"^(\S.*test\.cpp:\d+): FAILED"):
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            return found[1]
    return ""


def play(mutant: Mutant) -> str:
    path = TREE / mutant.source
    text = path.read_text()
    try:
        path.write_text(mutant.apply(text))
        return killer(mutant)
    finally:
        path.write_text(text)


def control(chosen: list[Mutant]) -> None:
    """The tests pass on code that is not broken."""
    done: set[tuple[str, ...]] = set()
    for mutant in chosen:
        for _, command in stages(mutant):
            if tuple(command) not in done:
                done.add(tuple(command))
                status, output = run(command)
                if status:
                    sys.exit(f"without a mutant: {' '.join(command)} fails:\n{output[-3000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Plays mutants; see the head of this file.")
    parser.add_argument("names", nargs="*", help="mutants or sources; all without them")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th, from the i-th")
    parser.add_argument("--list", action="store_true", help="print them, play none")
    parser.add_argument("--unsure", action="store_true", help="play without the control")
    arguments = parser.parse_args()
    number, count = map(int, arguments.part.split("/"))
    wanted = set(arguments.names)
    chosen = [m for m in mutants() if not wanted or {m.name, m.source} & wanted]
    chosen = chosen[number - 1 :: count]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.name:40} {mutant.source}: {mutant.what}")
        return 0
    prepare()
    if not arguments.unsure:
        control(chosen)
    survived, broken = [], []
    for mutant in chosen:
        began = time.monotonic()
        try:
            by = play(mutant)
        except (RuntimeError, ValueError) as error:
            broken.append(mutant.name)
            print(f"BROKEN    {mutant.name}: {error}", flush=True)
            continue
        took = time.monotonic() - began
        if by:
            print(f"killed    {mutant.name} ({took:.0f} s) by {by}", flush=True)
        else:
            survived.append(mutant.name)
            print(f"SURVIVED  {mutant.name} ({took:.0f} s): {mutant.what}", flush=True)
    dead = len(chosen) - len(survived) - len(broken)
    print(f"{len(chosen)} mutants: {dead} killed, {len(survived)} survived, {len(broken)} broken")
    for name in survived:
        print(f"survived  {name}")
    return 1 if survived or broken or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
