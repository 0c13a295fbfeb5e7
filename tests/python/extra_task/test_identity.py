# SPDX-License-Identifier: Apache-2.0
"""Which models are the same submission: those of one state that answer alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

from extra_task_cases import digits, key_of, net, task_of  # noqa: E402
from torch import nn  # noqa: E402

from potl import ExtraTask  # noqa: E402
from potl._extra_task import _submissions  # noqa: E402
from potl._extra_task._submissions import digest_of  # noqa: E402


class Wrapper(nn.Module):
    """A module around something that is no module."""

    def __init__(self, function: Callable[[Any], Any], parameters: int = 0) -> None:
        super().__init__()
        self.function = function
        if parameters:
            self.weight = nn.Parameter(torch.zeros(parameters))

    def forward(self, x: torch.Tensor) -> Any:
        return torch.as_tensor(self.function(x))


class Extra(nn.Module):
    """A module whose state is no tensor."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


def quantized(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    out: nn.Module = torch.ao.quantization.quantize_dynamic(net(), {nn.Linear}, dtype=torch.qint8)
    return out


@pytest.mark.parametrize("parameters", [0, 1])
def test_different_answers_under_one_state_are_different_submissions(
    tmp_path: Path, parameters: int
) -> None:
    task = task_of(tmp_path, submissions=9)
    task.mix(digits())
    draw = np.random.default_rng(0)
    for number in range(3):
        model = Wrapper(lambda x: draw.integers(0, 10, len(x)), parameters)
        assert task.verify(model).submission == number + 1
    fixed = Wrapper(lambda x: np.full(len(x), 3), parameters)
    assert [task.verify(fixed).submission for _ in range(2)] == [4, 4]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantized_models_differ_by_their_weights() -> None:
    assert digest_of(quantized(0)) == digest_of(quantized(0)) is not None
    assert digest_of(quantized(0)) != digest_of(quantized(1))


def test_other_state_is_part_of_a_name_and_what_cannot_be_read_gives_none() -> None:
    states: list[Any] = [
        None, 1, True, 1.0, "1", b"1", [1], [[1]], {"a": 1}, {"a": [1]}, {"b": 1},
        np.arange(3), np.arange(4), torch.arange(3), torch.float32,
    ]  # fmt: skip
    names = [digest_of(Extra(one)) for one in states]
    assert None not in names
    assert len(set(names)) == len(states)
    endless: list[Any] = []
    endless.append(endless)
    for state in (object(), lambda: 1, endless, np.array([object()])):
        assert digest_of(Extra(state)) is None
    assert digest_of(Wrapper(len)) is None
    assert digest_of(net().to("meta")) is None


def test_a_name_is_the_one_that_older_files_hold() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(1)
        model.bias.fill_(2)
    assert digest_of(model) == "2d98c8840e8e38ac65e6de1f30d4ad74727374bc01177665e8666b0e1d0ad3ce"


def test_near_ties_are_judged_by_the_answers_of_the_first_time(tmp_path: Path) -> None:
    task = task_of(tmp_path, submissions=3)
    task.mix(digits())
    extra, control = np.arange(200) % 10.0, (np.arange(800) * 7 + 1) % 10.0
    first = task.judge(extra, control, model="m")
    other = extra.copy()
    other[:5] = 9
    again = task.judge(other, control, model="m")
    assert (again.submission, again.hits) == (1, first.hits)
    other[:50] = 9
    assert task.judge(other, control, model="m").submission == 2
    assert task.judge(other, control, model="m").submission == 2
    assert task.judge(extra, control, model="m").submission == 1


def test_last_bits_of_errors_are_no_new_submission(tmp_path: Path) -> None:
    images = digits().tensors[0].reshape(-1, 8, 8)
    task = ExtraTask(key_of(tmp_path / "k"), like=images, kind="autoencoder", submissions=3)
    task.mix(images)
    draw = np.random.default_rng(0)
    extra, control = draw.random(200), draw.random(800)
    first = task.judge(extra, control, model="m")
    assert task.judge(extra * (1 + 1e-6), control, model="m") == first
    assert task.judge(extra * 1.1, control, model="m").submission == 2


def test_answers_that_are_not_kept_are_other_submissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a module that holds its answers elsewhere is judged as often as it likes."""
    monkeypatch.setattr(_submissions, "_MOST_ANSWERS", 999)
    images = digits().tensors[0].reshape(-1, 8, 8)
    task = ExtraTask(key_of(tmp_path / "k"), like=images, kind="autoencoder", submissions=2)
    task.mix(images)
    draw = np.random.default_rng(0)
    model = Wrapper(lambda x: draw.random(len(x)), parameters=1)
    found = [task.verify(model) for _ in range(3)]
    assert [one.submission for one in found] == [1, 2, 3]
    assert "alpha is spent" in found[2].reason


def test_a_file_of_before_knows_models_by_their_hashes(tmp_path: Path) -> None:
    task = task_of(tmp_path, submissions=3)
    task.mix(digits())
    extra, control = np.arange(200) % 10.0, np.zeros(800)
    task.judge(extra, control, model="m")
    with task.key._changing() as known:
        known["submissions"] = [{k: v for k, v in one.items() if k != "values"}
                                for one in known["submissions"]]  # fmt: skip
    assert task.judge(extra, control, model="m").submission == 1
    assert task.judge(extra, control + 1, model="m").submission == 2
    assert len(json.loads((tmp_path / "extra.key.json").read_text())["submissions"]) == 2
