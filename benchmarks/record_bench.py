# SPDX-License-Identifier: Apache-2.0
"""What recording costs: a step under `potl.Prover` against the same step in a plain PyTorch loop
over a DataLoader.

Both loops run in this process, in turn, in blocks of steps. A recorded block ends with a flush, so
that hashing and writing on the background thread are paid inside it and do not slow the plain block
that follows. Of the large nets it is the processor time of all threads that is compared: what the
spare core does is paid too. Making the job is not in it.

    python benchmarks/record_bench.py [--only NAME]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import measuring
import torch
import workloads
from torch.nn import functional

import potl


def plain_steps(task: potl.Task, steps: int) -> Generator[float]:
    """The loop that a user would write."""
    loader = torch.utils.data.DataLoader(
        task.dataset, batch_size=task.batch_size, shuffle=True, drop_last=task.drop_last
    )
    (optimizer,) = task.optimizers
    done = 0
    while done < steps:
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(task.model(x), y)
            loss.backward()
            optimizer.step()
            yield loss.item()
            done += 1


def overhead(
    name: str,
    build: Callable[[int], potl.Task],
    *,
    block: int,
    rounds: int,
    at_most: float,
    folder: Path,
    clock: Callable[[Callable[[], object]], float] = measuring.timed,
) -> dict[str, object]:
    """Step time recorded / not recorded, a checkpoint every 100 steps."""
    needed = block * (rounds + 1)
    probe = build(1)
    per_epoch = -(-len(probe.dataset) // probe.batch_size)
    epochs = -(-needed // per_epoch)
    plain = plain_steps(build(epochs), needed)
    whole = functools.partial(build, epochs)
    job = potl.Job.create(whole, seed=7, checkpoint_every=100, arithmetic="stock")
    with potl.Prover(whole, folder / name, job=job) as prover:
        recorded = prover.steps()

        def ours() -> None:
            for _ in itertools.islice(recorded, block):
                pass
            prover.flush()

        def theirs() -> None:
            for _ in itertools.islice(plain, block):
                pass

        ratio = measuring.paired(lambda: clock(ours), lambda: clock(theirs), rounds=rounds)
        prover_bytes = sum(f.stat().st_size for f in (folder / name).glob("transcript*"))
        steps = block * (rounds + 1)
    return measuring.result(
        f"record.overhead.{name}",
        ratio.seconds / block * 1e3,
        "ms/step",
        "plain PyTorch loop over a DataLoader",
        ratio,
        at_most=at_most,
        baseline_ms=ratio.baseline_seconds / block * 1e3,
        steps_per_block=block,
        rounds=rounds,
        transcript_bytes_per_step=prover_bytes / steps,
    )


def bytes_per_step(folder: Path) -> dict[str, object]:
    """Transcript bytes per step, without checkpoints."""

    def build() -> potl.Task:
        return workloads.mlp_task(epochs=24)

    run = potl.record(build, folder / "bytes", seed=7, checkpoint_every=100)
    size = sum(
        file.stat().st_size
        for file in run.path.rglob("*")
        if file.is_file() and file.suffix != ".safetensors"
    )
    telemetry = (run.path / "telemetry.log").stat().st_size
    steps = run.job.core.steps
    per_step = (size - telemetry) / steps
    return measuring.result(
        "proof.bytes_per_step",
        per_step,
        "bytes",
        "transcript without checkpoints and telemetry",
        at_most=400,
        steps=steps,
        telemetry_bytes=telemetry,
    )


def measurements(folder: Path) -> dict[str, Callable[[], dict[str, object]]]:
    return {
        "mlp": functools.partial(
            overhead,
            "mlp",
            # What is asked for is a step of 1 to 2 ms.
            functools.partial(workloads.mlp_task, batch_size=256),
            block=200,
            rounds=41 if measuring.FULL else 15,
            at_most=1.25,
            folder=folder,
        ),
        "resnet20": functools.partial(
            overhead,
            "resnet20",
            workloads.resnet20_task,
            block=10,
            rounds=21 if measuring.FULL else 9,
            at_most=1.03,
            folder=folder,
        ),
        "resnet18": functools.partial(
            overhead,
            "resnet18",
            workloads.resnet18_task,
            block=5,
            rounds=21 if measuring.FULL else 5,
            at_most=1.10,
            folder=folder,
            clock=measuring.processor_timed,
        ),
        "lora": functools.partial(
            overhead,
            "lora",
            workloads.lora_task,
            # With the checkpoint after 100 steps in one of the blocks' pairs.
            block=20,
            rounds=21 if measuring.FULL else 5,
            at_most=1.05,
            folder=folder,
            clock=measuring.processor_timed,
        ),
        "bytes": functools.partial(bytes_per_step, folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME")
    only = parser.parse_args().only
    folder = Path(tempfile.mkdtemp(prefix="potl-record-bench-"))
    try:
        chosen = measurements(folder)
        if only is not None:
            print(chosen[only]())
            return
        measuring.write("record", [measure() for measure in chosen.values()])
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
