# SPDX-License-Identifier: Apache-2.0
"""What a job says about a task beyond its sizes, and the differences between two such descriptions.

Numbers are written as Python's `repr` writes them: exact, and readable in a message.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import math
import platform
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import nn

from .. import _core
from .._arithmetic._arithmetic import STOCK
from .._base import _arguments
from .._base._errors import UsageError
from .._task._capture import is_torchs, modules_of
from .._task._code import code_digests
from .._task._schedule import rates_of
from .._task._task import Scheduler, Task, is_metric_driven, overrides_step
from .._task._values import DTYPES
from ._settings import settings

Description: TypeAlias = "dict[str, _core.Json]"
RateRuns = list[tuple[int, list[float]]]

# A job is read into memory by everybody: more different rates than this are left to the state.
_LONGEST_TABLE = 100_000
# The same of the values that an option has in the layers, one after the other.
_MOST_RUNS = 1_000
# And of the bytes of one value.
_LONGEST_VALUE = 1_000

# Options of an optimizer that choose how it computes, and not what.
_KERNELS = ("foreach", "fused")

# A scheduler that follows a metric is not run ahead; this is what it changes.
_PLATEAU_CHANGES = {"best", "num_bad_epochs", "cooldown_counter", "last_epoch", "_last_lr"}


def describe(task: Task, build: Any) -> Description:
    """The task as the job pins it. JSON values only."""
    code, sources = code_digests(build, task)
    return {
        "class": type(task).__qualname__,
        "model": _model(task.model),
        "layers": layers_of(task.model),
        "optimizers": [_optimizer(optimizer) for optimizer in task.optimizers],
        "stepped": _stepped(task),
        "schedulers": [_scheduler(scheduler) for scheduler in task.schedulers],
        "scheduler_interval": task.scheduler_interval,
        "loss": _callable(task.loss),
        "transform": _callable(task.transform),
        "collate_fn": _callable(task.collate_fn),
        "grad_clip": None if task.grad_clip is None else repr(float(task.grad_clip)),
        "autocast": _autocast(task),
        "scaler": None if task.scaler is None else _plain(task.scaler.state_dict()),
        "ema": None if task.ema is None else type(task.ema).__qualname__,
        "state": {name: type(kept).__qualname__ for name, kept in sorted(task.state.items())},
        "settings": {task.device.type: settings(task.device.type)},
        "code": code,
        # What `code` is over, by name, for the message that it is another.
        "sources": {**sources} if sources is not None else None,
    }


def environment() -> Description:
    """Versions that explain why two machines may round differently, and the words of a command
    line that the task's module has read.
    """
    # A file's name may have bytes that JSON has not.
    words = [
        one.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for one in _arguments.module_arguments
    ]
    return {
        **({"arguments": words} if words else {}),
        "potl": _core.version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
    }


def differences(agreed: object, own: object, path: str = "") -> Iterator[str]:
    """One sentence for every value in which two descriptions differ."""
    if isinstance(agreed, Mapping) and isinstance(own, Mapping):
        for key in sorted({*agreed, *own}):
            place = f"{path}/{key}" if path else str(key)
            if key not in own or key not in agreed:
                yield f"{place} is {short(own.get(key))}, agreed was {short(agreed.get(key))}"
            else:
                yield from differences(agreed[key], own[key], place)
    elif isinstance(agreed, list) and isinstance(own, list) and len(agreed) == len(own):
        for index, (a, b) in enumerate(zip(agreed, own, strict=True)):
            yield from differences(a, b, f"{path}/{index}")
    elif agreed != own:
        text = f"{path} is {short(own)}, agreed was {short(agreed)}"
        if path.rpartition("/")[2] in _KERNELS:
            text += ": it chooses the kernel, so give the optimizer the agreed value"
        yield text


def code_differences(agreed: Description, own: Description) -> Iterator[str]:
    """One sentence if the source code is another, with the names of what differs. Jobs of earlier
    builds do not have these."""
    if agreed.get("code") in (None, own["code"]) or own["code"] is None:
        return
    there, here = agreed.get("sources"), own["sources"]
    what = "build, or of something that it uses,"
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        names = sorted(k for k in {*there, *here} if there.get(k) != here.get(k))
        what = ", ".join(map(short, names)) or what
    yield f"the source code of {what} is not the agreed one (comments count)"


def order_differences(agreed: Mapping[str, _core.Json], task: Task) -> Iterator[str]:
    """One sentence for each optimizer that has the parameters in another order. Jobs of earlier
    builds do not say in which."""
    there, here = agreed.get("stepped"), _stepped(task)
    if not isinstance(there, list) or len(there) != len(here):
        return
    for index, (a, b) in enumerate(zip(there, here, strict=True)):
        if a != b:
            yield (
                f"optimizers/{index} steps other parameters than agreed, or the same in another "
                "order: a set has another order in each process, so sort what build() takes from it"
            )


def layer_differences(
    agreed: Mapping[str, _core.Json], here: _core.Json, arithmetic: str
) -> Iterator[str]:
    """A sentence for each option of layers that is another one than `layers_of` has here. Jobs of
    earlier builds have none, and those of another torch may lack some.
    """
    # A build() may compute them with torch, in single precision: processors round that differently.
    # Stock arithmetic allows for it; in any other a run with them would have other bits.
    rounding = 1e-6 if arithmetic == STOCK else 1e-10
    there = agreed.get("layers")
    if not isinstance(there, Mapping) or not isinstance(here, Mapping):
        return
    for name, own in here.items():
        for was, now in _meeting(there.get(name), own):
            if not _same_option(was, now, rounding):
                yield (
                    f"{name} is {short(now)}, agreed was {short(was)}: compare any configuration "
                    "that build() reads"
                )
                break


def _meeting(there: _core.Json, here: _core.Json) -> Iterator[tuple[_core.Json, _core.Json]]:
    """The values at every place where one of two run-length codes goes on to its next. None if they
    are of other lengths: then the model is another, which its structure says.
    """
    if not (_is_code(there) and _is_code(here)):
        return
    # Of the runs, however many layers a job says that they are for.
    then, now = (list(itertools.accumulate(count for _, count in runs)) for runs in (there, here))
    if then[-1:] != now[-1:]:
        return
    for end in sorted({*then, *now}):
        yield there[bisect_left(then, end)][0], here[bisect_left(now, end)][0]


def _is_code(runs: _core.Json) -> TypeGuard[list[Any]]:
    """Whether it is [[value, count], ...]. A job may hold anything."""
    return isinstance(runs, list) and all(
        isinstance(run, list) and len(run) == 2 and type(run[1]) is int and run[1] > 0
        for run in runs
    )


def _same_option(was: _core.Json, now: _core.Json, rounding: float) -> bool:
    """Whether it is, but for the rounding of what computed a fraction."""
    if isinstance(was, list) and isinstance(now, list):
        both = zip(was, now, strict=False)
        return len(was) == len(now) and all(_same_option(a, b, rounding) for a, b in both)
    if was == now or not (isinstance(was, str) and isinstance(now, str)):
        return was == now
    try:
        numbers = float(was), float(now)
    except ValueError:
        return False
    if all(number.is_integer() for number in numbers):
        return numbers[0] == numbers[1]
    return math.isclose(*numbers, rel_tol=rounding)


def without_code(of: Description) -> Description:
    """What `differences` compares."""
    apart = ("code", "sources", "stepped", "layers")
    return {key: value for key, value in of.items() if key not in apart}


Options: TypeAlias = "list[list[dict[str, object]]]"
"""Of the groups of every optimizer, without the parameters."""


def options_of(task: Task) -> Options:
    """A copy of the options as they are."""
    return [
        [
            {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        for optimizer in task.optimizers
    ]


def changed_options(before: Options, task: Task) -> list[set[str]]:
    """Names of the options of each optimizer that are others now."""
    return [
        {
            key
            for old, group in zip(options, optimizer.param_groups, strict=True)
            for key, value in group.items()
            if key != "params" and not _equal(value, old.get(key))
        }
        for options, optimizer in zip(before, task.optimizers, strict=True)
    ]


def dry_run(task: Task) -> tuple[RateRuns | None, Description | None]:
    """Runs the schedulers of a fresh task ahead, without training.

    Returns:
        The learning rates of all steps, run-length encoded, or None where they depend on the
        training; and which options of optimizers and values of schedulers change on the way, or
        None when only the training can tell (an overridden `Task.step`).

    Raises:
        UsageError: A scheduler fails before the last step.
    """
    if overrides_step(task):
        return None, None
    runs: RateRuns = []
    options = options_of(task)
    changing_options: list[set[str]] = [{"lr"} for _ in task.optimizers]
    # Containers in it may be the scheduler's own.
    values = [copy.deepcopy(scheduler.state_dict()) for scheduler in task.schedulers]
    changing_values: list[set[str]] = [set() for _ in task.schedulers]
    metric_driven = any(map(is_metric_driven, task.schedulers))
    per_step = task.scheduler_interval == "step"
    if not task.schedulers:
        runs.append((task.steps, rates_of(task)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no optimizer steps between the schedulers' steps
        for step in range(1, task.steps + 1) if task.schedulers else ():
            rates = rates_of(task)
            if runs and runs[-1][1] == rates:
                runs[-1] = runs[-1][0] + 1, rates
            else:
                runs.append((1, rates))
            if not per_step and step % task.steps_per_epoch:
                continue
            for scheduler in task.schedulers:
                if not is_metric_driven(scheduler):
                    _advance(scheduler, step, task)
            for known, more in zip(changing_options, changed_options(options, task), strict=True):
                known |= more
            for s, scheduler in enumerate(task.schedulers):
                now = scheduler.state_dict()
                changing_values[s] |= {
                    key for key, value in now.items() if not _equal(value, values[s].get(key))
                }
                if key_set := _PLATEAU_CHANGES if is_metric_driven(scheduler) else None:
                    changing_values[s] |= key_set
    varying: Description = {
        "optimizers": [sorted(keys) for keys in changing_options],
        "schedulers": [sorted(keys) for keys in changing_values],
    }
    too_long = sum(len(rates) for _, rates in runs) > _LONGEST_TABLE
    return (None if metric_driven or too_long else runs), varying


def _advance(scheduler: Scheduler, step: int, task: Task) -> None:
    try:
        scheduler.step()
    except (ValueError, LookupError) as error:  # OneCycleLR's, and a list's that is too short
        raise UsageError(
            f"after step {step} of {task.steps}, {type(scheduler).__name__} fails: {error}",
            "make it for the length of the task, epochs * ceil(len(dataset) / batch_size) steps, "
            "or make the task as long as the schedule by max_steps=",
        ) from error


def rates_in(runs: RateRuns, step: int) -> list[float] | None:
    """Rates of a step, 1-based."""
    for steps, rates in runs:
        if step <= steps:
            return rates
        step -= steps
    return None


def _model(model: nn.Module) -> Description:
    rows = []
    count = 0
    for prefix, module in modules_of(model):
        rows.append([prefix, type(module).__qualname__, bool(module.training)])
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, tensor in tensors.items():
                if tensor is None:
                    rows.append([prefix + name, kind, None])
                    continue
                shape = list(tensor.shape)
                rows.append(
                    [prefix + name, kind, DTYPES.get(tensor.dtype), shape, tensor.requires_grad]
                )
                count += tensor.numel() if kind == "parameter" else 0
    return {
        "class": type(getattr(model, "_orig_mod", model)).__qualname__,
        "parameters": count,
        "structure": hashlib.sha256(_core.canonical_json(rows)).hexdigest(),
    }


def layers_of(model: nn.Module) -> dict[str, list[_core.Json]]:
    """Options of torch's layers: no tensor has these, and a configuration file may bring them. Of
    each "Class.name" the values in all layers of the class, run-length coded as [value, count].
    Other versions of torch have other names.
    """
    found: dict[str, list[Any]] = {}
    for _, module in modules_of(model):
        for name, value in vars(module).items() if is_torchs(module) else ():
            if name.startswith("_") or name == "training" or not _is_option(value):
                continue
            runs = found.setdefault(f"{type(module).__qualname__}.{name}", [])
            if runs and runs[-1][0] == _plain(value):
                runs[-1][1] += 1
            else:
                runs.append([_plain(value), 1])
    # A model may have any number of layers, each with a value of its own: then the option is left
    # out, so that a job stays small.
    return {name: runs for name, runs in sorted(found.items()) if len(runs) <= _MOST_RUNS}


def _is_option(value: object) -> bool:
    """Whether it is plain, or a flat list, and JSON holds it."""
    if not all(map(_is_plain, value if isinstance(value, (list, tuple)) else (value,))):
        return False
    try:
        return len(_core.canonical_json(_plain(value))) <= _LONGEST_VALUE
    except ValueError:  # half a surrogate pair, or more digits than Python writes
        return False


def _optimizer(optimizer: torch.optim.Optimizer) -> Description:
    return {
        "class": type(optimizer).__qualname__,
        "groups": [
            {
                **{key: _plain(value) for key, value in sorted(group.items()) if key != "params"},
                "parameters": len(group["params"]),
            }
            for group in optimizer.param_groups
        ],
    }


def _stepped(task: Task) -> list[_core.Json]:
    """For each optimizer a digest of the names of its parameters, which its state only numbers."""
    names = {
        id(parameter): prefix + name
        for prefix, module in modules_of(task.model)
        for name, parameter in module._parameters.items()
    }
    groups = (
        [[names.get(id(parameter)) for parameter in group["params"]] for group in each.param_groups]
        for each in task.optimizers
    )
    return [hashlib.sha256(_core.canonical_json(each)).hexdigest() for each in groups]


def _scheduler(scheduler: Scheduler) -> Description:
    return {"class": type(scheduler).__qualname__, "values": _plain(scheduler.state_dict())}


def _autocast(task: Task) -> str | None:
    if task.autocast is None or isinstance(task.autocast, torch.dtype):
        return None if task.autocast is None else str(task.autocast)
    return f"{task.autocast.device}:{task.autocast.fast_dtype}:{task.autocast._enabled}"


def _callable(function: Any) -> _core.Json:
    """A name and what is visible of the options."""
    if function is None:
        return None
    if isinstance(function, functools.partial):
        return {
            "partial": _callable(function.func),
            "arguments": _plain(list(function.args)),
            "named": _plain(function.keywords),
        }
    if isinstance(function, type) or not hasattr(function, "__dict__") or callable_name(function):
        return callable_name(function) or repr(function)
    options = {k: v for k, v in vars(function).items() if not k.startswith("_") and _is_plain(v)}
    return {"class": type(function).__qualname__, "options": _plain(options)}


def callable_name(function: Any) -> str | None:
    """The qualified name of a function or class."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: object) -> _core.Json:
    """JSON of a value: exact for what is simple, the name of the type otherwise."""
    if value is None or isinstance(value, bool):
        return value
    # Of the base classes: numpy's numbers and enumerations have other words in other versions.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return repr(value.item())
    return type(value).__qualname__


def _equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
    return bool(a == b)


def short(value: object) -> str:
    """A value in a message."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
