#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products by the OpenBLAS that comes with numpy, in a process of its own: which kernels it runs is
an environment variable that it reads when it is loaded.

start() gives a client, or says why there is none. As a program: reads lines "SIZE TIMES", prints
the mean seconds of so many products of random matrices, after one that is not timed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

KERNELS = "SkylakeX"


class Client:
    """Asks one worker per number of threads."""

    def __init__(self) -> None:
        self._workers: dict[int, subprocess.Popen[str]] = {}

    def seconds(self, size: int, threads: int, times: int) -> float:
        """The time of one product of square matrices, the mean of so many."""
        if threads not in self._workers:
            self._workers[threads] = _spawn(threads)
        return float(_ask(self._workers[threads], f"{size} {times}"))

    def kernels(self) -> str:
        """Whose kernels run."""
        self._workers.setdefault(1, _spawn(1))
        return _ask(self._workers[1], "kernels")

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()


@contextlib.contextmanager
def start() -> Iterator[Client | str]:
    """A client, or the reason why OpenBLAS with those kernels cannot run here."""
    if "avx512f" not in _processor_flags():
        yield f"the processor cannot run OpenBLAS's {KERNELS} kernels"
        return
    client = Client()
    try:
        found = client.kernels()
        yield client if found.lower() == KERNELS.lower() else f"numpy's BLAS runs {found}"
    finally:
        client.close()


def _processor_flags() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/cpuinfo").read_text()
    return ""


def _spawn(threads: int) -> subprocess.Popen[str]:
    environment = os.environ | {
        "OPENBLAS_CORETYPE": KERNELS,
        "OPENBLAS_NUM_THREADS": str(threads),
    }
    return subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _ask(worker: subprocess.Popen[str], line: str) -> str:
    assert worker.stdin is not None and worker.stdout is not None
    print(line, file=worker.stdin, flush=True)
    return worker.stdout.readline().strip() or "nothing"


def _running_kernels() -> str:
    """The name that the loaded OpenBLAS gives its kernels; its functions carry prefixes."""
    import ctypes

    maps = Path("/proc/self/maps").read_text().split()
    for path in sorted({word for word in maps if "openblas" in word}):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "openblas_get_corename"):
            corename = getattr(library, name, None)
            if corename is not None:
                corename.restype = ctypes.c_char_p
                return str(corename().decode())
    return "no OpenBLAS"


def main() -> None:
    try:
        import numpy as np
    except ImportError:
        return
    operands = {}
    for line in sys.stdin:
        if line.strip() == "kernels":
            print(_running_kernels(), flush=True)
            continue
        size, times = map(int, line.split())
        if size not in operands:
            draw = np.random.default_rng(size)
            a = draw.standard_normal((size, size), dtype=np.float32)
            operands[size] = (a, a.T.copy(), np.empty_like(a))
        a, b, out = operands[size]
        np.matmul(a, b, out=out)
        began = time.perf_counter()
        for _ in range(times):
            np.matmul(a, b, out=out)
        print((time.perf_counter() - began) / times, flush=True)


if __name__ == "__main__":
    main()
