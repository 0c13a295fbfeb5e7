# SPDX-License-Identifier: Apache-2.0
"""log64 under torch: a trainer logs, an auditor with another order of summation follows."""

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

STEPS = 6


class Mountains(nn.Module):
    """Sums in which large terms cancel: where orders of summation part."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(64, 66)
        weight[:, 1] = weight[:, 0]
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        tall = x.new_tensor([2.0**18, -(2.0**18)]).expand(len(x), 2)
        return F.linear(torch.cat([tall, x.flatten(1)], 1), self.weight)


def network(kind: str) -> nn.Module:
    torch.manual_seed(5)
    if kind == "mountains":
        return nn.Sequential(Mountains(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 768), nn.GELU(), nn.Linear(768, 10))
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),  # exact ties in plenty
        nn.Conv2d(12, 12, 3, padding=1, groups=2, bias=False),
        nn.Tanh(),
        nn.ConvTranspose2d(12, 6, 2, stride=2),
        nn.Flatten(),
        nn.Linear(384, 10),
    )


class Side:
    """One side's training: the same but for the order of summation."""

    def __init__(self, kind: str) -> None:
        self.net = network(kind)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-3)

    def step(self, number: int, **options: Any) -> None:
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(16, 1, 8, 8, generator=generator)
        y = torch.randint(0, 10, (16,), generator=generator)
        self.optimizer.zero_grad()
        with potl.deterministic("log64", **options):
            F.cross_entropy(self.net(x), y).backward()
            self.optimizer.step()

    def state(self) -> list[Tensor]:
        moments = [v for row in self.optimizer.state.values() for v in row.values()]
        return [p.detach() for p in self.net.parameters()] + moments


def agree(one: Side, other: Side) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state(), other.state(), strict=True))


def audited(kind: str, bits: int, order: int) -> tuple[Side, Side, list[potl.RoundingLog]]:
    trainer = potl.RoundingTrainer(bits=bits)
    auditor = potl.RoundingAuditor(bits=bits, order=order)
    one, other = Side(kind), Side(kind)
    logs = []
    for number in range(1, STEPS + 1):
        trainer.begin_step(number)
        one.step(number, log=trainer)
        log = trainer.end_step()
        logs.append(log)
        auditor.begin_step(number, log=log.content, committed=log.digest)
        other.step(number, log=auditor)
        assert auditor.end_step()["rejections"] == []
        assert agree(one, other), number
    return one, other, logs


@pytest.mark.parametrize("bits", [32, 28])
@pytest.mark.parametrize("kind", ["mlp", "convolutional", "mountains"])
def test_trainer_and_auditor_agree_over_steps(kind: str, bits: int) -> None:
    for order in (0, 3, 17):
        _, _, logs = audited(kind, bits, order)
        assert all(log.values > 1000 for log in logs)
        # On coarser grids few values are near a tie.
        assert bits < 32 or sum(log.entries for log in logs) > 0


def test_without_a_log_the_sides_part() -> None:
    # The control: what is near a tie falls to the other side.
    sides = []
    for order in (0, 3):
        trainer = potl.RoundingTrainer(order=order)
        side = Side("mountains")
        for number in range(1, 31):
            trainer.begin_step(number)
            side.step(number, log=trainer)
            trainer.end_step()
        sides.append(side)
    assert not agree(*sides)


def test_with_the_log_the_auditor_rounds_as_the_trainer_did() -> None:
    trainer, auditor = potl.RoundingTrainer(), potl.RoundingAuditor(order=3)
    one, other = Side("mountains"), Side("mountains")
    looked_up = 0
    for number in range(1, 31):
        trainer.begin_step(number)
        one.step(number, log=trainer)
        log = trainer.end_step()
        auditor.begin_step(number, log=log.content, committed=log.digest)
        other.step(number, log=auditor)
        audit = auditor.end_step()
        assert audit["rejections"] == []
        looked_up += audit["exact_dots"]
    assert agree(one, other)
    assert looked_up > 0  # where the two sides disagreed


def test_kinds_of_operators_are_counted_apart() -> None:
    trainer = potl.RoundingTrainer()
    trainer.begin_step(1)
    Side("convolutional").step(1, log=trainer)
    trainer.end_step()
    assert set(trainer.counts) >= {"conv", "conv_input", "conv_weight", "addmm", "mm"} - {"addmm"}
    assert all(kind["values"] > 0 for kind in trainer.counts.values())


def test_a_flipped_entry_is_rejected_with_a_proof() -> None:
    from potl import _core

    trainer, auditor = potl.RoundingTrainer(bits=28), potl.RoundingAuditor(bits=28, order=3)
    trainer.begin_step(1)
    Side("mlp").step(1, log=trainer)
    log = trainer.end_step()
    read = _core.decode_rounding_log(log.content)
    # An element that is nowhere near a tie, said to be.
    taken = {position for position, _ in read["entries"]}
    lie = next(position for position in range(log.values) if position not in taken)
    entries = sorted([*read["entries"], (lie, True)])
    forged = _core.encode_rounding_log(bits=28, values=log.values, entries=entries)
    auditor.begin_step(1, log=forged, committed=_core.rounding_log_digest(forged))
    Side("mlp").step(1, log=auditor)
    audit = auditor.end_step()
    assert audit["rejected"] >= 1
    assert audit["rejections"][0]["proof"]


def test_a_log_that_was_not_committed_to_is_rejected() -> None:
    trainer, auditor = potl.RoundingTrainer(), potl.RoundingAuditor()
    trainer.begin_step(1)
    Side("mlp").step(1, log=trainer)
    log = trainer.end_step()
    auditor.begin_step(1, log=log.content, committed=bytes(32))
    Side("mlp").step(1, log=auditor)
    assert auditor.end_step()["rejected"] >= 1


def test_batches_of_products_are_logged_too() -> None:
    a, b = torch.randn(3, 20, 700), torch.randn(3, 700, 30)
    trainer, auditor = potl.RoundingTrainer(bits=26), potl.RoundingAuditor(bits=26, order=9)
    trainer.begin_step(1)
    with potl.deterministic("log64", log=trainer):
        one = [torch.bmm(a, b), torch.bmm(b.mT, a.mT), a[0].t() @ a[1]]
    log = trainer.end_step()
    assert log.values == 2 * 3 * 20 * 30 + 700 * 700
    auditor.begin_step(1, log=log.content, committed=log.digest)
    with potl.deterministic("log64", log=auditor):
        other = [torch.bmm(a, b), torch.bmm(b.mT, a.mT), a[0].t() @ a[1]]
    assert auditor.end_step()["rejections"] == []
    assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("bits", [32, 29, 23])
def test_without_a_session_products_round_by_default(bits: int) -> None:
    from potl import _core

    a, b = torch.randn(20, 300), torch.randn(300, 30)
    with potl.deterministic("log64", bits=bits):
        got = a @ b
    want = torch.empty_like(got)
    _core.gemm_log64(a.numpy(), b.numpy(), want.numpy(), bits=bits)
    assert torch.equal(got, want)


def test_the_session_is_the_blocks_alone() -> None:
    trainer = potl.RoundingTrainer()
    trainer.begin_step(1)
    with potl.deterministic("log64", log=trainer):
        trainer.cancel_step()
        with pytest.raises(RuntimeError, match="step"):
            torch.ones(2, 2) @ torch.ones(2, 2)
    with potl.deterministic("log64"):
        torch.ones(2, 2) @ torch.ones(2, 2)


def test_a_log_without_an_open_step_is_a_usage_error() -> None:
    trainer = potl.RoundingTrainer()
    block = potl.deterministic("log64", log=trainer)
    with pytest.raises(potl.UsageError, match="open step") as raised:
        block.__enter__()
    assert "begin_step" in raised.value.remedy
    trainer.begin_step(1)
    trainer.end_step()
    with pytest.raises(potl.UsageError, match="open step"):
        potl.deterministic("log64", log=trainer).__enter__()


def test_bits_other_than_the_logs_are_a_usage_error() -> None:
    trainer = potl.RoundingTrainer(bits=30)
    trainer.begin_step(1)
    with pytest.raises(potl.UsageError, match="30 bits, not of 26"):
        potl.deterministic("log64", bits=26, log=trainer).__enter__()
    with potl.deterministic("log64", bits=30, log=trainer):
        pass
    trainer.cancel_step()


def test_a_step_belongs_to_one_thread() -> None:
    trainer = potl.RoundingTrainer()
    trainer.begin_step(1)
    got: list[Any] = []

    def run() -> None:
        try:
            Side("mlp").step(1, log=trainer)
        except RuntimeError as error:
            got.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "thread" in str(got[0])
    trainer.cancel_step()


def test_a_log_belongs_to_log64() -> None:
    with pytest.raises(potl.UsageError, match="log64"):
        potl.deterministic("ord32", log=potl.RoundingTrainer()).__enter__()
