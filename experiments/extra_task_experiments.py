# SPDX-License-Identifier: Apache-2.0
"""When an extra task is learned, and what it costs: trainings with and without extra samples, in
pairs of the same seed (the same weights at the start).

For each experiment: accuracy on the original and the extra task after every epoch; the first epoch
that passes; the critical training quality (CQ), which is the accuracy on the original task there
over the best accuracy of that training; the same for plain thresholds on accuracy, the baseline of
Li et al.; and the performance loss, accuracy without minus accuracy with extra samples, with its
95 % interval (Student's t over the pairs).

    scripts/experiment extra_task_experiments [digits agnews ...] [--pairs 12] [--write]
    scripts/experiment extra_task_experiments --full [--steps 3]

Every finished training is kept in build/bench/extra_task, so that a run which was cut off goes on
there. --write puts the table and the plots of each experiment into its page of docs/experiments and
leaves other sections as they are. --full is the setting of Li et al., on a GPU where there is one;
--steps says how long that would take. Data lie in ../shared/data, or where POTL_DATA says.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import extra_task_cheats as cheats
import extra_task_lag as lag
import extra_task_pages as pages
import extra_task_recipes as recipes
import extra_task_sweeps as sweeps
import extra_task_table as table
import extra_task_theory as theory
import extra_task_verdict as verdict
import measuring
import torch
from extra_task_list import EXPERIMENTS, PUBLISHED
from extra_task_pages import Section
from extra_task_training import Experiment, steps, task_of, training


def pairs(what: Experiment, count: int) -> Section:
    """Trainings with and without extra samples, seed by seed."""
    found = []
    for seed in range(count):
        found.append((training(what, seed, True), training(what, seed, False)))
        loss = table.losses(what, found[-1:])[0]
        run = found[-1][0]
        at = table.first(run, verdict.accepted)
        passed = "never accepted" if at is None else (
            f"accepted in epoch {at + 1} at {100 * table.quality(run, at):.1f} %"
        )  # fmt: skip
        print(f"{what.name} {seed}: {passed}, loss {loss:+.2f}", flush=True)
    return table.section(what, found)


def time_of(what: Experiment, count: int) -> str:
    """How long an experiment would take, from a few steps of its first training."""
    with tempfile.TemporaryDirectory() as folder:
        mixed = task_of(what, 0, Path(folder)).mix(what.data()[0])
    began = time.perf_counter()
    seen = sum(1 for _ in itertools.islice(steps(what, mixed, 0), count))
    each = (time.perf_counter() - began) / seen
    total = 2 * what.pairs * what.epochs * -(-len(mixed) // what.batch)
    return (
        f"{what.name}: {each:.2f} s a step on {what.device}, so about {each * total / 3600:.1f} "
        f"hours for {what.pairs} pairs of {what.epochs} epochs"
    )


OTHERS: dict[str, Callable[[], Section]] = {
    "false_acceptance": cheats.false_acceptance,
    "false_rejection": cheats.false_rejection,
    "lag": lag.lag,
    "s": sweeps.over_shares,
    "eta": sweeps.over_eta,
    "naive": theory.comparison,
    "gradients": theory.gradients,
    "recipes": recipes.recipes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*EXPERIMENTS, *OTHERS, *PUBLISHED]
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(names))
    parser.add_argument("--pairs", type=int, help="seeds of each pair, from 3 on")
    parser.add_argument(
        "--full", action="store_true", help="the paper's setting: ResNet-34, VGG-11, all of CIFAR"
    )
    parser.add_argument(
        "--steps", type=int, help="do so many steps only, and say how long the whole would take"
    )
    parser.add_argument("--write", action="store_true", help="keep tables and plots in docs")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(names)
    if unknown:
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}")
    if chosen.pairs is not None and chosen.pairs < 3:
        parser.error("an interval of fewer than 3 pairs says nothing: raise --pairs")
    if chosen.steps is not None and chosen.steps < 1:
        parser.error("one step or more")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainings = EXPERIMENTS | {
        name: dataclasses.replace(what, device=device) for name, what in PUBLISHED.items()
    }
    usual = [*EXPERIMENTS, *OTHERS]
    wanted = chosen.names or (list(PUBLISHED) if chosen.full else usual)
    if chosen.steps is not None:
        for name in wanted:
            if name in trainings:
                print(time_of(trainings[name], chosen.steps), flush=True)
        return
    results = []
    for name in wanted:
        if name in OTHERS:
            section = OTHERS[name]()
        else:
            what = trainings[name]
            section = pairs(what, chosen.pairs or what.pairs)
        results += section.results
        print(section.text, flush=True)
        if chosen.write:
            pages.keep(section)
    measuring.write("extra_task_experiments", results)


if __name__ == "__main__":
    main()
