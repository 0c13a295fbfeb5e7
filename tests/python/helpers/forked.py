# SPDX-License-Identifier: Apache-2.0
"""Processes that begin where imports and first calls are done.

They are forked from one server, which imports what the first test that starts it names. So all name
the same: what another one imported would take each process seconds.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

_SERVING = ("arguing_warm", "uvicorn", "potl._serve._app", "potl._serve._hosting")


def context() -> ForkServerContext:
    """Its processes have no threads of others."""
    found = multiprocessing.get_context("forkserver")
    with_operators = importlib.util.find_spec("potl._torch") is not None
    found.set_forkserver_preload(["kill_writer", *(_SERVING if with_operators else ())])
    before = os.environ.get("PYTHONPATH")
    # The server has the path of the environment alone, and says nothing of what it does not find.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return found
