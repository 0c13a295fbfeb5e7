#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/operators.md and operators_of_torch.md from the registry in potl._torch.
With --check: fails when the files are not that."""

from __future__ import annotations

import sys
from pathlib import Path

from potl._arithmetic._library import module

FOLDER = Path(__file__).resolve().parent.parent / "docs/reference"

HEAD = """# Operators

Written by `scripts/operator_table.py` from the registry that `potl.deterministic` uses; the modes
are in [arithmetic](arithmetic.md). Forms stand in brackets: overloads with a dot, `_` for in
place. `potl.explain(model, example)` prints the rows that a model of yours needs.

| runs as | meaning |
|---|---|
| exact | torch's own kernel: one IEEE operation per element, comparisons, selections, moves |
| kernel | potl's kernel, in the operations that the note names |
| composed | torch's own composition of other operators |
| refused | raises `potl.NotReproducible`; the note is the remedy |

Kernels and refused operators are below, the others in
[torch's own operators](operators_of_torch.md). What is in none of the tables: compositions that
autograd takes apart before (`linear`, `matmul`, `conv2d`, `cross_entropy`, `dropout`, ...) run as
the operators that they consist of. Forms that torch's generator derived from a listed operator
(`_copy`, `.out`) run as that. Every other operator runs, on torch's kernel, when no floating-point
number goes in or comes out, and is refused otherwise. That goes for operators of other libraries,
too, unless they are composed (`torch.library.custom_op`); of torchvision's, `nms`, `roi_align` and
`deform_conv2d` have potl's kernels. `_foreach_clone` needs torch 2.12, and `cholesky` ended
with torch 2.13: use `torch.linalg.cholesky`.

## Types
| operands | products, convolutions | everything else, in every mode |
|---|---|---|
| float32 | the mode's dot products | float32 |
| float64 | the chain of `ord32` in float64, in every mode | float64 |
| bfloat16 | `xint16` in every mode, so under autocast; rounded once | float32, rounded once |
| float16 | widened, the mode's dot products; rounded once | float32, rounded once |
| integers, booleans | torch's kernel | torch's kernel, or the default type where torch promotes |
| complex64, complex128 | real products of twice the terms | as the notes say, else refused |
| float8, quantized | refused | refused, but for copies, comparisons |

Tensors lie on the CPU, or on a GPU where an operator has a [form for it](cuda.md), strided in any
way; `channels_last` stays.
In-place and `out=` forms give the bits of the plain one, also where they write to memory that
another operand reads, such as `queue[:, 1:] = queue[:, :-1]`. Fused optimizers take float32 and
float64.
"""

HEAD_OF_TORCH = """# Torch's own operators

The operators that `potl.deterministic` leaves to torch, because every machine computes them alike.
[Operators](operators.md) explains the tables, and has potl's kernels and what is refused.
"""

# Operators that not every torch has: the page has them whatever torch writes it.
_OF_SOME = [
    ("_foreach_clone", "composed", "the operator of each tensor"),
    ("cholesky", "kernel", "as linalg_cholesky_ex"),
    ("cholesky.out", "kernel", "as linalg_cholesky_ex"),
]

# Kernels that compute products without saying so in their note.
_OF_PRODUCTS = (
    "_native_multi_head_attention",
    "_scaled_dot_product",
    "_transformer_encoder_layer_fwd",
    "mkldnn_rnn_layer",
)


def pages() -> dict[str, str]:
    """The pages by their file names."""
    here = module().operators()
    named = {name for name, _, _ in here}
    rows = sorted([*here, *(row for row in _OF_SOME if row[0] not in named)])
    notes = {name: note for name, _, note in rows}
    kernels = [(name, inherited(note, notes)) for name, runs, note in rows if runs == "kernel"]
    of_the_mode = [row for row in kernels if has_products(*row)]
    rest = [row for row in kernels if not has_products(*row)]

    def others(kind: str) -> list[tuple[str, str]]:
        return [(name, inherited(note, notes)) for name, runs, note in rows if runs == kind]

    return {
        "operators.md": HEAD
        + section("potl's kernels: dot products, which are the mode's", of_the_mode)
        + section("potl's kernels: the same in all modes", rest)
        + section("Refused, with the remedy", others("refused")),
        "operators_of_torch.md": HEAD_OF_TORCH
        + section("Kernels", others("exact"))
        + section("Compositions", others("composed")),
    }


def inherited(note: str, notes: dict[str, str]) -> str:
    """What "as NAME" stands for."""
    return notes.get(note.removeprefix("as "), note) if note.startswith("as ") else note


def has_products(name: str, note: str) -> bool:
    """Whether float32 operands are multiplied in the mode."""
    return "dot products" in note or name.startswith(_OF_PRODUCTS)


def section(title: str, rows: list[tuple[str, str]]) -> str:
    """A table with one row for all operators of one note."""
    groups: dict[str, list[str]] = {}
    for name, note in rows:
        groups.setdefault(note, []).append(name)
    lines = [f"\n## {title}", f"{len(rows)} operators.\n", "| operators | note |", "|---|---|"]
    for note, names in sorted(groups.items(), key=lambda group: group[1][0].lstrip("_")):
        escaped = note.replace("|", "\\|")
        lines.append(f"| {spelled(names)} | {escaped} |")
    return "\n".join(lines) + "\n"


def spelled(names: list[str]) -> str:
    """`exp` (.out, in place), `add` ...: forms behind their operator."""
    forms: dict[str, list[str]] = {}
    for name in names:
        base, _, overload = name.partition(".")
        plain = base.removesuffix("_") if base.removesuffix("_") in names else base
        mine = forms.setdefault(plain, [])
        if plain != base:
            mine.append("_." + overload if overload else "_")
        elif overload:
            mine.append("." + overload)
    return ", ".join(
        f"`{base}`" + (f" ({' '.join(more)})" if more else "") for base, more in forms.items()
    )


def main() -> int:
    """Exit code."""
    stale = False
    for name, text in pages().items():
        page = FOLDER / name
        if sys.argv[1:] != ["--check"]:
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            stale = True
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
