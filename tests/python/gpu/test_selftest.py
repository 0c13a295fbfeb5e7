# SPDX-License-Identifier: Apache-2.0
"""`potl selftest --device cuda` prints the CPU's digests; without a GPU simulated blocks do."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import torch

import potl
from potl._arithmetic import _library
from potl._machine import _selftest

GPU = torch.cuda.is_available()


@pytest.fixture
def _simulated() -> Iterator[None]:
    library = _library.module()
    if not GPU:
        library.use_device("cpu", importlib.import_module("potl._simulated").kernels())
    yield
    if not GPU:
        library.use_device("cpu", None)


@pytest.mark.usefixtures("_simulated")
def test_a_device_prints_the_digests_of_the_cpu() -> None:
    rows = list(_selftest.lines("cuda" if GPU else "cpu"))
    refused = {(row.mode, row.operator) for row in rows if row.refused}
    assert all(row.as_kept for row in rows if not row.refused)
    # What has no form there: each of them needs one, or a reason.
    assert {name for _, name in refused} == {"attention", "eigh", "erfinv", "svd"}
    assert {mode for mode, name in refused if name == "attention"} == {"log64"}
    assert len(rows) - len(refused) > 80


@pytest.mark.skipif(GPU, reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(potl.UnsupportedError, match=f"no device '{device}' here"):
        next(_selftest.lines(device))
