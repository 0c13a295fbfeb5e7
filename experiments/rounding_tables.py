#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of the published verification by rounding logs (Srivastava, Arora, Boneh, 2403.09603),
on potl: bytes of a step's log, corrections, thresholds, step times, divergence.

    scripts/experiment rounding_tables [--only NAME ...] [--write]

`--write` puts what was measured into docs/experiments/rounding_log.md, section by section.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import measuring
import rounding_nets as nets
import rounding_thresholds
import torch

from potl import _core

PAGE = Path(__file__).resolve().parent.parent / "docs" / "experiments" / "rounding_log.md"
OTHER_ORDER = 5
QUICK = nets.QUICK
Ends = dict[int, tuple[torch.Tensor, torch.Tensor]]  # weights and outputs after some steps


def table(*rows: tuple[object, ...]) -> str:
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def mib(count: float) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 2**20 else f"{count / 1024:.3g} KiB"


# ------------------------------------------------------------------- (a) bytes of a step's log


def rice_bytes(values: int, entries: int) -> int:
    """The size of a log of so many entries at random places."""
    gap = max(1, values // max(1, entries))
    some = min(entries, 100_000)
    places = torch.randint(1, 2 * gap, (some,), generator=torch.Generator().manual_seed(1)).cumsum(
        0
    )
    log = _core.encode_rounding_log(
        bits=32, values=2 * gap * max(some, 1) + 1, entries=[(int(at), True) for at in places]
    )
    return 20 + round((len(log) - 20) * entries / max(1, some))


def depth_factor(terms: float) -> float:
    """How the share of values near a tie grows with the terms of normal dot products: E is
    (depth + 4) u |a| |b|, and the sum itself about |a| |b| / sqrt(terms).
    """
    chunk = 128 if terms <= 32768 else 256
    depth = min(terms, chunk) - 1 + math.ceil(terms / chunk) - 1
    return (depth + 4) * math.sqrt(terms)


def layer_sizes(batch: int, size: int) -> Iterator[tuple[str, int, int]]:
    """(kind, values, terms) of every product of a ResNet-50 step, from shapes alone."""
    with torch.device("meta"):
        net = nets.resnet50(1, 32).model
    found: list[tuple[str, int, int]] = []

    def note(layer: torch.nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        kind = "conv" if weight.dim() == 4 else "linear"
        terms = weight[0].numel()
        found.append((kind, out.numel(), terms))
        found.append((f"{kind}_weight", weight.numel(), out.numel() // weight.shape[0]))
        if given[0].shape[1] != 3:  # the first layer's input has no gradient
            back = terms // weight.shape[1] * weight.shape[0]
            found.append((f"{kind}_input", given[0].numel(), back))

    for layer in net.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
            layer.register_forward_hook(note)
    net(torch.empty(batch, 3, size, size, device="meta"))
    return iter(found)


def resnet50_entries(counts: nets.Counts, small: tuple[int, int], big: tuple[int, int]) -> int:
    """Entries at the big size: shares measured at the small one, per kind of product. Weight
    gradients sum over the batch's positions, so their share grows with the size.
    """
    entries = 0.0
    for kind in ("conv", "conv_input", "conv_weight"):
        weight = [
            sum(
                values * (depth_factor(terms) if kind == "conv_weight" else 1)
                for name, values, terms in layer_sizes(*shape)
                if name == kind
            )
            for shape in (small, big)
        ]
        entries += counts[kind]["ties"] * weight[1] / weight[0]
    return round(entries)


def bytes_of_steps() -> str:
    rows: list[tuple[object, ...]] = [
        ("net", "values rounded", "logged", "potl", "published packing", "one byte per value",
         "checkpoint per step", "checkpoint / potl", "packing / potl"),
    ]  # fmt: skip

    def add(name: str, values: int, entries: int, size: int, checkpoint: int) -> None:
        packed = -(-values // 5)
        rows.append(
            (name, f"{values:,}", f"{entries / values:.2e}", mib(size), mib(packed), mib(values),
             mib(checkpoint), f"{checkpoint / size:,.0f}", f"{packed / size:,.0f}")
        )  # fmt: skip

    small, big = (1 if QUICK else 4, 64), (64, 224)
    net = nets.resnet50(*small)
    log, _, counts = nets.trained_step(net, nets.session("trainer"), 1)
    add(f"ResNet-50, {small[0]} x {small[1]}x{small[1]}, measured", log["values"], log["entries"],
        len(log["bytes"]), net.checkpoint_bytes)  # fmt: skip
    shapes = list(layer_sizes(*small))
    assert sum(values for _, values, _ in shapes) == log["values"], "shapes and log disagree"
    values = sum(values for _, values, _ in layer_sizes(*big))
    entries = resnet50_entries(counts, small, big)
    add(f"ResNet-50, {big[0]} x {big[1]}x{big[1]}, from shapes", values, entries,
        rice_bytes(values, entries), net.checkpoint_bytes)  # fmt: skip
    del net
    net = nets.gpt2(2, 16, n_layer=2) if QUICK else nets.gpt2()
    log, _, _ = nets.trained_step(net, nets.session("trainer"), 1)
    add("GPT-2 124M, 8 x 64 tokens, measured", log["values"], log["entries"], len(log["bytes"]),
        net.checkpoint_bytes)  # fmt: skip
    return table(*rows)


# ------------------------------------------------------------------- (b) corrections


def corrections() -> str:
    steps = 1 if QUICK else 4
    rows: list[tuple[object, ...]] = [
        ("net", "b", "values per step", "logged per step", "corrections forward",
         "corrections backward"),
    ]  # fmt: skip
    for name, make in (
        ("ResNet-20, batch 16", lambda: nets.resnet20(16)),
        ("GPT 4 x 256", nets.small_gpt),
    ):
        for bits in (32, 26) if QUICK else (32, 30, 28, 26):
            ours, theirs = make(), make()
            trainer = nets.session("trainer", bits=bits)
            auditor = nets.session("auditor", bits=bits, order=OTHER_ORDER)
            forward = entries = values = 0
            before = 0
            for number in range(1, steps + 1):
                log, _, _ = nets.trained_step(ours, trainer, number)
                _, half, whole = nets.audited_step(theirs, auditor, log)
                forward += nets.total(half, "corrections") - before
                before = nets.total(whole, "corrections")
                entries += log["entries"]
                values = log["values"]
            assert nets.state_bytes(ours) == nets.state_bytes(theirs)
            rows.append(
                (name, bits, f"{values:,}", f"{entries / steps:,.1f}", f"{forward / steps:.2f}",
                 f"{(before - forward) / steps:.2f}")
            )  # fmt: skip
    return table(*rows)


# ------------------------------------------------------------------- (d) step times


def step_times() -> str:
    rows: list[tuple[object, ...]] = [("net", "stock step", "trainer", "auditor")]
    rounds = 2 if QUICK else 9 if measuring.FULL else 4
    for name, make in (
        ("ResNet-20, batch 128", lambda: nets.resnet20(8 if QUICK else 128)),
        ("GPT 4 x 256, 8 x 64 tokens", nets.small_gpt),
    ):
        stock, ours, theirs = make(), make(), make()
        trainer, auditor = nets.session("trainer"), nets.session("auditor", order=OTHER_ORDER)
        logs: list[object] = []

        def train(net: nets.Net = ours, one: object = trainer, logs: list[object] = logs) -> None:
            logs.append(nets.trained_step(net, one, len(logs) + 1)[0])

        trained = measuring.interleaved(train, stock.step, rounds=rounds)
        audited = measuring.interleaved(
            replay(theirs, auditor, logs), stock.step, rounds=len(logs) - 1
        )
        rows.append(
            (name, f"{trained.baseline_seconds * 1e3:.0f} ms", of_stock(trained), of_stock(audited))
        )
    return table(*rows)


def replay(net: nets.Net, auditor: object, logs: list[object]) -> Callable[[], None]:
    waiting = list(logs)

    def step() -> None:
        nets.audited_step(net, auditor, waiting.pop(0))

    return step


def of_stock(ratio: measuring.Ratio) -> str:
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


# ------------------------------------------------------------------- (e) divergence


def divergence() -> str:
    """log64 is compared with itself in another order and without a log; stock float32 with one
    thread against two, which is its order of summation.
    """
    steps = (1, 2) if QUICK else (1, 10, 30)
    batches = [nets.resnet20(16, seed) for seed in range(steps[-1])]
    data = [(one.x, one.y) for one in batches]
    probe = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(7))

    def run(step: Callable[[nets.Net, int], object], permuted: bool = False) -> Ends:
        net, seen = nets.resnet20(16), {}
        chosen = list(range(steps[-1]))
        if permuted:
            chosen = torch.randperm(steps[-1], generator=torch.Generator().manual_seed(1)).tolist()
        for number, at in enumerate(chosen, 1):
            net.x, net.y = data[at]
            step(net, number)
            if number in steps:
                weights = torch.cat([p.detach().flatten() for p in net.model.parameters()]).clone()
                exact = copy.deepcopy(net.model).double().eval()
                with torch.no_grad():
                    seen[number] = (weights, exact(probe.double()))
        return seen

    def logged(order: int) -> Callable[[nets.Net, int], object]:
        one = nets.session("trainer", order=order)
        return lambda net, number: nets.trained_step(net, one, number)

    def stock(threads: int) -> Callable[[nets.Net, int], object]:
        def step(net: nets.Net, number: int) -> None:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                net.step()
            finally:
                torch.set_num_threads(before)

        return step

    rounded = run(logged(0))
    plain = run(stock(1))
    rows: list[tuple[object, ...]] = [
        (
            "steps",
            "what",
            "stock: order of summation",
            "log64: order of summation",
            "order of data",
        ),
    ]
    pairs = (
        (plain, run(stock(2))),
        (rounded, run(logged(OTHER_ORDER))),
        (rounded, run(logged(0), permuted=True)),
    )
    for number in steps:
        for at, what in enumerate(("weights", "outputs")):
            apart = [
                float((other[number][at] - first[number][at]).double().norm())
                for first, other in pairs
            ]
            rows.append((number, what, *(f"{one:.2e}" for one in apart)))
    return table(*rows)


# ------------------------------------------------------------------- all

TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "bytes": ("Bytes of a step's log", bytes_of_steps),
    "corrections": ("Corrections by the auditor, per step", corrections),
    "thresholds": ("Thresholds of the published form", rounding_thresholds.thresholds),
    "times": ("Step time of trainer and auditor over the stock step", step_times),
    "divergence": ("Two trainings that differ in one order (l2 of the difference)", divergence),
}


HEAD = """# Rounding logs in figures

After this page you know how large rounding logs are and what they cost, compared with the published
scheme of Srivastava, Arora and Boneh ([2403.09603](https://arxiv.org/abs/2403.09603)): 1.6 bit for
every value, and logs up to 140 times smaller than a checkpoint per step.

Written by `scripts/experiment rounding_tables --write`; `make bench STEM=rounding_log` measures
sizes and speeds of the coding. Results of matrix products and convolutions are rounded, gradients
included, and logged near a tie. Everything else is reproducible without a log in potl's `log64`.
"""


def keep(part: str) -> None:
    """Puts a section onto the page, in the place of the one with its title."""
    where = (
        f"Measured on {measuring.processor()}, {torch.get_num_threads()} thread(s), "
        f"torch {torch.__version__}; load average {os.getloadavg()[0]:.1f}.\n"
    )
    old = PAGE.read_text().split("\n## ")[1:] if PAGE.exists() else []
    sections = {one.partition("\n")[0]: f"## {one.rstrip()}\n" for one in old}
    sections[part.partition("\n")[0].removeprefix("## ")] = f"{part}\n{where}"
    ordered = [sections[title] for title, _ in TABLES.values() if title in sections]
    PAGE.write_text("\n".join([HEAD, *ordered]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny nets, to see that it runs")
    arguments = parser.parse_args()
    for name in arguments.only:
        title, make = TABLES[name]
        part = f"## {title}\n\n{make()}\n"
        print(part, flush=True)
        if arguments.write and not QUICK:
            keep(part)


if __name__ == "__main__":
    main()
