# SPDX-License-Identifier: Apache-2.0
"""The folder of a guarded training is one guard's at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from guarded import KEY, build

import potl


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
