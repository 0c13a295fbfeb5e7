# SPDX-License-Identifier: Apache-2.0
"""The ways in which honest replays compute otherwise."""

from __future__ import annotations

import importlib

import pytest
import torch

from potl._arithmetic import _noise
from potl._arithmetic._library import module


def test_repeats_take_turns_at_other_arithmetics_and_other_threads() -> None:
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    ways = [_noise.make(index, device="cpu") for index in range(8)]
    assert [way.arithmetic for way in ways] == ["ord32", "cr32", None, "xint24"] * 2
    assert all((way.threads is None) == (way.arithmetic is not None) for way in ways)


def test_where_no_other_arithmetic_runs_the_number_of_threads_is_another() -> None:
    for index in range(8):
        for way in (_noise.make(index, device="other"), _noise.other_threads(index)):
            assert way.arithmetic is None
            assert way.threads is not None
            assert 1 <= way.threads != torch.get_num_threads()


def test_repeats_on_a_gpu_compute_in_the_arithmetic_that_it_has() -> None:
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    known = module().knows_device("cuda")
    try:
        module().use_device("cuda", importlib.import_module("potl._simulated").kernels())
        assert {_noise.make(index, device="cuda").arithmetic for index in range(8)} == {"ord32"}
        module().use_device("cuda", None)
        assert {_noise.make(index, device="cuda").arithmetic for index in range(8)} == {None}
    finally:
        if known:
            module().use_device("cuda", importlib.import_module("potl._cuda").kernels())


def test_the_usual_number_of_threads_comes_back_after_a_failure_too() -> None:
    usual = torch.get_num_threads()
    way = _noise.other_threads(0)
    with pytest.raises(KeyError), way.around():
        assert torch.get_num_threads() == way.threads
        raise KeyError
    assert torch.get_num_threads() == usual
