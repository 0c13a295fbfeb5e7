# SPDX-License-Identifier: Apache-2.0
"""Proof of training: record a run, commit to it, and let somebody else check it.

>>> import potl
>>> job = potl.Job.create(build, seed=7, checkpoint_every=20)  # what is agreed # doctest: +SKIP
>>> run = potl.record(build, "runs/1", job=job)  # the prover trains # doctest: +SKIP
>>> commitment = run.commit()  # from here its story is fixed # doctest: +SKIP
>>> report = potl.verify("runs/1", job=job, commitment=commitment, task=build)  # doctest: +SKIP

`build` is a function without arguments that returns a `Task`. Importing this package does not
import torch: names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._calibrate import (
        Calibration as Calibration,
        Noise as Noise,
        Storage as Storage,
        calibrate as calibrate,
    )
    from ._challenge import Challenge as Challenge, challenge as challenge
    from ._check import check as check
    from ._checks import PEV as PEV, Policy as Policy, Replay as Replay, Telemetry as Telemetry
    from ._deterministic import deterministic as deterministic
    from ._errors import (
        Inconclusive as Inconclusive,
        InternalError as InternalError,
        JobMismatch as JobMismatch,
        LimitError as LimitError,
        MalformedError as MalformedError,
        MismatchError as MismatchError,
        MissingError as MissingError,
        NotReplayable as NotReplayable,
        NotReproducible as NotReproducible,
        PotlError as PotlError,
        PredictionError as PredictionError,
        Problem as Problem,
        Rejected as Rejected,
        StorageError as StorageError,
        UnsupportedError as UnsupportedError,
        UsageError as UsageError,
    )
    from ._explain import (
        Explanation as Explanation,
        OperatorUse as OperatorUse,
        explain as explain,
    )
    from ._extra_key import ExtraKey as ExtraKey
    from ._extra_result import (
        ExtraPlan as ExtraPlan,
        ExtraProgress as ExtraProgress,
        ExtraResult as ExtraResult,
    )
    from ._extra_task import ExtraTask as ExtraTask
    from ._job import Job as Job
    from ._prover import Prover as Prover, Step as Step
    from ._prune import Pruning as Pruning, prune as prune
    from ._record import record as record
    from ._rederive import Rederivation as Rederivation, rederive as rederive
    from ._report_value import Finding as Finding, Report as Report
    from ._rounding import (
        RoundingAuditor as RoundingAuditor,
        RoundingLog as RoundingLog,
        RoundingTrainer as RoundingTrainer,
    )
    from ._run import Commitment as Commitment, Run as Run
    from ._session import Session as Session, StepResult as StepResult
    from ._task import Task as Task
    from ._trace import OperatorTrace as OperatorTrace, trace as trace
    from ._verify import verify as verify

# Public name -> private module that defines it.
_EXPORTS = {
    "Calibration": "_calibrate",
    "Challenge": "_challenge",
    "Commitment": "_run",
    "Explanation": "_explain",
    "ExtraKey": "_extra_key",
    "ExtraPlan": "_extra_result",
    "ExtraProgress": "_extra_result",
    "ExtraResult": "_extra_result",
    "ExtraTask": "_extra_task",
    "Finding": "_report_value",
    "Inconclusive": "_errors",
    "InternalError": "_errors",
    "Job": "_job",
    "JobMismatch": "_errors",
    "LimitError": "_errors",
    "MalformedError": "_errors",
    "MismatchError": "_errors",
    "MissingError": "_errors",
    "Noise": "_calibrate",
    "NotReplayable": "_errors",
    "NotReproducible": "_errors",
    "OperatorTrace": "_trace",
    "OperatorUse": "_explain",
    "PEV": "_checks",
    "Policy": "_checks",
    "PotlError": "_errors",
    "PredictionError": "_errors",
    "Problem": "_errors",
    "Prover": "_prover",
    "Pruning": "_prune",
    "Rederivation": "_rederive",
    "Rejected": "_errors",
    "Replay": "_checks",
    "Report": "_report_value",
    "RoundingAuditor": "_rounding",
    "RoundingLog": "_rounding",
    "RoundingTrainer": "_rounding",
    "Run": "_run",
    "Session": "_session",
    "Step": "_prover",
    "StepResult": "_session",
    "Storage": "_calibrate",
    "StorageError": "_errors",
    "Task": "_task",
    "Telemetry": "_checks",
    "UnsupportedError": "_errors",
    "UsageError": "_errors",
    "calibrate": "_calibrate",
    "challenge": "_challenge",
    "check": "_check",
    "deterministic": "_deterministic",
    "explain": "_explain",
    "prune": "_prune",
    "record": "_record",
    "rederive": "_rederive",
    "trace": "_trace",
    "verify": "_verify",
}

__all__ = [*sorted(_EXPORTS), "__version__"]


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
