# SPDX-License-Identifier: Apache-2.0
"""Recording a training that several processes share. Rank 0 records; the others compute with it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from .._base._errors import MismatchError, UnsupportedError, UsageError
from .._job._agreement import open_checked
from .._job._ranks import Ranks
from ._prover import Prover

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from typing_extensions import Self

    from .._job._session import Session
    from .._task._task import Task


_LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextlib.contextmanager
def launched() -> Iterator[ProcessGroup]:
    """The processes that a launcher such as torchrun started with this one. Where there are GPUs,
    each takes one of its own.

    Raises:
        UsageError: No launcher did.
    """
    import torch.distributed as dist

    if not all(name in os.environ for name in _LAUNCHER):
        raise UsageError(
            "no launcher has started this process",
            "torchrun --nproc-per-node 4 --no-python potl record ... --data-parallel",
        )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group()
    try:
        group = dist.group.WORLD
        assert group is not None
        yield group
    finally:
        dist.destroy_process_group()


class Leader(Prover):
    """Rank 0: a prover of steps that it computes with the others.

    Args:
        build: As of `Prover`, like the rest.
        path: The run directory.
        ranks: The processes. Those that follow are told if this one cannot begin.
    """

    def __init__(
        self, build: Callable[[], Task], path: Any, *, ranks: Ranks, **others: Any
    ) -> None:
        self._ranks = ranks
        # Whether the others wait to hear that this one can go on.
        self._is_awaited = True
        with self._telling():
            super().__init__(build, path, **others)

    def __enter__(self) -> Self:
        with self._telling():
            return super().__enter__()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if self._is_awaited:
                _require_all(self._ranks, _told(error))
            raise

    def _begin(self, session: Session) -> None:
        session._share_steps(self._ranks)
        self._say_ready()
        self._ranks.broadcast(self._job.text)
        _require_all(self._ranks)
        self._is_awaited = True
        super()._begin(session)
        self._say_ready()
        self._ranks.broadcast(_file_of(session.capture()))

    def _say_ready(self) -> None:
        self._is_awaited = False
        _require_all(self._ranks)

    def _see(self, step: int, state: _core.State) -> None:
        if not self._is_awaited and _is_compared(self._job, step):
            _require_equal(self._ranks, step, state)


@contextlib.contextmanager
def plain_modules() -> Iterator[None]:
    """Refuses DistributedDataParallel while a process builds its task: it talks to the others, each
    of which builds at another time, and gloo aborts a process that is told something else.
    """
    here = threading.get_ident()

    def refuse(module: torch.nn.Module, name: str, part: torch.nn.Module | None) -> None:
        # It has its module before it talks. Another recording's threads have a hook of their own.
        if isinstance(module, DistributedDataParallel) and threading.get_ident() == here:
            raise UnsupportedError(
                "DistributedDataParallel is not supported",
                "train the plain module: potl adds up the gradients of the processes",
            )

    hook = register_module_module_registration_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


def follow(build: Callable[[], Task], ranks: Ranks) -> None:
    """Another rank: computes its part of every step that rank 0 records.

    Raises:
        JobMismatch: The task does not match the job.
        MismatchError: Processes have computed different states.
        StorageError: A process is gone.
        UsageError: Another process could not begin.
    """
    from .._job._job import Job

    _require_all(ranks)
    job = _core.Job.parse(ranks.broadcast(None))
    session: Session | None = None
    try:
        session = open_checked(build, Job(job), weights=False)
        session._share_steps(ranks)
    except BaseException as error:
        if session is not None:
            session.close()
        _require_all(ranks, _told(error))
        raise
    with session, session.active():
        _require_all(ranks)  # that every process has the task
        _require_all(ranks)  # that rank 0 has a directory
        session.restore(_state_of(ranks.broadcast(None)))
        for step, _, batch in session.batches(session.step + 1, job.steps):
            session.run_step(step, batch)
            if _is_compared(job, step):
                _require_equal(ranks, step, session.capture())


def _is_compared(job: _core.Job, step: int) -> bool:
    return job.is_checkpoint(step) or step == job.steps


def _require_equal(ranks: Ranks, step: int, state: _core.State) -> None:
    """Compares the states of all processes after a step."""
    found = ranks.texts(state.digest().hex())
    for rank, digest in enumerate(found):
        if digest != found[0]:
            raise MismatchError(
                f"ranks 0 and {rank} have different states after step {step}: their machines make "
                "different updates of the same gradients",
                "record anew, in an arithmetic with the same bits everywhere "
                "(potl.Job.create(arithmetic=)) or on machines of one kind; in such an arithmetic, "
                "run potl selftest on each",
            )


def _require_all(ranks: Ranks, trouble: str = "") -> None:
    """Goes on if all processes can. Who cannot says why, and does not raise here."""
    for rank, found in enumerate(ranks.texts(trouble)):
        if found and not trouble:
            raise UsageError(f"rank {rank} could not begin: {found}", "")


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _file_of(state: _core.State) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        state.save(str(path))
        return path.read_bytes()


def _state_of(file: bytes) -> _core.State:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        path.write_bytes(file)
        return _core.State.load_unverified(str(path))
