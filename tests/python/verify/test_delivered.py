# SPDX-License-Identifier: Apache-2.0
"""The delivered file holds exactly the last state's tensors, whatever it claims about its size."""

from __future__ import annotations

import json
import resource
import struct
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import potl


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = tasks.model()
        self.register_buffer("mask", torch.ones(16), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x * self.mask)
        return out


def build() -> potl.Task:
    return potl.Task(**tasks.options(model=Masked(), epochs=1))


class Delivery:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.job = potl.Job.create(build, seed=3, checkpoint_every=4, arithmetic="stock")
        self.run = potl.record(build, directory / "run", job=self.job)
        self.commitment = self.run.commit()
        self.run.export(directory / "whole.safetensors")
        self.tensors: dict[str, torch.Tensor] = load_file(directory / "whole.safetensors")

    def verdict(self, model: Path | None, **options: Any) -> Any:
        return potl.verify(
            self.run,
            job=self.job,
            commitment=self.commitment,
            task=build,
            model=model,
            checks=[potl.Replay(samples=2)],
            policy=potl.Policy(probability=0),
            ledger=None,
            **options,
        )

    def of(self, tensors: dict[str, torch.Tensor]) -> Any:
        path = self.directory / "delivered.safetensors"
        save_file(tensors, path)
        return self.verdict(path)


@pytest.fixture(scope="module")
def delivery(tmp_path_factory: pytest.TempPathFactory) -> Delivery:
    return Delivery(tmp_path_factory.mktemp("delivery"))


def test_what_export_writes_and_what_state_dict_holds_are_accepted(delivery: Delivery) -> None:
    assert "mask" in delivery.tensors
    assert delivery.of(delivery.tensors).verdict == "accepted"
    kept = {k: v for k, v in delivery.tensors.items() if k != "mask"}
    assert kept.keys() == Masked().state_dict().keys()
    report = delivery.of(kept)
    assert report.verdict == "accepted" and any("mask" in f.reason for f in report.findings)


@pytest.mark.parametrize("name", ["net.1.running_var", "net.1.num_batches_tracked", "net.0.bias"])
def test_a_file_without_one_tensor_is_another_model(delivery: Delivery, name: str) -> None:
    report = delivery.of({k: v for k, v in delivery.tensors.items() if k != name})
    assert report.verdict == "rejected" and f'"{name}" is missing' in report.sentence


def test_a_file_with_one_tensor_more_is_another_model(delivery: Delivery) -> None:
    assert delivery.of({**delivery.tensors, "more": torch.zeros(1)}).verdict == "rejected"


def test_a_vast_file_is_refused_before_it_is_read(delivery: Delivery) -> None:
    vast = delivery.directory / "vast.safetensors"
    size = 3 << 30
    head = json.dumps({"0.weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    with vast.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head.encode())
        file.truncate(8 + len(head) + size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = delivery.verdict(vast)
    assert report.verdict == "rejected" and "larger than" in report.sentence
    with vast.open("wb") as file:
        file.truncate(size)
    report = delivery.verdict(vast)
    assert report.verdict == "inconclusive" and f"{vast} is no valid" in report.sentence
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_last_state_that_cannot_be_opened_is_never_accepted(tmp_path: Path, damage: str) -> None:
    delivery = Delivery(tmp_path)
    last = tmp_path / "run" / "checkpoints" / f"step-{delivery.job.steps}.safetensors"
    if damage == "gone":
        last.unlink()
    else:
        raw = bytearray(last.read_bytes())
        raw[-1] ^= 1
        last.write_bytes(raw)
    report = delivery.verdict(None)
    assert report.verdict == "rejected"
    rule = "transcript.withheld" if damage == "gone" else "transcript.checkpoint"
    assert any(f.check == "model" and f.rule == rule for f in report.findings)
