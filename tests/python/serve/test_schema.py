# SPDX-License-Identifier: Apache-2.0
"""The server keeps to its own OpenAPI, whatever it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import transcript_helpers as helpers
from hypothesis import HealthCheck, Phase, given, settings

from potl import _core
from potl._dispute._seat import Seat
from potl._dispute._table import SystemClock
from potl._serve._app import endpoints
from potl._serve._docket import Docket
from potl._serve._hosting import endpoints as hosting
from potl._serve._limits import ServeLimits
from potl._serve._served import ServedRun

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def run_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("schema") / "run"
    helpers.record_run(path, _core.Job.parse(helpers.job_text()), resume_after=5)
    run = ServedRun(path)
    key = _core.SigningKey.generate()
    party = SimpleNamespace(key=key, job=None, note="")
    seat = Seat(party, key.public_key)  # type: ignore[arg-type]
    yield endpoints(run, limits=ServeLimits(), seat=seat)
    run.close()


@pytest.fixture(scope="module")
def referee_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    core = _core.Job.parse(helpers.job_text())
    keys = [_core.SigningKey.generate() for _ in range(3)]
    referee: Any = SimpleNamespace(job=SimpleNamespace(core=core, id=core.id), key=keys[2])
    docket = Docket(
        lambda: referee,
        keys={"trainer": keys[0].public_key, "auditor": keys[1].public_key},
        folder=tmp_path_factory.mktemp("disputes"),
        turn_seconds=60,
        clock=SystemClock(),
    )
    yield hosting(docket, limits=ServeLimits())
    docket.close()


@pytest.mark.parametrize(("which", "least"), [("run_app", 100), ("referee_app", 60)])
def test_answers_are_those_of_the_openapi(
    which: str, least: int, request: pytest.FixtureRequest
) -> None:
    app = schemathesis.openapi.from_asgi("/openapi.json", request.getfixturevalue(which))
    asked = 0
    for found in app.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=20,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def answers_as_it_says(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate()

        answers_as_it_says()
    assert asked > least
