# SPDX-License-Identifier: Apache-2.0
"""What is trained: model, optimizer, data and the step function that both trains and replays."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from .._base._errors import UsageError
from ._collated import split_batch

if torch.distributed.is_available():
    # Functions of this module hold the process group that exists when it is imported, which torch
    # does with the first optimizer. Threads of the group then outlive destroy_process_group(), and
    # one that is late aborts the process when the interpreter ends (pytorch issue 190489).
    from torch.distributed import GroupMember

    _world, GroupMember.WORLD = GroupMember.WORLD, None
    try:
        import torch.distributed.nn.functional
    finally:
        GroupMember.WORLD = _world
        del _world

# How far, as a share of it, a loss may be off by rounding: the default threshold of
# ReduceLROnPlateau. Beyond it, as in half precision, schedulers are told the replay's.
_ROUNDED = 1e-4

Scheduler = Any
"""A torch learning-rate scheduler, ReduceLROnPlateau included."""


class Stateful(Protocol):
    """What has a state of its own."""

    def state_dict(self) -> Any:
        """The state: numbers, text, tensors, and lists, tuples and dicts of them."""

    def load_state_dict(self, state_dict: Any, /) -> object:
        """Makes the object hold what `state_dict` gave."""


class Task:
    """One training task: everything that a step needs.

    One step is one optimizer update on one batch of `batch_size` samples, which `accumulate` cuts
    into micro-batches. Override `compute_loss` for another forward pass and `step` for another
    update. A `step` with several random forward passes takes the parts from `micro_batches`, so
    that each gets its own randomness.

    Args:
        model: The module to train. Its `training` flags are left as `build` set them.
        optimizer: One optimizer, or several that are all stepped.
        dataset: Map-style: `dataset[i]` for i below `len(dataset)`.
        loss: Called as `loss(output, target)`, mean over the samples; a function or module.
        batch_size: Samples per step.
        epochs: Passes over the data.
        scheduler: One learning-rate scheduler, or several.
        grad_clip: Largest l2 norm of all gradients together.
        accumulate: Micro-batches per step.
        transform: Augmentation of one sample (what `dataset[i]` returns), applied after reading.
        collate_fn: Makes a batch of a list of samples; None for torch's default.
        drop_last: Leave out an epoch's last, smaller batch.
        num_workers: Processes that read data; batches do not depend on it.
        autocast: A dtype (`torch.bfloat16`) or a `torch.autocast` object for the forward pass.
        scaler: A `torch.amp.GradScaler`.
        ema: An averaged copy of the model, for example `torch.optim.swa_utils.AveragedModel`,
            updated after each step.
        state: More objects with `state_dict` and `load_state_dict` that belong to the training
            state, by name.
        init: A safetensors file, or a checkpoint of a run, whose tensors replace the model's of the
            same name before step 1 (fine-tuning).
        scheduler_interval: "step" or "epoch": when schedulers advance.
        shuffle: False takes the samples in their own order in every epoch.
        sampler: Another order: yields `len(sampler)` indices for each epoch, such as a
            `torch.utils.data.WeightedRandomSampler`. It is asked with every generator seeded from
            the job, after `set_epoch(epoch)` if it has that, and must depend on nothing else.
        max_steps: Updates after which the training ends, even within an epoch; `epochs` may then be
            left out.

    Attributes:
        optimizers: All optimizers.
        optimizer: The optimizer if there is only one, else None.

    Raises:
        UsageError: An argument that cannot work, with what to do instead.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> model = nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> data = TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64))
        >>> task = Task(
        ...     model=model, optimizer=optimizer, dataset=data, loss=nn.functional.cross_entropy,
        ...     batch_size=4, epochs=1,
        ... )
        >>> task.steps_per_epoch
        2
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        dataset: Any,
        loss: Callable[..., torch.Tensor] | None = None,
        # Required, though what follows an optional argument needs a default: 0 is refused.
        batch_size: int = 0,
        epochs: int = 0,
        *,
        scheduler: Scheduler | Sequence[Scheduler] | None = None,
        grad_clip: float | None = None,
        accumulate: int = 1,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        autocast: torch.dtype | torch.autocast | None = None,
        scaler: torch.amp.GradScaler | None = None,
        ema: Any = None,
        state: Mapping[str, Stateful] | None = None,
        init: str | os.PathLike[str] | None = None,
        scheduler_interval: str = "step",
        shuffle: bool = True,
        sampler: Any = None,
        max_steps: int | None = None,
        batch_sampler: None = None,
    ) -> None:
        if batch_sampler is not None:
            from ._order import BATCHES

            raise UsageError("batch_sampler= is not supported: a task cuts batches itself", BATCHES)
        self.model = model
        self.optimizers = _unwrapped(_as_tuple(optimizer))
        self.optimizer = self.optimizers[0] if len(self.optimizers) == 1 else None
        self.schedulers = _unwrapped(_as_tuple(scheduler))
        self.dataset = dataset
        self.loss = loss
        self.batch_size = batch_size
        self.epochs = epochs
        self.grad_clip = grad_clip
        self.accumulate = accumulate
        self.transform = transform
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.autocast = autocast
        self.scaler = scaler
        self.ema = ema
        self.state = dict(state or {})
        self.init = init
        self.scheduler_interval = scheduler_interval
        self.shuffle = shuffle
        self.sampler = sampler
        self.max_steps = max_steps
        if max_steps is not None:
            self._validate_max_steps()
            if epochs == 0 or (isinstance(epochs, int) and epochs > self._epochs_needed):
                self.epochs = self._epochs_needed
        # The session's: called before each micro-batch to set the randomness of its forward pass.
        self._before_micro_batch: Callable[[int], None] = _nothing
        # What a replay knows as the logged loss of the step.
        self._logged: float | None = None
        # Whether a loss of the default step depended on what is trained.
        self._depended = False
        self._validate()
        for each in self.optimizers:
            _leave_out_new_options(each)

    # ------------------------------------------------------------------ what users override

    def step(self, batch: Any) -> torch.Tensor:
        """One optimizer update on one collated batch.

        Args:
            batch: What the collate function returned, on the model's device; `[x, y]` by default.

        Returns:
            The mean loss of the batch before the update: a tensor with one element.
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total: torch.Tensor | None = None
        for part, share in self.micro_batches(batch):
            loss = self._backward_of(part, share)
            total = loss if total is None else total + loss
        assert total is not None
        self.update(total)
        return total

    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        """The loss of one (micro-)batch with the model as it is.

        Args:
            batch: `[inputs..., target]`; anything else needs an override of this method.
            reduction: "mean" for one number, "none" for one loss per sample.

        Returns:
            A tensor with one element for "mean", with one row per sample for "none".
        """
        if self.loss is None:
            raise UsageError(
                "the task has no loss", "pass loss=, or override compute_loss in a subclass of Task"
            )
        if not isinstance(batch, (list, tuple)) or len(batch) < 2:
            raise UsageError(
                f"the default loss needs batches [inputs..., target], not {type(batch).__name__}",
                "override compute_loss(self, batch, reduction) in a subclass of Task: of a model "
                "that computes its loss itself, return self.model(**batch).loss",
            )
        *inputs, target = batch
        with self.autocast_context():
            output = self.model(*inputs)
            if reduction == "mean":
                return self.loss(output, target)
            return _unreduced(self.loss, output, target)

    # ------------------------------------------------------------------ pieces for overrides

    def micro_batches(self, batch: Any) -> Iterator[tuple[Any, float]]:
        """The parts of a batch, each with its share of the samples. Randomness is set before each
        part.
        """
        parts = split_batch(batch, self.accumulate, self.batch_size)
        for index, (part, share) in enumerate(parts):
            self._before_micro_batch(index)
            yield part, share

    @contextlib.contextmanager
    def _told(self, loss: float | None) -> Iterator[None]:
        """Where schedulers are told this loss, if there is one: `_known`."""
        self._logged = loss
        try:
            yield
        finally:
            self._logged = None

    def _known(self, loss: float) -> float:
        """What schedulers are told of a loss: the logged one, where rounding may explain it. The
        tolerance of losses has a part that does not shrink with them, and could hide any other.
        """
        logged = self._logged
        is_near = logged is not None and abs(logged - loss) <= _ROUNDED * abs(loss)
        return logged if logged is not None and is_near else loss

    def _micro_batch_count(self, batch: Any) -> int:
        """How many parts `micro_batches` yields."""
        return len(split_batch(batch, self.accumulate, self.batch_size))

    def _backward_of(self, part: Any, share: float) -> torch.Tensor:
        """Adds the gradients of a part of a batch, and returns its share of the loss."""
        loss = self._reduced_loss(part)
        scaled = loss if share == 1.0 else loss * share
        self._backward(scaled)
        return scaled.detach()

    def _backward(self, loss: torch.Tensor) -> None:
        """Adds the gradients of the loss of a part, scaled by the scaler if there is one."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]

    def update(self, loss: torch.Tensor) -> None:
        """Clips the gradients, steps optimizers, scaler and (per step) schedulers, and updates the
        average.
        """
        if self.grad_clip is not None:
            if self.scaler is not None:
                for optimizer in self.optimizers:
                    self.scaler.unscale_(optimizer)
            parameters = [
                p
                for optimizer in self.optimizers
                for g in optimizer.param_groups
                for p in g["params"]
            ]
            # From torch 2.15 on these are clipped, before it they are not: a run has one meaning.
            if any(p.grad is not None and p.grad.is_sparse for p in parameters):
                raise UsageError(
                    "sparse gradients are not clipped in every version of torch",
                    "make embeddings without sparse=True, or leave grad_clip out",
                )
            torch.nn.utils.clip_grad_norm_(parameters, self.grad_clip)
        for optimizer in self.optimizers:
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
        if self.scaler is not None:
            self.scaler.update()
        if self.scheduler_interval == "step" and self.schedulers:
            # Only who needs the number reads it: what a step does is known without.
            needed = overrides_step(self) or any(map(is_metric_driven, self.schedulers))
            # A step of the user's own may pass it as it was computed, or a number.
            number = loss.detach() if isinstance(loss, torch.Tensor) else loss
            self.advance_schedulers(self._known(float(number)) if needed else math.nan)
        if self.ema is not None:
            update = getattr(self.ema, "update_parameters", None) or self.ema.update
            update(self.model)

    def advance_schedulers(self, metric: float) -> None:
        """One step of every scheduler; metric-driven ones see `metric`."""
        for scheduler in self.schedulers:
            if is_metric_driven(scheduler):
                scheduler.step(metric)
            else:
                scheduler.step()

    def autocast_context(self) -> contextlib.AbstractContextManager[Any]:
        """The context of the forward pass."""
        if self.autocast is None:
            return contextlib.nullcontext()
        if isinstance(self.autocast, torch.dtype):
            return torch.autocast(self.device.type, dtype=self.autocast)
        return self.autocast

    # ------------------------------------------------------------------ facts

    @property
    def device(self) -> torch.device:
        """Where the first parameter lives."""
        for module in self.model.modules():
            for parameter in module._parameters.values():
                if parameter is not None:
                    return parameter.device
        return torch.device("cpu")

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch."""
        drawn = len(self.dataset if self._order is None else self._order)
        full, rest = divmod(drawn, self.batch_size)
        return full if self.drop_last or rest == 0 else full + 1

    @property
    def steps(self) -> int:
        """Number of optimizer updates."""
        steps = self.steps_per_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)

    @property
    def _order(self) -> Any:
        """What yields the indices of an epoch; None for the permutation that the seed selects."""
        if self.sampler is not None:
            return self.sampler
        return None if self.shuffle else range(len(self.dataset))

    @property
    def _epochs_needed(self) -> int:
        if self.batch_size < 1 or not hasattr(self.dataset, "__len__"):
            return 1  # which something else refuses
        assert self.max_steps is not None
        return -(-self.max_steps // max(1, self.steps_per_epoch))

    def _validate_max_steps(self) -> None:
        value = self.max_steps
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"max_steps is {value!r}", "pass a whole number from 1, or None")

    def _reduced_loss(self, batch: Any) -> torch.Tensor:
        loss = self.compute_loss(batch, reduction="mean")
        if not isinstance(loss, torch.Tensor):
            raise UsageError(
                f"the loss must be a tensor with one element, not a {type(loss).__name__}",
                "return the loss alone, as the tensor that was computed: not its .item(), and "
                "nothing beside it",
            )
        if loss.numel() != 1:
            raise UsageError(
                f"the loss must be a tensor with one element, not {tuple(loss.shape)}",
                'reduce it: reduction="mean"',
            )
        if not loss.requires_grad:
            raise no_gradient()
        # What requires_grad_() was called on has none: the zero of a batch without a loss.
        self._depended |= loss.grad_fn is not None
        return loss

    def _validate(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise UsageError(
                f"model is a {type(self.model).__name__}", "pass a torch.nn.Module as model="
            )
        for name, module in self.model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                raise UsageError(
                    f"{f'model.{name}' if name else 'model'} is compiled to TorchScript, whose "
                    "parts and operators are hidden from potl",
                    "pass the module that torch.jit.script or torch.jit.trace was given, and "
                    "compile the trained one",
                )
        for optimizer in self.optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise UsageError(
                    f"optimizer is a {type(optimizer).__name__}",
                    "pass a torch.optim.Optimizer, or several in a list",
                )
            # What its __init__ makes. Some that wrap another one make a dict that takes no hooks.
            hooks = getattr(optimizer, "_optimizer_step_pre_hooks", None)
            if not isinstance(hooks, OrderedDict):
                raise UsageError(
                    f"{type(optimizer).__name__} is an optimizer without what torch's keep",
                    "call super().__init__(params, defaults) in its __init__; around another "
                    "optimizer, super().__init__(base.param_groups, base.defaults), and pass "
                    'state={"base": optimizer.base} to potl.Task unless both have one .state',
                )
        if not self.optimizers:
            raise UsageError("the task has no optimizer", "pass optimizer=")
        for name in ("batch_size", "epochs", "accumulate"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                instead = ", or max_steps=" if name == "epochs" else ""
                raise UsageError(
                    f"{name} is {value!r}", f"pass a whole number, {name} >= 1{instead}"
                )
        if self.sampler is not None:
            if not self.shuffle:
                raise UsageError("sampler and shuffle=False exclude each other", "pass one of them")
            if not hasattr(self.sampler, "__iter__") or not hasattr(self.sampler, "__len__"):
                raise UsageError(
                    f"sampler is a {type(self.sampler).__name__}",
                    "pass an object with __iter__ and __len__ that yields the indices of an epoch",
                )
        if self.num_workers < 0:
            raise UsageError(f"num_workers is {self.num_workers}", "pass 0 or more")
        if self.accumulate > self.batch_size:
            raise UsageError(
                f"accumulate={self.accumulate} cuts a batch of {self.batch_size} into empty parts",
                "batch_size counts all micro-batches of a step together",
            )
        if self.scheduler_interval not in ("step", "epoch"):
            raise UsageError(
                f"scheduler_interval is {self.scheduler_interval!r}", 'pass "step" or "epoch"'
            )
        if self.grad_clip is not None and not self.grad_clip > 0:
            raise UsageError(f"grad_clip is {self.grad_clip}", "pass a positive norm, or None")
        if not has_loss(self) and not overrides(self, "step"):
            raise UsageError(
                "the task has no loss", "pass loss=, or override compute_loss in a subclass of Task"
            )
        for name, kept in self.state.items():
            if not hasattr(kept, "state_dict") or not hasattr(kept, "load_state_dict"):
                raise UsageError(
                    f"state[{name!r}] is a {type(kept).__name__} without state_dict and "
                    "load_state_dict",
                    "give the class both methods",
                )
        methods = ("state_dict", "load_state_dict")
        if self.ema is not None and not all(hasattr(self.ema, name) for name in methods):
            raise UsageError(
                f"ema is a {type(self.ema).__name__} without state_dict and load_state_dict",
                "give the class both methods, or pass torch.optim.swa_utils.AveragedModel(model)",
            )
        own = {id(p) for p in self.model.parameters()}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if any(id(p) not in own for p in group["params"]):
                    raise UsageError(
                        "an optimizer steps tensors that are not parameters of the model",
                        "make the optimizer from the model that the task trains, after moving it "
                        "to its device. A module that is trained beside it, such as a loss with "
                        "centers, becomes an attribute of it (model.centers = loss; a Sequential "
                        "would call it, so put that into a module of your own), and other trained "
                        "tensors become nn.Parameters of it",
                    )


def is_metric_driven(scheduler: Scheduler) -> bool:
    """Whether `scheduler.step` needs a metric, so that its rates depend on the training."""
    return isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)


def overrides_step(task: Task) -> bool:
    """Whether the task has a step of its own, about which nothing is known."""
    return any(overrides(task, name) for name in ("step", "update", "advance_schedulers"))


def no_gradient() -> UsageError:
    """What is wrong with a loss that trains nothing."""
    return UsageError(
        "the loss depends on no parameter that is trained",
        "compute it from the model's output without detach(), .item() or torch.no_grad(), and "
        "leave requires_grad of what is trained; where a batch has no loss, it is 0 * output.sum()",
    )


def has_loss(task: Task) -> bool:
    """Whether `compute_loss` computes something: a step of the user's own may do without."""
    return task.loss is not None or overrides(task, "compute_loss")


def overrides(task: Task, name: str) -> bool:
    """Whether a method of the task is not the default."""
    if getattr(type(task), name) is not getattr(Task, name):
        return True
    # Not vars(task): a trial looks at what a step reads, and this is no step.
    return name in object.__getattribute__(task, "__dict__")


def _unreduced(loss: Callable[..., torch.Tensor], output: Any, target: Any) -> torch.Tensor:
    options: Any = loss
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        before = options.reduction
        options.reduction = "none"
        try:
            each: torch.Tensor = loss(output, target)
            return each
        finally:
            options.reduction = before
    try:
        accepts = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        accepts = False
    if not accepts:
        raise UsageError(
            "the loss cannot be taken per sample: it has no argument `reduction`",
            "override compute_loss(self, batch, reduction) in a subclass of Task",
        )
    return loss(output, target, reduction="none")


def _nothing(index: int) -> None:
    pass


def _unwrapped(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What `Accelerator.prepare` put its own objects around: those step when its loop says so."""
    inner = {"optimizer": "optimizer", "scheduler": "scheduler"}
    out = []
    for value in values:
        package, _, module = type(value).__module__.partition(".")
        name = inner.get(module) if package == "accelerate" else None
        out.append(value if name is None else getattr(value, name))
    return tuple(out)


def _leave_out_new_options(optimizer: torch.optim.Optimizer) -> None:
    """Removes `maximize=False`, which LBFGS has since torch 2.14 and takes for granted where it is
    not there: jobs and states have all options, and those of earlier versions do not have this one.
    """
    if type(optimizer) is torch.optim.LBFGS:
        for options in (optimizer.defaults, *optimizer.param_groups):
            if options.get("maximize") is False:
                del options["maximize"]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
