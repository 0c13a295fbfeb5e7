# SPDX-License-Identifier: Apache-2.0
"""Who uses an old name is told the new one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import potl
from potl._cli import _cli


@pytest.mark.parametrize(
    ("call", "new"),
    [
        (lambda: potl.record(None, path="runs/1"), "run"),
        (lambda: potl.Prover(None, path="runs/1"), "run"),
        (lambda: potl.audit("runs/1", job="job.json", task="a:b", patience=1.0), "timeout"),
        (lambda: potl.dispute_at("", party=None, referee_key="", patience=1.0), "timeout"),
    ],
)
def test_an_argument_by_its_old_name_is_refused_by_the_new_one(
    call: Callable[[], Any], new: str
) -> None:
    with pytest.raises(potl.UsageError, match=f"has another name now .pass {new}="):
        call()


def test_signatures_are_those_of_what_is_called() -> None:
    assert [*inspect.signature(potl.record).parameters][:3] == ["build", "run", "job"]
    assert [*inspect.signature(potl.Prover).parameters][:3] == ["build", "run", "job"]


@pytest.mark.parametrize("words", [["--patience", "5"], ["--patience=5"]])
def test_an_option_by_its_old_name_is_refused_by_the_new_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(["audit", "runs/1", *words]) == 2
    assert "--patience has another name now: pass --timeout" in capsys.readouterr().err
