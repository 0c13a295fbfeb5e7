# SPDX-License-Identifier: Apache-2.0
"""States as Python sees them: what can be captured, what comes back, and what it costs."""

import collections
import copy
import ctypes
import enum
import gc
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transcript_helpers import tensor

from potl import _core


def array(values: Any, dtype: str) -> _core.Tensor:
    """A tensor over a NumPy array's memory."""
    data = np.ascontiguousarray(values)
    return _core.Tensor(dtype, list(data.shape), "contiguous", data.ctypes.data, data.nbytes, data)


def test_a_captured_tree_comes_back_with_its_types() -> None:
    tree: dict[str | int, Any] = {
        "none": None,
        "flags": [True, False],
        "int": -(2**63),
        "float": 1e-320,
        "text": "\u00e9\U0001f600",
        "bytes": b"\x00\xff",
        "tuple": (1, (2.0, []), {}),
        3: {"nested": {-1: "x"}},
    }
    back = _core.State.capture(tree).tree()
    assert back == tree
    assert type(back["flags"][0]) is bool
    assert type(back["tuple"]) is tuple and type(back["tuple"][1][1]) is list


def test_tensors_come_back_as_read_only_views_of_a_copy() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = _core.State.capture({"a": [array(values, "float32")]})
    values[:] = 0
    view = state.tree()["a"][0]
    assert (view.dtype, view.shape, view.memory_format) == ("float32", (2, 3), "contiguous")
    assert view.path == "a/0"
    assert view.data.readonly and len(view.data) == 24
    assert np.frombuffer(view.data, np.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_view_keeps_its_memory_alive() -> None:
    view = _core.State.capture([tensor([1.0, 2.0])]).tree()[0].data
    gc.collect()
    for _ in range(10):
        _core.State.capture([tensor([7.0, 7.0])])
    assert np.frombuffer(view, np.float32).tolist() == [1.0, 2.0]


def test_tied_tensors_are_aliases_of_the_first_key() -> None:
    one = tensor([1.0])
    tree = _core.State.capture({"z": one, "b": one}).tree()
    assert isinstance(tree["b"], _core.TensorView)
    assert isinstance(tree["z"], _core.Alias) and tree["z"].path == "b"


def test_restoring_never_casts(tmp_path: Path) -> None:
    """The same four bytes, NaN payloads included, as three types."""
    bits = np.array([0x7FC00001, 0xFF800001], np.uint32)
    other, third = bits.copy(), bits.copy()
    state = _core.State.capture(
        {"a": array(bits, "float32"), "b": array(other, "int32"), "c": array(third, "uint32")}
    )
    state.save(str(tmp_path / "state"))
    back = _core.State.load(str(tmp_path / "state"), state.digest()).tree()
    assert [back[key].dtype for key in "abc"] == ["float32", "int32", "uint32"]
    assert all(bytes(back[key].data) == bits.tobytes() for key in "abc")


Pair = collections.namedtuple("Pair", ["a", "b"])  # noqa: PYI024


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (2**63, "str or bytes"),
        ({1, 2}, "store None"),
        (np.float64(1.0), "store None"),
        (Colour.RED, "store None"),
        (Pair(1, 2), "store None"),
        (object(), "store None"),
        ({1.5: 0}, "str or int keys"),
        ({True: 0}, "str or int keys"),
        ("\ud800", "bytes"),
    ],
)
def test_what_would_not_come_back_alike_is_refused_with_its_place(value: Any, remedy: str) -> None:
    with pytest.raises(TypeError) as caught:
        _core.State.capture({"a": [0, value]})
    assert "state['a'][1]" in str(caught.value) and remedy in str(caught.value)


def test_a_state_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contain itself"):
        _core.State.capture(loop)


def test_ordered_and_default_dictionaries_are_dictionaries() -> None:
    ordered = collections.OrderedDict(b=1, a=2)
    default: dict[str, int] = collections.defaultdict(int, {"b": 1, "a": 2})
    plain = _core.State.capture({"a": 2, "b": 1}).digest()
    assert _core.State.capture(ordered).digest() == plain == _core.State.capture(default).digest()


def test_a_tensor_must_be_what_it_says() -> None:
    memory = ctypes.create_string_buffer(8)
    address = ctypes.addressof(memory)
    with pytest.raises(_core.UsageError):
        _core.Tensor("float32", [3], "contiguous", address, 8, memory)
    with pytest.raises(TypeError):
        _core.Tensor("complex128", [1], "contiguous", address, 8, memory)
    with pytest.raises(_core.MalformedError):
        _core.State.capture(_core.Tensor("float32", [2], "strided", address, 8, memory))


def test_outlines_have_the_digest_of_their_state() -> None:
    values = array(np.arange(6, dtype="<f4").reshape(2, 3), "float32")
    rest: dict[str | int, Any] = {"b": [1, 2.5, None, True, "x", b"y", (3,)], "a": -1}
    state = _core.State.capture({**rest, 7: {"w": values, "v": values}})
    outline = _core.Outline("float32", (2, 3), "contiguous", state.roots()["#7/v"])
    tree = {**rest, 7: {"w": _core.Alias("#7/v"), "v": outline}}
    digest = _core.digest_of_encoding(_core.encode_tree(tree))
    assert digest == state.digest()
    assert digest.hex() == "6164013b10a9b0eff28834373a9c66245bfda0a85b09c02574b6363ee02df65b"
    assert _core.encode_tree({"b": 1, "a": 2, 3: 4}) == _core.encode_tree({3: 4, "a": 2, "b": 1})


def test_an_outline_is_no_tensor_and_fits_its_encoding() -> None:
    root = bytes(32)
    outline = _core.Outline("uint8", (32,), "contiguous", root)
    for one in (outline, _core.Reference("batch/0"), _core.Alias("nowhere")):
        with pytest.raises((_core.UsageError, _core.MalformedError)):
            _core.State.capture({"w": one})
    with pytest.raises(_core.UsageError, match="only outlines"):
        _core.encode_tree(array(np.zeros(32, dtype="u1"), "uint8"))
    # A length that does not fit its byte, or a longer root, would be read as what follows.
    with pytest.raises(_core.MalformedError, match="32 bytes"):
        _core.Outline("uint8", (32,), "contiguous", bytes(33))
    for dims, memory_format in (((1,) * 256, "contiguous"), ((1,), "c" * 256)):
        with pytest.raises(_core.UsageError, match="at most 255"):
            _core.Outline("uint8", dims, memory_format, root)
    with pytest.raises(TypeError, match="complex128"):
        _core.Outline("complex128", (), "contiguous", root)


def test_what_an_operator_returns_may_have_more_dimensions_than_a_tensor_of_a_state() -> None:
    dims, root = (2, *[1] * 63), bytes(range(32))
    found = _core.encode_tree(_core.Outline("uint8", dims, "contiguous", root))
    assert found == b"\x0a\x02U8\x0acontiguous\x40" + struct.pack("<64Q", *dims) + root


def test_another_digest_is_a_mismatch(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    _core.State.capture({"a": 1}).save(path)
    with pytest.raises(_core.MismatchError):
        _core.State.load(path, bytes(32))
    assert _core.State.load_unverified(path).tree() == {"a": 1}
    with pytest.raises(_core.MissingError):
        _core.State.load(path + "x", bytes(32))


def test_small_nodes_cost_less_than_a_copy_in_python() -> None:
    tree = {f"k{i}": {"a": i, "b": 0.5, "c": None, "d": [1, 2, 3]} for i in range(5000)}
    rounds = [
        (_timed(lambda: _core.State.capture(tree)), _timed(lambda: copy.deepcopy(tree)))
        for _ in range(5)
    ]
    ours, pythons = map(min, zip(*rounds, strict=True))
    assert ours < pythons


def test_other_threads_run_while_a_state_is_copied() -> None:
    """The copy of 200 MB takes tens of milliseconds; the interpreter lock is free meanwhile."""
    data = np.ones(50_000_000, np.float32)
    argument = array(data, "float32")
    ticks = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    _core.State.capture(argument)
    start = time.perf_counter()
    _core.State.capture(argument)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(start < tick < end for tick in ticks) >= 2


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
