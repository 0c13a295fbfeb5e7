# SPDX-License-Identifier: Apache-2.0
"""What a client finds who verifies a run by its own job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import potl


def judged(
    run: potl.Run, job: Any, build: Callable[[], potl.Task], *checks: Any, **options: Any
) -> potl.Report:
    """With these checks, or the defaults, and without a ledger; by the commitment that the run
    makes now, unless another is given.
    """
    if "commitment" not in options:
        options["commitment"] = run.commit()
    return potl.verify(run, job=job, task=build, checks=checks or None, ledger=None, **options)
