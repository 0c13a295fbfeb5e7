# SPDX-License-Identifier: Apache-2.0
"""Which files of the client's are packed, and under which names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .._base._errors import StorageError, UsageError
from .._job._agreement import open_unchecked
from .._task._code import code_modules
from ._contents import ACTING, INITIAL, JOB, require_names

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._task import Task


def sources(
    build: Callable[[], Task],
    job: Job,
    task: str,
    own: Path,
    given: Iterable[str | os.PathLike[str]],
) -> dict[str, Path]:
    """Files by the names under which they are packed.

    Args:
        build: Of the task, whose code is packed.
        job: What was agreed.
        task: Names `build`.
        own: The folder below which `given` lie.
        given: Files and folders that are packed beside the code.

    Raises:
        UsageError: Something of `given` cannot be packed.
    """
    with open_unchecked(build, job) as session:
        modules = code_modules(build, session.task)
    found = dict(_code({*modules, task.partition(":")[0]}))
    for one in given:
        for path in _below(own, one):
            name = path.relative_to(own).as_posix()
            if name in (JOB, INITIAL):
                raise UsageError(
                    f"{name} is the name of the packed job", "leave it out, or rename it"
                )
            found[name] = path
    require_names(found)
    return found


def _code(modules: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The files of modules, and of the packages that they are in, at their import paths."""
    for module in modules:
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            path = getattr(sys.modules.get(".".join(parts[:depth])), "__file__", None)
            if path is None:  # a folder that is a package without an __init__.py
                continue
            # A script that names itself is not imported a second time: it has its file's name.
            stem = Path(path).stem if module == "__main__" else "/".join(parts[:depth])
            inner = "/__init__.py" if Path(path).stem == "__init__" else ".py"
            yield stem + inner, Path(path)


def _below(own: Path, given: str | os.PathLike[str]) -> Iterator[Path]:
    """A file, or the files of a folder, in the folder `own`."""
    name = PurePosixPath(os.path.normpath(given))
    if name.is_absolute() or name.parts[:1] in ((), ("..",)):
        raise UsageError(
            f"{os.fspath(given)} does not lie below the current directory",
            "run potl seal from the folder of the task, and name what it reads by relative paths",
        )
    top = own / name
    if not top.is_dir():
        yield _regular(own, top)
        return
    for folder, folders, files in os.walk(top, onerror=_refuse):
        folders[:] = [one for one in folders if one not in ACTING]
        for one in [*files, *(one for one in folders if Path(folder, one).is_symlink())]:
            yield _regular(own, Path(folder, one))


def _regular(own: Path, path: Path) -> Path:
    """A file, whose bytes lie in the folder `own` too if it is a link."""
    real = path.resolve()
    if not path.exists():
        raise UsageError(f"there is no {path.relative_to(own)}", "check the path")
    if not real.is_file() or not real.is_relative_to(own):
        raise UsageError(
            f"{path.relative_to(own)} is no file that lies below the current directory",
            "put the file itself there: no links to folders or to what lies elsewhere are packed",
        )
    return path


def _refuse(error: OSError) -> None:
    raise StorageError(f"{error.filename}: {error.strerror}", "check who may read it") from error
