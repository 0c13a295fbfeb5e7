# SPDX-License-Identifier: Apache-2.0
"""Guarded trainings that the spot-check benchmark measures: with a worker in a process of its own,
with a faster worker, simulated by recorded gradients and timings, and with one that does nothing.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
import workloads

import potl
from potl import _core
from potl._spot_check import _bench
from potl._spot_check._gradients import Gradients
from potl._spot_check._guarded import Guarded

KEY = bytes(32)
ROUNDS = 5 if measuring.FULL else 3
STEPS = 60
# Of trainings whose time is measured: a session begins and ends once.
LONG = 140
AT_MOST = 1.25
# Times the speed of the trusted side's one thread.
SPEEDS = (2, 5, 10, 20, 40)
# Name -> one step in so many is checked, and how many steps are trained.
SHARES = {"p0667": (15, 60), "p0069": (145, 145)}
# Of an exchange, as the GPT's.
ELEMENTS = 3_250_000


def overhead(name: str) -> Iterator[dict[str, Any]]:
    """A guarded step against a plain one, both sides on the same processors, p = .0667."""
    build = getattr(workloads, f"{name}_guarded")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        potl.Job.create(build, seed=1, checkpoint_every=20, arithmetic="stock").write(path)
        found = [
            _bench.measure(f"workloads:{name}_guarded", job=path, steps=LONG, steps_at_risk=100)
            for _ in range(ROUNDS)
        ]
    ratio = measuring.of_pairs([(one.guarded_seconds, one.plain_seconds) for one in found])
    yield measuring.result(
        f"spot_check.overhead.{name}",
        ratio.seconds * 1e3,
        "ms/step",
        "the same step without a guard",
        ratio,
        at_most=AT_MOST,
        checked=statistics.mean(one.checked / one.steps for one in found),
    )


class Recorded:
    """A worker that takes a fixed time for a step, and reports what was recorded for it."""

    def __init__(self, honest: Gradients, gradients: Sequence[bytes], seconds: float) -> None:
        self.tensors, self.weights_bytes = honest.tensors, honest.weights_bytes
        self.steps = honest.steps
        self._gradients = gradients
        self._seconds = seconds

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        time.sleep(self._seconds)
        out[:] = self._gradients[step - 1]
        return 0.0


class Nothing:
    """Both sides of a training in which nothing is computed: what is left are frames and codes."""

    def __init__(self) -> None:
        self.tensors, self.weights_bytes, self.steps = [("w", ELEMENTS)], 4 * ELEMENTS, STEPS
        self.step = 0
        self._weights = np.zeros(4 * ELEMENTS, np.uint8)
        self._gradient = np.full(ELEMENTS, 1e-4, np.float32).tobytes()

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        out[:] = self._gradient
        return 0.0

    def weights(self) -> list[memoryview]:
        return [self._weights.data]

    def update(self, step: int, gradient: memoryview, norm: float, loss: float) -> None:
        self.step = step

    def keep(self) -> None:
        pass

    def finalise(self, step: int) -> None:
        pass

    def roll_back(self) -> None:
        pass


def exchange() -> Iterator[dict[str, Any]]:
    """Bringing 13 MB of weights there and as many of gradients back, through memory that both sides
    map and over TCP, against hashing them on both sides. Processor time of both.
    """

    def exchanged(ends: Callable[[], tuple[_core.SpotCheckSocket, _core.SpotCheckSocket]]) -> None:
        mine, its = ends()
        trusted, worker = Nothing(), Nothing()
        serving = threading.Thread(
            target=lambda: _core.spot_check_serve(
                its, key=KEY, make=lambda text: worker, timeout=60.0
            )
        )
        serving.start()
        found = _core.spot_check_guard(
            mine,
            key=KEY,
            job=b"{}",
            training=trusted,
            checker=worker,
            probabilities=[0.0] * STEPS,
            clip=1.0,
            tolerance=1e-3,
            segment=20,
            lag=4,
            timeout=60.0,
            until=0,
            background=False,
        )
        serving.join()
        if found.end != "finished":
            raise RuntimeError(f"an honest exchange ended otherwise: {found.reason}")

    tensors = bytes(4 * ELEMENTS)

    def hashed() -> None:
        for _ in range(4 * STEPS):
            hashlib.sha256(tensors).digest()

    for way, ends in (("memory", _core.SpotCheckSocket.pair), ("tcp", _over_tcp)):
        ratio = measuring.paired(
            partial(measuring.processor_timed, partial(exchanged, ends)),
            partial(measuring.processor_timed, hashed),
            rounds=ROUNDS,
        )
        yield measuring.result(
            f"spot_check.exchange.{way}.13mb",
            ratio.seconds * 1e3 / STEPS,
            "ms/step",
            f"SHA-256 of the same on both sides, {1e3 * ratio.baseline_seconds / STEPS:.4g} ms",
            ratio,
        )


def _over_tcp() -> tuple[_core.SpotCheckSocket, _core.SpotCheckSocket]:
    listener = _core.SpotCheckListener("tcp://127.0.0.1:0")
    return _core.SpotCheckSocket.connect(listener.address, 10.0), listener.accept(10.0)


def speedup() -> Iterator[dict[str, Any]]:
    """ResNet-20 trained by the trusted side's one thread alone, against a guarded training whose
    worker is 2 to 20 times as fast. Its gradients are recorded and its time is slept.
    """
    torch.set_num_threads(1)
    build = workloads.resnet20_guarded
    job = potl.Job.create(build, seed=1, checkpoint_every=20, arithmetic="stock")
    most = max(steps for _, steps in SHARES.values())
    gradients, alone = _alone(build, job, most)
    for name, (every, steps) in SHARES.items():
        for speed in SPEEDS:
            seconds = _guarded(build, job, gradients, alone / speed, every=every, steps=steps)
            yield measuring.result(
                f"spot_check.speedup.{name}.{speed}x",
                1e3 * seconds / steps,
                "ms/step",
                f"one thread alone, {1e3 * alone:.4g} ms",
                measuring.of_pairs([(alone, seconds / steps)]),
                simulated=True,
            )


def _alone(build: Any, job: potl.Job, steps: int) -> tuple[list[bytes], float]:
    """The gradients of a training, and the median time of a step."""
    out, taken = [], []
    with potl.Session.open(build, seed=1, job=job) as session:
        layout = Gradients(session)
        size = 4 * sum(elements for _, elements in layout.tensors)
        for step, _, batch in session.batches(1, steps):
            began = time.perf_counter()
            loss, found = session.gradients(step, batch)
            kept = bytearray(size)
            layout.write(found, step, memoryview(kept))
            session.apply(step, found, loss)
            taken.append(time.perf_counter() - began)
            out.append(bytes(kept))
    return out, statistics.median(taken)


def _guarded(
    build: Any,
    job: potl.Job,
    gradients: Sequence[bytes],
    seconds: float,
    *,
    every: int,
    steps: int,
) -> float:
    """Time of a guarded training of some steps, of which one in `every` is checked."""
    with (
        potl.Session.open(build, seed=1, job=job) as session,
        potl.Session.open(build, seed=1, job=job) as checker,
    ):
        layout, checking = Gradients(session), Gradients(checker)
        trained = Guarded(session, layout, job=job.core, clip=1.0, options={}, folder=None)
        mine, its = _core.SpotCheckSocket.pair()
        serving = threading.Thread(
            target=lambda: _core.spot_check_serve(
                its,
                key=KEY,
                make=lambda text: Recorded(checking, gradients, seconds),
                timeout=60.0,
            )
        )
        serving.start()
        found = _core.spot_check_guard(
            mine,
            key=KEY,
            job=job.core.text,
            training=trained,
            checker=checking,
            # Evenly, so that the number of checks is what is stated, and none is left to the end.
            probabilities=[float(step % every == every // 2) for step in range(1, job.steps + 1)],
            clip=1.0,
            tolerance=1e-3,
            segment=20,
            lag=4,
            timeout=60.0,
            until=steps,
            background=True,
        )
        serving.join()
    if found.end != "paused" or found.checked != steps // every:
        raise RuntimeError(f"an honest training ended otherwise: {found.end}, {found.reason}")
    return found.seconds
