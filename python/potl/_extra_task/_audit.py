# SPDX-License-Identifier: Apache-2.0
"""Plays the cloud that cheats at an extra task, on real data, and says what it costs.

Each attack gets the mixed data and nothing else (but where its name says "told"). Costs count
samples trained on, a forward pass as a third, as a share of the honest training. The attacks end in
a model, or in a program that answers for it (only a model behind an API can be one).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._base._errors import UsageError
from ._cloud import Attack, Cloud
from ._extra_task import ExtraTask


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

    @property
    def _best(self) -> dict[str, dict[str, Attack | None]]:
        return {
            layout: {who: self.cheapest(layout, api=who == "api") for who in ("model", "api")}
            for layout in dict.fromkeys(one.layout for one in self.attacks)
        }

    def document(self) -> dict[str, object]:
        """JSON values."""
        cheapest = {
            layout: {
                who: None if one is None else {"name": one.name, "cost": one.cost}
                for who, one in best.items()
            }
            for layout, best in self._best.items()
        }
        return {"attacks": [asdict(one) for one in self.attacks], "cheapest": cheapest}

    def table(self) -> str:
        """One line per attack, and what the cheapest accepted one costs."""
        lines = [
            f"{'layout':<9} {'attack':<42} {'cost':>7} {'found':>6} {'recall':>6} "
            f"{'hits':>5} {'needed':>6} {'accuracy':>8}  verdict"
        ]
        for one in self.attacks:
            found, recall = (
                "-" if share is None else f"{share:.2f}" for share in (one.found, one.recall)
            )
            name = one.name + (" (API)" if one.api_only else "")
            lines.append(
                f"{one.layout:<9} {name:<42} {one.cost:7.1%} {found:>6} {recall:>6} "
                f"{one.hits:5d} {one.needed:6d} {one.accuracy:8.3f}  {one.verdict}"
            )
        for layout, best in self._best.items():
            for who, attack in best.items():
                what = "none of these"
                if attack is not None:
                    what = f"{attack.name}, {attack.cost:.1%} of an honest training"
                lines.append(f"{layout}: cheapest accepted attack ({who}): {what}")
        return "\n".join(lines)


def audit(
    data: Any,
    *,
    build: Callable[[], nn.Module] | None = None,
    transform: Callable[[Any], Any] | None = None,
    epochs: int = 20,
    seed: int = 0,
    **given: Any,
) -> Audit:
    """Plays all attacks with each layout.

    Args:
        data: Training data with labels, as for `ExtraTask(like=...)`.
        build: Makes a fresh model; None: a small net that fits the data.
        transform: Makes a tensor of one input.
        epochs: Of honest training.
        seed: Of keys, initial weights and order of batches.
        given: As for `ExtraTask`: classes, kind, eta, ...; with `layout` only that one is played.

    Raises:
        UsageError: The data have no labels, or do not fit `build` and `transform`.
    """
    attacks: list[Attack] = []
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        for layout in [given["layout"]] if "layout" in given else ["jittered", "paper"]:
            # The same key for the same seed: nobody has to keep it secret here.
            key = Path(folder) / layout
            key.write_text(hashlib.sha256(f"potl audit {seed} {layout}".encode()).hexdigest())
            task = ExtraTask(key, like=data, **{**given, "layout": layout})
            if task._form.objective != "classes":
                raise UsageError("the audit plays with labelled data only", "")
            attacks += Cloud(task, data, build, transform, epochs, seed).play(layout)
    return Audit(tuple(attacks))
