# SPDX-License-Identifier: Apache-2.0
"""What a referee asks and a party answers, as canonical JSON (docs/format/dispute.md).

An answer is read by somebody who does not trust its author: it is compared with digests that both
parties agreed on, and what does not fit is a MismatchError or a MalformedError.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .. import _core
from .._base._errors import LimitError, MalformedError, MismatchError, UsageError
from ._encoding import AliasOutline, TensorOutline
from ._outline import StateOutline

T = TypeVar("T")

# A tensor of a state: dtype, shape, content root, memory format, and one element or nothing.
_TENSOR, _ALIAS, _FLOAT, _BYTES, _MAP, _TUPLE = "tensor", "alias", "float", "bytes", "map", "tuple"


def to_json(document: Mapping[str, object]) -> bytes:
    """Canonical bytes."""
    return _core.canonical_json(document)


def from_json(text: bytes) -> dict[str, object]:
    """The document of an answer or a question.

    Raises:
        MalformedError: It is not an object.
    """
    # A text in it may be a quarter of that: a rounding log is the longest.
    found = _core.parse_json(text, max_bytes=32 << 20)
    if not isinstance(found, dict):
        raise MalformedError("an answer is an object")
    return dict(found)


def as_text(data: bytes) -> str:
    """Bytes in a document."""
    return base64.b64encode(data).decode()


def as_bytes(text: object) -> bytes:
    """The inverse.

    Raises:
        MalformedError: It is not base64.
    """
    if not isinstance(text, str):
        raise MalformedError("bytes are base64")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedError("bytes are base64") from error


def read_answer(read: Callable[..., T], text: bytes, *agreed: object) -> T | None:
    """What an answer says; None where it does not fit what was agreed."""
    try:
        return read(from_json(text), *agreed)
    except (MalformedError, MismatchError, LimitError):
        return None


def state_to_json(outline: StateOutline) -> dict[str, object]:
    """The outline of a state."""
    return {"state": _packed(outline.tree)}


def state_from_json(document: Mapping[str, object], digest: bytes) -> StateOutline:
    """The outline of the state with this digest.

    Raises:
        MalformedError: It is not an outline, or not in the form of `state_to_json`.
        MismatchError: It is that of another state, or has other elements than its content roots.
    """
    try:
        outline = StateOutline(_unpacked(document["state"]))
        found = outline.digest()
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        struct.error,
        UsageError,
    ) as error:
        raise MalformedError("an answer is not a state") from error
    if found != digest:
        raise MismatchError("an answer is another state than the agreed one")
    # Else there are shorter ones, that fit where an honest one finds no room.
    if _packed(outline.tree) != document["state"]:
        raise MalformedError("an answer writes a state in another form than the one that there is")
    for one in outline.tensors().values():
        if not isinstance(one, TensorOutline):
            continue
        # Counters of one element decide what a step does.
        if (one.data is not None) != (math.prod(one.shape) == 1):
            raise MismatchError("an element of the state is missing, or there is one too many")
        if one.data is not None and _core.content_root(one.data) != one.root:
            raise MismatchError("an element of the state is not that of its content root")
    return outline


def record_to_json(record: bytes, index: int, proof: Sequence[bytes]) -> dict[str, object]:
    """A record of a log with its proof."""
    return {"bytes": as_text(record), "index": index, "proof": [one.hex() for one in proof]}


def record_from_json(given: object) -> tuple[bytes, int, list[bytes]]:
    """The inverse; what the record is is not looked at.

    Raises:
        MalformedError: It is something else.
    """
    index = given.get("index") if isinstance(given, dict) else None
    if not isinstance(given, dict) or type(index) is not int or index < 0:
        raise MalformedError("a record has no place")
    return as_bytes(given.get("bytes")), index, _proof(given)


def rounding_to_json(
    shown: Sequence[tuple[bytes, int, Sequence[bytes]]], log: bytes | None
) -> dict[str, object]:
    """A rounding log, and records with their proofs; None where there is none."""
    return {
        "records": [record_to_json(*one) for one in shown],
        "log": None if log is None else as_text(log),
    }


def rounding_from_json(
    document: Mapping[str, object],
) -> tuple[list[tuple[bytes, int, list[bytes]]], bytes | None]:
    """The inverse; what the records are is not looked at.

    Raises:
        MalformedError: It is something else.
    """
    given = _member(document, "rounding")
    records, log = given.get("records"), given.get("log")
    if not isinstance(records, list):
        raise MalformedError("a rounding log has no records")
    return list(map(record_from_json, records)), None if log is None else as_bytes(log)


def leaves_to_json(leaves: Mapping[int, tuple[bytes, Sequence[bytes]]]) -> dict[str, object]:
    """Leaves of a trace with their proofs, by operator."""
    return {
        "leaves": {
            str(number): {"leaf": as_text(leaf), "proof": [one.hex() for one in proof]}
            for number, (leaf, proof) in leaves.items()
        }
    }


def leaves_from_json(
    document: Mapping[str, object], wanted: Sequence[int], size: int, root: bytes
) -> dict[int, bytes]:
    """The wanted leaves of the tree of `size` leaves with this root.

    Raises:
        MalformedError: One is missing.
        MismatchError: One is not in the tree.
    """
    given = _member(document, "leaves")
    out = {}
    for number in wanted:
        one = _member(given, str(number))
        leaf, proof = as_bytes(one.get("leaf")), _proof(one)
        _core.verify_inclusion(number, size, _core.leaf_hash(leaf), proof, root)
        out[number] = leaf
    return out


def chunks_to_json(chunks: Mapping[int, Sequence[tuple[int, bytes, Sequence[bytes]]]]) -> Any:
    """Chunks of operands with their proofs, by operand."""
    return {
        "operands": {
            str(operand): [
                {"chunk": index, "bytes": as_text(data), "proof": [one.hex() for one in proof]}
                for index, data, proof in found
            ]
            for operand, found in chunks.items()
        }
    }


def chunks_from_json(
    document: Mapping[str, object], operand: int, wanted: Sequence[int]
) -> list[tuple[int, bytes, list[bytes]]]:
    """The wanted chunks of an operand; what they belong to is not looked at.

    Raises:
        MalformedError: One is missing, or something else is there.
    """
    given = _member(document, "operands").get(str(operand))
    if not isinstance(given, list) or len(given) != len(wanted):
        raise MalformedError("an answer has other chunks than those that were asked for")
    out = []
    for one, index in zip(given, wanted, strict=True):
        if not isinstance(one, dict) or one.get("chunk") != index:
            raise MalformedError("an answer has other chunks than those that were asked for")
        out.append((index, as_bytes(one.get("bytes")), _proof(one)))
    return out


def _member(document: Mapping[str, object], name: str) -> dict[str, object]:
    found = document.get(name)
    if not isinstance(found, dict):
        raise MalformedError(f"an answer has no {name}")
    return found


def _proof(document: Mapping[str, object]) -> list[bytes]:
    given = document.get("proof")
    if not isinstance(given, list):
        raise MalformedError("a proof is a list of digests")
    try:
        return [bytes.fromhex(one) for one in given]
    except (TypeError, ValueError) as error:
        raise MalformedError("a proof is a list of digests") from error


def _packed(value: Any) -> Any:
    """A tree without what JSON does not have: [kind, ...] for all but none, bool, text, lists."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return {"int": str(value)}
    if kind is float:
        # 0/0 has its sign bit set on x86, and a digest binds that.
        negative = math.isnan(value) and math.copysign(1.0, value) < 0
        return {_FLOAT: "-nan" if negative else value.hex()}
    if kind is bytes:
        return {_BYTES: as_text(value)}
    if kind is list:
        return [_packed(item) for item in value]
    if kind is tuple:
        return {_TUPLE: [_packed(item) for item in value]}
    if kind is dict:
        return {_MAP: [[_packed(key), _packed(item)] for key, item in value.items()]}
    if kind is AliasOutline:
        return {_ALIAS: value.path}
    assert kind is TensorOutline
    root = None if value.root is None else value.root.hex()
    data = None if value.data is None else as_text(value.data)
    return {_TENSOR: [value.dtype, list(value.shape), root, value.memory_format, data]}


def _unpacked(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    ((kind, given),) = value.items()
    if kind == "int":
        return int(given)
    if kind == _FLOAT:
        return float.fromhex(given)
    if kind == _BYTES:
        return as_bytes(given)
    if kind == _TUPLE:
        return tuple(_unpacked(item) for item in given)
    if kind == _MAP:
        return {_unpacked(key): _unpacked(item) for key, item in given}
    if kind == _ALIAS:
        return AliasOutline(given)
    if kind != _TENSOR:
        raise ValueError(kind)
    dtype, shape, root, memory_format, data = given
    return TensorOutline(
        dtype,
        tuple(int(one) for one in shape),
        bytes.fromhex(root),
        memory_format,
        None if data is None else as_bytes(data),
    )
