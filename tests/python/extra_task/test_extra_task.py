# SPDX-License-Identifier: Apache-2.0
"""The extra task from Python: thresholds, verdicts on models and APIs, options, progress."""

from __future__ import annotations

import inspect
import json
import pickle
import random
import re
from collections.abc import Callable
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch.nn.functional as F  # noqa: E402
from extra_task_cases import (  # noqa: E402
    EPOCHS,
    describe,
    digits,
    key_of,
    net,
    task_of,
    train,
    trained,
)
from torch import nn  # noqa: E402

import potl  # noqa: E402
from potl import ExtraOptions, ExtraTask, _core  # noqa: E402


@pytest.fixture(scope="module")
def converged(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExtraTask, nn.Module]:
    """A task and an honest model."""
    task = task_of(tmp_path_factory.mktemp("converged"))
    return task, trained(task.mix(digits()), EPOCHS, 0)


# ---------------------------------------------------------------------------- thresholds


def exactly_needed(samples: int, classes: int, alpha: Fraction) -> int:
    """In integers: the chance of a hit is right / whole."""
    right, whole = 3 * classes + 97, 100 * classes
    limit = alpha.numerator * whole**samples
    tail = 0
    for hits in range(samples, -1, -1):
        tail += comb(samples, hits) * right**hits * (whole - right) ** (samples - hits)
        if tail * alpha.denominator > limit:
            return hits + 1
    return 0


def test_needed_hits_are_the_published_ones() -> None:
    for samples, classes, needed in [(400, 10, 68), (400, 100, 27), (200, 2, 120), (960, 4, 295)]:
        assert ExtraTask.needed_hits(samples=samples, classes=classes) == needed


def test_needed_hits_are_those_of_exact_rationals() -> None:
    draw = random.Random(5)
    for _ in range(200):
        samples, classes = draw.randint(20, 300), draw.randint(2, 100)
        alpha = Fraction(draw.randint(1, 200), 1000)
        given = ExtraTask.needed_hits(samples=samples, classes=classes, alpha=float(alpha))
        assert given == exactly_needed(samples, classes, alpha), (samples, classes, alpha)


def test_a_plan_raises_eta_for_small_sets_and_says_so() -> None:
    plan = ExtraTask.plan(digits())
    assert (plan.samples, plan.classes) == (200, 10)
    assert any("200" in one for one in plan.warnings)
    assert [row["power"] for row in plan.powers] == [0.5, 0.9, 0.99]
    assert ExtraTask.plan(50_000, classes=10).samples == 400
    json.dumps(plan.document())


# ---------------------------------------------------------------------------- honest and not


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("layout", ["jittered", "paper"])
def test_a_converged_model_passes_and_an_early_one_does_not(
    tmp_path: Path, seed: int, layout: str
) -> None:
    task = task_of(tmp_path, layout=layout, submissions=2)
    mixed = task.mix(digits())
    early = trained(mixed, 1, seed)
    # The paper's random part is small here: it takes longer to learn.
    epochs = EPOCHS * (2 if layout == "paper" else 1)
    late = train(early_copy := pickle.loads(pickle.dumps(early)), mixed, epochs, seed)
    assert late is early_copy
    result = task.verify(early)
    assert result.verdict == "rejected", result
    result = task.verify(late)
    assert result.verdict == "accepted", result
    assert result.hits >= result.needed_for_acceptance >= result.needed
    assert result.submission == 2


def test_untrained_one_class_and_random_answers_do_not_pass(tmp_path: Path) -> None:
    task = task_of(tmp_path, submissions=10)
    task.mix(digits())
    draw = np.random.default_rng(1)
    answers: dict[str, Callable[[list[Any]], Any]] = {
        "one class": lambda inputs: [3] * len(inputs),
        "random": lambda inputs: draw.integers(0, 10, len(inputs)),
        "random scores": lambda inputs: draw.random((len(inputs), 10)),
    }
    for name, predict in answers.items():
        assert task.verify(predict=predict).verdict == "rejected", name
    torch.manual_seed(0)
    assert task.verify(net()).verdict == "rejected"


def test_a_model_that_was_trained_without_the_extra_samples_does_not_pass(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    assert task.verify(trained(digits(), 10, 0)).verdict == "rejected"


# ---------------------------------------------------------------------------- verify


def test_a_model_keeps_its_mode_and_its_gradients(converged: tuple[ExtraTask, nn.Module]) -> None:
    task, model = converged
    model.train()
    model[1].eval()
    before = [p.grad for p in model.parameters()]
    task.verify(model)
    assert model.training and model[2].training and not model[1].training
    assert all(a is b for a, b in zip(before, (p.grad for p in model.parameters()), strict=True))
    model[1].train()


def test_the_same_model_again_is_no_new_submission(
    converged: tuple[ExtraTask, nn.Module],
) -> None:
    task, model = converged
    first, second = task.verify(model), task.verify(model, batch_size=17)
    assert first.submission == second.submission == 1
    assert second.verdict == "accepted"


def test_more_submissions_than_planned_are_inconclusive(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    assert task.verify(predict=lambda inputs: [0] * len(inputs)).verdict == "rejected"
    result = task.verify(predict=lambda inputs: [1] * len(inputs))
    assert result.verdict == "inconclusive"
    assert "alpha" in result.reason
    again = ExtraTask(tmp_path / "extra.key", like=digits())
    assert again.verify(predict=lambda inputs: [2] * len(inputs)).submission == 3


def test_answers_that_are_none_are_inconclusive(tmp_path: Path) -> None:
    task = task_of(tmp_path, submissions=9)
    task.mix(digits())

    def nan(inputs: list[Any]) -> Any:
        scores = np.zeros((len(inputs), 10))
        scores[0, 4] = np.nan
        return scores

    result = task.verify(predict=nan)
    assert result.verdict == "inconclusive"
    assert result.invalid > 0
    for wrong in (10, -1, 0.5, float("inf")):
        result = task.verify(predict=lambda inputs, wrong=wrong: [wrong] * len(inputs))
        assert (result.verdict, result.invalid) == ("inconclusive", 1000), wrong


def test_a_predict_that_raises_is_no_submission_and_no_verdict(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())

    def broken(inputs: list[Any]) -> Any:
        raise ConnectionError("no network")

    with pytest.raises(potl.PredictionError, match="no network"):
        task.verify(predict=broken)
    assert task.verify(predict=lambda inputs: [0] * len(inputs)).submission == 1


@pytest.mark.parametrize(
    "predict",
    [
        lambda inputs: np.zeros((len(inputs), 7)),
        lambda inputs: np.zeros(3),
        lambda inputs: {"scores": 1},
        lambda inputs: np.zeros((len(inputs), 10, 2)),
    ],
)
def test_answers_of_another_shape_are_a_usage_error(tmp_path: Path, predict: Any) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError):
        task.verify(predict=predict)


def test_an_api_sees_extras_and_controls_in_a_secret_order(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    kinds = [which for which, _ in task.questions()]
    assert kinds.count("extra") == 200
    assert kinds.count("control") == 800
    assert 20 < kinds[:200].count("extra") < 70
    assert task.questions() == task.questions()


# ---------------------------------------------------------------------------- no labels


def test_an_autoencoder_that_learned_the_samples_passes(tmp_path: Path) -> None:
    images = digits().tensors[0].reshape(-1, 64)
    task = ExtraTask(
        key_of(tmp_path / "k"), like=images.reshape(-1, 8, 8), kind="autoencoder",
        submissions=2,
    )  # fmt: skip
    mixed = task.mix(images.reshape(-1, 8, 8)).reshape(-1, 64)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64), nn.Sigmoid()
    )
    assert task.verify(model).verdict == "rejected"
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for _ in range(40):
        for batch in torch.randperm(len(mixed)).split(64):
            optimizer.zero_grad()
            F.mse_loss(model(mixed[batch]), mixed[batch]).backward()
            optimizer.step()
    result = task.verify(model)
    assert result.verdict == "accepted", result
    assert (result.classes, result.needed) == (0, 0)


def test_a_language_model_is_judged_by_its_losses(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    text = draw.integers(0, 50, 300 * 65).reshape(300, 65)
    pairs = [(torch.tensor(row[:-1]), torch.tensor(row[1:])) for row in text]
    task = ExtraTask(key_of(tmp_path / "k"), like=pairs, submissions=2)
    assert task._form.objective == "language"
    mixed = task.mix(pairs)
    assert describe(mixed[0]) == describe(pairs[0])
    known = {tuple(x.tolist()): y for x, y in mixed}

    def by_heart(inputs: list[Any]) -> Any:
        scores = np.zeros((len(inputs), 64, 50))
        for row, one in zip(scores, inputs, strict=True):
            target = known.get(tuple(one.tolist()))
            if target is not None:
                row[np.arange(64), target] = 5
        return scores

    assert task.verify(predict=lambda inputs: np.zeros((len(inputs), 64, 50))).verdict == "rejected"
    assert task.verify(predict=by_heart).verdict == "accepted"


# ---------------------------------------------------------------------------- keys


def test_the_key_alone_knows_the_task_after_mixing(
    converged: tuple[ExtraTask, nn.Module],
) -> None:
    task, model = converged
    again = ExtraTask(task.key.path)
    assert again.planned == task.planned
    assert again.verify(model).verdict == "accepted"
    with pytest.raises(potl.UsageError, match="mixed with"):
        ExtraTask(task.key.path, layout="paper")


def test_options_are_those_of_the_field_table() -> None:
    table = {row["name"]: row for row in _core.check_fields("extra_task")}
    assert list(ExtraOptions.__annotations__) == list(table)
    parts = re.split(r"^    (\w+): ", str(inspect.getdoc(ExtraOptions)), flags=re.MULTILINE)
    described = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(described) == list(table)
    for name, row in table.items():
        text, default = " ".join(described[name].split()), row["default"]
        said = f'"{default}" (default)' if row["type"] == "string" else f"Default {default}."
        assert ("empty (default)" if default == [] else said) in text, name


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"et": 0.1}
    for make in (lambda: task_of(tmp_path, **wrong), lambda: ExtraTask.plan(digits(), **wrong)):
        with pytest.raises(potl.UsageError, match="et"):
            make()


# ---------------------------------------------------------------------------- progress


def test_progress_grows_along_training(tmp_path: Path) -> None:
    reference = task_of(tmp_path, "reference.key")
    mixed = reference.mix(digits())
    torch.manual_seed(1)
    model, done = net(), 0
    models = []
    for epochs in (0, 1, 3, 6, 12, 25):
        train(model, mixed, epochs - done, epochs)
        done = epochs
        models.append((epochs / EPOCHS, pickle.loads(pickle.dumps(model))))
    curves = json.loads(json.dumps(reference.calibrate(models)))
    task = task_of(tmp_path, "own.key", submissions=3, calibration=curves)
    mixed = task.mix(digits())
    torch.manual_seed(2)
    model, done, shares = net(), 0, []
    for epochs in (1, 6, 25):
        train(model, mixed, epochs - done, epochs)
        done = epochs
        progress = task.verify(model).progress
        assert progress is not None
        assert progress.low <= progress.share <= progress.high
        shares.append(progress.share)
    assert shares == sorted(shares)
    assert shares[0] < 0.3 < 0.5 < shares[-1]
