# SPDX-License-Identifier: Apache-2.0
"""Scenes for the attack tests: one per kind of training, built once. POTL_HOOKS=1 loads the build
with rule switches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from potl import _core
from potl._attacks import Scene, _tasks as tasks

SceneOf = Callable[..., Scene]


@pytest.fixture(scope="session")
def scene_of(tmp_path_factory: pytest.TempPathFactory) -> SceneOf:
    """The scene of a task of `_tasks`, by name; segments of 2 steps, all of them drawn."""
    scenes: dict[tuple[str, str], Scene] = {}

    def scene(task: str, arithmetic: str = "stock") -> Scene:
        if (task, arithmetic) not in scenes:
            build = getattr(tasks, task)
            scenes[task, arithmetic] = Scene(
                tmp_path_factory.mktemp(task),
                build,
                checkpoint_every=2,
                samples=24,
                arithmetic=arithmetic,
            )
        return scenes[task, arithmetic]

    return scene


@contextmanager
def rule_off(rule: str) -> Iterator[None]:
    """Switches one rule off. Skips the test where the build has no switch."""
    switch = getattr(_core, "set_rule_enabled", None)
    if switch is None:
        pytest.skip("this build has no rule switches; POTL_HOOKS=1 loads the one that has")
    switch(rule, False)
    try:
        yield
    finally:
        switch(rule, True)
