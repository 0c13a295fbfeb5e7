# SPDX-License-Identifier: Apache-2.0
"""Which elements of parameters are seen to have no gradient."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from potl import Task
from potl._job._session import Session

DEAD = 2  # of the five inputs, always 0


class Net(nn.Module):
    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 5, sparse=sparse)
        self.first = nn.Linear(5, 4)
        self.tied = self.first
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inputs = x[:, :5] + (self.words(x[:, 5].long()) * 0.1).mean(1, keepdim=True)
        return self.first(torch.where(torch.arange(5) == DEAD, 0.0, inputs))


def task(make=torch.optim.Adam, *, sparse: bool = False, **options: object) -> Task:
    model = Net(sparse=sparse)
    x = torch.randn(32, 6)
    x[:, 5] = torch.arange(32) % 4  # words 4, 5 and 6 are never used
    weights = [p for p in model.parameters() if p is not model.words.weight]
    optimizers = (make([model.words.weight], lr=0.01), torch.optim.Adam(weights, lr=0.01))
    return Task(
        model=model,
        optimizer=optimizers,
        dataset=TensorDataset(x, torch.arange(32) % 4),
        loss=F.cross_entropy,
        batch_size=8,
        epochs=2,
        **options,
    )


def masks(build, steps: int = 3) -> dict[str, torch.Tensor]:
    with Session.open(build, seed=5) as session:
        watch = session._watch_still()
        for step, _, batch in session.batches(1, steps):
            session.run_step(step, batch)
        return {
            path: torch.tensor(list(mask), dtype=torch.bool)
            for paths, mask in watch.found()
            for path in paths
        }


def test_dead_inputs_unused_words_and_unused_parameters_have_none() -> None:
    found = masks(task)
    weight = found["model/parameters/first.weight"].reshape(4, 5)
    assert weight[:, DEAD].all()
    assert weight.sum() == 4
    words = found["model/parameters/words.weight"].reshape(7, 5)
    assert words[4:].all() and not words[:4].any()
    assert found["model/parameters/unused"].all()
    assert "model/parameters/first.bias" not in found


def test_the_mask_is_that_of_all_that_belongs_to_a_parameter() -> None:
    found = masks(task)
    for one in ("optimizers/1/state/1", "model/parameters/tied.weight"):
        assert torch.equal(found[one], found["model/parameters/first.weight"])
    assert torch.equal(found["model/parameters/words.weight"], found["optimizers/0/state/0"])


def test_a_gradient_in_any_step_counts() -> None:
    def build() -> Task:
        made = task()
        made.dataset.tensors[0][:, 5] = torch.arange(32) % 7
        return made

    first = masks(build, 1)["model/parameters/words.weight"].reshape(7, 5).all(1)
    both = masks(build, 2).get("model/parameters/words.weight")
    assert first.sum() == 1
    assert both is None


def test_sparse_gradients_are_of_the_rows_that_they_name() -> None:
    words = masks(lambda: task(torch.optim.SparseAdam, sparse=True))["optimizers/0/state/0"]
    words = words.reshape(7, 5)
    assert words[4:].all() and not words[:4].any()


def test_what_an_optimizer_computes_by_a_closure_is_never_still() -> None:
    class Own(Task):
        def step(self, batch):
            x, y = batch

            def closure() -> torch.Tensor:
                for one in self.optimizers:
                    one.zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                return loss

            self.optimizers[1].zero_grad()
            loss = self.optimizers[0].step(closure)
            self.optimizers[1].step()
            return loss.detach()

    def build() -> Task:
        made = task(torch.optim.LBFGS)
        return Own(
            model=made.model,
            optimizer=made.optimizers,
            dataset=made.dataset,
            loss=F.cross_entropy,
            batch_size=8,
            epochs=2,
        )

    found = masks(build)
    assert not any(path.startswith("optimizers/0/") for path in found)
    assert "optimizers/1/state/0" in found


def test_a_watch_forgets_and_lets_go() -> None:
    with Session.open(task, seed=5) as session:
        watch = session._watch_still()
        _, _, batch = next(session.batches(1, 1))
        session.run_step(1, batch)
        watch.reset()
        assert all(set(mask) == {1} for _, mask in watch.found())
        optimizer = session.task.optimizers[0]
        assert optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks
