# SPDX-License-Identifier: Apache-2.0
"""`Referee`: decides what a dispute has come down to, by computing one element."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .._arithmetic import _rounded_steps
from .._base import _executors
from .._base._errors import LimitError, MismatchError
from .._record import _keys
from .._record._inputs import as_job
from .._task._values import DTYPE_OF
from . import _answers
from ._agreed_step import (
    Step,
    first_sizes,
    is_excused,
    other_ends,
    parting,
    same_end,
    without_weights,
)
from ._answers import read_answer
from ._call import function_of
from ._derive import derivation_fault, derive_operators
from ._encoding import TensorOutline
from ._long_sums import LongSum, Values, order_of
from ._operators import CAPTURE, Operator, captured_digest, leaf_parts
from ._outline import StateOutline
from ._parts import (
    cost_of,
    count_bytes,
    finished,
    first_difference,
    needs_of,
    part_again,
    read_opened,
    size_of,
    sum_to_open,
)
from ._party import CHUNK, require_exact, require_torch_of
from ._questions import (
    bytes_of_chunks,
    bytes_of_leaves,
    bytes_of_parts,
    bytes_of_state,
    operators_of,
    question,
)
from ._recompute import Need, Opened, disputed_element, nbytes_of, needs, not_numbers, recompute
from ._rounded import Entries, facts_of_rounding, shown_entries
from ._seat import NAMES

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._task import Task

# As checkpoints are limited: a state is at most so much larger than 8 times the first one.
_LARGEST_SLACK = 64 << 20
_UNSET = bytes(32)


# What a ruling says of its operators, so that it can be computed again without the task.
_MOST_DESCRIBED = 512 << 10


@dataclass(frozen=True)
class _Sum:
    """A long sum, one part of which is disputed.

    Attributes:
        number: Of the part; those before it are agreed.
        parts: All of the trainer's.
        settled: What was opened with them.
        facts: What a ruling says.
    """

    long: LongSum
    number: int
    parts: bytes
    settled: Values
    facts: dict[str, object]


class Referee:
    """Decides a dispute with the agreed task and what both parties open. It executes no step, but
    for the job's first one, and the disputed one on zeros, before it says of somebody that another
    program ran: code may do something else where tensors have no elements.

    What it decides follows from the transcript alone, so that anybody with the task can decide it
    again.

    Args:
        job: What was agreed.
        task: `build`, or "module:function": the client's own.
        key: Signs the transcript: a PEM file, created when there is none. None: referee.pem in
            the user's state directory (`XDG_STATE_HOME`), created when it is first needed. Servers
            of parties answer only a referee whose public key they were given.

    Raises:
        UnsupportedError: The job's arithmetic is one in which no dispute can be decided, or this
            torch is of another version than the one that made the job.
    """

    def __init__(
        self,
        job: Job | str | os.PathLike[str],
        *,
        task: Callable[[], Task] | str,
        key: str | os.PathLike[str] | _core.SigningKey | None = None,
    ) -> None:
        self.job = as_job(job)
        require_exact(self.job)
        require_torch_of(self.job)
        self._build = _executors.load_task(task) if isinstance(task, str) else task
        self._key = key
        self._steps: dict[tuple[int, bytes], Step] = {}
        self._operands: dict[tuple[int, bytes, int], tuple[TensorOutline, ...]] = {}
        self._sums: dict[tuple[int, bytes, int], _Sum] = {}

    @functools.cached_property
    def key(self) -> _core.SigningKey:
        """What signs the transcript."""
        if self._key is None:
            return _keys.of_referee()
        if isinstance(self._key, _core.SigningKey):
            return self._key
        return _keys.load_or_create(self._key)

    @property
    def build(self) -> Callable[[], Task]:
        """The agreed task."""
        return self._build

    def _require_task(self) -> None:
        """Raises what keeps the task from being that of the job: found out at its turn, it would
        end a dispute for good, undecided.
        """
        _ = self._first

    def _decide(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        """What comes next. Whatever keeps the referee from deciding convicts nobody."""
        try:
            return self._follows(now)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:1000]
            return _core.DisputeRuling("referee", evidence=_answers.to_json({"undecided": why}))

    def _follows(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        """The same; what keeps the referee from deciding is raised."""
        kind = now.bisections[-1].kind
        if kind == "steps":
            return self._in_steps(now)
        if now.bisections[-2].kind == "chunks":
            return self._in_a_sum(now)
        return self._in_operators(now) if kind == "operators" else self._in_chunks(now)

    def _disagrees(self, now: _core.DisputeProceedings, made: _core.DisputeDecision) -> str | None:
        """What is wrong with somebody's decision; None where it is this referee's too."""
        own = self._decide(now)
        return (
            None
            if facts_of_decision(own) == facts_of_decision(made)
            else "this referee decides something else"
        )

    # ------------------------------------------------------------------ the three levels

    def _in_steps(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        level = now.bisections[-1]
        if not level.asked:
            end = same_end(now)
            size = bytes_of_state(
                self._first[0], self.job.core.arithmetic, self._resumes, shows_end=end
            )
            return question({"ask": "state", **({"end": True} if end else {})}, size)
        given = [read_answer(_answers.state_from_json, text, level.agreed) for text in now.answers]
        entries = self._entries(now)
        if None in given or entries is None:
            return unanswered([given[0] if entries is not None else None, given[1]])
        before = given[0]
        assert before is not None
        size = sum(
            nbytes_of(one) for one in before.tensors().values() if isinstance(one, TensorOutline)
        )
        if size > 8 * self._first[1] + _LARGEST_SLACK:
            raise LimitError(
                f"the agreed state has {size} bytes, far more than the job's first one"
            )
        operators = without_weights(self._build, self.job, now.step, before)
        wrong = None if operators is None else other_ends(now, operators)
        weighed = wrong is None or any(wrong)
        if operators is None or weighed:  # nobody is accused by what was derived without weights
            operators = derive_operators(self._build, self.job, now.step, before=before)
            wrong = other_ends(now, operators)
        step = Step(before, dict(enumerate(operators)), entries, weighed)
        self._steps[now.step, level.agreed] = step
        if wrong and any(wrong):
            at = parting(operators, now.answers[wrong.index(True)])
            facts = {"step": now.step, "operator": at, "name": operators[at].name}
            who = NAMES[wrong.index(True)]
            if same_end(now) and is_excused(now, who, before):
                return _undecided(
                    facts,
                    f"the step makes a NaN, of which the {who} may have recorded another one: the "
                    "bits of a NaN are the processor's",
                )
            return self._other_program(wrong, facts, now.step, before)
        return _core.DisputeNext("operators", len(operators))

    def _in_operators(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        level, step = now.bisections[-1], self._step(now)
        operator = self._disputed(step, level.low)
        facts: dict[str, object] = {
            "step": now.step,
            "operator": level.low,
            "name": operator.name,
        }
        shown = [leaf_parts(operator, one.leaf) for one in now.openings]
        if None in shown and not step.weighed:
            return self._with_weights(now, step)
        if None in shown:
            wrong = [one is None for one in shown]
            return self._other_program(wrong, facts, now.step, step.before)
        trainer, auditor = (one for one in shown if one is not None)
        wanted = operators_of(operator)
        facts |= _described(step, [*wanted, level.low])
        if wanted and not level.asked:
            asked: dict[str, object] = {"ask": "operands", "operators": wanted}
            return question(asked, bytes_of_leaves(step.operators, wanted, level.low))
        known: dict[int, list[bytes]] = {}
        if wanted:
            roots = [read_answer(_agreed_roots, text, wanted, level, step) for text in now.answers]
            if None in roots and not step.weighed:
                return self._with_weights(now, step)
            if None in roots:
                return unanswered(roots, facts)
            known = roots[0] or {}
        operands = self._outlines(operator, step, known)
        # Results that both agree on are of use for the others.
        own = (
            replace(one, root=root if root == auditor[i] else None)
            for i, (one, root) in enumerate(zip(operator.tensors, trainer, strict=True))
        )
        self._operands[now.step, level.agreed, level.low] = (*operands, *own)
        if operator.name == CAPTURE:
            true = _core.content_root(captured_digest(operator, operands))
            facts |= {"true": true.hex(), "trainer": trainer[0].hex(), "auditor": auditor[0].hex()}
            return _ruling("value", [one[0] != true for one in (trainer, auditor)], facts)
        number = next(i for i in order_of(operator) if trainer[i] != auditor[i])
        claimed = (trainer[number], auditor[number])
        outline = operator.tensors[number]
        places = [i for i, one in enumerate(operator.results) if isinstance(one, TensorOutline)]
        result = places[number]
        length = nbytes_of(outline)
        if _UNSET in claimed or length == 0:
            true = _core.content_root(b"")
            if length:
                unset = _core.returns_unset(operator.name) or (
                    function_of(operator).is_view and any(one.root == _UNSET for one in operands)
                )
                # A content where there is none, or none where there is one.
                return _ruling("value", [(one == _UNSET) != unset for one in claimed], facts)
            return _ruling("value", [one != true for one in claimed], facts)
        return _core.DisputeNext(
            "chunks", -(-length // CHUNK), subject=result, length=length, claimed=claimed
        )

    def _in_chunks(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        outer, level = now.bisections[-2:]
        step, inner = self._step(now), now.inner
        assert inner is not None
        operator = self._disputed(step, outer.low)
        operands = self._operands[now.step, outer.agreed, outer.low]
        outline = operator.results[inner.subject]
        width = DTYPE_OF[outline.dtype].itemsize
        trainer, auditor = (one.leaf for one in now.openings)
        element = disputed_element(trainer, auditor, outline.dtype)
        facts: dict[str, object] = {
            "step": now.step,
            "operator": outer.low,
            "name": operator.name,
            "result": inner.subject,
            "element": level.low * (CHUNK // width) + element,
            "dtype": outline.dtype,
            **_described(step, [*operators_of(operator), outer.low]),
        }
        arithmetic = self.job.core.arithmetic
        long = sum_to_open(operator, inner.subject, level.low, element, arithmetic=arithmetic)
        if long is not None:
            at = slice(element * width, (element + 1) * width)
            return self._before_a_sum(now, operator, long, (trainer[at], auditor[at]), facts)
        wanted = needs(operator, inner.subject, level.low, element)
        opened: dict[int, Opened] = {}
        if wanted:
            chunks = _listed(wanted)
            if not level.asked:
                return question({"ask": "elements", "chunks": chunks}, bytes_of_chunks(wanted))
            _require_written(wanted, operands)
            found = [read_answer(_opened, text, chunks, operands) for text in now.answers]
            if None in found:
                return unanswered(found, facts)
            opened = found[0] or {}
        true = recompute(
            operator,
            inner.subject,
            level.low,
            element,
            opened,
            arithmetic=arithmetic,
            entries=step.entries,
        )
        at = slice(element * width, (element + 1) * width)
        facts |= {
            "true": true.element.hex(),
            "trainer": trainer[at].hex(),
            "auditor": auditor[at].hex(),
            "multiply_adds": true.multiply_adds,
        }
        wrong = [not true.is_shown_by(one[at]) for one in (trainer, auditor)]
        if not any(wrong) and all(not_numbers(true.element, outline.dtype)):
            return _undecided(facts, "it is NaN for both, whose bits are the processor's")
        if true.rounding is not None:
            facts["rounding"] = facts_of_rounding(true.rounding)
            # The log is the trainer's, and so is a fault in it.
            wrong[0] |= true.rounding["fault"] != "none"
        return _ruling("value", wrong, facts)

    # ------------------------------------------------------------------ long sums

    def _before_a_sum(
        self,
        now: _core.DisputeProceedings,
        operator: Operator,
        long: LongSum,
        claimed: tuple[bytes, bytes],
        facts: dict[str, object],
    ) -> _core.DisputeDecision:
        """Both show the parts of their sums, and those have to make what they claim."""
        outer, level = now.bisections[-2:]
        operands = self._operands[now.step, outer.agreed, outer.low]
        wanted = needs_of(operator, long.settled)
        chunks = _listed(wanted)
        if not level.asked:
            asked = {
                "ask": "parts",
                "result": facts["result"],
                "element": facts["element"],
                "chunks": chunks,
            }
            return question(asked, bytes_of_parts(long, wanted))
        _require_written(wanted, operands)
        found = [
            read_answer(_parts, text, chunks, operands, operator, long) for text in now.answers
        ]
        if None in found:
            return unanswered(found, facts)
        parts, settled = [one[0] for one in found if one], (found[0] or (b"", {}))[1]
        made = [finished(long, one, settled) for one in parts]
        facts |= {"trainer": claimed[0].hex(), "auditor": claimed[1].hex()}
        facts["multiply_adds"] = cost_of(long)
        wrong = [one != element for one, element in zip(made, claimed, strict=True)]
        if not parts[0]:
            return _ruling("value", wrong, facts | {"true": made[0].hex()})
        if all(wrong):
            raise MismatchError("neither party's sum has the parts that it shows")
        if any(wrong):
            made_of = {"trainer": made[0].hex(), "auditor": made[1].hex()}
            return _ruling("value", wrong, facts | {"made_of_parts": made_of})
        number = first_difference(long, *parts)
        assert number is not None  # equal parts make equal elements
        self._sums[now.step, outer.agreed, outer.low] = _Sum(long, number, parts[0], settled, facts)
        size = size_of(long)
        mine, theirs = (one[number * size : (number + 1) * size] for one in parts)
        roots = _core.leaf_hash(mine), _core.leaf_hash(theirs)
        return _core.DisputeNext("operators", 1, claimed=roots)

    def _in_a_sum(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        """Computes the one part again."""
        outer, level = now.bisections[1], now.bisections[-1]
        operator = self._disputed(self._step(now), outer.low)
        place = now.step, outer.agreed, outer.low
        about, operands = self._sums[place], self._operands[place]
        long, number = about.long, about.number
        block = long.block(number, about.settled)
        wanted = needs_of(operator, block)
        chunks = _listed(wanted)
        if wanted and not level.asked:
            return question({"ask": "elements", "chunks": chunks}, bytes_of_chunks(wanted))
        _require_written(wanted, operands)
        found = [read_answer(_opened, text, chunks, operands) for text in now.answers if wanted]
        if None in found:
            return unanswered(found, about.facts)
        rows = read_opened(operator, (found[0] or {}) if found else {}, block)
        true = part_again(
            long,
            number,
            about.parts,
            about.settled,
            rows,
        )
        shown = [one.leaf for one in now.openings]
        facts = about.facts | {
            "part": {
                "number": number,
                "true": true.hex(),
                "trainer": shown[0].hex(),
                "auditor": shown[1].hex(),
            }
        }
        return _ruling("value", [one != true for one in shown], facts)

    # ------------------------------------------------------------------ what was agreed before

    def _with_weights(self, now: _core.DisputeProceedings, step: Step) -> _core.DisputeDecision:
        """Decides about the operators again, of the same step derived with the task's weights: the
        program is another one than without them.
        """
        operators = derive_operators(self._build, self.job, now.step, before=step.before)
        if len(operators) != len(step.operators):
            raise MismatchError(
                "neither party has the number of operators that the referee derives"
            )
        again = replace(step, operators=dict(enumerate(operators)), weighed=True)
        self._steps[now.step, now.bisections[0].agreed] = again
        return self._in_operators(now)

    def _other_program(
        self, wrong: Sequence[bool], facts: dict[str, object], step: int, before: StateOutline
    ) -> _core.DisputeRuling:
        """A party shows an operator that is not the derived one."""
        if all(wrong):
            raise MismatchError("neither party has the operator that the referee derives")
        fault = derivation_fault(self._build, self.job, step, before)
        if fault:
            raise MismatchError(f"it is derived as something else than it runs: {fault}")
        return _ruling("structure", wrong, facts)

    @property
    def _resumes(self) -> int:
        return self.job.core.fields()["limits"]["max_resumes"]

    def _entries(self, now: _core.DisputeProceedings) -> Entries | None:
        """The rounding log of the step; None where the trainer does not show it."""
        is_logged = self.job.core.arithmetic == _rounded_steps.LOG64
        return shown_entries(now, self._resumes) if is_logged else Entries()

    def _disputed(self, step: Step, number: int) -> Operator:
        """The operator that both parties show, with the forms of its operands."""
        return step.operators[number]

    def _step(self, now: _core.DisputeProceedings) -> Step:
        return self._steps[now.step, now.bisections[0].agreed]

    @functools.cached_property
    def _first(self) -> tuple[int, int]:
        """Of the job's first state: bytes of its outline in an answer, and of its tensors."""
        return first_sizes(self._build, self.job)

    def _outlines(
        self, operator: Operator, step: Step, known: dict[int, list[bytes]]
    ) -> tuple[TensorOutline, ...]:
        """The operands with their agreed content roots."""
        state = step.before.tensors()
        out = []
        for reference, form in zip(operator.operands, operator.inputs, strict=True):
            kind, _, rest = reference.path.partition("/")
            root = form.root
            if kind == "operator":
                number, result = map(int, rest.split("/"))
                tensors = [
                    i
                    for i, one in enumerate(step.operators[number].results)
                    if isinstance(one, TensorOutline)
                ]
                root = known[number][tensors.index(result)]
            elif kind == "state":
                held = state[rest]
                assert isinstance(held, TensorOutline)
                root = held.root
            elif kind == "constant":
                root = bytes.fromhex(rest)
            if root is None:
                raise MismatchError(f"nobody knows the content of {reference.path}")
            out.append(replace(form, root=root))
        return tuple(out)


def _described(step: Step, numbers: Iterable[int]) -> dict[str, object]:
    """What operators are, in a ruling."""
    described = {one: step.operators[one].description for one in numbers}
    if sum(map(len, described.values())) > _MOST_DESCRIBED:
        return {}
    return {"operators": {str(one): _answers.as_text(text) for one, text in described.items()}}


def _agreed_roots(
    document: dict[str, object], wanted: Sequence[int], level: _core.DisputeBisection, step: Step
) -> dict[int, list[bytes]]:
    """The content roots of earlier operators, from leaves of the tree that both agreed on."""
    leaves = _answers.leaves_from_json(document, wanted, level.low, level.agreed)
    out = {}
    for number, leaf in leaves.items():
        roots = leaf_parts(step.operators[number], leaf)
        if roots is None:
            raise MismatchError("both agreed on an operator that the program does not have")
        out[number] = roots
    return out


def _opened(
    document: dict[str, object],
    wanted: Sequence[tuple[int, list[int]]],
    operands: Sequence[TensorOutline],
) -> dict[int, Opened]:
    """Chunks of operands, each shown to belong to its content root."""
    out: dict[int, Opened] = {}
    for operand, numbers in wanted:
        out[operand] = Opened(operands[operand])
        for one in _answers.chunks_from_json(document, operand, numbers):
            out[operand].add(*one)
    return out


def _parts(
    document: dict[str, object],
    chunks: Sequence[tuple[int, list[int]]],
    operands: Sequence[TensorOutline],
    operator: Operator,
    long: LongSum,
) -> tuple[bytes, dict[int, torch.Tensor]]:
    """The parts of a sum, and what was opened with them."""
    opened = _opened(document, chunks, operands)
    settled = read_opened(operator, opened, long.settled)
    parts = _answers.as_bytes(document.get("parts"))
    if len(parts) != count_bytes(long, settled):
        raise MismatchError("a sum has other parts")
    return parts, settled


def _listed(wanted: Sequence[Need]) -> list[tuple[int, list[int]]]:
    return [(one.operand, list(one.chunks)) for one in wanted]


def _require_written(wanted: Sequence[Need], operands: Sequence[TensorOutline]) -> None:
    if any(operands[one.operand].root == _UNSET for one in wanted):
        raise MismatchError("an operand that nobody has written decides the element")


def unanswered(
    given: Sequence[object], facts: Mapping[str, object] | None = None
) -> _core.DisputeRuling:
    """Who answered with what does not fit."""
    wrong = [one is None for one in given]
    # An honest answer fits, unless what the referee compares it with is wrong.
    if all(wrong):
        raise MismatchError("neither party's answer fits what the referee knows")
    return _ruling("opening", wrong, {**(facts or {}), "answer": "does not fit what was agreed"})


def _ruling(why: Any, wrong: Sequence[bool], facts: dict[str, object]) -> _core.DisputeRuling:
    if not any(wrong):
        return _undecided(facts, "both are right, and differ")
    return _core.DisputeRuling(
        why, trainer_wrong=wrong[0], auditor_wrong=wrong[1], evidence=_answers.to_json(facts)
    )


def _undecided(facts: Mapping[str, object], why: str) -> _core.DisputeRuling:
    return _core.DisputeRuling("referee", evidence=_answers.to_json({**facts, "undecided": why}))


def facts_of_decision(made: _core.DisputeDecision) -> tuple[object, ...]:
    """All that a decision says."""
    if isinstance(made, _core.DisputeNext):
        return (made.kind, made.size, made.subject, made.length, made.claimed)
    if isinstance(made, _core.DisputeQuestion):
        return (made.text, made.max_bytes)
    return (made.why, made.trainer_wrong, made.auditor_wrong, made.evidence)
