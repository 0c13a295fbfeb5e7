# SPDX-License-Identifier: Apache-2.0
"""From the tree of a recorded state back into a live task, exactly: nothing is cast, skipped or
left over.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .. import _core
from .._base._errors import MismatchError
from ._capture import is_standard, modules_of
from ._task import Task
from ._values import Placed, Tree, copy_into, from_tree, option_from_tree, tensor_of


def restore_task(task: Task, tree: Tree) -> None:
    """Makes `task` hold the state of `tree` (everything but the counters, which are the session's).

    Raises:
        MismatchError: The state is of another task: the path of the first difference is named. The
            task is then partly restored.
    """
    placed = Placed()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        _same_names(
            tree,
            ("model", "optimizers", "schedulers", "scaler", "ema", "state", "counters"),
            "state",
        )
        # In the order of the state's paths, because an alias refers to the first of its tensors.
        _restore_average(task, tree["ema"], placed)
        _restore_module(task.model, tree["model"], "model", placed)
        _same_count(tree["optimizers"], task.optimizers, "optimizers")
        for i, optimizer in enumerate(task.optimizers):
            _restore_optimizer(optimizer, tree["optimizers"][i], f"optimizers/{i}", placed)
        _same_count(tree["schedulers"], task.schedulers, "schedulers")
        for i, scheduler in enumerate(task.schedulers):
            _load(scheduler, tree["schedulers"][i], f"schedulers/{i}", placed)
        if _both(task.scaler, tree["scaler"], "scaler") and task.scaler is not None:
            _load(task.scaler, tree["scaler"], "scaler", placed)
            if task.scaler.is_enabled():  # one that is switched off keeps nothing
                # What a step that failed halfway left there would fail every later one.
                task.scaler._per_optimizer_states.clear()
        _same_names(tree["state"], task.state, "state")
        for name, kept in task.state.items():
            value, path = tree["state"][name], f"state/{name}"
            if isinstance(kept, Optimizer):
                # Its groups may be those of an optimizer around it, and stay so.
                _restore_optimizer(kept, value, path, placed)
            else:
                _load(kept, value, path, placed)


def _restore_average(task: Task, value: Any, placed: Placed) -> None:
    if not _both(task.ema, value, "ema"):
        return
    if isinstance(task.ema, nn.Module):
        _restore_module(task.ema, value, "ema", placed)
    else:
        _load(task.ema, value, "ema", placed)


def _both(live: Any, value: Any, path: str) -> bool:
    if (live is None) != (value is None):
        raise MismatchError(f"{path}: only one of state and task has it")
    return live is not None


def _load(live: Any, value: Any, path: str, placed: Placed) -> None:
    # Values take the container types of the live ones; tensors are new, because what state_dict
    # returns may be shared with the object only in part.
    live.load_state_dict(from_tree(value, live.state_dict(), placed, path))


# ---------------------------------------------------------------------- modules


def _restore_module(root: nn.Module, tree: Tree, path: str, placed: Placed) -> None:
    modules = list(modules_of(root))
    parameters = {p + n: v for p, m in modules for n, v in m._parameters.items()}
    buffers = {p + n: (m, n) for p, m in modules for n in m._buffers}
    _same_names(tree["parameters"], parameters, f"{path}/parameters")
    _same_names(tree["buffers"], buffers, f"{path}/buffers")
    _same_names(tree["training"], [p[:-1] for p, _ in modules], f"{path}/training")
    for name, (owner, short) in sorted(buffers.items(), key=_bytewise):
        value, live = tree["buffers"][name], owner._buffers[short]
        if value is None or live is None:
            # A buffer that the model makes or drops while it runs.
            made = from_tree(value, live, placed, f"{path}/buffers/{name}")
            owner._buffers[short] = made if made is None else made.to(_device_of(root))
        else:
            _place(live, value, f"{path}/buffers/{name}", placed)
    for name, parameter in sorted(parameters.items(), key=_bytewise):
        value = tree["parameters"][name]
        if _both(parameter, value, f"{path}/parameters/{name}") and parameter is not None:
            _place(parameter, value, f"{path}/parameters/{name}", placed)
            parameter.grad = None
            flag = tree["requires_grad"][name]
            if parameter.requires_grad != flag:
                parameter.requires_grad_(flag)
    for prefix, module in modules:
        module.training = tree["training"][prefix[:-1]]
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            name = prefix[:-1]
            extra = tree.get("extra", {})
            if name not in extra:
                raise MismatchError(f"{path}/extra/{name}: the state does not have it")
            live = module.get_extra_state()
            module.set_extra_state(from_tree(extra[name], live, placed, f"{path}/extra/{name}"))
    for wrapper in root.modules():
        inner = wrapper._modules.get("_orig_mod")
        if inner is not None and wrapper.training != inner.training:
            wrapper.training = inner.training


def _place(live: torch.Tensor, value: Any, path: str, placed: Placed) -> None:
    """Copies a recorded tensor into a live one, or checks that the live one is tied as recorded."""
    if isinstance(value, _core.Alias):
        first = placed.get(value.path)
        if first is None or first.data_ptr() != live.data_ptr():
            raise MismatchError(f"{path}: tied to {value.path} in the state, not in the task")
    else:
        if not placed.claim(live):
            raise MismatchError(f"{path}: tied to another tensor in the task, not in the state")
        copy_into(live, value, path)
        placed[value.path] = live


def _device_of(root: nn.Module) -> torch.device:
    for parameter in root.parameters():
        return parameter.device
    return torch.device("cpu")


# ---------------------------------------------------------------------- optimizers


def _restore_optimizer(optimizer: Optimizer, tree: Tree, path: str, placed: Placed) -> None:
    if not is_standard(optimizer):
        _load(optimizer, tree, path, placed)
        _forget_empty(optimizer, tree)
        return
    _same_count(tree["param_groups"], optimizer.param_groups, f"{path}/param_groups")
    numbers: dict[int, int] = {}
    owners: dict[int, torch.Tensor] = {}
    for i, (group, saved) in enumerate(
        zip(optimizer.param_groups, tree["param_groups"], strict=True)
    ):
        own = [numbers.setdefault(id(p), len(numbers)) for p in group["params"]]
        owners.update(zip(own, group["params"], strict=True))
        if own != saved["params"]:
            raise MismatchError(f"{path}/param_groups/{i}: it steps other parameters")
        missing = sorted(optimizer.defaults.keys() - saved.keys())
        if missing:
            raise MismatchError(f"{path}/param_groups/{i}/{missing[0]}: the state does not have it")
        for key in [key for key in group if key not in saved]:
            del group[key]
        for key, value in saved.items():
            if key != "params":
                place = f"{path}/param_groups/{i}/{key}"
                group[key] = option_from_tree(value, group.get(key), placed, place)
    before = {
        numbers[id(owner)] if isinstance(owner, torch.Tensor) else owner: kept
        for owner, kept in optimizer.state.items()
    }
    optimizer.state.clear()
    for number, saved in tree["state"].items():
        place = f"{path}/state/{number}"
        if type(number) is int and number not in owners:
            raise MismatchError(f"{place}: the optimizer does not step such a parameter")
        owner: Any = owners[number] if type(number) is int else number
        kept = before.get(number)
        if isinstance(saved, dict) and isinstance(owner, torch.Tensor):
            known = kept if isinstance(kept, dict) else {}
            optimizer.state[owner] = {
                key: _optimizer_value(
                    optimizer, owner, key, value, known.get(key), placed, f"{place}/{key}"
                )
                for key, value in saved.items()
            }
        else:
            optimizer.state[owner] = from_tree(saved, kept, placed, place)


def _forget_empty(optimizer: Optimizer, tree: Tree) -> None:
    """Removes what is left where a `load_state_dict` of its own looked for what is not there:
    `self.state[p]` makes an entry.
    """
    saved = tree.get("state")
    if not isinstance(saved, dict) or not isinstance(optimizer.state, dict):
        return
    numbers: dict[int, int] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            numbers.setdefault(id(parameter), len(numbers))
    for owner, kept in [*optimizer.state.items()]:
        number = numbers.get(id(owner)) if isinstance(owner, torch.Tensor) else owner
        if isinstance(kept, dict) and not kept and number not in saved:
            del optimizer.state[owner]


def _optimizer_value(
    optimizer: Optimizer,
    parameter: torch.Tensor,
    key: str,
    value: Any,
    live: Any,
    placed: Placed,
    path: str,
) -> Any:
    if isinstance(live, torch.Tensor) or not isinstance(value, _core.TensorView):
        return from_tree(value, live, placed, path)
    # Where and how the optimizer itself would have made it.
    saved = tensor_of(value)
    if key == "step" and not _keeps_step_on_device(optimizer, parameter):
        made = torch.empty(saved.shape, dtype=saved.dtype)
    elif saved.shape == parameter.shape:
        made = torch.empty_like(parameter, dtype=saved.dtype, requires_grad=False)
    else:
        made = torch.empty(saved.shape, dtype=saved.dtype, device=parameter.device)
    placed[value.path] = made
    return made.copy_(saved)


def _keeps_step_on_device(optimizer: Optimizer, parameter: torch.Tensor) -> bool:
    for group in optimizer.param_groups:
        if any(p is parameter for p in group["params"]):
            return bool(group.get("capturable") or group.get("fused"))
    return False


# ---------------------------------------------------------------------- comparisons


def _bytewise(item: tuple[str, Any]) -> bytes:
    """The order of paths in a state: an alias refers to the first in this order."""
    return item[0].encode()


def _same_names(saved: Iterable[str], live: Iterable[str], path: str) -> None:
    missing = sorted(set(live) - set(saved))
    unknown = sorted(set(saved) - set(live))
    if missing:
        raise MismatchError(f"{path}/{missing[0]}: the state does not have it")
    if unknown:
        raise MismatchError(f"{path}/{unknown[0]}: the task does not have it")


def _same_count(saved: Any, live: Any, path: str) -> None:
    if len(saved) != len(live):
        raise MismatchError(f"{path}: the state has {len(saved)}, the task {len(live)}")
