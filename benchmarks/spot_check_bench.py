# SPDX-License-Identifier: Apache-2.0
"""What it costs the trusted side to check a training step from its products, against computing it
again, in the same process and in turn, with one thread: ResNet-20 (batch 128) and a GPT of 4 layers
of width 256 (8 x 64 tokens). Forward and backward pass; the update is not part of either. Processor
time, which other processes change less than time on the clock.

    python benchmarks/spot_check_bench.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import measuring
import torch
import train_step_bench

from potl._spot_check._products import checking, recording

ROUNDS = 15 if measuring.FULL else 7
PROBES = 4
AT_LEAST = 2.5


def check_step(name: str) -> Iterator[dict[str, Any]]:
    net = train_step_bench.net_of(name)

    def step() -> None:
        torch.manual_seed(0)  # dropout
        net.model.zero_grad(set_to_none=True)
        net.loss().backward()  # type: ignore[no-untyped-call]

    with recording() as witness:
        step()

    def check() -> None:
        with checking(witness.tensors, probes=PROBES) as outcome:
            step()
        if not outcome.holds or outcome.unusual:
            raise RuntimeError(f"{name}: an honest step does not hold: {outcome}")

    found = measuring.paired(
        lambda: measuring.processor_timed(step),
        lambda: measuring.processor_timed(check),
        rounds=ROUNDS,
    )
    yield measuring.result(
        f"spot_check.check_step.{name}",
        found.baseline_seconds * 1e3,
        "ms/check",
        f"computing the step again, {found.seconds * 1e3:.4g} ms",
        found,
        at_least=AT_LEAST,
    )


def main() -> None:
    torch.set_num_threads(1)
    measuring.write("spot_check", [one for name in ("resnet20", "gpt") for one in check_step(name)])


if __name__ == "__main__":
    main()
