# SPDX-License-Identifier: Apache-2.0
"""A referee derives a step without the weights of the task, and accuses nobody by that alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heavy_net
import pytest
import torch
import traced_nets
import zoo
from disputed import Liar, false_run
from torch import nn

import potl
from potl import _core
from potl._dispute import _agreed_step, _weightless
from potl._dispute._derive import derive_operators
from potl._dispute._operators import Operator

pytest.importorskip("potl._torch", reason="potl was built without torch")

Build = Callable[[], potl.Task]
AT = 2


class Dispute:
    """The auditor of a run that is false from a step on against a trainer who lies about one of its
    operators, or only about the state after it.
    """

    def __init__(self, build: Build, folder: Path, operator: int | None) -> None:
        folder.mkdir()
        key = _core.SigningKey.generate()
        (folder / "trainer.pub").write_text(key.public_key.to_pem())
        self.job = potl.Job.create(
            build, seed=3, checkpoint_every=3, trainer=folder / "trainer.pub", arithmetic="ord32"
        )
        self.job.write(folder / "job.json")
        run = false_run(build, self.job, AT, folder / "run", key)
        potl.audit(run, job=self.job, task=build, log=folder / "audit", to_the_end=True)
        trainer: potl.Party = Liar(run, job=self.job, task=build, key=key, at=AT, operator=operator)
        self.verdict = potl.dispute(
            trainer=trainer,
            auditor=potl.Party(folder / "audit", job=self.job, task=build),
            referee=potl.Referee(self.job, task=build, key=folder / "referee.pem"),
        )
        self.evidence = folder / "evidence.json"
        self.verdict.evidence.write(self.evidence)


def test_who_judges_a_product_never_has_the_model_in_memory(tmp_path: Path) -> None:
    small = Dispute(heavy_net.short_mlp, tmp_path / "small", 2)
    large = Dispute(heavy_net.heavy, tmp_path / "large", heavy_net.PRODUCT)
    assert (large.verdict.winner, large.verdict.why) == ("auditor", "value")
    assert large.verdict.operator == (heavy_net.PRODUCT, "aten.addmm.default")
    run = subprocess.run(
        [
            sys.executable,
            heavy_net.__file__,
            large.evidence,
            tmp_path / "large/job.json",
            small.evidence,
            tmp_path / "small/job.json",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    winner, why, believed, grown = run.stdout.split()
    assert (winner, why, believed) == ("auditor", "value", "0")
    assert int(grown) < 2 * heavy_net.LARGEST < heavy_net.STATE / 5


OF_ZOO = ("bilstm", "text_cnn", "autoencoder", "gpt2", "vit")


@pytest.mark.parametrize("name", [*traced_nets.NETS, *(f"zoo.{name}" for name in OF_ZOO)])
def test_the_operators_are_those_of_the_task_with_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ("zoo.gpt2", "zoo.vit"):
        pytest.importorskip("transformers")
    monkeypatch.setattr(_weightless, "SMALLEST_BYTES", 8)

    def build() -> potl.Task:
        return zoo.build(name[4:]) if name.startswith("zoo.") else traced_nets.NETS[name]()

    job = potl.Job.create(build, seed=3, checkpoint_every=4, arithmetic="ord32")
    before = traced_nets.outline(build, 2)
    with_weights = derive_operators(build, job, 2, before=before)
    assert derive_operators(build, job, 2, before=before, weights=False) == with_weights


def test_weights_are_neither_computed_nor_kept() -> None:
    with _weightless.weightless():
        wide = nn.Linear(512, 512)
        nn.init.orthogonal_(nn.Linear(4, 4).weight)  # a small one is as it would be
        average = torch.optim.swa_utils.AveragedModel(wide)
        scaled = wide.weight * 2
        norm = wide.weight.norm()
        wide.weight.data.copy_(torch.ones(512, 512))
        part = wide.weight[3]
        elsewhere = wide.weight.to("meta")
    for one in (wide.weight, *list(average.parameters())[:1], scaled, part):
        assert not one.any()
    assert norm == 0
    assert elsewhere.device.type == "meta"
    assert wide.bias.any()
    later = nn.Module()
    later.register_parameter("weight", nn.Parameter(torch.ones(512, 512)))
    assert later.weight.all()


def test_modules_of_another_thread_have_their_weights() -> None:
    module = nn.Module()
    drawn = nn.Parameter(torch.rand(512, 512))
    with _weightless.weightless():
        other = threading.Thread(target=module.register_parameter, args=("weight", drawn))
        other.start()
        other.join()
    assert module.weight.any()


def test_memory_that_is_shared_stays() -> None:
    """Another parameter may lie in it, or a name may be tied to it."""
    both = torch.ones(2, 256, 256)
    with _weightless.weightless():
        net = nn.Module()
        net.register_parameter("first", nn.Parameter(both[0]))
        net.register_parameter("none", None)
        head = nn.Linear(256, 256, bias=False)
        head.weight = net.first
        lazy = nn.LazyLinear(512)
        lazy(torch.ones(1, 512))
    assert net.first.all()
    assert head.weight is net.first
    assert lazy.weight.shape == (512, 512)


class Drawn(nn.Module):
    """Draws what no state holds after a large weight, and decides by that weight how it goes on."""

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.wide = nn.Linear(192, 512)
        self.last = nn.Linear(512, 10)
        self.mask = torch.rand(512)
        self.turned = not looks or bool(self.wide.weight.any())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.wide(x.flatten(1)) * self.mask
        return self.last(hidden.relu() if self.turned else hidden)


def drawn(looks: bool = True) -> potl.Task:
    net = Drawn(looks)
    return traced_nets.task(net, traced_nets.small_images(), 8, traced_nets.sgd(net), max_steps=3)


def masked() -> potl.Task:
    """Only draws: as many operators, one of which reads another constant."""
    return drawn(looks=False)


def demanding() -> potl.Task:
    """Cannot be built without its weights."""
    made = drawn()
    if not made.model.turned:
        raise ValueError("the weights are zero")
    return made


# A transpose before the mask, what reads the masked operator, and none.
@pytest.mark.parametrize("operator", [1, 4, None])
@pytest.mark.parametrize("build", [drawn, masked, demanding])
def test_a_task_that_looks_at_its_weights_is_derived_with_them(
    build: Build, operator: int | None, tmp_path: Path
) -> None:
    dispute = Dispute(build, tmp_path / "drawn", operator)
    assert (dispute.verdict.winner, dispute.verdict.why) == ("auditor", "value")
    if operator is not None:
        names = {1: "aten.t.default", 4: "aten.relu.default"}
        assert dispute.verdict.operator == (operator, names[operator])
    judged = potl.judge(dispute.evidence, job=dispute.job, task=build)
    assert (judged.winner, judged.believed) == ("auditor", 0)


def test_who_has_another_operator_is_accused_by_what_has_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of operators fits, and one of them is another."""
    asked: list[bool] = []
    derived = _agreed_step.derive_operators

    def other(*args: Any, weights: bool = True, **more: Any) -> tuple[Operator, ...]:
        asked.append(weights)
        operators = list(derived(*args, weights=weights, **more))
        if not weights:
            operators[1], operators[2] = operators[2], operators[1]
        return tuple(operators)

    monkeypatch.setattr(_agreed_step, "derive_operators", other)
    dispute = Dispute(heavy_net.short_mlp, tmp_path / "mlp", 2)
    assert asked == [False]
    assert (dispute.verdict.winner, dispute.verdict.why) == ("auditor", "value")
