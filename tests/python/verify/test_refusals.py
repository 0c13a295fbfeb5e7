# SPDX-License-Identifier: Apache-2.0
"""What an arithmetic refuses in a replay is nobody's fault, and in a repeat no end."""

from typing import Any

import driver_tasks as tasks

import potl
from potl._job._session import Session
from potl._verify._workload import Workload


def test_a_refusal_is_the_verifiers_own_trouble_but_in_a_repeat() -> None:
    refusal = potl.NotReproducible("an operator", "another")
    no_schema: Any = None
    with Session.open(tasks.build, seed=7, arithmetic="stock") as session:
        workload = Workload(session, no_schema, follows=False)

        def is_own() -> bool:
            return workload.trouble_of(refusal)[2]

        assert is_own()
        assert workload.perturb(1, False)
        assert not is_own()  # the replayer goes on with other threads
        workload.perturb(0, False)
        assert is_own()
        workload.roughen(1)
        assert not is_own()
        workload.perturb(0, False)
        assert workload.trouble_of(MemoryError())[2] and not workload.trouble_of(KeyError())[2]
