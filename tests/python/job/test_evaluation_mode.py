# SPDX-License-Identifier: Apache-2.0
"""What is trained as a library left it, in evaluation mode, is warned of once."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

pytest.importorskip("torch")

import tasks
from torch import nn

import potl
from potl._job import _trial


class Training(potl.Task):
    """Puts its model in training mode by itself, as trainers do."""

    def step(self, batch: Any) -> Any:
        self.model.train()
        return super().step(batch)


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trial, "_said", set())


def warnings_of(
    model: nn.Module, caplog: pytest.LogCaptureFixture, kind: type[potl.Task] = potl.Task
) -> list[str]:
    def build() -> potl.Task:
        task = tasks.task(model_of(model))
        task.__class__ = kind
        return task

    with caplog.at_level(logging.WARNING):
        assert [one for one in potl.check(build) if one.prevents == "replay"] == []
        potl.check(build)
    return [one.getMessage() for one in caplog.records]


def model_of(model: nn.Module) -> nn.Module:
    whole = nn.Sequential(nn.Linear(8, 6), copy.deepcopy(model), nn.Linear(6, 4))
    whole.training = model.training
    return whole


@pytest.mark.parametrize(
    ("module", "does"),
    [(nn.Dropout(0.1), "it does nothing"), (nn.BatchNorm1d(6), "it keeps its running")],
)
def test_evaluation_mode_is_warned_of_with_what_it_stops(
    module: nn.Module, does: str, caplog: pytest.LogCaptureFixture
) -> None:
    (warning,) = warnings_of(module.eval(), caplog)
    assert f"a {type(module).__name__} (1) is in evaluation mode" in warning
    assert does in warning and "call model.train() in build()" in warning


def test_a_part_in_evaluation_mode_is_warned_of_where_its_dropout_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in an adapter around a model that was loaded."""
    assert warnings_of(nn.Sequential(nn.BatchNorm1d(6).eval(), nn.Dropout(0.1)), caplog) == []
    (warning,) = warnings_of(nn.Sequential(nn.Dropout(0.1).eval(), nn.Dropout(0.1)), caplog)
    assert "a Dropout (1.0) is in evaluation mode" in warning


def test_where_nothing_is_stopped_there_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    for module in (nn.Dropout(0.1), nn.Dropout(0.0).eval(), nn.LayerNorm(6).eval()):
        assert warnings_of(module, caplog) == []
    assert warnings_of(nn.Dropout(0.1).eval(), caplog, Training) == []
