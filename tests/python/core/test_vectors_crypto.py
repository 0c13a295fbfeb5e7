# SPDX-License-Identifier: Apache-2.0
"""Published test vectors of hashes, Merkle proofs and signatures.

Skipped where ../shared/vectors is absent.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from potl import _core

VECTORS = Path(os.environ.get("POTL_SHARED", ROOT.parent / "shared")) / "vectors"

pytestmark = pytest.mark.skipif(
    not VECTORS.is_dir(),
    reason=f"no test vectors at {VECTORS}; POTL_SHARED names their parent directory",
)


def accepts(verify: Callable[[], None]) -> bool:
    try:
        verify()
    except (_core.MismatchError, _core.MalformedError):
        return False
    return True


def as_digest(root: bytes) -> bytes:
    """Some consistency probes have short texts for roots, which here have 32 bytes by type."""
    return root if len(root) == 32 else _core.sha256(b"stands for " + root)


def merkle_verifier(probe: dict[str, Any], kind: str) -> Callable[[], None]:
    proof = [base64.b64decode(item) for item in probe["proof"] or []]
    hashes = {
        name: base64.b64decode(probe[name] or "")
        for name in ("root", "leafHash", "root1", "root2")
        if name in probe
    }
    if kind == "inclusion":
        return lambda: _core.verify_inclusion(
            probe["leafIdx"], probe["treeSize"], hashes["leafHash"], proof, hashes["root"]
        )
    if kind == "consistency":
        return lambda: _core.verify_consistency(
            probe["size1"],
            probe["size2"],
            proof,
            as_digest(hashes["root1"]),
            as_digest(hashes["root2"]),
        )
    if kind == "subtreeinclusion":
        return lambda: _core.verify_subtree_inclusion(
            probe["leafIdx"],
            probe["start"],
            probe["end"],
            hashes["leafHash"],
            proof,
            hashes["root"],
        )
    return lambda: _core.verify_subtree_consistency(
        probe["start"],
        probe["end"],
        probe["size"],
        proof,
        as_digest(hashes["root1"]),
        as_digest(hashes["root2"]),
    )


@pytest.mark.parametrize(
    ("kind", "probes", "valid"),
    [
        ("inclusion", 98, 6),
        ("consistency", 98, 6),
        ("subtreeinclusion", 204, 12),
        ("subtreeconsistency", 118, 12),
    ],
)
def test_all_518_merkle_probes_have_the_published_verdict(
    kind: str, probes: int, valid: int
) -> None:
    outcomes = []
    for path in sorted((VECTORS / "merkle-rfc6962/testdata" / kind).rglob("*.json")):
        probe = json.loads(path.read_text())
        accepted = accepts(merkle_verifier(probe, kind))
        assert accepted is not probe["wantErr"], path
        outcomes.append(accepted)
    assert (len(outcomes), sum(outcomes)) == (probes, valid)


def test_published_trees_have_the_published_roots() -> None:
    trees = json.loads((VECTORS / "merkle-rfc6962/transcribed/rfc6962_trees.json").read_text())
    tree = _core.MerkleTree()
    assert tree.root().hex() == trees["root_by_size_hex"][0]
    for i, (data, leaf) in enumerate(
        zip(trees["leaf_inputs_hex"], trees["leaf_hashes_hex"], strict=True)
    ):
        assert _core.leaf_hash(bytes.fromhex(data)).hex() == leaf
        tree.append(bytes.fromhex(leaf))
        assert tree.root().hex() == trees["root_by_size_hex"][i + 1]
    assert tree.size == 8


def records(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The (section, fields) records of a CAVP response file."""
    section, fields = "", {}
    for line in [*path.read_text().splitlines(), ""]:
        text = line.strip()
        if text.startswith("["):
            section = text.strip("[]")
        elif "=" in text:
            name, value = text.split("=", 1)
            fields[name.strip()] = value.strip()
        elif fields and not text:
            yield section, fields
            fields = {}


@pytest.mark.parametrize(
    ("file", "function", "count"),
    [
        ("SHA256ShortMsg.rsp", _core.sha256, 65),
        ("SHA256LongMsg.rsp", _core.sha256, 64),
        ("SHA512ShortMsg.rsp", _core.sha512, 129),
    ],
)
def test_nist_messages_have_the_published_digests(
    file: str, function: Callable[[bytes], bytes], count: int
) -> None:
    seen = 0
    for _, fields in records(VECTORS / "nist-cavp" / file):
        message = bytes.fromhex(fields["Msg"])[: int(fields["Len"]) // 8]
        assert function(message).hex() == fields["MD"]
        seen += 1
    assert seen == count


@pytest.mark.parametrize(
    ("file", "function"), [("SHA256Monte.rsp", _core.sha256), ("SHA512Monte.rsp", _core.sha512)]
)
def test_nist_monte_carlo_chains_end_where_published(
    file: str, function: Callable[[bytes], bytes]
) -> None:
    seed, seen = b"", 0
    for _, fields in records(VECTORS / "nist-cavp" / file):
        if "Seed" in fields:
            seed = bytes.fromhex(fields["Seed"])
            continue
        last = [seed] * 3
        for _ in range(1000):
            last = [last[1], last[2], function(b"".join(last))]
        seed = last[2]
        assert seed.hex() == fields["MD"]
        seen += 1
    assert seen == 100


def test_nist_hmac_codes_are_reproduced() -> None:
    functions = {"L=32": _core.hmac_sha256, "L=64": _core.hmac_sha512}
    seen = dict.fromkeys(functions, 0)
    for section, fields in records(VECTORS / "nist-cavp/HMAC.rsp"):
        if section in functions and "Key" in fields:
            code = functions[section](bytes.fromhex(fields["Key"]), bytes.fromhex(fields["Msg"]))
            assert code[: int(fields["Tlen"])].hex() == fields["Mac"]
            seen[section] += 1
    assert seen == {"L=32": 225, "L=64": 375}


def wycheproof(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    document = json.loads((VECTORS / f"wycheproof/testvectors_v1/{name}_test.json").read_text())
    for group in document["testGroups"]:
        for test in group["tests"]:
            yield group, test


@pytest.mark.parametrize(
    ("name", "function"), [("hmac_sha256", _core.hmac_sha256), ("hmac_sha512", _core.hmac_sha512)]
)
def test_wycheproof_hmac_verdicts(name: str, function: Callable[[bytes, bytes], bytes]) -> None:
    seen = 0
    for group, test in wycheproof(name):
        code = function(bytes.fromhex(test["key"]), bytes.fromhex(test["msg"]))[
            : group["tagSize"] // 8
        ]
        equal = _core.equal_constant_time(code, bytes.fromhex(test["tag"]))
        assert equal is (test["result"] == "valid"), test
        seen += 1
    assert seen == 174


def test_wycheproof_ed25519_verdicts() -> None:
    seen = 0
    for group, test in wycheproof("ed25519"):
        key = _core.PublicKey.from_pem(group["publicKeyPem"])
        assert key.raw.hex() == group["publicKey"]["pk"]
        message, signature = bytes.fromhex(test["msg"]), bytes.fromhex(test["sig"])
        accepted = accepts(lambda: key.verify(message, signature))  # noqa: B023
        assert accepted is (test["result"] == "valid"), test
        seen += 1
    assert seen == 151


def test_1024_published_ed25519_signatures_are_reproduced() -> None:
    path = VECTORS / "ed25519-sign-input/securesystemslib/_vendor/ed25519/test_data/ed25519"
    seen = 0
    for line in path.read_text().split():
        secret, public, message, signed = (bytes.fromhex(field) for field in line.split(":")[:4])
        key = _core.SigningKey.from_seed(secret[:32])
        assert key.public_key.raw == public
        assert key.sign(message) == signed[:64]
        key.public_key.verify(message, signed[:64])
        seen += 1
    assert seen == 1024
