# SPDX-License-Identifier: Apache-2.0
"""What of a task can be seen to be unfit for replay without running it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from .._base._errors import Problem
from ._task import Task, is_metric_driven, overrides_step

_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel")


def visible(task: Task) -> Iterator[Problem]:
    """The problems."""
    for name, module in task.model.named_modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        for refused in _DISTRIBUTED:
            if refused in kinds:
                yield Problem(
                    what=f"{refused} is not supported",
                    where=f"model.{name}" if name else "model",
                    remedy="train the plain module on one device; several processes share a step "
                    "with accumulate= and potl.record(group=)",
                )
        if "SyncBatchNorm" in kinds:
            # It talks to the other processes of a group, each of which has its own micro-batches.
            yield Problem(
                what="SyncBatchNorm is not supported",
                where=f"model.{name}" if name else "model",
                remedy="use BatchNorm1d to BatchNorm3d, which have the same parameters and "
                "statistics, without convert_sync_batchnorm",
            )
    tensors = {**dict(task.model.named_parameters()), **dict(task.model.named_buffers())}
    for name, tensor in tensors.items():
        if tensor.device != task.device:
            yield Problem(
                what=f"a model on several devices is not supported: this is on {tensor.device}, "
                f"the first parameter on {task.device}",
                where=f"model.{name}",
                remedy="train on one device: call model.to(device) inside build",
            )
            break
    if overrides_step(task):
        return
    for index, optimizer in enumerate(task.optimizers):
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        needed = closure is not None and closure.default is inspect.Parameter.empty
        if needed or isinstance(optimizer, torch.optim.LBFGS):
            yield Problem(
                what=f"{type(optimizer).__name__} calls a closure, which the default step does "
                "not give it",
                where=f"optimizers/{index}",
                remedy="use an optimizer without closure, or override Task.step",
            )
    yield from _schedules(task)


def _schedules(task: Task) -> Iterator[Problem]:
    for index, scheduler in enumerate(task.schedulers):
        try:
            signature = inspect.signature(scheduler.step)
        except ValueError:  # none is known
            continue
        try:
            signature.bind(*([0.0] if is_metric_driven(scheduler) else []))
        except TypeError as error:
            yield Problem(
                what=f"{type(scheduler).__name__}.step() cannot be called without arguments: "
                f"{error}",
                where=f"schedulers/{index}",
                remedy="use a schedule of torch.optim.lr_scheduler, such as LambdaLR with your "
                "formula, or override Task.advance_schedulers",
            )


def evaluated(task: Task) -> str:
    """What does not train because it is in evaluation mode, as a sentence; or ""."""
    for name, module in task.model.named_modules():
        if module.training:
            continue
        does = ""
        if isinstance(module, _DropoutNd) and module.p > 0:
            does = "does nothing"
        elif isinstance(module, _BatchNorm) and not task.model.training:
            # Alone it is often left so: its statistics are frozen.
            does = "keeps its running statistics"
        if does:
            return (
                f"a {type(module).__name__} ({name or 'model'}) is in evaluation mode, in which it "
                f"{does}. from_pretrained() of transformers leaves a model so. If that is not "
                "meant, call model.train() in build()"
            )
    return ""
