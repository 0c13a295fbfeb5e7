# SPDX-License-Identifier: Apache-2.0
"""Sessions: what trains also replays, bit for bit, from any state on the way."""

import math
import os
import shutil
import subprocess
import sys
import warnings

import programs
import pytest
import tasks
import torch
from places import HELPERS
from torch import nn
from trainings import change, run, state_of, untied

from potl import NotReproducible, Task, _core
from potl._arithmetic import _arithmetic
from potl._base._errors import MismatchError, NotReplayable
from potl._dispute._check import check
from potl._job._job import Job
from potl._job._session import Session
from potl._task._trees import first_difference

FULL = os.environ.get("POTL_FULL") == "1"


@pytest.mark.parametrize("build", tasks.TASKS, ids=lambda build: build.__name__)
def test_a_restored_state_goes_on_as_if_nothing_had_happened(build):
    assert not any(one.prevents == "replay" for one in check(build))
    job = Job.create(build, seed=7, checkpoint_every=4, check=False)
    with Session.open(build, seed=7, job=job) as session:
        assert job.differences(session) == []
        assert session.capture().digest() == job.core.initial_state
        before = run(session, 1, 5)
        middle = session.capture()
        after = run(session, 6, 12)
        end = session.capture()
        session.restore(middle)
        assert session.capture().digest() == middle.digest()
        assert run(session, 6, 12) == after
        assert session.capture().digest() == end.digest()
    with Session.open(build, seed=7, job=job) as fresh:
        fresh.restore(middle)
        assert first_difference(middle.tree(), fresh.capture().tree()) is None
        assert run(fresh, 6, 12) == after
        assert fresh.capture().digest() == end.digest()
    with Session.open(build, seed=8) as other:
        assert other.capture().digest() != job.core.initial_state
        assert run(other, 1, 5) != before


@pytest.mark.parametrize("build", tasks.TASKS, ids=lambda build: build.__name__)
def test_the_recomputed_loss_is_the_one_that_the_step_reports(build):
    with Session.open(build, seed=7) as session:
        run(session, 1, 3)
        before = session.capture()
        loss = session.loss_at(4, session.sample_ids(4))
        session.restore(before)
        assert loss == session.run_step(4, session.sample_ids(4)).loss


# ---------------------------------------------------------------------- what a state holds


def test_tied_weights_are_stored_once():
    tree = state_of(tasks.tied).tree()["model"]["parameters"]
    assert isinstance(tree["embedding.weight"], _core.TensorView)
    assert isinstance(tree["out.weight"], _core.Alias)
    assert tree["out.weight"].path == tree["embedding.weight"].path


def test_non_persistent_buffers_flags_and_counters_are_stored():
    tree = state_of(tasks.hidden_buffers, 5).tree()
    assert {"seen", "late"} <= tree["model"]["buffers"].keys()
    assert tree["counters"] == {"step": 5, "epoch": 1}
    frozen = state_of(tasks.frozen).tree()["model"]
    assert frozen["requires_grad"] == {
        "0.weight": False, "0.bias": False, "2.weight": True, "2.bias": True
    }  # fmt: skip
    assert state_of(tasks.evaluated).tree()["model"]["training"]["1"] is False


def test_tensors_are_stored_in_logical_order_with_their_memory_format():
    last = state_of(tasks.channels_last, 0).tree()["model"]["parameters"]["0.weight"]
    plain = state_of(tasks.batch_norm, 0).tree()["model"]["parameters"]["0.weight"]
    assert (last.memory_format, plain.memory_format) == ("channels_last", "contiguous")
    assert last.data == plain.data


def test_optimizer_state_goes_by_the_number_of_the_parameter():
    tree = state_of(tasks.adam).tree()["optimizers"][0]
    assert list(tree["state"]) == [0, 1, 2, 3]
    assert tree["param_groups"][0]["params"] == [0, 1, 2, 3]
    assert type(tree["param_groups"][0]["lr"]) is float
    assert tree["state"][0]["step"].shape == ()


def test_the_metric_of_an_unfinished_epoch_is_part_of_the_state():
    state = state_of(tasks.plateau_epoch, 2)
    assert state.tree()["counters"]["epoch_loss"] > 0
    assert state_of(tasks.plateau_epoch, 4).tree()["counters"]["epoch_loss"] == 0.0


def test_capturing_again_sees_tensors_that_were_replaced():
    with Session.open(tasks.plain, seed=7) as session:
        before = session.capture()
        weight = session.task.model[0].weight
        weight.data = weight.data + 1
        assert first_difference(before.tree(), session.capture().tree()) == (
            "model/parameters/0.weight"
        )
        session.task.model[0].weight = nn.Parameter(torch.zeros(6, 8))
        parameters = session.capture().tree()["model"]["parameters"]
        assert bytes(parameters["0.weight"].data) == bytes(6 * 8 * 4)


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda m: setattr(m[0], "weight", nn.Parameter(torch.empty(6, 8, device="meta"))), "meta"),
        (lambda m: m.register_buffer("s", torch.eye(3).to_sparse()), "sparse"),
        (lambda m: m.register_buffer("s", torch.zeros(3, dtype=torch.complex128)), "complex128"),
        (lambda m: m.register_buffer("s", torch.zeros(1).expand(3)), "shares its elements"),
    ],
)
def test_a_tensor_that_cannot_be_captured_is_refused_by_name(spoil, where):
    with Session.open(tasks.plain, seed=7) as session:
        spoil(session.task.model)
        with pytest.raises(NotReplayable, match=where) as refusal:
            session.capture()
        assert refusal.value.problems[0].where.startswith("model/")


def test_a_value_of_unknown_type_is_refused_with_its_path():
    with Session.open(tasks.own_state, seed=7) as session:
        session.task.state["shift"].history.append({1, 2})
        with pytest.raises(NotReplayable, match="state/shift/history/0"):
            session.capture()


# ---------------------------------------------------------------------- restoring


def test_restoring_sets_flags_and_drops_gradients():
    with Session.open(tasks.plain, seed=7) as session:
        run(session, 1, 1)
        state, model = session.capture(), session.task.model
        model.eval()
        model[0].requires_grad_(False)
        session.restore(state)
        assert all(module.training for module in model.modules())
        assert all(p.requires_grad and p.grad is None for p in model.parameters())


def other_dtype():
    return tasks.task(tasks.mlp().double())


def other_shape():
    return tasks.task(nn.Sequential(nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 4)))


def other_name():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
    model.add_module("last", nn.Linear(6, 4))
    return tasks.task(model)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (other_dtype, "model/parameters/0.bias: the state holds float32.6., the task float64"),
        (other_shape, "model/parameters/0.bias: the state holds float32.6., the task float32.7."),
        (other_name, "model/training/last: the state does not have it|model/parameters/last"),
        (tasks.adam, "optimizers/0/param_groups/0/amsgrad"),
        (tasks.averaged, "ema: only one"),
        (tasks.cosine, "schedulers: the state has 0, the task 1"),
    ],
)
def test_a_state_of_another_task_is_refused_and_nothing_is_cast(build, message):
    state = state_of(tasks.plain)
    with Session.open(build, seed=7) as session, pytest.raises(MismatchError, match=message):
        session.restore(state)


def test_a_tied_state_does_not_fit_an_untied_model():
    state = state_of(tasks.tied)
    with Session.open(untied, seed=7) as session, pytest.raises(MismatchError, match="tied"):
        session.restore(state)


def test_an_untied_state_does_not_fit_a_tied_model():
    state = state_of(untied, 0)
    with Session.open(tasks.tied, seed=7) as session, pytest.raises(MismatchError, match="tied"):
        session.restore(state)


RECIPE_EDITS = {
    "momentum": lambda t: t["optimizers"][0]["param_groups"][0].update(momentum=0.99),
    "weight_decay": lambda t: t["optimizers"][0]["param_groups"][0].update(weight_decay=1.0),
    "requires_grad": lambda t: t["model"]["requires_grad"].update({"0.weight": False}),
    "training": lambda t: t["model"]["training"].update({"0": False}),
    "base_lrs": lambda t: t["schedulers"][0].update(base_lrs=[3.0]),
}


@pytest.mark.parametrize("name", RECIPE_EDITS)
def test_a_state_cannot_bring_another_recipe_along(name):
    job = Job.create(tasks.cosine, seed=7, checkpoint_every=4, check=False)
    with Session.open(tasks.cosine, seed=7, job=job) as session:
        run(session, 1, 4)
        forged = change(session.capture(), RECIPE_EDITS[name])
        with pytest.raises(MismatchError, match=name):
            session.restore(forged)


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t["counters"].update(step=-1),
        lambda t: t["counters"].update(step=10**9),
        lambda t: t["counters"].update(step=3.0),
        lambda t: t["counters"].update(epoch=2),
        lambda t: t.pop("counters"),
        lambda t: t.pop("model"),
        lambda t: t.update(model=7),
        lambda t: t["optimizers"][0].pop("state"),
        lambda t: t["optimizers"][0]["state"].update({99: {}}),
        lambda t: t["optimizers"][0]["param_groups"].append({}),
        lambda t: t["model"]["parameters"].update({"0.weight": 1.0}),
        lambda t: t["model"]["requires_grad"].clear(),
    ],
)
def test_a_state_of_another_form_is_a_typed_error(edit):
    forged = change(state_of(tasks.plain), edit)
    with Session.open(tasks.plain, seed=7) as session, pytest.raises(MismatchError):
        session.restore(forged)


# ---------------------------------------------------------------------- steps


def test_dropout_is_the_same_with_and_without_activation_checkpointing():
    def losses(build):
        with Session.open(build, seed=7) as session:
            return [result.loss for result in run(session, 1, 6)]

    assert losses(tasks.checkpointed) == losses(tasks.direct)


def test_micro_batches_draw_independently_and_add_up_to_the_batch():
    def losses(accumulate):
        def build():
            return tasks.task(tasks.mlp(), batch_size=10, accumulate=accumulate)

        with Session.open(build, seed=7) as session:
            return [result.loss for result in run(session, 1, 6)]

    assert losses(1) == pytest.approx(losses(3), rel=1e-5)
    with Session.open(tasks.accumulated, seed=7) as session:
        assert run(session, 1, 1)[0].random_draws == 3


@pytest.mark.parametrize("where", ["step", "update"])
def test_a_step_that_failed_halfway_leaves_nothing_in_a_scaler(monkeypatch, where):
    def fail(*_):
        raise ValueError("halfway")

    with Session.open(tasks.scaled, seed=7) as session:
        start = session.capture()
        failing = session.task.scaler if where == "update" else session.task.optimizer
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="halfway"):
            patch.setattr(failing, where, fail)
            run(session, 1, 4)
        session.restore(start)
        run(session, 1, 8)
        assert session.capture().digest() == state_of(tasks.scaled, 8).digest()


def test_a_scaler_skip_is_reported():
    with Session.open(tasks.scaled, seed=7) as session:
        results = run(session, 1, 4)
    assert [r.skipped for r in results] == [True, False, False, False]
    assert [r.non_finite for r in results] == [True, False, False, False]
    assert results[0].gradient_norm == 0.0 < results[1].gradient_norm


def test_a_loss_with_its_graph_is_reported_without_a_warning(recwarn):
    def build():
        built = tasks.plain()
        built.step = built.compute_loss
        return built

    torch.set_warn_always(True)
    try:
        with Session.open(build, seed=7) as session:
            run(session, 1, 1)
    finally:
        torch.set_warn_always(False)
    assert not [one for one in recwarn if "scalar" in str(one.message)]


def test_a_loss_that_is_not_finite_is_reported():
    def build():
        built = tasks.plain()
        with torch.no_grad():
            built.model[0].weight[0, 0] = torch.inf
        return built

    with Session.open(build, seed=7) as session:
        assert run(session, 1, 1)[0].non_finite


def test_rates_are_those_of_every_group_as_used():
    with Session.open(tasks.several, seed=7) as session:
        rates = [r.rates for r in run(session, 1, 3)]
    assert rates == [[0.1, 1e-2], [0.1, 1e-2 * 0.9], [0.1 * 0.1, 1e-2 * 0.9 * 0.9]]


def test_agreed_rates_replace_what_another_mathematical_library_computed():
    job = Job.create(tasks.cosine, seed=7, checkpoint_every=4, check=False)
    with Session.open(tasks.cosine, seed=7, job=job) as session:
        run(session, 1, 2)
        honest = session.capture()
        group = session.task.optimizers[0].param_groups[0]
        session.restore(honest)
        group["lr"] *= 1 + 1e-15
        assert run(session, 3, 3)[0].rates == job.core.rates_at(3)
        session.restore(honest)
        group["lr"] *= 2
        assert run(session, 3, 3)[0].rates == [2 * job.core.rates_at(3)[0]]


_library = 1.0


def by_library():
    """A schedule computed with this or that mathematical library."""
    return tasks.scheduled(
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda e: 0.9**e * _library)
    )


def test_another_mathematical_library_gives_the_same_states(monkeypatch):
    job = Job.create(by_library, seed=7, checkpoint_every=4, check=False)
    digests = set()
    for factor in (1.0, 1 + 4e-16):
        monkeypatch.setitem(globals(), "_library", factor)
        with Session.open(by_library, seed=7, job=job) as session:
            run(session, 1, 5)
            digests.add(session.capture().digest())
    assert len(digests) == 1


class OtherMath:
    """The module `math` of a machine that rounds its cosine otherwise."""

    def __getattr__(self, name):
        return getattr(math, name)

    def cos(self, x):
        return math.cos(x) * (1 + 1e-14)


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_another_cosine_gives_the_same_momentum_in_an_exact_job(interval, monkeypatch):
    """Rates are in the job; what else a schedule makes of a cosine is not."""

    def build():
        model = tasks.mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=30)
        return tasks.task(model, optimizer, scheduler=schedule, scheduler_interval=interval)

    job = Job.create(build, seed=7, checkpoint_every=4, arithmetic="ord32")
    digests = set()
    for library in (math, OtherMath()):
        monkeypatch.setattr(torch.optim.lr_scheduler, "math", library)
        with Session.open(build, seed=7, job=job) as session:
            run(session, 1, session.schedule.steps_per_epoch + 1)
            digests.add(session.capture().digest())
    assert len(digests) == 1


def test_every_step_and_micro_batch_has_its_own_dropout():
    seen = []

    class Listening(Task):
        def compute_loss(self, batch, reduction="mean"):
            loss = super().compute_loss(batch, reduction)
            seen.append(float(loss.detach()))
            return loss

    def build():
        model = tasks.mlp(nn.Dropout(0.5))
        return Listening(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=torch.utils.data.TensorDataset(tasks.X, tasks.Y),
            loss=nn.functional.cross_entropy, batch_size=12, epochs=3, accumulate=3,
        )  # fmt: skip

    with Session.open(build, seed=7) as session:
        for step in (1, 2):
            session.loss_at(step, [1] * 12)
    assert len(seen) == len(set(seen)) == 6


def test_flags_that_change_between_steps_are_refused():
    job = Job.create(tasks.plain, seed=7, checkpoint_every=4, check=False)
    with Session.open(tasks.plain, seed=7, job=job) as session:
        session.task.model[0].requires_grad_(False)
        with pytest.raises(NotReplayable, match="requires_grad changed"):
            session.capture()


def test_flags_of_the_average_belong_to_the_recipe_too():
    job = Job.create(tasks.averaged, seed=7, checkpoint_every=4, check=False)
    with Session.open(tasks.averaged, seed=7, job=job) as session:
        session.task.ema.eval()
        with pytest.raises(NotReplayable, match=r"ema/training/.* flag training"):
            session.capture()


def test_the_users_code_runs_with_its_own_generators_and_flags_are_restored():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with Session.open(tasks.dropout, seed=7) as session, session.active():
        run(session, 1, 1)
        with session._user_code():
            session.task.model.eval()
            assert torch.equal(torch.rand(2), expected)
        assert session.task.model.training
        run(session, 2, 2)


def test_two_sessions_side_by_side_do_not_disturb_each_other():
    with Session.open(tasks.dropout, seed=7) as session:
        alone = run(session, 1, 4)
    one, two = Session.open(tasks.dropout, seed=7), Session.open(tasks.dropout, seed=7)
    with one, two:
        both = [(run(one, step, step), run(two, step, step)) for step in range(1, 5)]
    assert [a for [a], _ in both] == [b for _, [b] in both] == alone


def test_workers_read_ahead_without_a_word():
    def with_workers():
        built = tasks.plain()
        built.num_workers = len(os.sched_getaffinity(0)) + 1  # torch finds that worth a warning
        return built

    with Session.open(with_workers, seed=7) as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            for step, _, batch in session.batches(1, 2):
                session.run_step(step, batch)


def test_workers_give_the_same_training():
    def with_workers():
        built = tasks.augmented()
        built.num_workers = 2
        return built

    with Session.open(tasks.augmented, seed=7) as session:
        alone = run(session, 1, 8)
    with Session.open(with_workers, seed=7) as session:
        assert run(session, 1, 8) == alone


def test_subset_loss_is_mean_and_deviation_over_samples():
    with Session.open(tasks.plain, seed=7) as session:
        ids = list(range(30))
        mean, deviation = session._subset_loss(ids)
        output = session.task.model(tasks.X[:30])
        losses = nn.functional.cross_entropy(output, tasks.Y[:30], reduction="none").double()
    assert mean == pytest.approx(float(losses.mean().detach()), rel=1e-6)
    assert deviation == pytest.approx(float(losses.std(correction=0).detach()), rel=1e-6)


# ---------------------------------------------------------------------- noise


def perturbed(index, build=tasks.plain):
    with Session.open(build, seed=7) as session:
        with session._perturb(index) as other:
            assert other or index == 2
            run(session, 1, 8)
        return session.capture()


def distance(a, b):
    def flat(state):
        parameters = state.tree()["model"]["parameters"]
        return torch.cat([torch.frombuffer(bytearray(p.data), dtype=torch.float32)
                          for p in parameters.values()])  # fmt: skip

    return float((flat(a) - flat(b)).norm() / flat(a).norm())


@pytest.mark.parametrize("build", [tasks.plain, tasks.dropout, tasks.batch_norm])
def test_noise_is_small_repeatable_and_another_in_every_arithmetic(build):
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    honest = state_of(build, 8)
    first, second = perturbed(0, build), perturbed(1, build)
    assert 0 < distance(honest, first) < 1e-4
    assert perturbed(0, build).digest() == first.digest() != second.digest()


def test_an_operator_without_an_exact_form_runs_as_stock_in_noise_alone():
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    values = torch.linspace(1, 2, 7)
    stock = torch.special.erfcx(values)
    with _arithmetic.block("ord32", lenient=True):
        assert torch.equal(torch.special.erfcx(values), stock)
    with _arithmetic.block("ord32"), pytest.raises(NotReproducible):
        torch.special.erfcx(values)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(9, 8, sparse=True), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.words((x > 0).long().sum(1)) * x)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(9, 8, mode="sum", sparse=True)

    def forward(self, x):
        return self.words((x > 0).long())


def sparse():
    model = Words()
    adam = torch.optim.Adam(model.out.parameters())
    return tasks.task(model, [torch.optim.SparseAdam([model.words.weight]), adam])


def bags():
    model = nn.Sequential(Bags(), nn.Linear(8, 4))
    adam = torch.optim.Adam(model[1].parameters())
    return tasks.task(model, [torch.optim.SparseAdam(model[0].parameters()), adam])


@pytest.mark.parametrize("build", [sparse, bags])
def test_what_exact_arithmetic_refuses_of_an_optimizer_shows_noise_all_the_same(build):
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    honest = state_of(build, 8)
    assert 0 < distance(honest, perturbed(0, build)) < 1e-4
    strict = Session.open(build, seed=7, arithmetic="ord32")
    with strict, pytest.raises(NotReproducible):  # after such noise as before
        run(strict, 1, 1)


def test_noise_ends_with_its_context():
    with Session.open(tasks.plain, seed=7) as session:
        start, threads = session.capture(), torch.get_num_threads()
        with session._perturb(2):
            run(session, 1, 2)
        assert torch.get_num_threads() == threads
        session.restore(start)
        run(session, 1, 8)
        assert session.capture().digest() == state_of(tasks.plain, 8).digest()


def test_a_recomputed_loss_can_be_perturbed_too():
    with Session.open(tasks.plain, seed=7) as session:
        before = session.capture()
        ids = session.sample_ids(1)
        losses = {session.loss_at(1, ids)}
        for index in range(4):
            with session._perturb(index):
                losses.add(session.loss_at(1, ids))
        assert len(losses) > 1 and max(losses) - min(losses) < 1e-5
        assert first_difference(before.tree(), session.capture().tree()) is None


# ---------------------------------------------------------------------- machines


SCRIPT = """
import sys; sys.path.insert(0, {folder!r})
import tasks, torch
from potl._job._session import Session
torch.set_num_threads(1)
for build in (tasks.dropout, tasks.batch_norm, tasks.tied, tasks.augmented):
    with Session.open(build, seed=7) as session:
        start = session.capture().digest().hex()
        for step, _, batch in session.batches(1, 12):
            session.run_step(step, batch)
        print(start, session.capture().digest().hex())
"""


def test_other_processes_train_the_same_and_other_instructions_start_the_same():
    outputs = []
    # A start of its own also has other seeds of hashes than the forked process.
    for python, more in (
        (sys.executable, {"ATEN_CPU_CAPABILITY": "default"}),
        (sys.executable, {}),
        (programs.python(), {}),
    ):
        script = SCRIPT.format(folder=str(HELPERS))
        out = subprocess.run(
            [python, "-c", script],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append([line.split() for line in out.stdout.splitlines()])
    assert outputs[1] == outputs[2]
    assert [start for start, _ in outputs[0]] == [start for start, _ in outputs[1]]


def test_a_compiled_model_has_the_state_of_the_plain_one():
    if FULL and shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")

    def build():
        built = tasks.plain()
        # Compiling C++ takes half a minute, and is not what potl has a part in.
        built.model = torch.compile(built.model, backend="inductor" if FULL else "aot_eager")
        return built

    plain = state_of(tasks.plain)
    with Session.open(build, seed=7) as session:
        assert session.capture().tree()["model"]["parameters"].keys() == (
            plain.tree()["model"]["parameters"].keys()
        )
        run(session, 1, 2)
        middle = session.capture()
        after = run(session, 3, 4)
        session.restore(middle)
        assert run(session, 3, 4) == after
    with Session.open(build, seed=7) as fresh:
        fresh.restore(middle)
        assert run(fresh, 3, 4) == after


def test_gradients_whose_squares_overflow_are_finite():
    def build():
        task = tasks.plain()
        usual = task.compute_loss
        task.compute_loss = lambda *given, **named: 1e30 * usual(*given, **named)
        return task

    with Session.open(build, seed=7) as session:
        (result,) = run(session, 1, 1)
    assert 1e25 < result.gradient_norm < 1e35
    assert not result.non_finite
