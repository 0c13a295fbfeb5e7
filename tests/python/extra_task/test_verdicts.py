# SPDX-License-Identifier: Apache-2.0
"""The extra task's three verdicts: who trains on a part of the data, or stops, is not accepted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

import torch.nn.functional as F  # noqa: E402
from extra_task_cases import EPOCHS, digits, key_of, task_of, train, trained  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from potl import ExtraKey, ExtraResult, ExtraTask, _core  # noqa: E402


def part_of(mixed: TensorDataset, share: float, seed: int) -> TensorDataset:
    """A random share of what was uploaded."""
    x, y = mixed.tensors
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    chosen = chosen[: round(share * len(x))]
    return TensorDataset(x[chosen], y[chosen])


def without_margin(task: ExtraTask, model: nn.Module) -> str:
    """The verdict of two outcomes."""
    extra, control = task.answers(model)
    found = _core.judge_extra_task(
        options=task.options() | {"least_known": 0.0},
        samples=task.planned.samples,
        classes=task.planned.classes,
        extra=extra,
        control=control,
    )
    return str(found["verdict"])


def test_a_tenth_of_the_data_is_not_enough_and_passes_only_without_the_second_margin(
    tmp_path: Path,
) -> None:
    old = []
    for seed in range(4, 8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        task = task_of(folder)
        model = trained(part_of(task.mix(digits()), 0.1, seed), 60, seed)
        result = task.verify(model)
        assert result.verdict != "accepted", result
        assert result.known < 0.2
        old.append(without_margin(task, model))
    assert "accepted" in old


@pytest.mark.parametrize("seed", range(4))
def test_honest_models_are_accepted_and_early_ones_are_not(tmp_path: Path, seed: int) -> None:
    task = task_of(tmp_path, f"{seed}.key", submissions=9)
    mixed = task.mix(digits())
    torch.manual_seed(seed)
    model = trained(mixed, 1, seed)
    for number in range(5):
        assert task.verify(model).verdict != "accepted", number
        train(model, mixed, 1, 100 * seed + number)
    train(model, mixed, EPOCHS, seed)
    result = task.verify(model)
    assert result.verdict == "accepted", result
    assert result.known > 0.4


def test_what_is_between_is_explained_and_in_the_document(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    extra = np.array([(i if i < 45 else i + 1) % 10 for i in range(200)], float)
    control = np.array([(i if i < 80 else i + 1) % 10 for i in range(800)], float)
    result = task.judge(extra, control)
    assert isinstance(result, ExtraResult)
    assert (result.verdict, result.exit_code, result.hits) == ("inconclusive", 3, 45)
    assert result.needed <= 45 < result.needed_for_acceptance
    assert result.p_value <= result.level < result.acceptance_p_value
    assert "Train longer" in result.reason
    document = json.loads(result.json())
    assert document["needed_for_acceptance"] == result.needed_for_acceptance
    assert document["known"] == pytest.approx(0.1389, abs=1e-4)


def test_who_knows_no_more_than_least_known_is_accepted_with_alpha_at_most() -> None:
    draw = random.Random(4)
    np_draw = np.random.default_rng(4)
    for classes, least in [(2, 0.15), (10, 0.15), (10, 0.4)]:
        samples, accepted, trials = 200, 0, 300
        for _ in range(trials):
            extra = np_draw.integers(0, classes, samples).astype(float)
            control = np_draw.integers(0, classes, 4 * samples).astype(float)
            for index in draw.sample(range(samples), round(least * samples)):
                extra[index] = index % classes
            found = _core.judge_extra_task(
                options={"least_known": least, "alpha": 0.05},
                samples=samples, classes=classes, extra=extra, control=control,
            )  # fmt: skip
            accepted += found["verdict"] == "accepted"
        # Six standard deviations above 5 % of 300: false alarms below 1e-6.
        assert accepted < 15 + 6 * (300 * 0.05 * 0.95) ** 0.5, (classes, least, accepted)


def test_files_from_before_this_option_are_read_with_its_default(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    key = ExtraKey(tmp_path / "extra.key")
    with key._changing() as known:
        old = dict(known["task"])
        old["options"] = {k: v for k, v in old["options"].items() if k != "least_known"}
        known["task"] = old
    assert "least_known" not in (tmp_path / "extra.key.json").read_text()
    again = ExtraTask(tmp_path / "extra.key")
    assert again.options()["least_known"] == 0.15
    assert again.planned == task.planned


# ---------------------------------------------------------------------------- no labels


def autoencoder(data: torch.Tensor, epochs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.Sigmoid()
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for _ in range(epochs):
        for batch in torch.randperm(len(data)).split(64):
            optimizer.zero_grad()
            F.mse_loss(model(data[batch]), data[batch]).backward()
            optimizer.step()
    return model


def test_without_labels_only_a_large_effect_is_accepted(tmp_path: Path) -> None:
    images = digits().tensors[0].reshape(-1, 8, 8)
    task = ExtraTask(key_of(tmp_path / "k"), like=images, kind="autoencoder", submissions=9)
    assert task.planned.needed_effect > 0.68
    assert (task.planned.needed_for_acceptance, task.planned.acceptance) == (0, ())
    mixed = task.mix(images).reshape(-1, 64)
    for seed in range(2):
        effects = []
        for epochs, verdicts in [(0, {"rejected"}), (6, {"rejected", "inconclusive"})]:
            result = task.verify(autoencoder(mixed, epochs, seed))
            assert result.verdict in verdicts, result
            effects.append(result.effect)
        # A tenth of what was uploaded, with as many steps.
        chosen = torch.randperm(len(mixed), generator=torch.Generator().manual_seed(seed))
        result = task.verify(autoencoder(mixed[chosen[: len(mixed) // 10]], 400, seed))
        assert result.verdict != "accepted", result
        result = task.verify(autoencoder(mixed, 60, seed))
        assert result.verdict == "accepted", result
        assert result.effect >= result.needed_effect == task.planned.needed_effect
        assert effects[0] < effects[1] < result.effect
    assert json.loads(result.json())["effect"] == result.effect
    assert (result.known, result.needed_for_acceptance) == (0, 0)
