# SPDX-License-Identifier: Apache-2.0
"""The backdoor of docs/experiments/spot_check.md, in short trainings."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from experiments import modules

STEPS = 120


@pytest.fixture(scope="module")
def experiment():
    with modules("spot_check_backdoor", "spot_check_guarded", "spot_check_page") as found:
        backdoor, guarded, page = found
        digits = dataclasses.replace(backdoor.SETTINGS["digits"], steps=STEPS)
        yield SimpleNamespace(backdoor=backdoor, guarded=guarded, page=page, digits=digits)


def trained(experiment, clip, false):
    """Accuracy and success of the backdoor at the end."""
    training = experiment.backdoor.Training(experiment.digits, 0, clip)
    worker = experiment.backdoor.Compromised(experiment.digits, clip, false)
    training.run(worker.gradients, STEPS)
    return experiment.digits.measured(training.model)


def test_an_honest_worker_leaves_no_backdoor(experiment):
    accuracy, success = trained(experiment, None, ())
    assert accuracy > 0.85 and success < 0.05


@pytest.mark.parametrize("false", [range(STEPS), [STEPS - 1]], ids=["all steps", "the last step"])
def test_without_a_guard_the_backdoor_goes_in(experiment, false):
    accuracy, success = trained(experiment, None, false)
    assert accuracy > 0.85 and success > 0.9


def test_one_step_is_not_enough_if_gradients_are_clipped(experiment):
    accuracy, success = trained(experiment, 1.0, [STEPS - 1])
    assert accuracy > 0.85 and success < 0.05


def test_the_worker_uses_what_the_clip_leaves_it(experiment):
    training = experiment.backdoor.Training(experiment.digits, 0, 0.25)
    worker = experiment.backdoor.Compromised(experiment.digits, 0.25, [5, 6, 7])
    norms = []

    def watched(step, model, batch):
        found = worker.gradients(step, model, batch)
        norms.append(experiment.backdoor.norm(found))
        return found

    training.run(watched, 8)
    assert norms[5:] == pytest.approx([0.25] * 3, rel=1e-3)


def test_what_the_worker_does_not_falsify_is_the_gradient(experiment):
    training = experiment.backdoor.Training(experiment.digits, 0, None)
    images, labels = experiment.digits.read()[0]
    batch = images[:32], labels[:32]
    worker = experiment.backdoor.Compromised(experiment.digits, None, [1])
    training.model.zero_grad()
    torch.nn.functional.cross_entropy(training.model(batch[0]), batch[1]).backward()
    for found, weight in zip(
        worker.gradients(0, training.model, batch), training.model.parameters(), strict=True
    ):
        assert torch.equal(found, weight.grad)


@pytest.mark.parametrize("name", ["digits", "cifar"])
def test_the_page_shows_its_figures(experiment, name):
    page = experiment.page
    setting = experiment.backdoor.SETTINGS[name]
    rows = [page.Row(**row) for row in page.kept()[name]]
    assert {row.seed for row in rows} == set(range(experiment.backdoor.SEEDS[name]))
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.tables(setting, rows) in text
    plot = page.DOCS / f"spot_check_{name}.svg"
    assert plot.read_text(encoding="utf-8") == page.picture(setting, rows)
    rows = [experiment.guarded.Guarded(**row) for row in page.kept()[f"{name}_guarded"]]
    assert {row.seed for row in rows} == set(range(experiment.guarded.SEEDS[name]))
    assert experiment.guarded.table(setting, rows) in text
