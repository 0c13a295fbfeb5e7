# SPDX-License-Identifier: Apache-2.0
"""One case for all tests of disputes over a network."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> object:
    """arguing.Case; imported here, since other tests of servers need no torch."""
    from arguing import Case

    return Case.make(tmp_path_factory.mktemp("case"))
