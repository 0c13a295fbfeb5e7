# SPDX-License-Identifier: Apache-2.0
"""Requests, measurements and findings as classes of C++: fields, equality, pickling."""

import copy
import pickle
from typing import Any

import pytest

import potl
from potl import _core


class Own(potl.Request):
    kind = "own"

    def __init__(self, step: int) -> None:
        self.from_step = step


SEGMENT = _core.SegmentRequest(start=4, end=8, why="random", noise_repeats=2)
VALUES = [
    SEGMENT,
    _core.LossRequest(step=5, noise_repeats=1),
    _core.SubsetLossRequest(step=4, sample_ids=[3, 1]),
    _core.GroupDistance(
        group="parameters", l2=0.5, tensors=[_core.TensorDistance(path="w", l2=1.0)]
    ),
    _core.SegmentMeasurement(
        request=SEGMENT,
        status="withheld",
        losses=[1.0],
        rates=[[0.1]],
        skipped=[True],
        distances=[_core.GroupDistance(group="buffers")],
        rounding=_core.RoundingSummary(rejections=[_core.RoundingRejection(step=3, proof="x")]),
    ),
    _core.Finding(
        check="pev", result="reject", facts=[("a", 1), ("b", True), ("c", 0.5), ("d", "e")]
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_values_are_equal_after_pickling_and_copying(value: Any) -> None:
    for again in (pickle.loads(pickle.dumps(value)), copy.copy(value)):
        assert again == value and again is not value and repr(again) == repr(value)
    with pytest.raises(TypeError, match="does not have"):
        type(value)(nonsense=1)


def test_requests_are_the_same_whatever_their_reason() -> None:
    other = _core.SegmentRequest(start=4, end=8, why="earlier challenge", noise_repeats=2)
    assert SEGMENT.key() == other.key() and other != SEGMENT
    for change in ({"end": 9}, {"start": 3}, {"noise_repeats": 1}, {"noise_if_equal": True}):
        fields = {"start": 4, "end": 8, "noise_repeats": 2, **change}
        assert _core.SegmentRequest(**fields).key() != SEGMENT.key()
    assert (SEGMENT.from_step, SEGMENT.steps, SEGMENT.kind) == (4, 4, "segment")
    # However thoroughly, it is about the same place.
    assert _core.SegmentRequest(start=4, end=8).place() == SEGMENT.place()


def test_a_request_of_pythons_is_answered_with_its_own_kind() -> None:
    answer = _core.unanswered(Own(3), "no task")
    assert isinstance(answer, _core.Measurement)
    assert answer.status == "verifier_error" and answer.message == "no task"
    again = pickle.loads(pickle.dumps(answer))
    assert again.request.from_step == 3 and again.status == answer.status
    assert Own(3).key() == Own(3).key() != Own(4).key()
    with pytest.raises(potl.UsageError, match="no request"):
        _core.unanswered({"kind": "segment"}, "")  # type: ignore[arg-type]


def test_facts_keep_their_types() -> None:
    finding = VALUES[-1]
    assert isinstance(finding, _core.Finding)
    assert finding.details == {"a": 1, "b": True, "c": 0.5, "d": "e"}
    assert [type(one) for one in finding.details.values()] == [int, bool, float, str]
    finding = copy.copy(finding)
    finding.details = {"judged": 12}
    assert finding.facts == [("judged", 12)]


def test_a_status_or_result_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RuntimeError):
        _core.Finding(result="maybe")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        _core.LossMeasurement(status="fine")
