# SPDX-License-Identifier: Apache-2.0
"""A second implementation of docs/format/transcript.md with struct, json, base64 and hashlib alone.

Written from the document, so that a difference between document and library is a failing test; and
able to write logs, so that tests can forge them. Strict only where the document demands it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

Tree: TypeAlias = Any

LOG_HEADER = b"potl-log" + struct.pack("<II", 1, 0)
CHUNK = 16 * 1024


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# ------------------------------------------------------------------------------- Merkle trees


def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\x00" + data)


def root_of(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, of leaf hashes."""
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return sha256(b"\x01" + root_of(leaves[:half]) + root_of(leaves[half:]))


def content_root(data: bytes) -> bytes:
    return root_of([leaf_hash(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)])


# ------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class Header:
    job_id: bytes
    trainer: bytes
    software: str


@dataclass(frozen=True)
class Initial:
    job_id: bytes
    state: bytes


@dataclass(frozen=True)
class Step:
    job_id: bytes
    step: int
    epoch: int
    sample_ids: bytes
    loss: int  # bits of the double
    random_draws: int
    flags: int
    duration_ns: int
    state: bytes
    rates: tuple[int, ...]  # bits of doubles
    rounding: tuple[bytes, int] | None = None  # digest and size of the rounding log


@dataclass(frozen=True)
class Resume:
    job_id: bytes
    from_step: int
    last_step: int
    number: int
    log_size: int
    log_root: bytes
    state: bytes
    signature: bytes


@dataclass(frozen=True)
class Close:
    job_id: bytes
    step: int
    state: bytes
    telemetry: bytes


Record: TypeAlias = Header | Initial | Step | Resume | Close


def encode_record(record: Record) -> bytes:
    version = 1
    match record:
        case Header():
            text = record.software.encode()
            body = record.trainer + struct.pack("<I", len(text)) + text
            kind = 1
        case Initial():
            body, kind = record.state, 2
        case Step():
            body = struct.pack("<QQ32sQQIQ32sI", record.step, record.epoch, record.sample_ids,
                               record.loss, record.random_draws, record.flags, record.duration_ns,
                               record.state, len(record.rates))  # fmt: skip
            body += b"".join(struct.pack("<Q", rate) for rate in record.rates)
            if record.rounding is not None:
                version = 2
                body += struct.pack("<32sQ", *record.rounding)
            kind = 3
        case Resume():
            body = struct.pack("<QQQQ32s32s64s", record.from_step, record.last_step, record.number,
                               record.log_size, record.log_root, record.state,
                               record.signature)  # fmt: skip
            kind = 4
        case Close():
            body, kind = struct.pack("<Q32s32s", record.step, record.state, record.telemetry), 5
    return struct.pack("<BB", kind, version) + record.job_id + body


def decode_record(payload: bytes) -> Record:
    kind, version = payload[0], payload[1]
    job_id, body = payload[2:34], payload[34:]
    assert version == 1 or (kind, version) == (3, 2)
    record: Record
    if kind == 1:
        (length,) = struct.unpack_from("<I", body, 32)
        record = Header(job_id, body[:32], body[36 : 36 + length].decode())
    elif kind == 2:
        record = Initial(job_id, body)
    elif kind == 3:
        values: tuple[Any, ...] = struct.unpack_from("<QQ32sQQIQ32sI", body)
        rates = struct.unpack_from(f"<{values[-1]}Q", body, 112)
        rounding = struct.unpack_from("<32sQ", body, 112 + 8 * values[-1]) if version == 2 else None
        record = Step(job_id, *(*values[:-1], rates, rounding))
    elif kind == 4:
        record = Resume(job_id, *struct.unpack("<QQQQ32s32s64s", body))
    elif kind == 5:
        record = Close(job_id, *struct.unpack("<Q32s32s", body))
    else:
        raise ValueError(f"kind {kind}")
    assert encode_record(record) == payload
    return record


def resume_message(record: Resume) -> bytes:
    """What the signature of a resume signs."""
    return b"potl.resume.v1\x00" + encode_record(record)[:-64]


# ------------------------------------------------------------------------------- transcript.log


def parse_log(data: bytes) -> list[bytes]:
    """Payloads of the frames, whose chain is checked."""
    assert data[:16] == LOG_HEADER
    chain, at, payloads = sha256(LOG_HEADER), 16, []
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        payload = data[at + 4 : at + 4 + length]
        chain = sha256(chain + payload)
        assert data[at + 4 + length : at + 36 + length] == chain
        payloads.append(payload)
        at += length + 36
    return payloads


def format_log(payloads: list[bytes]) -> bytes:
    out, chain = LOG_HEADER, sha256(LOG_HEADER)
    for payload in payloads:
        chain = sha256(chain + payload)
        out += struct.pack("<I", len(payload)) + payload + chain
    return out


def log_root(payloads: list[bytes]) -> bytes:
    return root_of([leaf_hash(payload) for payload in payloads])


# ------------------------------------------------------------------------------- states


@dataclass(frozen=True)
class TensorValue:
    dtype: str
    memory_format: str
    dims: tuple[int, ...]
    root: bytes


@dataclass(frozen=True)
class AliasValue:
    path: str


def encode_tree(tree: Tree) -> bytes:
    def sized(tag: int, data: bytes) -> bytes:
        return struct.pack("<BQ", tag, len(data)) + data

    if tree is None:
        return b"\x00"
    if isinstance(tree, bool):
        return b"\x02" if tree else b"\x01"
    if isinstance(tree, int):
        return struct.pack("<Bq", 3, tree)
    if isinstance(tree, float):
        return struct.pack("<Bd", 4, tree)
    if isinstance(tree, str):
        return sized(5, tree.encode())
    if isinstance(tree, bytes):
        return sized(6, tree)
    if isinstance(tree, list | tuple):
        head = struct.pack("<BQ", 7 if isinstance(tree, list) else 8, len(tree))
        return head + b"".join(map(encode_tree, tree))
    if isinstance(tree, dict):
        numbers = sorted(key for key in tree if isinstance(key, int))
        names = sorted((key for key in tree if isinstance(key, str)), key=str.encode)
        out = struct.pack("<BQ", 9, len(tree))
        for key in [*numbers, *names]:
            out += encode_tree(key) + encode_tree(tree[key])
        return out
    if isinstance(tree, TensorValue):
        out = struct.pack("<BB", 10, len(tree.dtype)) + tree.dtype.encode()
        out += struct.pack("<B", len(tree.memory_format)) + tree.memory_format.encode()
        out += struct.pack(f"<B{len(tree.dims)}Q", len(tree.dims), *tree.dims)
        return out + tree.root
    if isinstance(tree, AliasValue):
        return sized(11, tree.path.encode())
    raise TypeError(type(tree))


@dataclass
class _Reader:
    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        assert len(part) == size
        self.at += size
        return part

    def value(self) -> Tree:
        tag = self.take(1)[0]
        if tag <= 2:
            return (None, False, True)[tag]
        if tag == 10:
            dtype = self.take(self.take(1)[0]).decode()
            memory_format = self.take(self.take(1)[0]).decode()
            rank = self.take(1)[0]
            dims = struct.unpack(f"<{rank}Q", self.take(8 * rank))
            return TensorValue(dtype, memory_format, dims, self.take(32))
        word = self.take(8)
        if tag == 3:
            return struct.unpack("<q", word)[0]
        if tag == 4:
            return struct.unpack("<d", word)[0]
        (size,) = struct.unpack("<Q", word)
        if tag == 5:
            return self.take(size).decode()
        if tag == 6:
            return self.take(size)
        if tag == 7:
            return [self.value() for _ in range(size)]
        if tag == 8:
            return tuple(self.value() for _ in range(size))
        if tag == 9:
            return {self.value(): self.value() for _ in range(size)}
        assert tag == 11
        return AliasValue(self.take(size).decode())


def decode_tree(data: bytes) -> Tree:
    reader = _Reader(data)
    tree = reader.value()
    assert reader.at == len(data)
    return tree


def state_digest(encoding: bytes) -> bytes:
    return sha256(b"potl.state.v1\x00" + encoding)


def tensors_of(tree: Tree, path: str | None = None) -> dict[str, TensorValue]:
    """Tensors by their path."""
    out: dict[str, TensorValue] = {}

    def below(name: str) -> str:
        return name if path is None else f"{path}/{name}"

    if isinstance(tree, TensorValue):
        out[path or ""] = tree
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            out |= tensors_of(item, below(str(index)))
    elif isinstance(tree, dict):
        for key, item in tree.items():
            name = f"#{key}"
            if isinstance(key, str):
                name = key.replace("~", "~0").replace("/", "~1")
                name = "~2" + name[1:] if name.startswith("#") else name
            out |= tensors_of(item, below(name))
    return out


SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
         "BF16": 2, "I32": 4, "U32": 4, "F32": 4,
         "I64": 8, "U64": 8, "F64": 8, "C64": 8}  # fmt: skip


def format_checkpoint(tree: Tree, contents: dict[str, bytes], base: bytes | None = None) -> bytes:
    """The one file that stands for a state, or the one with what the file `base` does not hold."""
    encoding = encode_tree(tree)
    there = tensors_of(tree)
    metadata = {"format": "potl-checkpoint-v1"}
    if base is not None:
        known, _, digest = parse_checkpoint(base)
        same = {
            path
            for path, t in tensors_of(known).items()
            if path in there and there[path] == t and len(contents[path]) >= 65536
        }
        there = {path: t for path, t in there.items() if path not in same}
        if same:
            metadata = {"base": digest.hex(), "format": "potl-checkpoint-v2"}
    tensors = [(path, t.dtype, t.dims, contents[path]) for path, t in there.items()]
    tensors.append(("potl.state", "U8", (len(encoding),), encoding))
    tensors.sort(key=lambda one: (-SIZES[one[1]], one[0].encode()))
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, dtype, dims, data in tensors:
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)


def parse_checkpoint(
    data: bytes, base: bytes | None = None
) -> tuple[Tree, dict[str, bytes], bytes]:
    """Tree, tensors by path, state digest; every tensor is compared with its root in the tree.

    Args:
        data: The file.
        base: The file of the initial state, for one of the second version.
    """
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    contents = {
        name: data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]]
        for name, entry in header.items()
    }
    encoding = contents.pop("potl.state")
    tree = decode_tree(encoding)
    if metadata["format"] == "potl-checkpoint-v2":
        assert base is not None
        contents = {**parse_checkpoint(base)[1], **contents}
    else:
        base = None
    for path, tensor in tensors_of(tree).items():
        assert content_root(contents[path]) == tensor.root
        if path in header:
            assert header[path]["dtype"] == tensor.dtype
            assert tuple(header[path]["shape"]) == tensor.dims
    contents = {path: contents[path] for path in tensors_of(tree)}
    assert format_checkpoint(tree, contents, base) == data
    return tree, contents, state_digest(encoding)


# ------------------------------------------------------------------------------- jobs and order


def job_id(text: bytes) -> bytes:
    return sha256(b"potl.job.v1\x00" + text)


def derive_key(seed: int, label: str, *indices: int) -> bytes:
    name = label.encode()
    data = b"potl.prf.v1\x00" + struct.pack("<QQ", seed, len(name)) + name
    return sha256(data + struct.pack(f"<Q{len(indices)}Q", len(indices), *indices))


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, int, int, int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def random_below(key: int, stream: int, index: int, bound: int) -> int:
    attempt = 0
    while True:
        high = (stream + attempt // 2) & (2**64 - 1)
        block = philox((index & 0xFFFFFFFF, index >> 32, high & 0xFFFFFFFF, high >> 32),
                       (key & 0xFFFFFFFF, key >> 32))  # fmt: skip
        pair = (block[1] << 32 | block[0], block[3] << 32 | block[2])
        bits = pair[attempt % 2]
        attempt += 1
        if bits < 2**64 - 2**64 % bound:
            return bits % bound


def sample_ids(job: dict[str, Any], step: int) -> list[int]:
    count, batch = job["data"]["count"], job["batch_size"]
    per_epoch = count // batch if job["drop_last"] else -(-count // batch)
    epoch, position = divmod(step - 1, per_epoch)
    key, stream = struct.unpack("<QQ", derive_key(job["seed"], "order", epoch)[:16])
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        other = random_below(key, stream, i, i + 1)
        order[i], order[other] = order[other], order[i]
    return order[position * batch : position * batch + batch]


def digest_of_ids(ids: list[int]) -> bytes:
    return sha256(struct.pack(f"<{len(ids)}q", *ids))


# ------------------------------------------------------------------------------- runs


@dataclass
class Run:
    """A run directory in memory, to look at or to change."""

    path: Path
    job: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Run:
        payloads = parse_log((path / "transcript.log").read_bytes())
        job = json.loads((path / "job.json").read_bytes())
        return cls(path, job, [decode_record(payload) for payload in payloads])

    @property
    def payloads(self) -> list[bytes]:
        return [encode_record(record) for record in self.records]

    def root(self) -> bytes:
        return log_root(self.payloads)

    def steps(self) -> list[int]:
        """Where in the records the steps are."""
        return [at for at, record in enumerate(self.records) if isinstance(record, Step)]

    def change(self, at: int, **fields: Any) -> None:
        """Replaces fields of one record."""
        self.records[at] = replace(self.records[at], **fields)

    def write(self) -> None:
        """Writes the log with a new chain, as a prover who lies would."""
        (self.path / "transcript.log").write_bytes(format_log(self.payloads))


@dataclass(frozen=True)
class Note:
    text: bytes  # what is signed
    origin: str
    size: int
    root: bytes
    extensions: list[str]
    key_name: str
    key_hash: bytes
    signature: bytes


def parse_note(note: str) -> Note:
    signed, _, signatures = note.partition("\n\n")
    origin, size, root, *extensions = signed.split("\n")
    dash, key_name, blob = signatures.rstrip("\n").split(" ")
    assert dash == "\u2014"
    raw = base64.b64decode(blob, validate=True)
    return Note(signed.encode() + b"\n", origin, int(size), base64.b64decode(root, validate=True),
                extensions, key_name, raw[:4], raw[4:])  # fmt: skip


def key_hash(key_name: str, public_key: bytes) -> bytes:
    return sha256(key_name.encode() + b"\n\x01" + public_key)[:4]
