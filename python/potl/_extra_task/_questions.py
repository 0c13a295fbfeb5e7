# SPDX-License-Identifier: Apache-2.0
"""Asking a model about extra samples and controls, in a secret order."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base._errors import PotlError, PredictionError, UsageError
from ._data import READ_TWICE
from ._design import Design
from ._form import Form
from ._images import Images, as_pillow
from ._key import ExtraKey
from ._outputs import answers_of, settled
from ._samples import Samples
from ._values import Floats, Ints, carrier_of, in_own_memory, same

if TYPE_CHECKING:
    import torch

BATCH = 256
_AT_ONCE = 1 << 26  # bytes
Transform = Callable[[Any], Any]
Ask = Callable[[list[Any]], Any]


class Questions:
    """The extra and control samples of a design, as a model is asked about them."""

    def __init__(self, key: ExtraKey, design: Design, samples: Samples) -> None:
        self._form, self._through_pillow = design.form, design.through_pillow
        self._counts = design.plan.samples, design.plan.controls
        self._samples, self._seed = samples, key._seed("order") % 2**128

    def order(self) -> list[tuple[str, int]]:
        """("extra" | "control", index) of every question, in the secret order of asking."""
        return [(("extra", "control")[which], index) for which, index, _ in self._places.tolist()]

    @functools.cached_property
    def _places(self) -> Ints:
        count, controls = self._counts
        places = np.zeros((count + controls, 3), np.int64)
        places[count:, 0] = 1
        places[:, 1] = np.concatenate([np.arange(count), np.arange(controls)])
        shuffled = np.random.Generator(np.random.Philox(key=self._seed))
        return places[shuffled.permutation(len(places))]

    def inputs(self, questions: Sequence[tuple[str, int]]) -> list[Any]:
        """What a model is asked."""
        places = [(int(which == "control"), index, 0) for which, index in questions]
        return list(self._form.content.inputs(self._samples.raw(np.array(places, np.int64))))

    def answers(
        self, model: Any, predict: Ask | None, batch_size: int, transform: Transform | None
    ) -> tuple[Floats, Floats]:
        """Answers for all extra and all control samples, in order of indices.

        Args:
            model: A torch module.
            predict: Instead, a function of a list of inputs as they were uploaded.
            batch_size: Inputs in a list.
            transform: For a module; as `as_asked` gives it.

        Raises:
            PredictionError: `predict` raised.
            UsageError: Neither or both are given, or the answers fit nothing.
        """
        if (model is None) == (predict is None):
            raise UsageError(
                "verify takes either a model or predict=",
                "pass a torch module, or predict= a function of a list of inputs",
            )
        if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
            raise UsageError(f"batch_size is {batch_size!r}", "pass a whole number, 1 or more")
        batch_size = int(batch_size)
        if predict is not None:
            if not callable(predict):
                raise UsageError(
                    f"predict is a {type(predict).__name__}", "pass a function of a list of inputs"
                )
            return self._ask(predict, None, batch_size)
        _require_module(model)
        transform = self.as_asked(transform)
        with _evaluating(model):
            return self._ask(
                _of_model(model, self._form, plain=transform is None),
                None if transform is None else _prepared(transform),
                batch_size,
                whole=True,
            )

    def as_asked(self, transform: Transform | None) -> Transform | None:
        """What makes a module's input of a stored one; None: nothing has to."""
        if not self._through_pillow:
            return transform
        if transform is None:
            raise UsageError(
                "the data were transformed by their data set, which is not here",
                "pass transform=, as in evaluation",
            )
        chosen, content = transform, self._form.content
        # Some data sets of torchvision store channels first.
        moved = isinstance(content, Images) and content.axes == "CHW"
        return lambda value: chosen(as_pillow(np.moveaxis(value, 0, -1) if moved else value))

    def _ask(
        self, ask: Ask, prepare: Transform | None, batch_size: int, *, whole: bool = False
    ) -> tuple[Floats, Floats]:
        """Asks about all; `whole`: `ask` takes a batch as one tensor where the data have tensors or
        arrays.
        """
        content = self._form.content
        # As many as fit at once: between batches the cores are the model's.
        many = max(1, _AT_ONCE // content.empty(1).nbytes // batch_size) * batch_size
        found = []
        for start in range(0, len(self._places), many):
            raw = self._samples.raw(self._places[start : start + many])
            for at in range(0, len(raw), batch_size):
                inputs = content.inputs(raw[at : at + batch_size])
                shown = inputs if whole else list(inputs)
                found.append(asked(ask, shown, self._form, prepare))
        if len({one.ndim for one in found}) != 1:
            raise UsageError("answers to some batches are numbers, to others columns", "")
        return self.sorted(np.concatenate(found))

    def sorted(self, values: Floats) -> tuple[Floats, Floats]:
        """Answers in the order of `order`, as those of extra and of control samples."""
        values = settled(values, self._form)
        if len(values) != len(self._places):
            raise UsageError(f"{len(self._places)} questions have {len(values)} answers", "")
        extra, control = map(np.empty, self._counts)
        for which, out in enumerate((extra, control)):
            own = self._places[:, 0] == which
            out[self._places[own, 1]] = values[own]
        return extra, control


def asked(ask: Ask, inputs: Any, form: Form, prepare: Transform | None = None) -> Floats:
    """The answers of a predict function, which sees inputs only: a list of them, or one array or
    tensor.

    Args:
        ask: The function.
        inputs: What it is asked about; of a pair the text with one word more.
        form: Of the data.
        prepare: Makes what `ask` gets of inputs. What the function gives back without labels is
            compared with that.

    Raises:
        PredictionError: It raised.
        UsageError: What it returned fits nothing.
    """
    try:
        shown = inputs
        if form.pairs:
            whole = hasattr(inputs, "shape")
            shown = inputs[:, :-1] if whole else [one[:-1] for one in inputs]
        # Models change what they get, and with it what their answers are compared with.
        compares = form.objective != "classes"
        shown = in_own_memory(shown) if compares else shown
        shown = shown if prepare is None else prepare(shown)
        output = ask(in_own_memory(shown) if compares else shown)
    except PotlError:
        raise
    except Exception as error:
        raise PredictionError(
            f"asking the model raised {type(error).__name__}: {error}",
            "this says nothing about the model: correct predict=, or give a module the transform= "
            "that makes its input of a sample (--transform), and verify again",
        ) from error
    return answers_of(output, inputs if form.pairs else shown, form)


def _prepared(transform: Transform) -> Transform:
    """What makes a batch, or a list of strings or Pillow images, of inputs.

    Its first inputs are transformed twice: those of a training's augmentation differ.
    """
    import torch

    twice = iter(range(READ_TWICE))

    def made(value: Any) -> Any:
        if next(twice, None) is None:
            return transform(value)
        first, second = transform(in_own_memory(value)), transform(value)
        if not same(first, second):
            raise UsageError(
                "the transform gives different values for one input, as an augmentation does",
                "pass transform=, as in evaluation",
            )
        return second

    def prepare(inputs: Any) -> Any:
        values = [made(one) for one in inputs]
        if carrier_of(values[0]) in ("str", "pil"):
            return values
        return torch.stack([torch.as_tensor(one) for one in values])

    return prepare


def _require_module(model: Any) -> None:
    """Refuses what cannot be asked as a torch module can.

    Raises:
        UsageError: With what to pass instead.
    """
    if all(callable(getattr(model, name, None)) for name in ("parameters", "modules", "eval")):
        if any(one.device.type == "meta" for one in model.parameters()):
            raise UsageError(
                "the model is on the device meta: it has no values", "load its weights"
            )
        return
    if isinstance(model, Mapping):
        remedy = "load it into a module with load_state_dict, and pass that"
    elif isinstance(model, (str, os.PathLike)):
        remedy = "load the file, and pass the module"
    elif callable(getattr(model, "predict", None)):
        remedy = "pass predict=, as in predict=lambda inputs: model.predict(np.stack(inputs))"
    else:
        remedy = "pass a function of a list of inputs as predict="
    raise UsageError(f"a {type(model).__name__} is not a torch module", remedy)


def _of_model(model: Any, form: Form, *, plain: bool) -> Ask:
    """A predict function that calls a torch module on batches, on the module's device.

    Args:
        model: The module.
        form: Of the data.
        plain: It gets inputs as they were uploaded, and what items hold beside them.
    """
    import torch

    first = next((p for p in model.parameters() if p.is_floating_point()), None)
    device = torch.device("cpu") if first is None else first.device
    beside = _beside(model, form) if plain else {}

    def ask(values: Any) -> Any:
        if hasattr(values, "shape"):
            batch = torch.as_tensor(values).to(device)
        elif carrier_of(values[0]) not in ("str", "pil"):
            batch = torch.stack([torch.as_tensor(one) for one in values]).to(device)
        elif plain:
            raise UsageError(
                f"the model gets inputs of type {type(values[0]).__name__}, and no tensors",
                "pass transform= (--transform), which makes a tensor of an input",
            )
        else:
            return model(values)
        if batch.is_floating_point() and first is not None:
            batch = batch.to(first.dtype)
        rows = {name: row.to(device).expand(len(batch), -1) for name, row in beside.items()}
        return model(batch, **rows)

    return ask


def _beside(model: Any, form: Form) -> dict[str, torch.Tensor]:
    """What the items of texts hold beside their ids, if the model takes it."""
    import torch

    if not form.items.masks or form.mask is None:
        return {}
    parameters = inspect.signature(model.forward).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return {
        key: torch.as_tensor(form.mask if kind == "ones" else form.mask * 0)[None]
        for key, kind in form.items.named_masks
        if takes_all or key in parameters
    }


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; every module's mode is restored."""
    import torch

    # torch.jit.freeze takes the flag away.
    flags = [(one, one.training) for one in model.modules() if hasattr(one, "training")]
    try:
        try:
            model.eval()
        except NotImplementedError as error:  # of torch.export
            raise UsageError(
                "the model cannot be put into evaluation mode",
                "export it after eval(), and pass a function that calls it as predict=",
            ) from error
        with torch.no_grad():
            yield
    finally:
        for module, flag in flags:
            module.training = flag
