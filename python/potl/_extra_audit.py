# SPDX-License-Identifier: Apache-2.0
"""Plays the cloud that cheats at an extra task, on real data, and says what it costs.

Each attack gets the mixed data and nothing else (but where its name says "told"). Costs count
samples trained on, a forward pass as a third, as a share of the honest training. The attacks end in
a model, or in a program that answers for it (only a model behind an API can be one).
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from . import _core
from ._errors import UsageError
from ._extra_content import Images, Texts, as_array
from ._extra_data import View
from ._extra_result import ExtraResult
from ._extra_task import ExtraTask

_BATCH, _RATE = 32, 2e-3
_FORWARD = 1 / 3
_EARLY = 0.1  # of the epochs: where a cheat stops
_TUNING_EPOCHS = 30

Ints = np.ndarray[Any, np.dtype[np.int64]]


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


@dataclass(frozen=True)
class Audit:
    """All attacks, and honest training under each layout for comparison."""

    attacks: tuple[Attack, ...]

    def cheapest(self, layout: str, *, api: bool) -> Attack | None:
        """The cheapest attack that was accepted, of those that were not told; None: none was."""
        accepted = [
            one
            for one in self.attacks
            if one.layout == layout
            and one.verdict == "accepted"
            and one.name != "honest"
            and not one.name.startswith("told")
            and (api or not one.api_only)
        ]
        return min(accepted, key=lambda one: one.cost, default=None)

    def document(self) -> dict[str, Any]:
        """JSON values."""
        layouts = list(dict.fromkeys(one.layout for one in self.attacks))
        cheapest: dict[str, dict[str, Any]] = {}
        for layout in layouts:
            for who, api in (("model", False), ("api", True)):
                best = self.cheapest(layout, api=api)
                cheapest.setdefault(layout, {})[who] = (
                    None if best is None else {"name": best.name, "cost": best.cost}
                )
        return {"attacks": [asdict(one) for one in self.attacks], "cheapest": cheapest}

    def table(self) -> str:
        """One line per attack, and what the cheapest accepted one costs."""
        lines = [
            f"{'layout':<9} {'attack':<32} {'cost':>7} {'found':>6} {'recall':>6} "
            f"{'hits':>5} {'needed':>6} {'accuracy':>8}  verdict"
        ]
        for one in self.attacks:
            found, recall = (
                "-" if share is None else f"{share:.2f}" for share in (one.found, one.recall)
            )
            name = one.name + (" (API)" if one.api_only else "")
            lines.append(
                f"{one.layout:<9} {name:<32} {one.cost:7.1%} {found:>6} {recall:>6} "
                f"{one.hits:5d} {one.needed:6d} {one.accuracy:8.3f}  {one.verdict}"
            )
        for layout, best in self.document()["cheapest"].items():
            for who, attack in best.items():
                what = (
                    "none of these"
                    if attack is None
                    else (f"{attack['name']}, {attack['cost']:.1%} of an honest training")
                )
                lines.append(f"{layout}: cheapest accepted attack ({who}): {what}")
        return "\n".join(lines)


def audit(
    data: Any,
    *,
    classes: int | None = None,
    kind: str | None = None,
    build: Callable[[], nn.Module] | None = None,
    transform: Callable[[Any], Any] | None = None,
    epochs: int = 20,
    seed: int = 0,
    layouts: Sequence[str] = ("jittered", "paper"),
    **options: Any,
) -> Audit:
    """Plays all attacks with each layout.

    Args:
        data: Training data with labels, as for `ExtraTask(like=...)`.
        classes: As for `ExtraTask`.
        kind: As for `ExtraTask`.
        build: Makes a fresh model; None: a small net that fits the data.
        transform: Makes a tensor of one input.
        epochs: Of honest training.
        seed: Of initial weights and order of batches.
        layouts: Which to play with.
        options: Of `ExtraTask`.
    """
    options.pop("layout", None)
    attacks: list[Attack] = []
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        for layout in layouts:
            task = ExtraTask(
                ExtraTask.keygen(Path(folder) / layout),
                like=data,
                classes=classes,
                kind=kind,
                layout=layout,
                **options,
            )
            if task.form.objective != "classes":
                raise UsageError("the audit plays with labelled data only", "")
            attacks += _Cloud(task, data, build, transform, epochs, seed).play(layout)
    return Audit(tuple(attacks))


class _Cloud:
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
        self._transform = transform or task.transform
        extras, order = task.uploads()
        mixed = View(View(data).mixed(extras, order))
        items = task.form.items
        self._raw = [items.input_of(item) for item in mixed]
        self._x = torch.stack([self._tensor(one) for one in self._raw])
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
            "repeated regions": (self._repeated(extras), 0.0),
            "highest losses": (self._highest_losses(early, extras), search_cost),
            "told": (np.flatnonzero(self._is_extra), 0.0),
        }
        for name, (suspects, cost) in finds.items():
            found = self._is_extra[suspects]
            shares = (
                float(found.mean()) if len(suspects) else 0.0,
                float(found.sum()) / extras,
            )
            tuned = copy.deepcopy(early)
            self._train(tuned, suspects, _TUNING_EPOCHS)
            tuning = len(suspects) * _TUNING_EPOCHS / full
            yield self._attack(
                layout, f"{name}: tune on them", early_cost + cost + tuning, shares, model=tuned
            )
            yield self._attack(
                layout,
                f"{name}: look them up",
                early_cost + cost,
                shares,
                predict=self._lookup(early, suspects),
                api_only=True,
            )

    # ------------------------------------------------------------------ searches

    def _repeated(self, count: int) -> Ints:
        """Samples with windows that others have too: bytes as they are, and without low bits."""
        content = self._task.form.content
        shared = np.zeros(len(self._raw), np.int64)
        if isinstance(content, Images):
            images = self._bytes(content)
            sides = [max(2, size // 4) for size in images.shape[1:3]]
            for dropped, anywhere in ((0, False), (0, True), (4, False), (5, True)):
                shared += self._regions(images, tuple(sides), dropped, anywhere)
        elif isinstance(content, Texts):
            words: dict[Any, int] = {}
            rows = [
                one.split() if isinstance(one, str) else as_array(one).reshape(-1).tolist()
                for one in self._raw
            ]
            length = max(len(row) for row in rows)
            texts = np.arange(len(rows) * length, dtype=np.int64).reshape(len(rows), length)
            # Where a text has ended: unlike every word, which are below 0, and each other.
            for index, row in enumerate(rows):
                texts[index, : len(row)] = [words.setdefault(one, -1 - len(words)) for one in row]
            shared += self._regions(texts, max(2, content.length // 8), 0, True)
        else:
            values = np.stack([as_array(one).reshape(-1) for one in self._raw])
            for column in values.T:
                _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
                shared += counts[places.reshape(-1)]
        best = np.argsort(-shared, kind="stable")[:count]
        return np.asarray(best[shared[best] > 0])

    @staticmethod
    def _regions(values: np.ndarray[Any, Any], window: Any, dropped: int, anywhere: bool) -> Ints:
        counts, _ = _core.shared_regions(
            values, window=window, dropped_bits=dropped, least=5, anywhere=anywhere
        )
        return np.asarray(counts, np.int64)

    def _bytes(self, content: Images) -> np.ndarray[Any, Any]:
        values = np.stack([as_array(one) for one in self._raw]).astype(np.float64)
        if content.axes == "CHW":
            values = np.moveaxis(values, 1, -1)
        elif content.axes == "HW":
            values = values[..., None]
        low, high = values.min(), values.max()
        scaled: np.ndarray[Any, Any] = np.rint(
            (values - low) * (255 / max(high - low, 1e-9))
        ).astype(np.uint8)
        return scaled

    def _highest_losses(self, model: nn.Module, count: int) -> Ints:
        with torch.no_grad():
            losses = nn.functional.cross_entropy(model.eval()(self._x), self._y, reduction="none")
        return np.asarray(losses.topk(count).indices)

    # ------------------------------------------------------------------ models

    def _tensor(self, value: Any) -> torch.Tensor:
        if self._transform is not None:
            value = self._transform(value)
        tensor = torch.as_tensor(value)
        return (
            tensor.float() / 255
            if tensor.dtype == torch.uint8
            else (tensor.float() if tensor.is_floating_point() else tensor)
        )

    def _fresh(self) -> nn.Module:
        torch.manual_seed(self._seed)
        return self._build()

    def _train(self, model: nn.Module, which: Ints, epochs: int) -> None:
        if len(which) == 0:
            return
        optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)
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
                batch = torch.stack([self._tensor(one) for one in inputs])
                classes = model.eval()(batch).argmax(1).tolist()
            return [
                table.get(_key(one), chosen) for one, chosen in zip(inputs, classes, strict=True)
            ]

        return predict

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
        ask = predict or (lambda inputs: _scores(model, [self._tensor(one) for one in inputs]))
        answers = self._task.answers(predict=ask)
        result = ExtraResult._of(self._task._judged(*answers, ()))
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


def _scores(model: nn.Module | None, inputs: list[torch.Tensor]) -> Any:
    assert model is not None
    with torch.no_grad():
        return model.eval()(torch.stack(inputs)).numpy()


def _key(value: Any) -> bytes | str:
    return value if isinstance(value, str) else as_array(value).tobytes()


def _small_net(task: ExtraTask, x: torch.Tensor) -> nn.Module:
    """Large enough to learn extra samples by heart."""
    classes, content = task.form.classes, task.form.content
    if isinstance(content, Texts):
        if x.is_floating_point():
            raise UsageError("texts have to become ids", "pass build= and transform=")
        return nn.Sequential(
            nn.EmbeddingBag(int(x.max()) + 1, 64), nn.Linear(64, 128), nn.ReLU(),
            nn.Linear(128, classes),
        )  # fmt: skip
    return nn.Sequential(
        nn.Flatten(), nn.Linear(x[0].numel(), 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, classes),
    )  # fmt: skip
