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
    from . import _spot_check
    from ._arithmetic._deterministic import deterministic as deterministic
    from ._arithmetic._explain import (
        Explanation as Explanation,
        OperatorUse as OperatorUse,
        explain as explain,
    )
    from ._arithmetic._rounding import (
        RoundingAuditor as RoundingAuditor,
        RoundingLog as RoundingLog,
        RoundingTrainer as RoundingTrainer,
    )
    from ._base._errors import (
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
    from ._checks._checks import (
        PEV as PEV,
        Check as Check,
        Policy as Policy,
        Replay as Replay,
        Request as Request,
        Telemetry as Telemetry,
    )
    from ._core import (
        FreivaldsResult as FreivaldsResult,
        Replayer as Replayer,
        SegmentResult as SegmentResult,
    )
    from ._dispute._audit import Audit as Audit, AuditDifference as AuditDifference, audit as audit
    from ._dispute._away import dispute_at as dispute_at
    from ._dispute._check import check as check
    from ._dispute._diff import (
        Difference as Difference,
        OperatorDifference as OperatorDifference,
        diff as diff,
    )
    from ._dispute._dispute import dispute as dispute
    from ._dispute._evidence import (
        DisputeEvidence as DisputeEvidence,
        Verdict as Verdict,
        judge as judge,
    )
    from ._dispute._party import Party as Party
    from ._dispute._referee import Referee as Referee
    from ._dispute._work_check import AuditCheck as AuditCheck, check_audit as check_audit
    from ._extra_task._design import ExtraOptions as ExtraOptions
    from ._extra_task._extra_task import ExtraTask as ExtraTask
    from ._extra_task._key import ExtraKey as ExtraKey
    from ._extra_task._result import (
        ExtraPlan as ExtraPlan,
        ExtraProgress as ExtraProgress,
        ExtraResult as ExtraResult,
    )
    from ._job._calibrate import (
        Calibration as Calibration,
        Noise as Noise,
        Storage as Storage,
        calibrate as calibrate,
    )
    from ._job._job import Job as Job
    from ._job._session import Session as Session, StepResult as StepResult
    from ._record._prover import Prover as Prover, Step as Step
    from ._record._prune import Pruning as Pruning, prune as prune
    from ._record._record import record as record
    from ._record._run import Commitment as Commitment, Run as Run
    from ._record._trace import OperatorTrace as OperatorTrace, trace as trace
    from ._remote._remote import Remote as Remote
    from ._report._attestation import Attestation as Attestation
    from ._report._value import Finding as Finding, Report as Report
    from ._seal._contents import SealedJob as SealedJob
    from ._seal._seal import seal as seal
    from ._seal._unseal import unseal as unseal
    from ._serve._limits import ServeLimits as ServeLimits
    from ._serve._server import serve as serve
    from ._spot_check._freivalds import (
        LayerState as LayerState,
        LayerStep as LayerStep,
        freivalds as freivalds,
        freivalds_convolution as freivalds_convolution,
        freivalds_segment as freivalds_segment,
    )
    from ._spot_check._guard import SpotCheck as SpotCheck
    from ._spot_check._own_loop import SpotCheckedOptimizer as SpotCheckedOptimizer
    from ._task._task import Task as Task
    from ._verify._challenge import Challenge as Challenge, challenge as challenge
    from ._verify._monitor import Look as Look, monitor as monitor
    from ._verify._rederive import Rederivation as Rederivation, rederive as rederive
    from ._verify._verify import verify as verify

    spot_check = _spot_check

# Private module, or package that is offered as a whole -> its public names.
_MODULES = {
    "_arithmetic._deterministic": "deterministic",
    "_arithmetic._explain": "Explanation OperatorUse explain",
    "_arithmetic._rounding": "RoundingAuditor RoundingLog RoundingTrainer",
    "_base._errors": (
        "Inconclusive InternalError JobMismatch LimitError MalformedError MismatchError "
        "MissingError NotReplayable NotReproducible PotlError PredictionError Problem "
        "Rejected StorageError UnsupportedError UsageError"
    ),
    "_checks._checks": "Check PEV Policy Replay Request Telemetry",
    "_core": "FreivaldsResult Replayer SegmentResult",
    "_dispute._audit": "Audit AuditDifference audit",
    "_dispute._away": "dispute_at",
    "_dispute._check": "check",
    "_dispute._diff": "Difference OperatorDifference diff",
    "_dispute._dispute": "dispute",
    "_dispute._evidence": "DisputeEvidence Verdict judge",
    "_dispute._party": "Party",
    "_dispute._referee": "Referee",
    "_dispute._work_check": "AuditCheck check_audit",
    "_extra_task._design": "ExtraOptions",
    "_extra_task._extra_task": "ExtraTask",
    "_extra_task._key": "ExtraKey",
    "_extra_task._result": "ExtraPlan ExtraProgress ExtraResult",
    "_job._calibrate": "Calibration Noise Storage calibrate",
    "_job._job": "Job",
    "_job._session": "Session StepResult",
    "_record._prover": "Prover Step",
    "_record._prune": "Pruning prune",
    "_record._record": "record",
    "_record._run": "Commitment Run",
    "_record._trace": "OperatorTrace trace",
    "_remote._remote": "Remote",
    "_report._attestation": "Attestation",
    "_report._value": "Finding Report",
    "_seal._contents": "SealedJob",
    "_seal._seal": "seal",
    "_seal._unseal": "unseal",
    "_serve._limits": "ServeLimits",
    "_serve._server": "serve",
    "_spot_check": "spot_check",
    "_spot_check._freivalds": (
        "LayerState LayerStep freivalds freivalds_convolution freivalds_segment"
    ),
    "_spot_check._guard": "SpotCheck",
    "_spot_check._own_loop": "SpotCheckedOptimizer",
    "_task._task": "Task",
    "_verify._challenge": "Challenge challenge",
    "_verify._monitor": "Look monitor",
    "_verify._rederive": "Rederivation rederive",
    "_verify._verify": "verify",
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [*sorted(_EXPORTS), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._core import version

        value: Any = version()
    elif name in _EXPORTS:
        module = importlib.import_module("." + _EXPORTS[name], __name__)
        value = module if _EXPORTS[name] == "_" + name else getattr(module, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
