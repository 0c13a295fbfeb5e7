# SPDX-License-Identifier: Apache-2.0
"""A run directory that is full of Python code: none of it runs in the verifier's processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import driver_tasks
import programs
import pytest
from places import HELPERS

import potl

TASK = HELPERS / "driver_tasks.py"
# Started afresh, because what Python imports at its start is looked for in the folder too.
POTL = str(Path(sys.executable).with_name("potl"))

# Standard library, what potl and torch import or look for, what Python imports when it starts.
TRAPS = [
    "json",
    "torch",
    "numpy",
    "jinja2",
    "rich",
    "typer",
    "matplotlib",
    "pickle",
    "multiprocessing",
    "concurrent",
    "random",
    "sitecustomize",
    "usercustomize",
    "opt_einsum",
    "triton",
    "tensorboard",
    "site",
    "driver_tasks",
    "potl",
    "evil",
]
TRAP = "import os\nopen(os.environ['MARKER'], 'a').write(__name__ + '\\n')\nos._exit(0)\n"


class Folder:
    """`mine` holds the verifier's task, `run` a recorded run with traps in it."""

    def __init__(self, path: Path) -> None:
        self.path, self.run, self.marker = path, path / "run", path / "marker"
        self.mine = path / "mine"

    def plant(self, folder: Path) -> None:
        for name in TRAPS:
            (folder / f"{name}.py").write_text(TRAP)
        (folder / "__init__.py").write_text(TRAP)
        (folder / "numpy").mkdir()
        (folder / "numpy" / "__init__.py").write_text(TRAP)
        (folder / "evil.pth").write_text("import evil\n")
        metadata = folder / "evil-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: evil\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text("[torch.backends]\nevil = evil:go\n")
        (folder / "matplotlibrc").write_text("backend: module://evil\n")

    def play(
        self, *words: str, inside: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A command line; `mine` is on the path, as what somebody installed would be."""
        known = {**os.environ, "MARKER": str(self.marker), "PYTHONPATH": str(self.mine)}
        return subprocess.run(
            words,
            cwd=inside,
            env={**known, "XDG_STATE_HOME": str(self.path / "state"), **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def verify(
        self,
        run: str,
        *more: str,
        inside: Path,
        task: str = "my_task:build",
        command: str = POTL,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        job = ("--job", str(self.path / "job.json"), "--task", task)
        note = ("--commitment", str(self.path / "note.txt"), "--no-ledger")
        return self.play(command, "verify", run, *job, *note, *more, inside=inside, **environment)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Folder(tmp_path_factory.mktemp("template"))
    folder.mine.mkdir()
    shutil.copy(TASK, folder.mine / "my_task.py")
    job = potl.Job.create(driver_tasks.build, seed=3, checkpoint_every=8)
    job.write(folder.path / "job.json")
    run = potl.record(driver_tasks.build, folder.run, job=job, key=folder.path / "key.pem")
    run.commit().write(folder.path / "note.txt")
    folder.plant(folder.run)
    return folder.path


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Folder:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Folder(tmp_path)


def test_nothing_of_the_run_directory_runs_inside_of_it(folder: Folder) -> None:
    page = folder.path / "report.html"
    done = folder.verify(".", "--html", str(page), inside=folder.run)
    assert not folder.marker.exists(), folder.marker.read_text()
    assert done.returncode == 0, done.stderr
    assert "<title>Accepted" in page.read_text()


def test_nor_deeper_in_it(folder: Folder) -> None:
    deeper = folder.run / "checkpoints"
    folder.plant(deeper)
    done = folder.verify("..", inside=deeper)
    assert not folder.marker.exists() and done.returncode == 0, done.stderr


def test_nor_by_a_link_to_it(folder: Folder) -> None:
    link = folder.path / "link"
    link.symlink_to(folder.run)
    # What a shell calls the working directory after `cd link`.
    done = folder.verify(".", inside=link, PWD=str(link))
    assert not folder.marker.exists() and done.returncode == 0, done.stderr


def test_workers_do_not_start_inside_of_it(folder: Folder) -> None:
    done = folder.verify(".", "--workers", "2", inside=folder.run, command=programs.command())
    assert not folder.marker.exists(), folder.marker.read_text()
    assert done.returncode == 2 and "run from another folder" in done.stderr


def test_a_task_that_lies_in_it_is_refused_with_the_remedy(folder: Folder) -> None:
    shutil.copy(TASK, folder.run / "trainer.py")
    done = folder.verify(".", inside=folder.run, task="trainer:build", command=programs.command())
    assert done.returncode == 2, done.stderr
    assert "whose files are the trainer's" in done.stderr and "run from the folder" in done.stderr


@pytest.mark.parametrize(("name", "workers"), [("jinja2", "0"), ("torch", "0")])
def test_its_name_makes_it_no_module(folder: Folder, name: str, workers: str) -> None:
    folder.run.rename(folder.path / name)
    done = folder.verify(name, "--html", "report.html", "--workers", workers, inside=folder.path)
    assert not folder.marker.exists(), folder.marker.read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["json", "potl", "torch"])
def test_workers_need_another_name(folder: Folder, name: str) -> None:
    folder.run.rename(folder.path / name)
    done = folder.verify(name, "--workers", "2", inside=folder.path, command=programs.command())
    assert not folder.marker.exists(), folder.marker.read_text()
    assert done.returncode == 2 and "rename it" in done.stderr


def test_a_task_of_the_working_directory_works_beside_it(folder: Folder) -> None:
    done = folder.verify(str(folder.run), inside=folder.mine, PYTHONPATH="")
    assert done.returncode == 0, done.stderr


def test_an_import_path_that_leads_there_is_harmless_from_then_on(folder: Folder) -> None:
    script = (
        "import importlib.metadata as m, importlib.util, sys, types, potl\n"
        "from potl._base import _imports\n"
        # As torch.distributed makes one of a string.
        "sys.modules['made'] = types.ModuleType('made')\n"
        "sys.modules['made'].__file__ = 'made'\n"
        "sys.path[:0] = ['', sys.argv[1]]\n"
        "_imports.close('.')\n"
        "assert importlib.util.find_spec('evil') is None\n"
        "assert all(d.metadata['Name'] != 'evil' for d in m.distributions())\n"
        "import jinja2, numpy, rich, torch\n"
        "print(numpy.__file__)\n"
    )
    program = folder.path / "program.py"
    program.write_text(script)
    done = folder.play(sys.executable, str(program), str(folder.run), inside=folder.run)
    assert done.returncode == 0 and "site-packages" in done.stdout, done.stderr
    assert not folder.marker.exists()


def test_what_came_from_there_before_is_not_overlooked(folder: Folder) -> None:
    (folder.run / "harmless.py").write_text("")
    # Loaded first, because the traps that lie there as well would end the program.
    script = "import sys, potl; v = potl.verify; sys.path.append('.'); import harmless; v('.')"
    program = folder.path / "program.py"
    program.write_text(script)
    done = folder.play(sys.executable, str(program), inside=folder.run)
    assert done.returncode == 1
    assert '"harmless" came from the run directory' in done.stderr
