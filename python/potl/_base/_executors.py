# SPDX-License-Identifier: Apache-2.0
"""Worker processes for replays: which executors are fit for it, and potl's own pool.

Workers are spawned, never forked: a process that has run torch owns threads that a fork does not
copy, and the child waits for them for ever. Threads are refused because they share torch's random
number generators.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import _imports
from ._errors import UsageError


def check_executor(executor: Executor) -> None:
    """Raises UsageError for an executor whose workers would give wrong answers or hang."""
    if isinstance(executor, ThreadPoolExecutor):
        raise UsageError(
            "a thread pool cannot replay: its threads share torch's random number generators",
            "pass workers=n, or a ProcessPoolExecutor whose mp_context is "
            'multiprocessing.get_context("spawn")',
        )
    if isinstance(executor, ProcessPoolExecutor):
        context: Any = getattr(executor, "_mp_context", None) or multiprocessing.get_context()
        if context.get_start_method() == "fork":
            raise UsageError(
                "a process pool that forks cannot replay: forking after torch has started threads "
                "hangs",
                'pass workers=n, or mp_context=multiprocessing.get_context("spawn")',
            )


def task_name(task: object) -> str:
    """The "module:function" of a task for workers; UsageError says why something cannot have
    one.
    """
    if isinstance(task, str):
        return task
    module = getattr(task, "__module__", None)
    name = getattr(task, "__qualname__", "")
    if module in (None, "__main__", "__mp_main__") or "<" in name or not name:
        shown = name or repr(task)
        raise UsageError(
            f"worker processes cannot import the task {shown} of {module or 'no module'}",
            'put build() into a module and pass task="module:build", or leave workers=0',
        )
    return f"{module}:{name}"


def load_task(name: str) -> Callable[[], Any]:
    """Imports "module:function". A script that names itself is not executed a second time.

    Raises:
        UsageError: There is no such module or function.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise UsageError(
            f'a task is named "module:function", not "{name}"', "write for example trainer:build"
        )
    try:
        if module_name.startswith("."):  # a path: importlib takes it for a relative name
            raise ModuleNotFoundError(name=module_name)
        found: Any = _running_script(module_name) or _imported(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not module_name.startswith(error.name):
            raise _lacking(module_name, error) or error from None
        inside = _imports.is_closed("")
        raise UsageError(
            f'there is no module "{module_name}" for the task "{name}"'
            + (" outside the run directory, whose files are the trainer's" if inside else ""),
            f"write {dotted}:{path}, without .py"
            if (dotted := _dotted(module_name)) != module_name
            else "run from the folder that holds it, or set PYTHONPATH",
        ) from error
    except ImportError as error:
        if "no known parent package" not in str(error):
            raise
        raise UsageError(
            f'module "{module_name}" imports from its package: {error}',
            f"run from the folder that holds the package, and write package.{module_name}:{path}",
        ) from error
    where = getattr(found, "__file__", None) or module_name
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UsageError(
                f'module "{module_name}" has no "{path}"',
                f"name a function of {where}",
            )
    if not callable(found):
        raise UsageError(f'"{name}" is not a function', "name the one that builds the task")
    function: Callable[[], Any] = found
    return function


def _dotted(path: str) -> str:
    """The name of the module in a file."""
    parts = (path[:-3] if path.endswith(".py") else path).split("/")
    return ".".join(part for part in parts if part not in ("", "."))


def _lacking(module_name: str, error: ModuleNotFoundError) -> UsageError | None:
    """What to do if a script imports what lies beside it, as Python finds that only from there."""
    name = str(error.name)  # with a dot it lacks a part, and its first was found
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        folder = Path(frame.filename).parent
        if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
            return UsageError(
                f'module "{module_name}" imports "{error.name}", which lies in {folder}',
                "run from that folder, or set PYTHONPATH to it",
            )
    return None


# The module that is being imported for its task.
_importing: str | None = None


def require_own_call(what: str) -> None:
    """Refuses to record or verify while a module is imported for its task.

    An unguarded script would do all of its work again in each worker, whose workers would do the
    same without end.
    """
    if _importing is not None:
        raise UsageError(
            f'importing the module "{_importing}" for its task would {what}',
            'put what the script does under if __name__ == "__main__":',
        )


def _imported(module_name: str) -> Any:
    global _importing
    before, _importing = _importing, module_name
    try:
        return importlib.import_module(module_name)
    finally:
        _importing = before


def _running_script(module_name: str) -> Any:
    """The script that is being executed, if it is what the name would import; else None."""
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    if script is None or module_name in sys.modules:
        return None
    spec = importlib.util.find_spec(module_name)
    origin = None if spec is None else spec.origin
    same = origin is not None and os.path.realpath(origin) == os.path.realpath(script)
    return main if same else None


class Pool(ProcessPoolExecutor):
    """Spawned processes that do not run the parent's script again, and do not outlive it."""

    def __init__(self, workers: int) -> None:
        self._started = _SpawnContext()
        super().__init__(workers, mp_context=self._started, initializer=_begin_worker)

    def kill(self) -> None:
        """Ends the workers in the middle of what they do."""
        for process in self._started.processes:
            if process.pid is not None:
                process.kill()
        self.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    # An interrupt of the terminal reaches everybody; what follows from it is the parent's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """However the parent ends: a signal gives it no time to say goodbye."""
    multiprocessing.connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    # A spawned child normally imports the parent's script, which an unguarded script does not
    # survive. Workers need no more than the module of the task.
    real = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real


class _SpawnProcess(multiprocessing.context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing calls it so
        with _without_main():
            return multiprocessing.context.SpawnProcess._Popen(process_obj)


class _SpawnContext(multiprocessing.context.SpawnContext):
    def __init__(self) -> None:
        self.processes: list[_SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> _SpawnProcess:  # type: ignore[override] # noqa: N802
        self.processes.append(_SpawnProcess(*args, **kwargs))
        return self.processes[-1]
