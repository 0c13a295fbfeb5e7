# SPDX-License-Identifier: Apache-2.0
"""The job: what client and prover agree before the first step."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .._arithmetic import _arithmetic
from .._base._errors import MalformedError, NotReplayable, UsageError
from .._base._progress import Phases, phases
from .._base._public_key import public_key

if TYPE_CHECKING:
    from .._task._schedule import Schedule
    from .._task._task import Task
    from ._session import Session

_INITIAL_SUFFIX = ".initial.safetensors"


class Job:
    """An immutable, agreed job. Make one with `create`, or read what the other side was given.

    Attributes:
        core: The parsed document (`potl._core.Job`).
        initial: The state at step 0, for jobs whose initial weights cannot be derived from the seed
            on every machine.

    Example:
        >>> job = Job.create(build, seed=7, checkpoint_every=20)  # doctest: +SKIP
        >>> job.write("job.json")  # doctest: +SKIP
        >>> Job.read("job.json").id == job.id  # doctest: +SKIP
        True
    """

    def __init__(self, core: _core.Job, *, initial: _core.State | None = None) -> None:
        self.core = core
        self.initial = initial

    @classmethod
    def create(
        cls,
        build: Callable[[], Any],
        *,
        seed: int,
        checkpoint_every: int | str,
        trainer: str | os.PathLike[str] | _core.PublicKey | None = None,
        max_segment: int | None = None,
        store_every: int | None = None,
        arithmetic: str = _arithmetic.AUTO,
        tolerance_cap: float = _core.TOLERANCE_CAP,
        max_resumes: int = _core.MAX_RESUMES,
        check: bool = True,
        progress: Phases = None,
    ) -> Job:
        """Builds the task, tries some steps, hashes its data and initial state, and writes down
        what was found.

        Args:
            build: Returns the `potl.Task`; called several times.
            seed: Everything random follows from it: initial weights, batch order, dropout,
                augmentation.
            checkpoint_every: Steps between stored states, or "epoch".
            trainer: The public key (PEM file or key) that must sign the run; None leaves open who
                trains.
            max_segment: Longest distance between stored checkpoints that a pruned run may have, in
                steps, and length of the segments, pruned or not; None for `checkpoint_every`.
            store_every: Steps between the states that are stored, a multiple of `checkpoint_every`;
                those between are derived when they are drawn, by `potl.verify` or, after
                `potl.challenge`, by the trainer (`potl.rederive`). Needs a reproducible arithmetic.
                None keeps a run within 20 states or 2 GB, whichever is more, in such an
                arithmetic, and stores every state in stock arithmetic or with a `max_segment`.
            arithmetic: A mode of `potl.deterministic` ("ord32", "cr32", "log64", "xint24",
                "xint16"): a replay anywhere gives the same bits, and is compared with tolerance 0.
                Or "stock" for torch's own kernels, in which it is compared within a tolerance.
                "auto" is "ord32" if every operator of the task has an exact form, else "stock",
                with a warning that says why and what is lost. The job says which.
            tolerance_cap: Largest tolerance of a replay, as a share of the segment's update.
            max_resumes: How often recording may be resumed after a crash.
            check: Whether to look first for anything that cannot be replayed.
            progress: What is tried: None for a line when stderr is a terminal, a bool, or a
                function of one text.

        Raises:
            NotReplayable: Something in the task cannot be replayed; every problem names its remedy.
            UsageError: An argument out of range.
            MemoryError: This machine ran out of memory while the task was tried.
        """
        from ._trial import run_trial

        _arithmetic.require(arithmetic, or_auto=True)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**53:
            raise UsageError(f"seed is {seed!r}", "use a whole number from 0 to 2**53 - 1")
        key = None if trainer is None else public_key(trainer).raw
        with phases("making the job", progress) as say:
            trial = run_trial(
                build,
                seed=seed,
                arithmetic=arithmetic,
                probe=check,
                drafted=True,
                say=say,
            )
        if trial.draft is None:
            raise NotReplayable(trial.problems)
        found, arithmetic = trial.draft, trial.arithmetic
        every = _steps(checkpoint_every, found.steps_per_epoch)
        longest = every if max_segment is None else max_segment
        if longest < every:
            raise UsageError(
                f"max_segment={longest} is smaller than checkpoint_every={every}",
                "checkpoints are never closer than checkpoint_every",
            )
        if store_every is None and longest == every and arithmetic != _arithmetic.STOCK:
            segments = -(-found.steps // every)
            store_every = every * _core.affordable_stride(segments, trial.state_bytes)
        elif store_every is not None:
            _check_storing(store_every, every, longest, arithmetic)
        if store_every == every:
            store_every = None  # which is how a job says it
        # A resume repeats what was done since the stored state before it.
        repeated = longest if store_every is None else store_every
        document: _core.JobDocument = {
            "format": "potl-job-v1",
            "seed": seed,
            "steps": found.steps,
            "epochs": found.epochs,
            "batch_size": found.batch_size,
            "accumulate": found.accumulate,
            "drop_last": found.drop_last,
            "checkpoint_every": every,
            "max_segment": longest,
            "data": {"count": found.data.count, "root": found.data.root.hex()},
            "initial_state": {
                "digest": found.initial.digest().hex(),
                "source": "file" if found.unportable else "seed",
            },
            "learning_rates": None
            if found.rates is None
            else [
                {"steps": steps, "rates": [struct.pack(">d", rate).hex() for rate in rates]}
                for steps, rates in found.rates
            ],
            "arithmetic": arithmetic,
            "tolerance_cap": tolerance_cap,
            "limits": {"max_resumes": max_resumes, "max_superseded": max_resumes * repeated},
            "trainer": None if key is None else key.hex(),
            "task": found.task,
            "environment": found.environment,
        }
        if found.order is not None:
            document["order"] = found.order
        if store_every is not None:
            document["store_every"] = store_every
        core = _core.Job.parse(_core.canonical_json(document))
        if arithmetic == _arithmetic.STOCK:
            _arithmetic.explain_stock(trial.obstacles)
        return cls(core, initial=found.initial if found.unportable else None)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Job:
        """Reads a job, and the initial state beside it (`job.initial.safetensors` for `job.json`)
        where there is one.

        Raises:
            MalformedError: Not a job.
            MismatchError: The initial state is not the job's.
        """
        try:
            core = _core.Job.parse(_core.read_file(os.fspath(path), max_bytes=_core.MAX_JOB_BYTES))
        except MalformedError as error:
            raise MalformedError(f"{os.fspath(path)}: {error.message}", error.remedy) from error
        beside = _beside(path)
        initial = None
        if core.fields()["initial_state"]["source"] == "file" and beside.exists():
            initial = _core.State.load(str(beside), core.initial_state)
        return cls(core, initial=initial)

    @classmethod
    def of_run(cls, directory: str | os.PathLike[str]) -> Job:
        """The job as a run directory has it.

        Raises:
            MalformedError: Not a job, or a link to one.
        """
        text = _core.read_entry(os.fspath(directory), _core.JOB_NAME, max_bytes=_core.MAX_JOB_BYTES)
        return cls(_core.Job.parse(text))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the canonical document, and beside it the initial state if the seed does not
        determine it.
        """
        if self.initial is not None:
            self.initial.save(str(_beside(path)))
        _core.write_file(os.fspath(path), self.core.text)

    def replace(self, **fields: _core.Json) -> Job:
        """Another job that differs in these fields of the document. In another arithmetic it does
        not say where its first steps end.
        """
        from ._first_steps import without_ends

        own = self.core.fields()
        if fields.get("arithmetic", own["arithmetic"]) != own["arithmetic"]:
            own["task"] = without_ends(own["task"])
        core = _core.Job.parse(_core.canonical_json({**own, **fields}))
        keep = self.initial is not None and core.initial_state == self.core.initial_state
        return Job(core, initial=self.initial if keep else None)

    def schedule(self, task: Task) -> Schedule:
        """The agreed sizes, order and rates of a training of `task`."""
        from .._task._schedule import Schedule

        return Schedule.of_job(self.core, task)

    def differences(self, session: Session, *, weights: bool = True) -> list[str]:
        """How the task of a session differs from what was agreed: one sentence each, empty when it
        does not. Reads all of the data set.

        The environment is not compared: other versions may round differently, which the tolerances
        are for.

        Args:
            session: As opened: nothing has been trained yet.
            weights: Whether the initial state is compared.
        """
        from .._task._data import scan
        from ._draft import order_of
        from ._first_batches import batch_differences
        from ._recipe import (
            code_differences,
            describe,
            differences,
            layer_differences,
            order_differences,
            without_code,
        )
        from ._settings import setting_differences

        core, task = self.core, session.task
        core.first_steps()  # which nothing is trained for here, and may be malformed
        sizes = {
            "batch_size": task.batch_size,
            "accumulate": task.accumulate,
            "epochs": task.epochs,
            "steps": task.steps,
        }
        found = [
            f"{name} is {own}, agreed was {getattr(core, name)}"
            for name, own in sizes.items()
            if getattr(core, name) != own
        ]
        fields = core.fields()
        if fields["drop_last"] != task.drop_last:
            found.append(f"drop_last is {task.drop_last}, agreed was {fields['drop_last']}")
        own = describe(task, session.build)
        agreed = {key: value for key, value in fields["task"].items() if key in own}
        set_here, set_there = own.pop("settings"), agreed.pop("settings", None)
        found += list(code_differences(agreed, own))
        other_recipe = list(differences(without_code(agreed), without_code(own)))
        found += other_recipe
        found += list(layer_differences(agreed, own["layers"], core.arithmetic))
        found += list(order_differences(agreed, task))
        if core.arithmetic == _arithmetic.STOCK:  # no other depends on them
            found += list(setting_differences(set_there, set_here))
        facts = scan(task.dataset)
        if facts.count != core.data_count:
            found.append(f"the data set has {facts.count} samples, agreed were {core.data_count}")
        elif facts.root != core.data_root:
            found.append(
                "the data set holds other samples or labels than agreed (if code draws them, as "
                "random_split does, call it inside build, where potl seeds what it draws; if code "
                "computes them, their bits may depend on the machine: prepare them once and store "
                "them)"
            )
        agreed_order = fields.get("order")
        if (agreed_order is None) != (task._order is None):
            own_words = ("the order of samples is the seed's", "shuffle or sampler bring an order")
            brings = own_words[task._order is not None]
            wanted = "another" if agreed_order else "the one of the seed"
            found.append(f"{brings}, agreed was {wanted}")
        elif agreed_order != order_of(task, core.seed):
            found.append("shuffle or sampler select other samples than agreed")
        if not found:  # other code or data make other batches
            start = None if session._has_plain_batches else session.capture()
            found += list(batch_differences(session, core))
            if start is not None:  # code that makes them may look at the state, and change it
                session.restore(start)
        if not weights or other_recipe:  # whose options are in the state, too
            return found
        if session.step == 0 and session.capture().digest() != core.initial_state:
            found.append(
                "the initial state is not the agreed one (if a model is made outside build, make "
                "it inside, where potl seeds what it draws; if a file brings weights, use the same "
                "file)"
                if fields["initial_state"]["source"] == "seed"
                else "the initial state is not the agreed one: the seed does not determine it on "
                "every machine, so the file beside the job (.initial.safetensors) is needed"
            )
        return found

    @property
    def id(self) -> bytes:
        """SHA-256 of the document, which every message of a run names."""
        return self.core.id

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.core.seed

    @property
    def arithmetic(self) -> str:
        """In which it is trained: a mode of `potl.deterministic`, or "stock"."""
        return self.core.arithmetic

    @property
    def steps(self) -> int:
        """Number of optimizer updates."""
        return self.core.steps

    @property
    def epochs(self) -> int:
        """Passes over the data."""
        return self.core.epochs

    @property
    def checkpoint_every(self) -> int:
        """Length of a segment: steps between checkpoints."""
        return self.core.checkpoint_every

    @property
    def store_every(self) -> int:
        """Steps between the checkpoints that are stored; the others are derived on demand."""
        return self.core.store_every or self.core.checkpoint_every

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id.hex()[:16]}, seed={self.seed}, steps={self.steps})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _job_of_text, (self.core.text,)


def _steps(checkpoint_every: int | str, steps_per_epoch: int) -> int:
    if checkpoint_every == "epoch":
        return steps_per_epoch
    if (
        isinstance(checkpoint_every, (bool, str))
        or not isinstance(checkpoint_every, int)
        or checkpoint_every < 1
    ):
        raise UsageError(
            f"checkpoint_every is {checkpoint_every!r}", 'pass a number of steps, or "epoch"'
        )
    return checkpoint_every


def _check_storing(store_every: int, every: int, longest: int, arithmetic: str) -> None:
    if type(store_every) is int and store_every == every:
        return
    if arithmetic == "stock":
        raise UsageError(
            "store_every needs a reproducible arithmetic: in stock arithmetic a trainer cannot "
            "derive a state again with certainty, on other hardware or another number of threads",
            'pass arithmetic="ord32", or leave store_every out and store every checkpoint',
        )
    if (
        isinstance(store_every, bool)
        or not isinstance(store_every, int)
        or store_every <= every
        or store_every % every
    ):
        raise UsageError(
            f"store_every={store_every!r} is not a multiple of checkpoint_every={every}",
            f"pass {every} to store every checkpoint, or a multiple of it",
        )
    if longest != every:
        raise UsageError(
            "store_every and max_segment exclude each other",
            "max_segment makes segments longer, store_every derives their ends on demand",
        )


def _beside(path: str | os.PathLike[str]) -> Path:
    return Path(path).with_suffix(_INITIAL_SUFFIX)


def _job_of_text(text: bytes) -> Job:
    return Job(_core.Job.parse(text))
