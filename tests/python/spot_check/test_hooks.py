# SPDX-License-Identifier: Apache-2.0
"""An optimizer that does more to a clipped gradient than the plan counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from guarded import KEY, build

import potl


def tenfold(optimizer: torch.optim.Optimizer, *_: object) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.mul_(10)


def before() -> potl.Task:
    task = build()
    task.optimizers[0].register_step_pre_hook(tenfold)
    return task


def after() -> potl.Task:
    task = build()
    task.optimizers[0].register_step_post_hook(lambda *_: None)
    return task


@pytest.mark.parametrize("make", [before, after])
def test_an_optimizer_with_hooks_is_refused_with_a_remedy(make: Callable[[], potl.Task]) -> None:
    job = potl.Job.create(make, seed=3, checkpoint_every=10, arithmetic="ord32")
    with pytest.raises(potl.UnsupportedError, match="optimizer with hooks") as refused:
        potl.SpotCheck(make, job=job, key=KEY)
    assert "hooks of the parameters" in refused.value.remedy
