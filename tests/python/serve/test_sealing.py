# SPDX-License-Identifier: Apache-2.0
"""What `potl serve --for` answers: nobody but the key that was named, and that request alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import transcript_helpers as helpers

import potl
from potl import _core
from potl._remote._sealed import FRAME_BYTES, Opening, bound, opened_size, sealed_size
from potl._serve._app import application
from potl._serve._limits import ServeLimits
from potl._serve._served import ServedRun

JOB = _core.Job.parse(helpers.job_text())
KEY, OTHER = _core.OpeningKey.generate(), _core.OpeningKey.generate()
NONCE = "5e" * 16
SIZES = (0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealing") / "run"
    helpers.record_run(path, JOB)
    return path


@pytest.fixture(scope="module")
def served(run: Path) -> Iterator[ServedRun]:
    one = ServedRun(run)
    yield one
    one.close()


def get(
    served: ServedRun,
    path: str,
    *,
    seal: str | None = f"{KEY.public_key.key_id} {NONCE}",
    method: str = "GET",
    **headers: str,
) -> Any:
    given = headers if seal is None else {"potl-seal": seal, **headers}

    async def ask() -> httpx.Response:
        app: Any = application(
            served, token=None, limits=ServeLimits(), readers=[OTHER.public_key, KEY.public_key]
        )
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://potl") as client:
            return await client.request(method, path, headers=given)

    return asyncio.run(ask())


def opened(came: Any, path: str, *, key: _core.OpeningKey = KEY, **changes: str) -> bytes:
    """What an answer to a request holds. MismatchError: it is none to that one."""
    about = {"method": "GET", "target": path, "wanted": "", "job": JOB.id.hex(), "nonce": NONCE}
    info = bound(**{**about, "answer": came.headers["potl-answer"], **changes})
    opening = Opening(key, info, opened_size(len(came.content)))
    content = b"".join(opening.take(came.content))
    assert opening.ended
    return content


@pytest.mark.parametrize("size", SIZES)
def test_every_size_comes_whole(served: ServedRun, run: Path, size: int) -> None:
    content = (run / "transcript.log").read_bytes()
    content = (content * (size // len(content) + 1))[:size]
    (run / "telemetry.log").write_bytes(content)
    answer = get(served, "/v1/telemetry")
    assert (answer.status_code, answer.headers["potl-answer"]) == (200, "200")
    assert len(answer.content) == int(answer.headers["content-length"]) == sealed_size(size)
    assert opened(answer, "/v1/telemetry") == content
    for at in range(0, size - 64, 5000):
        assert content[at : at + 32] not in answer.content


def test_no_other_sizes_come() -> None:
    assert [opened_size(sealed_size(size)) for size in SIZES] == list(SIZES)
    for size in (0, 47, sealed_size(FRAME_BYTES) + 1, sealed_size(FRAME_BYTES) + 16):
        with pytest.raises(ValueError, match="nothing is encrypted"):
            opened_size(size)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "POST"},
        {"target": "/v1/records/2?size=3"},
        {"target": "/v1/records/1?size=4"},
        {"wanted": "bytes=0-1"},
        {"job": "00" * 32},
        {"nonce": "5f" * 16},
        {"answer": "404"},
        {"key": OTHER},
    ],
    ids=lambda change: "-".join(change),
)
def test_an_answer_is_none_to_another_request(served: ServedRun, change: Any) -> None:
    path = "/v1/records/1?size=3"
    answer = get(served, path)
    assert b'"record"' in opened(answer, path)
    with pytest.raises(potl.MismatchError):
        opened(answer, path, **change)


def test_a_range_is_bound(served: ServedRun, run: Path) -> None:
    answer = get(served, "/v1/log", range="bytes=3-9")
    whole = (run / "transcript.log").read_bytes()
    assert answer.headers["potl-answer"] == f"206 bytes 3-9/{len(whole)}"
    assert opened(answer, "/v1/log", wanted="bytes=3-9") == whole[3:10]
    with pytest.raises(potl.MismatchError):
        opened(answer, "/v1/log", wanted="bytes=4-10")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", "404"), ("GET", "/v1/records/-1", "422"), ("POST", "/v1/log", "405")],
)
def test_what_is_refused_is_encrypted_too(
    served: ServedRun, method: str, path: str, status: str
) -> None:
    answer = get(served, path, method=method)
    assert answer.headers["potl-answer"] == status
    assert b"detail" in opened(answer, path, method=method)
    assert b"detail" not in answer.content


@pytest.mark.parametrize(
    "seal",
    [
        None,
        "",
        NONCE,
        f"{_core.OpeningKey.generate().public_key.key_id} {NONCE}",
        f"{KEY.public_key.key_id} {NONCE}00",
        f"{KEY.public_key.key_id}",
    ],
    ids=["none", "empty", "no key", "another key", "a longer nonce", "no nonce"],
)
def test_who_names_no_key_that_is_known_gets_nothing(served: ServedRun, seal: str | None) -> None:
    for path in ("/v1/run", "/v1/log", "/openapi.json", "/nothing"):
        answer = get(served, path, seal=seal)
        assert (answer.status_code, len(answer.content) < 100) == (403, True)
        assert answer.headers["potl-job"] == JOB.id.hex()
