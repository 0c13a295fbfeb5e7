# SPDX-License-Identifier: Apache-2.0
"""Which parts of a state code of the user's own makes.

What torch's classes keep is known once they have made it. Code of the user's own may keep something
else after a thousand steps (slow weights, a bank that grows, one more key), as honestly as after
the first, and no law that was read from a few steps knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import _core
from ._capture import is_torchs, modules_of
from ._forms import OPEN, Law, any_shape, form, grown, lazily, loosely, merged

if TYPE_CHECKING:
    from ._task import Task
    from ._values import Tree

# They have no buffers of torch's.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def own_options(optimizer: torch.optim.Optimizer) -> set[str]:
    """Options that an optimizer may change in any step, however late: those of one of the user's
    own under names that torch's do not have, such as an estimate of the rate. They are part of what
    is trained, as momentum is.
    """
    if is_torchs(optimizer):
        return set()
    names = {name for group in optimizer.param_groups for name in group}
    return names.difference(_core.OPTIONS_OF_RECIPES)


def has_own_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its steps may change settings of the recipe: a subclass that keeps torch's changes
    none.
    """
    return not str(type(optimizer).step.__module__).startswith("torch.")


class OwnParts:
    """The parts of one task's states.

    Args:
        task: As built.
    """

    def __init__(self, task: Task) -> None:
        self._modules = {
            name: {prefix[:-1] for prefix, module in modules_of(root) if _is_own(module)}
            for name, root in (("model", task.model), ("ema", task.ema))
            if isinstance(root, nn.Module)
        }
        self._lists = {
            "optimizers": [not is_torchs(each) for each in task.optimizers],
            "schedulers": [not is_torchs(each) for each in task.schedulers],
        }

        self._own_steps = [has_own_step(each) for each in task.optimizers]
        self._parameters = [
            sum(len(group["params"]) for group in each.param_groups) for each in task.optimizers
        ]

    def of_first_steps(self, forms: Sequence[Law]) -> Law:
        """The law of these parts alone, as first states show them.

        Args:
            forms: Of the whole states.
        """
        seen = merged(*forms)[1]
        parts = dict.fromkeys(seen, OPEN)
        for name in self._modules:
            module = dict.fromkeys(seen[name][1], OPEN)
            buffers = seen[name][1]["buffers"][1]
            module["buffers"] = ("map", {k: lazily(v) for k, v in buffers.items()}, [*buffers])
            if "extra" in module:
                module["extra"] = loosely(seen[name][1]["extra"])
            parts[name] = ("map", module, [])
        for name, own in self._lists.items():
            each = [
                loosely(law) if mine else OPEN for mine, law in zip(own, seen[name][1], strict=True)
            ]
            parts[name] = ("items", each)
        optimizers = zip(self._parameters, parts["optimizers"][1], strict=True)
        parts["optimizers"] = ("items", [_of_any_parameter(law, n) for n, law in optimizers])
        parts["state"] = loosely(seen["state"])
        if "ema" not in self._modules:
            parts["ema"] = loosely(seen["ema"])
        return ("map", parts, [])

    def has(self, path: str) -> bool:
        """Whether a buffer is of a module of the user's own.

        Args:
            path: In a state, such as "model/buffers/head.bank".
        """
        name, _, buffer = path.split("/", 2)
        return buffer.rpartition(".")[0] in self._modules.get(name, ())

    def grown(self, law: Law, seen: Tree) -> Law:
        """The law of a state, where these parts may have grown to what `seen` has of them."""
        if not isinstance(seen, dict):  # whatever a prover wrote
            return law
        parts = dict(law[1])
        for name in parts.keys() & seen.keys():
            parts[name] = self._part(name, parts[name], seen[name])
        return ("map", parts, law[2])

    def _part(self, name: str, law: Law, seen: Any) -> Law:
        if name in self._modules:
            return self._module(name, law, seen) if isinstance(seen, dict) else law
        if name in self._lists and isinstance(seen, list) and len(seen) == len(law[1]):
            own = zip(self._lists[name], law[1], seen, strict=True)
            laws = [grown(one, value) if mine else one for mine, one, value in own]
            if name == "optimizers":
                both = zip(self._own_steps, laws, strict=True)
                laws = [_unsettled(one) if mine else one for mine, one in both]
            return ("items", laws)
        if name == "state" and isinstance(seen, dict):
            each = {k: grown(v, seen[k]) if k in seen else v for k, v in law[1].items()}
            return ("map", each, law[2])
        return grown(law, seen) if name == "ema" else law

    def _module(self, name: str, law: Law, seen: Tree) -> Law:
        parts = dict(law[1])
        for kind in ("buffers", "extra"):
            if kind in parts and isinstance(seen.get(kind), dict):
                mine = {k: v for k, v in seen[kind].items() if self._owns(name, kind, k)}
                made: Law = grown(("map", parts[kind][1], parts[kind][2]), mine)
                parts[kind] = made
        return ("map", parts, law[2])

    def _owns(self, name: str, kind: str, key: object) -> bool:
        if not isinstance(key, str):
            return False
        module = key.rpartition(".")[0] if kind == "buffers" else key
        return module in self._modules[name]


def _unsettled(law: Law) -> Law:
    """The law of an optimizer that may have changed any of its options, but not their types."""
    name = law[0]
    if name in ("is", "near"):
        return loosely(form(law[1]))
    if name == "map":
        laws = {k: v if k == "params" else _unsettled(v) for k, v in law[1].items()}
        return ("map", laws, law[2])
    if name == "all":  # a number in a tensor
        return ("all", [each for each in law[1] if each[0] != "near"])
    return (name, [*map(_unsettled, law[1])]) if name in ("items", "tuple", "any") else law


def _of_any_parameter(law: Law, count: int) -> Law:
    """The law of an optimizer's state, where any parameter may have what one has."""
    if law[0] != "map" or "state" not in law[1]:
        return law
    kept = law[1]["state"]
    known = list(kept[1].values()) if kept[0] == "map" else []
    like = loosely(any_shape(merged(*known))) if known else OPEN
    kept = dict.fromkeys([*range(count), *(kept[1] if known else [])], like)
    return ("map", {**law[1], "state": ("map", kept, [*kept]) if known else OPEN}, law[2])


def _is_own(module: nn.Module) -> bool:
    return not is_torchs(module) or type(module) in _CONTAINERS
