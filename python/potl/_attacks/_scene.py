# SPDX-License-Identifier: Apache-2.0
"""The stage on which cheats are played: a job, an honest run, a stolen model, and the tools of a
forger.

A forger has the real recorder and the real key: what it writes is well-formed, signed and
committed. It differs from an honest trainer only in what it claims.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from .. import _core
from .._arithmetic import _rounded_steps
from .._checks._checks import PEV, AnyCheck, Check, Policy, Replay, Telemetry
from .._job._job import Job
from .._job._session import Session, StepResult
from .._record._record import record
from .._report._value import Report
from .._verify._verify import verify
from ._frames import Frames
from ._story import Build, Story

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._task._task import Task

Weights = dict[str, torch.Tensor]


class Arguments(TypedDict, total=False):
    """Those of `verify`."""

    job: Job | None
    commitment: str | None
    task: Callable[[], Task] | str | None
    model: str | None
    checks: Sequence[AnyCheck] | None
    policy: Policy | None
    nonce: bytes | str | None
    published: Sequence[str]
    other_commitments: Sequence[str]
    ledger: str | os.PathLike[str] | bool | None
    workers: int
    executor: Executor | None
    timeout: float | None
    max_checkpoint_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """What a cheating prover hands over, and what the client holds against it."""

    run: Path
    commitment: str
    model: Path | None = None
    job: Job | None = None
    """The client's job; None: the scene's."""
    published: tuple[str, ...] = ()
    story: Story | None = None
    """What the prover says about recipe, data and batches; heard only while the rule against it is
    off.
    """
    samples: int | None = None
    """Random segments the verifier draws; None: the scene's."""
    nonce: bytes | None = None
    """The draw under which this forgery has its best chance; None: fresh."""
    options: Arguments = field(default_factory=Arguments)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One cheat of the catalogue."""

    id: str
    name: str
    how: str
    """One sentence: what the forger does."""
    rule: str
    """The rule that stops it: with this one alone switched off, the forgery is accepted."""
    found_by: tuple[str, ...]
    """Rules whose findings may reject it (usually the rule itself)."""
    verdict: str
    """"rejected", or "inconclusive" where the rule refuses to judge."""
    task: str
    """The training of `_tasks` on which its best forgery is built."""
    in_demo: bool
    make: Callable[[Scene], Forgery]


registered: dict[str, Attack] = {}


def attack(
    number: str,
    name: str,
    *,
    rule: str,
    found_by: Sequence[str] = (),
    verdict: str = "rejected",
    task: str = "plain",
    in_demo: bool = False,
) -> Callable[[Callable[[Scene], Forgery]], Callable[[Scene], Forgery]]:
    """Registers a forger. Its docstring's first line is `how`."""

    def register(make: Callable[[Scene], Forgery]) -> Callable[[Scene], Forgery]:
        first_paragraph = (make.__doc__ or "").strip().split("\n\n")[0]
        how = " ".join(first_paragraph.split())
        registered[f"{number} {name}"] = Attack(
            id=number,
            name=name,
            how=how,
            rule=rule,
            found_by=tuple(found_by) or (rule,),
            verdict=verdict,
            task=task,
            in_demo=in_demo,
            make=make,
        )
        return make

    return register


class Scene:
    """A training under a job, and what both sides do on it.

    Args:
        directory: where runs and keys are written.
        build: the client's task.
        seed: the job's seed.
        checkpoint_every: the job's segment length in steps.
        samples: random segments the client replays.
        arithmetic: the job's; stock leaves a forger the most room.
        job_options: more arguments of `Job.create`.
    """

    def __init__(
        self,
        directory: Path,
        build: Build,
        *,
        seed: int = 7,
        checkpoint_every: int = 4,
        samples: int = 12,
        arithmetic: str = "stock",
        **job_options: Any,
    ) -> None:
        self.directory = directory
        self.build = build
        self.samples = samples
        directory.mkdir(parents=True, exist_ok=True)
        self.key_path = directory / "trainer.pem"
        self.key = _core.SigningKey.generate()
        self.key_path.write_text(self.key.to_pem())
        self.key_path.chmod(0o600)
        (directory / "trainer.pub").write_text(self.key.public_key.to_pem())
        self.job = Job.create(
            build,
            seed=seed,
            checkpoint_every=checkpoint_every,
            trainer=str(directory / "trainer.pub"),
            arithmetic=arithmetic,
            **job_options,
        )

    def path(self, name: str) -> Path:
        """A fresh directory for a run."""
        path = self.directory / name.replace(" ", "-")
        if path.exists():
            shutil.rmtree(path)
        return path

    # -- the honest side

    def record(self, name: str, *, build: Build | None = None, job: Job | None = None) -> Path:
        """Records a training without comparing it with the job (a prover may lie)."""
        path = self.path(name)
        record(
            build or self.build,
            str(path),
            job=job or self.job,
            key=str(self.key_path),
            check_job=False,
        )
        return path

    def commit(self, run: Path, key: _core.SigningKey | None = None) -> str:
        return _core.commit_run(str(run), key or self.key)

    def sign(self, run: Path) -> str:
        """Commits to whatever transcript.log holds, which `commit` refuses to do for a malformed
        one.
        """
        payloads = Frames.read(run).payloads
        tree = _core.MerkleTree()
        for payload in payloads:
            tree.append(hashlib.sha256(b"\x00" + payload).digest())
        note = _core.CheckpointNote(
            f"potl/v1/{self.job.core.id.hex()}",
            len(payloads),
            tree.root(),
            [f"final {Frames.final_state(payloads).hex()}"],
        )
        return note.sign(self.key)

    @functools.cached_property
    def honest(self) -> Forgery:
        """An honest run of the job, recorded once and never changed: forgers work on copies."""
        run = self.record("honest")
        return Forgery(run=run, commitment=self.commit(run))

    def copy_of(self, run: Path, name: str, *, uncommitted: bool = True) -> Path:
        path = self.path(name)
        shutil.copytree(run, path)
        if uncommitted:
            (path / "commitment").unlink(missing_ok=True)
        return path

    @functools.cached_property
    def stolen(self) -> Weights:
        """Parameters of a model somebody else trained: same recipe, another seed."""
        other = self.job.replace(seed=self.job.seed + 1000)
        with Session.open(self.build, seed=other.seed, job=other) as session:
            for step, _, batch in session.batches(1, other.steps):
                session.run_step(step, batch)
            return parameters(session)

    def checks(self, samples: int | None = None) -> list[Check]:
        return [Telemetry(), PEV(fraction=0.25), drawn(samples or self.samples)]

    def verify(self, forgery: Forgery, **options: Unpack[Arguments]) -> Report:
        """The client's verification, with the client's own job, task and data."""
        story = forgery.story or Story()
        job, build = story.believed(forgery.job or self.job, self.build)
        arguments: Arguments = {
            "job": job,
            "commitment": forgery.commitment,
            "task": build,
            "model": str(forgery.model) if forgery.model else None,
            "published": forgery.published,
            "checks": self.checks(forgery.samples),
            # A draw that a forger hopes for is short.
            "policy": None if forgery.samples is None else Policy(probability=0),
            "nonce": forgery.nonce,
            "ledger": None,
            **forgery.options,
            **options,
        }
        return verify(str(forgery.run), **arguments)

    # -- the forger's tools

    def lucky_draw(self, run: Path, commitment: str, samples: int, *hidden: int) -> bytes:
        """A nonce under which no segment that ends at a step of `hidden` is replayed."""
        evidence = _core.Evidence.open(str(run), job=self.job.core, commitment=commitment)
        options = drawn(samples).options()
        for number in range(10_000):
            nonce = hashlib.sha256(number.to_bytes(8, "little")).digest()
            plan = _core.plan_check("replay", evidence, options, nonce)
            if all(one.from_step + one.steps not in hidden for one in plan):
                return nonce
        raise RuntimeError("every draw looks at one of those segments")

    def forge(
        self,
        name: str,
        *,
        rewrite: Callable[[Session, int], None] | None = None,
        build: Build | None = None,
        start: Callable[[Session], None] | None = None,
        sample_ids: Callable[[Session, int], list[int]] | None = None,
        claimed_loss: Callable[[int, float], float] | None = None,
        skipped: Callable[[int], bool] | None = None,
        rounding_log: Callable[[bytes], bytes] | None = None,
        last_step: int | None = None,
        stored: Callable[[int], bool] | None = None,
        key: _core.SigningKey | None = None,
        client_job: Job | None = None,
    ) -> Path:
        """Records a training whose state is rewritten at checkpoints.

        Within a segment every step is real, so replays of its losses agree; at its end `rewrite`
        moves the state to where the forger wants it. `sample_ids` trains on other samples than the
        job's; `claimed_loss` logs another loss; `skipped` names the steps that are logged as left
        out by the scaler; `rounding_log`, for a `client_job` in log64, binds another log of a step
        than its own; `stored` says after which steps a state is stored and rewritten (None: as
        agreed).
        """
        path = self.path(name)
        ordered = client_job or self.job
        job = ordered.core
        stored = stored or job.is_checkpoint
        session = Session.open(build or self.build, seed=ordered.seed, job=ordered)
        trainer = None if rounding_log is None else _rounded_steps.Trainer()
        recorder = _core.Recorder.create(str(path), job, key or self.key, software="potl forger")
        with session:
            if start is not None:
                start(session)
            recorder.append_initial(session.capture())
            for step, ids, batch in session.batches(1, last_step or job.steps):
                used = list(ids)
                if sample_ids is not None:
                    used = sample_ids(session, step)
                    batch = session.batch(step, used)
                began = time.perf_counter_ns()
                result = session.run_step(step, batch, rounding=trainer)
                took = time.perf_counter_ns() - began
                if rewrite is not None and stored(step):
                    rewrite(session, step)
                loss = result.loss if claimed_loss is None else claimed_loss(step, result.loss)
                log = None
                if trainer is not None and rounding_log is not None:
                    log = rounding_log(trainer.log)
                self.append(
                    recorder,
                    session,
                    step,
                    used,
                    result,
                    loss=loss,
                    flags=_core.SKIPPED if skipped is not None and skipped(step) else 0,
                    duration_ns=took,
                    checkpoint=stored(step),
                    rounding_log=log,
                )
            recorder.close()
        return path

    def append(
        self,
        recorder: _core.Recorder,
        session: Session,
        step: int,
        ids: Sequence[int],
        result: StepResult,
        *,
        loss: float | None = None,
        flags: int = 0,
        duration_ns: int = 1_000_000,
        checkpoint: bool | None = None,
        rounding_log: bytes | None = None,
    ) -> None:
        """One step record of the session's state as it is now."""
        if checkpoint is None:
            checkpoint = self.job.core.is_checkpoint(step)
        recorder.append_step(
            session.capture(),
            step=step,
            epoch=self.job.core.epoch_of(step),
            sample_ids=ids,
            loss=result.loss if loss is None else loss,
            rates=result.rates,
            random_draws=result.random_draws,
            flags=flags,
            duration_ns=duration_ns,
            checkpoint=checkpoint,
            rounding_log=rounding_log,
        )

    def forged(self, name: str, **tools: Any) -> Forgery:
        """`forge`, committed."""
        run = self.forge(name, **tools)
        return Forgery(run=run, commitment=self.commit(run))

    def liar(self, name: str, build: Build) -> Forgery:
        """Trains another recipe under the client's job, and tells that recipe as its story."""
        run = self.record(name, build=build)
        return Forgery(run=run, commitment=self.commit(run), story=Story(build=build))

    def with_options(self, forgery: Forgery, **changes: Any) -> Forgery:
        return replace(forgery, **changes)


def drawn(samples: int) -> Replay:
    """Random segments alone: most forgeries show one rule, and hope that nobody looks elsewhere."""
    return Replay(samples=samples, top_q=0, reach=0)


def parameters(session: Session) -> Weights:
    """A copy of the model's parameters."""
    return {name: p.detach().clone() for name, p in session.task.model.named_parameters()}


def assign(session: Session, weights: Weights) -> None:
    """Overwrites the model's parameters in place."""
    with torch.no_grad():
        for name, p in session.task.model.named_parameters():
            p.copy_(weights[name])


def blend(a: Weights, b: Weights, share: float) -> Weights:
    """a + share (b - a)."""
    return {name: a[name] + share * (b[name] - a[name]) for name in a}
