# SPDX-License-Identifier: Apache-2.0
"""What `Job.create` costs, in steps of the plain training: ResNet-18 with batches of 16, and a net
of GPT-2's sizes (124 million parameters, all trained) with 8 x 256 tokens and AdamW.

Ratios are the clock's time of `Job.create` over that of a plain step after the first two; processor
time is printed beside it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import measuring
import record_bench
import torch
import workloads
from torch.nn import functional

import potl

AT_MOST = 5.0
STEPS = 3


def gpt2_task() -> potl.Task:
    model = workloads.AdaptedGPT2().requires_grad_(True)
    return potl.Task(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        dataset=workloads.tokens(length=256),
        loss=functional.cross_entropy,
        batch_size=8,
        epochs=1,
    )


def both_clocks(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processors."""
    clock, processors = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processors


def created(name: str, build: Callable[[], potl.Task]) -> dict[str, object]:
    plain = record_bench.plain_steps(build(), STEPS + 2)
    list(itertools.islice(plain, 2))
    several = both_clocks(lambda: list(itertools.islice(plain, STEPS)))
    step = [seconds / STEPS for seconds in several]
    plain.close()
    whole = both_clocks(lambda: potl.Job.create(build, seed=7, checkpoint_every=16, progress=False))
    print(
        f"{name}: a step takes {step[0]:.2f} s ({step[1]:.2f} s of processors), Job.create "
        f"{whole[0]:.2f} s ({whole[1]:.2f} s): {whole[0] / step[0]:.2f} steps "
        f"({whole[1] / step[1]:.2f})",
        flush=True,
    )
    return measuring.result(
        f"job.create.{name}",
        whole[0] / step[0],
        "steps",
        "a step of the plain training",
        at_most=AT_MOST,
        seconds=whole[0],
        processor_steps=whole[1] / step[1],
    )


def main() -> None:
    results = [created("resnet18", workloads.resnet18_task), created("gpt2", gpt2_task)]
    measuring.write("job", results)


if __name__ == "__main__":
    main()
