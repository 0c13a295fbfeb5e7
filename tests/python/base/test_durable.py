# SPDX-License-Identifier: Apache-2.0
"""A new file has its name when it is whole, and not before."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from potl._base._durable import new_file, write_new

CALLS = ["write", "fsync", "link", "unlink"]


@pytest.mark.parametrize("call", CALLS)
def test_a_process_that_is_killed_leaves_the_whole_file_or_none_of_that_name(
    tmp_path: Path, call: str
) -> None:
    def killed(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    path = tmp_path / "new"
    child = os.fork()
    if not child:
        with new_file(path) as file:
            file.write(b"half of")
            file.flush()
            if call == "write":
                killed()
            setattr(os, call, killed)
            file.write(b" it")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if call == "unlink":  # it had its name already
        assert path.read_bytes() == b"half of it"
        return
    assert not path.exists()
    write_new(path, "given again")
    assert path.read_text() == "given again"


def test_what_raises_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "new") as file:
        file.write(b"half of")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_it_has_the_permissions_that_were_asked_for(tmp_path: Path) -> None:
    for mode in (0o600, 0o644):
        path = tmp_path / f"{mode:o}"
        write_new(path, "it", mode=mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert len(list(tmp_path.iterdir())) == 2


def no_links(number: int) -> Callable[..., None]:
    def link(source: Any, target: Any) -> None:
        raise OSError(number, os.strerror(number), str(source), None, str(target))

    return link


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_disk_without_hard_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", no_links(number))
    write_new(tmp_path / "new", "it")
    assert [one.name for one in tmp_path.iterdir()] == ["new"]
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "new", "another")
    assert (tmp_path / "new").read_text() == "it"


@pytest.mark.parametrize("number", [0, errno.EPERM])
def test_a_file_that_came_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    if number:
        monkeypatch.setattr(os, "link", no_links(number))
    path = tmp_path / "new"
    with pytest.raises(OSError) as caught, new_file(path) as file:
        file.write(b"mine")
        path.write_text("somebody's")
    assert caught.value.filename in (str(path), path)
    assert path.read_text() == "somebody's"
    assert len(list(tmp_path.iterdir())) == 1
