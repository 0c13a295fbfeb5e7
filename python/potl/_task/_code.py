# SPDX-License-Identifier: Apache-2.0
"""Digests of the user's own source code that a task runs."""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib.metadata
import inspect
import site
import sysconfig
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._task import Task

_PACKAGES = frozenset(("site-packages", "dist-packages"))
# Of a digest; these tell two versions of a function apart, and decide nothing.
_SHOWN = 16


def code_digests(build: Any, task: Task) -> tuple[str, dict[str, str]] | tuple[None, None]:
    """SHA-256 over the source of `build` and of every function and class of the user's that it
    refers to, and the beginning of one for each of their names.

    Installed packages are left out: the job names their versions. None when some source cannot be
    found (a task typed into an interpreter), and then it is not compared.
    """
    try:
        found = _covered(build, task)
    except (OSError, TypeError):
        return None, None
    lines = sorted(f"{thing.__qualname__}\n{source}" for thing, source in found.values())
    named: dict[str, list[str]] = {}
    for line in lines:
        named.setdefault(line.partition("\n")[0], []).append(line)
    return _digest(lines), {name: _digest(of_it)[:_SHOWN] for name, of_it in named.items()}


def code_modules(build: Any, task: Task) -> set[str]:
    """Names of the modules whose source `code_digests` looks into; none where it gives None."""
    try:
        return {thing.__module__ for thing, _ in _covered(build, task).values()}
    except (OSError, TypeError):
        return set()


def _covered(build: Any, task: Task) -> dict[int, tuple[Any, str]]:
    """What of the user's own is run, with its source. OSError, TypeError: some has none."""
    found: dict[int, tuple[Any, str]] = {}
    roots = [
        build,
        type(task),
        type(task.dataset),
        task.loss,
        task.transform,
        task.collate_fn,
        task.ema,
    ]
    roots += [type(module) for module in task.model.modules()]
    roots += [type(o) for o in (*task.optimizers, *task.schedulers, *task.state.values())]
    for root in roots:
        _collect(root, found)
    return found


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()


def _collect(thing: Any, found: dict[int, tuple[Any, str]]) -> None:
    if isinstance(thing, functools.partial):
        _collect(thing.func, found)
        return
    thing = inspect.unwrap(getattr(thing, "__func__", thing)) if callable(thing) else thing
    if not isinstance(thing, (types.FunctionType, type)):
        thing = type(thing)
    if id(thing) in found or not _is_users(thing):
        return
    found[id(thing)] = thing, textwrap.dedent(inspect.getsource(thing))
    for other in _referred(thing):
        _collect(other, found)


def _is_users(thing: Any) -> bool:
    try:
        path = inspect.getsourcefile(thing)
    except TypeError:
        return False  # built in
    if path is None:
        raise OSError(f"no source of {thing!r}")
    return not is_installed(path)


@functools.lru_cache(maxsize=4096)
def is_installed(path: str) -> bool:
    """Whether a source file is of Python, of potl or of an installed package."""
    # Of another environment, too, which PYTHONPATH or a .pth file adds: torch may lie there.
    if not _PACKAGES.isdisjoint(Path(path).parts):
        return True
    if any(Path(path).is_relative_to(folder) for folder in _installed()):
        return True
    # Of a folder of pip install --target, where the user's own code may lie beside it.
    source = Path(path)
    return any(source.relative_to(up).as_posix() in _recorded(str(up)) for up in source.parents)


@functools.lru_cache(maxsize=1024)
def _recorded(folder: str) -> frozenset[str]:
    """Files of the packages that a *.dist-info in a folder says were installed there."""
    found = importlib.metadata.distributions(path=[folder])
    records = [(one.read_text("RECORD") or "").splitlines() for one in found]
    return frozenset(row[0] for record in records for row in csv.reader(record) if row)


@functools.lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    folders.add(str(Path(__file__).parent.parent))  # of potl itself
    return tuple(sorted(folders))


def _referred(thing: Any) -> Iterator[Any]:
    if isinstance(thing, type):
        yield from thing.__bases__
        for member in vars(thing).values():
            member = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(member, types.FunctionType):
                yield from _globals_of(member, member.__code__)
    else:
        yield from _globals_of(thing, thing.__code__)
        for cell in thing.__closure__ or ():
            try:
                if _is_code(cell.cell_contents):
                    yield cell.cell_contents
            except ValueError:
                pass  # not bound yet


def _globals_of(function: types.FunctionType, code: types.CodeType) -> Iterator[Any]:
    for name in code.co_names:
        value = function.__globals__.get(name)
        if _is_code(value):
            yield value
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(function, constant)


def _is_code(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, type, functools.partial))
