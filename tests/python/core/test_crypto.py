# SPDX-License-Identifier: Apache-2.0
"""Hashes, keys, notes, challenges and random fills as Python sees them.

The random sequences are compared with the definitions in the headers, written again here.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from potl import _core

M32, M64 = 2**32 - 1, 2**64 - 1
KEY = _core.derive_key(7, "python test", 1, 2)
WORDS = struct.unpack("<2Q", KEY[:16])


def philox(counter: list[int], key: list[int]) -> list[int]:
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (b >> 32) ^ counter[1] ^ key[0],
            b & M32,
            (a >> 32) ^ counter[3] ^ key[1],
            a & M32,
        ]
        key = [(key[0] + 0x9E3779B9) & M32, (key[1] + 0xBB67AE85) & M32]
    return counter


def pair(index: int, stream: int = 0) -> list[int]:
    high = (WORDS[1] + stream) & M64
    block = philox(
        [index & M32, index >> 32, high & M32, high >> 32], [WORDS[0] & M32, WORDS[0] >> 32]
    )
    return [block[1] << 32 | block[0], block[3] << 32 | block[2]]


def bits(index: int) -> int:
    return pair(index // 2)[index % 2]


def below(index: int, bound: int) -> int:
    for attempt in range(1000):
        value = pair(index, attempt // 2)[attempt % 2]
        if value < 2**64 - 2**64 % bound:
            return value % bound
    raise AssertionError


def test_derive_key_hashes_what_its_header_says() -> None:
    message = b"potl.prf.v1\0" + struct.pack("<QQ", 7, 11) + b"python test"
    assert hashlib.sha256(message + struct.pack("<QQQ", 2, 1, 2)).digest() == KEY


def test_uniform_and_bernoulli_follow_the_definition() -> None:
    start = 2**63 + 5
    expected = np.array([(bits(start + i) >> 11) * 2.0**-53 for i in range(99)])
    out = np.empty(99)
    _core.fill_uniform(out, KEY, start, 0.0, 1.0)
    assert out.tolist() == expected.tolist()
    _core.fill_uniform(out, KEY, start, -1.5, 2.0)
    assert out.tolist() == (-1.5 + expected * 3.5).tolist()
    single = np.empty(99, np.float32)
    _core.fill_uniform(single, KEY, start, -1.5, 2.0)
    assert single.tolist() == out.astype(np.float32).tolist()
    mask = np.empty(99, np.bool_)
    _core.fill_bernoulli(mask, KEY, start, 0.4)
    assert mask.tolist() == (expected < 0.4).tolist()


@pytest.mark.parametrize(("low", "high"), [(0, 10), (-5, 2**62), (-(2**63), 2**63 - 1)])
def test_integers_follow_the_definition(low: int, high: int) -> None:
    out = np.empty(200, np.int64)
    _core.fill_integers(out, KEY, 3, low, high)
    assert out.tolist() == [low + below(3 + i, high - low) for i in range(200)]


def test_permutation_follows_the_definition() -> None:
    expected = list(range(100))
    for i in range(99, 0, -1):
        j = below(i, i + 1)
        expected[i], expected[j] = expected[j], expected[i]
    assert list(struct.unpack("<100q", _core.permutation(KEY, 100))) == expected
    out = np.empty(100, np.int64)
    _core.fill_permutation(out, KEY)
    assert out.tolist() == expected
    _core.fill_permutation(out, KEY[:16])
    assert out.tolist() == expected


def test_draws_follow_the_definition() -> None:
    nonce, commitment = hashlib.sha256(b"n").digest(), hashlib.sha256(b"c").digest()

    def words() -> Iterator[int]:
        message = b"potl.challenge.v1\0" + commitment + b"replay"
        seed = hmac.digest(nonce, message, "sha256")
        for counter in range(1000):
            yield from struct.unpack("<4Q", hmac.digest(seed, struct.pack("<Q", counter), "sha256"))

    stream = words()
    places = list(range(1000))
    for i in range(50):
        bound = 1000 - i
        j = i + next(x for x in stream if x < 2**64 - 2**64 % bound) % bound
        places[i], places[j] = places[j], places[i]
    assert _core.draw_without_replacement(nonce, commitment, "replay", 1000, 50) == places[:50]
    assert len(set(_core.draw_without_replacement(nonce, commitment, "", 10**12, 999))) == 999


def test_nonces_are_fresh() -> None:
    assert len({_core.fresh_nonce() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.fill_normal(np.empty(4, np.int64), KEY, 0, 0.0, 1.0),
        lambda: _core.fill_normal(np.empty(4, np.float16), KEY, 0, 0.0, 1.0),
        lambda: _core.fill_integers(np.empty(4, np.int32), KEY, 0, 0, 5),
        lambda: _core.fill_normal(np.empty(4), KEY[:7], 0, 0.0, 1.0),
        lambda: _core.fill_normal(np.empty(4), KEY, 0, 0.0, -1.0),
        lambda: _core.fill_normal(np.empty(33, np.uint8)[1:].view(np.float64), KEY, 0, 0.0, 1.0),
        lambda: _core.draw_without_replacement(KEY, KEY, "", 3, 4),
        lambda: _core.permutation(KEY, 2**50),
        lambda: _core.rule_enabled("no.such.rule"),
    ],
)
def test_misuse_raises_usage_errors(call: Callable[[], object]) -> None:
    with pytest.raises(_core.UsageError):
        call()


@pytest.mark.parametrize("buffer", [bytes(8), np.empty((4, 4))[:, 1], "text", 5])
def test_what_is_not_a_writable_contiguous_buffer_is_refused(buffer: Any) -> None:
    with pytest.raises((BufferError, ValueError, TypeError)):
        _core.fill_normal(buffer, KEY, 0, 0.0, 1.0)


def test_long_work_leaves_other_threads_running() -> None:
    data = bytes(64 << 20)
    done = threading.Event()
    ticks = 0

    def work() -> None:
        _core.content_root(data)
        _core.sha256(data)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    # The work takes about 60 ms; a held lock would leave one or two ticks.
    assert ticks >= 5


def test_content_root_ignores_the_element_type() -> None:
    values = np.arange(600_000, dtype=np.float32).reshape(600, 1000)
    root = _core.content_root(values.tobytes())
    assert _core.content_root(values) == root
    proof = _core.open_chunk(values, 5)
    chunk = values.tobytes()[5 * _core.CONTENT_CHUNK_BYTES : 6 * _core.CONTENT_CHUNK_BYTES]
    _core.verify_chunk(root, values.nbytes, 5, chunk, proof)
    with pytest.raises(_core.MismatchError):
        _core.verify_chunk(root, values.nbytes, 6, chunk, proof)


def test_a_tree_proves_to_python_too() -> None:
    tree = _core.MerkleTree()
    for i in range(20):
        assert tree.append(_core.leaf_hash(bytes([i]))) == i
    _core.verify_inclusion(7, 20, tree.leaf(7), tree.inclusion_proof(7, 20), tree.root())
    proof = tree.consistency_proof(13, 20)
    _core.verify_consistency(13, 20, proof, tree.root_at(13), tree.root())
    with pytest.raises(_core.MismatchError):
        _core.verify_consistency(13, 20, proof, tree.root_at(12), tree.root())
    with pytest.raises(_core.MalformedError):
        _core.verify_inclusion(7, 20, b"short", [], tree.root())
    with pytest.raises(_core.UsageError):
        tree.leaf(20)
    assert len(tree) == tree.size == 20


def test_notes_and_keys_work_together() -> None:
    key = _core.SigningKey.generate()
    note = _core.CheckpointNote("potl/v1/ab", 20, _core.sha256(b"root"), ["closed"])
    text = note.sign(key)
    parsed = _core.SignedNote.parse(text)
    assert parsed.note == note
    assert str(parsed) == text
    parsed.verify(key.public_key)
    assert _core.SignedNote.parse(text.encode()).signatures[0][0] == "potl/v1/ab"
    other = _core.SigningKey.generate().public_key
    with pytest.raises(_core.MissingError, match=other.raw.hex()):
        parsed.verify(other)
    with pytest.raises(_core.MalformedError):
        _core.SignedNote.parse(text[:-1])
    again = _core.SigningKey.from_pem(key.to_pem())
    assert {again.public_key, key.public_key} == {_core.PublicKey.from_raw(key.public_key.raw)}
    assert again.sign(b"x") == key.sign(b"x")
    assert key.public_key.raw.hex() in repr(key) and key.public_key.raw.hex() in repr(
        key.public_key
    )
    with pytest.raises(_core.MalformedError, match="potl keygen"):
        _core.SigningKey.from_pem("not a key")


def test_errors_carry_message_and_remedy_and_survive_a_process_pool() -> None:
    with pytest.raises(_core.PotlError) as caught:
        _core.PublicKey.from_pem("")
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is _core.MalformedError
    assert "potl keygen" in error.remedy
    assert str(error) == f"{error.message} ({error.remedy})"
    assert str(_core.UsageError("no")) == "no"
    assert _core.UsageError("no", remedy="do").remedy == "do"


def test_rules_are_listed_and_in_force() -> None:
    names = [name for name, _ in _core.rules()]
    assert len(names) == len(set(names)) > 20
    assert all(_core.rule_enabled(name) for name in names)
    # With POTL_HOOKS=1 the module is the other one, as whoever plays mutants needs it.
    assert hasattr(_core, "set_rule_enabled") == bool(os.environ.get("POTL_HOOKS"))


def test_only_the_module_with_hooks_can_switch_a_rule_off() -> None:
    hooks = pytest.importorskip("potl._core_hooks")
    if os.environ.get("POTL_HOOKS"):
        pytest.skip("potl._core is that module then")
    hooks.set_rule_enabled("replay.optimizer", False)
    try:
        assert not hooks.rule_enabled("replay.optimizer")
        assert _core.rule_enabled("replay.optimizer")
    finally:
        hooks.set_rule_enabled("replay.optimizer", True)
    with pytest.raises(hooks.UsageError):
        hooks.set_rule_enabled("no.such.rule", False)
