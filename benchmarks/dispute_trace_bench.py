# SPDX-License-Identifier: Apache-2.0
"""What a disputed step costs: executing it with a trace against executing it alone, and the
referee's largest recomputation of one element against the whole step. ResNet-20 (batch 128, SGD
with momentum) and a GPT of 4 layers of width 256 (8 x 64 characters, AdamW), in ord32.

    python benchmarks/dispute_trace_bench.py
"""

from __future__ import annotations

import functools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import torch
import workloads

import potl
from potl import _core
from potl._dispute._derive import derive_operators
from potl._dispute._encoding import TensorOutline
from potl._dispute._long_sums import forms_of
from potl._dispute._operators import CAPTURE, Operator
from potl._dispute._outline import StateOutline
from potl._dispute._parts import most_bytes, needs_of, sum_to_open
from potl._dispute._recompute import CHUNK, needs
from potl._dispute._regions import multiply_adds, plan
from potl._dispute._values import trace_values
from potl._task._values import DTYPE_OF

ROUNDS = 15 if measuring.FULL else 5
OVERHEAD_AT_MOST = 2.5
FRACTION_AT_MOST = 0.01
STEP = 2  # the optimizers' state is there from here on
ELEMENTS = 3


def gpt() -> potl.Task:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python" / "helpers"))
    import zoo

    model = zoo.GPT(layers=4, width=256, length=64)
    return potl.Task(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        dataset=workloads.texts(),
        loss=workloads.next_character,
        batch_size=8,
        epochs=1,
    )


NETS: dict[str, Callable[[], potl.Task]] = {"resnet20": workloads.resnet20_task, "gpt": gpt}


def overhead(name: str) -> Iterator[dict[str, Any]]:
    """The traced step; both begin in one state, whose restoration is not timed. Who traces a step
    of a run has the digests of the states before and after it.
    """
    with potl.Session.open(NETS[name], seed=1, arithmetic="ord32") as session, session.active():
        for at, _, batch in session.batches(1, STEP):
            if at < STEP:
                session.run_step(at, batch)
        before = session.capture()
        known = StateOutline.of(before)
        session.run_step(STEP, batch)
        after = session.capture().digest()
        traced = functools.partial(trace_values, session, before=known, after=after)

        def timed(work: Callable[..., object]) -> float:
            session.restore(before)
            return measuring.timed(lambda: work(STEP, batch))

        ratio = measuring.paired(
            lambda: timed(traced),
            lambda: timed(session.run_step),
            rounds=ROUNDS,
            most=5 * ROUNDS,
        )
    yield measuring.result(
        f"dispute.trace.overhead.{name}",
        ratio.seconds * 1e3,
        "ms/step",
        "the step without a trace",
        ratio,
        at_most=OVERHEAD_AT_MOST,
    )


def opened(operator: Operator, result: int, place: int) -> int:
    """Bytes of chunks and parts that a party shows for one element."""
    each = CHUNK // DTYPE_OF[operator.results[result].dtype].itemsize
    where = (operator, result, place // each, place % each)
    long = sum_to_open(*where, arithmetic="ord32")
    if long is None:
        return CHUNK * sum(len(one.chunks) for one in needs(*where))
    forms = forms_of(operator)
    settled = {  # indices as good as any
        number: torch.zeros(places.shape, dtype=DTYPE_OF[forms[number].dtype])
        for number, places in long.settled.items()
    }
    wanted = needs_of(operator, long.settled) + needs_of(operator, long.block(0, settled))
    return most_bytes(long) + CHUNK * sum(len(one.chunks) for one in wanted)


def referee(name: str) -> Iterator[dict[str, Any]]:
    """Derives the operators, and plans elements of every result."""
    job = potl.Job.create(NETS[name], seed=1, checkpoint_every=4, arithmetic="ord32")
    with potl.Session.open(NETS[name], seed=1, job=job) as session, session.active():
        for at, _, batch in session.batches(1, STEP - 1):
            session.run_step(at, batch)
        before = StateOutline.of(session.capture())
    began = time.perf_counter()
    operators = derive_operators(NETS[name], job, STEP, before=before)
    seconds = time.perf_counter() - began
    draw = random.Random(1)
    worst = max(
        plan(one, number, draw.randrange(math.prod(form.shape))).multiply_adds
        for one in operators
        if one.name != CAPTURE and multiply_adds(one)
        for number, form in enumerate(one.results)
        if isinstance(form, TensorOutline)
        for _ in range(ELEMENTS)
    )
    most = max(
        (opened(one, number, draw.randrange(math.prod(form.shape))), one.name)
        for one in operators
        if one.name != CAPTURE and not _core.returns_unset(one.name)
        for number, form in enumerate(one.results)
        if isinstance(form, TensorOutline) and math.prod(form.shape)
        for _ in range(ELEMENTS)
    )
    yield measuring.result(
        f"dispute.opened.{name}",
        most[0] / 1e6,
        "MB",
        f"the most that a party opens for one element, of {most[1]}",
    )
    total = sum(map(multiply_adds, operators))
    yield measuring.result(
        f"dispute.referee.flops_fraction.{name}",
        worst / total,
        "ratio",
        f"multiply-adds of the step, {total:.3g}",
        at_most=FRACTION_AT_MOST,
    )
    yield measuring.result(
        f"dispute.derive.{name}",
        seconds,
        "s",
        f"{len(operators)} operators, task built and checked",
    )


def main() -> None:
    results: list[dict[str, Any]] = []
    for name in NETS:
        for measure in (overhead, referee):
            for found in measure(name):
                print(json.dumps(found), flush=True)
                results.append(found)
    measuring.write("dispute_trace", results)


if __name__ == "__main__":
    main()
