# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: keys, what they sign, and what is encrypted to them."""

from collections.abc import Sequence

from ._core import Buffer, ReadableBuffer

class PublicKey:
    """An Ed25519 key that verifies."""

    @staticmethod
    def from_raw(raw: Buffer) -> PublicKey: ...
    @staticmethod
    def from_pem(pem: str) -> PublicKey: ...
    @property
    def raw(self) -> bytes: ...
    def to_pem(self) -> str: ...
    def verify(self, message: ReadableBuffer, signature: Buffer) -> None:
        """MismatchError unless the signature is this key's."""
    def __hash__(self) -> int: ...

class SigningKey:
    """An Ed25519 key that signs."""

    @staticmethod
    def generate() -> SigningKey: ...
    @staticmethod
    def from_seed(seed: Buffer) -> SigningKey: ...
    @staticmethod
    def from_pem(pem: str) -> SigningKey:
        """An unencrypted PKCS#8 block; MalformedError names `potl keygen`."""
    @property
    def public_key(self) -> PublicKey: ...
    def sign(self, message: ReadableBuffer) -> bytes: ...
    def to_pem(self) -> str: ...

class CheckpointNote:
    """Origin, size, root and extension lines of a log: what a signed note says."""

    def __init__(
        self, origin: str, size: int, root: Buffer, extensions: Sequence[str] = ()
    ) -> None: ...
    @property
    def origin(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def root(self) -> bytes: ...
    @property
    def extensions(self) -> list[str]: ...
    def text(self) -> str:
        """The signed text. UsageError when a field cannot be written."""
    def sign(self, key: SigningKey) -> str:
        """The signed note; the name of the key is the origin."""

MAX_NOTE_BYTES: int

class SignedNote:
    """A parsed signed note; nothing is verified by parsing. str() gives the same text again."""

    @staticmethod
    def parse(text: str | Buffer) -> SignedNote: ...
    @property
    def note(self) -> CheckpointNote: ...
    @property
    def signatures(self) -> list[tuple[str, bytes, bytes]]:
        """Key name, key hash and signature of each signature line."""
    def verify(self, key: PublicKey) -> None:
        """MissingError: no signature by this key; MismatchError: a wrong one."""

class SealingKey:
    """An X25519 key to which something is encrypted."""

    @staticmethod
    def from_raw(raw: Buffer) -> SealingKey: ...
    @staticmethod
    def from_pem(pem: str) -> SealingKey: ...
    @property
    def raw(self) -> bytes: ...
    @property
    def key_id(self) -> str:
        """Hexadecimal SHA-256 of `raw`."""
    def to_pem(self) -> str: ...

class OpeningKey:
    """Its secret half, which opens that."""

    @staticmethod
    def generate() -> OpeningKey: ...
    @staticmethod
    def from_pem(pem: str) -> OpeningKey:
        """An unencrypted PKCS#8 block; MalformedError names `potl keygen --encryption`."""
    @property
    def public_key(self) -> SealingKey: ...
    def to_pem(self) -> str: ...

class FrameSealer:
    """Encrypts a stream of frames: RFC 9180, see include/potl/crypto/sealing.hpp."""

    def __init__(self, key: SealingKey, info: Buffer) -> None: ...
    @property
    def head(self) -> bytes:
        """32 bytes, which the opener needs first."""
    def seal(self, plain: Buffer, last: bool) -> bytes:
        """The next frame. UsageError after the last."""

class FrameOpener:
    """Reads that stream with the secret key."""

    def __init__(self, key: OpeningKey, head: Buffer, info: Buffer) -> None:
        """MalformedError: this is not a head."""
    def open(self, sealed: Buffer, last: bool) -> bytes:
        """What was sealed in the next frame; MismatchError: this is not that frame."""

MAX_ATTESTATION_BYTES: int

def sign_attestation(report: Buffer, key: SigningKey, *, signed_at: str) -> bytes:
    """The envelope of a report, which is given as JSON: docs/format/attestation.md."""

def open_attestation(
    envelope: Buffer,
    signer: PublicKey,
    *,
    model: str | None = None,
    job: bytes | None = None,
    commitment: str | None = None,
    trainer: bytes | None = None,
) -> tuple[bytes, str]:
    """The report as canonical JSON and the time of signing, after it was compared with the file of
    a model, the id of a job and the signed note of a commitment. The key of the trainer, who may
    not be the signer, is the job's.
    """
