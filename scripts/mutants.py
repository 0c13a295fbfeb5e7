#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the mutants of tests/mutants: each must be killed by a test.

A file there is named after the source that it changes, and says first which tests look at that
source:

    unit: challenge verify                  tests/unit/challenge_test.cpp, ...
    python: tests/python/verify/test_challenge.py  arguments of pytest

    @ nonce-is-constant: the verifier's nonce is a constant
     a line of the source
    -the line that is taken away
    +the line in its place

A hunk has no line numbers: its old lines must occur exactly once, so that other changes do not
move it. `unit:` or `python:` behind a hunk's title replaces those of the file. A mutant of C++ is
compiled and linked in front of the library of build/test, which `make test` builds; unit tests
come first, then Python's. One of Python is put into a copy of the package. Tests that look at a
mutant must pass without it, or it is not played.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/mutants"
BUILD = ROOT / "build/test"
UNIT, MODULE = "potl_unit_tests", "_core_hooks"
# A mutant may loop for ever; the slowest honest test takes a tenth of this. Tests without a mutant
# run to their end, where others stop at the first failure.
PATIENCE, PATIENCE_OF_CONTROL = 300, 1200
# So may what it allocates have no end.
MEMORY = 8 << 30

Run = tuple[int, str]


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
            raise ValueError(f"{self.source}: {line!r} is not a line of a mutant")


def mutants() -> list[Mutant]:
    """All of them, by file."""
    found: list[Mutant] = []
    for path in sorted(FOLDER.rglob("*.mutants")):
        reader = _Reader(path.relative_to(FOLDER).as_posix().removesuffix(".mutants"))
        for line in path.read_text().splitlines():
            reader.read(line)
        found += reader.found
    return found


# ---------------------------------------------------------------------- building


def run(
    command: list[str],
    *,
    cwd: Path = ROOT,
    more: dict[str, str] | None = None,
    patience: float = PATIENCE,
) -> Run:
    """Exit status and output; a status of its own for what does not end."""
    environment = {**os.environ, "POTL_HOOKS": "1", "OMP_NUM_THREADS": "1", **(more or {})}
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, errors="replace", start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 124, f"no end after {patience:.0f} s\n{output}"
    return process.returncode, output


def require(command: list[str], *, cwd: Path = BUILD) -> None:
    status, output = run(command, cwd=cwd)
    if status:
        raise RuntimeError(f"{shlex.join(command)[:300]} fails:\n{output[-2000:]}")


def _include(path: str) -> str:
    return f'#include "{path}"\n'


class Builder:
    """Compiles one source, with those that it is joined with, and links it in front of the library
    that holds the honest one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        entries = json.loads((BUILD / "compile_commands.json").read_text())
        self._compile = {Path(e["file"]): shlex.split(e["command"]) for e in entries}
        self._link = {target: self._command(target) for target in (UNIT, MODULE)}

    @staticmethod
    def _command(target: str) -> list[str]:
        listed = subprocess.run(
            ["ninja", "-t", "commands", target], cwd=BUILD, check=True, capture_output=True,
            text=True,
        )  # fmt: skip
        words = shlex.split(listed.stdout.splitlines()[-1])
        begin = words.index("&&") + 1
        return words[begin : words.index("&&", begin)]

    def compile(self, mutant: Mutant) -> None:
        """The mutant's object, with little optimization and no warnings."""
        source = ROOT / mutant.source
        copy = self.folder / source.name
        copy.write_text(mutant.apply(source.read_text()))
        compiled = self._compiled_with(mutant.source)
        if compiled != source:
            text = compiled.read_text().replace(_include(mutant.source), _include(str(copy)))
            copy = self.folder / compiled.name
            copy.write_text(text)
        words = [w for w in self._compile[compiled] if not w.startswith(("-O", "-W"))]
        words[words.index("-o") + 1] = str(self.folder / "mutant.o")
        words[words.index("-c") + 1] = str(copy)
        require([*words, "-O1", "-w", "-iquote", str(source.parent)])

    def _compiled_with(self, source: str) -> Path:
        """The source, or the file of cmake/sources.cmake that joins it with others."""
        if ROOT / source in self._compile:
            return ROOT / source
        joined = ((BUILD / source).parent).glob("potl.*.cpp")
        return next(one for one in joined if _include(source) in one.read_text())

    def link(self, target: str) -> Path:
        """The unit tests or the module, with the mutant in it."""
        words = list(self._link[target])
        out = self.folder / Path(words[words.index("-o") + 1]).name
        words[words.index("-o") + 1] = str(out)
        library = next(i for i, word in enumerate(words) if word.endswith("libpotl_hooks.a"))
        require([*words[:library], str(self.folder / "mutant.o"), *words[library:]])
        return out


def copy_package(folder: Path) -> Path:
    """The Python package, to be mutated. Whatever is started with the folder in PYTHONPATH imports
    it, and not the one that is installed for editing, whose finder comes before every path.
    """
    shutil.rmtree(folder, ignore_errors=True)
    package = ROOT / "python/potl"
    shutil.copytree(package, folder / "potl", ignore=shutil.ignore_patterns("*.so"))
    for module in package.glob("*.so"):
        (folder / "potl" / module.name).symlink_to(module)
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "editable = '_editable_skbc_potl'\n"
        "sys.meta_path = [one for one in sys.meta_path if type(one).__module__ != editable]\n"
    )
    return folder


# ---------------------------------------------------------------------- playing


def unit_tests(names: list[str], binary: Path, patience: float = PATIENCE) -> Run:
    tags = ",".join(f"[#{name}_test]" for name in names)
    return run([str(binary), "-#", "-a", tags], patience=patience)


def python_tests(
    names: list[str], package: Path | None, hooks: Path | None, patience: float = PATIENCE
) -> Run:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    more = {"PYTHONDONTWRITEBYTECODE": "1"}
    if hooks is not None:
        more["POTL_HOOKS_DIR"] = str(hooks)
    if package is not None:
        more["PYTHONPATH"] = str(package)
    return run([*command, *names], more=more, patience=patience)


def play(mutant: Mutant, folder: Path, builder: Builder) -> str:
    """The test that notices, or nothing."""
    status, output = 0, ""
    if mutant.source.endswith(".py"):
        package = copy_package(folder / "python")
        path = package / Path(mutant.source).relative_to("python")
        path.write_text(mutant.apply(path.read_text()))
        status, output = python_tests(mutant.python, package, None)
    else:
        builder.compile(mutant)
        if mutant.unit:
            status, output = unit_tests(mutant.unit, builder.link(UNIT))
        if not status and mutant.python:
            builder.link(MODULE)
            status, output = python_tests(mutant.python, None, folder)
    return (first_failure(output) or f"exit {status}") if status else ""


class Control:
    """Tests on code that is not broken, in the same surroundings, once each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "control"
        self._seen: dict[tuple[str, ...], str] = {}

    def require(self, mutant: Mutant) -> None:
        """Raises RuntimeError with what was printed, if a test fails that looks at the mutant."""
        of_python = mutant.source.endswith(".py")
        for names, kind in ((mutant.unit, "unit"), (mutant.python, f"python {of_python}")):
            key = (kind, *names)
            known = key in self._seen
            if names and not known:
                self._seen[key] = self._failure(names, kind == "unit", of_python)
            if names and self._seen[key]:
                told = "as above" if known else f"\n{self._seen[key]}"
                raise RuntimeError(f"without it {' '.join(names)} fails: {told}")

    def _failure(self, names: list[str], unit: bool, of_python: bool) -> str:
        if unit:
            status, output = unit_tests(names, BUILD / UNIT, PATIENCE_OF_CONTROL)
        else:
            package = copy_package(self._folder) if of_python else None
            status, output = python_tests(names, package, None, PATIENCE_OF_CONTROL)
        return output[-3000:] or f"exit {status}" if status else ""


def first_failure(output: str) -> str:
    for pattern in (r"^FAILED (\S+)", r"^ERROR (\S+)", r"^(\S.*test\.cpp:\d+): FAILED"):
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            return found[1]
    return ""


def held(folder: Path) -> int:
    """The part's folder, for one run at a time: another one would link and copy the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise SystemExit(
            "scripts/mutants already plays this part: wait until it ends, or play another --part"
        ) from None
    return lock


def main() -> int:
    parser = argparse.ArgumentParser(description="Plays mutants; see the head of this file.")
    parser.add_argument("names", nargs="*", help="mutants or sources; all without them")
    parser.add_argument("--part", default="1/1", help="i/n: the i-th of n parts, by source")
    parser.add_argument("--list", action="store_true", help="print them, play none")
    parser.add_argument("--unsure", action="store_true", help="play without the control")
    arguments = parser.parse_args()
    number, count = map(int, arguments.part.split("/"))
    wanted = set(arguments.names)
    chosen = [m for m in mutants() if not wanted or {m.name, m.source} & wanted]
    # Neighbours have tests in common, which are run without a mutant once in a part.
    chosen = chosen[len(chosen) * (number - 1) // count : len(chosen) * number // count]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.name:40} {mutant.source}: {mutant.what}")
        return 0
    folder = ROOT / "build/mutants" / f"{number}-of-{count}"
    held(folder)  # until this process ends
    builder = Builder(folder)
    control = None if arguments.unsure else Control(folder)
    survived, broken = [], []
    for mutant in chosen:
        began = time.monotonic()
        try:
            if control is not None:
                control.require(mutant)
            by = play(mutant, folder, builder)
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
    for name in broken:
        print(f"broken    {name}")
    return 1 if survived or broken or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
