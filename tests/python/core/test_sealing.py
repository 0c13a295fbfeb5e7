# SPDX-License-Identifier: Apache-2.0
"""Encryption to a key, compared with another implementation of RFC 9180."""

from __future__ import annotations

import pytest

import potl
from potl import _core

INFO = b"what both know"


def test_another_implementation_opens_what_was_sealed_and_seals_what_opens() -> None:
    hpke = pytest.importorskip("cryptography.hazmat.primitives.hpke")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    key = _core.OpeningKey.generate()
    theirs = serialization.load_pem_private_key(key.to_pem().encode(), None)
    public = serialization.load_pem_public_key(key.public_key.to_pem().encode())
    assert public.public_bytes_raw() == key.public_key.raw

    sealer = _core.FrameSealer(key.public_key, INFO)
    sealed = sealer.head + sealer.seal(b"weights", last=True)
    assert suite.decrypt(sealed, theirs, info=INFO) == b"weights"

    sealed = suite.encrypt(b"weights", public, info=INFO)
    opener = _core.FrameOpener(key, sealed[:32], INFO)
    assert opener.open(sealed[32:], last=True) == b"weights"


def test_a_frame_opens_once_and_in_its_place() -> None:
    key = _core.OpeningKey.generate()
    sealer = _core.FrameSealer(_core.SealingKey.from_pem(key.public_key.to_pem()), INFO)
    first, last = sealer.seal(b"a", last=False), sealer.seal(b"b", last=True)
    opener = _core.FrameOpener(_core.OpeningKey.from_pem(key.to_pem()), sealer.head, INFO)
    for frame, ends in ((last, True), (first, True), (b"", False)):
        with pytest.raises(potl.MismatchError):
            opener.open(frame, last=ends)
    assert opener.open(first, last=False) == b"a"
    assert opener.open(last, last=True) == b"b"
    with pytest.raises(potl.UsageError):
        sealer.seal(b"c", last=True)
    with pytest.raises(potl.MalformedError):
        _core.SealingKey.from_raw(bytes(32))


def test_a_key_for_signatures_is_told_from_one_for_encryption() -> None:
    signs, opens = _core.SigningKey.generate(), _core.OpeningKey.generate()
    with pytest.raises(potl.MalformedError, match=r"but one that signs.*--encryption"):
        _core.OpeningKey.from_pem(signs.to_pem())
    with pytest.raises(potl.MalformedError, match=r"but one for signatures.*--encryption"):
        _core.SealingKey.from_pem(signs.public_key.to_pem())
    with pytest.raises(potl.MalformedError, match=r"but one for encryption.*without"):
        _core.SigningKey.from_pem(opens.to_pem())
    with pytest.raises(potl.MalformedError, match=r"but one for encryption.*without"):
        _core.PublicKey.from_pem(opens.public_key.to_pem())


def test_the_wrong_half_of_a_pair_is_told_with_the_name_of_the_other() -> None:
    opens = _core.OpeningKey.generate()
    with pytest.raises(potl.MalformedError, match=r"but a public one.*\*\.pem that"):
        _core.OpeningKey.from_pem(opens.public_key.to_pem())
    with pytest.raises(potl.MalformedError, match=r"but a secret one.*\*\.pub that"):
        _core.SealingKey.from_pem(opens.to_pem())
