# SPDX-License-Identifier: Apache-2.0
"""Values go into a state typed, and come back as what the task holds at their place."""

from __future__ import annotations

from collections import OrderedDict, deque
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
import torch

import potl
from potl import _core
from potl._task._values import Placed, copy_into, from_tree, to_tree


class Pair(NamedTuple):
    first: int
    second: int


def no_tensor(tensor: torch.Tensor, path: str) -> None:
    raise AssertionError(path)


def view_of(tensor: torch.Tensor) -> _core.TensorView:
    described = _core.Tensor(
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        "contiguous",
        tensor.data_ptr(),
        tensor.nbytes,
        tensor,
    )
    view: _core.TensorView = _core.State.capture({"x": described}).tree()["x"]
    return view


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2**63, "an int beyond 64 bits"),
        (-(2**63) - 1, "an int beyond 64 bits"),
        ({(1, 2): 3}, "a tuple cannot be a key"),
        ({1.5: 3}, "a float cannot be a key"),
        ({True: 3}, "a bool cannot be a key"),
        ({1}, "a set cannot be part"),
        (Fraction(1), r"a fractions\.Fraction cannot be part"),
    ],
)
def test_what_has_no_typed_form_is_refused_by_its_path(value: Any, said: str) -> None:
    with pytest.raises(potl.NotReplayable, match=f"{said}.*own/0|own/0.*{said}"):
        to_tree([value], no_tensor, "own")


def test_the_largest_integers_and_both_kinds_of_keys_are_taken() -> None:
    value = {"a": 2**63 - 1, 7: -(2**63)}
    assert to_tree(value, no_tensor, "own") == value


@pytest.mark.parametrize(
    "live", [torch.zeros(2, dtype=torch.float64), torch.zeros(3), torch.zeros(1, 2)]
)
def test_a_tensor_of_another_form_is_not_written(live: torch.Tensor) -> None:
    recorded = torch.ones(2)
    with pytest.raises(potl.MismatchError, match="w: the state holds float32"):
        copy_into(live, view_of(recorded), "w")
    made = from_tree(view_of(recorded), live, Placed(), "w")
    assert made is not live and torch.equal(made, recorded)
    assert not live.any()


def test_containers_come_back_as_the_tasks_own_kind() -> None:
    queue = from_tree([1, 2, 3], deque([0], maxlen=2), Placed(), "q")
    assert (queue, queue.maxlen) == (deque([2, 3], maxlen=2), 2)
    pair = from_tree((1, 2), Pair(0, 0), Placed(), "p")
    assert type(pair) is Pair and pair == (1, 2)
    ordered = from_tree({"a": 1}, OrderedDict(b=2), Placed(), "d")
    assert type(ordered) is OrderedDict and ordered == {"a": 1}
