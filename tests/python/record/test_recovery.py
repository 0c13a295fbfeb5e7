# SPDX-License-Identifier: Apache-2.0
"""Crashes, full disks and read errors: nothing acknowledged is lost, and nothing is mistaken for
the end of a log."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import kill_writer
import pure_format as pure
import pytest
from transcript_helpers import append_step, append_steps, job_text, key, long_job, state_at

from potl import _core

KILLS = 2000 if os.environ.get("POTL_FULL") == "1" else 200
# What one process leaves, the next resumes; a new directory now and then.
KILLS_PER_RUN = 20


def kill_once(context: Any, path: Path, delay: float) -> int:
    """Starts the writer, kills it `delay` seconds after it is ready; the last acknowledged step."""
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=kill_writer.record, args=(str(path), theirs))
    process.start()
    theirs.close()
    acknowledged = int(mine.recv())
    end = time.monotonic() + delay
    with contextlib.suppress(EOFError):
        while (left := end - time.monotonic()) > 0:
            if mine.poll(left):
                acknowledged = int(mine.recv())
        process.kill()
        while True:
            acknowledged = int(mine.recv())
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return acknowledged


def complete_frames(data: bytes) -> int:
    """Bytes up to the end of the last complete frame."""
    at = 16
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little") + 32
        if end > len(data):
            break
        at = end
    return at


def newest_checkpoint(payloads: list[bytes]) -> tuple[str, bytes] | None:
    """File name and state digest of the last checkpoint that a record announces."""
    found, branch = None, ""
    for record in map(pure.decode_record, payloads):
        if isinstance(record, pure.Resume):
            branch = f".b{record.number}"
        if isinstance(record, pure.Step) and record.flags & 8:
            found = (f"step-{record.step}{branch}.safetensors", record.state)
    return found


def test_no_acknowledged_step_is_lost_by_kills(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    context = forked.context()
    path, before, checked = tmp_path / "run0", b"", 0
    for kill in range(KILLS):
        if kill % KILLS_PER_RUN == 0:
            path, before, checked = tmp_path / f"run{kill}", b"", 0
        acknowledged = kill_once(context, path, draw.uniform(0.0, 0.03))
        data = (path / "transcript.log").read_bytes()
        # What the last process resumed from is still there, and a prefix.
        assert data.startswith(before)
        before = data[: complete_frames(data)]
        payloads = pure.parse_log(before)
        last = 0
        for at, record in enumerate(map(pure.decode_record, payloads)):
            if isinstance(record, pure.Step):
                last = max(last, record.step)
                if at >= checked:
                    assert record.state == state_at(record.step).digest()
        assert last >= acknowledged
        checked = len(payloads)
        if (newest := newest_checkpoint(payloads)) is not None:
            # It was durable before the record that announces it.
            _, _, digest = pure.parse_checkpoint((path / "checkpoints" / newest[0]).read_bytes())
            assert digest == newest[1]
        for line in _core.inspect_run(str(path))["damage"]:
            assert "breaks off" in line or "no initial record" in line


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_reported_within_one_step_and_harms_nothing(tmp_path: Path) -> None:
    job = long_job(100, checkpoint_every=5, max_segment=5)
    path = tmp_path / "run"
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_steps(recorder, job, 1, 7)
    recorder.flush()
    before = (path / "transcript.log").read_bytes()
    with file_size_limit(len(before) + 300):
        step = 7
        with pytest.raises(_core.StorageError):
            for step in range(8, 12):
                append_step(recorder, job, step)
        assert step <= 10  # step 8 fits, step 9 does not
        for _ in range(2):
            with pytest.raises(_core.StorageError):
                append_step(recorder, job, 12)
        with pytest.raises(_core.StorageError):
            recorder.close()
    after = (path / "transcript.log").read_bytes()
    assert after.startswith(before)
    # What could be written is on the disk before anybody hears of what could not.
    assert recorder.acknowledged() == steps_in(after) >= 7
    del recorder

    recorder, step, state = _core.Recorder.resume(str(path), job, key(), software="")
    assert step == 5 and state.digest() == state_at(5).digest()
    assert (path / "transcript.log").read_bytes().startswith(before)
    append_steps(recorder, job, step + 1, job.steps)
    recorder.close()
    _core.commit_run(str(path), key())


def test_a_disk_that_is_full_for_checkpoints_is_reported(tmp_path: Path) -> None:
    job = long_job(10, checkpoint_every=2, max_segment=2)
    recorder = _core.Recorder.create(str(tmp_path / "run"), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_step(recorder, job, 1)
    recorder.flush()
    with file_size_limit(400), pytest.raises(_core.StorageError):
        append_step(recorder, job, 2)
        append_step(recorder, job, 3)
    assert not (tmp_path / "run" / "checkpoints" / "step-2.safetensors").exists()


@contextlib.contextmanager
def small_file_system(path: Path) -> Iterator[Path]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def steps_in(log: bytes) -> int:
    records = [pure.decode_record(payload) for payload in pure.parse_log(log)]
    return sum(isinstance(record, pure.Step) for record in records)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_file_system_is_reported_within_one_step(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small") as small:
        job = long_job(10_000, checkpoint_every=1, max_segment=1)
        recorder = _core.Recorder.create(str(small / "run"), job, key(), software="")
        try:
            recorder.append_initial(state_at(0))
            last = 0
            with pytest.raises(_core.StorageError):
                for step in range(1, 10_000):
                    append_step(recorder, job, step)
                    last = step
            acknowledged = recorder.acknowledged()
            # One step may be with the writer while the trainer is at the next.
            assert last - acknowledged <= 1
        finally:
            # Lets go of the files, so that the file system can be unmounted.
            with contextlib.suppress(_core.StorageError):
                recorder.abandon()
        log = (small / "run" / "transcript.log").read_bytes()
        assert steps_in(log) == acknowledged


def test_a_log_that_cannot_be_read_is_an_error_and_not_an_empty_run(tmp_path: Path) -> None:
    job = _core.Job.parse(job_text())
    path = tmp_path / "run"
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    recorder.abandon()
    log = path / "transcript.log"
    log.unlink()
    log.mkdir()
    for attempt in (
        lambda: _core.Recorder.resume(str(path), job, key(), software=""),
        lambda: _core.Recorder.create(str(path), job, key(), software=""),
        lambda: _core.Evidence.open(str(path), job=job, commitment=None),
        lambda: _core.inspect_run(str(path)),
        lambda: _core.commit_run(str(path), key()),
    ):
        with pytest.raises(_core.PotlError) as caught:
            attempt()
        assert not isinstance(caught.value, _core.MissingError)


def test_a_run_that_was_killed_before_its_first_state_is_begun_again(tmp_path: Path) -> None:
    path, job = tmp_path / "run", long_job(4)
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_steps(recorder, job, 1, 4)
    recorder.abandon()
    log = path / "transcript.log"
    whole = log.read_bytes()
    header = 16 + 4 + int.from_bytes(whole[16:20], "little") + 32
    first = header + 4 + int.from_bytes(whole[header : header + 4], "little") + 32
    (path / ".job.json.1234567890.tmp").write_bytes(b"half")
    for size in range(header, first):
        log.write_bytes(whole[:size])
        assert not _core.holds_run(str(path))
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_steps(recorder, job, 1, 4)
    recorder.abandon()
    assert log.read_bytes() == whole
    # A run of which the second record was damaged later is not written over.
    log.write_bytes(whole[:header] + (60000).to_bytes(4, "little") + whole[header + 4 :])
    assert _core.holds_run(str(path))
    with pytest.raises(_core.UsageError, match="holds a run already"):
        _core.Recorder.create(str(path), job, key(), software="")


def test_leaving_a_recorder_loses_nothing(tmp_path: Path) -> None:
    job = long_job(10)
    recorder = _core.Recorder.create(str(tmp_path / "run"), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_steps(recorder, job, 1, 4)
    del recorder  # as an exception in the trainer's loop does
    assert _core.inspect_run(str(tmp_path / "run"))["steps"] == 4


def test_two_recorders_of_one_run_do_not_mix_their_records(tmp_path: Path) -> None:
    job = long_job(10)
    path = str(tmp_path / "run")
    first = _core.Recorder.create(path, job, key(), software="")
    first.append_initial(state_at(0))
    first.flush()
    with pytest.raises(_core.UsageError, match="being recorded"):
        _core.Recorder.resume(path, job, key(), software="")
    first.abandon()
    _core.Recorder.resume(path, job, key(), software="")
