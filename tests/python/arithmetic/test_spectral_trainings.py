# SPDX-License-Identifier: Apache-2.0
"""Trainings with Fourier transforms and complex weights are exact, and cheats in them are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from spectral_nets import LOSSES, NETS, FourierOperator
from torch import Tensor

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


DATA = torch.utils.data.TensorDataset(drawn(24, 48), drawn(24, 48).cumsum(1))


@pytest.fixture(autouse=True)
def threads_stay() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Trained(potl.Task):
    """What a cheat does to the weights behind its third step."""

    cheat: Callable[[list[Tensor], list[Tensor]], None] | None = None
    taken = 0

    def step(self, batch: Any) -> Any:
        weights = list(self.model.parameters())
        before = [one.detach().clone() for one in weights]
        loss = super().step(batch)
        Trained.taken += 1
        if Trained.cheat is not None and Trained.taken == 3:
            with torch.no_grad():
                Trained.cheat(weights, before)
        return loss


def skipped(weights: list[Tensor], before: list[Tensor]) -> None:
    for one, old in zip(weights, before, strict=True):
        one.copy_(old)


def changed(weights: list[Tensor], _before: list[Tensor]) -> None:
    [whole] = [one for one in weights if one.is_complex()]
    part = torch.view_as_real(whole).view(-1)[1:2]
    part.copy_(torch.nextafter(part, part + 1))


def build_of(name: str) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        net = NETS[name]()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        return Trained(
            model=net, optimizer=optimizer, dataset=DATA, loss=LOSSES[name], batch_size=8, epochs=2
        )

    return build


def verdict(name: str, folder: Path, mode: str = "ord32", cheat: Any = None) -> str:
    """Of a run that is recorded with one thread and verified with two."""
    build = build_of(name)
    torch.set_num_threads(1)
    job = potl.Job.create(build, seed=5, checkpoint_every=3, arithmetic=mode)
    Trained.taken, Trained.cheat = 0, cheat
    try:
        run = potl.record(build, folder / "run", job=job)
    finally:
        Trained.cheat = None
    torch.set_num_threads(2)
    report = potl.verify(
        run,
        job=job,
        commitment=run.commit(),
        task=build,
        checks=[potl.Replay(samples=2)],
        ledger=None,
    )
    return str(report.verdict)


@pytest.mark.parametrize("name", NETS)
def test_an_honest_run_is_accepted(name: str, tmp_path: Path) -> None:
    assert verdict(name, tmp_path) == "accepted"


@pytest.mark.parametrize("mode", ["cr32", "log64", "xint24", "xint16"])
def test_complex_weights_train_in_every_mode(mode: str, tmp_path: Path) -> None:
    assert verdict("fourier operator", tmp_path, mode) == "accepted"


@pytest.mark.parametrize("cheat", [skipped, changed])
def test_a_cheat_with_complex_weights_is_rejected(cheat: Any, tmp_path: Path) -> None:
    assert verdict("fourier operator", tmp_path, cheat=cheat) == "rejected"


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
