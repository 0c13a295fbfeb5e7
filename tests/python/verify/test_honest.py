# SPDX-License-Identifier: Apache-2.0
"""Many honest verifications in stock arithmetic: how often they raise an alarm, counted and printed
with an interval.

One thread against two gives other bits, so these verifications need the tolerances. With POTL_FULL
there are 3,000; a false-alarm rate of 1 in 1,000 would be seen with probability 0.95.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
from verifying import judged

import potl

FULL = bool(os.environ.get("POTL_FULL"))
RUNS, VERIFICATIONS = (100, 3000) if FULL else (4, 24)


@pytest.mark.parametrize("build", [tasks.build, tasks.build_wide, tasks.build_adam])
def test_honest_verifications_raise_no_alarm(
    tmp_path: Path,
    build: Any,
    set_threads: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = -(-RUNS // 3)
    each = -(-VERIFICATIONS // (3 * runs))
    alarms, unequal, done = [], 0, 0
    for seed in range(runs):
        set_threads(1 + seed % 2)
        job = potl.Job.create(build, seed=seed, checkpoint_every=4, arithmetic="stock")
        run = potl.record(build, tmp_path / str(seed), job=job)
        set_threads(2 - seed % 2)
        for _ in range(each):
            report = judged(run, job, build, potl.PEV(), potl.Replay(samples=4))
            done += 1
            unequal += not all(replay["equal"] for replay in report.document["replays"])
            if report.verdict != "accepted":
                alarms.append((seed, report.sentence))
    # No alarm in n verifications: with probability 0.95 the rate is below 3 / n.
    summary = (
        f"{build.__name__}: {len(alarms)} alarms in {done} verifications, {unequal} of which "
        f"were not equal bit for bit; rate below {3 / done:.2g} with probability 0.95 if none"
    )
    if FULL:
        with capsys.disabled():
            print(f"\n{summary}")
    assert alarms == [], summary
