# SPDX-License-Identifier: Apache-2.0
"""From a live task to the tree that `potl._core.State.capture` copies.

Recording captures after every step, so for a small model the walk itself must cost little: it reads
the modules' own dictionaries, makes no `state_dict`, and keeps the description of a tensor for as
long as the tensor stays where it is.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import Optimizer

from .. import _core
from .._base._errors import NotReplayable, Problem
from ._task import Task
from ._values import DTYPES, Tree, option_to_tree, refusal, to_tree

# Smaller tensors are copied and hashed in the time that it takes to ask whether they changed.
_LEAST_KEPT = 1 << 16

_SIMPLE = frozenset((bool, float, str, type(None)))


# id -> tensor, address, shape, stride, description. Holding the tensor keeps its id from being
# reused.
_Descriptions = dict[int, tuple[torch.Tensor, int, Any, Any, Any]]


class TreeBuilder:
    """Describes the state of one task, again and again.

    Attributes:
        places: How many bytes of the last tree are on each device.
    """

    def __init__(self, task: Task) -> None:
        self.places: dict[torch.device, int] = {}
        self._task = task
        self._there: frozenset[str] = frozenset()
        self._known_by_devices: dict[frozenset[str], _Descriptions] = {}
        self._known: _Descriptions = {}
        self._used: _Descriptions = {}
        self._copies: dict[Any, Any] = {}
        self._on_their_way: set[torch.device] = set()
        # Of each group of an optimizer, what kinds of names the first tree has.
        self._named: dict[str, dict[str, type]] = {}

    def tree(
        self,
        counters: dict[str, int | float],
        *,
        keep: bool = False,
        there: frozenset[str] = frozenset(),
    ) -> Tree:
        """The whole state. Valid until the next call or the next change of the task.

        Args:
            counters: Goes into the state.
            keep: For recording: large tensors of the model that need no gradient, and that torch
                counts no write to, are copied and hashed once.
            there: Types of devices whose tensors stay where they are: such a tree has a digest, and
                cannot be captured.

        Raises:
            NotReplayable: Something in the task has no place in a state; its path is named.
        """
        task = self._task
        self._copies.clear()
        self._there = there
        self._known = self._known_by_devices.get(there, {})
        self._used = {}
        tree: Tree = {
            "model": self._module(task.model, "model", keep),
            "optimizers": [
                self._optimizer(optimizer, f"optimizers/{i}")
                for i, optimizer in enumerate(task.optimizers)
            ],
            "schedulers": [
                self._values(scheduler.state_dict(), f"schedulers/{i}")
                for i, scheduler in enumerate(task.schedulers)
            ],
            "scaler": None
            if task.scaler is None
            else self._values(task.scaler.state_dict(), "scaler"),
            "ema": self._average(),
            "state": {
                name: self._values(kept.state_dict(), f"state/{name}")
                for name, kept in task.state.items()
            },
            "counters": dict(counters),
        }
        while self._on_their_way:
            torch.cuda.current_stream(self._on_their_way.pop()).synchronize()
        self._known_by_devices[there] = self._used
        if there:
            self._count()
        return tree

    def _count(self) -> None:
        self.places = {}
        held = [(tensor.device, tensor.nbytes) for tensor, *_ in self._used.values()]
        for device, size in held + [(key[0], size) for key, (_, size) in self._copies.items()]:
            self.places[device] = self.places.get(device, 0) + size

    def _average(self) -> Any:
        ema = self._task.ema
        if ema is None:
            return None
        if isinstance(ema, nn.Module):
            return self._module(ema, "ema")
        return self._values(ema.state_dict(), "ema")

    def _values(self, value: Any, path: str) -> Any:
        return to_tree(value, self.describe, path)

    # ------------------------------------------------------------------ modules

    def _module(self, root: nn.Module, path: str, keep: bool = False) -> Tree:
        parameters: Tree = {}
        buffers: Tree = {}
        requires_grad: dict[str, bool] = {}
        training: dict[str, bool] = {}
        extra: Tree = {}
        unmoved = self._unmoved
        for prefix, module in modules_of(root):
            training[prefix[:-1]] = module.training
            for name, parameter in module._parameters.items():
                full = prefix + name
                if parameter is None:
                    parameters[full] = None
                else:
                    parameters[full] = unmoved(parameter) or self._describe_anew(
                        parameter, f"{path}/parameters/{full}"
                    )
                    requires_grad[full] = trained = parameter.requires_grad
                    if keep and not trained:
                        _not_trained(parameter, parameters[full])
            for name, buffer in module._buffers.items():
                full = prefix + name
                buffers[full] = (
                    None
                    if buffer is None
                    else unmoved(buffer) or self._describe_anew(buffer, f"{path}/buffers/{full}")
                )
                if keep and buffer is not None:
                    _not_trained(buffer, buffers[full])
            if type(module).get_extra_state is not nn.Module.get_extra_state:
                extra[prefix[:-1]] = self._values(
                    module.get_extra_state(), f"{path}/extra/{prefix[:-1]}"
                )
        tree: Tree = {
            "parameters": parameters,
            "buffers": buffers,
            "requires_grad": requires_grad,
            "training": training,
        }
        if extra:
            tree["extra"] = extra
        return tree

    # ------------------------------------------------------------------ optimizers

    def _optimizer(self, optimizer: Optimizer, path: str) -> Tree:
        if not is_standard(optimizer):
            return self._values(optimizer.state_dict(), path)  # type: ignore[no-any-return]
        numbers: dict[int, int] = {}
        groups = []
        for index, group in enumerate(optimizer.param_groups):
            packed: Tree = {}
            named: dict[str, type] = {}
            for key, value in group.items():
                if key == "params":
                    packed[key] = [numbers.setdefault(id(p), len(numbers)) for p in value]
                elif type(value) in _SIMPLE:
                    packed[key] = value
                else:
                    place = f"{path}/param_groups/{index}/{key}"
                    packed[key] = option_to_tree(value, self.describe, place)
                    if isinstance(value, (Enum, torch.dtype)):
                        named[key] = type(value)
            groups.append(packed)
            self._require_same(named, f"{path}/param_groups/{index}")
        describe = self.describe
        state: dict[int | str, Any] = {}
        for owner, kept in optimizer.state.items():
            number: int | str
            if isinstance(owner, torch.Tensor):
                if id(owner) not in numbers:
                    raise NotReplayable(
                        Problem(
                            what="an optimizer keeps state of a tensor that it does not step",
                            where=f"{path}/state",
                            remedy="remove the entry when the parameter leaves the optimizer",
                        )
                    )
                number = numbers[id(owner)]
            elif type(owner) is str:
                number = owner
            else:
                raise refusal(owner, f"{path}/state (a key)")
            if type(kept) is dict:
                state[number] = {
                    key: describe(value, "")
                    if type(value) is torch.Tensor and type(key) is str
                    else self._values(value, f"{path}/state/{number}/{key}")
                    for key, value in kept.items()
                }
            else:
                state[number] = self._values(kept, f"{path}/state/{number}")
        return {"state": state, "param_groups": groups}

    def _require_same(self, named: dict[str, type], path: str) -> None:
        """A name is read as what the task holds in its place, which is what build() put there."""
        first = self._named.setdefault(path, named)
        for key in first.keys() | named.keys():
            if first.get(key) is not named.get(key):
                raise NotReplayable(
                    Problem(
                        what="an option became a dtype or a member of an enum, or was one before",
                        where=f"{path}/{key}",
                        remedy="let it be of one kind from build() on, or keep it as a str",
                    )
                )

    # ------------------------------------------------------------------ tensors

    def describe(self, tensor: torch.Tensor, path: str) -> Any:
        """What `State.capture` needs to know to copy one tensor."""
        return self._unmoved(tensor) or self._describe_anew(tensor, path)

    def _unmoved(self, tensor: torch.Tensor) -> Any:
        """The description of last time, if the tensor is where and as it was then."""
        key = id(tensor)
        known = self._known.get(key)
        if (
            known is not None
            and known[1] == tensor.data_ptr()
            and known[2] == tensor.shape
            and known[3] == tensor.stride()
        ):
            self._used[key] = known
            return known[4]
        return None

    def _describe_anew(self, tensor: torch.Tensor, path: str) -> Any:
        dtype = DTYPES.get(tensor.dtype)
        problem = _problem_of(tensor, dtype)
        if problem is not None:
            raise NotReplayable(
                Problem(what=problem[0], where=path or "optimizer state", remedy=problem[1])
            )
        assert dtype is not None
        plain = tensor.detach()
        shape = tuple(plain.shape)
        layout = memory_format(plain)
        elsewhere = plain.device.type in self._there
        in_place = (
            (elsewhere or plain.device.type == "cpu")
            and plain.is_contiguous()
            and not plain.is_conj()
            and not plain.is_neg()
        )
        if in_place:
            described = _core.Tensor(
                *(dtype, shape, layout, plain.data_ptr(), plain.nbytes, plain), elsewhere=elsewhere
            )
            self._used[id(tensor)] = (
                tensor,
                tensor.data_ptr(),
                tensor.shape,
                tensor.stride(),
                described,
            )
            return described
        # The same memory seen the same way is one tensor (tied weights), so it must be one copy.
        stride = None if plain.is_contiguous() else plain.stride()
        way = (plain.dtype, shape, stride, plain.is_conj(), plain.is_neg())
        key = (plain.device, plain.data_ptr(), *way)
        if key not in self._copies:
            copy = plain.resolve_conj().resolve_neg().contiguous()
            if not elsewhere:
                copy = self._fetch(copy)
            described = _core.Tensor(
                *(dtype, shape, layout, copy.data_ptr(), copy.nbytes, copy), elsewhere=elsewhere
            )
            self._copies[key] = described, copy.nbytes
        return self._copies[key][0]

    def _fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same on the CPU, once the tree is complete."""
        if not tensor.is_cuda:
            return tensor.cpu()
        # Into pinned memory, which torch uses again, all copies are queued at the bus's speed.
        fetched = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._on_their_way.add(tensor.device)
        return fetched.copy_(tensor, non_blocking=True)


def _not_trained(tensor: torch.Tensor, described: _core.Tensor) -> None:
    """Says so, where torch counts writes."""
    if tensor.nbytes >= _LEAST_KEPT and not tensor.is_inference():
        described.not_trained(tensor._version)


def modules_of(root: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every module with its name and a dot; a shared one under each name, a compiled one as what it
    wraps.
    """
    inner = root._modules.get("_orig_mod")
    if inner is not None and type(root).__name__ == "OptimizedModule":
        root = inner
    yield prefix, root
    for name, child in root._modules.items():
        if child is not None:
            yield from modules_of(child, f"{prefix}{name}.")


def is_standard(optimizer: Optimizer) -> bool:
    """Whether the optimizer's state is what the base class says it is."""
    return (
        type(optimizer).state_dict is Optimizer.state_dict
        and not optimizer._optimizer_state_dict_pre_hooks
        and not optimizer._optimizer_state_dict_post_hooks
        and type(optimizer.state) in (dict, collections.defaultdict)
    )


def is_torchs(thing: object) -> bool:
    """Whether torch brings its class, so that it is known what its steps do."""
    return type(thing).__module__.partition(".")[0] == "torch"


def memory_format(tensor: torch.Tensor) -> str:
    """The name of the order in which a tensor's elements lie in memory."""
    if not tensor.is_contiguous():
        if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            return "channels_last"
        if tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
            return "channels_last_3d"
    return "contiguous"


def _problem_of(tensor: torch.Tensor, dtype: str | None) -> tuple[str, str] | None:
    if isinstance(tensor, (UninitializedBuffer, UninitializedParameter)):
        return (
            "a lazy module has not seen its first batch",
            "run one batch through the model in build(), or give the sizes",
        )
    if tensor.is_meta:
        return (
            "a meta tensor has no values",
            "materialise the model in build() (to_empty, then initialise)",
        )
    if type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        name = type(tensor).__name__
        return (f"a {name} keeps its values elsewhere", "keep plain tensors in the training state")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return (
            f"a {'quantised' if tensor.is_quantized else tensor.layout} tensor cannot be captured",
            "keep dense tensors in the training state",
        )
    if dtype is None:
        return (
            f"{tensor.dtype} cannot be captured",
            "use one of the dtypes that docs/reference/task.md lists",
        )
    if any(s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)):
        return ("an expanded tensor shares its elements", "call .clone() on it")
    return None
