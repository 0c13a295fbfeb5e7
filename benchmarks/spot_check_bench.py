# SPDX-License-Identifier: Apache-2.0
"""What spot-checks cost.

check_step: the trusted side checks a training step from its products, against computing it again,
in the same process and in turn, with one thread: ResNet-20 (batch 128) and a GPT of 4 layers of
width 256 (8 x 64 tokens). Forward and backward pass; the update is not part of either. Processor
time, which other processes change less than time on the clock.

overhead, exchange and speedup: guarded_training.py.

    python benchmarks/spot_check_bench.py [--only TEXT]

`--only` measures the groups whose name holds TEXT, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import guarded_training
import measuring
import torch
import train_step_bench

from potl._spot_check._products import check_products, record_products

ROUNDS = 15 if measuring.FULL else 7
PROBES = 4
AT_LEAST = 2.5


def check_step(name: str) -> Iterator[dict[str, Any]]:
    """Checking a step from its products, against computing it."""
    torch.set_num_threads(1)
    net = train_step_bench.net_of(name)

    def step() -> None:
        torch.manual_seed(0)  # dropout
        net.model.zero_grad(set_to_none=True)
        net.loss().backward()  # type: ignore[no-untyped-call]

    with record_products() as witness:
        step()

    def check() -> None:
        with check_products(witness.tensors, probes=PROBES) as outcome:
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


GROUPS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "overhead.resnet20": partial(guarded_training.overhead, "resnet20"),
    "overhead.gpt": partial(guarded_training.overhead, "gpt"),
    "exchange": guarded_training.exchange,
    "check_step.resnet20": partial(check_step, "resnet20"),
    "check_step.gpt": partial(check_step, "gpt"),
    "speedup": guarded_training.speedup,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    found = []
    for name, group in GROUPS.items():
        if only in name:
            found += group()
    if only:
        print(json.dumps(found, indent=1))
    else:
        measuring.write("spot_check", found)


if __name__ == "__main__":
    main()
