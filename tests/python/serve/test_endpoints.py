# SPDX-License-Identifier: Apache-2.0
"""What `potl serve` answers: what the log names, with proofs that hold, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import transcript_helpers as helpers

import potl
from potl import _core
from potl._serve._app import application, endpoints
from potl._serve._limits import ServeLimits
from potl._serve._served import ServedRun

JOB = _core.Job.parse(helpers.job_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 1 to 4, then from 4 on again: a run with two branches."""
    path = tmp_path_factory.mktemp("served") / "run"
    helpers.record_run(path, JOB, resume_after=5)
    (path / "key.pem").write_text("secret")
    (path / "traces").mkdir()
    (path / "checkpoints" / "step-3.safetensors.bak").write_text("secret")
    (path / "checkpoints" / "step-777.safetensors").write_text("secret")
    return path


@pytest.fixture(scope="module")
def served(run: Path) -> Iterator[ServedRun]:
    one = ServedRun(run)
    yield one
    one.close()


def get(served: ServedRun, path: str, *, token: str | None = None, **headers: str) -> Any:
    """The answer of the application, without a network."""

    async def ask() -> httpx.Response:
        app: Any = application(served, token=token, limits=ServeLimits())
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://potl") as client:
            return await client.get(
                path, headers={k.replace("_", "-"): v for k, v in headers.items()}
            )

    return asyncio.run(ask())


def test_the_listing_is_what_the_log_names(served: ServedRun, run: Path) -> None:
    listing = get(served, "/v1/run").json()
    named = {(one["step"], one["branch"]) for one in listing["checkpoints"]}
    assert named == {(0, 0), (2, 0), (4, 0), (6, 1)}
    assert listing["log"] == (run / "transcript.log").stat().st_size
    assert listing["job"] == JOB.id.hex()
    note = _core.SignedNote.parse((run / "commitment").read_text()).note
    assert listing["records"] == note.size


def test_a_record_that_is_not_whole_is_not_listed(run: Path, tmp_path: Path) -> None:
    """A resume takes it back; what is no record at all is damage, and is shown as that."""
    torn = shutil.copytree(run, tmp_path / "run")
    log = torn / "transcript.log"
    whole = log.read_bytes()[:-200]  # without the close record
    log.write_bytes(whole)
    one = ServedRun(torn)
    cut = one.listing()
    assert 0 < len(whole) - cut.log < 200
    log.write_bytes(whole[: cut.log])
    assert one.listing() == cut
    for more, listed in ((b"\xb6\0\0", 0), (b"\xb6\0\0\0\3\1", 0), (bytes(40), 40)):
        log.write_bytes(whole[: cut.log] + more)
        assert one.listing() == dataclasses.replace(cut, log=cut.log + listed)
    one.close()


FILES = {
    "/v1/job": "job.json",
    "/v1/log": "transcript.log",
    "/v1/commitment": "commitment",
    "/v1/checkpoints/4/0": "checkpoints/step-4.safetensors",
    "/v1/checkpoints/6/1": "checkpoints/step-6.b1.safetensors",
}


@pytest.mark.parametrize("path", FILES)
def test_files_come_whole_and_in_ranges(served: ServedRun, run: Path, path: str) -> None:
    whole = (run / FILES[path]).read_bytes()
    answer = get(served, path)
    assert (answer.status_code, answer.content) == (200, whole)
    assert answer.headers["potl-job"] == JOB.id.hex()
    size = len(whole)
    for asked, (first, last) in {
        "bytes=0-0": (0, 0),
        "bytes=3-9": (3, 9),
        "bytes=5-": (5, size - 1),
        f"bytes={size - 1}-{size + 100}": (size - 1, size - 1),
    }.items():
        answer = get(served, path, range=asked)
        assert (answer.status_code, answer.content) == (206, whole[first : last + 1]), asked
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{size}"
    for asked in ("bytes=4-3", "bytes=-5", "bytes=0-1,3-4", "lines=1-2", "x"):
        assert get(served, path, range=asked).content == whole, asked
    for asked in (f"bytes={size}-", f"bytes={size}-{size + 5}"):
        assert get(served, path, range=asked).status_code == 416, asked


NOT_SERVED = [
    "/",
    "/docs",
    "/v1",
    "/v1/key.pem",
    "/v1/checkpoints",
    "/v1/checkpoints/3/0",  # no state is stored there
    "/v1/checkpoints/6/0",  # of the other branch
    "/v1/checkpoints/4/1",
    "/v1/checkpoints/777/0",  # a file that no record names
    "/v1/checkpoints/0/1",
    "/v1/rounding/0",
    "/v1/rounding/9",
    "/v1/rounding/0/3",
    "/v1/telemetry",
    "/v1/records/1000",
    "/v1/records/3?size=3",
    "/v1/steps/0",
    "/v1/steps/7",
    "/v1/steps/5?branch=7",
    "/v1/checkpoints/4/0/chunks/9?tensor=step",
    "/v1/checkpoints/4/0/chunks/9?tensor=model/parameters/0.weight",
    "/v1/checkpoints/4/0/chunks/0?tensor=../../key.pem",
]
ODD = [
    "/v1/checkpoints/../../key.pem",
    "/v1/checkpoints/..%2f..%2fkey.pem/0",
    "/v1/checkpoints/%2e%2e/key.pem",
    "/v1/checkpoints/-1/0",
    "/v1/checkpoints/4/0x0",
    "/v1/checkpoints/4%00/0",
    "/v1/checkpoints/99999999999999999999/0",
    "/v1/rounding/..",
    "/v1/records/-1",
    "/v1/records/1?size=0",
    "//key.pem",
    "/v1/checkpoints/4/0/chunks/0",
]


@pytest.mark.parametrize("path", NOT_SERVED + ODD)
def test_nothing_else_is_there(served: ServedRun, path: str) -> None:
    answer = get(served, path)
    assert answer.status_code in ({404} if path in NOT_SERVED else {404, 422}), answer.text
    assert "secret" not in answer.text


def test_nothing_is_written(served: ServedRun) -> None:
    app = endpoints(served, limits=ServeLimits())
    methods = {method for paths in app.openapi()["paths"].values() for method in paths}
    assert methods == {"get"}


def test_records_open_against_the_commitment(served: ServedRun, run: Path) -> None:
    note = _core.SignedNote.parse((run / "commitment").read_text()).note
    for index in range(note.size):
        opened = get(served, f"/v1/records/{index}").json()
        record = bytes.fromhex(opened["record"])
        proof = [bytes.fromhex(one) for one in opened["proof"]]
        assert (opened["index"], opened["size"]) == (index, note.size)
        _core.verify_inclusion(index, note.size, _core.leaf_hash(record), proof, note.root)
    assert get(served, "/v1/records/2?size=4").json()["size"] == 4


def test_proofs_are_about_the_records_that_were_committed_to(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    note = _core.CheckpointNote(f"potl/v1/{JOB.id.hex()}", 4, bytes(32), ["open"])
    (copy / "commitment").write_text(note.sign(helpers.key()))
    served = ServedRun(copy)
    try:
        assert get(served, "/v1/records/1").json()["size"] == 4
        assert get(served, "/v1/records/4").status_code == 404
    finally:
        served.close()


@pytest.mark.parametrize("place", [(1, 0), (5, 0), (5, 1), (6, 1)])
def test_steps_are_found_in_their_branch(served: ServedRun, place: tuple[int, int]) -> None:
    record = bytes.fromhex(get(served, f"/v1/steps/{place[0]}?branch={place[1]}").json()["record"])
    assert record[0] == 3
    assert int.from_bytes(record[34:42], "little") == place[0]


def test_a_chunk_opens_against_the_tree_of_its_state(served: ServedRun, run: Path) -> None:
    path = "/v1/checkpoints/6/1"
    tree = get(served, f"{path}/tree").content
    record = bytes.fromhex(get(served, "/v1/steps/6?branch=1").json()["record"])
    assert _core.sha256(b"potl.state.v1\0" + tree) in record
    opened = get(served, f"{path}/chunks/0?tensor=model/parameters/0.weight").json()
    root = bytes.fromhex(opened["root"])
    assert root in tree
    chunk = bytes.fromhex(opened["chunk"])
    proof = [bytes.fromhex(one) for one in opened["proof"]]
    _core.verify_chunk(root, opened["bytes"], 0, chunk, proof)
    assert chunk in (run / FILES[path]).read_bytes()


def test_the_log_may_grow_and_lose_its_end(tmp_path: Path) -> None:
    key = helpers.key()
    recorder = _core.Recorder.create(str(tmp_path / "run"), JOB, key, software="example")
    recorder.append_initial(helpers.state_at(0))
    helpers.append_steps(recorder, JOB, 1, 2)
    recorder.abandon()
    served = ServedRun(tmp_path / "run")
    try:
        before = get(served, "/v1/run").json()["records"]
        assert get(served, "/v1/steps/3").status_code == 404
        recorder, step, _ = _core.Recorder.resume(str(tmp_path / "run"), JOB, key, software="x")
        helpers.append_steps(recorder, JOB, step + 1, 6)
        recorder.close()
        assert get(served, "/v1/run").json()["records"] > before
        assert get(served, "/v1/steps/3?branch=1").status_code == 200
        log = tmp_path / "run" / "transcript.log"
        other = tmp_path / "other"
        helpers.record_run(other, JOB)
        log.write_bytes((other / "transcript.log").read_bytes())
        assert get(served, "/v1/steps/3?branch=1").status_code == 404
        assert get(served, "/v1/steps/3").status_code == 200
    finally:
        served.close()


def test_a_log_that_takes_the_place_of_the_first_one_is_served(tmp_path: Path) -> None:
    """Or its states were said to be missing, which a verifier holds against the trainer."""
    key, run = helpers.key(), tmp_path / "run"
    recorder = _core.Recorder.create(str(run), JOB, key, software="example")
    recorder.append_initial(helpers.state_at(0))
    helpers.append_steps(recorder, JOB, 1, 2)
    recorder.abandon()
    served = ServedRun(run)
    try:
        assert get(served, "/v1/checkpoints/4/0").status_code == 404
        helpers.record_run(tmp_path / "anew", JOB)
        shutil.copytree(tmp_path / "anew" / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
        (tmp_path / "anew" / "transcript.log").replace(run / "transcript.log")
        assert get(served, "/v1/checkpoints/4/0").status_code == 200
        other = _core.Job.parse(helpers.job_text(seed=8))
        helpers.record_run(tmp_path / "other", other)
        for name in ("job.json", "transcript.log"):
            (tmp_path / "other" / name).replace(run / name)
        for path in ("/v1/run", "/v1/checkpoints/4/0"):
            assert get(served, path).status_code == 500
        (run / "transcript.log").unlink()
        for path in ("/v1/run", "/v1/log", "/v1/checkpoints/4/0"):
            assert get(served, path).status_code == 404
    finally:
        served.close()


def test_a_run_that_is_still_copied_is_not_said_to_have_no_states(tmp_path: Path) -> None:
    """Who verifies meanwhile would reject it for withholding them."""
    run = tmp_path / "run"
    helpers.record_run(run, JOB)
    served = ServedRun(run)
    try:
        log, job = run / "transcript.log", run / "job.json"
        whole = log.read_bytes()
        log.unlink()
        log.write_bytes(whole[: len(whole) // 2])
        assert get(served, "/v1/checkpoints/4/0").status_code == 500
        job.replace(tmp_path / "job.json")
        log.write_bytes(whole)
        assert get(served, "/v1/checkpoints/4/0").status_code == 500
        (tmp_path / "job.json").replace(job)
        assert get(served, "/v1/checkpoints/4/0").status_code == 200
    finally:
        served.close()


@pytest.mark.parametrize(
    "name", ["checkpoints/step-2.safetensors", "checkpoints", "transcript.log", "job.json"]
)
def test_links_are_not_followed(run: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / name).rename(tmp_path / "elsewhere")
    (copy / name).symlink_to(tmp_path / "elsewhere")
    # A verifier would refuse such a run: who serves it is told.
    with pytest.raises(potl.PotlError):
        ServedRun(copy)


def test_a_link_that_appears_later_is_neither_followed_nor_missing(
    run: Path, tmp_path: Path
) -> None:
    """Somebody may have moved it to another disk, which a verifier would take for withheld."""
    for name, path in {
        "checkpoints/step-2.safetensors": "/v1/checkpoints/2/0",
        "checkpoints": "/v1/checkpoints/2/0",
        "commitment": "/v1/commitment",
    }.items():
        copy = shutil.copytree(run, tmp_path / name / "run")
        served = ServedRun(copy)
        try:
            (copy / name).rename(tmp_path / name / "elsewhere")
            (copy / name).symlink_to(tmp_path / name / "elsewhere")
            assert get(served, path).status_code == 500
            assert get(served, "/v1/run").status_code == 500
        finally:
            served.close()


def test_what_the_system_does_not_open_is_not_said_to_be_missing(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A verifier holds what is missing against the trainer."""
    served = ServedRun(run)
    opening, broken = os.open, ""

    def refused(path: Any, *given: Any, dir_fd: int | None = None) -> int:
        if path == broken:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opening(path, *given, dir_fd=dir_fd)

    try:
        monkeypatch.setattr(os, "open", refused)
        for name, path in {
            "checkpoints": "/v1/checkpoints/2/0",
            "rounding": "/v1/run",
            "telemetry.log": "/v1/telemetry",
            "job.json": "/v1/run",
        }.items():
            broken = name
            for asked in (path, "/v1/run"):
                assert get(served, asked).status_code == 500
                assert "Too many open files" in caplog.text
                caplog.clear()
    finally:
        served.close()


def test_a_state_that_goes_while_it_is_listed_hides_no_other(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    served = ServedRun(copy)
    scanning = os.scandir

    @contextlib.contextmanager
    def scanned(place: Any) -> Iterator[list[os.DirEntry[str]]]:
        with scanning(place) as entries:
            found = sorted(entries, key=lambda one: one.name)
        (copy / "checkpoints" / "step-0.safetensors").unlink(missing_ok=True)
        yield found

    try:
        before = get(served, "/v1/run").json()["checkpoints"]
        monkeypatch.setattr(os, "scandir", scanned)
        assert get(served, "/v1/run").json()["checkpoints"] == before[1:]
    finally:
        served.close()


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic correct-horse-battery", "correct-horse-battery"],
)
def test_a_wrong_token_opens_nothing(served: ServedRun, given: str) -> None:
    for path in ("/v1/run", "/v1/log", "/openapi.json", "/nothing"):
        headers = {"authorization": given} if given else {}
        answer = get(served, path, token="correct-horse-battery", **headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


def test_the_right_token_opens(served: ServedRun) -> None:
    token = "correct-horse-battery"
    assert get(served, "/v1/run", token=token, authorization=f"Bearer {token}").status_code == 200
    assert get(served, "/v1/run", token=token, authorization=f"bearer  {token}").status_code == 200


def test_the_openapi_names_every_endpoint(served: ServedRun) -> None:
    page = Path(__file__).parents[3] / "docs/format/http.md"
    text = page.read_text()
    paths = json.loads(get(served, "/openapi.json").text)["paths"]
    assert len(paths) == 12
    for path in paths:
        assert f"`{path}`" in text, path
