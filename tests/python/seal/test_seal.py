# SPDX-License-Identifier: Apache-2.0
"""A job is sealed only with all that its task needs, and the trainer goes on from there."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shlex
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest

import potl
from potl import _core
from potl._base import _arguments
from potl._record._keygen import write_pair
from potl._remote._sealed import FRAME_BYTES
from potl._seal import _contents, _seal, _trial
from potl._seal._contents import Contents, described

TRAINER = """
import os
import numpy, torch, potl
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from sealed_net.model import Net
from sealed_net.settings import RATE

def build():
    data = numpy.load(os.environ.get("SEALED_DATA", "data/train.npz"))
    model = Net()
    return potl.Task(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        dataset=TensorDataset(torch.from_numpy(data["x"]), torch.from_numpy(data["y"])),
        loss=cross_entropy, batch_size=16, epochs=2,
    )
"""
MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        self[0].bias.data.exp_()  # of which not every machine makes the same bits
"""
FILES = ["data", "sealed_net/settings.py"]
TASK = "sealed_net.trainer:build"
WITH = (
    "seal " + TASK + " job.json job.sealed --for box.pub --with data --with sealed_net/settings.py"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The client's folder, from which the task is imported."""
    folder = tmp_path_factory.mktemp("client").resolve()
    (folder / "sealed_net").mkdir()
    (folder / "sealed_net/__init__.py").touch()
    (folder / "sealed_top.py").touch()
    (folder / "sealed_net/settings.py").write_text("RATE = 0.1\n")
    (folder / "sealed_net/model.py").write_text(MODEL)
    (folder / "sealed_net/trainer.py").write_text(TRAINER)
    (folder / "data").mkdir()
    draw = np.random.default_rng(1)
    x, y = draw.random((96, 8), dtype=np.float32), np.arange(96) % 4
    np.savez(folder / "data/train.npz", x=x, y=y)
    write_pair(folder / "box", encryption=True)
    write_pair(folder / "trainer")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        from sealed_net.trainer import build  # type: ignore[import-not-found]

        potl.Job.create(build, seed=7, checkpoint_every=4, trainer="trainer.pub").write("job.json")
        yield folder
        for name in [one for one in sys.modules if one.partition(".")[0] == "sealed_net"]:
            del sys.modules[name]


class Forked:
    """In the place of the pool: runs the trial in a process that has imported torch already."""

    def __init__(self, workers: int) -> None:
        assert workers == 1

    def submit(self, function: Any, *given: Any) -> Future[Any]:
        script = (
            "import pickle, sys; from pathlib import Path; from potl._seal._trial import _tried; "
            "given = pickle.loads(bytes.fromhex(sys.argv[1])); "
            "sys.path.append(given[1]); "  # as a process of the pool has it
            "Path(sys.argv[2]).write_bytes(pickle.dumps(_tried(*given)))"
        )
        out = Path(given[0]).with_name("tried")
        words = [programs.python(), "-c", script, pickle.dumps(given).hex(), str(out)]
        done = subprocess.run(words, capture_output=True, check=False)
        future: Future[Any] = Future()
        found = out.read_bytes() if out.exists() else b""
        if found:
            future.set_result(pickle.loads(found))
        else:
            future.set_exception(BrokenExecutor(done.stderr.decode()))
        return future

    def kill(self) -> None:
        """It has ended."""


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trial, "Pool", Forked)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried."""
    monkeypatch.setattr(_seal, "require_enough", lambda *_: None)


def seal(path: Path, files: Any = FILES, **options: Any) -> potl.SealedJob:
    return potl.seal(TASK, "job.json", path, reader="box.pub", files=files, **options)


def refused(
    path: Path, match: str | None, *, files: Any = FILES, error: Any = potl.UsageError
) -> None:
    before = sorted(path.parent.iterdir())
    with pytest.raises(error, match=match):
        seal(path, files)
    assert sorted(path.parent.iterdir()) == before


def test_from_the_client_to_the_trainer_and_back(client: Path, tmp_path: Path) -> None:
    """Each side has its own folder, and the trial its own process."""
    order, sealed = tmp_path / "order", str(tmp_path / "job.sealed")
    words = shlex.split(WITH.replace("job.sealed", sealed))

    def run(*words: str, cwd: Path) -> str:
        done = subprocess.run(
            [programs.command(), *words], cwd=cwd, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = json.loads(run(*words, "--json", cwd=client))
    opened = run("unseal", sealed, str(order), "--open-with", str(client / "box.pem"), cwd=tmp_path)
    assert said["contents"] in opened and said["job"] in opened
    assert {p.relative_to(order).as_posix() for p in order.rglob("*") if p.is_file()} == {
        "job.json",
        "job.initial.safetensors",
        "data/train.npz",
        "sealed_net/__init__.py",
        "sealed_net/settings.py",
        "sealed_net/model.py",
        "sealed_net/trainer.py",
    }
    key = str(client / "trainer.pem")
    run("record", TASK, "runs/1", "--job", "job.json", "--key", key, cwd=order)
    note = tmp_path / "note.txt"
    note.write_text(run("commit", "runs/1", "--key", key, cwd=order))
    report = potl.verify(
        order / "runs/1",
        job="job.json",
        commitment=note,
        task=sys.modules["sealed_net.trainer"].build,
    )
    assert report.verdict == "accepted", report.sentence


# ------------------------------------------------------------------ the trial


def packed(folder: Path, client: Path, *, without: str = "", **modules: str) -> Path:
    """A folder as the trial gets it, with files left out and modules of another text."""
    tree = folder.resolve() / "tree"
    for name in ("sealed_net", "data"):
        shutil.copytree(client / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in modules.items():
        (tree / "sealed_net" / f"{name}.py").write_text(text)
    if without:
        (tree / without).unlink()
    potl.Job.read("job.json").write(tree / "job.json")
    return tree


def tried(tree: Path, client: Path, job: potl.Job | None = None) -> None:
    build = sys.modules["sealed_net.trainer"].build
    agreed = job or potl.Job.read("job.json")
    _trial.require_enough(tree, client, build, TASK, agreed)


def test_what_is_enough_passes(client: Path, tmp_path: Path, forked: None) -> None:
    tried(packed(tmp_path, client), client)


def test_an_installed_package_may_consist_of_links(
    client: Path, tmp_path: Path, forked: None
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (tmp_path / "stored.py").touch()
    (packages / "sealed_linked.py").symlink_to(tmp_path / "stored.py")
    text = f"import sys; sys.path.append({str(packages)!r}); import sealed_linked\n" + MODEL
    tried(packed(tmp_path, client, model=text), client)


IN_PACKAGE = TRAINER.replace("sealed_net.settings import RATE", "sealed_net import settings")
LACKS = {
    "a module": (
        {"without": "sealed_net/settings.py"},
        r"No module named 'sealed_net.settings' \(add --with sealed_net/settings.py\)",
    ),
    "a module that the client can import": (
        {"model": "import sealed_top\n" + MODEL},
        r"No module named 'sealed_top' \(add --with sealed_top.py\)",
    ),
    "a module of a package": (
        {"without": "sealed_net/settings.py", "trainer": IN_PACKAGE},
        r"cannot import name 'settings' .* \(add --with sealed_net/settings.py\)",
    ),
    "a file": (
        {"without": "data/train.npz"},
        r"there is no file data/train.npz \(add --with data/train.npz\)",
    ),
    "a file that is nowhere": (
        {"trainer": TRAINER.replace("data/train.npz", "data/none")},
        r"there is no file data/none \(name what the task needs .* with --with\)",
    ),
    "a file that a message names": (
        {
            "without": "data/train.npz",
            "trainer": "import numpy\nnumpy.loadtxt('data/train.npz')\n" + TRAINER,
        },
        r"FileNotFoundError: data/train.npz not found. \(add --with data/train.npz\)",
    ),
    "its code": ({"model": MODEL + "    x = 1\n"}, "the source code of Net is not the agreed one"),
    "an error": ({"model": "1 / 0"}, "ZeroDivisionError: division by zero"),
    "an exit": ({"model": "import sys; sys.exit(0)"}, "SystemExit: 0"),
    "a process": ({"model": "import os; os._exit(0)"}, "the task ended the process"),
    "a module from elsewhere": (
        {"model": "import sys; sys.path.append('ELSEWHERE'); import sealed_extra\n" + MODEL},
        "the task uses ELSEWHERE/sealed_extra.py, which is not packed",
    ),
}


@pytest.mark.parametrize("what", LACKS)
def test_what_is_missing_is_named(client: Path, tmp_path: Path, forked: None, what: str) -> None:
    elsewhere = str(tmp_path.resolve())
    (tmp_path / "sealed_extra.py").touch()
    changes, match = LACKS[what]
    changes = {name: text.replace("ELSEWHERE", elsewhere) for name, text in changes.items()}
    with pytest.raises(potl.UsageError, match=match.replace("ELSEWHERE", elsewhere)) as caught:
        tried(packed(tmp_path, client, **changes), client)
    assert caught.value.message.startswith("what is packed is not enough: ")
    assert str(tmp_path / "tree") not in str(caught.value)


def test_what_lies_in_the_clients_folder_is_not_taken_from_there(
    client: Path, tmp_path: Path, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALED_DATA", str(client / "data/train.npz"))
    match = f"the task uses {client}/data/train.npz, .*add --with data/train.npz"
    with pytest.raises(potl.UsageError, match=match):
        tried(packed(tmp_path, client, without="data/train.npz"), client)


def test_a_task_that_is_not_the_jobs_lacks_no_file(
    client: Path, tmp_path: Path, forked: None
) -> None:
    job = potl.Job.read("job.json").replace(data={"count": 96, "root": "00" * 32})
    tree = packed(tmp_path, client)
    job.write(tree / "job.json")
    with pytest.raises(potl.JobMismatch, match="other samples or labels"):
        tried(tree, client, job)


# ------------------------------------------------------------------ what is written


@pytest.mark.parametrize("error", [potl.UsageError("no", ""), KeyboardInterrupt()], ids=repr)
def test_nothing_is_written_of_what_is_not_enough(
    client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(_seal, "require_enough", fail)
    refused(tmp_path / "job.sealed", None, error=type(error))


def test_what_was_tried_is_sealed_or_nothing(
    client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(tree: Path, *_: object) -> None:
        with (tree / "data/train.npz").open("ab") as file:
            file.write(b"x")

    monkeypatch.setattr(_seal, "require_enough", change)
    refused(tmp_path / "job.sealed", "the task changed data/train.npz while it was built")


def test_a_full_disk_is_named_and_nothing_is_left(
    client: Path, tmp_path: Path, untried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    refused(tmp_path / "job.sealed", "job.sealed: No space left", error=potl.StorageError)


def test_mistakes_have_a_remedy(client: Path, tmp_path: Path, untried: None) -> None:
    path = tmp_path / "job.sealed"
    path.touch()
    refused(path, "exists and is not replaced")
    with pytest.raises(potl.UsageError, match="there is no folder"):
        potl.seal(TASK, "job.json", tmp_path / "no/job.sealed", reader="box.pub")
    other = tmp_path / "other.sealed"
    with pytest.raises(potl.MalformedError, match="a key for encryption"):
        potl.seal(TASK, "job.json", other, reader="trainer.pub")
    with pytest.raises(potl.UsageError, match=r"there is no key none.pub"):
        potl.seal(TASK, "job.json", other, reader="none.pub")
    with pytest.raises(potl.UsageError, match="there is no job file"):
        potl.seal(TASK, "none.json", other, reader="box.pub")


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(32 * FRAME_BYTES))
    contents = Contents(task="a:b", arguments=(), files={"a": described(tmp_path / "a")})
    key = _core.OpeningKey.generate().public_key
    with (tmp_path / "out").open("wb") as file:
        tracemalloc.start()
        try:
            _seal._write(file, key, contents.text(), tmp_path, contents)
            assert tracemalloc.get_traced_memory()[1] < 8 * FRAME_BYTES
        finally:
            tracemalloc.stop()


def test_a_list_that_nobody_would_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contents, "MAX_LIST", 1000)
    one: Any = {"size": 0, "sha256": "0" * 64}
    few, many = ({f"a/{n}": one for n in range(count)} for count in (8, 12))
    assert len(Contents(task="a:b", arguments=(), files=few).text()) <= 1000
    with pytest.raises(potl.LimitError, match="12 files are more"):
        Contents(task="a:b", arguments=(), files=many).text()


def test_a_script_names_itself(client: Path, tmp_path: Path) -> None:
    """Its functions are those of __main__, and its file has another name."""
    script = (
        TRAINER
        + """
if __name__ == "__main__":
    from potl._seal import _seal
    _seal.require_enough = lambda *_: None
    potl.Job.create(build, seed=7, checkpoint_every=4).write("job.json")
    done = potl.seal("script:build", "job.json", "job.sealed", reader="box.pub")
    assert set(done.files) == {
        "script.py", "sealed_net/__init__.py", "sealed_net/model.py", "job.json",
        "job.initial.safetensors",
    }, done.files
"""
    )
    for name in ("sealed_net", "data"):
        shutil.copytree(client / name, tmp_path / name)
    shutil.copy(client / "box.pub", tmp_path)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [programs.python(), "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_command_line_of_the_module_is_sealed(
    client: Path, tmp_path: Path, untried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_arguments, "module_arguments", ("--lr", "0.1"))
    seal(tmp_path / "job.sealed")
    order = potl.unseal(tmp_path / "job.sealed", tmp_path / "order", key="box.pem")
    assert order.arguments == ("--lr", "0.1")
    assert order.job == potl.Job.read("job.json")


@pytest.mark.parametrize("name", ["job.json", "job.initial.safetensors"])
def test_the_job_is_packed_once(client: Path, tmp_path: Path, untried: None, name: str) -> None:
    refused(tmp_path / "job.sealed", f"{name} is the name of the packed job", files=[name])


def test_a_name_that_no_trainer_could_unseal_is_refused(
    client: Path, tmp_path: Path, untried: None
) -> None:
    folder = client / "odd"
    folder.mkdir()
    for name in ("a", "A"):
        (folder / name).touch()
    refused(tmp_path / "job.sealed", "one name on some disks", files=["odd"])
