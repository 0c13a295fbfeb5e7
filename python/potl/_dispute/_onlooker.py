# SPDX-License-Identifier: Apache-2.0
"""`Onlooker`: computes a ruling again from the evidence alone, without the task.

A ruling about an operator says in full what that operator is. The leaves of both parties are bound
to it by its digest, and so are those of its operands. So whoever reads the evidence knows the
operator, its attributes and its operands' forms and roots, and computes the element. What needs the
task, which operators the agreed program has, stays believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from .. import _core
from .._task._values import DTYPE_OF
from . import _answers
from ._agreed_step import Step
from ._answers import read_answer
from ._call import function_of
from ._decoding import described
from ._encoding import TensorOutline
from ._operators import CAPTURE, Operator
from ._party import require_exact
from ._referee import Referee, facts_of_decision, unanswered
from ._regions import is_foreach_pointwise
from ._rounded import Entries
from ._tracer import is_torch_s_own

if TYPE_CHECKING:
    from .._job._job import Job
    from ._outline import StateOutline

# Operators whose work and memory the forms of their operands bound, whatever their attributes say.
# They came from somebody who may have made them up, so nothing else is called.
_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
_NUMBERED = frozenset(
    (
        *("t", "transpose", "permute", "view", "_unsafe_view", "detach", "alias", "unsqueeze"),
        *("squeeze", "sum", "mean", "amax", "amin", "linalg_vector_norm", "_softmax"),
        *("_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    )
)
_ELEMENTWISE = frozenset(
    ("copy_", "fill_", "zero_", "zeros_like", "ones_like", "full_like", "fill")
)
# It is elementwise, and sums as many terms as its attribute says.
_SIZED = "mvlgamma"
# In a row that is multiplied, and in a tensor whose elements are numbered.
_LONGEST_ROW, _MOST_NUMBERED, _MOST_DIMS = 1 << 20, 1 << 22, 8
_ATTRIBUTES = frozenset(
    (*DTYPE_OF, "strided", "contiguous_format", "preserve_format", "channels_last")
)


class _Believed(Exception):
    """Only who has the task can compute it."""


class Onlooker(Referee):
    """Decides as far as the evidence alone says what is right.

    Attributes:
        believed: Decisions that only who has the task can compute.
        ruled: Whether the ruling was computed.

    Args:
        job: What was agreed.
        described: What the ruling says that the operators are, by number: nothing is believed of
            it that the leaves of both parties are not bound to.
    """

    def __init__(self, job: Job, described: Mapping[int, bytes]) -> None:
        require_exact(job)
        self.job = job
        self.believed, self.ruled = 0, False
        self._described = described
        self._steps, self._operands, self._sums = {}, {}, {}

    def _disagrees(self, now: _core.DisputeProceedings, made: _core.DisputeDecision) -> str | None:
        """What is wrong with somebody's decision; None where it follows, or is believed."""
        try:
            own = self._follows(now)
        except Exception:  # whatever somebody wrote into the evidence
            self.believed += 1
            return None
        if facts_of_decision(own) != facts_of_decision(made):
            return "from what both parties opened follows another decision than the referee's"
        self.ruled = isinstance(made, _core.DisputeRuling)
        return None

    def _in_steps(self, now: _core.DisputeProceedings) -> _core.DisputeDecision:
        level = now.bisections[-1]
        given = [
            read_answer(_answers.state_from_json, text, level.agreed)
            for text in (now.answers if level.asked else ())
        ]
        entries = self._entries(now) if level.asked else Entries()
        if None in given or entries is None:
            return unanswered([given[0] if entries is not None else None, given[1]])
        for before in given[:1]:
            assert before is not None
            operators = {number: described(one) for number, one in self._described.items()}
            self._steps[now.step, level.agreed] = Step(before, operators, entries)
        raise _Believed

    def _disputed(self, step: Step, number: int) -> Operator:
        operator, state = step.operators[number], step.before.tensors()
        inputs = []
        for reference in operator.operands:
            kind, _, rest = reference.path.partition("/")
            form: object = None
            if kind == "operator":
                at, result = map(int, rest.split("/"))
                form = step.operators[at].results[result]
            elif kind == "state":
                form = state[rest]
            if not isinstance(form, TensorOutline):
                raise _Believed  # a tensor of the batch, or a constant
            inputs.append(replace(form, root=None))
        made = replace(operator, inputs=tuple(inputs))
        if not is_bounded(made):
            raise _Believed
        return made

    def _other_program(
        self, wrong: Sequence[bool], facts: dict[str, object], step: int, before: StateOutline
    ) -> _core.DisputeRuling:
        raise _Believed


def is_bounded(operator: Operator) -> bool:
    """Whether an operator that somebody made up can be computed without harm."""
    if operator.name == CAPTURE:
        return True
    for name, value in operator.arguments.items():
        if isinstance(value, str) and is_torch_s_own(name) and value not in _ATTRIBUTES:
            return False
    packet = operator.name.removeprefix("aten.").partition(".")[0]
    forms = [*operator.inputs, *operator.tensors]
    if operator.drawn is not None or any(len(one.shape) > _MOST_DIMS for one in forms):
        return False
    if packet in _PRODUCTS:
        left, right = (one.shape for one in operator.inputs[-2:])
        return max(left[-1], right[-2]) <= _LONGEST_ROW
    if packet == "convolution":
        row = math.prod(operator.inputs[1].shape[1:])
        return row <= _LONGEST_ROW and operator.arguments["transposed"] is False
    if packet in _NUMBERED:
        return all(math.prod(one.shape) <= _MOST_NUMBERED for one in forms)
    if packet.startswith("_foreach_"):
        return is_foreach_pointwise(packet[len("_foreach_") :].rstrip("_"))
    if packet.rstrip("_") == _SIZED:
        return False
    return packet in _ELEMENTWISE or torch.Tag.pointwise in function_of(operator).tags
