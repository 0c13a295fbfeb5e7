# SPDX-License-Identifier: Apache-2.0
"""Whether steps of a task divide by what its state keeps: a difference next to nothing may then
move weights far in a later step.
"""

from __future__ import annotations

from collections.abc import Container

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.swa_utils import AveragedModel

from .._task._capture import is_torchs, modules_of
from .._task._schedule import Schedule
from .._task._task import Task, overrides_step
from ._steps import parameters_of


def is_linear(task: Task, schedule: Schedule) -> bool:
    """Whether updates are sums of what the state keeps and of gradients, times agreed factors.

    That is so where torch's SGD makes them, by the default step and without a gradient scaler, and
    where the task keeps nothing else that its own code may divide by.

    Args:
        task: The verifier's own, behind a step: what a hook keeps with an optimizer shows then.
        schedule: What was agreed: which options change during training.
    """
    if overrides_step(task) or task.scaler is not None or task.state or schedule.varying is None:
        return False
    if task.ema is not None and type(task.ema) is not AveragedModel:
        return False
    plain = all(
        type(optimizer) is torch.optim.SGD
        and not optimizer._optimizer_step_post_hooks
        and "momentum" not in changing
        and all(kept.keys() <= {"momentum_buffer"} for kept in optimizer.state.values())
        for optimizer, changing in zip(task.optimizers, schedule.varying["optimizers"], strict=True)
    )
    trained = {id(parameter) for parameter in parameters_of(task) if parameter.requires_grad}
    return plain and all(_keeps_nothing(module, trained) for _, module in modules_of(task.model))


def _keeps_nothing(module: torch.nn.Module, trained: Container[int]) -> bool:
    """Whether a module has no state beside parameters that are trained but the running statistics
    of torch's norms, and integers.
    """
    # Others may be moved by the model's own code, as buffers are.
    parameters = module._parameters.values()
    if any(one is not None and id(one) not in trained for one in parameters):
        return False
    if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
        return False
    if isinstance(module, _NormBase) and is_torchs(module):
        return True
    buffers = (one for one in module._buffers.values() if one is not None)
    return not any(one.is_floating_point() or one.is_complex() for one in buffers)
