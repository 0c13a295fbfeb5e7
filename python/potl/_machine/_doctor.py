# SPDX-License-Identifier: Apache-2.0
"""What is wrong with an installation, and what to do about it.

Nothing of potl is needed to import this module: it has to work where the rest does not.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypedDict

from .._base._printable import printable
from ._disk import clock, disk
from ._item import Item, problem, warning, well

if TYPE_CHECKING:
    from rich.console import Console

    from .._core import BuildInfo

_LEAST_PYTHON = (3, 10)
_LEAST_TORCH = (2, 11)
_LEAST_OPENSSL = (3, 0)
_TOLD_INSTRUCTIONS = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "sha_ni",
    "asimd",
    "sve",
    "sha2",
)

_FP_REMEDY = (
    "look for a library that is loaded into this process and was linked with -ffast-math or -Ofast"
)


class ItemDocument(TypedDict):
    """An `Item` as JSON values."""

    name: str
    state: str
    seen: str
    remedy: str


class DiagnosisDocument(TypedDict):
    """A `Diagnosis` as JSON values."""

    fine: bool
    items: list[ItemDocument]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything that was looked at.

    Attributes:
        items: In the order in which they were looked at.
    """

    items: tuple[Item, ...]

    @property
    def fine(self) -> bool:
        """Whether nothing keeps potl from working. Warnings do not."""
        return all(item.state != "problem" for item in self.items)

    def document(self) -> DiagnosisDocument:
        """The diagnosis as JSON values."""
        items = [
            ItemDocument(name=one.name, state=one.state, seen=one.seen, remedy=one.remedy)
            for one in self.items
        ]
        return {"fine": self.fine, "items": items}


def examine(directory: Path) -> Diagnosis:
    """Looks at this process and at the disk of `directory`, where runs would be written."""
    items = [*python(sys.version_info[:3])]
    core, found = module(lambda: importlib.import_module("potl._core"))
    items += found
    if core is not None:
        items += build(core)
        items += arithmetic(core.fp_environment(), when="")
    items += packages(_version_of)
    torch, found = framework(lambda: importlib.import_module("torch"), _version_of("torch"))
    items += found
    if core is not None and torch is not None:
        # Loading a library can change the rounding of the thread that loads it.
        changed = arithmetic(core.fp_environment(), when=" after import torch")
        items += [item for item in changed if item.state == "problem"]
        operators_of = "potl._arithmetic._library"
        items += operators(lambda: importlib.import_module(operators_of).module())
    items += processor(Path("/proc/cpuinfo"))
    items += threads(torch)
    items += disk(directory)
    items += clock()
    return Diagnosis(items=tuple(items))


def python(version: tuple[int, ...]) -> Iterable[Item]:
    """The interpreter."""
    shown = ".".join(map(str, version)) + f", {sys.executable}"
    if version[:2] < _LEAST_PYTHON:
        yield problem("Python", shown, "potl needs Python 3.10 or newer")
    else:
        yield well("Python", shown)


def module(load: Callable[[], ModuleType]) -> tuple[ModuleType | None, list[Item]]:
    """The C++ module: whether it loads, and whether it belongs to this package."""
    try:
        core = load()
        version = core.version()
    except Exception as error:
        return None, [
            problem("potl._core", f"{type(error).__name__}: {error}", _load_remedy(error))
        ]
    where = f"{version}, {getattr(core, '__file__', 'built in')}"
    installed = _version_of("potl")
    if installed is not None and installed != version:
        return core, [
            problem(
                "potl._core",
                f"{where}, but the installed package is {installed}",
                "install again, or remove one of the two copies from PYTHONPATH",
            )
        ]
    return core, [well("potl._core", where)]


def _load_remedy(error: Exception) -> str:
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"it was not built for Python {platform.python_version()}: pip install . again"
    if "libcrypto" in text or "OPENSSL" in text:
        return "it was linked with another OpenSSL: install libssl3, or pip install . again"
    if "GLIBC" in text:
        return "it was built on a newer system: pip install . again here"
    return "pip install . again with this interpreter"


def build(core: ModuleType) -> Iterable[Item]:
    """What the module was made with, and the OpenSSL that it runs with."""
    facts: BuildInfo = core.build_info()
    openssl = str(facts["openssl"])
    if _numbers(openssl)[:2] < _LEAST_OPENSSL:
        yield problem("OpenSSL", openssl, "install OpenSSL 3.0 or newer")
    else:
        yield well("OpenSSL", openssl)
    yield well("compiler", str(facts["compiler"]))
    if facts["hashes_chunks_together"]:
        yield well("ipsec-mb", "several chunks of a tensor are hashed at once")
    elif platform.machine() in ("x86_64", "AMD64"):
        yield warning(
            "ipsec-mb",
            "chunks of a tensor are hashed one after another",
            "to hash up to twice as fast: apt-get install libipsec-mb-dev, and build potl again",
        )


def arithmetic(checks: Mapping[str, tuple[bool, str]], *, when: str) -> Iterable[Item]:
    """The floating-point environment of this thread."""
    for name, (holds, text) in checks.items():
        title = f"arithmetic: {name.replace('_', ' ')}{when}"
        yield well(title, text) if holds else problem(title, text, _FP_REMEDY)


def packages(version_of: Callable[[str], str | None]) -> Iterable[Item]:
    """The Python packages that potl uses."""
    for name in ("jinja2", "markupsafe", "rich", "typer"):
        version = version_of(name)
        if version is None:
            yield problem(name, "not installed", f"pip install {name}")
        else:
            yield well(name, version)
    version = version_of("numpy")
    if version is None:
        yield warning("numpy", "not installed", "pip install numpy, if data sets give NumPy arrays")
    else:
        yield well("numpy", version)


def framework(
    load: Callable[[], ModuleType], installed: str | None
) -> tuple[ModuleType | None, list[Item]]:
    """PyTorch, which recording and replaying need and inspecting does not."""
    if installed is None:
        return None, [
            warning(
                "torch",
                "not installed: recording, checking and replaying are not possible",
                'pip install "potl[torch]"',
            )
        ]
    if _numbers(installed)[:2] < _LEAST_TORCH:
        return None, [
            problem("torch", installed, "potl supports torch 2.11 and newer: upgrade torch")
        ]
    try:
        torch = load()
    except Exception as error:
        seen = f"{installed} does not load: {type(error).__name__}: {error}"
        return None, [problem("torch", seen, "install torch again for this interpreter")]
    capability = torch.backends.cpu.get_cpu_capability()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return torch, [well("torch", f"{torch.__version__}, kernels for {capability}, {device}")]


def operators(load: Callable[[], object]) -> Iterable[Item]:
    """What jobs in a reproducible arithmetic, and `potl.deterministic`, need."""
    try:
        load()
    except Exception as error:
        seen = str(getattr(error, "message", "") or error)
        remedy = getattr(error, "remedy", "") or "pip install . again, where torch is installed"
        yield warning("potl.deterministic", seen, remedy)
    else:
        yield well("potl.deterministic", "its operators fit this torch")


def processor(cpuinfo: Path) -> Iterable[Item]:
    """Its name and the instruction sets that matter here."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        text = ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    told = [one for one in _TOLD_INSTRUCTIONS if one in has]
    shown = f"{name[1] if name else platform.machine()} ({', '.join(told) or 'unknown features'})"
    yield well("processor", shown)


def threads(torch: ModuleType | None) -> Iterable[Item]:
    """How many this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shown = f"{allowed} processors for this process"
    if torch is None:
        yield well("threads", shown)
        return
    used = int(torch.get_num_threads())
    shown += f", torch uses {used}"
    if allowed is not None and used > allowed:
        yield warning(
            "threads",
            shown,
            f"more threads than processors wait for each other: set OMP_NUM_THREADS={allowed}",
        )
    else:
        yield well("threads", shown)


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Prints it for people: what is wrong comes with its remedy."""
    from rich.text import Text

    signs = {
        "ok": ("\u2713", "green"),
        "warning": ("!", "yellow"),
        "problem": ("\u2717", "bold red"),
    }
    for item in diagnosis.items:
        sign, style = signs[item.state]
        line = Text.assemble((f"{sign} ", style), (f"{item.name}: ", "bold"), printable(item.seen))
        if item.remedy:
            line.append(f"\n    {printable(item.remedy)}", style=style)
        console.print(line)
    wrong = sum(item.state == "problem" for item in diagnosis.items)
    doubtful = sum(item.state == "warning" for item in diagnosis.items)
    console.print()
    if wrong:
        console.print(f"{wrong} problem{'s' if wrong > 1 else ''} to solve")
    else:
        console.print("potl works here" + (f", with {doubtful} warnings" if doubtful else ""))


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
