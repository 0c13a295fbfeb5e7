# SPDX-License-Identifier: Apache-2.0
"""What a prover can make a verifier pay: crafted runs against the honest one of the same job.

Every run is verified in a process of its own, which measures the processor time of `potl.verify`
and its own largest memory (torch included, as for the honest run).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import measuring
import torch
from torch import nn
from torch.nn import functional

import potl
from potl._attacks import Scene
from potl._attacks._frames import Frames

EPOCHS, EVERY = 20, 5
MIB = 1 << 20
STEP, EPOCH, FLAGS, RATES = 34, 42, 98, 142  # where the fields of a step record begin


def build() -> potl.Task:
    """Momentum SGD on the digits: 0.3 million parameters, 14 steps an epoch."""
    import workloads

    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10),
    )  # fmt: skip
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
        dataset=workloads.digits(),
        loss=functional.cross_entropy,
        batch_size=128,
        epochs=EPOCHS,
    )


def measure(run: str, job: str, note: str) -> None:
    """In the child: one verification."""
    import time

    began = time.process_time()
    found: dict[str, object] = {"verdict": "", "replayed": 0}
    try:
        report = potl.verify(
            run, job=job, commitment=Path(note), task=build, ledger=None, progress=False
        )
        found["verdict"] = report.verdict
        found["replayed"] = len(json.loads(report.json())["replays"])
    except (potl.PotlError, OSError) as error:
        found["verdict"] = type(error).__name__
    found["seconds"] = time.process_time() - began
    # Not ru_maxrss, which remembers the parent from which this process was forked.
    status = Path("/proc/self/status").read_text()
    found["bytes"] = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps(found))


# ------------------------------------------------------------------ the crafted runs


def last_step_says(number: int) -> Callable[[Scene, Path], None]:
    def craft(scene: Scene, run: Path) -> None:
        frames = Frames.read(run)
        frames.payloads[-2] = _with(frames.payloads[-2], STEP, struct.pack("<Q", number))
        frames.write(run, chained=True)

    return craft


def every_epoch_is_vast(scene: Scene, run: Path) -> None:
    _rewrite(run, lambda payload: _with(payload, EPOCH, struct.pack("<Q", 1 << 63)))


def every_step_has_a_state(scene: Scene, run: Path) -> None:
    _rewrite(run, lambda payload: _with(payload, FLAGS, struct.pack("<I", 8)))
    folder = run / "checkpoints"
    for step in range(1, scene.job.core.steps):
        if not (folder / f"step-{step}.safetensors").exists():
            os.link(folder / "step-5.safetensors", folder / f"step-{step}.safetensors")


def thousands_of_rates(scene: Scene, run: Path) -> None:
    rates = struct.pack("<I", 4096) + struct.pack("<4096d", *[0.02] * 4096)
    _rewrite(run, lambda payload: payload[:RATES] + rates)


def rounding_logs_where_there_are_none(scene: Scene, run: Path) -> None:
    bound = bytes(32) + struct.pack("<Q", 1 << 28)
    _rewrite(run, lambda payload: payload[:1] + b"\x02" + payload[2:] + bound)


def steps_over_and_over(scene: Scene, run: Path) -> None:
    frames = Frames.read(run)
    steps = frames.payloads[2:-1]
    frames.payloads[2:-1] = (steps * 1000)[: _room(scene) // 300]
    frames.write(run, chained=True)


def resumes_over_and_over(scene: Scene, run: Path) -> None:
    frames = Frames.read(run)
    steps = frames.payloads[2:-1]
    resume = b"\x04\x01" + steps[0][2:34] + bytes(8 * 4 + 32 + 32 + 64)
    blocks = [resume, *steps] * 1000
    frames.payloads[2:-1] = [*steps, *blocks[: _room(scene) // 300]]
    frames.write(run, chained=True)


def resumes_alone(scene: Scene, run: Path) -> None:
    frames = Frames.read(run)
    resume = b"\x04\x01" + frames.payloads[2][2:34] + bytes(8 * 4 + 32 + 32 + 64)
    frames.payloads[-1:-1] = [resume] * (_room(scene) // 300)
    frames.write(run, chained=True)


def more_log_than_the_job_allows(scene: Scene, run: Path) -> None:
    with (run / "transcript.log").open("r+b") as log:
        log.truncate(4 << 30)


def long_telemetry(size: int) -> Callable[[Scene, Path], None]:
    def craft(scene: Scene, run: Path) -> None:
        line = b'{"kind":"sample","t":1,"util":0.5,"memory":1000}\n'
        text = line * (size // len(line))
        (run / "telemetry.log").write_bytes(text)
        frames = Frames.read(run)
        digest = hashlib.sha256(text).digest()
        frames.payloads[-1] = frames.payloads[-1][:-32] + digest
        frames.write(run, chained=True)

    return craft


def large_states(size: int) -> Callable[[Scene, Path], None]:
    def craft(scene: Scene, run: Path) -> None:
        for path in (run / "checkpoints").glob("step-[1-9]*"):
            with path.open("r+b") as file:
                file.truncate(size)

    return craft


def states_with_long_headers(scene: Scene, run: Path) -> None:
    entry = '"{:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    header = "{" + ",".join(entry.format(number) for number in range(1 << 20)) + "}"
    (run / "vast").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    for path in (run / "checkpoints").glob("step-[1-9]*"):
        path.unlink()
        os.link(run / "vast", path)


def a_folder_full_of_files(scene: Scene, run: Path) -> None:
    for number in range(30_000):
        (run / "checkpoints" / f"other-{number}").touch()


def as_many_resumes_as_allowed(scene: Scene, run: Path) -> None:
    """Not rejected: the client's own limits."""
    shutil.rmtree(run)
    job = scene.job.core
    recorder = potl._core.Recorder.create(str(run), job, scene.key, software="potl forger")
    with potl.Session.open(build, seed=scene.job.seed, job=scene.job) as session:
        recorder.append_initial(session.capture())
        begin, resumes = 0, job.fields()["limits"]["max_resumes"]
        for attempt in range(resumes + 1):
            last = job.steps if attempt == resumes else begin + 2 * EVERY - 1
            for step, ids, batch in session.batches(begin + 1, last):
                scene.append(recorder, session, step, ids, session.run_step(step, batch))
            if attempt < resumes:
                recorder.abandon()
                recorder, begin, state = potl._core.Recorder.resume(
                    str(run), job, scene.key, software="potl forger"
                )
                session.restore(state)
        recorder.close()


CRAFTED: dict[str, Callable[[Scene, Path], None]] = {
    "last step 1e9": last_step_says(10**9),
    "last step 2^63": last_step_says(1 << 63),
    "epochs 2^63": every_epoch_is_vast,
    "a state after every step": every_step_has_a_state,
    "4,096 rates a step": thousands_of_rates,
    "rounding logs of 256 MiB": rounding_logs_where_there_are_none,
    "steps over and over": steps_over_and_over,
    "resumes with all steps": resumes_over_and_over,
    "resumes without steps": resumes_alone,
    "a log of 4 GiB": more_log_than_the_job_allows,
    "telemetry of 17 MiB": long_telemetry(17 * MIB),
    "telemetry of 512 MiB": long_telemetry(512 * MIB),
    "states of 64 MiB": large_states(64 * MIB),
    "states of 64 GiB": large_states(64 << 30),
    "states with long headers": states_with_long_headers,
    "30,000 files": a_folder_full_of_files,
    "all resumes that are allowed": as_many_resumes_as_allowed,
}


def _with(payload: bytes, at: int, field: bytes) -> bytes:
    return payload[:at] + field + payload[at + len(field) :]


def _rewrite(run: Path, change: Callable[[bytes], bytes]) -> None:
    frames = Frames.read(run)
    frames.payloads[2:-1] = [change(payload) for payload in frames.payloads[2:-1]]
    frames.write(run, chained=True)


def _room(scene: Scene) -> int:
    """Bytes of log that are read for this job, about."""
    limits = scene.job.core.fields()["limits"]
    records = 64 + scene.job.core.steps + limits["max_superseded"] + limits["max_resumes"]
    return 4 * records * 296 + MIB - 1000


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="potl-worst-case-"))
    try:
        scene = Scene(folder, build, checkpoint_every=EVERY)
        scene.job.write(folder / "job.json")

        def cost(run: Path, note: str) -> dict[str, float]:
            (folder / "note").write_text(note)
            words = [sys.executable, __file__, str(run), str(folder / "job.json")]
            out = subprocess.run(
                [*words, str(folder / "note")], check=True, capture_output=True, text=True
            )
            return dict(json.loads(out.stdout.splitlines()[-1]))

        honest = [cost(scene.honest.run, scene.honest.commitment) for _ in range(3)]
        seconds = sorted(one["seconds"] for one in honest)[1]
        memory = sorted(one["bytes"] for one in honest)[1]
        print(f"honest: {honest[0]['verdict']}, {seconds:.2f} s, {memory / MIB:.0f} MiB")
        rows = []
        for name, craft in CRAFTED.items():
            run = scene.copy_of(scene.honest.run, "crafted")
            craft(scene, run)
            if craft is more_log_than_the_job_allows:
                note = scene.honest.commitment  # nobody reads such a log to sign it
            elif craft is as_many_resumes_as_allowed:
                note = scene.commit(run)
            else:
                note = scene.sign(run)
            found = cost(run, note)
            rows.append((found["seconds"] / seconds, found["bytes"] / memory, name, found))
            print(
                f"{name:30} {found['verdict']:14} {found['replayed']:3} segments replayed, time "
                f"{rows[-1][0]:5.2f}, memory {rows[-1][1]:5.2f}",
                flush=True,
            )
            shutil.rmtree(run)
        worst, largest = max(rows), max(rows, key=lambda row: row[1])
        honest_run = "honest verification of the same job"
        measuring.write(
            "verify_worst_case",
            [
                {"name": "verify.worst_case", "value": worst[3]["seconds"], "unit": "s",
                 "baseline": honest_run, "ratio": worst[0], "at_most": 2, "run": worst[2]},
                {"name": "verify.worst_case.memory", "value": largest[3]["bytes"] / MIB,
                 "unit": "MiB", "baseline": honest_run, "ratio": largest[1], "at_most": 1.5,
                 "run": largest[2]},
            ],
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(*sys.argv[1:])
    else:
        main()
