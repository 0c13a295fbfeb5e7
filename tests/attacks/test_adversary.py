# SPDX-License-Identifier: Apache-2.0
"""Lies made at random: none may be accepted, be dear, or end in an exception (adversary/)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from .adversary import generate, oracle, play, pool, worlds
from .adversary.edits import Edit
from .adversary.forge import Draft
from .conftest import rule_off

FULL = os.environ.get("POTL_FULL") == "1"
LIES, SPARSE, SHARE = (20_000, 4_000, 500) if FULL else (300, 50, 150)
# The lies of `make test-full` are other ones.
FIRST = 1_000_000 if FULL else 0
# First and last of what one process plays: each of them makes honest runs of all worlds before.
SHARES = [
    (first, min(first + SHARE, begin + count) - 1)
    for begin, count in ((FIRST, LIES), (generate.SPARSE + FIRST, SPARSE))
    for first in range(begin, begin + count, SHARE)
]


@pytest.mark.parametrize(("first", "last"), SHARES)
def test_no_lie_is_accepted(first: int, last: int, capsys: pytest.CaptureFixture[str]) -> None:
    played = pool.play_many(first, last + 1)
    with capsys.disabled():
        print(f"\n{played}")
    assert played.count == last + 1 - first
    assert not played.found, f"{pool.minimised([row['seed'] for row in played.found[:5]])}"


@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_a_lie_is_reproduced_by_its_seed(seed: int) -> None:
    assert str(generate.lie(seed)) == str(generate.lie(seed))


# ---------------------------------------------------------------------- the oracle itself


def a_lie(world: str, *edits: Edit, hidden: bool = False) -> generate.Lie:
    return generate.Lie(-1, world, hidden, edits)


def node(steps: list[int], path: str, change: list[Any]) -> Edit:
    keys = [int(key) if key.isdecimal() else key for key in path.split("/")]
    return Edit("node", {"steps": steps, "path": keys, "change": change})


# What is false, the rule that stops it, and what the oracle says when that rule is off.
LOOPHOLES: dict[str, tuple[generate.Lie, str, str]] = {
    "weights, at the end of a segment": (
        a_lie("cycle.ord32", node([6], "model/parameters/0.weight", ["scale", 2.0])),
        "replay.parameters",
        "delivered",
    ),
    "running statistics": (
        a_lie("cycle.stock", node([8], "model/buffers/1.running_var", ["scale", 2.0])),
        "replay.buffers",
        "tolerance",
    ),
    "momentum": (
        a_lie("cycle.stock", node([8], "optimizers/0/state/0/momentum_buffer", ["shift", 1.0])),
        "replay.optimizer",
        "tolerance",
    ),
    "a logged loss": (
        a_lie(
            "warm.ord32",
            Edit("field", {"kind": "Step", "which": 7, "field": "loss", "value": 0.0}),
        ),
        "loss.recomputed",
        "claims",
    ),
    "the delivered file": (
        a_lie("warm.ord32", Edit("model", {"name": "0.bias", "change": ["shift", 0.1]})),
        "model.delivered",
        "file",
    ),
}


@pytest.mark.parametrize("name", LOOPHOLES)
def test_the_oracle_sees_what_a_verifier_without_a_rule_accepts(name: str) -> None:
    lie, rule, kind = LOOPHOLES[name]
    assert play.play(lie).verdict == "rejected"
    with rule_off(rule):
        outcome = play.play(lie)
    assert outcome.verdict == "accepted", outcome.sentence
    assert {found.split(":")[0] for found in outcome.findings} & {kind}, outcome.findings


@pytest.mark.parametrize("world", worlds.NAMES + worlds.SPARSE)
def test_honest_runs_are_accepted_and_not_found(world: str) -> None:
    outcome = play.play(a_lie(world))
    assert (outcome.verdict, outcome.findings) == ("accepted", ())


@pytest.mark.parametrize("world", worlds.NAMES + worlds.SPARSE)
def test_other_draws_accuse_no_honest_run_and_no_other_machine(world: str) -> None:
    steps, _ = play.honest_cost(worlds.world(world))  # raises where one is rejected
    assert steps > 0


@pytest.mark.parametrize("world", [name for name in worlds.NAMES if name.endswith("stock")])
def test_the_oracle_allows_what_another_machine_would_round(world: str) -> None:
    """All of its segments called false, another machine's run is within its bounds."""
    it = worlds.world(world)
    assert it.foreign is not None
    draft = Draft(it)
    draft.states, draft.results = list(it.foreign.trees), list(it.foreign.results)
    draft.true = [True, *[False] * it.last]
    draft.written = draft.records()
    model = draft.states[-1]["model"]
    delivered = {**model["parameters"], **model["buffers"]}
    assert list(oracle.false_claims(draft, False, delivered)) == []


def played(kinds: dict[str, set[str]]) -> Callable[[generate.Lie], set[str]]:
    """A player that finds whatever holds an edit of some kind."""

    def ask(lie: generate.Lie) -> set[str]:
        return {name for name, needed in kinds.items() if needed <= {e.kind for e in lie.edits}}

    return ask


def test_what_a_finding_does_not_need_is_dropped() -> None:
    from .adversary.minimise import minimised

    many = [node([2, 4, 6, 8], "model", ["remove", 0]), *(Edit(k, {}) for k in ("a", "b", "c"))]
    small = minimised(a_lie("cycle.ord32", *many), played({"found": {"b", "node"}}))
    assert [edit.kind for edit in small.edits] == ["node", "b"]
    assert len(small.edits[0].args["steps"]) == 1
