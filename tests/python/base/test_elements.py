# SPDX-License-Identifier: Apache-2.0
"""Bytes of elements, wherever they lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from potl._base._elements import bytes_of_elements
from potl._dispute._contents import _bytes as contents
from potl._dispute._parts import _bytes as parts
from potl._dispute._recompute import bytes_of as element
from potl._dispute._roots import _of_copy as root
from potl._record._trace import _digest as digest
from potl._spot_check._gradients import bytes_of as weights
from potl._task._sample_bytes import sample_bytes

TABLE = torch.arange(12.0).reshape(4, 3)
ONE = TABLE[1:2, 2]  # contiguous, as one element always is, with a stride of 3


@pytest.mark.parametrize(
    "tensor",
    [
        *(TABLE, TABLE.T, TABLE[::2], ONE, ONE[None], TABLE[0, 0], TABLE[:0], TABLE[:, 1] > 3),
        torch.tensor([1 + 2j, 3j]).conj(),
    ],
)
def test_they_are_in_the_order_of_the_indices(tensor: torch.Tensor) -> None:
    expected = tensor.resolve_conj().numpy().tobytes()
    assert bytes_of_elements(tensor).numpy().tobytes() == expected


def test_they_are_not_copied_where_they_lie_in_order() -> None:
    assert bytes_of_elements(TABLE[1:]).data_ptr() == TABLE[1:].data_ptr()


@pytest.mark.parametrize(
    "read",
    [
        sample_bytes,
        contents,
        parts,
        root,
        lambda one: element(one, 0),
        lambda one: digest(one, contents=True),
        lambda one: [bytes(data) for data in weights([one])],
    ],
)
def test_one_number_of_a_column_is_read_like_any(read: Callable[[torch.Tensor], object]) -> None:
    assert read(ONE) == read(torch.tensor([5.0]))
