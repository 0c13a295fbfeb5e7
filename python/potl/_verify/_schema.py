# SPDX-License-Identifier: Apache-2.0
"""What the verifier's own build says a recorded state may hold: the laws that
`checks/detail/schema.hpp` judges by.

The verifier takes the agreed first steps itself. What its states hold then is the form of every
honest state; what is the recipe's and not the training's is computed for the very step.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.swa_utils import AveragedModel

from .. import _core
from .._job._first_steps import end_of
from .._job._recipe import changed_options, options_of
from .._job._still_elements import places_of
from .._task._capture import is_standard, is_torchs, modules_of
from .._task._forms import OPEN, Law, any_shape, form, lazily, loosely, merged
from .._task._own_parts import OwnParts, own_options
from .._task._task import Task, overrides_step
from .._task._trees import is_option
from .._task._values import Tree, tensor_of
from ._ahead import Ahead, Log, ScalerAhead, log_of

if TYPE_CHECKING:
    from .._job._session import Session

# Values of torch's own optimizers that start at zero or above and are only squared into, multiplied
# or maximised.
_NOT_NEGATIVE = frozenset(
    (
        *_core.SUMS_OF_SQUARES,
        *("exp_inf", "step_size", "mu_product", "eta", "mu"),
    )
)


class Schema:
    """Judges the states of one run by the verifier's own build.

    Args:
        session: Freshly opened under the agreed job.
        evidence: The run, for its logged losses and flags.

    Attributes:
        initial: The honest initial state.
    """

    def __init__(self, session: Session, evidence: _core.Evidence) -> None:
        self._session = session
        self._evidence = evidence
        self.initial = session.capture()

    def go_on(self, evidence: _core.Evidence) -> None:
        """From now on it judges by the same run, of which more is recorded."""
        self._evidence = evidence
        self.__dict__.pop("_log", None)

    def problem(
        self, state: _core.State, step: int, *, logged: bool = True, grown: bool = False
    ) -> _core.Violation | None:
        """How a state recorded after `step` violates a rule; None when it is lawful.

        The task's own state is as undefined after this as after a step.

        Args:
            state: What was opened.
            step: After which it was recorded.
            logged: Whether the run's effective history leads to it.
            grown: Lets pass what the first steps do not show, and code of the user's own may make
                later.
        """
        log = self._log if logged and self._log.reaches(step) else None
        return _core.unlawful(state, self._laws.at(step, log, state.tree() if grown else None))

    def not_finite(self, state: _core.State, *, grown: bool = False) -> str:
        """What a state holds that is not finite and no mask of the task's, or "".

        Args:
            state: What was opened, or computed here.
            grown: Lets pass infinities in buffers of the user's own.
        """
        masks = self._laws.masks
        while found := _core.not_finite(state, self.initial, masks):
            path = _infinite_buffer(found)
            if not grown or path is None or path in masks or not self._laws.is_own(path):
                break
            masks = [*masks, path]
        return found

    @property
    def step_seconds(self) -> float:
        """What the faster of the verifier's own first steps took: the first one also warms up."""
        return self._laws.step_seconds

    @property
    def ends(self) -> list[str]:
        """Where the verifier's own first steps end, as a job pins it, in a reproducible
        arithmetic.
        """
        return self._laws.ends

    @property
    def largest_bytes(self) -> int:
        """Of the verifier's own states, with all that an optimizer keeps."""
        return self._laws.largest_bytes

    @property
    def copies(self) -> dict[str, list[str]]:
        """Which tensors of a state are copies or averages of a parameter."""
        return self._laws.copies

    @functools.cached_property
    def _log(self) -> Log:
        return log_of(self._evidence.steps())

    @functools.cached_property
    def _laws(self) -> _Laws:
        return _Laws(self._session, self.initial)


class _Laws:
    """The laws of a task. Leaves the session's task in its initial state."""

    def __init__(self, session: Session, initial: _core.State) -> None:
        self._task = task = session.task
        self._steps_per_epoch = session.schedule.steps_per_epoch
        varying = session.schedule.varying
        self._varying = None if overrides_step(task) else varying
        session.restore(initial)
        states, losses, flags, seconds = [initial], [], [], []
        for step in range(1, min(session.schedule.steps, 2) + 1):
            began = time.perf_counter()
            result = session.run_step(step, session.sample_ids(step))
            seconds.append(time.perf_counter() - began)
            losses.append(result.loss)
            flags.append(int(result.skipped))
            states.append(session.capture())
        self.step_seconds = min(seconds)
        self.ends = [*map(end_of, states[1:], losses)] if session.is_reproducible else []
        own = Log(losses, flags)
        trees: list[Tree] = [state.tree() for state in states]
        self._zero = trees[0]
        made, changed = _made_by_gradients(session)
        # An optimizer that could not be tried may keep a few copies of the parameters.
        largest = max(state.nbytes for state in [*states, session.capture()])
        self.largest_bytes = largest * (4 if None in made else 1)
        session.restore(initial)
        self._scaler = ScalerAhead(trees[0]["scaler"] or {})
        self._ahead: Ahead | None = None
        if self._varying is not None and Ahead.suits(task):
            self._ahead = Ahead(task, session.schedule)
        self._forms = _forms_of(trees, made)
        # In a reproducible arithmetic nothing is judged by how near it is.
        self.copies: dict[str, list[str]] = {}
        if not session.is_reproducible:
            places = [paths for _, paths in places_of(task)]
            self.copies = _core.copies_of(states, places)
        self._variances = _variances(task, trees)
        self._own = OwnParts(task)
        # A scaler may have skipped the updates of the steps above, so that these show no options
        # that an optimizer's own steps change (a counter, an estimate of the rate).
        self._stepped = [
            names | own_options(optimizer) if is_standard(optimizer) else set()
            for names, optimizer in zip(changed, task.optimizers, strict=True)
        ]
        self._optimizers = [
            _Moments(task, index, trees, made, default=self._varying is not None)
            for index in range(len(task.optimizers))
        ]
        self.masks = _masks(states)
        # What the verifier's own steps break is not a law.
        if self._broken(states, own):
            self._ahead = None
            broken = self._broken(states, own)
            if broken:
                raise RuntimeError(
                    f"the verifier's own steps break its laws: {[*map(str, broken)]}"
                )

    def _broken(self, states: list[_core.State], own: Log) -> list[_core.Violation]:
        """What the verifier's own states break. Options that an optimizer's own steps change are
        no longer a law after that.
        """
        while True:
            found = [_core.unlawful(state, self.at(step, own)) for step, state in enumerate(states)]
            broken = [one for one in found if one is not None]
            new = set()
            for one in broken:
                match one.path.split("/"):
                    case ["optimizers", number, "param_groups", _, option]:
                        new.add((int(number), option))
            if all(name in self._stepped[index] for index, name in new):
                return broken
            for index, name in new:
                self._stepped[index].add(name)

    def at(self, step: int, log: Log | None, seen: Tree | None = None) -> Law:
        """The law of a state after `step`.

        Args:
            step: After which it was recorded.
            log: What was logged up to it, if that is known.
            seen: That state, where it may have what only later steps make.
        """
        law = self._known_at(step, log)
        return law if seen is None else self._own.grown(law, seen)

    def is_own(self, path: str) -> bool:
        """Whether code of the user's own may put what it likes into a buffer."""
        return self._own.has(path)

    def _known_at(self, step: int, log: Log | None) -> Law:
        forms = self._forms
        counters = {
            "step": ("is", step),
            "epoch": ("is", step // self._steps_per_epoch),
            "epoch_loss": ("finite",),
        }
        if self._ahead is not None and (log is not None or not self._ahead.needs_log):
            options, schedulers, counters["epoch_loss"] = self._ahead.at(step, log)
            for index, names in enumerate(self._stepped):
                if not names:
                    continue
                forms_of_groups = self._forms["optimizers", index][1]["param_groups"][1]
                for group, like in zip(options[index], forms_of_groups, strict=True):
                    group.update({key: like[1][key] for key in names & like[1].keys()})
        else:
            options = [
                self._options(index, tree["param_groups"]) if each.is_standard else []
                for index, (each, tree) in enumerate(
                    zip(self._optimizers, self._zero["optimizers"], strict=True)
                )
            ]
            schedulers = [
                self._known_options(forms["schedulers", i], tree, "schedulers", i)
                for i, tree in enumerate(self._zero["schedulers"])
            ]
        scaler = form(self._zero["scaler"])
        if self._zero["scaler"]:
            scaler = self._scaler.at(step, None if self._varying is None else log)
        laws = {
            "model": self._module("model"),
            "optimizers": (
                "items",
                [
                    each.law(step, options[index], forms["optimizers", index])
                    for index, each in enumerate(self._optimizers)
                ],
            ),
            "schedulers": ("items", schedulers),
            "scaler": scaler,
            "ema": self._average(step),
            "state": ("map", {k: forms["state", k] for k in self._zero["state"]}, []),
            "counters": ("map", {k: counters[k] for k in self._zero["counters"]}, []),
        }
        return ("map", laws, [])

    def _module(self, name: str) -> Law:
        laws = dict(self._forms[name][1])
        if self._varying is not None:
            for flag in ("requires_grad", "training"):
                flags = self._zero[name][flag]
                laws[flag] = ("map", {key: ("is", value) for key, value in flags.items()}, [])
            laws["buffers"] = _with_signs(laws["buffers"], self._variances[name])
        return ("map", laws, self._forms[name][2])

    def _average(self, step: int) -> Law:
        if not isinstance(self._task.ema, torch.nn.Module):
            law: Law = self._forms["ema"]
            return law
        law = self._module("ema")
        if self._varying is not None and type(self._task.ema) is AveragedModel:
            buffers = law[1]["buffers"]
            averaged = ("all", [buffers[1]["n_averaged"], ("count", step, step)])
            law[1]["buffers"] = ("map", {**buffers[1], "n_averaged": averaged}, buffers[2])
        return law

    def _options(self, index: int, groups: list[Tree]) -> list[dict[str, Law]]:
        """Options of groups where the schedulers cannot be run ahead."""
        form_of_groups = self._forms["optimizers", index][1]["param_groups"][1]
        return [
            self._known_options(law, group, "optimizers", index)[1]
            for law, group in zip(form_of_groups, groups, strict=True)
        ]

    def _known_options(
        self, law: Law, tree: Tree, kind: Literal["optimizers", "schedulers"], index: int
    ) -> Law:
        """The form of a scheduler or a group, with the values that no step changes."""
        if self._varying is None or law[0] != "map":
            return law
        changing = self._varying[kind][index]
        fixed = {
            key: ("is", value)
            for key, value in tree.items()
            if key not in changing and is_option(value)
        }
        return ("map", {**law[1], **fixed}, law[2])


class _Moments:
    """What an optimizer of a task keeps per parameter."""

    def __init__(
        self, task: Task, index: int, trees: list[Tree], made: list[Tree | None], default: bool
    ) -> None:
        optimizer = task.optimizers[index]
        # Otherwise its tree is what a state_dict of the user's own gives, of any form.
        self.is_standard = is_standard(optimizer)
        if not self.is_standard:
            return
        self._begins_anew = not default
        kept = [tree["optimizers"][index]["state"] for tree in trees]
        own = made[index]
        after = [*kept, *([] if own is None else [own["state"]])]
        positive = _NOT_NEGATIVE if type(optimizer).__module__.startswith("torch.optim") else ()
        numbers = dict.fromkeys(number for each in after for number in each)
        self._laws: dict[Any, tuple[Law, bool]] = {}
        for number in numbers:
            law = merged(*(form(each[number]) for each in after if number in each))
            law = law if default else loosely(law)
            if isinstance(optimizer, torch.optim.LBFGS):
                law = _numbers_or_tensors(law)
            counts = all(
                _counts(each[number], step) for step, each in enumerate(kept) if number in each
            )
            self._laws[number] = _with_signs(law, positive), counts
        self._from_start = set(kept[0])
        # A scaler may skip any update, and an own step may leave parameters out.
        sure = default and task.scaler is None
        self._always = set.intersection(*map(set, kept[1:])) if sure else set()
        first, *later = [tree["optimizers"][index]["param_groups"] for tree in trees]
        self._params = [group["params"] for group in first]
        # Its first step may add options to a group, such as a counter.
        self._options_from_start = [set(group) for group in first]
        self._options_always = self._options_from_start
        if sure:
            self._options_always = [
                set.intersection(*map(set, each)) for each in zip(*later, strict=True)
            ]
        if own is None:
            # Nothing is known of parameters that had no gradient yet but what the others have.
            known = [law for law, _ in self._laws.values()]
            like_others = loosely(any_shape(merged(*known))) if known else OPEN
            for number in {n for group in self._params for n in group} - set(self._laws):
                self._laws[number] = like_others, False

    def law(self, step: int, options: list[dict[str, Law]], whole: Law) -> Law:
        """The law of the optimizer's state after a step."""
        if not self.is_standard:
            return whole
        laws = {}
        for number, (law, counts) in self._laws.items():
            laws[number] = law
            if counts and law[0] == "map" and "step" in law[1]:
                counted = ("all", [law[1]["step"], ("count", 0, step)])
                laws[number] = ("map", {**law[1], "step": counted}, law[2])
            # A step of the user's own may reset a parameter's: optimizer.state[p] = {}.
            if self._begins_anew:
                laws[number] = ("any", [laws[number], ("map", {}, [])])
        needed = self._always if step > 0 else self._from_start
        has = self._options_always if step > 0 else self._options_from_start
        groups: list[Law] = [
            ("map", {**own, "params": ("is", params)}, [key for key in own if key not in names])
            for own, params, names in zip(options, self._params, has, strict=True)
        ]
        absent = [number for number in laws if number not in needed]
        return ("map", {"state": ("map", laws, absent), "param_groups": ("items", groups)}, [])


def _numbers_or_tensors(law: Law) -> Law:
    """LBFGS keeps the length of its last step, among others, as a number or as a tensor of the
    direction's type, as its line search happened to end.
    """
    if law[0] != "map" or law[1].get("d", OPEN)[0] != "tensor":
        return law
    scalar: Law = ("tensor", law[1]["d"][1], [])
    either: Law = ("any", [("kind", "number"), scalar])
    single = (("kind", "number"), scalar)
    return ("map", {k: either if v in single else v for k, v in law[1].items()}, law[2])


# ---------------------------------------------------------------------- forms of the whole


def _forms_of(trees: list[Tree], made: list[Tree | None]) -> dict[Any, Any]:
    """Forms by part; what the user's own code may change is loose."""
    forms: dict[Any, Any] = {}
    for name in ("model", "ema"):
        seen = [tree[name] for tree in trees]
        if not (isinstance(seen[0], dict) and "training" in seen[0]):
            forms[name] = loosely(merged(*map(form, seen)))
            continue
        law = merged(*map(form, seen))
        parts = dict(law[1])
        parts["buffers"] = ("map", {k: lazily(v) for k, v in parts["buffers"][1].items()}, [])
        if "extra" in parts:
            parts["extra"] = ("map", {k: loosely(v) for k, v in parts["extra"][1].items()}, [])
        forms[name] = ("map", parts, law[2])
    for name in ("optimizers", "schedulers"):
        for index in range(len(trees[0][name])):
            seen = [tree[name][index] for tree in trees]
            if name == "optimizers" and made[index] is not None:
                seen.append(made[index])
            law = merged(*map(form, seen))
            forms[name, index] = _loose_options(law) if name == "optimizers" else loosely(law)
    for key in trees[0]["state"]:
        forms["state", key] = loosely(merged(*(form(tree["state"][key]) for tree in trees)))
    return forms


def _loose_options(law: Law) -> Law:
    if law[0] != "map" or law[1].get("param_groups", OPEN)[0] != "items":
        return loosely(law)
    groups = ("items", [loosely(group) for group in law[1]["param_groups"][1]])
    return ("map", {**{k: loosely(v) for k, v in law[1].items()}, "param_groups": groups}, law[2])


def _with_signs(law: Law, positive: Collection[str]) -> Law:
    if law[0] != "map":
        return law
    laws = {k: ("all", [v, ("not negative",)]) if k in positive else v for k, v in law[1].items()}
    return ("map", laws, law[2])


def _variances(task: Task, trees: list[Tree]) -> dict[str, set[str]]:
    """The running variances of torch's norms, by name, of the model and of an average that is a
    module: means of squares. Below zero, a norm divides by the root of next to nothing.
    """
    out: dict[str, set[str]] = {}
    for part, root in (("model", task.model), ("ema", task.ema)):
        if not isinstance(root, torch.nn.Module):
            continue
        kept = [tree[part]["buffers"] for tree in trees]
        out[part] = {
            name
            for prefix, module in modules_of(root)
            if isinstance(module, _NormBase) and is_torchs(module)
            for name in [f"{prefix}running_var"]
            if all(
                isinstance(first := buffers.get(name), _core.TensorView)
                and _core.averages_squares(module.momentum, first)
                for buffers in kept
            )
        }
    return out


def _counts(kept: object, step: int) -> bool:
    """Whether a parameter's state has a counter of its steps."""
    count = kept.get("step") if isinstance(kept, dict) else None
    if isinstance(count, _core.TensorView):
        tensor = tensor_of(count)
        count = float(tensor) if tensor.numel() == 1 else None
    return isinstance(count, (int, float)) and 0 <= count <= step


# ---------------------------------------------------------------------- what only a trial shows


def _made_by_gradients(session: Session) -> tuple[list[Tree | None], list[set[str]]]:
    """The state that each optimizer makes when every parameter that can has a gradient, None for
    one that will not be tried, and the options that each changes then. The task's state is of no
    use afterwards.
    """
    before = options_of(session.task)
    # It may unfreeze layers, and change options, long after the first steps.
    own_step = overrides_step(session.task)
    varying = session.schedule.varying
    made: list[Tree | None] = []
    for index, optimizer in enumerate(session.task.optimizers):
        # A schedule may begin without momentum.
        later = type(optimizer) is torch.optim.SGD and (
            own_step or varying is None or "momentum" in varying["optimizers"][index]
        )
        momenta = [group.get("momentum") for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            if later:
                group["momentum"] = group["momentum"] or 0.5
            for parameter in group["params"]:
                trained = parameter.requires_grad or (own_step and _is_trainable(parameter))
                parameter.grad = torch.zeros_like(parameter) if trained else None
        try:
            optimizer.step()
            # At its own place, for the paths of aliases.
            part = {"optimizers": [None] * index + [session.tree()["optimizers"][index]]}
            made.append(_core.State.capture(part).tree()["optimizers"][index])
        except Exception:  # it wants a closure, or sparse gradients
            made.append(None)
        optimizer.zero_grad(set_to_none=True)
        for group, momentum in zip(optimizer.param_groups, momenta, strict=True):
            if later:
                group["momentum"] = momentum
    return made, changed_options(before, session.task)


def _is_trainable(parameter: torch.Tensor) -> bool:
    """Whether a frozen parameter can be trained once a step of the task's own unfreezes it."""
    return parameter.is_floating_point() or parameter.is_complex()


def _masks(states: list[_core.State]) -> list[str]:
    """Buffers in which the task's own steps put an infinity where the initial state has none."""
    masks: list[str] = []
    for state in states[1:]:
        while found := _core.not_finite(state, states[0], masks):
            path = _infinite_buffer(found)
            if path is None or path in masks:
                break
            masks.append(path)
    return masks


def _infinite_buffer(found: str) -> str | None:
    """The path of a buffer of which `not_finite` says that it holds an infinity."""
    path, _, what = found.rpartition(" holds ")
    return path if what == "an infinity" and "/buffers/" in path else None
