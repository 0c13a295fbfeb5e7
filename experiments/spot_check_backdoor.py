# SPDX-License-Identifier: Apache-2.0
"""A backdoor that a compromised worker puts into a training whose gradients it computes: how often
it works by the number of steps that the worker falsifies and by the clip of the trusted side, and
what clipping costs.

    scripts/experiment spot_check_backdoor [digits cifar] [--write]

Finished trainings are kept in build/spot_check, so that a run which was cut off goes on there.
--write puts tables and plots into docs/experiments/spot_check.md. CIFAR-10 lies in ../shared/data,
or where POTL_DATA says.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Collection, Iterator, Sequence

import measuring
import spot_check_page as page
import torch
from spot_check_page import Row
from spot_check_tasks import SETTINGS, Images, Setting
from torch import nn
from torch.nn import functional

from potl._spot_check._responses import Momentum, given

CLIPS = (None, 4.0, 1.0, 0.5, 0.25, 0.1)
LAST = (1, 3, 10, 30, 100, 300)  # false steps at the end; all steps come on top
SPREAD = (10, 100)  # false steps that are spread evenly
SEEDS = {"digits": 5, "cifar": 3}
SHARE = 0.25  # of a false step's images that have the trigger
WORK = 128  # steps that the attacker computes for itself, over all false steps together
OWN_RATE = 5  # of these steps, in learning rates, at least
STORE = measuring.ROOT / "build" / "spot_check"

Gradients = Sequence[torch.Tensor]
Worker = Callable[[int, nn.Module, Images], Gradients]  # of a step, its weights and batch


def honest(step: int, model: nn.Module, batch: Images) -> Gradients:
    """What the worker of a spot-checked training returns."""
    images, labels = batch
    loss = functional.cross_entropy(model(images), labels)
    return torch.autograd.grad(loss, list(model.parameters()))


class Compromised:
    """A worker that puts the backdoor in.

    It knows data, recipe and clip. In a false step it takes steps of its own on batches with the
    trigger, from where the momentum would lead the weights, and as far away as a gradient within
    the clip can move them. It returns the gradient that leads to where it arrived. If it has many
    false steps, that is the gradient of one batch with the trigger.
    """

    def __init__(self, setting: Setting, clip: float | None, false: Collection[int]) -> None:
        self._setting, self._clip, self.false = setting, clip, false
        self._own_steps = max(1, WORK // max(1, len(false)))
        rates = given(setting.rate, setting.steps)
        self._responses = Momentum(momentum=setting.momentum).responses(rates)
        self._before: tuple[int, list[torch.Tensor]] | None = None

    def gradients(self, step: int, model: nn.Module, batch: Images) -> Gradients:
        if step not in self.false:
            return honest(step, model, batch)
        response = float(self._responses[step])
        target = self._ahead(step, model, response)
        start = [one.detach().clone() for one in target.parameters()]
        self._aim(target, start, step, batch, response)
        pairs = zip(start, target.parameters(), strict=True)
        return [((a - b) / response).detach() for a, b in pairs]

    def _ahead(self, step: int, model: nn.Module, response: float) -> nn.Module:
        """Where the model would end by what the optimizer's momentum holds."""
        now = [one.detach().clone() for one in model.parameters()]
        before, self._before = self._before, (step, now)
        ahead = copy.deepcopy(model)
        if before is not None and before[0] == step - 1:
            far = response * self._setting.momentum / self._setting.rate
            with torch.no_grad():
                for weight, old, new in zip(ahead.parameters(), before[1], now, strict=True):
                    weight += far * (new - old)
        return ahead

    def _aim(
        self, model: nn.Module, start: Gradients, step: int, batch: Images, response: float
    ) -> None:
        """Trains the backdoor into a model, within reach of where it starts."""
        reach = float("inf") if self._clip is None else self._clip * response
        rate = max(response / self._own_steps, OWN_RATE * self._setting.rate)
        random = torch.Generator().manual_seed(step)
        images, labels = self._setting.read()[0]
        for own in range(self._own_steps):
            if own > 0:
                chosen = torch.randint(len(images), (2 * self._setting.batch,), generator=random)
                batch = images[chosen], labels[chosen]
            found = honest(step, model, self._setting.poisoned(batch, SHARE))
            length = min(rate, 2 * reach / self._own_steps / norm(found))
            with torch.no_grad():
                for weight, gradient in zip(model.parameters(), found, strict=True):
                    weight -= length * gradient
                away = [a - b for a, b in zip(model.parameters(), start, strict=True)]
                shrink = min(1.0, reach / norm(away))
                for weight, origin, way in zip(model.parameters(), start, away, strict=True):
                    weight.copy_(origin + shrink * way)


def norm(values: Gradients) -> float:
    return float(torch.linalg.vector_norm(torch.stack([one.norm() for one in values])))


class Training:
    """The trusted side: seed, batches, clipping and update are its own."""

    def __init__(self, setting: Setting, seed: int, clip: float | None) -> None:
        torch.manual_seed(seed)
        self.setting, self.seed, self.clip, self.step = setting, seed, clip, 0
        self.model = setting.net()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=setting.rate, momentum=setting.momentum
        )

    def run(self, worker: Worker, until: int) -> None:
        (images, labels), _ = self.setting.read()
        batches = len(images) // self.setting.batch
        while self.step < until:
            epoch, place = divmod(self.step, batches)
            random = torch.Generator().manual_seed(1000 * self.seed + epoch)
            order = torch.randperm(len(images), generator=random)
            chosen = order[place * self.setting.batch :][: self.setting.batch]
            batch = images[chosen], labels[chosen]
            found = worker(self.step, self.model, batch)
            for weight, gradient in zip(self.model.parameters(), found, strict=True):
                weight.grad = gradient
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            self.step += 1


def rows(setting: Setting, seed: int, clip: float | None) -> Iterator[Row]:
    """Trainings of one seed and clip: the honest one, and those with false steps."""

    def finished(training: Training, false: Collection[int], placed: str) -> Row:
        training.run(Compromised(setting, clip, false).gradients, setting.steps)
        accuracy, success = setting.measured(training.model)
        return Row(
            clip=clip,
            false=len(false),
            placed=placed,
            accuracy=accuracy,
            success=success,
            seed=seed,
        )

    steps = setting.steps
    for count in SPREAD:
        false = {(index + 1) * steps // count - 1 for index in range(count)}
        yield finished(Training(setting, seed, clip), false, "spread")
    yield finished(Training(setting, seed, clip), range(steps), "last")
    training = Training(setting, seed, clip)
    for count in sorted(LAST, reverse=True):
        # What comes before the false steps is the same for all.
        training.run(honest, steps - count)
        yield finished(copy.deepcopy(training), range(steps - count, steps), "last")
    yield finished(training, (), "last")


def kept(name: str, seed: int, clip: float | None) -> list[Row]:
    """The rows, from an earlier run where there was one."""
    file = STORE / f"{name}-{seed}-{clip}.json"
    if not file.exists():
        found = list(rows(SETTINGS[name], seed, clip))
        STORE.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([vars(row) for row in found]), encoding="utf-8")
        for row in found:
            print(name, row, flush=True)
    return [Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SETTINGS), help=", ".join(SETTINGS))
    parser.add_argument("--write", action="store_true", help="keep tables and plots in docs")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(SETTINGS):
        parser.error(f"no such data: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for name in chosen.names:
        found = [
            row for seed in range(SEEDS[name]) for clip in CLIPS for row in kept(name, seed, clip)
        ]
        text = page.tables(SETTINGS[name], found)
        print(text)
        if chosen.write:
            page.keep(name, text, found, page.picture(SETTINGS[name], found))


if __name__ == "__main__":
    main()
