# SPDX-License-Identifier: Apache-2.0
"""What no verdict may say, found without asking the judge.

Honest training in an exact arithmetic has one result, so what is accepted must be that. In stock
arithmetic the distance of a falsified transition from honest ones is measured with NumPy, against
the distances of honest ones from each other. Where the draw misses what is false, the rest of the
run must still have trained.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pure_format as pure

from . import nodes
from .forge import Draft, install
from .worlds import EVERY, World

LOOSENESS = 20
_ULPS = 4
# Where honest ends differ by this share of the largest element, all is noise, with long tails.
_NOISY, _ALL_NOISE = 0.05, 1000
# A step that moves the weights less than this share of the honest step trains nothing.
_MOVES = 0.01
_IDLE_SHARE = 0.25


def false_claims(draft: Draft, hidden: bool, delivered: dict[str, Any]) -> Iterator[str]:
    """What is wrong with accepting this run. Empty: nothing.

    Args:
        draft: The lie.
        hidden: Whether the draw missed what is false.
        delivered: The tensors of the delivered file.
    """
    world = draft.world
    yield from _delivered(draft, delivered)
    if hidden:
        yield from _idle(draft)
        return
    yield from _claims(draft)
    if world.exact:
        wanted = _model(world.honest.trees[-1])
        got = _model(draft.states[-1])
        if wanted != got:
            yield "delivered: other bits than those of honest training"
        return
    for start, end in draft.false_segments():
        found = _beyond(draft, start, end)
        if found is not None:
            yield f"tolerance: steps {start + 1} to {end}: {found}"


def _model(tree: Any) -> dict[str, Any]:
    model = tree["model"]
    return {**model["parameters"], **model["buffers"]}


def _delivered(draft: Draft, delivered: dict[str, Any]) -> Iterator[str]:
    """The file holds exactly the tensors of the last recorded state."""
    try:
        wanted = _model(draft.states[-1])
    except (KeyError, TypeError):
        yield "file: the last state has no model"
        return
    if delivered != wanted:
        names = [n for n in {*wanted, *delivered} if wanted.get(n) != delivered.get(n)]
        yield f"file: {sorted(names)} differ from the last recorded state"


def _claims(draft: Draft) -> Iterator[str]:
    """Every logged loss, rate, epoch and batch is that of honest training."""
    world, job = draft.world, draft.world.job.core
    steps = {one.step: one for one in draft.written if isinstance(one, pure.Step)}
    if sorted(steps) != list(range(1, world.last + 1)):
        yield "claims: other steps than agreed"
        return
    for step, record in steps.items():
        honest = draft.results[step - 1]
        same = world.honest.results[step - 1] if world.exact else honest
        loss = struct.unpack("<d", struct.pack("<Q", record.loss))[0]
        allowed = 0.0 if world.exact else 1e-3 * (1 + abs(same.loss))
        if not abs(loss - same.loss) <= allowed:
            yield f"claims: the loss of step {step} is logged as {loss}, not {same.loss}"
            return
        rates = tuple(struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in record.rates)
        agreed = world.honest.results[step - 1].rates
        known = world.exact or job.rates_at(step) is not None
        if known and not np.allclose(rates, agreed, rtol=1e-9, atol=0):
            yield f"claims: the rates of step {step} are logged as {rates}"
            return
        ids = pure.digest_of_ids(job.sample_ids(step))
        if record.sample_ids != ids or record.epoch != job.epoch_of(step):
            yield f"claims: step {step} names another batch or epoch"
            return


def _idle(draft: Draft) -> Iterator[str]:
    """True transitions that train nothing: what a false one, which nobody saw, has bought."""
    world = draft.world
    false = {s for a, b in draft.false_segments() for s in range(a + 1, b + 1)}
    idle = 0
    for step in range(1, world.last + 1):
        if step in false:
            continue
        if step in draft.free:
            idle += 1
            continue
        try:
            here = _movement(draft.states[step - 1], draft.states[step])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        honest = _movement(world.honest.trees[step - 1], world.honest.trees[step])
        idle += here < _MOVES * honest
    if idle > _IDLE_SHARE * world.last:
        yield f"idle: {idle} of {world.last} steps, all of them true, train nothing or cost nothing"


def _movement(before: Any, after: Any) -> float:
    total = 0.0
    for name, leaf in after["model"]["parameters"].items():
        old = before["model"]["parameters"][name].array()
        total += float(np.square(leaf.array().astype(float) - old.astype(float)).sum())
    return math.sqrt(total)


# ---------------------------------------------------------------------- stock arithmetic


def _beyond(draft: Draft, start: int, end: int) -> str | None:
    """Where the recorded end of a segment is further from honest ones than they from each other."""
    world = draft.world
    if start == 0 and not draft.true[0]:
        found = nodes.digest(draft.states[0]) != world.honest.digest(0)
        return "the run starts elsewhere" if found else None
    try:
        ends = continuations(world, draft.states[start], start, end)
    except Exception as error:  # nobody can train on from there
        return f"{type(error).__name__}: {error}"
    here = spread(ends)
    usual = usual_spread(world)
    return first_beyond(draft.states[end], ends[0], here, usual)


def continuations(world: World, tree: Any, start: int, end: int) -> list[Any]:
    """Honest ends of a segment: as agreed, with the batches in another order, and in another
    arithmetic.
    """
    session = world.session
    ends = []
    try:
        with session.active():
            for variant in ("", *(["reversed"] * world.order_is_free), "ord32", "cr32"):
                install(session, tree)
                session._arithmetic.name = (
                    variant if variant in ("ord32", "cr32") else world.arithmetic
                )
                try:
                    for step in range(start + 1, end + 1):
                        ids = session.sample_ids(step)
                        used = ids[::-1] if variant == "reversed" else ids
                        session.run_step(step, world.batch(step, used))
                except Exception:
                    if not variant:
                        raise
                    continue
                ends.append(nodes.plain(session.capture().tree()))
    finally:
        world.renew()
    return ends


def spread(ends: list[Any]) -> dict[str, float]:
    """The largest difference of any element of a tensor, or of a number, among honest ends."""
    out: dict[str, float] = {}
    first = dict(_values(ends[0]))
    for other in ends[1:]:
        for path, value in _values(other):
            if path in first:
                out[path] = max(out.get(path, 0.0), _distance(value, first[path]))
    return out


@functools.cache
def usual_spread(world: World) -> dict[str, float]:
    """The same over all segments of the honest run."""
    out: dict[str, float] = {}
    for start in range(0, world.last, EVERY):
        end = min(start + EVERY, world.last)
        found = spread(continuations(world, world.honest.trees[start], start, end))
        for path, value in found.items():
            out[path] = max(out.get(path, 0.0), value)
    return out


def first_beyond(
    recorded: Any, honest: Any, here: dict[str, float], usual: dict[str, float]
) -> str | None:
    got, wanted = dict(_values(recorded)), dict(_values(honest))
    for path in sorted(got.keys() ^ wanted.keys()):
        return f"{path} is there on one side alone"
    for path, value in got.items():
        distance = _distance(value, wanted[path])
        noise = max(here.get(path, 0.0), usual.get(path, 0.0))
        size = _size(wanted[path])
        # A bias in front of a norm has gradients of rounding alone, however they are added up.
        allowed = (_ALL_NOISE if noise > _NOISY * size else LOOSENESS) * noise
        allowed = max(allowed, _ULPS * _roundoff(wanted[path]) * size)
        if not distance <= allowed:
            return f"{path} is {distance:.3g} off, allowed are {allowed:.3g}"
    return None


def _values(tree: Any) -> Iterator[tuple[str, Any]]:
    for path, node in nodes.nodes(tree):
        if not isinstance(node, (dict, list, tuple)):
            yield nodes.text(path), node
        elif not node:
            yield nodes.text(path), type(node).__name__


def _distance(a: Any, b: Any) -> float:
    if isinstance(a, nodes.Leaf) and isinstance(b, nodes.Leaf):
        if (a.dtype, a.dims, a.memory_format) != (b.dtype, b.dims, b.memory_format):
            return math.inf
        if a.data == b.data:
            return 0.0
        if a.dtype[0] != "F":
            return math.inf
        x, y = a.array().astype(float), b.array().astype(float)
        with np.errstate(all="ignore"):
            apart = np.abs(x - y)
        apart[x == y] = 0
        return float(np.nan_to_num(apart, nan=math.inf).max())
    if type(a) is float and type(b) is float:
        if a.hex() == b.hex():
            return 0.0
        apart = abs(a - b)
        return math.inf if math.isnan(apart) else apart
    return 0.0 if type(a) is type(b) and a == b else math.inf


def _size(value: Any) -> float:
    """The largest finite element."""
    if isinstance(value, nodes.Leaf) and value.dtype[0] == "F":
        array = value.array()
        return float(np.abs(array[np.isfinite(array)]).max(initial=0))
    return abs(value) if type(value) is float and math.isfinite(value) else 0.0


def _roundoff(value: Any) -> float:
    if isinstance(value, nodes.Leaf) and value.dtype[0] == "F":
        return float(np.finfo(value.array().dtype).eps)
    return 2.5e-10  # rates are computed with the mathematical library of whoever trains
