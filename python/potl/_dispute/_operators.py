# SPDX-License-Identifier: Apache-2.0
"""The operators of one step: what they are, what they read, and, where they were executed, the
content of what they returned. docs/format/operator_trace.md has the bytes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import _core
from .._base._errors import UsageError
from .._task._values import Tree
from ._encoding import Reference, TensorOutline, encode, leaves, mapped, state_digest

CAPTURE = "capture"
_LEAF = b"potl.operator.v1\0"
# Bytes of a structure by which a party says which program it ran.
MARK = 4
_STRUCTURE = b"potl.operator.structure.v1\0"


@dataclass(frozen=True)
class Operator:
    """One operator of a step.

    Attributes:
        name: With its overload: "aten.mm.default". The last operator of a step is "capture".
        arguments: By the name in the operator's schema, operands as `Reference`.
        results: What it returned, then what it wrote: an outline for each tensor, and other values
            as they are. The content roots of derived operators are None.
        generator: For operators that draw: the state of torch's generator before.
        drawn: Digest of that state, where nothing but the digest is known.
        rounded: In log64, of operators that round: the place of their first element in the step's
            rounding log, and how many there are.
        inputs: The forms of `operands`, with their content roots where these are known. Wiring says
            the same, so they are not part of the encoding.
    """

    name: str
    arguments: Tree
    results: tuple[Any, ...]
    generator: bytes | None = field(default=None, repr=False)
    inputs: tuple[TensorOutline, ...] = field(default=(), repr=False)
    drawn: bytes | None = field(default=None, repr=False)
    rounded: tuple[int, int] | None = None

    @property
    def description(self) -> bytes:
        """Everything but the contents of the results."""
        results = [_form(one) for one in self.results]
        drawn = self.drawn if self.generator is None else _core.sha256(self.generator)
        rounded = [] if self.rounded is None else [list(self.rounded)]
        return encode([self.name, self.arguments, results, drawn, *rounded])

    @functools.cached_property
    def structure(self) -> bytes:
        """SHA-256 of the description."""
        return _core.sha256(_STRUCTURE + self.description)

    @functools.cached_property
    def leaf(self) -> bytes:
        """The leaf hash of an executed operator."""
        return leaf_of(self.structure, [one.root or bytes(32) for one in self.tensors])

    @property
    def tensors(self) -> list[TensorOutline]:
        """The results that are tensors."""
        return [one for one in self.results if isinstance(one, TensorOutline)]

    @property
    def operands(self) -> list[Reference]:
        """What it reads, in the order of the schema."""
        found = itertools.chain.from_iterable(map(leaves, self.arguments.values()))
        return [leaf for _, leaf in found if isinstance(leaf, Reference)]

    def difference(self, other: Operator) -> str | None:
        """What `other` is besides another content: "another operator", "another attribute",
        "another wiring" or "another form of result"; None where both are one operator.
        """
        if self.structure == other.structure:
            return None
        if self.name != other.name:
            return f"another operator, {other.name}"
        if _form_of(self.results) != _form_of(other.results):
            return "another form of result"
        mine, theirs = (dict(leaves(one.arguments)) for one in (self, other))
        if mine.keys() != theirs.keys():
            return "another attribute"
        for path, value in mine.items():
            if encode(value) != encode(theirs[path]):
                wired = isinstance(value, Reference) or isinstance(theirs[path], Reference)
                return f"another {'wiring' if wired else 'attribute'}, {path}"
        if self.rounded != other.rounded:
            return "another place in the rounding log"
        return "another place in the sequence of random numbers"


def leaf_bytes(operator: Operator) -> bytes:
    """What the leaf of an executed operator is the hash of."""
    roots = [one.root or bytes(32) for one in operator.tensors]
    return _LEAF + operator.structure + b"".join(roots)


def leaf_parts(operator: Operator, leaf: bytes) -> list[bytes] | None:
    """The content roots in the bytes of a leaf; None where it is the leaf of another operator."""
    head = _LEAF + operator.structure
    if not leaf.startswith(head) or len(leaf) != len(head) + 32 * len(operator.tensors):
        return None
    return [leaf[at : at + 32] for at in range(len(head), len(leaf), 32)]


def marks_of(leaves: Sequence[bytes]) -> bytes:
    """Four bytes of the structure of each leaf."""
    at = len(_LEAF)
    return b"".join(leaf[at : at + MARK] for leaf in leaves)


def leaf_of(structure: bytes, roots: Sequence[bytes]) -> bytes:
    """The leaf hash of an operator whose results have these content roots."""
    return _core.leaf_hash(_LEAF + structure + b"".join(roots))


@dataclass(frozen=True)
class ValueTrace:
    """The executed operators of a step.

    Attributes:
        step: 1-based.
        before: Digest of the state before the step.
        after: Digest of the state after it.
        operators: In the order of execution; the last is "capture".
    """

    step: int
    before: bytes
    after: bytes
    operators: tuple[Operator, ...]

    @functools.cached_property
    def tree(self) -> _core.MerkleTree:
        """The RFC 6962 tree over the leaves."""
        tree = _core.MerkleTree()
        for one in self.operators:
            tree.append(one.leaf)
        return tree

    @property
    def root(self) -> bytes:
        """The root over all leaves."""
        return self.tree.root()

    def first_difference(self, other: ValueTrace) -> int | None:
        """The first operator, from 0, that is another one or gave another result; None when all
        agree.

        Raises:
            UsageError: The traces are of different steps, or start from different states.
        """
        if (self.step, self.before) != (other.step, other.before):
            raise UsageError(
                "the two traces do not start from the same state", "trace one step from one state"
            )
        pairs = zip(self.operators, other.operators, strict=False)
        for index, (mine, theirs) in enumerate(pairs):
            if mine.leaf != theirs.leaf:
                return index
        shorter = min(len(self.operators), len(other.operators))
        return None if len(self.operators) == len(other.operators) else shorter


def structural_difference(
    own: Sequence[Operator], other: Sequence[Operator]
) -> tuple[int, str] | None:
    """The first operator, from 0, at which `other` is another program, and what is other there."""
    for index, (mine, theirs) in enumerate(zip(own, other, strict=False)):
        what = mine.difference(theirs)
        if what is not None:
            return index, what
    if len(own) != len(other):
        return min(len(own), len(other)), f"{len(other)} operators instead of {len(own)}"
    return None


def captured_digest(capture: Operator, outlines: Sequence[TensorOutline]) -> bytes:
    """The state digest that the operator "capture" makes of its operands.

    Args:
        capture: The last operator of a trace.
        outlines: Its operands, in the order of `Operator.operands`.
    """
    given = iter(outlines)

    def assembled(path: str, leaf: Any) -> Any:
        return next(given) if isinstance(leaf, Reference) else leaf

    def formatted(tree: Any) -> Any:
        if type(tree) is dict:
            return {key: formatted(value) for key, value in tree.items()}
        if type(tree) is tuple and len(tree) == 2 and isinstance(tree[0], TensorOutline):
            return replace(tree[0], memory_format=tree[1])
        if type(tree) in (list, tuple):
            return type(tree)(formatted(item) for item in tree)
        return tree

    return state_digest(formatted(mapped(capture.arguments["state"], assembled)))


def _form(result: Any) -> Any:
    return replace(result, root=None) if isinstance(result, TensorOutline) else result


def _form_of(results: Sequence[Any]) -> bytes:
    return encode([_form(one) for one in results])
