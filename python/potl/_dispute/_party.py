# SPDX-License-Identifier: Apache-2.0
"""`Party`: one side of a dispute, which shows what its run holds and what its steps computed."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .._arithmetic import _rounded_steps
from .._base import _executors
from .._base._errors import (
    LimitError,
    MalformedError,
    MissingError,
    NotReplayable,
    PotlError,
    UnsupportedError,
    UsageError,
)
from .._base._printable import printable
from .._job._agreement import job_of, open_checked
from .._record import _keys
from .._record._inputs import as_job, run_directory
from .._record._records import Records
from ._answers import (
    as_bytes,
    as_text,
    chunks_to_json,
    from_json,
    leaves_to_json,
    rounding_to_json,
    state_to_json,
    to_json,
)
from ._contents import contents_of
from ._encoding import TensorOutline
from ._long_sums import LongSum, long_sum
from ._operators import Operator, leaf_bytes, marks_of
from ._outline import StateOutline
from ._parts import first_difference, parts_of, reader, size_of
from ._rounding_logs import own_logs
from ._shown_nan import shown_nan
from ._values import trace_values

if TYPE_CHECKING:
    from .._job._job import Job
    from .._job._session import Session
    from .._record._inputs import Recorded
    from .._task._task import Task

_log = logging.getLogger("potl")

CHUNK = _core.CONTENT_CHUNK_BYTES


class _OddQuestionError(MalformedError):
    """What no referee asks."""


@dataclass(frozen=True)
class Story:
    """What a party says that a step computed.

    Attributes:
        before: The state before it.
        leaves: The bytes of each operator's leaf.
        operators: What was executed.
        content: The bytes of a tensor by its reference.
        ends: The state before it and the one after it, as they are here; None where it cannot be
            traced.
    """

    before: StateOutline
    leaves: Sequence[bytes]
    operators: Sequence[Operator]
    content: Callable[[str], bytes]
    ends: Callable[[], tuple[_core.State, _core.State]] | None = None

    @functools.cached_property
    def tree(self) -> _core.MerkleTree:
        """Over the leaves."""
        tree = _core.MerkleTree()
        for one in self.leaves:
            tree.append(_core.leaf_hash(one))
        return tree


class Party:
    """The trainer or the auditor of a dispute: a committed run, and the task that made it.

    Args:
        run: The run directory; of an auditor the `log` of its audit.
        job: What was agreed.
        task: `build`, or "module:function".
        key: The key that committed to the run; None for the one in the directory.

    Raises:
        UsageError: The run has no commitment.
        UnsupportedError: The job's arithmetic is one in which no dispute can be decided, or this
            torch is of another version than the one that made the job.
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | Recorded,
        *,
        job: Job | str | os.PathLike[str],
        task: Callable[[], Task] | str,
        key: str | os.PathLike[str] | _core.SigningKey | None = None,
    ) -> None:
        self.directory = run_directory(run)
        self.job = as_job(job)
        require_exact(self.job)
        require_torch_of(self.job)
        self.build = _executors.load_task(task) if isinstance(task, str) else task
        self.key = _keys.of_recorded(key, self.directory)
        note = self.directory / _core.COMMITMENT_NAME
        if not note.exists():
            raise UsageError(
                f"{self.directory} is not committed to", "finish the run, and call commit()"
            )
        self.note = note.read_text()
        self._size = _core.SignedNote.parse(self.note).note.size
        self._evidence = _core.Evidence.open(str(self.directory), job=None, commitment=None)
        self._file = os.open(self.directory / _core.LOG_NAME, os.O_RDONLY | os.O_NOFOLLOW)
        self._records = Records(self._file)
        self._records.scan()
        self._told: tuple[int, Story] | None = None
        # A step of log64 is what its rounding log makes of it.
        self._logs = own_logs(self._evidence)

    def close(self) -> None:
        """Gives the log back."""
        os.close(self._file)

    # ------------------------------------------------------------------ what a player asks

    def _claim(self, now: _core.DisputeProceedings) -> _core.DisputeClaim:
        """The digest at the expected index."""
        expected, level = _expected(now), now.bisections[-1]
        if level.kind == "steps":
            return self._record_of(expected.index)
        if level.kind == "operators":
            return _core.DisputeClaim(self._story(now.step).tree.root_at(expected.index))
        return _core.DisputeClaim(_chunk_tree(self._result(now)).root_at(expected.index))

    def _opening(self, now: _core.DisputeProceedings) -> _core.DisputeOpening:
        """The leaf between two neighbours, in the tree that ends with it."""
        level = now.bisections[-1]
        if level.kind == "chunks":
            data = self._result(now)
            tree = _chunk_tree(data)
            leaf = data[level.low * CHUNK : (level.low + 1) * CHUNK]
            return _core.DisputeOpening(leaf, tree.inclusion_proof(level.low, level.low + 1))
        if len(now.bisections) > 3:  # a part of the sum in one element
            long, parts = self._parts(now)
            given = [as_bytes(from_json(one)["parts"]) for one in now.answers]
            number, size = first_difference(long, *given) or 0, size_of(long)
            return _core.DisputeOpening(parts[number * size : (number + 1) * size], [])
        # The log says which step it is before the core does.
        story = self._story(now.step or level.low + 1)
        index = len(story.leaves) - 1 if level.kind == "steps" else level.low
        proof = story.tree.inclusion_proof(index, index + 1)
        return _core.DisputeOpening(story.leaves[index], proof)

    def _answer(self, now: _core.DisputeProceedings) -> bytes:
        """What the referee asked for (docs/format/dispute.md). Nobody has a shorter answer that
        fits: where it is too long, one that does not is no garbage, and convicts nobody.
        """
        try:
            full = self._whole_answer(now)
        except _OddQuestionError as error:  # and no trouble of the party's own, which it must hear
            _log.warning("a question of the referee is not answered: %s", printable(error))
            return to_json({})
        for spare in ("marks", "nan"):
            if len(full) > now.asked.max_bytes and spare in (shown := from_json(full)):
                full = to_json({key: value for key, value in shown.items() if key != spare})
        return full if len(full) <= now.asked.max_bytes else to_json({})

    def _whole_answer(self, now: _core.DisputeProceedings) -> bytes:
        asked, level, story = _question(now), now.bisections[-1], self._story(now.step)
        if asked["ask"] == "state":
            shown = {
                **state_to_json(story.before),
                "operators": len(story.leaves),
                "marks": as_text(marks_of(story.leaves)),
            }
            is_logged = self.job.core.arithmetic == _rounded_steps.LOG64
            if is_logged and _expected(now).who == "trainer":
                shown["rounding"] = self._rounding(now.step)
            if asked.get("end"):
                shown["nan"] = self._nan(now.step, story)
            return to_json(shown)
        if "operators" in asked:
            operators = _ascending(asked["operators"], len(story.leaves))
            return to_json(
                leaves_to_json(
                    {
                        one: (story.leaves[one], story.tree.inclusion_proof(one, level.low))
                        for one in operators
                    }
                )
            )
        disputed = now.bisections[1].low
        paths = paths_of(story.operators[disputed], disputed)
        found: dict[int, list[Any]] = {}
        room = now.asked.max_bytes
        for operand, chunks in _chunks_of(asked.get("chunks"), len(paths)):
            data = story.content(paths[operand])
            indices = _ascending(chunks, -(-len(data) // CHUNK))
            room -= min(len(indices) * CHUNK, len(data))
            if room < 0:
                raise _OddQuestionError("its answer would be larger than it allows")
            found[operand] = [
                (one, data[one * CHUNK : (one + 1) * CHUNK], _core.open_chunk(data, one))
                for one in indices
            ]
        shown = chunks_to_json(found)
        if asked["ask"] == "parts":
            shown["parts"] = as_text(self._parts(now)[1])
        return to_json(shown)

    def _nan(self, step: int, story: Story) -> dict[str, object] | None:
        """Where a step does not end here as it was recorded: a NaN that makes it so."""
        recorded = _core.content_root(self._evidence.state_digest(step))
        if story.ends is None or story.leaves[-1].endswith(recorded):
            return None
        try:
            last = self._evidence.load_state(self.job.steps)
        except PotlError:  # who cannot show one is not excused
            return None
        before, after = story.ends()
        return shown_nan(before, [after, last])

    def _parts(self, now: _core.DisputeProceedings) -> tuple[LongSum, bytes]:
        """The sum that the last question was about, and its parts."""
        asked, disputed, story = _question(now), now.bisections[1].low, self._story(now.step)
        operator, arithmetic = story.operators[disputed], self.job.core.arithmetic
        paths = paths_of(operator, disputed)
        result, element = asked.get("result"), asked.get("element")
        if type(result) is not int or type(element) is not int or min(result, element) < 0:
            raise _OddQuestionError("it names no element of a result")
        long = long_sum(operator, result, element, arithmetic)
        if long is None:
            raise UnsupportedError(f"{operator.name} has no parts", "")
        read = reader(operator, lambda number: story.content(paths[number]))
        return long, parts_of(long, read)

    # ------------------------------------------------------------------ what it knows

    def _story(self, step: int) -> Story:
        """What a step computed; the last one is kept."""
        if self._told is None or self._told[0] != step:
            self._told = (step, self._tell(step))
        return self._told[1]

    def _tell(self, step: int) -> Story:
        before = self._state_before(step)
        outline = StateOutline.of(before)
        after = self._evidence.state_digest(step)

        def executed(use: Callable[[Session], Any]) -> Any:
            with self.open() as session, session.active():
                session.restore(before)
                return use(session)

        try:
            trace = executed(
                lambda one: trace_values(
                    one,
                    step,
                    one.sample_ids(step),
                    before=outline,
                    after=after,
                    rounding=self._logs(step),
                )
            )
        except NotReplayable:
            # Nor can the referee trace it, and convicts nobody. Silence would be a party's fault.
            return Story(outline, [b""], [], lambda path: b"")
        kept: dict[str, bytes] = {}

        def run(session: Session) -> _core.State:
            for at, _, batch in session.batches(step, step):
                session.run_step(at, batch, rounding=self._logs(at))
            return session.capture()

        def content(path: str) -> bytes:
            if path not in kept:
                # All operands of one operator are asked for, one after the other.
                reads = (i for i, one in enumerate(operands) if path in one)
                reader = next(reads, None)
                wanted = {path}
                if reader is not None:
                    wanted.update(paths_of(trace.operators[reader], reader))
                kept.update(
                    executed(lambda one: contents_of(one, step, wanted, rounding=self._logs(step)))
                )
            return kept[path]

        operands = [{reference.path for reference in one.operands} for one in trace.operators]
        leaves = [leaf_bytes(one) for one in trace.operators]
        return Story(outline, leaves, trace.operators, content, lambda: (before, executed(run)))

    def open(self) -> Session:
        """A session of the party's own task.

        Raises:
            JobMismatch: It is not that of the job.
            UnsupportedError: It is on a device on which a step has other operators.
        """
        session = open_checked(self.build, job_of(self.job.core, self._evidence))
        device = session.task.device
        if device.type != "cpu":
            session.close()
            raise UnsupportedError(
                f"the task is on {device}, and a referee derives what runs on a CPU",
                "let build() leave the model on the CPU: the states are the same",
            )
        return session

    def _state_before(self, step: int) -> _core.State:
        stored = [row["step"] for row in self._evidence.checkpoints() if row["step"] < step]
        if not stored:
            raise MissingError(f"no state before step {step} is stored", "keep step 0's state")
        with self.open() as session, session.active():
            session.restore(self._evidence.load_state(max(stored)))
            for at, _, batch in session.batches(max(stored) + 1, step - 1):
                session.run_step(at, batch, rounding=self._logs(at))
            return session.capture()

    def _rounding(self, step: int) -> dict[str, object]:
        """The rounding log of a step, with what says that its last record binds it."""
        branches = self._records.branches
        last = max(
            number for number, _ in enumerate(branches) if self._records.index_of(step, number)
        )
        own = self._records.index_of(step, last)
        assert own is not None
        resumes = [one.record - 1 for one in branches[last + 1 :]]
        shown = [self._shown(one) for one in (own, *resumes)]
        log = None
        if self._evidence.rounding_digest(step) is not None:
            log = self._evidence.load_rounding_log(step)
        return rounding_to_json(shown, log)

    def _record_of(self, step: int) -> _core.DisputeClaim:
        """The record of a step, of the last branch that has one."""
        record, index, proof = self._shown(self._index_of(step))
        return _core.DisputeClaim(
            self._evidence.state_digest(step), record=record, index=index, proof=proof
        )

    def _index_of(self, step: int) -> int:
        for number in reversed(range(len(self._records.branches))):
            index = self._records.index_of(step, number)
            if index is not None:
                return index
        raise MissingError(f"the log has no step {step}", "")

    def _shown(self, index: int) -> tuple[bytes, int, list[bytes]]:
        """A record of the log with its proof."""
        return self._records.record(index), index, self._records.proof(index, self._size)

    def _result(self, now: _core.DisputeProceedings) -> bytes:
        inner = now.inner
        assert inner is not None
        return self._story(now.step).content(f"operator/{now.bisections[-2].low}/{inner.subject}")


def require_exact(job: Job) -> None:
    """Raises UnsupportedError where honest parties may differ."""
    if job.core.arithmetic == "stock":
        raise UnsupportedError(
            "in stock arithmetic two honest parties differ, so that no dispute can be decided",
            'agree on a job with arithmetic="ord32"',
        )


def require_torch_of(job: Job) -> None:
    """Raises UnsupportedError where a step may have other operators than for the others: versions
    of torch make the same bits with other ones, and whoever has other ones is taken for a cheat.
    """
    made = job.core.fields()["environment"].get("torch")
    if made is None:
        raise UnsupportedError(
            "the job does not name a torch, so that a step may have other operators for others",
            "disputes are about jobs that potl.Job.create made",
        )
    if str(made).split(".")[:2] != torch.__version__.split(".")[:2]:
        raise UnsupportedError(
            f"the job was made with torch {made}, and this is torch {torch.__version__}, in which "
            "a step may have other operators",
            "install the minor version of torch that made the job, and call again",
        )


def paths_of(operator: Operator, number: int) -> list[str]:
    """The references of an operator's operands, and of its own tensor results."""
    own = [i for i, one in enumerate(operator.results) if isinstance(one, TensorOutline)]
    operands = [reference.path for reference in operator.operands]
    return operands + [f"operator/{number}/{i}" for i in own]


def _expected(now: _core.DisputeProceedings) -> _core.DisputeTurn:
    expected = now.expected
    assert expected is not None
    return expected


def _question(now: _core.DisputeProceedings) -> dict[str, object]:
    """What a referee asks, who may be anybody's."""
    try:
        found = from_json(now.asked.text)
    except (MalformedError, LimitError) as error:
        raise _OddQuestionError(error.message) from error
    if not isinstance(found.get("ask"), str):
        raise _OddQuestionError("it asks for nothing")
    return found


def _ascending(given: object, count: int) -> list[int]:
    """Numbers below `count`, each once."""
    if not isinstance(given, list) or not all(type(one) is int for one in given):
        raise _OddQuestionError("it has no list of numbers")
    if any(a >= b for a, b in pairwise([-1, *given, count])):
        raise _OddQuestionError("its numbers do not ascend to what there is")
    return given


def _chunks_of(given: object, operands: int) -> list[tuple[int, object]]:
    """Operands, each with the chunks that are asked for."""
    if not isinstance(given, list) or not all(isinstance(o, list) and len(o) == 2 for o in given):
        raise _OddQuestionError("it has no list of chunks")
    _ascending([one[0] for one in given], operands)
    return [(one[0], one[1]) for one in given]


def _chunk_tree(data: bytes) -> _core.MerkleTree:
    tree = _core.MerkleTree()
    for at in range(0, len(data), CHUNK):
        tree.append(_core.leaf_hash(data[at : at + CHUNK]))
    return tree
