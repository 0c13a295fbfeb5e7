# SPDX-License-Identifier: Apache-2.0
"""Which executors replay, and how a task reaches them."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import driver_tasks
import pytest

from potl import UsageError
from potl._base import _executors


def test_thread_pools_are_refused_with_the_remedy() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="workers=n"):
        _executors.check_executor(pool)


def test_forking_pools_are_refused_with_the_remedy() -> None:
    forking = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=forking) as pool,
        pytest.raises(UsageError, match="spawn"),
    ):
        _executors.check_executor(pool)


def test_spawning_pools_are_taken() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        _executors.check_executor(pool)


def test_a_function_of_a_module_has_a_name_for_workers() -> None:
    assert _executors.task_name(driver_tasks.build) == "driver_tasks:build"
    assert _executors.load_task("driver_tasks:build") is driver_tasks.build


def test_a_lambda_is_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError, match="module:build"):
        _executors.task_name(lambda: None)


def test_a_function_of_the_running_script_is_refused_with_the_remedy() -> None:
    def build() -> None: ...

    build.__module__, build.__qualname__ = "__main__", "build"
    with pytest.raises(UsageError, match="into a module"):
        _executors.task_name(build)


@pytest.mark.parametrize(
    "name", ["", "build", ":build", "driver_tasks:", "no_such_module:build", "driver_tasks:nothing"]
)
def test_a_name_without_a_function_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError):
        _executors.load_task(name)


def test_a_module_that_misses_a_dependency_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "needs_more.py").write_text("import no_such_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        _executors.load_task("needs_more:build")
    (tmp_path / "a_part").mkdir()
    (tmp_path / "needs_part.py").write_text("import a_part.missing\n")
    with pytest.raises(ModuleNotFoundError, match=r"a_part\.missing"):
        _executors.load_task("needs_part:build")


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("a_package/flat.py:build", "there is no module", "write a_package.flat:build"),
        ("./a_package/flat:build", "there is no module", "write a_package.flat:build"),
        ("a_package.flat:build", 'imports "a_neighbour"', "run from that folder"),
        ("within:build", "imports from its package", "write package.within:build"),
    ],
)
def test_a_module_of_a_package_is_named_as_python_finds_it(
    name: str, what: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "flat.py").write_text("import a_neighbour\n")
    (tmp_path / "a_package" / "a_neighbour.py").touch()
    (tmp_path / "within.py").write_text("from .models import Net\n")
    with pytest.raises(UsageError, match=what) as refused:
        _executors.load_task(name)
    assert remedy in refused.value.remedy


def test_workers_do_not_run_the_parents_script() -> None:
    with _executors.Pool(1) as pool:
        loaded = pool.submit(driver_tasks.main_file).result(timeout=600)
    assert loaded is None
    assert "__main__" in sys.modules
