# SPDX-License-Identifier: Apache-2.0
"""Tasks: sensible defaults, and mistakes that are answered with their remedy."""

import doctest
import subprocess
import sys
import typing

import pytest
import tasks
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import potl
from potl import Session, Task, UsageError
from potl._task._collated import split_batch


class Listed(nn.Module):
    pass


MISTAKES = {
    "model is a function": {"model": lambda x: x},
    "optimizer is a str": {"optimizer": "adam"},
    "the task has no optimizer": {"optimizer": []},
    "batch_size is 0": {"batch_size": 0},
    "batch_size is 2.5": {"batch_size": 2.5},
    "epochs is True": {"epochs": True},
    "epochs is 0 .*, or max_steps=": {"epochs": 0},
    "num_workers is -1": {"num_workers": -1},
    "cuts a batch of 12 into empty parts": {"accumulate": 13},
    "scheduler_interval is 'batch'": {"scheduler_interval": "batch"},
    "grad_clip is 0": {"grad_clip": 0},
    "the task has no loss": {"loss": None},
    "batch_sampler= is not supported": {"batch_sampler": [[0, 1]]},
    "without state_dict": {"state": {"x": object()}},
    "ema is a object without state_dict": {"ema": object()},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_answered_with_what_to_do(message):
    model = tasks.mlp()
    options = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "dataset": TensorDataset(tasks.X, tasks.Y),
        "loss": F.cross_entropy,
        "batch_size": 12,
        "epochs": 3,
        **MISTAKES[message],
    }
    with pytest.raises(UsageError, match=message) as error:
        Task(**options)
    assert error.value.remedy


def test_the_first_six_arguments_may_be_given_by_position():
    model = tasks.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(tasks.X, tasks.Y)
    task = Task(model, optimizer, data, F.cross_entropy, 12, 3)
    assert (task.loss, task.batch_size, task.epochs) == (F.cross_entropy, 12, 3)
    with pytest.raises(UsageError, match="batch_size is 0"):
        Task(model, optimizer, data, F.cross_entropy)
    with pytest.raises(TypeError):
        Task(model, optimizer, data, F.cross_entropy, 12, 3, None)


def test_a_wrapper_that_is_no_whole_optimizer_is_refused():
    class Wrapping(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

        def step(self, closure=None):
            return self.inner.step(closure)

    class Whole(Wrapping):
        def __init__(self, inner):
            torch.optim.Optimizer.__init__(self, inner.param_groups, inner.defaults)
            super().__init__(inner)

    class WithoutHooks(Wrapping):
        """As some libraries have it: torch's hooks need an OrderedDict."""

        _optimizer_step_pre_hooks: typing.ClassVar = {}

    def wrapped(kind):
        model = tasks.mlp()
        return lambda: tasks.task(model, kind(torch.optim.Adam(model.parameters())))

    for kind in (Wrapping, WithoutHooks):
        with pytest.raises(UsageError, match=rf"{kind.__name__} is .*base.param_groups"):
            wrapped(kind)()
    wrapped(Whole)()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_module_that_is_compiled_to_torchscript_is_refused_with_what_to_pass():
    whole = torch.jit.trace(tasks.mlp(), tasks.X)
    part = nn.Sequential(nn.Linear(8, 6), torch.jit.script(nn.Linear(6, 4)))
    for model, where in ((whole, "model"), (part, "model.1")):
        with pytest.raises(UsageError, match=f"^{where} is compiled to TorchScript") as error:
            potl.check(lambda model=model: tasks.task(model))
        assert "the module that torch.jit.script or torch.jit.trace was given" in str(error.value)


def test_an_optimizer_of_other_parameters_is_refused():
    stranger = torch.optim.SGD(tasks.mlp().parameters(), lr=0.1)
    with pytest.raises(UsageError, match="not parameters of the model"):
        tasks.task(tasks.mlp(), stranger)


@pytest.mark.parametrize("maximize", [False, True])
def test_lbfgs_has_the_options_that_it_has_in_every_version_of_torch(maximize):
    """torch 2.14 has one more."""
    model = tasks.mlp()
    optimizer = torch.optim.LBFGS(model.parameters())
    for options in (optimizer.defaults, optimizer.param_groups[0]):
        options["maximize"] = maximize
    tasks.task(model, optimizer)
    kept = {"maximize"} if maximize else set()
    assert {"maximize"} & optimizer.defaults.keys() == kept
    assert {"maximize"} & optimizer.param_groups[0].keys() == kept


def test_a_build_that_returns_no_task_is_refused():
    with pytest.raises(UsageError, match="build returned a Sequential"):
        Session.open(tasks.mlp, seed=1)


def test_an_epoch_without_a_batch_is_refused():
    with pytest.raises(UsageError, match="has no batch of 100"):
        Session.open(lambda: tasks.task(tasks.mlp(), batch_size=100, drop_last=True), seed=1)


@pytest.mark.parametrize(("drop_last", "expected"), [(False, 5), (True, 4)])
def test_the_last_batch_counts_unless_it_is_dropped(drop_last, expected):
    built = tasks.task(tasks.mlp(), batch_size=10, drop_last=drop_last)
    assert built.steps_per_epoch == expected and built.steps == 3 * expected


def test_a_loss_of_several_elements_is_refused():
    def build():
        return tasks.task(tasks.mlp(), loss=nn.CrossEntropyLoss(reduction="none"))

    with Session.open(build, seed=1) as session, pytest.raises(UsageError, match="one element"):
        session.run_step(1, session.sample_ids(1))


def test_a_batch_of_another_form_asks_for_an_own_compute_loss():
    class Keyed(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return {"x": tasks.X[index], "y": tasks.Y[index]}

    class Own(Task):
        def compute_loss(self, batch, reduction="mean"):
            return F.cross_entropy(self.model(batch["x"]), batch["y"], reduction=reduction)

    def build(kind=Task):
        model = tasks.mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return kind(
            model=model, optimizer=optimizer, dataset=Keyed(), loss=F.cross_entropy, batch_size=4,
            epochs=1, accumulate=2,
        )  # fmt: skip

    with Session.open(build, seed=1) as session, pytest.raises(UsageError, match="compute_loss"):
        session.run_step(1, session.sample_ids(1))
    with Session.open(lambda: build(Own), seed=1) as session:
        assert session.run_step(1, session.sample_ids(1)).loss > 0
        assert session._subset_loss(range(12))[1] > 0


def test_models_with_several_inputs_get_all_but_the_last():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = tasks.mlp()

        def forward(self, a, b):
            return self.net(a + b)

    def build():
        return tasks.task(Sum(), dataset=TensorDataset(tasks.X, tasks.X, tasks.Y))

    with Session.open(build, seed=1) as session:
        assert session.run_step(1, session.sample_ids(1)).loss > 0


def test_a_loss_without_reduction_cannot_be_taken_per_sample():
    def build():
        return tasks.task(tasks.mlp(), loss=lambda output, target: F.cross_entropy(output, target))

    with Session.open(build, seed=1) as session, pytest.raises(UsageError, match="no argument"):
        session._subset_loss([0, 1])


def test_a_task_works_without_potl_around_it():
    built = tasks.accumulated()
    losses = [float(built.step([tasks.X, tasks.Y])) for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("as_number", [False, True])
def test_an_own_step_may_update_with_the_loss_as_it_was_computed(as_number, recwarn):
    model = tasks.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    built = tasks.task(model, optimizer, scheduler=plateau, scheduler_interval="step")
    loss = built.compute_loss([tasks.X, tasks.Y])
    loss.backward()
    built.update(loss.item() if as_number else loss)
    assert plateau.best == loss.item()
    assert not [*recwarn]


def test_gradients_are_clipped_together():
    built = tasks.task(tasks.mlp(), grad_clip=1e-3)
    built.step([tasks.X, tasks.Y])
    norm = torch.nn.utils.get_total_norm([p.grad for p in built.model.parameters()])
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


def test_sparse_gradients_are_not_clipped():
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(32, 3))
    data = TensorDataset(torch.arange(64).remainder(10).view(8, 8), torch.arange(8) % 3)
    built = Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=data,
        loss=F.cross_entropy,
        batch_size=4,
        epochs=1,
        grad_clip=1.0,
    )
    with pytest.raises(UsageError, match="make embeddings without sparse=True"):
        built.step([part[:4] for part in data.tensors])


def test_scaled_gradients_are_clipped_at_their_own_size():
    def weights(scaler):
        torch.manual_seed(0)
        built = tasks.task(tasks.mlp(), grad_clip=1e-2, scaler=scaler)
        built.step([tasks.X, tasks.Y])
        return torch.cat([p.detach().flatten() for p in built.model.parameters()])

    scaled = weights(torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert torch.allclose(scaled, weights(None), rtol=1e-5, atol=1e-7)


def test_a_batch_is_cut_into_consecutive_parts_whose_shares_add_up():
    x, labels = torch.arange(10), [f"s{i}" for i in range(10)]
    parts = split_batch({"x": x, "labels": labels, "temperature": 2.0}, 3, 10)
    assert [part["x"].tolist() for part, _ in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [part["labels"][0] for part, _ in parts] == ["s0", "s4", "s8"]
    assert {part["temperature"] for part, _ in parts} == {2.0}
    assert sum(share for _, share in parts) == pytest.approx(1.0)


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(potl._task._task, extraglobs={"torch": torch}).failed == 0


def test_importing_potl_does_not_import_torch():
    code = "import sys, potl; assert 'torch' not in sys.modules; potl.PotlError; print(dir(potl))"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert "torch" not in subprocess.run(
        [sys.executable, "-c", "import potl, sys; potl.UsageError; print([*sys.modules])"],
        check=True, capture_output=True, text=True,
    ).stdout.replace("'", "").strip("[]\n").split(", ")  # fmt: skip


def test_importing_potl_is_quick():
    # Of a processor: how long one waits for it says how busy the machine is. It takes 0.02 s.
    code = "import time; a = time.process_time(); import potl; print(time.process_time() - a)"
    times = []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        times.append(float(out.stdout))
    assert min(times) < 0.1


def test_every_exported_name_can_be_loaded():
    for name in potl.__all__:
        assert getattr(potl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        potl.nothing  # noqa: B018


def test_a_batch_that_is_a_dict_is_refused_with_what_to_write():
    with pytest.raises(UsageError, match="not dict") as error:
        tasks.plain().compute_loss({"x": tasks.X, "y": tasks.Y})
    assert "self.model(**batch).loss" in str(error.value.remedy)
