# SPDX-License-Identifier: Apache-2.0
"""When an extra task is learned, and what it costs: trainings with and without extra samples, in
pairs of the same seed (the same weights at the start).

For each experiment: accuracy on the original and the extra task after every epoch; the first epoch
that passes; the critical training quality (CQ), which is the accuracy on the original task there
over the best accuracy of that training; the same for plain thresholds on accuracy, the baseline of
Li et al.; and the performance loss, accuracy without minus accuracy with extra samples, with its
95 % interval (Student's t over the pairs).

    python benchmarks/extra_task_experiments.py [digits agnews ...] [--pairs 12] [--write]

Every finished training is kept in build/bench/extra_task, so that a run which was cut off goes on
there. --write puts the table and the plots of each experiment into docs/benchmarks and leaves other
sections as they are. Data lie in ../shared/data, or where POTL_DATA says.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import extra_task_cheats as cheats
import extra_task_pages as pages
import extra_task_sweeps as sweeps
import extra_task_table as table
import extra_task_theory as theory
import measuring
from extra_task_list import EXPERIMENTS
from extra_task_pages import Section
from extra_task_training import Experiment, training


def pairs(what: Experiment, count: int) -> Section:
    """Trainings with and without extra samples, seed by seed."""
    found = []
    for seed in range(count):
        found.append((training(what, seed, True), training(what, seed, False)))
        loss = table.losses(what, found[-1:])[0]
        run = found[-1][0].epochs
        at = table.first(run, lambda one: one.passed)
        passed = "never passes" if at is None else (
            f"passes in epoch {at + 1} at {100 * table.quality(run, at):.1f} %"
        )  # fmt: skip
        print(f"{what.name} {seed}: {passed}, loss {loss:+.2f}", flush=True)
    return table.section(what, found)


OTHERS: dict[str, Callable[[], Section]] = {
    "false_acceptance": cheats.false_acceptance,
    "false_rejection": cheats.false_rejection,
    "s": sweeps.over_shares,
    "eta": sweeps.over_eta,
    "naive": theory.comparison,
    "gradients": theory.gradients,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*EXPERIMENTS, *OTHERS]
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(names))
    parser.add_argument("--pairs", type=int, help="seeds of each pair, from 3 on")
    parser.add_argument("--write", action="store_true", help="keep tables and plots in docs")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(names)
    if unknown:
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}")
    if chosen.pairs is not None and chosen.pairs < 3:
        parser.error("an interval of fewer than 3 pairs says nothing: raise --pairs")
    results = []
    for name in chosen.names or names:
        if name in OTHERS:
            section = OTHERS[name]()
        else:
            what = EXPERIMENTS[name]
            section = pairs(what, chosen.pairs or what.pairs)
        results += section.results
        print(section.text, flush=True)
        if chosen.write:
            pages.keep(section, names)
    measuring.write("extra_task_experiments", results)


if __name__ == "__main__":
    main()
