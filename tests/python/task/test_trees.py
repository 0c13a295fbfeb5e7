# SPDX-License-Identifier: Apache-2.0
"""Trees of states are compared bit for bit, and the recipe in them is told from the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from potl import _core
from potl._task._trees import first_difference, fixed_part, is_option


def leaves(**tensors: torch.Tensor) -> dict[str, Any]:
    """What a state holds of these tensors; one that is the same object is tied to the first."""
    described = {
        name: _core.Tensor(
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            "contiguous",
            tensor.data_ptr(),
            tensor.nbytes,
            tensor,
        )
        for name, tensor in tensors.items()
    }
    tree: dict[str, Any] = _core.State.capture(described).tree()
    return tree


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (math.nan, 1.0),
        (math.inf, -math.inf),
        ("a", "b"),
        (b"a", b"b"),
        (None, 0),
        ([1], (1,)),
    ],
)
def test_values_differ_by_a_bit_or_by_their_type(a: Any, b: Any) -> None:
    for one, other in ((a, b), (b, a)):
        assert first_difference(one, one) is None
        assert first_difference(one, other) == "the root"
        assert first_difference({"x": [1, {"y": one}]}, {"x": [1, {"y": other}]}) == "x/1/y"
    assert first_difference(math.nan, -math.nan) is None


def test_what_only_one_side_has_is_named() -> None:
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == "b"
    assert first_difference({"x": {"a": 1, "b": 2}}, {"x": {"a": 1}}) == "x/b"
    assert first_difference({"x": [1]}, {"x": [1, 2]}) == "x"
    assert first_difference({"x": (1, 2)}, {"x": (1,)}) == "x"


def test_tensors_differ_by_form_bytes_or_tie() -> None:
    values = torch.tensor([1.0, 2.0])
    tree = leaves(a=values)
    assert first_difference(tree, leaves(a=values.clone())) is None
    for other in (torch.tensor([1.0, 3.0]), values.view(1, 2), values.view(torch.int32)):
        assert first_difference(tree, leaves(a=other)) == "a"
    third = values.clone()
    tied = leaves(a=values, b=third, c=values)
    assert first_difference(tied, leaves(a=values, b=third, c=values)) is None
    assert first_difference(tied, leaves(a=values, b=third, c=third)) == "c"
    assert first_difference(tied, leaves(a=values, b=third, c=values.clone())) == "c"


def state() -> dict[str, Any]:
    flags = {"training": {"": True}, "requires_grad": {"w": True}}
    return {
        "optimizers": [{"param_groups": [{"lr": 0.1, "momentum": 0.9, "betas": (0.9, 0.99)}]}],
        "schedulers": [{"last_epoch": 3, "base_lrs": [0.1], "state": {"x": 1}}],
        "scaler": {"scale": 2.0, "_growth_tracker": 1, "growth_factor": 2.0},
        "model": {"parameters": {}, **flags},
        "ema": {"parameters": {}, **flags},
        "counters": {"step": 3},
    }


VARYING = {"optimizers": [["lr"]], "schedulers": [["last_epoch"]]}


def test_the_recipe_is_what_training_cannot_change() -> None:
    assert fixed_part(state(), VARYING) == {
        "optimizers": [[{"momentum": 0.9, "betas": (0.9, 0.99)}]],
        "schedulers": [{"base_lrs": [0.1]}],
        "scaler": {"growth_factor": 2.0},
        "model": {"training": {"": True}, "requires_grad": {"w": True}},
        "ema": {"training": {"": True}, "requires_grad": {"w": True}},
    }
    plain = {**state(), "scaler": None, "ema": {"decay": 0.9}}
    assert fixed_part(plain, VARYING).keys() == {"optimizers", "schedulers", "model"}


def test_an_option_is_a_plain_value_or_a_list_of_them() -> None:
    for value in (None, True, 1, 0.5, "a", [1, (2.0, "b")], []):
        assert is_option(value)
    for value in (torch.ones(1), {"a": 1}, [1, {"a": 1}], (torch.ones(1), 1)):
        assert not is_option(value)
