# SPDX-License-Identifier: Apache-2.0
"""A run that is encrypted to the verifier is verified like any other, and nobody between reads it
or makes another run of it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Recorded, proxied, served

import potl
from potl import _core
from potl._cli import _cli
from potl._record._keygen import write_pair
from potl._remote._sealed import FRAME_BYTES

SEED = 1
QUICK: dict[str, Any] = {"checks": [potl.Replay(samples=1, top_q=0, reach=0)]}
FRAME = FRAME_BYTES + 16
# Of a run without rounding logs nobody reads them.
LARGE, AT = "rounding/branch-0.log", "/v1/rounding/0"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("keys") / "verifier", encryption=True)[0]


@pytest.fixture(scope="module")
def run(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a file that takes several frames."""
    copy = shutil.copytree(recorded.run, tmp_path_factory.mktemp("sealed") / "run")
    (copy / "rounding").mkdir(exist_ok=True)
    (copy / LARGE).write_bytes(os.urandom(3 * FRAME_BYTES + 1000))
    return copy


@pytest.fixture(scope="module")
def sealed_url(run: Path, key: Path) -> Iterator[str]:
    with served(run, "--for", key.with_suffix(".pub")) as where:
        yield where


def body(raw: bytes) -> bytes:
    return raw.partition(b"\r\n\r\n")[2]


def changed(change: Callable[[bytes], bytes], path: str) -> Callable[[str, bytes], Iterator[bytes]]:
    """Alters the encrypted body of the answers of one path."""

    def answer(asked: str, raw: bytes) -> Iterator[bytes]:
        head, _, whole = raw.partition(b"\r\n\r\n")
        yield raw if asked != path else head + b"\r\n\r\n" + change(whole)

    return answer


def brought(url: str, key: Path | None, name: str, size: int, offset: int = 0) -> bytes:
    """Bytes of a file of the run."""
    parts: list[bytes] = []
    source = potl.Remote(url, key=key)._source(None)
    try:
        source.read(name, offset, size, parts.append)
    finally:
        source.close()
    return b"".join(parts)


def test_a_verification_is_the_one_from_the_disk_and_nothing_is_seen_between(
    recorded: Recorded, url: str, run: Path, sealed_url: str, key: Path
) -> None:
    def verified(where: str, secret: Path | None) -> tuple[str, bytes]:
        seen: list[bytes] = []

        def change(path: str, raw: bytes) -> Iterator[bytes]:
            seen.append(body(raw))
            yield raw

        with proxied(where, change) as proxy:
            report = recorded.verify(potl.Remote(proxy.url, key=secret), **QUICK)
        assert report.verdict == "accepted", report.json()
        return report.sentence, b"".join(seen)

    (here, plain), (there, sealed) = verified(url, None), verified(sealed_url, key)
    assert here == there
    plainly = 0
    for name in ("transcript.log", *(f"checkpoints/step-{step}.safetensors" for step in (0, 24))):
        whole = (recorded.run / name).read_bytes()
        for at in range(0, len(whole) - 32, 61):
            plainly += whole[at : at + 32] in plain
            assert whole[at : at + 32] not in sealed, (name, at)
    assert plainly > 100
    assert b"potl" in plain and b"potl-run-v1" not in sealed


def test_pieces_and_ranges_come_as_they_are(run: Path, sealed_url: str, key: Path) -> None:
    whole = (run / LARGE).read_bytes()
    for offset, size in ((0, len(whole)), (7, 1), (FRAME_BYTES - 1, 2), (len(whole) - 1, 1)):
        came = brought(sealed_url, key, LARGE, size, offset)
        assert came == whole[offset : offset + size]


def test_a_transfer_that_breaks_goes_on_where_it_broke(
    run: Path, sealed_url: str, key: Path
) -> None:
    whole = (run / LARGE).read_bytes()
    lengths: list[int] = []

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        lengths.append(len(body(raw)))
        yield raw if len(lengths) > 1 else raw[: len(raw) - FRAME]

    with proxied(sealed_url, change) as proxy:
        assert brought(proxy.url, key, LARGE, len(whole)) == whole
        # What came in whole frames does not come again, unless all was asked for.
        assert len(lengths) == 2 and lengths[1] <= 2 * FRAME
        lengths.clear()
        source = potl.Remote(proxy.url, key=key)._served()
        assert source.get(AT, limit=len(whole)) == whole
        source.close()


def frames_of(whole: bytes) -> list[bytes]:
    return [whole[32 + at : 32 + at + FRAME] for at in range(0, len(whole) - 32, FRAME)]


def framed(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:32] + b"".join(change(frames_of(whole)))


def other_stream(whole: bytes) -> bytes:
    return b"\x09" + bytes(31) + whole[32:]


FRAMES = {
    "swapped": framed(lambda f: [f[1], f[0], *f[2:]]),
    "repeated": framed(lambda f: [f[0], f[0], *f[2:]]),
    "left out": framed(lambda f: [f[0], f[2], f[2], *f[3:]]),
    "filled up": framed(lambda f: [f[0], f[1], bytes(FRAME), *f[3:]]),
    "another head": other_stream,
}


@pytest.mark.parametrize("what", FRAMES)
def test_frames_are_taken_in_their_order_alone(
    run: Path, sealed_url: str, key: Path, what: str
) -> None:
    size = (run / LARGE).stat().st_size
    with proxied(sealed_url, changed(FRAMES[what], AT)) as proxy:
        with pytest.raises(potl.StorageError, match="not encrypted for this request"):
            brought(proxy.url, key, LARGE, size)
        assert len(proxy.asked) == 1


@pytest.mark.parametrize("frames", [1, 3])
def test_an_answer_that_was_cut_and_relabelled_is_none(
    run: Path, sealed_url: str, key: Path, frames: int
) -> None:
    """Announced as what came, it lacks its last frame."""
    length = 32 + frames * FRAME
    size = frames * FRAME_BYTES

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        head, _, whole = raw.partition(b"\r\n\r\n")
        head = head.replace(b"content-length: %d" % len(whole), b"content-length: %d" % length)
        yield head + b"\r\n\r\n" + whole[:length]

    whole = (run / LARGE).stat().st_size
    with proxied(sealed_url, change) as proxy:
        with pytest.raises(potl.StorageError, match="more or fewer"):
            brought(proxy.url, key, LARGE, whole)
        source = potl.Remote(proxy.url, key=key)._served()
        with pytest.raises(potl.StorageError, match="not encrypted for this request"):
            source.get(AT, limit=size)
        source.close()


def test_any_bit_that_is_turned_is_trouble_on_the_way(
    recorded: Recorded, run: Path, sealed_url: str, key: Path
) -> None:
    draw = random.Random(SEED)
    log = (run / "transcript.log").read_bytes()
    same = 0

    def turned(raw: bytes) -> bytes:
        # Now and then in the head, which is short.
        bits = 8 * (raw.index(b"\r\n\r\n") if draw.random() < 0.2 else len(raw))
        bit = draw.randrange(bits)
        return raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :]

    with proxied(sealed_url, lambda _, raw: iter([turned(raw)])) as proxy:
        for _ in range(30):
            try:
                came = brought(proxy.url, key, "transcript.log", len(log))
            except (potl.StorageError, potl.UsageError):
                continue
            # A date, a header that says nothing, or an answer that was asked for again.
            assert came == log
            same += 1
    assert same < 15


def test_what_is_said_not_to_be_there_has_to_be_said_to_this_request(
    recorded: Recorded, sealed_url: str, key: Path
) -> None:
    """In the open it would be evidence that was withheld, and reject."""
    job = recorded.job.id.hex().encode()

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path.startswith("/v1/checkpoints/"):
            raw = b"HTTP/1.1 404 Not Found\r\nPotl-Job: %s\r\nContent-Length: 0\r\n\r\n" % job
        yield raw

    def relabelled(path: str, raw: bytes) -> Iterator[bytes]:
        start = b"potl-answer: 206"
        yield raw.replace(start, b"potl-answer: 404") if "/checkpoints/" in path else raw

    for answer in (change, relabelled):
        with proxied(sealed_url, answer) as proxy:
            report = recorded.verify(potl.Remote(proxy.url, key=key), **QUICK)
        assert report.verdict == "inconclusive", report.sentence
    with pytest.raises(potl.MissingError):
        brought(sealed_url, key, "checkpoints/step-3.safetensors", 1)


def test_a_bit_in_a_state_rejects_nobody(recorded: Recorded, sealed_url: str, key: Path) -> None:
    def change(path: str, raw: bytes) -> Iterator[bytes]:
        yield raw[:-1] + bytes([raw[-1] ^ 1]) if "/checkpoints/" in path else raw

    with proxied(sealed_url, change) as proxy:
        report = recorded.verify(potl.Remote(proxy.url, key=key), **QUICK)
    assert report.verdict == "inconclusive", report.sentence


def test_only_the_key_that_the_server_knows_opens(
    recorded: Recorded, url: str, sealed_url: str, key: Path, tmp_path: Path
) -> None:
    other = write_pair(tmp_path / "other", encryption=True)[0]
    for secret in (None, other):
        with pytest.raises(potl.UsageError, match="potl serve --for"):
            recorded.verify(potl.Remote(sealed_url, key=secret))
    with pytest.raises(potl.StorageError, match=r"without encrypting.*--for"):
        recorded.verify(potl.Remote(url, key=key))
    with pytest.raises(potl.MalformedError, match=r"key\.pem: .*--encryption"):
        recorded.verify(potl.Remote(sealed_url, key=recorded.folder / "key.pem"))
    with pytest.raises(potl.UsageError, match="there is no key"):
        recorded.verify(potl.Remote(sealed_url, key=tmp_path / "none.pem"))
    with pytest.raises(potl.UsageError, match="http and https"):
        potl.Remote("memory://run", key=key)


def test_the_command_line_has_it_all(
    recorded: Recorded, sealed_url: str, tmp_path: Path, key: Path
) -> None:
    line = ["verify", sealed_url, "--job", str(recorded.folder / "job.json"), "--no-ledger"]
    line += ["--commitment", str(recorded.folder / "note.txt"), "--json"]
    assert _cli.run(line) == 2
    # Nothing is replayed without a task.
    assert _cli.run([*line, "--open-with", str(key)]) == 3
    assert _cli.run(["verify", str(recorded.run), *line[2:], "--open-with", str(key)]) == 2
    assert _cli.run(["keygen", str(tmp_path / "mine"), "--encryption"]) == 0
    _core.OpeningKey.from_pem((tmp_path / "mine.pem").read_text())
    public = recorded.folder / "key.pub"
    assert _cli.run(["serve", str(recorded.run), "--for", str(public)]) == 4
    assert _cli.run(["diff", sealed_url, str(recorded.run), "--open-with", str(key)]) == 0
