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
from potl._serve._app import endpoints
from potl._serve._limits import ServeLimits
from potl._serve._served import ServedRun

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("schema") / "run"
    helpers.record_run(path, _core.Job.parse(helpers.job_text()), resume_after=5)
    run = ServedRun(path)
    key = _core.SigningKey.generate()
    party = SimpleNamespace(key=key, job=None, note="")
    seat = Seat(party, key.public_key)  # type: ignore[arg-type]
    served = endpoints(run, limits=ServeLimits(), seat=seat)
    yield schemathesis.openapi.from_asgi("/openapi.json", served)
    run.close()


def test_answers_are_those_of_the_openapi(app: Any) -> None:
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
    assert asked > 100
