# SPDX-License-Identifier: Apache-2.0
"""Proof of training: record a run, commit to it, and let somebody else check it.

>>> import potl
>>> job = potl.Job.create(build, seed=7, checkpoint_every=20)    # what is agreed  # doctest: +SKIP
>>> run = potl.record(build, "runs/1", job=job)                  # the prover trains  # doctest: +SKIP
>>> report = potl.verify("runs/1", job=job, commitment=run.commit(), task=build)  # doctest: +SKIP

`build` is a function without arguments that returns a `Task`. Importing this package does not import torch: names are
loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._check import check as check
    from ._errors import (
        InternalError as InternalError,
    )
    from ._errors import (
        JobMismatch as JobMismatch,
    )
    from ._errors import (
        LimitError as LimitError,
    )
    from ._errors import (
        MalformedError as MalformedError,
    )
    from ._errors import (
        MismatchError as MismatchError,
    )
    from ._errors import (
        MissingError as MissingError,
    )
    from ._errors import (
        NotReplayable as NotReplayable,
    )
    from ._errors import (
        PotlError as PotlError,
    )
    from ._errors import (
        Problem as Problem,
    )
    from ._errors import (
        StorageError as StorageError,
    )
    from ._errors import (
        UnsupportedError as UnsupportedError,
    )
    from ._errors import (
        UsageError as UsageError,
    )
    from ._job import Job as Job
    from ._session import Session as Session
    from ._session import StepResult as StepResult
    from ._task import Task as Task

# Public name -> private module that defines it.
_EXPORTS = {
    "Commitment": "_record",
    "InternalError": "_errors",
    "Job": "_job",
    "JobMismatch": "_errors",
    "LimitError": "_errors",
    "MalformedError": "_errors",
    "MismatchError": "_errors",
    "MissingError": "_errors",
    "NotReplayable": "_errors",
    "PEV": "_checks",
    "Policy": "_checks",
    "PotlError": "_errors",
    "Problem": "_errors",
    "Prover": "_prover",
    "Replay": "_checks",
    "Report": "_report_value",
    "Run": "_record",
    "Session": "_session",
    "StepResult": "_session",
    "StorageError": "_errors",
    "Task": "_task",
    "Telemetry": "_checks",
    "UnsupportedError": "_errors",
    "UsageError": "_errors",
    "calibrate": "_calibrate",
    "check": "_check",
    "record": "_record",
    "verify": "_verify",
}

__all__ = [*sorted(_EXPORTS), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._core import version

        value: Any = version()
    elif name in _EXPORTS:
        value = getattr(importlib.import_module("." + _EXPORTS[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
