# SPDX-License-Identifier: Apache-2.0
"""Trainings with Fourier transforms and complex weights are exact, and cheats in them are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cheated import Cheated, verdict
from spectral_nets import LOSSES, NETS, FourierOperator
from torch import Tensor

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


DATA = torch.utils.data.TensorDataset(drawn(24, 48), drawn(24, 48).cumsum(1))


def skipped(weights: list[Tensor], before: list[Tensor]) -> None:
    for one, old in zip(weights, before, strict=True):
        one.copy_(old)


def changed(weights: list[Tensor], _before: list[Tensor]) -> None:
    [whole] = [one for one in weights if one.is_complex()]
    part = torch.view_as_real(whole).view(-1)[1:2]
    part.copy_(torch.nextafter(part, part + 1))


def build_of(name: str) -> Callable[[], Cheated]:
    def build() -> Cheated:
        net = NETS[name]()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        return Cheated(
            model=net, optimizer=optimizer, dataset=DATA, loss=LOSSES[name], batch_size=8, epochs=2
        )

    return build


@pytest.mark.parametrize("name", NETS)
def test_an_honest_run_is_accepted(name: str, tmp_path: Path) -> None:
    assert verdict(build_of(name), tmp_path) == "accepted"


@pytest.mark.parametrize("mode", ["cr32", "log64", "xint24", "xint16"])
def test_complex_weights_train_in_every_mode(mode: str, tmp_path: Path) -> None:
    assert verdict(build_of("fourier operator"), tmp_path, mode) == "accepted"


@pytest.mark.parametrize("cheat", [skipped, changed])
def test_a_cheat_with_complex_weights_is_rejected(cheat: Any, tmp_path: Path) -> None:
    assert verdict(build_of("fourier operator"), tmp_path, cheat=cheat) == "rejected"


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop]
)
def test_both_forms_of_an_optimizer_give_complex_weights_the_same_bits(optimizer: Any) -> None:
    def trained(form: bool) -> list[Tensor]:
        torch.manual_seed(2)
        net = FourierOperator()
        update = optimizer(net.parameters(), lr=0.01, weight_decay=0.1, foreach=form)
        for _ in range(3):
            with potl.deterministic():
                update.zero_grad()
                net(DATA.tensors[0]).square().mean().backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01, foreach=form)
                update.step()
        return [one.detach() for one in net.parameters()]

    for one, other in zip(trained(True), trained(False), strict=True):
        assert torch.equal(one, other)


def test_random_complex_numbers_have_two_random_parts() -> None:
    with potl.deterministic():
        torch.manual_seed(3)
        uniform, normal = (draw(9999, dtype=torch.cfloat) for draw in (torch.rand, torch.randn))
    for parts, mean, deviation in ((uniform, 0.5, 12**-0.5), (normal, 0.0, 0.5**0.5)):
        for part in (parts.real, parts.imag):
            assert part.mean().item() == pytest.approx(mean, abs=0.03)
            assert part.std().item() == pytest.approx(deviation, abs=0.03)
