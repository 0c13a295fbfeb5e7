# SPDX-License-Identifier: Apache-2.0
"""What the order of additions costs: a step that two processes share, against the same step under
torch's DistributedDataParallel.

Both run in the same two processes of one thread each, in turn, over gloo. A step is a GPT of 3.2
million weights on half a batch for each process. DistributedDataParallel sends gradients while the
backward pass goes on; potl sends them after it. Recording is not in it (record_bench.py has that).

    python benchmarks/data_parallel_bench.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import measuring
import torch
import torch.distributed as dist
import workloads

import potl
from potl._job._ranks import Ranks

PROCESSES = 2


def build() -> potl.Task:
    task = workloads.gpt_guarded()
    task.accumulate = PROCESSES
    return task


def measure(rounds: int, block: int) -> dict[str, object]:
    """In each process: the steps of both, in the same order."""
    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    plain = workloads.gpt_guarded()
    model = torch.nn.parallel.DistributedDataParallel(plain.model)
    with potl.Session.open(build, seed=7) as session, session.active():
        session._share_steps(Ranks(group))
        batches = [batch for _, _, batch in session.batches(1, block)]

        def ours() -> None:
            for step, batch in enumerate(batches, 1):
                session.run_step(step, batch)

        def theirs() -> None:
            for x, y in batches:
                (optimizer,) = plain.optimizers
                optimizer.zero_grad(set_to_none=True)
                mine = slice(rank * len(x) // PROCESSES, (rank + 1) * len(x) // PROCESSES)
                loss = workloads.next_character(model(x[mine]), y[mine])
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                loss.item()

        ratio = measuring.interleaved(ours, theirs, rounds=rounds)
    return measuring.result(
        "data_parallel.step.gpt",
        ratio.seconds / block * 1e3,
        "ms/step",
        "DistributedDataParallel",
        ratio,
        baseline_ms=ratio.baseline_seconds / block * 1e3,
        processes=PROCESSES,
    )


def main() -> None:
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        found = measure(rounds=21 if measuring.FULL else 7, block=8)
        if dist.get_rank() == 0:
            measuring.write("data_parallel", [found])
        dist.destroy_process_group()
        return
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nproc-per-node={PROCESSES}", str(Path(__file__))),
        ],
        check=True,
    )


if __name__ == "__main__":
    main()
