# SPDX-License-Identifier: Apache-2.0
"""Shared by the Python benchmarks: interleaved blocks, medians with an interval,
build/bench/STEM.json.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FULL = os.environ.get("POTL_BENCH_FULL") == "1"


@dataclass(frozen=True)
class Ratio:
    """Median of paired ratios, with the order statistics that hold the median with a probability
    of about 95 %.
    """

    value: float
    low: float
    high: float
    seconds: float
    baseline_seconds: float


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def processor_timed(work: Callable[[], object]) -> float:
    """Seconds of processor time that this process takes for `work`, all its threads together."""
    began = time.process_time()
    work()
    return time.process_time() - began


def interleaved(
    candidate: Callable[[], object], baseline: Callable[[], object], *, rounds: int
) -> Ratio:
    """Runs both in turn, and compares each candidate with the baseline beside it."""
    return paired(lambda: timed(candidate), lambda: timed(baseline), rounds=rounds)


def outside_and_inside(
    work: Callable[[], object],
    mode: str,
    *,
    times: int,
    rounds: int,
    most: int = 0,
    clock: Callable[[Callable[[], object]], float] = timed,
) -> Ratio:
    """The time of calls outside of `potl.deterministic(mode)` over that inside, by `clock`.
    Entering the mode and the first call of a block are not timed.
    """
    import potl

    def block() -> None:
        for _ in range(times):
            work()

    def outside() -> float:
        work()
        return clock(block)

    def inside() -> float:
        with potl.deterministic(mode):
            return outside()

    return paired(outside, inside, rounds=rounds, most=most)


def paired(
    candidate: Callable[[], float], baseline: Callable[[], float], *, rounds: int, most: int = 0
) -> Ratio:
    """Both in turn, in changing order; each returns its seconds.

    One round before counts for nothing: it warms caches and thread pools. On a noisy machine more
    rounds follow, up to `most`, until the interval is narrower than a tenth of the ratio.
    """
    pairs: list[tuple[float, float]] = []
    for number in range(max(rounds, most) + 1):
        if number % 2:
            theirs, ours = baseline(), candidate()
        else:
            ours, theirs = candidate(), baseline()
        if number:
            pairs.append((ours, theirs))
        if number >= rounds:
            found = of_pairs(pairs)
            if found.high - found.low < found.value / 10:
                return found
    return of_pairs(pairs)


def of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """The ratio of (candidate, baseline) pairs."""
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    count = len(ratios)
    # Sign test: the median lies between these with a probability of about 95 %.
    reach = int(0.98 * count**0.5)
    middle = count // 2
    return Ratio(
        statistics.median(ratios),
        ratios[max(0, middle - reach)],
        ratios[min(count - 1, middle + reach)],
        statistics.median(ours for ours, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
    )


def result(
    name: str,
    value: float,
    unit: str,
    baseline: str,
    ratio: Ratio | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One entry of build/bench/STEM.json; `at_most` and `at_least` say what is asked for."""
    entry: dict[str, Any] = {"name": name, "value": value, "unit": unit, "baseline": baseline}
    if ratio is not None:
        entry |= {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return entry | more


def write(stem: str, results: Sequence[dict[str, Any]]) -> None:
    """Prints a table and writes build/bench/STEM.json."""
    import torch

    machine = {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    folder = Path(os.environ.get("POTL_BENCH_DIR") or ROOT / "build" / "bench")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "results": list(results)}, indent=1)
    (folder / f"{stem}.json").write_text(text + "\n")
    for entry in results:
        interval = (
            f" [{entry['ratio_low']:.3f}, {entry['ratio_high']:.3f}]"
            if "ratio_low" in entry
            else ""
        )
        ratio = f"ratio {entry['ratio']:.3f}{interval} to " if "ratio" in entry else ""
        print(
            f"{entry['name']:28} {entry['value']:12.6g} {entry['unit']:10} "
            f"{ratio}{entry['baseline']}"
        )


def processor() -> str:
    """The processor's own name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
