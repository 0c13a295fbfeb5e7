# SPDX-License-Identifier: Apache-2.0
"""How often honest trainers are not accepted in stock arithmetic, when they train on another
machine than the verifier's: other thread counts, older instructions.

scripts/experiment false_alarms [--seeds 5] [--out build/false_alarms]     goes on where it was
scripts/experiment false_alarms --table                                    of what there is

One process for each kind of machine records all trainings of a seed, this one verifies them with
every segment drawn. Every training has 24 steps in 6 segments.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from false_alarm_nets import NETS
from torch import nn
from torch.nn import functional

import potl
from potl import _core

STEPS, EVERY, BATCH = 24, 4, 32
# Of the trainer; the verifier has one thread and this machine's newest instructions.
MACHINES: dict[str, tuple[int, dict[str, str]]] = {
    "old": (1, {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "avx2": (1, {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "same": (1, {}),
    "threads": (2, {}),
}
PRECISIONS = ("fp32", "bf16", "fp16 autocast", "bf16 autocast", "fp64")
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.05),
    "momentum": functools.partial(torch.optim.SGD, lr=0.02, momentum=0.9),
    "Adam": functools.partial(torch.optim.Adam, lr=1e-3),
    "AdamW": functools.partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.05),
    "RMSprop": functools.partial(torch.optim.RMSprop, lr=1e-3),
    "Adagrad": functools.partial(torch.optim.Adagrad, lr=1e-2),
    "Adafactor": functools.partial(torch.optim.Adafactor, lr=1e-2),
    "SparseAdam": functools.partial(torch.optim.SparseAdam, lr=1e-2),
}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(16, 48, batch_first=True)
        self.out = nn.Linear(48, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.rows(images.squeeze(1))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.block(self.embed(images.squeeze(1))).mean(1))


class Embedded(nn.Module):
    """A word for each of 32 levels of a pixel: few in a step, and gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(256 * 32, 10, mode="sum", sparse=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        levels = (8 * images.flatten(1)).long().clamp(-16, 15) + 16
        return self.words(levels + 32 * torch.arange(256))


def normed() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(2048, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10)),
    )


def dropped() -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.3), nn.Linear(128, 10)),
    )


def deep() -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(256, 64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


SMALL = {
    "norms": normed,
    "dropout": dropped,
    "lstm": Recurrent,
    "attention": Attention,
    # On images of which most pixels are 0, some always and some nearly always.
    "sparse": deep,
    # Of SparseAdam alone, which takes no other gradients than sparse ones.
    "embedding": Embedded,
}


def images(seed: int, dtype: torch.dtype, *, sparse: bool) -> torch.utils.data.Dataset:
    size = 16
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(256, 1, size, size, generator=made)
    if sparse:
        share = torch.linspace(-0.2, 0.3, size).view(1, 1, size, 1)
        x = x * (torch.rand(x.shape, generator=made) < share)
    y = (x.flatten(1) @ torch.randn(size * size, 10, generator=made)).argmax(1)
    return torch.utils.data.TensorDataset(x.to(dtype), y)


def small_task(precision: str, optimizer: str, net: str, seed: int) -> potl.Task:
    dtype = {"bf16": torch.bfloat16, "fp64": torch.float64}.get(precision, torch.float32)
    model = SMALL[net]().to(dtype)
    kind = {"fp16 autocast": torch.float16, "bf16 autocast": torch.bfloat16}.get(precision)
    scaled = precision == "fp16 autocast"
    return potl.Task(
        model=model,
        optimizer=OPTIMIZERS[optimizer](model.parameters()),
        dataset=images(seed, dtype, sparse=net == "sparse"),
        loss=functional.cross_entropy,
        batch_size=BATCH,
        epochs=STEPS * BATCH // 256,
        autocast=kind,
        scaler=torch.amp.GradScaler("cpu", init_scale=256.0) if scaled else None,
    )


def configurations() -> list[tuple[str, ...]]:
    small = itertools.product(PRECISIONS, OPTIMIZERS, SMALL)
    fitting = [one for one in small if (one[1] == "SparseAdam") == (one[2] == "embedding")]
    return [*fitting, *(("fp32", "usual", net) for net in NETS)]


def build_of(configuration: tuple[str, ...], seed: int) -> Callable[[], potl.Task]:
    precision, optimizer, net = configuration
    if net in NETS:
        return functools.partial(NETS[net], seed)
    return functools.partial(small_task, precision, optimizer, net, seed)


def name_of(configuration: tuple[str, ...]) -> str:
    return "-".join(configuration).replace(" ", "_")


def record_all(folder: Path, machine: str, seed: int) -> None:
    """In a process of that machine: a run, or why there is none, for every job of the folder."""
    torch.set_num_threads(MACHINES[machine][0])
    for configuration in configurations():
        at = folder / name_of(configuration)
        if not (at / "job.json").exists():
            continue
        try:
            run = potl.record(
                build_of(configuration, seed),
                at / machine,
                job=potl.Job.read(at / "job.json"),
                key=at / "trainer.pem",
                check_job=False,
                progress=False,
            )
            (at / f"{machine}.note").write_text(str(run.commit()))
        except Exception as error:
            (at / f"{machine}.error").write_text(f"{type(error).__name__}: {error}")


def jobs(folder: Path, seed: int, wanted: list[tuple[str, ...]]) -> None:
    for configuration in wanted:
        at = folder / name_of(configuration)
        at.mkdir(parents=True, exist_ok=True)
        key = _core.SigningKey.generate()
        (at / "trainer.pem").write_text(key.to_pem())
        (at / "trainer.pub").write_text(key.public_key.to_pem())
        try:
            job = potl.Job.create(
                build_of(configuration, seed),
                seed=seed,
                checkpoint_every=EVERY,
                trainer=at / "trainer.pub",
                arithmetic="stock",
                progress=False,
            )
            job.write(at / "job.json")
        except Exception as error:
            print(f"{name_of(configuration)}: {error}", file=sys.stderr)


def verified(
    folder: Path, configuration: tuple[str, ...], machine: str, seed: int
) -> dict[str, Any]:
    at = folder / name_of(configuration)
    row: dict[str, Any] = {"configuration": configuration, "machine": machine, "seed": seed}
    if not (at / f"{machine}.note").exists():
        error = at / f"{machine}.error"
        return {**row, "verdict": "none", "why": error.read_text() if error.exists() else "no job"}
    began = time.perf_counter()
    report = potl.verify(
        at / machine,
        job=at / "job.json",
        commitment=(at / f"{machine}.note").read_text(),
        task=build_of(configuration, seed),
        checks=[potl.PEV(), potl.Replay(samples=STEPS // EVERY)],
        ledger=None,
        progress=False,
    )
    replays = report.document["replays"]
    found = [one for one in report.findings if one.result in ("reject", "inconclusive")]
    return {
        **row,
        "verdict": report.verdict,
        "why": [f"{one.rule}: {one.reason}" for one in found],
        "equal": sum(bool(one["equal"]) for one in replays),
        "segments": len(replays),
        "seconds": round(time.perf_counter() - began, 3),
    }


def table(rows: list[dict[str, Any]]) -> str:
    groups: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for row in rows:
        precision, optimizer, _ = row["configuration"]
        kind = "nets of others" if optimizer == "usual" else precision
        counter = groups[kind, row["machine"]]
        counter[row["verdict"]] += 1
        counter["equal"] += row.get("equal", -1) == row.get("segments")
    lines = [
        "| arithmetic | trainer's machine | recordings | equal bits | accepted | inconclusive "
        "| rejected |",
        "|---|---|---|---|---|---|---|",
    ]
    for (kind, machine), counter in sorted(groups.items()):
        total = sum(counter[v] for v in ("accepted", "inconclusive", "rejected"))
        if total:
            lines.append(
                f"| {kind} | {machine} | {total} | {counter['equal']} | {counter['accepted']} "
                f"| {counter['inconclusive']} | {counter['rejected']} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/false_alarms"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="configurations with this in their name")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--record", nargs=2, metavar=("MACHINE", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out
    if options.record:
        machine, seed = options.record
        record_all(out / "runs", machine, int(seed))
        return
    out.mkdir(parents=True, exist_ok=True)
    log = out / "verdicts.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if not options.table:
        torch.set_num_threads(1)
        done = {(tuple(row["configuration"]), row["machine"], row["seed"]) for row in rows}
        chosen = [one for one in configurations() if options.only in name_of(one)]
        for seed, machine in itertools.product(range(options.seeds), MACHINES):
            missing = [one for one in chosen if (one, machine, seed) not in done]
            if not missing:
                continue
            folder = out / "runs"
            shutil.rmtree(folder, ignore_errors=True)
            jobs(folder, seed, missing)
            threads, flags = MACHINES[machine]
            subprocess.run(
                [sys.executable, __file__, "--out", str(out), "--record", machine, str(seed)],
                env={**os.environ, **flags, "OMP_NUM_THREADS": str(threads)},
                check=True,
            )
            with log.open("a") as lines:
                for configuration in missing:
                    row = verified(folder, configuration, machine, seed)
                    rows.append(row)
                    print(json.dumps(row), file=lines, flush=True)
                    shutil.rmtree(folder / name_of(configuration))
    print(table(rows))


if __name__ == "__main__":
    main()
