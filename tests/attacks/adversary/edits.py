# SPDX-License-Identifier: Apache-2.0
"""The edits that lies are composed of. An edit is a kind and arguments of plain values; `apply`
puts it into a draft. What it falsifies is known from what it does, not from what a verifier says.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pure_format as pure

from potl import _core

from . import nodes, values
from .forge import Back, Draft, Stray
from .worlds import EVERY, World


@dataclasses.dataclass(frozen=True)
class Edit:
    kind: str
    args: dict[str, Any]

    def apply(self, draft: Draft) -> None:
        _KINDS[self.kind].apply(draft, self.args)

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self.args.items())
        return f"{self.kind}({inside})"


@dataclasses.dataclass(frozen=True)
class Kind:
    weight: float
    draw: Callable[[World, Random], dict[str, Any]]
    apply: Callable[[Draft, dict[str, Any]], None]


_KINDS: dict[str, Kind] = {}


def _kind(
    name: str, weight: float, draw: Callable[[World, Random], dict[str, Any]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(apply: Callable[..., None]) -> Callable[..., None]:
        _KINDS[name] = Kind(weight, draw, lambda draft, args: apply(draft, **args))
        return apply

    return register


# Edits that happen while training, before those on paper.
TRAINED = ("node", "recipe", "splice", "park", "cheap")


def draw(world: World, rng: Random, trained: bool = False) -> Edit:
    names = sorted(TRAINED if trained else _KINDS)
    name = rng.choices(names, [_KINDS[one].weight for one in names])[0]
    return Edit(name, _KINDS[name].draw(world, rng))


# ---------------------------------------------------------------------- states


def _a_path(world: World, rng: Random) -> nodes.Path:
    """A node, each part of the state as likely as the others, whatever its size."""
    tree = world.honest.trees[world.last // 2]
    sections: dict[Any, list[nodes.Path]] = {}
    for path, node in nodes.nodes(tree):
        if path and node is not None:
            deep = {"model": 2, "ema": 2, "optimizers": 3}.get(path[0], 1)
            sections.setdefault(path[:deep], []).append(path)
    return rng.choice(sections[rng.choice(sorted(sections, key=str))])


def _when(world: World, rng: Random) -> list[int]:
    """One step, all steps from one on, or every boundary from one on."""
    first = rng.randint(1, world.last)
    how = rng.choice(["one", "one", "boundary", "rest", "boundaries"])
    if how == "one":
        return [first]
    first = min(world.last, -(-first // EVERY) * EVERY)
    if how == "boundary":
        return [first]
    return list(range(first, world.last + 1, 1 if how == "rest" else EVERY))


def _node_args(world: World, rng: Random) -> dict[str, Any]:
    path = _a_path(world, rng)
    change = values.draw_for(nodes.at(world.honest.trees[world.last // 2], path), rng)
    return {"steps": _when(world, rng), "path": list(path), "change": list(change)}


def _recipe_args(world: World, rng: Random) -> dict[str, Any]:
    """A number of a recipe that changes anyway, early, so that much of the training is left."""
    tree = world.honest.trees[world.last // 2]
    held: dict[str, list[nodes.Path]] = {"schedulers": [], "param_groups": [], "scaler": []}
    for path, node in nodes.nodes(tree):
        part = path[2] if len(path) > 4 and path[0] == "optimizers" else path[:1] and path[0]
        if isinstance(node, (float, int)) and part in held and "params" not in path:
            changes = any(nodes.at(other, path) != node for other in world.honest.trees[1:])
            if changes or rng.random() < 0.1:
                held[part].append(path)
    parts = [paths for paths in held.values() if paths]
    path = rng.choice(rng.choice(parts)) if parts else _a_path(world, rng)
    node = nodes.at(tree, path)
    change = values.draw_for(node, rng)
    if isinstance(node, float) and rng.random() < 0.5:
        change = ("fill", rng.choice(values.FILLS))
    return {"steps": [rng.randint(1, world.last // 2)], "path": list(path), "change": list(change)}


def _changer(draft: Draft, path: list[Any], change: list[Any]) -> Callable[[Any, int], Any]:
    place = tuple(path)

    def apply(tree: Any, step: int) -> Any:
        try:
            return nodes.replaced(
                tree,
                place,
                lambda node: values.applied(draft.world, node, tuple(change), place, step),
            )
        except KeyError:  # not there at this step
            return tree

    return apply


@_kind("node", 8, _node_args)
def _node(draft: Draft, steps: list[int], path: list[Any], change: list[Any]) -> None:
    """The state becomes another, and training goes on honestly from it."""
    for step in steps:
        draft.strays.append(Stray(step, _changer(draft, path, change)))


@_kind("recipe", 2, _recipe_args)
def _recipe(draft: Draft, steps: list[int], path: list[Any], change: list[Any]) -> None:
    """One false step leaves schedulers or scaler in a state in which true ones do what it wants."""
    _node(draft, steps, path, change)


@_kind("paper", 3, _node_args)
def _paper(draft: Draft, steps: list[int], path: list[Any], change: list[Any]) -> None:
    """Only the record holds another state."""
    for step in steps:
        draft.rewrite(step, _changer(draft, path, change))


@_kind("start", 0.5, lambda w, r: {**_node_args(w, r), "steps": [0]})
def _start(draft: Draft, steps: list[int], path: list[Any], change: list[Any]) -> None:
    """Another state before the first step."""
    draft.rewrite(0, _changer(draft, path, change))
    draft.true[0] = False


def _splice_args(world: World, rng: Random) -> dict[str, Any]:
    return {
        "step": rng.randint(1, world.last),
        "source": rng.choice(["other", "earlier", "later", "dead"]),
        "parts": rng.choice([["model"], ["model", "optimizers"], ["optimizers"], ["all"]]),
    }


@_kind("splice", 2, _splice_args)
def _splice(draft: Draft, step: int, source: str, parts: list[str]) -> None:
    """Jumps into another run, to another step, or to a net that nothing moves."""
    world = draft.world

    def change(tree: Any, here: int) -> Any:
        if source == "dead":
            return {**tree, "model": _dead(tree["model"])}
        there = {"earlier": max(1, here - 5), "later": min(world.last, here + 5)}.get(source, here)
        taken = (world.other if source == "other" else world.honest).trees[there]
        names = [one for one in tree if one != "counters"] if parts == ["all"] else parts
        return {**tree, **{name: taken[name] for name in names}}

    draft.strays.append(Stray(step, change))


def _dead(model: Any) -> Any:
    held = model.get("parameters") if isinstance(model, dict) else None
    if not isinstance(held, dict):  # another edit has taken them away
        return model
    dead = {
        name: nodes.Leaf.of(leaf.array() * 0, leaf.memory_format)
        if isinstance(leaf, nodes.Leaf)
        else leaf
        for name, leaf in held.items()
    }
    return {**model, "parameters": dead}


@_kind(
    "park",
    1.5,
    lambda w, r: {"first": r.randint(1, w.last // 2), "last": r.randint(w.last // 2 + 1, w.last)},
)
def _park(draft: Draft, first: int, last: int) -> None:
    """Parks in a net that nothing moves, and jumps back to where honest training would be."""
    world = draft.world
    draft.free |= set(range(first + 1, last))
    draft.strays.append(Stray(first, lambda tree, _: {**tree, "model": _dead(tree["model"])}))
    draft.strays.append(
        Stray(last, lambda tree, here: {**tree, "model": world.honest.trees[here]["model"]})
    )


@_kind(
    "cheap",
    4,
    lambda w, r: {
        "first": r.randint(1, w.last),
        "length": r.choice([1, 1, 2, 4, 10, 20]),
        "how": r.choice(["idle", "idle", "half", "stale"]),
    },
)
def _cheap(draft: Draft, first: int, length: int, how: str) -> None:
    """Steps that move only the counters, use half the batch, or the batch before."""
    for step in range(first, min(first + length, draft.world.last + 1)):
        draft.strays.append(Stray(step, cheap=how))


# ---------------------------------------------------------------------- boundaries and resumes


def _boundary_args(world: World, rng: Random) -> dict[str, Any]:
    how = rng.choice(["all", "some", "all", "fewer"])
    inside = [s for s in range(1, world.last) if s % EVERY]
    return {
        "more": inside if how == "all" else rng.sample(inside, 3) if how == "some" else [],
        "fewer": rng.sample(range(EVERY, world.last, EVERY), 2) if how == "fewer" else [],
    }


@_kind("boundaries", 3, _boundary_args)
def _boundaries(draft: Draft, more: list[int], fewer: list[int]) -> None:
    """States stored where none were agreed, or not where they were."""
    draft.stored = (draft.stored | set(more)) - set(fewer)


def _back_args(world: World, rng: Random) -> dict[str, Any]:
    after = rng.randint(1, world.last)
    start = rng.choice([0, (after - 1) // EVERY * EVERY, after - 1, after, rng.randint(0, after)])
    field = rng.choice(["", "", "from_step", "last_step", "number", "log_size"])
    return {
        "after": after,
        "start": start,
        "times": rng.choice([1, 1, 2, 16, 40]),
        "node": _node_args(world, rng) if rng.random() < 0.4 else None,
        "field": field,
        "value": rng.choice([0, 1, 3, 2**31, 10**9, 2**63, 2**64 - 1]),
    }


@_kind("resume", 2, _back_args)
def _back(
    draft: Draft, after: int, start: int, times: int, node: Any, field: str, value: int
) -> None:
    """Goes back to a state and on from it, over and over, after steps that may be false."""
    change = None if node is None else _changer(draft, node["path"], node["change"])
    for _ in range(times):
        draft.backs.append(Back(after, start, change, {field: value} if field else {}))


# ---------------------------------------------------------------------- records


_FIELDS: dict[str, list[str]] = {
    "Header": ["job_id", "trainer", "software"],
    "Initial": ["job_id", "state"],
    "Step": [
        "job_id", "step", "epoch", "sample_ids", "loss", "random_draws", "flags", "duration_ns",
        "state", "rates", "rounding",
    ],
    "Close": ["job_id", "step", "state", "telemetry"],
}  # fmt: skip
_WIDE = (0, 1, 2, 3, 25, 100, 10**6, 10**9, 2**31, 2**53, 2**63, 2**64 - 1)


def _field_args(world: World, rng: Random) -> dict[str, Any]:
    kind = rng.choices(["Header", "Initial", "Step", "Close"], [1, 1, 6, 1.5])[0]
    field = rng.choice(_FIELDS[kind])
    which = rng.choice([0, -1, -1, rng.randrange(world.last)])
    value: Any = rng.choice(_WIDE)
    if field in ("job_id", "trainer", "sample_ids", "state", "telemetry"):
        value = rng.choice(["zero", "random", "other"])
    elif field == "software":
        value = rng.choice(["", "x" * 1024, "\x00", "<script>alert(1)</script>"])
    elif field == "loss":
        value = rng.choice([0.0, 1e-6, 1e9, "nan", "inf", -1.0])
    elif field == "flags":
        value = rng.choice([0, 1, 2, 3, 4, 8, 11, 15])
    elif field == "rates":
        value = rng.choice([0, 1, 2, 4096, "zero", "double"])
    elif field in ("step", "epoch", "random_draws") and rng.random() < 0.3:
        value = f"{rng.choice([-1, 1])}"
    return {"kind": kind, "which": which, "field": field, "value": value}


def _changed_value(record: Any, field: str, value: Any) -> Any:
    old = getattr(record, field)
    if isinstance(old, bytes):
        digests = {"zero": bytes(32), "random": pure.sha256(old), "other": old[::-1]}
        return digests.get(value, old)
    if field == "loss":
        import struct

        return struct.unpack("<Q", struct.pack("<d", float(value)))[0]
    if field == "rates":
        if value == "zero":
            return tuple(0 for _ in old)
        if value == "double":
            return tuple(bits + (1 << 52) for bits in old)
        return (*old, *old * 4096)[:value]
    if field == "rounding":
        return (bytes(32), max(1, value % 2**28))
    if isinstance(value, str) and isinstance(old, int):
        return max(0, old + int(value))
    if field == "flags":
        return value % 2**32
    return value


@_kind("field", 3, _field_args)
def _field(draft: Draft, kind: str, which: int, field: str, value: Any) -> None:
    """Any field of any record."""

    def change(records: list[Any]) -> None:
        found = [i for i, one in enumerate(records) if type(one).__name__ == kind]
        if found:
            at = found[which % len(found) if which >= 0 else -1]
            new = _changed_value(records[at], field, value)
            records[at] = dataclasses.replace(records[at], **{field: new})

    draft.record_edits.append(change)


@_kind(
    "cut",
    1.5,
    lambda w, r: {
        "how": r.choice(["drop", "twice", "swap", "tail", "junk", "move"]),
        "place": r.randrange(w.last + 3),
    },
)
def _cut(draft: Draft, how: str, place: int) -> None:
    """Records dropped, repeated, swapped, moved, cut off, or junk between them."""

    def change(records: list[Any]) -> None:
        at = min(place, len(records) - 1)
        if how == "drop":
            del records[at]
        elif how == "twice":
            records.insert(at, records[at])
        elif how == "swap":
            other = min(at + 1, len(records) - 1)
            records[at], records[other] = records[other], records[at]
        elif how == "tail":
            del records[at + 1 :]
        elif how == "junk":
            records.insert(at, b"\x07\x01" + bytes(100))
        else:
            records.append(records.pop(at))

    draft.record_edits.append(change)


# ---------------------------------------------------------------------- files, note, model


def _file_args(world: World, rng: Random) -> dict[str, Any]:
    step = rng.choice([0, EVERY, world.last, rng.randint(0, world.last)])
    name = rng.choice(
        [f"checkpoints/step-{step}.safetensors"] * 4
        + [
            "job.json",
            "transcript.log",
            "telemetry.log",
            "commitment",
            "torch.py",
            "challenge.json",
        ]
    )
    how = rng.choice(["remove", "empty", "flip", "link", "folder", "vast", "swap", "more"])
    return {"name": name, "how": how, "where": rng.randrange(2**20)}


def _start(path: Path) -> bytes:
    """All of a file that no other edit has made vast."""
    with path.open("rb") as file:
        return file.read(1 << 24)


@_kind("file", 2, _file_args)
def _file(draft: Draft, name: str, how: str, where: int) -> None:
    """Files removed, added, damaged, vast, swapped, or links."""

    def change(run: Path) -> None:
        path = run / name
        if path.is_dir():
            return
        data = _start(path) if path.is_file() else b""
        if how == "remove":
            path.unlink(missing_ok=True)
        elif how == "link":
            target = run.parent / f"{run.name}-{path.name}"
            target.write_bytes(data)
            path.unlink(missing_ok=True)
            path.symlink_to(target)
        elif how == "folder":
            path.unlink(missing_ok=True)
            path.mkdir()
        elif how == "vast":
            path.write_bytes(data)
            os.truncate(path, 1 << 40)
        elif how == "flip" and data:
            at = where % len(data)
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        elif how == "swap":
            others = sorted((run / "checkpoints").iterdir())
            if others:
                path.write_bytes(_start(others[where % len(others)]))
        elif how == "more":
            path.write_bytes(data + bytes(where % 1000))
        elif how == "empty":
            path.write_bytes(b"")

    draft.file_edits.append(change)


@_kind(
    "note",
    0.7,
    lambda w, r: {
        "field": r.choice(["size", "root", "extensions", "origin", "key"]),
        "value": r.choice([0, 1, 25, 2**63 - 1]),
    },
)
def _note(draft: Draft, field: str, value: int) -> None:
    """Another commitment, signed."""

    def change(note: dict[str, Any]) -> None:
        if field == "size":
            note["size"] = value
        elif field == "root":
            note["root"] = pure.sha256(note["root"])
        elif field == "extensions":
            note["extensions"] = [[], ["open"], [f"final {'0' * 64}"], ["x"]][value % 4]
        elif field == "origin":
            note["origin"] = "potl/v1/" + "0" * 64
        else:
            note["key"] = _core.SigningKey.generate()

    draft.note_edits.append(change)


def _model_args(world: World, rng: Random) -> dict[str, Any]:
    tree = world.honest.trees[-1]["model"]
    name = rng.choice([*tree["parameters"], *tree["buffers"]])
    return {
        "name": name,
        "change": rng.choice(
            [["drop", 0], ["scale", 2.0], ["one", 0.0], ["shift", 1e-6], ["dtype", "F64"],
             ["shape", None], ["extra", 0], ["flip", 3], ["integer", 7]]
        ),
    }  # fmt: skip


@_kind("model", 1, _model_args)
def _model(draft: Draft, name: str, change: list[Any]) -> None:
    """The delivered file holds other, fewer or more tensors."""

    def edit(tensors: dict[str, Any]) -> None:
        if change[0] == "drop":
            tensors.pop(name, None)
        elif change[0] == "extra" and name in tensors:
            tensors[f"{name}.extra"] = tensors[name]
        elif name in tensors:
            place = ("model", "parameters", name)
            new = values.applied(draft.world, tensors[name], tuple(change), place, 0)
            if isinstance(new, nodes.Leaf):
                tensors[name] = new

    draft.model_edits.append(edit)
