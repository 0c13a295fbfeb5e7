# SPDX-License-Identifier: Apache-2.0
"""What a party answers is data of somebody who may lie: it fits, or it is wrong, and no third."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pytest

import potl
from potl._dispute import _answers
from potl._dispute._encoding import TensorOutline, encode
from potl._dispute._outline import StateOutline
from potl._dispute._party import _ascending, _chunks_of

STATE = StateOutline({"a": TensorOutline("float32", (2,), bytes(range(32)))})
TENSOR = _answers.state_to_json(STATE)["state"]["map"][0][1]["tensor"]  # type: ignore[index]


def state_of(**changed: Any) -> dict[str, Any]:
    """An answer about the state with another field of its tensor."""
    names = ("dtype", "shape", "root", "memory_format", "data")
    fields = [changed.get(name, was) for name, was in zip(names, TENSOR, strict=True)]
    return {"state": {"map": [["a", {"tensor": fields}]]}}


def test_the_state_itself_is_read() -> None:
    assert _answers.state_from_json(state_of(), STATE.digest()) == STATE


@pytest.mark.parametrize("value", [0.5, -0.0, math.inf, math.nan, -math.nan, 0.1, 2**-1074])
def test_a_float_of_a_state_is_read_with_all_its_bits(value: float) -> None:
    """0/0 has its sign bit set on x86."""
    state = StateOutline({"a": value})
    document = _answers.from_json(_answers.to_json(_answers.state_to_json(state)))
    assert _answers.state_from_json(document, state.digest()).digest() == state.digest()


@pytest.mark.parametrize(
    "other",
    [
        [["n", {"int": "7"}], ["x", {"float": ".8"}]],
        [["n", {"int": "7"}], ["x", {"float": "0x1p-1"}]],
        [["n", {"int": " 7"}], ["x", {"float": "0x1.0000000000000p-1"}]],
        [["n", {"int": "7"}], ["x", True], ["x", {"float": "0x1.0000000000000p-1"}]],
    ],
    ids=repr,
)
def test_a_state_has_one_form(other: list[Any]) -> None:
    """A shorter one would fit where an honest one finds no room, and convict who is honest."""
    state = StateOutline({"n": 7, "x": 0.5})
    own: Any = _answers.state_to_json(state)
    assert _answers.state_from_json(own, state.digest()) == state
    own["state"]["map"].reverse()  # no shorter
    assert _answers.state_from_json(own, state.digest()) == state
    with pytest.raises(potl.MalformedError, match="form"):
        _answers.state_from_json({"state": {"map": other}}, state.digest())


def test_no_part_of_a_state_is_hidden_in_a_content_root() -> None:
    """Its encoding would be that of a state with more in it."""
    longer = encode(STATE.tree) + b"\0"
    digest = hashlib.sha256(b"potl.state.v1\0" + longer).digest()
    root = bytes(range(32)) + b"\0"
    with pytest.raises(potl.MalformedError):
        _answers.state_from_json(state_of(root=root.hex()), digest)
    with pytest.raises(potl.MalformedError):
        _answers.state_from_json(state_of(root=bytes(31).hex()), digest)


@pytest.mark.parametrize(
    "answer",
    [
        {"state": {"float": "0x1p99999"}},
        {"state": {"float": "zz"}},
        {"state": {"int": "9" * 5000}},
        {"state": {"int": None}},
        {"state": {"bytes": 3}},
        {"state": {"map": [[[], 1]]}},
        {"state": {"other": 1}},
        {"state": 1.5},
        {},
        state_of(dtype=""),
        state_of(dtype=3),
        state_of(shape=[-1]),
        state_of(shape=[1 << 64]),
        state_of(shape=[float("inf")]),
        state_of(shape=[0] * 256),
        state_of(root="zz"),
        state_of(root=None),
        state_of(memory_format="x" * 256),
        state_of(memory_format="\ud800"),
        state_of(data=[]),
    ],
    ids=repr,
)
def test_what_is_no_state_is_malformed(answer: dict[str, Any]) -> None:
    with pytest.raises(potl.MalformedError):
        _answers.state_from_json(answer, STATE.digest())


@pytest.mark.parametrize(
    "numbers", [None, [True], [1, 1], [2, 1], [-1], [3], ["0"], [0.0]], ids=repr
)
def test_a_question_names_each_thing_once(numbers: object) -> None:
    """Who asks may be anybody, and what is asked for is read and hashed."""
    with pytest.raises(potl.MalformedError):
        _ascending(numbers, 3)
    assert _ascending([0, 2], 3) == [0, 2]


@pytest.mark.parametrize("chunks", [None, [1], [[0]], [[1, []], [0, []]], [[9, []]]], ids=repr)
def test_a_question_names_operands_with_chunks(chunks: object) -> None:
    with pytest.raises(potl.MalformedError):
        _chunks_of(chunks, 3)
    assert _chunks_of([[0, [1]], [2, []]], 3) == [(0, [1]), (2, [])]


@pytest.mark.parametrize("trouble", [potl.LimitError("a state"), potl.MalformedError("a log")])
def test_what_is_wrong_with_the_partys_own_run_is_no_answer(
    trouble: potl.PotlError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that does not fit loses; who hears of the trouble can mend it."""

    def fail(now: object) -> bytes:
        raise trouble

    party, now = object.__new__(potl.Party), Any
    monkeypatch.setattr(party, "_whole_answer", fail)
    with pytest.raises(type(trouble), match=trouble.message):
        party._answer(now)  # type: ignore[arg-type]
