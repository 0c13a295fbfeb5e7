# SPDX-License-Identifier: Apache-2.0
"""Jobs: everything that was agreed is in them, and whatever differs from it is named."""

import enum
import importlib
import linecache
import pickle

import numpy as np
import pytest
import tasks
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from potl import (
    Job,
    JobMismatch,
    MalformedError,
    MismatchError,
    Session,
    UsageError,
    _core,
    record,
)
from potl._job import _recipe


def create(build=tasks.plain, **options):
    return Job.create(build, **{"seed": 7, "checkpoint_every": 4, "check": False, **options})


def test_a_job_is_the_same_whenever_it_is_made():
    torch.manual_seed(1)
    first = create()
    torch.manual_seed(2)
    assert create() == first and create(seed=8) != first


def test_a_job_that_is_checked_first_differs_in_the_steps_that_were_tried():
    checked, unchecked = create(check=True), create()
    both = [job.core.fields()["task"] for job in (checked, unchecked)]
    assert both[1].pop("first_steps") == both[0].pop("first_steps")[:1]
    assert both[0] == both[1]
    assert checked.replace(task={}) == unchecked.replace(task={})


def test_a_job_survives_writing_reading_and_pickling(tmp_path):
    job = create()
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job == pickle.loads(pickle.dumps(job))
    assert (tmp_path / "job.json").read_bytes() == job.core.text
    assert [p.name for p in tmp_path.iterdir()] == ["job.json"]


def test_sizes_are_those_of_the_task():
    core = create(tasks.uneven).core
    assert (core.steps, core.steps_per_epoch, core.epochs) == (15, 5, 3)
    assert (core.batch_size, core.accumulate, core.data_count) == (10, 3, 48)
    assert create(checkpoint_every="epoch").checkpoint_every == 4
    assert (create().arithmetic, create(arithmetic="stock").arithmetic) == ("ord32", "stock")
    assert create(max_segment=12).core.fields()["max_segment"] == 12


def test_an_epoch_is_a_permutation_of_the_samples():
    job = create().core
    with Session.open(tasks.plain, seed=7) as session:
        for epoch in range(3):
            ids = [i for step in range(1, 5) for i in session.sample_ids(epoch * 4 + step)]
            assert sorted(ids) == list(range(48))
            assert ids == [i for step in range(1, 5) for i in job.sample_ids(epoch * 4 + step)]


@pytest.mark.parametrize("build", [tasks.cosine, tasks.one_cycle, tasks.warm_up, tasks.by_epoch,
                                   tasks.several, tasks.tensor_rate, tasks.plain])  # fmt: skip
def test_the_table_of_rates_is_what_training_uses(build):
    job = create(build)
    with Session.open(build, seed=7) as session:
        for step, _, batch in session.batches(1, job.steps):
            assert session.run_step(step, batch).rates == job.core.rates_at(step)


@pytest.mark.parametrize("build", [tasks.plateau, tasks.plateau_epoch, tasks.own_state])
def test_rates_that_depend_on_the_training_are_left_to_it(build):
    assert create(build).core.rates_at(1) is None


def test_a_table_of_rates_that_would_swell_the_job_is_left_to_the_state(monkeypatch):
    monkeypatch.setattr("potl._job._recipe._LONGEST_TABLE", 11)
    assert create(tasks.cosine).core.rates_at(1) is None
    assert create(tasks.plain).core.rates_at(12) == [0.1]


def test_a_schedule_that_is_too_short_is_found_at_once():
    def build():
        return tasks.scheduled(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.2, total_steps=5))

    with pytest.raises(UsageError, match=r"after step 6 of \d+, OneCycleLR fails: .*max_steps="):
        create(build)


def test_a_trainer_is_pinned_by_key_or_file(tmp_path):
    key = _core.SigningKey.generate().public_key
    (tmp_path / "trainer.pub").write_text(key.to_pem())
    assert create(trainer=key).core.trainer == key.raw
    assert create(trainer=tmp_path / "trainer.pub").core.trainer == key.raw
    assert create().core.trainer is None


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 2**53},
        {"seed": True},
        {"checkpoint_every": 0},
        {"checkpoint_every": "day"},
        {"max_segment": 3},
        {"arithmetic": None},
        {"arithmetic": "fast"},
    ],
)
def test_an_argument_out_of_range_is_refused(options):
    with pytest.raises(UsageError) as error:
        create(**options)
    assert error.value.remedy
    assert ("arithmetic" not in options) or '"auto", "stock"' in error.value.remedy


# ---------------------------------------------------------------------- differences


def nothing(built):
    pass


_edit = nothing


def edited():
    built = tasks.cosine()
    _edit(built)
    return built


def other_data(built):
    x = tasks.X.clone()
    x[5, 2] += 1e-6
    built.dataset = TensorDataset(x, tasks.Y)


def rate(built):
    built.optimizers[0].param_groups[0]["lr"] = 0.2


def decay(built):
    built.optimizers[0].param_groups[0]["weight_decay"] = 0.1


def initial(built):
    with torch.no_grad():
        built.model[0].weight[0, 0] += 1e-6


def grad_clip(built):
    built.grad_clip = 1.0


def flag(built):
    built.model[0].requires_grad_(False)


def steps(built):
    built.epochs = 2


def batch_size(built):
    built.batch_size = 6


def accumulate(built):
    built.accumulate = 2


def precision(built):
    built.autocast = torch.bfloat16


def loss(built):
    built.loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def transform(built):
    built.transform = tasks.jitter


def fewer(built):
    built.dataset = TensorDataset(tasks.X[:40], tasks.Y[:40])


def schedule(built):
    built.schedulers = (torch.optim.lr_scheduler.StepLR(built.optimizers[0], 3),)


DIFFERENCES = {
    other_data: "other samples or labels than agreed (if code draws them, as random_split does",
    rate: "optimizers/0/groups/0/lr is 0.2, agreed was 0.1",
    decay: "weight_decay is 0.1, agreed was 0",
    initial: "initial state is not the agreed one (if a model is made outside build, make it",
    grad_clip: "grad_clip is 1.0, agreed was None",
    flag: "model/structure",
    steps: "epochs is 2, agreed was 3",
    batch_size: "batch_size is 6, agreed was 12",
    accumulate: "accumulate is 2, agreed was 1",
    precision: "autocast is torch.bfloat16, agreed was None",
    loss: "loss",
    transform: "transform is jitter, agreed was None",
    fewer: "40 samples, agreed were 48",
    schedule: "schedulers/0/class is StepLR, agreed was CosineAnnealingLR",
}


@pytest.mark.parametrize("edit", DIFFERENCES, ids=lambda edit: edit.__name__)
def test_what_differs_from_the_job_is_named(edit, monkeypatch):
    job = create(edited)
    with Session.open(edited, seed=7, job=job) as session:
        assert job.differences(session) == []
    monkeypatch.setitem(globals(), "_edit", lambda built: edit(built))
    with Session.open(edited, seed=7, job=job) as session:
        assert any(DIFFERENCES[edit] in text for text in job.differences(session))


def in_order(names):
    """As from a set, which has another order in each process."""

    def build():
        model = tasks.mlp()
        named = dict(model.named_parameters())
        return tasks.task(model, torch.optim.SGD([named[one] for one in names], lr=0.1))

    return build


def test_who_steps_the_parameters_in_another_order_is_told():
    names = [name for name, _ in tasks.mlp().named_parameters()]
    job = create(in_order(names))
    with Session.open(in_order(names[::-1]), seed=7, job=job) as session:
        (said,) = job.differences(session)
        assert said.startswith("optimizers/0 steps other parameters than agreed, or the same in ")
        assert said.endswith("sort what build() takes from it")
        # Jobs of earlier builds do not say it.
        task = {k: v for k, v in job.core.fields()["task"].items() if k != "stepped"}
        assert job.replace(task=task).differences(session) == []


def dropped(p):
    return holding(lambda: nn.Dropout(p))


def holding(make):
    """What a configuration file may bring: neither the code nor a tensor has it."""

    def build():
        model = tasks.mlp(nn.Identity())
        model[1].add_module("other", make())  # which nothing calls
        return tasks.task(model, torch.optim.SGD(model[0].parameters(), lr=0.1))

    return build


def test_who_has_layers_with_other_options_is_told():
    job = create(dropped(0.1))
    with Session.open(dropped(0.1), seed=7, job=job) as session:
        assert job.differences(session) == []
    with Session.open(dropped(0.2), seed=7, job=job) as session:
        (said,) = job.differences(session)
        remedy = "compare any configuration that build() reads"
        assert said == f"Dropout.p is 0.2, agreed was 0.1: {remedy}"
        # Jobs of earlier builds do not say it, and another torch may name other options.
        task = {k: v for k, v in job.core.fields()["task"].items() if k != "layers"}
        for known in (task, {**task, "layers": {"Dropout.new": "0"}}):
            assert job.replace(task=known).differences(session) == []


def attending(heads, p=0.0):
    return lambda: nn.MultiheadAttention(8, heads, dropout=p)


def encoding(first):
    return lambda: nn.TransformerEncoderLayer(8, 2, 16, norm_first=first)


@pytest.mark.parametrize(
    ("agreed", "own", "said"),
    [
        (attending(2), attending(4), "MultiheadAttention.num_heads is 4, agreed was 2"),
        (attending(2), attending(2, 0.5), "MultiheadAttention.dropout is 0.5, agreed was 0.0"),
        (encoding(False), encoding(True), "norm_first is True, agreed was False"),
        (
            lambda: nn.Conv2d(1, 1, 3, padding=1),
            lambda: nn.Conv2d(1, 1, 3, padding="same"),
            "Conv2d.padding is same, agreed was ['1', '1']",
        ),
    ],
)
def test_options_that_torch_does_not_declare_are_compared_too(agreed, own, said):
    job = create(holding(agreed))
    with Session.open(holding(agreed), seed=7, job=job) as session:
        assert job.differences(session) == []
    with Session.open(holding(own), seed=7, job=job) as session:
        assert any(said in one for one in job.differences(session))


def layers_differ(agreed, own, arithmetic="ord32"):
    return list(_recipe.layer_differences({"layers": {"A.b": agreed}}, {"A.b": own}, arithmetic))


@pytest.mark.parametrize(
    ("agreed", "own", "said"),
    [
        ([["0.1", 2]], [["0.1", 1], ["0.10000000000000002", 1]], None),
        ([["0.1", 2]], [["0.1", 1], ["0.1001", 1]], "A.b is 0.1001, agreed was 0.1"),
        ([["1", 1], ["2", 2]], [["1", 2], ["2", 1]], "A.b is 1, agreed was 2"),
        (
            [["1000000000000", 1]],
            [["1000000000001", 1]],
            "A.b is 1000000000001, agreed was 1000000000000",
        ),
        ([["inf", 1]], [["1", 1]], "A.b is 1, agreed was inf"),
        ([["nan", 1]], [["nan", 1]], None),
        ([[["1", "2"], 1]], [[["1", "3"], 1]], "A.b is ['1', '3'], agreed was ['1', '2']"),
        ([[["1"], 1]], [[["1", "1"], 1]], "A.b is ['1', '1'], agreed was ['1']"),
        # The structure says that there are more of them, or the job is malformed.
        ([["1", 2]], [["2", 1]], None),
        ("0123456789abcdef", [["2", 1]], None),
        ([["1", "1"]], [["2", 1]], None),
        ([["1", -1], ["1", 2]], [["2", 1]], None),
        ([["1", 1, 1]], [["2", 1]], None),
        ([], [["2", 1]], None),
        # As many as no loop goes through.
        ([["1", 10**18]], [["2", 10**18]], "A.b is 2, agreed was 1"),
    ],
)
def test_the_first_layer_that_differs_is_named(agreed, own, said):
    found = layers_differ(agreed, own)
    assert found == ([f"{said}: compare any configuration that build() reads"] if said else [])


def test_single_precision_that_another_processor_rounds_is_the_same_in_stock_arithmetic_alone():
    # torch.linspace(0, 0.3, 24)[16] without and with AVX2.
    rates = [["0.208695650100708", 1]], [["0.2086956650018692", 1]]
    assert layers_differ(*rates, "stock") == []
    assert len(layers_differ(*rates, "ord32")) == 1
    assert len(layers_differ([["0.1", 1]], [["0.10001", 1]], "stock")) == 1


class Kind(enum.IntEnum):
    ONE = 1


class Word(str, enum.Enum):
    MEAN = "mean"


def test_options_are_written_alike_whatever_computed_them():
    module = nn.Identity()
    module.a, module.b, module.c = np.float64(0.5), Kind.ONE, Word.MEAN
    module.d = [module.a, True, None]
    found = _recipe.layers_of(nn.Sequential(module, module))
    assert found == {
        "Identity.a": [["0.5", 2]],
        "Identity.b": [["1", 2]],
        "Identity.c": [["mean", 2]],
        "Identity.d": [[["0.5", True, None], 2]],
    }
    assert type(found["Identity.c"][0][0]) is str


def test_options_that_a_job_cannot_hold_are_left_out():
    module = nn.Identity()
    module.a, module.b, module.c, module.d = "\ud800", 10**5000, "x" * 1001, [[1]]
    module.e, module._f, module.g = object(), 1, torch.ones(1)
    many = [nn.Dropout(i / 2000) for i in range(1001)]
    assert _recipe.layers_of(nn.Sequential(module, *many)) == {"Dropout.inplace": [[False, 1001]]}


def test_a_task_with_other_numbers_of_optimizers_can_be_opened_and_is_named():
    job = create(tasks.several)
    with Session.open(tasks.plain, seed=7, job=job) as session:
        assert any("optimizers" in text for text in job.differences(session))


@pytest.mark.parametrize("varying", [
    3, [], {}, {"optimizers": [["lr"]]}, {"optimizers": [["lr"]], "schedulers": [[1]]},
    {"optimizers": ["lr"], "schedulers": []}])  # fmt: skip
def test_a_job_that_names_no_options_where_it_should_is_refused(varying):
    job = create()
    task = {**job.core.fields()["task"], "varying": varying}
    with pytest.raises(MalformedError, match="task/varying"):
        Session.open(tasks.plain, seed=7, job=job.replace(task=task))


def test_another_environment_is_no_difference():
    job = create()
    other = job.replace(environment={"torch": "9.9"})
    assert other != job
    with Session.open(tasks.plain, seed=7, job=other) as session:
        assert other.differences(session) == []


SOURCE = """
def helper(output, target):
    return {body}

def loss(output, target):
    return helper(output, target)

def build():
    return tasks.task(tasks.mlp(), loss=loss)
"""


def test_packages_of_another_environment_are_no_code_of_the_users(tmp_path, monkeypatch):
    folder = tmp_path / "other" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "a_library_elsewhere.py").write_text(
        "from torch import nn\n\nclass Layer(nn.Linear):\n    pass\n"
    )
    monkeypatch.syspath_prepend(folder)
    layer = importlib.import_module("a_library_elsewhere").Layer
    job = create(lambda: tasks.task(nn.Sequential(layer(8, 4))))
    assert "Layer" not in job.core.fields()["task"]["sources"]


def test_packages_of_a_target_folder_are_no_code_of_the_users(tmp_path, monkeypatch):
    """As pip install --target leaves them, with a file of the user's own beside them."""
    for name in ("a_library_of_a_target", "a_file_beside_it"):
        text = f"from torch import nn\n\nclass Of_{name}(nn.Linear):\n    pass\n"
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    information = tmp_path / "a_library-1.0.dist-info"
    information.mkdir()
    (information / "RECORD").write_text(
        "a_library_of_a_target/__init__.py,sha256=x,9\na_library-1.0.dist-info/RECORD,,\n"
    )
    # What an editable installation of the user's own code leaves names all of it, too.
    egg = tmp_path / "a_file.egg-info"
    egg.mkdir()
    (egg / "SOURCES.txt").write_text("a_file_beside_it/__init__.py\n")
    monkeypatch.syspath_prepend(tmp_path)
    library = importlib.import_module("a_library_of_a_target").Of_a_library_of_a_target
    own = importlib.import_module("a_file_beside_it").Of_a_file_beside_it
    job = create(lambda: tasks.task(nn.Sequential(library(8, 6), own(6, 4))))
    sources = job.core.fields()["task"]["sources"]
    assert "Of_a_file_beside_it" in sources and "Of_a_library_of_a_target" not in sources


def test_the_source_code_that_build_refers_to_is_part_of_the_job():
    def variant(body):
        source, path = SOURCE.format(body=body), f"<variant {len(body)}>"
        scope = {"F": F, "tasks": tasks}
        exec(compile(source, path, "exec"), scope)
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        return scope["build"]

    job = create(variant("F.cross_entropy(output, target)"))
    with Session.open(variant("F.cross_entropy(output, target) * 1.5"), seed=7, job=job) as session:
        assert job.differences(session) == [
            "the source code of helper is not the agreed one (comments count)"
        ]
        # Of builds that did not say which.
        task = {k: v for k, v in job.core.fields()["task"].items() if k != "sources"}
        (said,) = job.replace(task=task).differences(session)
        assert said.startswith("the source code of build, or of something that it uses, is not")


def test_an_option_that_chooses_a_kernel_says_what_to_do():
    job = create(tasks.plain)
    with Session.open(tasks.plain, seed=7, job=job) as session:
        session.task.optimizers[0].param_groups[0]["foreach"] = True
        (said,) = job.differences(session)  # and not that the initial state has the option too
    assert said.startswith("optimizers/0/groups/0/foreach is True, agreed was None: ")
    assert said.endswith("give the optimizer the agreed value")


def test_a_task_that_is_not_the_jobs_has_a_remedy(tmp_path):
    with pytest.raises(JobMismatch, match=r"\(build the task as agreed, or ") as error:
        record(tasks.plain, tmp_path / "run", job=create(tasks.uneven))
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value) and again.differences == error.value.differences


def test_the_job_of_a_program_is_not_compared_with_a_task(tmp_path):
    job = create().replace(task={"frontend": "libtorch"})
    with pytest.raises(JobMismatch, match=r"a C\+\+ program's \(train and verify with it"):
        record(tasks.plain, tmp_path / "run", job=job)


def test_a_session_refuses_another_seed():
    with pytest.raises(UsageError, match="the job's seed is 7"):
        Session.open(tasks.plain, seed=8, job=create())


# ---------------------------------------------------------------------- initial state from a file


def orthogonal():
    built = tasks.plain()
    nn.init.orthogonal_(built.model[0].weight)
    return built


def test_weights_that_depend_on_the_machine_are_agreed_as_a_file(tmp_path):
    job = create(orthogonal)
    assert job.core.fields()["initial_state"]["source"] == "file"
    assert job.core.fields()["task"]["initialisers"] == ["linalg_qr"]
    assert create().core.fields()["initial_state"]["source"] == "seed"
    job.write(tmp_path / "job.json")
    read = Job.read(tmp_path / "job.json")

    def elsewhere():
        built = orthogonal()
        with torch.no_grad():
            built.model[0].weight += 1e-7  # another LAPACK
        return built

    with Session.open(elsewhere, seed=7, job=read) as session:
        assert session.capture().digest() == job.core.initial_state
    (tmp_path / "job.initial.safetensors").write_bytes(b"")
    with pytest.raises((MismatchError, _core.MalformedError)):
        Job.read(tmp_path / "job.json")


def test_the_far_end_of_a_distribution_is_agreed_as_a_file():
    """Versions of torch draw it in other ways; the middle is potl's under all of them."""

    def truncated(*ends):
        def build():
            built = tasks.plain()
            nn.init.trunc_normal_(built.model[0].weight, *ends)
            return built

        return create(build).core.fields()

    assert truncated(0.0, 1.0, 2.0, 3.0)["initial_state"]["source"] == "file"
    for ends in (), (0.0, 0.02), (0.0, 0.02, -0.04, 0.04):
        assert truncated(*ends)["initial_state"]["source"] == "seed"


def test_weights_from_a_file_replace_those_of_the_same_name(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "pretrained.safetensors"
    save_file({"0.weight": torch.ones(6, 8)}, str(path))

    def build():
        return tasks.task(tasks.mlp(), init=path)

    job = create(build)
    assert job.core.fields()["initial_state"]["source"] == "seed"
    with Session.open(build, seed=7, job=job) as session:
        assert torch.equal(session.task.model[0].weight, torch.ones(6, 8))
        assert job.differences(session) == []
    state = tmp_path / "step-3.safetensors"
    with Session.open(tasks.plain, seed=1) as other:
        weights = other.task.model[2].weight.detach().clone()
        other.capture().save(str(state))
    with Session.open(lambda: tasks.task(tasks.mlp(), init=state), seed=7) as session:
        assert torch.equal(session.task.model[2].weight, weights)
    save_file({"9.weight": torch.ones(6, 8)}, str(path))
    with pytest.raises(UsageError, match=r"9\.weight"):
        create(build)
    save_file({"0.weight": torch.ones(6, 8, dtype=torch.float64)}, str(path))
    with pytest.raises(MismatchError, match="float64") as refused:
        create(build)
    assert "leave it out of the file" in refused.value.remedy
    torch.save(tasks.mlp().state_dict(), path)
    with pytest.raises(MalformedError, match="is no file that can be read") as refused:
        create(build)
    assert "model.load_state_dict(torch.load(path))" in refused.value.remedy
