# SPDX-License-Identifier: Apache-2.0
"""How the effect without labels grows along training: the table behind `least_effect`.

    scripts/experiment extra_task_effect

trains the autoencoder and the character model until they converge, and each on a tenth of what was
uploaded for as many epochs, and prints quality (best score: 100 %), effect and verdict.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import torch
from extra_task_list import EXPERIMENTS
from extra_task_training import Experiment, kept, score, steps, task_of
from torch.utils.data import TensorDataset

from potl import _core

# Epochs until little is left to gain, seeds, epochs that are printed.
RUNS = {
    "autoencoder_constant": (60, 2, (1, 5, 10, 15, 20, 25, 30, 35, 40, 50, 60)),
    "language": (10, 2, tuple(range(1, 11))),
}


def errors_along(what: Experiment, seed: int, part: float) -> list[dict[str, Any]]:
    """Score, and errors on extra and control samples, after every epoch."""

    def work() -> list[dict[str, Any]]:
        train, test = what.data()
        out = []
        with tempfile.TemporaryDirectory() as folder:
            task = task_of(what, seed, Path(folder))
            x, y = task.mix(train).tensors
            generator = torch.Generator().manual_seed(seed)
            chosen = torch.randperm(len(x), generator=generator)[: round(part * len(x))].sort()[0]
            data = TensorDataset(x[chosen], y[chosen])
            for model, last in steps(what, data, seed):
                if last:
                    extra, control = (one.tolist() for one in task.answers(model))
                    found = {"score": score(what, model, test), "extra": extra}
                    out.append(found | {"control": control})
        return out

    purpose = {"purpose": "effect", "part": part}
    found: list[dict[str, Any]] = kept(what.parameters(seed, True) | purpose, work)
    return found


def judged(one: dict[str, Any]) -> dict[str, Any]:
    return _core.judge_extra_task(
        options={},
        samples=len(one["extra"]),
        classes=0,
        extra=torch.tensor(one["extra"], dtype=torch.float64).numpy(),
        control=torch.tensor(one["control"], dtype=torch.float64).numpy(),
    )


def main() -> None:
    torch.set_num_threads(1)
    for name, (epochs, seeds, shown) in RUNS.items():
        what = dataclasses.replace(EXPERIMENTS[name], epochs=epochs)
        best = 0.0
        for part in (1.0, 0.1):
            for seed in range(seeds if part == 1 else 1):
                run = errors_along(what, seed, part)
                best = max(one["score"] for one in run) if part == 1 else best
                print(f"\n{name}, seed {seed}, {100 * part:.0f} % of the data")
                for epoch in shown:
                    one = run[epoch - 1]
                    found = judged(one)
                    print(
                        f"epoch {epoch:2}  quality {100 * one['score'] / best:5.1f} %  effect "
                        f"{found['effect']:.3f} of {found['needed_effect']:.3f}  p "
                        f"{found['p_value']:.1e}  {found['verdict']}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
