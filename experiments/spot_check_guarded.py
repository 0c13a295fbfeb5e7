# SPDX-License-Identifier: Apache-2.0
"""The worker that puts a backdoor in, against `potl.SpotCheck`: what the report says, and what is
left of the backdoor in the weights that are final.

    scripts/experiment spot_check_guarded [digits cifar] [--write]
"""

from __future__ import annotations

import argparse
import secrets
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import spot_check_page as page
import torch
from spot_check_backdoor import Compromised
from spot_check_tasks import SETTINGS, Setting
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl

CLIP = 1.0
FALSE = {"digits": (0, 10, 30, 100), "cifar": (0, 30, 100)}  # the last steps; and all
SEEDS = {"digits": 10, "cifar": 3}
SEGMENT = 20  # steps that become final together


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A guarded training that ended.

    Attributes:
        false: Number of false steps, the last ones.
        seed: Of weights and batches.
        verdict: Of the report.
        step: The step that was found false; None for none.
        reason: What the report says of it.
        final: Steps that are final.
        success: Of the backdoor in the weights that are final.
    """

    false: int
    seed: int
    verdict: str
    step: int | None
    reason: str
    final: int
    success: float


class Falsified:
    """Stands where a worker computes gradients, and changes those of false steps."""

    def __init__(self, honest, worker: Compromised) -> None:  # type: ignore[no-untyped-def]
        self._honest, self._worker = honest, worker
        self.tensors, self.steps = honest.tensors, honest.steps
        self.weights_bytes = honest.weights_bytes

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        loss: float = self._honest.gradient(step, weights, way, out)
        if step - 1 in self._worker.false:
            session = self._honest.session
            images, labels = session.task.dataset.tensors
            chosen = list(session.sample_ids(step))
            found = self._worker.gradients(
                step - 1, session.task.model, (images[chosen], labels[chosen])
            )
            flat = torch.cat([one.reshape(-1) for one in found])
            torch.frombuffer(out, dtype=torch.float32).copy_(flat)
        return loss


def guarded(
    setting: Setting,
    seed: int,
    false: Collection[int],
    *,
    steps_at_risk: int = page.AT_RISK,
    probability: float = 0.999,
) -> Guarded:
    """A guarded training with such a worker."""

    def build() -> potl.Task:
        model = setting.net()
        return potl.Task(
            model=model,
            optimizer=torch.optim.SGD(
                model.parameters(), lr=setting.rate, momentum=setting.momentum
            ),
            dataset=TensorDataset(*setting.read()[0]),
            loss=functional.cross_entropy,
            batch_size=setting.batch,
            max_steps=setting.steps,
            grad_clip=CLIP,
        )

    job = potl.Job.create(
        build, seed=seed, checkpoint_every=SEGMENT, arithmetic="stock", progress=False
    )
    worker = potl.spot_check.Worker(
        build, wrap=lambda honest: Falsified(honest, Compromised(setting, CLIP, false))
    )
    with potl.SpotCheck(
        build,
        job=job,
        key=secrets.token_bytes(32),
        steps_at_risk=steps_at_risk,
        probability=probability,
    ) as guard:
        report = guard.train(worker, progress=False)
        found = next((one for one in report.findings if one.result == "reject"), None)
        return Guarded(
            false=len(false),
            seed=seed,
            verdict=report.verdict,
            step=None if found is None else found.first_step,
            reason="" if found is None else found.reason,
            final=guard.final_step,
            success=setting.measured(guard.task.model)[1],
        )


def _span(values: Sequence[float]) -> str:
    return f"{statistics.median(values):g} ({min(values):g}-{max(values):g})" if values else ""


def table(setting: Setting, rows: Sequence[Guarded]) -> str:
    """The part of the page that is of one data set."""
    lines = [
        "| false steps | trainings | rejected | expected share | the false step that was found | "
        "success when caught, % |",
        "|---|---|---|---|---|---|",
    ]
    for false in sorted({row.false for row in rows}):
        mine = [row for row in rows if row.false == false]
        caught = [row for row in mine if row.verdict == "rejected"]
        begun = setting.steps - false
        lines.append(
            f"| {page.named(setting, false, 'last')} | {len(mine)} | {len(caught)} | "
            f"{page.caught(setting, false) if false else 'none'} | "
            f"{_span([row.step - begun for row in caught if row.step is not None])} | "
            f"{_span([round(100 * row.success) for row in caught])} |"
        )
    first = next(row for row in rows if row.reason)
    return "\n".join([*lines, "", f"One of the reports says: {first.reason}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SETTINGS), help=", ".join(SETTINGS))
    parser.add_argument("--write", action="store_true", help="keep the table in docs")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in chosen.names:
        setting, found = SETTINGS[name], []
        for false in (*FALSE[name], setting.steps):
            for seed in range(SEEDS[name]):
                steps = range(setting.steps - false, setting.steps)
                found.append(guarded(setting, seed, steps))
                print(name, found[-1], flush=True)
        text = table(setting, found)
        print(text)
        if chosen.write:
            page.keep(f"{name}_guarded", text, found)


if __name__ == "__main__":
    main()
