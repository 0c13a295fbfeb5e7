# SPDX-License-Identifier: Apache-2.0
"""Who would run other operators than the others takes part in no dispute: on another version of
torch, or on another device, an honest step is another program, and loses by its structure.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import traced_nets
from disputed import Case, case

import potl
from potl._dispute._party import require_torch_of

pytest.importorskip("potl._torch", reason="potl was built without torch")


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Case:
    def short() -> potl.Task:
        task = traced_nets.mlp()
        task.max_steps = 2
        return task

    return case(short, tmp_path_factory.mktemp("mlp"))


def test_a_dispute_is_held_in_the_torch_that_made_the_job(
    mlp: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.11 has a `view` where 2.13 has an `_unsafe_view`."""
    verdict = potl.dispute(trainer=mlp.honest(), auditor=mlp.auditor(), referee=mlp.referee())
    major, minor, patch = torch.__version__.split("+")[0].split(".")
    monkeypatch.setattr(torch, "__version__", f"{major}.{minor}.{int(patch) + 1}+cu999")
    for taking_part in (mlp.honest, mlp.auditor, mlp.referee):
        taking_part()
    monkeypatch.setattr(torch, "__version__", f"{major}.{int(minor) + 1}.{patch}")
    for taking_part in (mlp.honest, mlp.auditor, mlp.referee):
        with pytest.raises(potl.UnsupportedError, match="may have other operators") as found:
            taking_part()
        assert "minor version" in found.value.remedy
    with pytest.raises(potl.UnsupportedError, match="may have other operators"):
        potl.judge(verdict.evidence, job=mlp.job, task=mlp.build)
    # Elements have the same bits in every version.
    assert potl.judge(verdict.evidence, job=mlp.job).why == "agreement"


def test_a_party_on_another_device_does_not_begin(
    mlp: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    party, closed = mlp.honest(), list[bool]()
    task = SimpleNamespace(device=torch.device("cuda:0"))
    session = SimpleNamespace(task=task, close=lambda: closed.append(True))
    monkeypatch.setattr("potl._dispute._party.open_checked", lambda build, job: session)
    with pytest.raises(potl.UnsupportedError, match="cuda:0") as error:
        party.open()
    assert "on the CPU" in error.value.remedy and closed == [True]
    with pytest.raises(potl.UnsupportedError, match="cuda:0"):
        potl.dispute(trainer=party, auditor=mlp.auditor(), referee=mlp.referee())


def test_a_job_that_names_no_torch_is_told_what_disputes_are_about() -> None:
    job: Any = SimpleNamespace(core=SimpleNamespace(fields=lambda: {"environment": {}}))
    with pytest.raises(potl.UnsupportedError, match="does not name a torch") as error:
        require_torch_of(job)
    assert "potl.Job.create" in error.value.remedy
