# SPDX-License-Identifier: Apache-2.0
"""`potl.explain` and `potl explain`."""

import json
from pathlib import Path
from typing import Any

import driver_tasks
import pytest
import torch
from torch import nn

import potl
from potl._cli import _cli

pytest.importorskip("potl._torch", reason="potl was built without torch")


class Special(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        square = self.linear(x).view(3, 2, 2, 2)
        return self.norm(torch.special.erfcx(square).amax((2, 3)) * scale)


def row(found: potl.Explanation, operator: str, phase: str = "forward") -> potl.OperatorUse:
    [one] = [use for use in found.operators if (use.operator, use.phase) == (operator, phase)]
    return one


def test_operators_of_both_passes_are_listed() -> None:
    found = potl.explain(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), torch.ones(2, 4))
    product = row(found, "addmm")
    assert (product.runs, product.types, product.calls) == ("kernel", ("float32",), 1)
    assert "ord32" in product.note
    assert row(found, "tanh").runs == "kernel"
    assert row(found, "mm", "backward").runs == "kernel"
    assert row(found, "t").runs == "exact"
    assert found.refused == ()


def test_refusals_are_rows_with_remedies_and_nothing_raises() -> None:
    found = potl.explain(Special(), torch.ones(3, 8))
    assert (found.refused[0].operator, found.refused[0].phase) == ("special_erfcx", "forward")
    assert all(use.remedy for use in found.refused)
    assert row(found, "addmm").runs == "kernel"
    assert {use.phase for use in found.operators} == {"forward", "backward"}


def test_what_is_refused_in_a_block_is_what_is_listed() -> None:
    net = Special()
    listed = potl.explain(net, torch.ones(3, 8)).refused[0]
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        net(torch.ones(3, 8))
    assert (raised.value.message, raised.value.remedy) == (listed.note, listed.remedy)


def test_the_model_and_the_generator_stay_as_they_are() -> None:
    net = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    potl.explain(net, torch.randn(3, 8, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("mode", ["ord32", "cr32", "log64", "xint24", "xint16"])
def test_products_name_their_arithmetic(mode: str) -> None:
    net, x = nn.Linear(4, 3, bias=False), torch.ones(2, 4)
    assert mode in row(potl.explain(net, x, mode=mode), "mm").note
    assert "xint16" in row(potl.explain(net.bfloat16(), x.bfloat16(), mode=mode), "mm").note
    assert "float64" in row(potl.explain(net.double(), x.double(), mode=mode), "mm").note


def test_examples_may_be_tuples_or_dicts() -> None:
    x = torch.ones(3, 8)
    one = potl.explain(Special(), x)
    assert potl.explain(Special(), (x, 1.0)).operators == one.operators
    assert potl.explain(Special(), {"x": x, "scale": 1.0}).operators == one.operators


def test_a_loss_is_part_of_it() -> None:
    found = potl.explain(
        nn.Linear(4, 3),
        torch.ones(2, 4),
        loss=lambda out: nn.functional.cross_entropy(out, torch.tensor([0, 2])),
    )
    assert row(found, "_log_softmax").runs == "kernel"
    assert row(found, "nll_loss_backward", "backward").runs == "kernel"


def test_it_prints_as_a_table() -> None:
    lines = str(potl.explain(Special(), torch.ones(3, 8))).splitlines()
    assert lines[0].split() == ["phase", "operator", "calls", "types", "runs", "note"]
    assert sum("refused" in line for line in lines) >= 1


def test_something_else_than_a_model_is_a_usage_error() -> None:
    with pytest.raises(potl.UsageError, match="Module"):
        potl.explain(torch.ones(2), torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(potl.UsageError, match="fp8"):
        potl.explain(nn.Linear(2, 2), torch.ones(2, 2), mode="fp8")


# ---------------------------------------------------------------------- command line


def build_special() -> potl.Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.last(torch.special.erfcx(x.unflatten(1, (4, 4))).amax(2))

    return potl.Task(**driver_tasks.options(model=Net()))


def test_the_command_shows_a_whole_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.run(["explain", "driver_tasks:build", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["arithmetic"] == "ord32"
    assert document["reproducible"] is True
    assert {use["phase"] for use in document["operators"]} == {"forward", "backward", "update"}
    assert not any("profiler" in use["operator"] for use in document["operators"])


def test_the_command_ends_with_3_when_something_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert _cli.run(["explain", "test_explain:build_special", "--mode", "cr32"]) == 3
    printed = capsys.readouterr().out
    assert "aten::special_erfcx" in printed
    assert "refused" in printed


def test_sparse_gradients_are_listed_as_refused() -> None:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))
    found = potl.explain(model, torch.zeros(2, 2, dtype=torch.long))
    assert "_sparse_coo_tensor_with_dims_and_tensors" in {one.operator for one in found.refused}
    assert all(one.remedy for one in found.refused)
