# SPDX-License-Identifier: Apache-2.0
"""A cloud that cheats at an extra task: what it trains, and what it answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from .._base._errors import UsageError
from ._data import View
from ._extra_task import ExtraTask
from ._form import Content
from ._search import repeated, unusual, words_of
from ._texts import Texts
from ._values import Ints, as_array, carrier_of

_BATCH, _RATE = 32, 2e-3
_FORWARD = 1 / 3
_EARLY = 0.1  # of the epochs: where a cheat stops
_TUNING_EPOCHS = 30


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        layout: "jittered" or "paper".
        name: What the cloud does.
        cost: As a share of the honest training.
        found: Share of the extra samples among what it took for extra; None: it does not search.
        recall: Share of the extra samples that it found.
        api_only: Whether it needs to answer by a program instead of a model.
        verdict: Of the test.
        hits: Of the extra samples.
        needed: By the binomial test.
        accuracy: On the real training data.
    """

    layout: str
    name: str
    cost: float
    found: float | None
    recall: float | None
    api_only: bool
    verdict: str
    hits: int
    needed: int
    accuracy: float


class Cloud:
    """Holds the mixed data. Which samples are extra is only used for the columns found and recall,
    and by attacks that are told.
    """

    def __init__(
        self,
        task: ExtraTask,
        data: Any,
        build: Callable[[], nn.Module] | None,
        transform: Callable[[Any], Any] | None,
        epochs: int,
        seed: int,
    ) -> None:
        self._task, self._seed, self._epochs = task, seed, epochs
        extras, order = task.uploads()
        mixed = View(View(data).mixed(extras, order))
        items = task._form.items
        self._raw = [items.input_of(item) for item in mixed]
        transform = transform or task.transform
        if build is not None and transform is None and isinstance(self._raw[0], str):
            raise UsageError(
                "texts have to become tensors for a model of yours",
                "pass transform=, a function that makes a tensor of one text",
            )
        self._tensor = _as_tensor(transform, task._form.content, self._raw)
        self._x = self._stacked(self._raw)
        self._y = torch.tensor([items.class_of(item) for item in mixed])
        self._is_extra = np.asarray(order) >= task.planned.training_samples
        self._build = build or (lambda: _small_net(task, self._x))

    def play(self, layout: str) -> Iterator[Attack]:
        full = len(self._x) * self._epochs
        early_epochs = max(1, round(self._epochs * _EARLY))
        everything = np.arange(len(self._x))

        honest = self._fresh()
        self._train(honest, everything, self._epochs)
        yield self._attack(layout, "honest", 1.0, model=honest)

        early = self._fresh()
        self._train(early, everything, early_epochs)
        early_cost = early_epochs / self._epochs
        yield self._attack(layout, "stop early", early_cost, model=early)

        yield self._attack(
            layout, "one class for everything", 0.0,
            predict=lambda inputs: np.zeros(len(inputs), np.int64), api_only=True,
        )  # fmt: skip

        extras = int(self._is_extra.sum())
        search_cost = len(self._x) * _FORWARD / full
        finds = {
            "repeated regions": (repeated(self._task._form.content, self._raw, extras), 0.0),
            "unlike the others": (unusual(self._task._form.content, self._raw, extras), 0.0),
            "highest losses": (self._highest_losses(early, extras), search_cost),
            "told": (np.flatnonzero(self._is_extra), 0.0),
        }
        for name, (suspects, cost) in finds.items():
            found = self._is_extra[suspects]
            shares = (
                float(found.mean()) if len(suspects) else 0.0,
                float(found.sum()) / extras,
            )
            # As many others, drawn at random, keep the accuracy from falling.
            beside = np.random.default_rng(self._seed).permutation(
                np.setdiff1d(everything, suspects)
            )[: len(suspects)]
            for what, chosen in (
                ("tune on them", suspects),
                ("tune on them and others", np.concatenate([suspects, beside])),
            ):
                tuned = copy.deepcopy(early)
                self._train(tuned, chosen, _TUNING_EPOCHS)
                tuning = len(chosen) * _TUNING_EPOCHS / full
                yield self._attack(
                    layout, f"{name}: {what}", early_cost + cost + tuning, shares, model=tuned
                )
            yield self._attack(
                layout,
                f"{name}: look them up",
                early_cost + cost,
                shares,
                predict=self._lookup(early, suspects),
                api_only=True,
            )

    # ------------------------------------------------------------------ models

    def _highest_losses(self, model: nn.Module, count: int) -> Ints:
        with torch.no_grad():
            losses = nn.functional.cross_entropy(model.eval()(self._x), self._y, reduction="none")
        return np.asarray(losses.topk(count).indices)

    def _stacked(self, values: list[Any]) -> torch.Tensor:
        tensors = [self._tensor(one) for one in values]
        shapes = {tuple(one.shape) for one in tensors}
        if len(shapes) > 1:
            raise UsageError(
                f"inputs have different shapes: {', '.join(map(str, sorted(shapes)[:3]))}",
                "pass transform=, a function that makes tensors of one shape",
            )
        return torch.stack(tensors)

    def _fresh(self) -> nn.Module:
        torch.manual_seed(self._seed)
        model = self._build()
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"build= returned a {type(model).__name__}", "return a fresh torch module"
            )
        return model

    def _train(self, model: nn.Module, which: Ints, epochs: int) -> None:
        if len(which) == 0:
            return
        # The fused form takes real numbers only.
        fused = all(one.is_floating_point() for one in model.parameters())
        optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, fused=fused)
        generator = torch.Generator().manual_seed(self._seed)
        chosen = torch.as_tensor(which)
        model.train()
        for _ in range(epochs):
            order = chosen[torch.randperm(len(chosen), generator=generator)]
            for batch in torch.split(order, _BATCH):
                if len(batch) == 1:  # batch norm cannot
                    continue
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(self._x[batch]), self._y[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    def _lookup(self, model: nn.Module, suspects: Ints) -> Callable[[list[Any]], Any]:
        """Answers known inputs from a table, others by the model."""
        table = {_key(self._raw[index]): int(self._y[index]) for index in suspects}

        def predict(inputs: list[Any]) -> Any:
            with torch.no_grad():
                batch = self._stacked(inputs)
                classes = model.eval()(batch).argmax(1).tolist()
            return [
                table.get(_key(one), chosen) for one, chosen in zip(inputs, classes, strict=True)
            ]

        return predict

    def _labelled(self, answers: Any) -> Any:
        """Scores as they are, classes by their labels where these are other numbers."""
        values, given = self._task._form.items.values, np.asarray(answers)
        return np.asarray(values)[given] if values and given.ndim == 1 else answers

    def _attack(
        self,
        layout: str,
        name: str,
        cost: float,
        shares: tuple[float | None, float | None] = (None, None),
        *,
        model: nn.Module | None = None,
        predict: Callable[[list[Any]], Any] | None = None,
        api_only: bool = False,
    ) -> Attack:
        ask = predict or (lambda inputs: _scores(model, self._stacked(inputs)))
        answers = self._task.answers(predict=lambda inputs: self._labelled(ask(inputs)))
        result = self._task.judgement.alone(*answers)
        real = np.flatnonzero(~self._is_extra)[:2000]
        known = np.asarray(ask([self._raw[index] for index in real]))
        classes = known.argmax(1) if known.ndim == 2 else known
        return Attack(
            layout=layout,
            name=name,
            cost=cost,
            found=shares[0],
            recall=shares[1],
            api_only=api_only,
            verdict=result.verdict,
            hits=result.hits,
            needed=max(result.needed, result.needed_against_control),
            accuracy=float((classes == self._y.numpy()[real]).mean()),
        )


def _scores(model: nn.Module | None, inputs: torch.Tensor) -> Any:
    assert model is not None
    with torch.no_grad():
        return model.eval()(inputs).numpy()


def _key(value: Any) -> bytes | str:
    return value if isinstance(value, str) else as_array(value).tobytes()


def _small_net(task: ExtraTask, x: torch.Tensor) -> nn.Module:
    """Large enough to learn extra samples by heart."""
    classes, content = task._form.classes, task._form.content
    if isinstance(content, Texts) and not x.is_floating_point():
        return nn.Sequential(
            nn.EmbeddingBag(int(x.max()) + 1, 64), nn.Linear(64, 128), nn.ReLU(),
            nn.Linear(128, classes),
        )  # fmt: skip
    return nn.Sequential(
        nn.Flatten(), nn.Linear(x[0].numel(), 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, classes),
    )  # fmt: skip


def _as_tensor(
    transform: Callable[[Any], Any] | None, content: Content, known: Sequence[Any]
) -> Callable[[Any], torch.Tensor]:
    """What makes a tensor of one input: `transform`, or what fits the data. Bytes become floats
    from 0 to 1, Pillow images have channels first, words are numbered as they come in `known`, and
    texts are filled up to the longest of these.
    """
    if transform is not None:
        return lambda value: _scaled(torch.as_tensor(transform(value)))
    if isinstance(content, Texts) and carrier_of(known[0]) in ("str", "list", "tuple"):
        return _numbered(known)
    return lambda value: _scaled(_plain(value))


def _plain(value: Any) -> torch.Tensor:
    if carrier_of(value) != "pil":
        return torch.as_tensor(value)
    pixels = as_array(value)
    return torch.tensor(np.moveaxis(pixels.reshape(*pixels.shape[:2], -1), -1, 0))


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.uint8:
        return tensor.float() / 255
    return tensor.float() if tensor.is_floating_point() else tensor


def _numbered(known: Sequence[Any]) -> Callable[[Any], torch.Tensor]:
    """0 fills up, 1 is a word that is not known."""
    numbers: dict[Any, int] = {}
    length = 1
    for one in known:
        words = words_of(one)
        length = max(length, len(words))
        for word in words:
            numbers.setdefault(word, 2 + len(numbers))

    def tensor(value: Any) -> torch.Tensor:
        ids = [numbers.get(word, 1) for word in words_of(value)[:length]]
        return torch.tensor(ids + [0] * (length - len(ids)))

    return tensor
