# SPDX-License-Identifier: Apache-2.0
"""Recording: what a run directory holds, what is refused, and what the caller keeps."""

import logging
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from verifying import judged

import potl
from potl import _core
from potl._record._run import write_model


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return potl.Job.create(tasks.build, seed=7, checkpoint_every=4)


@pytest.fixture(scope="module")
def run(job: potl.Job, tmp_path_factory: pytest.TempPathFactory) -> potl.Run:
    return potl.record(tasks.build, tmp_path_factory.mktemp("record") / "run", job=job)


def test_every_step_is_recorded(run: potl.Run, job: potl.Job) -> None:
    assert len(run.losses) == job.core.steps == 24
    assert all(loss > 0 for loss in run.losses)


def test_without_a_job_one_is_made_of_seed_and_interval(tmp_path: Path) -> None:
    run = potl.record(tasks.build, tmp_path / "run", seed=7, checkpoint_every=4)
    assert run.job.core.seed == 7
    assert run.job.core.checkpoint_every == 4


def test_without_a_job_seed_and_interval_are_needed(tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match=r"Job\.create"):
        potl.record(tasks.build, tmp_path / "run")


def test_a_job_and_a_seed_contradict_each_other(tmp_path: Path, job: potl.Job) -> None:
    with pytest.raises(potl.UsageError, match="leave them out"):
        potl.record(tasks.build, tmp_path / "run", job=job, seed=7)


def test_a_run_needs_a_name(job: potl.Job) -> None:
    with pytest.raises(potl.UsageError, match="the run has no name"):
        potl.record(tasks.build, "", job=job)


def test_a_job_may_be_a_file(tmp_path: Path, job: potl.Job, run: potl.Run) -> None:
    job.write(tmp_path / "job.json")
    again = potl.record(tasks.build, tmp_path / "run", job=tmp_path / "job.json")
    assert again.losses == run.losses


def test_two_recordings_of_a_job_end_in_the_same_state(
    tmp_path: Path, job: potl.Job, run: potl.Run
) -> None:
    again = potl.record(tasks.build, tmp_path / "run", job=job)
    assert again.final_digest == run.final_digest


def test_the_commitment_is_a_note_over_all_records(run: potl.Run, tmp_path: Path) -> None:
    commitment = run.commit()
    assert commitment.size >= 24 + 3
    assert len(commitment.root) == 32
    assert str(commitment).splitlines()[1] == str(commitment.size)
    commitment.write(tmp_path / "commitment")
    assert potl.Commitment.read(tmp_path / "commitment") == commitment
    assert (run.path / "commitment").read_text() == str(commitment)
    assert run.commit() == commitment


def test_the_export_is_the_final_model(run: potl.Run, tmp_path: Path) -> None:
    run.export(tmp_path / "model.safetensors")
    delivered = load_file(tmp_path / "model.safetensors")
    net = tasks.model()
    assert set(delivered) == set(net.state_dict())
    net.load_state_dict(delivered)
    assert net[1].num_batches_tracked == 24


def test_a_run_that_is_not_finished_is_not_exported(tmp_path: Path, job: potl.Job) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        next(iter(prover.steps()))
    with pytest.raises(potl.UsageError, match="resume the recording"):
        prover.run.export(tmp_path / "model.safetensors")


@pytest.mark.parametrize("model", [None, 3, [], {}, {"parameters": [1], "buffers": {}}])
def test_a_state_without_a_model_is_not_exported(tmp_path: Path, model: object) -> None:
    state = _core.State.capture({"model": model})
    with pytest.raises(potl.MalformedError, match="no parameters and buffers"):
        write_model(state, tmp_path / "model.safetensors")


def test_the_own_key_of_a_run_is_readable_for_its_owner_only(run: potl.Run) -> None:
    assert stat.S_IMODE((run.path / "key.pem").stat().st_mode) == 0o600


def test_a_named_key_is_created_announced_and_used_again(
    tmp_path: Path, job: potl.Job, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "keys" / "trainer.pem"
    with caplog.at_level(logging.WARNING, logger="potl"):
        potl.record(tasks.build, tmp_path / "a", job=job, key=key)
    assert str(key) in caplog.text
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    public = _core.PublicKey.from_pem(key.with_suffix(".pub").read_text())
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="potl"):
        potl.record(tasks.build, tmp_path / "b", job=job, key=key)
    assert caplog.text == ""
    assert _core.SigningKey.from_pem(key.read_text()).public_key == public


def test_a_lost_private_key_is_not_replaced_silently(tmp_path: Path, job: potl.Job) -> None:
    (tmp_path / "trainer.pub").write_text(_core.SigningKey.generate().public_key.to_pem())
    with pytest.raises(potl.UsageError, match="restore"):
        potl.record(tasks.build, tmp_path / "run", job=job, key=tmp_path / "trainer.pem")


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (tasks.build_less_momentum, "momentum is 0.5, agreed was 0.9"),
        (tasks.build_other_data, "data"),
        (tasks.build_wider, "model/parameters is "),
        (tasks.build_slow, "epochs"),
    ],
)
def test_a_task_that_is_not_the_jobs_is_refused_by_name(
    tmp_path: Path, job: potl.Job, build: object, named: str
) -> None:
    with pytest.raises(potl.JobMismatch, match=named):
        potl.record(build, tmp_path / "run", job=job)  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "transcript.log").exists()


def test_check_job_off_records_another_task(tmp_path: Path, job: potl.Job) -> None:
    run = potl.record(tasks.build_less_momentum, tmp_path / "run", job=job, check_job=False)
    assert len(run.losses) == 24


def test_a_key_that_is_not_the_jobs_is_refused(tmp_path: Path) -> None:
    public = tmp_path / "trainer.pub"
    public.write_text(_core.SigningKey.generate().public_key.to_pem())
    pinned = potl.Job.create(tasks.build, seed=7, checkpoint_every=4, trainer=public)
    other = _core.SigningKey.generate()
    with pytest.raises(
        potl.UsageError, match=r"not the trainer's key.*\(pass the private key"
    ) as no:
        potl.record(tasks.build, tmp_path / "run", job=pinned, key=other)
    assert pinned.core.trainer is not None and pinned.core.trainer.hex() in str(no.value)
    assert other.public_key.raw.hex() in str(no.value)
    with pytest.raises(potl.UsageError, match="pins the trainer"):
        potl.record(tasks.build, tmp_path / "run", job=pinned)
    with pytest.raises(potl.UsageError, match="pins the trainer"):
        potl.record(tasks.build, tmp_path / "run", job=pinned, key=tmp_path / "trainer.pem")
    assert not (tmp_path / "trainer.pem").exists()


def test_a_finished_run_is_not_recorded_again(run: potl.Run, job: potl.Job) -> None:
    with pytest.raises(potl.UsageError):
        potl.record(tasks.build, run.path, job=job)


def test_a_directory_of_other_files_is_left_alone(tmp_path: Path, job: potl.Job) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(potl.UsageError, match="directory of its own"):
        potl.record(tasks.build, tmp_path, job=job)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


# ---------------------------------------------------------------------- the loop in the caller's
# hands


def test_the_prover_yields_every_recorded_step(
    tmp_path: Path, job: potl.Job, run: potl.Run
) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        steps = list(prover.steps())
    assert [step.number for step in steps] == list(range(1, 25))
    assert [step.loss for step in steps] == run.losses
    assert {step.epoch for step in steps} == {0, 1}
    assert prover.run.final_digest == run.final_digest


def test_what_the_body_does_to_randomness_and_flags_does_not_matter(
    tmp_path: Path, job: potl.Job, run: potl.Run
) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        for _ in prover.steps():
            prover.task.model.eval()
            torch.manual_seed(0)
            torch.rand(3)
            random.seed(0)
            np.random.seed(0)
    assert prover.run.final_digest == run.final_digest


def test_a_body_may_evaluate_the_average_and_what_else_a_step_may_call(tmp_path: Path) -> None:
    def build() -> potl.Task:
        model = tasks.model()
        average = torch.optim.swa_utils.AveragedModel(model)
        loss = torch.nn.CrossEntropyLoss()
        return potl.Task(**tasks.options(model=model, ema=average, loss=loss))

    job = potl.Job.create(build, seed=7, checkpoint_every=6)
    with potl.Prover(build, tmp_path / "run", job=job) as prover:
        task: Any = prover.task
        for step in prover.steps():
            if step.number == 5:  # not after the first one, which is watched more closely
                task.ema.eval()
                task.loss.eval()
    assert task.ema.training and task.loss.training
    report = potl.verify(
        prover.run, job=job, commitment=prover.run.commit(), task=build, ledger=None
    )
    assert report.verdict == "accepted", report.sentence


def test_a_loop_in_inference_mode_is_refused_and_a_body_may_enter_it(
    tmp_path: Path, job: potl.Job, run: potl.Run
) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        with torch.inference_mode(), pytest.raises(potl.UsageError, match="in the body"):
            prover.steps()
        for _ in prover.steps():
            with torch.inference_mode():
                prover.task.model.eval()(prover.task.dataset[0][0][None])
    assert prover.run.final_digest == run.final_digest


def clamped(task: potl.Task) -> None:
    for parameter in task.model.parameters():
        parameter.data.clamp_(-0.01, 0.01)  # which torch does not count


def with_decay(task: potl.Task) -> None:
    task.optimizers[0].param_groups[0]["weight_decay"] = 0.5


def halved(task: potl.Task) -> None:
    with torch.no_grad():
        next(task.model.parameters()).mul_(0.5)


def exchanged(task: potl.Task) -> None:
    first = next(task.model.parameters())
    first.data = first.data * 0.5  # neither is this counted


def remade(task: potl.Task) -> None:
    old = task.model[1].running_var  # type: ignore[index, union-attr]
    new = 2 * old  # type: ignore[operator]
    while new._version < old._version:  # type: ignore[operator]
        new.mul_(1)
    task.model[1].running_var = new  # type: ignore[index, union-attr]


def averaged(task: potl.Task) -> None:
    task.ema.update_parameters(task.model)


def advanced(task: potl.Task) -> None:
    task.schedulers[0].step()


def beside() -> potl.Task:
    options = tasks.options()
    average = torch.optim.swa_utils.AveragedModel(options["model"])
    schedule = torch.optim.lr_scheduler.StepLR(options["optimizer"], 100)
    return potl.Task(**options, ema=average, scheduler=schedule)


def and_back(task: potl.Task) -> None:
    with torch.no_grad():
        first = next(task.model.parameters())
        kept = first.clone()
        first.zero_()
        first.copy_(kept)


@pytest.mark.parametrize(
    ("step", "change", "place"),
    [
        (1, clamped, "model/parameters/"),
        (3, halved, "model/parameters/"),
        (3, exchanged, "model/parameters/"),
        (3, remade, "model/buffers/1.running_var"),
        (3, averaged, "ema/"),
        (4, with_decay, "optimizers/0/param_groups/0/weight_decay"),
        (3, advanced, "schedulers/0/"),
    ],
)
def test_a_body_that_changes_the_training_ends_the_recording(
    tmp_path: Path, step: int, change: Callable[[potl.Task], None], place: str
) -> None:
    job = potl.Job.create(beside, seed=7, checkpoint_every=4)
    with (
        pytest.raises(potl.NotReplayable, match=rf"{place}.* after step {step}: the body"),
        potl.Prover(beside, tmp_path / "run", job=job) as prover,
    ):
        for each in prover.steps():
            if each.number == step:
                change(prover.task)


class Brightened(torch.utils.data.Dataset[tuple[torch.Tensor, ...]]):
    """Has an option, and counts what it reads."""

    def __init__(self) -> None:
        self.factor, self.reads = 1.0, 0

    def __len__(self) -> int:
        return 192

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        self.reads += 1
        x, y = tasks.DATA[index]
        return self.factor * x, y


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
def test_a_body_that_changes_the_data_ends_the_recording(tmp_path: Path, arithmetic: str) -> None:
    def build() -> potl.Task:
        return potl.Task(**tasks.options(dataset=Brightened()))

    job = potl.Job.create(build, seed=1, checkpoint_every=4, arithmetic=arithmetic)
    with (
        pytest.raises(potl.NotReplayable, match="another one when it is made again"),
        potl.Prover(build, tmp_path / "run", job=job) as prover,
    ):
        for step in prover.steps():
            if step.number == 13:
                prover.task.dataset.factor = 1.1
    assert step.number < job.steps
    # Changed for an evaluation, and put back.
    with potl.Prover(build, tmp_path / "other", job=job) as prover:
        for _ in prover.steps():
            prover.task.dataset.factor = 1.1
            assert prover.task.dataset[0][0].shape
            prover.task.dataset.factor = 1.0
    assert prover.run.commit()


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
def test_data_may_depend_on_weights(tmp_path: Path, arithmetic: str) -> None:
    def build() -> potl.Task:
        options = tasks.options()
        first = next(options["model"].parameters())

        def collate(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
            x, y = torch.utils.data.default_collate(samples)
            return [x + first.detach().amax(), y]

        return potl.Task(collate_fn=collate, **options)

    job = potl.Job.create(build, seed=1, checkpoint_every=4, arithmetic=arithmetic)
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(
        run.path, job=job, commitment=run.commit(), task=build, checks=[potl.Replay(samples=6)]
    )
    assert report.verdict == "accepted", report.sentence


def test_a_body_may_put_weights_back_and_change_what_no_step_follows(
    tmp_path: Path, job: potl.Job, run: potl.Run
) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            and_back(prover.task)
            if step.number == prover.total:
                halved(prover.task)
    assert prover.run.final_digest == run.final_digest


def test_the_callers_randomness_goes_on_as_if_nothing_happened(
    tmp_path: Path, job: potl.Job
) -> None:
    torch.manual_seed(11)
    expected = [float(torch.rand(1)) for _ in range(24)]
    torch.manual_seed(11)
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        drawn = [float(torch.rand(1)) for _ in prover.steps()]
    assert drawn == expected


def test_leaving_early_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, job: potl.Job, run: potl.Run, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="potl"),
        potl.Prover(tasks.build, tmp_path / "run", job=job) as prover,
    ):
        for step in prover.steps():
            if step.number == 10:
                break
    assert "resumed" in caplog.text
    with pytest.raises(potl.UsageError, match=r"is not finished \(.* resumes it; .*max_steps"):
        prover.run.commit()
    resumed = potl.record(tasks.build, tmp_path / "run", job=job)
    assert resumed.final_digest == run.final_digest


def test_a_model_in_place_of_the_note_is_told_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff")
    with pytest.raises(potl.MalformedError, match=r"not UTF-8 .*what potl commit printed"):
        potl.Commitment.read(tmp_path / "model.safetensors")


def test_published_notes_are_extended_by_the_commitment(tmp_path: Path, job: potl.Job) -> None:
    notes = []
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            if step.number % 8 == 0:
                notes.append(prover.publish())
    report = judged(prover.run, job, tasks.build, published=notes)
    assert report.verdict == "accepted", report.sentence


def test_an_exception_in_the_body_propagates_and_the_run_can_go_on(
    tmp_path: Path, job: potl.Job, run: potl.Run
) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        potl.Prover(tasks.build, tmp_path / "run", job=job) as prover,
    ):
        for step in prover.steps():
            if step.number == 7:
                raise ZeroDivisionError
    assert potl.record(tasks.build, tmp_path / "run", job=job).final_digest == run.final_digest


def test_progress_is_told_after_every_step(tmp_path: Path, job: potl.Job) -> None:
    seen: list[tuple[int, int]] = []
    potl.record(
        tasks.build,
        tmp_path / "run",
        job=job,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(step, 24) for step in range(1, 25)]


def test_rates_that_something_else_sets_later_end_the_recording(tmp_path: Path) -> None:
    def build() -> potl.Task:
        task = tasks.build()
        (optimizer,) = task.optimizers
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return task

    # Later than a check trains.
    job = potl.Job.create(build, seed=7, checkpoint_every=4, check=False)
    with pytest.raises(potl.NotReplayable, match="step 6 has the learning rates"):
        potl.record(build, tmp_path / "run", job=job)


def test_a_training_that_diverges_is_told_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def build() -> potl.Task:
        task = tasks.build()
        task.optimizers[0].param_groups[0]["lr"] = 1e30
        return task

    with caplog.at_level(logging.WARNING, logger="potl"):
        job = potl.Job.create(build, seed=7, checkpoint_every=4, check=False)
        potl.record(build, tmp_path / "run", job=job)
    told = [one.message for one in caplog.records if "not finite" in one.message]
    assert len(told) == 1
    assert "no verifier accepts" in told[0]
    assert "lower the learning rate" in told[0]
    assert "return a finite number" in told[0]
