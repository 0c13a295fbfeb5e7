# SPDX-License-Identifier: Apache-2.0
"""Strangers that connect to a worker and say nothing: the trusted side comes in nevertheless."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from guarded import KEY, build, own_loop

import potl

# How long the trusted side waits: less than a stranger has at the door.
_SECONDS = 8.0


@contextlib.contextmanager
def strangers(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Are connected and silent; every other one has sent half a frame."""
    with contextlib.ExitStack() as open_ones:
        made = []
        for i in range(count):
            one = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            one.settimeout(60)
            one.connect(address.removeprefix("unix:"))
            if i % 2:
                one.sendall(b"potlspt2")
            made.append(one)
        yield made


def guarded(address: str) -> potl.Report:
    job = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic="stock")
    guard = potl.SpotCheck(build, job=job, key=KEY, steps_at_risk=2, timeout=_SECONDS)
    guard._background = False  # both sides draw from one process's generators
    return guard.train(address)


def test_the_trusted_side_comes_in_while_strangers_are_connected(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/worker.sock"
    listening: queue.SimpleQueue[str] = queue.SimpleQueue()
    served: queue.SimpleQueue[potl.spot_check.Served] = queue.SimpleQueue()

    def serve() -> None:
        served.put(potl.spot_check.Worker(build, key=KEY).serve(address, ready=listening.put))

    threading.Thread(target=serve, daemon=True).start()
    with strangers(listening.get(timeout=600), 30):
        report = guarded(address)
        assert report.verdict == "accepted", report.sentence
        assert served.get(timeout=600).finished


def test_a_stranger_does_not_end_a_loop_of_ones_own(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/loop.sock"
    with potl.spot_check.Worker(build, key=KEY).open(address) as link:
        looping = threading.Thread(target=own_loop, args=(link,), daemon=True)
        with strangers(address, 3) as connected:
            for one in connected:
                one.sendall(b"GET / HTTP/1.1\r\n" * 20)
            looping.start()
            report = guarded(address)
            looping.join(timeout=600)
        assert report.verdict == "accepted", report.sentence
        assert link.reason == ""
