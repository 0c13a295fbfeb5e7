# SPDX-License-Identifier: Apache-2.0
"""The folder of a guarded training is one guard's at a time."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from guarded import KEY, build

import potl
from potl import _core
from potl._spot_check import _guard


def test_two_guards_do_not_train_in_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "guard"
    exact = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="ord32")

    def other(done: int, total: int) -> None:
        with (
            potl.SpotCheck(build, job=exact, key=KEY, path=folder) as second,
            pytest.raises(potl.UsageError, match="another guard trains in"),
        ):
            second.train(potl.spot_check.Worker(build))

    with potl.SpotCheck(build, job=exact, key=KEY, path=folder) as stale:
        with potl.SpotCheck(build, job=exact, key=KEY, path=folder) as guard:
            told: list[int] = []

            def once(done: int, total: int) -> None:
                if done == 15:
                    told.append(done)
                    other(done, total)

            guard.train(potl.spot_check.Worker(build), until=20, progress=once)
            assert told == [15]
        with pytest.raises(potl.UsageError, match="another guard has trained"):
            stale.train(potl.spot_check.Worker(build))


def test_a_guard_that_could_not_write_a_final_state_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="ord32")
    with potl.SpotCheck(build, job=exact, key=KEY, path=tmp_path) as guard:
        guard.train(potl.spot_check.Worker(build), until=10)

        def full(*arguments: Any) -> None:
            raise potl.StorageError("the disk is full", "")

        with monkeypatch.context() as patch, pytest.raises(potl.StorageError):
            patch.setattr(_core, "write_file", full)
            guard.train(potl.spot_check.Worker(build), until=20)
        assert guard.train(potl.spot_check.Worker(build)).verdict == "accepted"


def test_a_process_that_the_training_forked_does_not_hold_its_folder(tmp_path: Path) -> None:
    exact = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="ord32")
    forked: list[int] = []

    def fork(done: int, total: int) -> None:
        if not forked:
            forked.append(os.fork())
            if forked == [0]:
                signal.pause()

    with potl.SpotCheck(build, job=exact, key=KEY, path=tmp_path) as guard:
        try:
            guard.train(potl.spot_check.Worker(build), until=10, progress=fork)
            assert guard.train(potl.spot_check.Worker(build)).verdict == "accepted"
        finally:
            os.kill(forked[0], signal.SIGKILL)
            os.waitpid(forked[0], 0)


def test_who_opens_a_finished_training_writes_nothing_while_another_guard_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="ord32")
    settle = _guard.settle_statistics

    def other(*arguments: Any) -> None:
        monkeypatch.setattr(_guard, "settle_statistics", settle)
        with pytest.raises(potl.UsageError, match="another guard trains in"):
            potl.SpotCheck(build, job=exact, key=KEY, path=tmp_path)
        settle(*arguments)

    monkeypatch.setattr(_guard, "settle_statistics", other)
    with potl.SpotCheck(build, job=exact, key=KEY, path=tmp_path) as guard:
        assert guard.train(potl.spot_check.Worker(build)).verdict == "accepted"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_does_not_end_its_parents_lock(tmp_path: Path) -> None:
    words = {"elsewhere": "it is held", "remedy": ""}
    held = _core.DirectoryLock(str(tmp_path), **words)
    forked = os.fork()
    if forked == 0:
        held.release()
        os._exit(0)
    assert os.waitpid(forked, 0)[1] == 0
    with pytest.raises(potl.UsageError, match="it is held"):
        _core.DirectoryLock(str(tmp_path), **words)
    held.release()
    _core.DirectoryLock(str(tmp_path), **words).release()
