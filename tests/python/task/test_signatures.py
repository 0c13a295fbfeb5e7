# SPDX-License-Identifier: Apache-2.0
"""Methods and losses that cannot be called as a step calls them are refused, with how to write
them.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import potl
from potl._job._session import Session


def create(
    kind: type[potl.Task] = potl.Task, loss: Any = F.cross_entropy, *, check: bool = True
) -> potl.Job:
    return potl.Job.create(
        lambda: task(kind, loss), seed=1, checkpoint_every=2, check=check, progress=False
    )


def task(kind: type[potl.Task] = potl.Task, loss: Any = F.cross_entropy) -> potl.Task:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
    return kind(model, optimizer, data, loss, batch_size=4, epochs=1)


class WithoutReduction(potl.Task):
    def compute_loss(self, batch: Any) -> Any:  # type: ignore[override]
        return F.cross_entropy(self.model(batch[0]), batch[1])


class OfTwo(potl.Task):
    def compute_loss(self, x: Any, y: Any) -> Any:  # type: ignore[override]
        return F.cross_entropy(self.model(x), y)


class StepOfNothing(potl.Task):
    def step(self) -> Any:  # type: ignore[override]
        return torch.zeros(())


class StepWithNumber(potl.Task):
    def step(self, batch: Any, number: int) -> Any:  # type: ignore[override]
        return super().step(batch)


class UpdateOfNothing(potl.Task):
    def update(self) -> None:  # type: ignore[override]
        self.optimizers[0].step()


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (WithoutReduction, 'write def compute_loss(self, batch, reduction="mean")'),
        (OfTwo, 'write def compute_loss(self, batch, reduction="mean")'),
        (StepOfNothing, "write def step(self, batch)"),
        (StepWithNumber, "write def step(self, batch)"),
        (UpdateOfNothing, "write def update(self, loss)"),
    ],
)
def test_a_method_that_takes_other_arguments_is_refused_with_how_to_write_it(
    kind: type[potl.Task], remedy: str
) -> None:
    with pytest.raises(potl.UsageError, match=f"{kind.__name__}.* cannot be called") as raised:
        create(kind)
    assert raised.value.remedy == remedy


def test_a_reduction_that_is_only_taken_by_name_is_given_by_name() -> None:
    class ByName(potl.Task):
        def compute_loss(self, batch: Any, *, reduction: str = "mean") -> Any:  # type: ignore[override]
            return F.cross_entropy(self.model(batch[0]), batch[1], reduction=reduction)

    assert potl.check(lambda: task(ByName)) == []


@pytest.mark.parametrize(
    ("loss", "message", "remedy"),
    [
        (nn.CrossEntropyLoss, "the class CrossEntropyLoss", "torch.nn.CrossEntropyLoss()"),
        ("cross_entropy", "the loss is a str", "pass a function"),
        (lambda output: output.mean(), "called as loss(output, target)", "override compute_loss"),
        (lambda a, b: F.cross_entropy(a, b).item(), "not a float", ".item()"),
        (lambda a, b: (F.cross_entropy(a, b), a), "not a tuple", "nothing beside it"),
        (lambda a, b: F.cross_entropy(a, b, reduction="none"), "not (4,)", 'reduction="mean"'),
        (lambda a, b: F.cross_entropy(a.detach(), b), "depends on no parameter", "detach()"),
        # What silences torch's complaint about the detached loss, and trains nothing.
        (
            lambda a, b: F.cross_entropy(a.detach(), b).requires_grad_(),
            "depends on no parameter",
            "detach()",
        ),
    ],
)
def test_a_loss_that_gives_no_gradient_is_refused_with_what_to_write(
    loss: Any, message: str, remedy: str
) -> None:
    for check in (True, False):
        with pytest.raises(potl.UsageError) as raised:
            create(loss=loss, check=check)
        assert message in raised.value.message
        assert remedy in raised.value.remedy


class Centers(nn.Module):
    """A loss that is trained, too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output @ self.weight, target)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        return out


def test_a_loss_that_is_trained_becomes_a_part_of_the_model() -> None:
    def build(*, inside: bool) -> potl.Task:
        model, loss = Wrapped(), Centers()
        if inside:
            model.centers = loss
        trained = [*model.net.parameters(), *loss.parameters()]
        data = TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
        return potl.Task(model, torch.optim.SGD(trained), data, loss, batch_size=4, epochs=1)

    with pytest.raises(potl.UsageError, match=r"parameters of the model .*model\.centers = loss"):
        potl.check(lambda: build(inside=False))
    assert potl.check(lambda: build(inside=True)) == []


def test_a_batch_may_have_no_loss() -> None:
    """Or a training ends in the step that first meets one: no triplets, no objects."""

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        known = target >= 0
        if not known.any():
            return torch.zeros((), requires_grad=True)
        return F.cross_entropy(output[known], target[known])

    def build() -> potl.Task:
        built = task(loss=loss)
        built.dataset = TensorDataset(torch.ones(8, 4), torch.tensor([0] * 4 + [-1] * 4))
        built.shuffle = False
        return built

    assert potl.check(build) == []


def test_one_loss_where_each_sample_has_its_own_is_refused() -> None:
    class Ignoring(potl.Task):
        def compute_loss(self, batch: Any, reduction: str = "mean") -> Any:
            return F.cross_entropy(self.model(batch[0]), batch[1])

    with (
        Session.open(lambda: task(Ignoring), seed=1, arithmetic="stock") as session,
        pytest.raises(potl.UsageError, match="gave 1 losses of 4 samples") as raised,
    ):
        session._subset_loss([0, 1, 2, 3])
    assert "one loss per sample" in raised.value.remedy


@pytest.mark.parametrize("given", [task(), "trainer:build", None], ids=["task", "name", "none"])
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(potl.UsageError, match=r"given as a .* \(pass the function that builds it"):
        potl.Job.create(given, seed=1, checkpoint_every=2, progress=False)


def test_a_function_that_requires_arguments_is_refused() -> None:
    def build(width: int) -> potl.Task:
        raise AssertionError

    with pytest.raises(potl.UsageError, match=r"called without arguments: .*'width'.*default"):
        potl.Job.create(build, seed=1, checkpoint_every=2, progress=False)  # type: ignore[arg-type]


class OwnInit(potl.Task):
    def init(self) -> None: ...


class OwnTransform(potl.Task):
    def transform(self, sample: Any) -> Any:  # type: ignore[override]
        return sample


class Passed(OwnTransform):
    batch_size = 4

    def __init__(self, *given: Any, batch_size: int, **options: Any) -> None:
        super().__init__(
            *given, batch_size=type(self).batch_size, transform=self.transform, **options
        )


@pytest.mark.parametrize("kind", [OwnInit, OwnTransform])
def test_a_method_that_an_attribute_of_each_task_hides_is_refused(kind: type[potl.Task]) -> None:
    with pytest.raises(potl.UsageError, match=r"Own.* is hidden by an attribute"):
        create(kind)
    create(Passed)
