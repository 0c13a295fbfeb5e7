# SPDX-License-Identifier: Apache-2.0
"""What other libraries say at each build of a task is said once."""

from __future__ import annotations

import logging
import uuid
import warnings

import driver_tasks
import pytest

import potl
from potl import Session


def test_messages_of_others_come_once_and_our_own_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = f"some weights were not used {uuid.uuid4()}"

    def build() -> potl.Task:
        logging.getLogger("some.library").warning(text)
        logging.getLogger("potl").warning(text)
        warnings.warn(text, stacklevel=1)
        return driver_tasks.build()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            with Session.open(build, seed=1):
                pass
    said = [record.name for record in caplog.records if record.message == text]
    assert said.count("some.library") == 1 and said.count("potl") == 3
    assert [str(one.message) for one in warned].count(text) == 1
    # Outside of a build nothing is kept back.
    logging.getLogger("some.library").warning(text)
    assert [r.name for r in caplog.records if r.message == text].count("some.library") == 2
