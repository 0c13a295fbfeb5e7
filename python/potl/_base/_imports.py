# SPDX-License-Identifier: Apache-2.0
"""Nothing is imported from a run directory, whatever `sys.path`, the working directory or the
directory's own name say.

Claims: from `close` on, this process loads no module, and no entry point of a package, that lies in
the directory, however late and by whomever it is imported. Assumes that the interpreter was started
without one: `python -m potl` inside a run directory reads its files before potl can say
anything, which is why `close` refuses when something came from there already.
"""

# Names as they are written, and the places that they mean, are told apart here.
# ruff: noqa: PTH100, PTH109, PTH110, PTH117, PTH118, PTH119, PTH120

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from multiprocessing import process
from pathlib import Path
from types import ModuleType

from ._errors import UsageError

_REMEDY = "run from another folder, and keep the run directory out of PYTHONPATH"

# Each under its real path, and under its own name in the real folder that it lies in.
_closed: set[str] = set()


def close(directory: str | os.PathLike[str]) -> None:
    """From here on nothing is imported from that directory.

    Raises:
        UsageError: Something was imported from it before.
    """
    name = os.path.abspath(directory)
    _closed.update(
        (os.path.realpath(name), os.path.join(_real(os.path.dirname(name)), os.path.basename(name)))
    )
    # In its place, because what it does not find the other finders may.
    sys.meta_path[:] = [_Finder if one is PathFinder else one for one in sys.meta_path]
    folders: dict[str, bool] = {}
    for module_name, module in list(sys.modules.items()):
        origin = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(origin, str):
            continue
        folder = os.path.dirname(origin)
        if not folder and not os.path.exists(origin):  # torch makes one of a string
            continue
        if folder not in folders:
            folders[folder] = is_closed(os.path.abspath(folder))
        if folders[folder]:
            raise UsageError(
                f'the module "{module_name}" came from the run directory: code of the trainer\'s '
                "may have run",
                _REMEDY,
            )


def is_closed(path: str | os.PathLike[str]) -> bool:
    """Whether a path lies in a closed directory; "" is the working directory."""
    place = os.fspath(path)
    if not os.path.isabs(place):
        try:
            place = os.path.join(os.getcwd(), place)
        except FileNotFoundError:  # a working directory that was removed
            return True
    return any(map(_below_closed, {os.path.abspath(place), _real(place)}))


def _below_closed(way: str) -> bool:
    # Not with dirname: a process looks at a thousand folders for each directory that it closes.
    end = len(way)
    while end > 0:
        if way[:end] in _closed:
            return True
        end = way.rfind(os.sep, 0, end)
    return os.sep in _closed


def require_clean_start(directory: Path) -> None:
    """Raises UsageError when worker processes could import from a run directory before they close
    it: they start in this working directory and with this `sys.path`.
    """
    where = [
        os.getcwd(),
        getattr(process, "ORIGINAL_DIR", "") or "",
        *(p for p in sys.path if isinstance(p, str)),
    ]
    if any(is_closed(place) for place in where):
        raise UsageError("worker processes would start inside the run directory", _REMEDY)
    name = directory.resolve().name
    if name in sys.stdlib_module_names or name in sys.modules:
        raise UsageError(
            f'the run directory is named like the module "{name}", which worker processes import',
            "rename it",
        )


@functools.lru_cache(maxsize=4096)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _leads_in(entry: str, name: str) -> bool:
    return is_closed(entry) or (name != "" and is_closed(os.path.join(_real_entry(entry), name)))


def _real_entry(entry: str) -> str:
    return _real(entry) if os.path.isabs(entry) else os.path.realpath(entry)


def _open_entries(entries: Iterable[str], name: str = "") -> list[str]:
    return [one for one in entries if not isinstance(one, str) or not _leads_in(one, name)]


class _Finder:
    """Finds what Python's path finder finds, outside the closed directories."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        entries = _open_entries(sys.path if path is None else path, fullname.rpartition(".")[2])
        return PathFinder.find_spec(fullname, entries, target)

    @staticmethod
    def find_distributions(
        context: DistributionFinder.Context | None = None,
    ) -> Iterable[Distribution]:
        given = DistributionFinder.Context() if context is None else context
        return PathFinder.find_distributions(
            DistributionFinder.Context(name=given.name, path=_open_entries(given.path))
        )

    @staticmethod
    def invalidate_caches() -> None:
        PathFinder.invalidate_caches()
