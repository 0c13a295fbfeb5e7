# SPDX-License-Identifier: Apache-2.0
"""Whether what is packed is enough: the task is opened under its job where nothing else is.

Claims: in a new process, with the packed files alone in the working directory and before anything
else on the import path, the task was built and was the job's. Cannot see: what else the task reads
outside of the client's folder, such as a download or a file of the system.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .._base._errors import JobMismatch, UsageError
from .._base._executors import Pool, load_task
from .._job._agreement import open_checked
from .._job._job import Job
from .._task._code import is_installed
from ._contents import JOB

if TYPE_CHECKING:
    from .._task._task import Task


class _Lack(NamedTuple):
    what: str
    file: str = ""
    """What is missing: the name of a file, or a module's path."""
    mismatch: bool = False


def require_enough(tree: Path, own: Path, build: Callable[[], Task], task: str, job: Job) -> None:
    """That a task can be opened under its job from the packed files.

    Args:
        tree: The folder that holds them.
        own: The client's own.
        build: The client's own.
        task: Names it.
        job: What was agreed.

    Raises:
        JobMismatch: The client's own task is not the job's.
        UsageError: Something is missing; the message names it.
    """
    pool = Pool(1)
    try:
        lack = pool.submit(_tried, str(tree), str(own), task).result()
    except BrokenExecutor:
        lack = _Lack("the task ended the process")
    finally:
        pool.kill()
    if lack is None:
        return
    if lack.mismatch:
        open_checked(build, job).close()
    names = (lack.file + ".py", lack.file) if lack.file else ()
    files = [one for one in names if (own / one).exists()]
    remedy = "name what the task needs beside its own modules with --with"
    raise UsageError(
        f"what is packed is not enough: {lack.what}", f"add --with {files[0]}" if files else remedy
    )


def _tried(tree: str, own: str, task: str) -> _Lack | None:
    os.chdir(tree)
    sys.path[:] = [tree, *(one for one in sys.path if os.path.realpath(one) not in (own, tree))]
    before = set(sys.modules)
    used: set[str] = set()

    def look(event: str, given: tuple[object, ...]) -> None:
        path = given[0] if event == "open" else None
        if isinstance(path, str) and _inside(own, os.path.realpath(path)):
            used.add(str(Path.cwd() / path))

    sys.addaudithook(look)
    try:
        open_checked(load_task(task), Job.read(JOB)).close()
    except JobMismatch as error:
        return _Lack("; ".join(error.differences), mismatch=True)
    except ImportError as error:
        inner = re.match(r"cannot import name '(\w+)'", str(error))
        name = ".".join(filter(None, (error.name, inner and inner[1])))
        return _Lack(_shown(error, tree), name.replace(".", "/"))
    except FileNotFoundError as error:
        if error.filename is None:  # numpy.loadtxt looks before it opens, and says it in words
            what = _shown(error, tree)
            words = (word.strip("'\":,;.") for word in what.split())
            return _Lack(what, next((one for one in words if _lies(own, one)), ""))
        path = os.path.realpath(os.fsdecode(error.filename))
        return _Lack(f"there is no file {path.removeprefix(tree + os.sep)}", _inside(tree, path))
    except (Exception, SystemExit) as error:
        return _Lack(_shown(error, tree))
    modules = [sys.modules[name] for name in set(sys.modules) - before]
    places = [getattr(one, "__dict__", {}).get("__file__") for one in modules]
    used |= {str(Path(tree, one)) for one in places if isinstance(one, str)}
    # What is installed may be a link to a store of packages: its own name says what it is.
    missing = sorted(
        one
        for one in map(os.path.normpath, used)
        if not any(_inside(folder, os.path.realpath(one)) for folder in (tree, sys.prefix))
        and not is_installed(one)
    )
    if missing:
        what = f"the task uses {missing[0]}, which is not packed"
        return _Lack(what, _inside(own, missing[0]))
    return None


def _shown(error: BaseException, tree: str) -> str:
    return f"{type(error).__name__}: {error}".replace(tree + os.sep, "")


def _lies(own: str, name: str) -> bool:
    """Whether a name is that of a file in the client's folder."""
    path = os.path.realpath(own + os.sep + name)
    return _inside(own, path) == name and os.access(path, os.F_OK)


def _inside(folder: str, path: str) -> str:
    """The path from a folder to what lies in it; else nothing."""
    return path[len(folder) + 1 :] if path.startswith(folder + os.sep) else ""
