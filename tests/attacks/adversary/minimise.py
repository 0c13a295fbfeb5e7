# SPDX-License-Identifier: Apache-2.0
"""Drops what a finding does not need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from .edits import Edit
from .generate import Lie
from .play import play


def minimised(one: Lie, played: Callable[[Lie], set[str]] | None = None) -> Lie:
    """The smallest lie on the way down that is still found in the same way."""
    ask = played or _kinds
    wanted = ask(one)
    if not wanted:
        return one
    going = True
    while going:
        going = False
        for smaller in _smaller(one):
            if ask(smaller) & wanted:
                one, going = smaller, True
                break
    return one


def _kinds(one: Lie) -> set[str]:
    return {finding.split(":")[0] for finding in play(one).findings}


def _smaller(one: Lie) -> Iterator[Lie]:
    for index in range(len(one.edits)):
        yield one.without(index)
    for index, edit in enumerate(one.edits):
        steps = edit.args.get("steps", [])
        if len(steps) > 1:
            for part in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
                yield _with(one, index, Edit(edit.kind, {**edit.args, "steps": part}))


def _with(one: Lie, index: int, edit: Edit) -> Lie:
    edits = (*one.edits[:index], edit, *one.edits[index + 1 :])
    return dataclasses.replace(one, edits=edits)
