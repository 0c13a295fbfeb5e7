# SPDX-License-Identifier: Apache-2.0
"""Lies, drawn from a seed."""

from __future__ import annotations

import dataclasses
from random import Random

from . import edits, worlds
from .edits import Edit
from .forge import Draft

SPARSE = 10_000_000


@dataclasses.dataclass(frozen=True)
class Lie:
    seed: int
    world: str
    hidden: bool
    """Whether the draw, half of the segments, misses what is false: then one asks what the rest of
    the run is worth.
    """
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        how = "hidden" if self.hidden else "all drawn"
        return f"{self.seed} {self.world} ({how}): " + "; ".join(map(str, self.edits))

    def without(self, index: int) -> Lie:
        rest = self.edits[:index] + self.edits[index + 1 :]
        return dataclasses.replace(self, edits=rest)


def lie(seed: int) -> Lie:
    """The lie with this number; one in twenty is none. From `SPARSE` on runs store few states."""
    rng = Random(f"potl adversary {seed}")
    name = rng.choice(worlds.SPARSE if seed >= SPARSE else worlds.NAMES)
    world = worlds.world(name)
    hidden = rng.random() < 0.3
    count = rng.choices([0, 1, 2, 3, 4], [1, 16, 3, 0, 0] if hidden else [1, 8, 6, 3, 2])[0]
    chosen = tuple(edits.draw(world, rng, trained=hidden) for _ in range(count))
    return Lie(seed, name, hidden, chosen)


def draft_of(one: Lie) -> Draft:
    """The lie, trained."""
    draft = Draft(worlds.world(one.world))
    for edit in one.edits:
        if edit.kind in edits.TRAINED:
            edit.apply(draft)
    draft.train()
    for edit in one.edits:
        if edit.kind not in edits.TRAINED:
            edit.apply(draft)
    return draft
