#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces the layers of docs/reference/architecture.md and the rules every file keeps.

C++: an include may only point to the own layer or one below; checks do not know each other; torch
is included under libtorch/ alone; OpenSSL, nlohmann-json and Eigen stay out of public headers;
examples, and programs of tests/install, include no header of a folder detail/. No call is ambiguous
in torch 2.11, which the tests do not build with.
Python: modules are private and lie in packages. An import points to the own package or one below,
also inside a function or for types alone, and no modules form a circle. What only demonstrations
and tests need (attacks, switches of rules) is not looked at by the rest. Every source file has an
SPDX line, is ASCII without tabs, has at most 25 KB, and names no path of somebody's machine. What
the package's dictionaries hold is typed, but for the few of UNTYPED.

Prints one line per problem. Exit status 1 when there is one.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

MAX_BYTES = 25 * 1024
SKIPPED = {".git", ".venv", "build", "dist", "runs", "__pycache__", "corpus", "gpu-pack"}
CPP = {".cpp", ".hpp", ".cu", ".cuh"}
SOURCES = CPP | {".py", ".pyi", ".cmake", ".in", ".sh", ".toml"}
TEXTS = SOURCES | {".md", ".json", ".txt", ".html", ".css", ".js", ".yml"}
SPDX = "SPDX-License-Identifier: Apache-2.0"
# nvcc compiles what counts bits in <bit> to a constant, without a word.
COUNTS_BITS = re.compile(
    r"std::(count[lr]_(zero|one)|popcount|bit_(width|floor|ceil)|has_single_bit)\b"
)
# In torch 2.11 these take names of dimensions too: {0, n} may be a null pointer and a length, {} an
# empty list of either.
DIMENSIONS_OR_NAMES = re.compile(
    r"\b(?:sum|mean|norm|logsumexp|(?:std|var)(?:_mean)?)\((?:[^(){};]*,)?\s*\{(?:\s*0\s*,[^,{}]*)?\}"
)
ANYWHERE = "include/potl/numeric/detail/anywhere.hpp"
MACHINE_PATH = re.compile(r"(?<![\w.<}])/(?:work|root|home|Users)/[\w.]")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.MULTILINE)

CORE, CRYPTO, ENCODING, STATISTICS = "core", "crypto", "encoding", "statistics"
NUMERIC, TRANSCRIPT, EVIDENCE, CHECKS = "numeric", "transcript", "evidence", "checks"
BELOW_TRANSCRIPT = {CORE, CRYPTO, ENCODING, STATISTICS, NUMERIC}
BELOW_CHECKS = BELOW_TRANSCRIPT | {TRANSCRIPT, EVIDENCE}
# Layer -> layers it may include. "top" is verify, policy, report and the umbrella header.
ALLOWED = {
    CORE: {CORE},
    CRYPTO: {CORE, CRYPTO},
    ENCODING: {CORE, ENCODING},
    STATISTICS: {CORE, STATISTICS},
    NUMERIC: {CORE, CRYPTO, STATISTICS, NUMERIC},
    TRANSCRIPT: BELOW_TRANSCRIPT | {TRANSCRIPT},
    EVIDENCE: BELOW_CHECKS,
    CHECKS: BELOW_CHECKS | {CHECKS},
    "dispute": BELOW_CHECKS | {CHECKS, "dispute", "top"},
    "top": BELOW_CHECKS | {CHECKS, "dispute", "top"},
    "libtorch": BELOW_CHECKS | {CHECKS, "dispute", "top", "libtorch", "cuda"},
    "cuda": BELOW_CHECKS | {CHECKS, "dispute", "top", "cuda"},
}
CHECK_STEMS = ("telemetry", "pev", "replay", "exact_replay", "spot_check", "extra_task")
# First part of a library's include path -> layers whose sources may include it.
LIBRARIES = {
    "openssl": {CRYPTO},
    "nlohmann": {ENCODING},
    "Eigen": {STATISTICS, NUMERIC, CHECKS, "dispute", "top"},
    "torch": {"libtorch"},
    "ATen": {"libtorch"},
    "c10": {"libtorch"},
}
# Programs as users write them.
USERS = ("examples/", "tests/install/")
KEPT_OUT_OF_HEADERS = {"openssl", "nlohmann", "Eigen"}

# From the bottom. Any of them may import potl._core and potl._torch.
PACKAGES = (
    "_base",
    "_arithmetic",
    "_task",
    "_job",
    "_record",
    "_remote",
    "_seal",
    "_checks",
    "_extra_task",
    "_report",
    "_spot_check",
    "_verify",
    "_dispute",
    "_serve",
    "_machine",
    "_attacks",
    "_cli",
)
# Package -> the one module outside of it that may import it.
DEMONSTRATIONS = {"_attacks": "_cli._demo"}
# Lines that say of a dictionary that anything may be in it, in files where that has a reason, which
# a comment beside the line gives.
UNTYPED_DICTIONARY = re.compile(r"(?:[Dd]ict|Mapping)\[str, Any\]")
UNTYPED = {
    "python/potl/_cli/_options.py": 1,
    "python/potl/_extra_task/_arrays.py": 1,
    "python/potl/_extra_task/_result.py": 1,
    "python/potl/_serve/_limits.py": 1,
    "python/potl/_task/_values.py": 1,
}
TEST_HOOKS = re.compile(r"\b(?:(?:set_)?rule_enabled|_core_hooks)\b")


def layer_of(path: str) -> str | None:
    """The layer of a file named relative to the repository, None outside the library."""
    parts = path.split("/")
    if parts[0] == "kernels":
        return "cuda"
    if parts[:2] == ["include", "potl"]:
        inner = parts[2:]
    elif parts[0] == "src":
        inner = parts[1:]
    else:
        return None
    return inner[0] if len(inner) > 1 and inner[0] in ALLOWED else "top"


def check_of(path: str) -> str | None:
    """The check that a file under checks/ belongs to; None for what all checks share."""
    inner = path.split("/checks/", 1)[1]
    name = inner.removeprefix("detail/").split("/")[0].removesuffix(".hpp").removesuffix(".cpp")
    owners = [stem for stem in CHECK_STEMS if name == stem or name.startswith(stem + "_")]
    return max(owners, key=len, default=None)


def included_file(root: Path, path: str, quoted: bool, name: str) -> str | None:
    """The repository's file behind an include, None when it is not one of ours."""
    if name.startswith("potl/"):
        return "include/" + name
    if not quoted:
        return None
    for folder in (Path(path).parent, Path("src")):
        if (root / folder / name).is_file():
            return os.path.normpath(folder / name)
    return None


def include_problems(root: Path, path: str, text: str) -> Iterator[str]:
    layer = layer_of(path)
    if layer is None and path.startswith(USERS):
        for match in INCLUDE.finditer(text):
            if match[2].startswith("potl/") and "/detail/" in match[2]:
                where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
                yield f"{where}: a program includes no header of potl's detail/ ({match[2]})"
    if layer is None:
        return
    public = path.startswith("include/")
    for match in INCLUDE.finditer(text):
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        name = match[2]
        target = included_file(root, path, match[1] == '"', name)
        if target is None:
            library = name.split("/")[0]
            if public and library in KEPT_OUT_OF_HEADERS:
                yield f"{where}: a public header must not include <{name}>"
            elif layer not in LIBRARIES.get(library, {layer}):
                yield f"{where}: {layer} must not include <{name}>"
            continue
        below = layer_of(target)
        if below is not None and below not in ALLOWED[layer]:
            yield f"{where}: {layer} must not include {below} ({name})"
        if public and target.startswith("src/"):
            yield f"{where}: a public header must not include a private one ({name})"
        if layer == CHECKS and below == CHECKS and check_of(target) not in (None, check_of(path)):
            yield f"{where}: checks do not know each other ({name})"


def text_problems(path: str, data: bytes) -> Iterator[str]:
    suffix = Path(path).suffix
    text = data.decode("utf-8", "replace")
    is_source = suffix in SOURCES or text.startswith("#!") or Path(path).name == "CMakeLists.txt"
    if len(data) > MAX_BYTES and suffix != ".json":
        yield f"{path}: {len(data)} bytes, more than {MAX_BYTES}: split it"
    for_devices = path.startswith("kernels/") or "POTL_ANYWHERE" in text
    for_devices = for_devices and suffix in (".hpp", ".cu") and path != ANYWHERE
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield f"{path}:{number}: names a path of one machine"
        if is_source and not line.isascii():
            yield f"{path}:{number}: sources are ASCII"
        if is_source and "\t" in line:
            yield f"{path}:{number}: tab"
        if for_devices and COUNTS_BITS.search(line):
            yield f"{path}:{number}: nvcc makes a constant of this: see {ANYWHERE}"
    if is_source and data and SPDX not in "\n".join(text.splitlines()[:3]):
        yield f"{path}: no line '{SPDX}' at its top"


def call_problems(path: str, text: str) -> Iterator[str]:
    for match in DIMENSIONS_OR_NAMES.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"{path}:{line}: ambiguous in torch 2.11: write at::IntArrayRef{{...}}"


def python_problems(path: str) -> Iterator[str]:
    if not path.startswith("python/potl/") or not path.endswith(".py"):
        return
    parts = Path(path).relative_to("python/potl").parts
    for part in parts:
        if not part.startswith("_"):
            yield f"{path}: modules of the package are private; call it _{part}"
    if len(parts) == 1 and not parts[0].startswith("__"):
        yield f"{path}: it lies in no package; move it into one of {', '.join(PACKAGES)}"
    if len(parts) > 1 and parts[0] not in PACKAGES:
        yield f"{path}: {parts[0]} is not among PACKAGES of scripts/check_layers.py"


def typing_problems(path: str, text: str) -> Iterator[str]:
    if not path.startswith("python/potl/") or Path(path).suffix not in (".py", ".pyi"):
        return
    lines = [n for n, one in enumerate(text.splitlines(), 1) if UNTYPED_DICTIONARY.search(one)]
    allowed = UNTYPED.get(path, 0)
    if len(lines) > allowed:
        yield f"{path}:{lines[allowed]}: say what the dictionary holds: object, or a TypedDict"
    elif len(lines) < allowed:
        yield f"{path}: has {len(lines)} untyped dictionaries: lower UNTYPED of check_layers.py"


def imported_modules(path: str, text: str, known: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Lines of a module's relative imports, and the modules behind them.

    Args:
        path: Of the module, relative to python/potl.
        text: Its source.
        known: Dotted names of all modules.
    """
    package = Path(path).parent.parts
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = [*package[: len(package) - (node.level - 1)], *filter(None, [node.module])]
        for alias in node.names:
            # A module of a package, or what a module, or the package itself, defines.
            found = [".".join([*base, alias.name]), ".".join(base), ".".join([*base, "__init__"])]
            yield from [(node.lineno, name) for name in found if name in known][:1]


def import_problems(root: Path) -> Iterator[str]:
    """Imports between potl's Python packages that point up, and circles of modules."""
    package = root / "python/potl"
    paths = [path.relative_to(package).as_posix() for path in sorted(package.rglob("_*/_*.py"))]
    known = {path.removesuffix(".py").replace("/", "."): path for path in paths}
    arrows: dict[str, set[str]] = {}
    for name, path in known.items():
        own = name.split(".")[0]
        text = (package / path).read_text("utf-8", "replace")
        for line, target in imported_modules(path, text, known):
            other = target.split(".")[0]
            arrows.setdefault(name, set()).add(target)
            if not {own, other} <= set(PACKAGES):
                continue
            if PACKAGES.index(other) > PACKAGES.index(own):
                yield f"python/potl/{path}:{line}: {own} must not import {other} ({target})"
            elif other != own and DEMONSTRATIONS.get(other, name) != name:
                yield f"python/potl/{path}:{line}: only {DEMONSTRATIONS[other]} imports {other}"
        if own not in DEMONSTRATIONS:
            for match in TEST_HOOKS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"python/potl/{path}:{line}: {match[0]} is for tests and attacks"
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        yield f"python/potl: modules in a circle: {' <- '.join(error.args[1])}"


def files(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED
            and not name.startswith("build-")
            and not name.endswith(("_cache", ".egg-info"))
            and name != ".hypothesis"
        )
        for name in sorted(names):
            path = Path(folder, name)
            known = path.suffix in TEXTS or name in ("Makefile", "run") or not path.suffix
            if known and not path.is_symlink():
                yield path.relative_to(root).as_posix()


def problems(root: Path) -> list[str]:
    """Everything wrong below a repository's root, as lines `path:line: what`."""
    found: list[str] = []
    for path in files(root):
        data = (root / path).read_bytes()
        if path in ("LICENSE", ".git"):
            continue
        found += text_problems(path, data)
        found += python_problems(path)
        found += typing_problems(path, data.decode("utf-8", "replace"))
        if Path(path).suffix in CPP:
            found += include_problems(root, path, data.decode("utf-8", "replace"))
            found += call_problems(path, data.decode("utf-8", "replace"))
    return [*found, *import_problems(root)]


def main() -> int:
    found = problems(Path(__file__).resolve().parent.parent)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
