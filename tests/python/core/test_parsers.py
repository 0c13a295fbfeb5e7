# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON and safetensors files as Python sees them."""

import gc
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings, strategies as st

from potl import _core

MAX_INTEGER = 2**53 - 1
TEXT = st.text(st.characters(blacklist_categories=("Cs",)))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)
DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "U16": np.uint16,
    "I32": np.int32,
    "U32": np.uint32,
    "I64": np.int64,
    "U64": np.uint64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}


@given(VALUES)
def test_canonical_json_means_to_json_loads_what_was_written(value: object) -> None:
    # RFC 8785 spells a double above 2^53 as an integer that is that double only after rounding.
    assert json.loads(_core.canonical_json(value), parse_int=float) == value


@given(VALUES)
def test_parse_json_and_canonical_json_are_inverse(value: object) -> None:
    text = _core.canonical_json(value)
    parsed = _core.parse_json(text)
    assert parsed == value
    assert _core.canonical_json(parsed) == text


@given(VALUES)
def test_every_spelling_has_the_same_canonical_form(value: object) -> None:
    spelled = json.dumps(value, indent=1).encode()
    assert _core.canonical_json(_core.parse_json(spelled)) == _core.canonical_json(value)


@given(st.dictionaries(TEXT, st.none(), max_size=20))
def test_names_are_ordered_by_utf16(value: dict[str, None]) -> None:
    names = list(json.loads(_core.canonical_json(value)))
    assert names == sorted(value, key=lambda name: name.encode("utf-16-be"))


@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:0123456789.eE+-tfn\\u ').map(str.encode))
def test_whatever_is_accepted_json_loads_accepts_too(data: bytes) -> None:
    try:
        value = _core.parse_json(data)
    except _core.PotlError:
        return
    assert json.loads(data, parse_int=float) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, -(2**53), 2**80])
def test_numbers_that_json_cannot_carry_are_refused(value: float) -> None:
    with pytest.raises(_core.UsageError):
        _core.canonical_json(value)


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": b"x"}, [{1}]])
def test_types_that_json_does_not_have_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        _core.canonical_json(value)


def test_a_list_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(_core.UsageError):
        _core.canonical_json(value)


def test_limits_and_malformed_texts_are_different_errors() -> None:
    with pytest.raises(_core.LimitError):
        _core.parse_json(b"[" * 100_000)
    with pytest.raises(_core.LimitError):
        _core.parse_json(b"[1]", max_bytes=2)
    with pytest.raises(_core.MalformedError):
        _core.parse_json(b'{"a":1,"a":2}')


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, np.ndarray]:
    names = draw(st.lists(TEXT.filter(lambda n: n != "__metadata__"), unique=True, max_size=6))
    out = {}
    for name in names:
        dtype = np.dtype(DTYPES[draw(st.sampled_from(sorted(DTYPES)))])
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        raw = draw(st.binary(min_size=count, max_size=count))
        if dtype == np.bool_:
            raw = bytes(b & 1 for b in raw)
        out[name] = np.frombuffer(raw, dtype=dtype).reshape(shape)
    return out


def dtype_name(array: np.ndarray) -> str:
    return next(name for name, dtype in DTYPES.items() if array.dtype == dtype)


@settings(deadline=None, max_examples=50)
@given(tensors=arrays(), metadata=st.dictionaries(TEXT, TEXT, max_size=3))
def test_the_reference_library_reads_what_is_written(
    tmp_path_factory: pytest.TempPathFactory,
    tensors: dict[str, np.ndarray],
    metadata: dict[str, str],
) -> None:
    path = tmp_path_factory.mktemp("safetensors") / "file.safetensors"
    listed = [(name, dtype_name(a), a.shape, a.tobytes()) for name, a in tensors.items()]
    _core.write_safetensors(str(path), listed, metadata)
    loaded = safetensors.numpy.load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()
    with safetensors.safe_open(path, framework="np") as reference:
        assert (reference.metadata() or {}) == metadata
    first = path.read_bytes()
    _core.write_safetensors(str(path), listed[::-1], metadata)
    assert path.read_bytes() == first


@settings(deadline=None, max_examples=50)
@given(tensors=arrays(), metadata=st.dictionaries(TEXT, TEXT, max_size=3))
def test_what_the_reference_library_writes_is_read(
    tensors: dict[str, np.ndarray], metadata: dict[str, str]
) -> None:
    data = safetensors.numpy.save(tensors, metadata or None)
    file = _core.SafetensorsFile.parse(data)
    assert file.metadata == metadata
    assert file.names() == sorted(tensors, key=str.encode)
    for name, array in tensors.items():
        dtype, shape, view = file.tensor(name)
        assert dtype == dtype_name(array)
        assert shape == array.shape
        assert view.tobytes() == array.tobytes()


def test_torch_loads_every_dtype(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    kinds = {
        "BOOL": torch.bool,
        "U8": torch.uint8,
        "I8": torch.int8,
        "I16": torch.int16,
        "U16": torch.uint16,
        "I32": torch.int32,
        "U32": torch.uint32,
        "I64": torch.int64,
        "U64": torch.uint64,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F32": torch.float32,
        "F64": torch.float64,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "C64": torch.complex64,
    }
    sizes = {name: torch.empty(0, dtype=kind).element_size() for name, kind in kinds.items()}
    tensors = [(name, name, (3,), bytes([1] * 3 * sizes[name])) for name in kinds]
    path = tmp_path / "all.safetensors"
    _core.write_safetensors(str(path), tensors, {})
    loaded = load_file(path)
    for name, kind in kinds.items():
        assert loaded[name].dtype == kind
        assert bytes(loaded[name].view(torch.uint8).numpy()) == tensors[list(kinds).index(name)][3]


def test_a_tensor_outlives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    content = bytes(range(256)) * 4096
    _core.write_safetensors(str(path), [("a", "U8", (len(content),), content)], {})
    file = _core.SafetensorsFile.open(str(path))
    _, _, view = file.tensor("a")
    del file
    gc.collect()
    assert view.readonly
    assert view.tobytes() == content


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(_core.LimitError):
        _core.SafetensorsFile.open(str(path), max_bytes=1 << 20)
    with pytest.raises(_core.MissingError):
        _core.SafetensorsFile.open(str(tmp_path / "gone"))


def test_a_tensor_that_is_not_there_is_a_key_error() -> None:
    file = _core.SafetensorsFile.parse(struct.pack("<Q", 2) + b"{}")
    assert file.names() == []
    with pytest.raises(KeyError):
        file.tensor("a")


@pytest.mark.parametrize(
    "tensor",
    [
        ("a", "F32", (2,), b"1234"),
        ("a", "f32", (1,), b"1234"),
        ("a", "U8", (2**63, 2), b""),
    ],
)
def test_tensors_that_do_not_fit_are_refused_and_nothing_is_written(
    tmp_path: Path, tensor: tuple[str, str, tuple[int, ...], bytes]
) -> None:
    with pytest.raises(_core.UsageError):
        _core.write_safetensors(str(tmp_path / "a"), [tensor], {})
    with pytest.raises(_core.UsageError):
        _core.write_safetensors(str(tmp_path / "a"), [("a", "U8", (), b"1")] * 2, {})
    assert list(tmp_path.iterdir()) == []
