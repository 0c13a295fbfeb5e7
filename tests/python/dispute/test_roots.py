# SPDX-License-Identifier: Apache-2.0
"""Content roots by torch's threads are those by one thread, wherever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import potl
from potl import _core
from potl._dispute._roots import root_of, root_of_tensor

CHUNK = _core.CONTENT_CHUNK_BYTES


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was seen")


@pytest.fixture(params=(1, 2, 3))
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_any_number_of_torch_s_threads_gives_the_same_root() -> None:
    data = torch.arange(40 * CHUNK, dtype=torch.int64).view(torch.uint8)
    for size in (0, 1, CHUNK, 16 * CHUNK - 1, 16 * CHUNK, 23 * CHUNK + 5, data.numel()):
        part = data[:size].numpy()
        expected = _core.content_root(part)
        assert root_of(part) == expected
        with potl.deterministic("ord32"):
            assert root_of(part) == expected


def test_nobody_who_watches_operators_sees_the_hashing(threads: int) -> None:
    # This number of threads was not used before: what the threads need is made under the watch.
    torch.set_num_threads(threads + 3)
    data = bytes(64 * CHUNK)
    with Watch():
        assert root_of(data) == _core.content_root(data)
    torch.set_num_threads(threads + 4)
    with FakeTensorMode():
        assert root_of(data) == _core.content_root(data)
    assert root_of(data) == _core.content_root(data)


def test_the_root_is_of_the_elements_in_their_order() -> None:
    matrix = torch.randn(300, 500)
    assert root_of_tensor(matrix.t()) == _core.content_root(matrix.t().contiguous().numpy())
    values = torch.randn(70_000, dtype=torch.complex64)
    assert root_of_tensor(values.conj()) == _core.content_root(values.numpy().conj())
