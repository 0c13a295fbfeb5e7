# SPDX-License-Identifier: Apache-2.0
"""Whether learning suffers: ResNet-20 on digits (test accuracy) and a GPT on characters (loss on
text held back), each arithmetic against stock float32 in pairs of the same seed: the same weights
at the start, the same batches.

Per arithmetic the mean difference to stock and its 95 % interval (Student's t over the pairs). The
goal is an interval that excludes a loss of one point of accuracy, or 1 % of the loss.

    python benchmarks/learning_bench.py [--pairs 12] [--only ord32 log64.b28] [--models gpt]
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import measuring
import torch
import workloads
from torch import nn
from torch.nn import functional

import potl

PAIRS = 20 if measuring.FULL else 12
ARITHMETICS = ("ord32", "cr32", "log64", "xint24", "xint16")
BITS = (31, 30, 29, 28, 27, 26, 25, 24, 23)
TEST_IMAGES = 540
EPOCHS, BATCH = 6, 64
TEXT_STEPS, TEXT_BATCH, LENGTH = 200, 8, 48
LEARNING_RATE = {"resnet20": 0.1, "gpt": 3e-3}

Block = Callable[[], AbstractContextManager[None]]


def block_of(name: str) -> Block:
    """stock, a mode, or log64 with its number of bits: log64.b28."""
    if name == "stock":
        return contextlib.nullcontext
    mode, _, bits = name.partition(".b")
    if bits:
        return lambda: potl.deterministic(mode, bits=int(bits))
    return lambda: potl.deterministic(mode)


def annealed(optimizer: torch.optim.Optimizer, peak: float, done: float) -> None:
    """A cosine from `peak` to zero."""
    for group in optimizer.param_groups:
        group["lr"] = peak * (1 + math.cos(math.pi * done)) / 2


def resnet20(seed: int, block: Block) -> float:
    """Test accuracy in points, after a training that starts from `seed`."""
    torch.manual_seed(seed)
    x, y = workloads.digits().tensors
    order = torch.randperm(len(x))
    x, y = x[order].expand(-1, 3, -1, -1).contiguous(), y[order]
    train_x, train_y = x[TEST_IMAGES:], y[TEST_IMAGES:]
    model = workloads.resnet20()
    peak = LEARNING_RATE["resnet20"]
    optimizer = torch.optim.SGD(model.parameters(), lr=peak, momentum=0.9, weight_decay=5e-4)
    per_epoch = len(train_x) // BATCH
    for epoch in range(EPOCHS):
        batches = torch.randperm(len(train_x))[: per_epoch * BATCH].view(-1, BATCH)
        for number, batch in enumerate(batches):
            annealed(optimizer, peak, (epoch * per_epoch + number) / (EPOCHS * per_epoch))
            with block():
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(train_x[batch]), train_y[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    model.eval()
    with torch.no_grad(), block():
        hits = (model(x[:TEST_IMAGES]).argmax(1) == y[:TEST_IMAGES]).sum()
    return 100.0 * float(hits) / TEST_IMAGES


def text() -> torch.Tensor:
    """Characters as codes below 96."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python" / "helpers"))
    import zoo

    windows: torch.Tensor = zoo.characters(LENGTH, 4096)
    return windows


def gpt(seed: int, block: Block) -> float:
    """The loss on text held back, in nats per character."""
    windows = text()
    import zoo

    torch.manual_seed(seed)
    held, windows = windows[:256], windows[320:]
    model: nn.Module = zoo.GPT(layers=2, width=64, length=LENGTH)
    peak = LEARNING_RATE["gpt"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak)
    for step in range(TEXT_STEPS):
        batch = windows[torch.randint(len(windows), (TEXT_BATCH,))]
        annealed(optimizer, peak, step / TEXT_STEPS)
        with block():
            optimizer.zero_grad()
            logits = model(batch[:, :-1]).flatten(0, 1)
            loss = functional.cross_entropy(logits, batch[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    model.eval()
    with torch.no_grad(), block():
        logits = model(held[:, :-1]).flatten(0, 1)
        return float(functional.cross_entropy(logits, held[:, 1:].flatten()))


TRAININGS = {"resnet20": resnet20, "gpt": gpt}


def quantile(freedom: int) -> float:
    """Student's t at 97.5 %, by the expansion of Cornish and Fisher (Abramowitz and Stegun
    26.7.5); exact to three digits from 6 degrees of freedom on.
    """
    z = 1.959963985
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean of the differences and its 95 % interval."""
    mean = statistics.fmean(values)
    reach = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - reach, mean + reach


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="seeds, from 7 on")
    parser.add_argument("--only", nargs="+", help="such as ord32 or log64.b28")
    parser.add_argument("--models", nargs="+", default=list(TRAININGS), choices=list(TRAININGS))
    chosen = parser.parse_args()
    if chosen.pairs < 7:
        parser.error("an interval of fewer than 7 pairs says too little: raise --pairs")
    names = chosen.only or [*ARITHMETICS, *(f"log64.b{bits}" for bits in BITS)]
    results = []
    for model in chosen.models:
        train = TRAININGS[model]
        began = time.perf_counter()
        stock = [train(seed, block_of("stock")) for seed in range(chosen.pairs)]
        print(
            f"{model}: stock {statistics.fmean(stock):.4f}, "
            f"{(time.perf_counter() - began) / chosen.pairs:.1f} s each",
            flush=True,
        )
        for name in names:
            mine = [train(seed, block_of(name)) for seed in range(chosen.pairs)]
            if model == "resnet20":  # points of accuracy, up is better
                mean, low, high = interval([a - b for a, b in zip(mine, stock, strict=True)])
                unit, goal = "points", {"at_least": -1.0, "bound": low}
            else:  # relative loss in percent, down is better
                relative = [100 * (a / b - 1) for a, b in zip(mine, stock, strict=True)]
                mean, low, high = interval(relative)
                unit, goal = "% of loss", {"at_most": 1.0, "bound": high}
            print(f"  {name:10} {mean:+8.3f} [{low:+.3f}, {high:+.3f}] {unit}", flush=True)
            results.append(
                measuring.result(
                    f"learning.{model}.{name}",
                    mean,
                    unit,
                    "stock, same seeds",
                    low=low,
                    high=high,
                    pairs=chosen.pairs,
                    **goal,
                )
            )
    measuring.write("learning", results)


if __name__ == "__main__":
    main()
