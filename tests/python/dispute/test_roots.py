# SPDX-License-Identifier: Apache-2.0
"""Content roots of tensors as they lie in memory are those of their elements in order, with any
number of torch's threads, wherever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl
from potl import _core
from potl._dispute import _roots
from potl._task._values import DTYPES

CHUNK = _core.CONTENT_CHUNK_BYTES

WIDE = torch.arange(700 * 96, dtype=torch.float32).reshape(700, 96)  # 16 chunks and more


def in_order(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return _core.content_root(plain.reshape(-1).view(torch.uint8).numpy())


LOOKS = {
    "contiguous": WIDE,
    "a part": WIDE[3:],
    "transposed": WIDE.t(),
    "columns": WIDE[:, 5:90],
    "every third row": WIDE[::3],
    "every other element": WIDE[:, ::2],
    "transposed columns": WIDE[:, 1:7].t(),
    "expanded": WIDE[:1].expand(900, 96),
    "expanded by columns": WIDE[:, :1].expand(700, 96),
    "one expanded element": WIDE[5, 5].expand(40, 41),
    "permuted": WIDE.reshape(7, 100, 8, 12).permute(2, 0, 3, 1),
    "channels last": WIDE.reshape(7, 100, 8, 12).contiguous(memory_format=torch.channels_last),
    "overlapping": WIDE.as_strided((300, 40), (7, 3)),
    "diagonal": WIDE.diagonal(),
    "scalar": WIDE[2, 3],
    "empty": WIDE[:0].t(),
    "with a gradient": WIDE.clone().requires_grad_().t(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_elements_count_and_not_how_they_lie(look: str) -> None:
    assert _roots.root_of_tensor(LOOKS[look]) == in_order(LOOKS[look])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_every_size(dtype: torch.dtype) -> None:
    items = torch.arange(130 * 70 * 16, dtype=torch.int64).to(torch.uint8)
    size = torch.empty(0, dtype=dtype).element_size()
    flat = (items & 1 if dtype == torch.bool else items)[: 130 * 70 * size].view(dtype)
    tensor = flat.reshape(130, 70)
    for one in (tensor, tensor.t(), tensor[::2, 1::3]):
        assert _roots.root_of_tensor(one) == in_order(one)


def test_what_a_tensor_only_stands_for_is_read_too() -> None:
    numbers = torch.complex(WIDE, -WIDE)
    for one in (numbers.conj(), numbers.conj().imag, numbers.t().conj()):
        assert one.is_conj() or one.is_neg()
        assert _roots.root_of_tensor(one) == in_order(one)


def test_without_operators_for_this_torch_the_roots_are_the_same() -> None:
    for look, tensor in LOOKS.items():
        assert _roots._of_copy(tensor) == in_order(tensor), look


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
        part = data[:size]
        expected = _core.content_root(part.numpy())
        turned = part[: size // 3 * 3].view(-1, 3)
        for tensor, root in ((part, expected), (turned.t(), in_order(turned.t()))):
            assert _roots.root_of_tensor(tensor) == root
            with potl.deterministic("ord32"):
                assert _roots.root_of_tensor(tensor) == root


def test_nobody_who_watches_operators_sees_the_hashing(threads: int) -> None:
    tensor = torch.arange(64 * CHUNK, dtype=torch.uint8)
    numbers = torch.complex(WIDE, WIDE).conj()
    roots = in_order(tensor), in_order(numbers)
    # This number of threads was not used before: what the threads need is made under the watch.
    torch.set_num_threads(threads + 3)
    with Watch():
        assert (_roots.root_of_tensor(tensor), _roots.root_of_tensor(numbers)) == roots
    torch.set_num_threads(threads + 4)
    with FakeTensorMode():
        assert (_roots.root_of_tensor(tensor), _roots.root_of_tensor(numbers)) == roots
    assert _roots.root_of_tensor(tensor) == roots[0]
