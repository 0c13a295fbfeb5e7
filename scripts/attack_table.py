#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the generated parts of docs/reference/attacks.md. `--check` only compares.

The catalogue replaces what lies between `<!-- attacks -->` and `<!-- end -->`; the rules that no
forgery of it is about replace what lies between `<!-- unproven -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from potl import _core
from potl._attacks import catalogue

TARGET = Path(__file__).resolve().parent.parent / "docs/reference/attacks.md"
BLOCK = re.compile(r"(<!-- (attacks|unproven) -->\n).*?(<!-- end -->)", re.DOTALL)


def attacks() -> str:
    """The catalogue in Markdown."""
    items = catalogue()
    shown = sum(item.in_demo for item in items)
    lines = [
        f"{len(items)} forgeries; {shown} of them are in the demo.",
        "",
        "| id | name | what the forger does | stopped by | in the demo |",
        "|---|---|---|---|---|",
    ]
    for item in items:
        demo = "yes" if item.in_demo else "no"
        doubt = "; inconclusive" if item.verdict == "inconclusive" else ""
        lines.append(f"| {item.id} | {item.name} | {item.how} | `{item.rule}`{doubt} | {demo} |")
    return "\n".join(lines) + "\n"


def unproven() -> str:
    """The rules that no forgery of the catalogue is about, with their meaning."""
    proven = {item.rule for item in catalogue()}
    lines = ["| rule | meaning |", "|---|---|"]
    lines += [f"| `{rule}` | {meaning} |" for rule, meaning in _core.rules() if rule not in proven]
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    """`text` with its generated parts as they should be."""
    parts = {"attacks": attacks, "unproven": unproven}
    return BLOCK.sub(lambda found: found[1] + parts[found[2]]() + found[3], text)


def main() -> int:
    """0 if nothing had to be, or was to be, changed."""
    text = TARGET.read_text(encoding="utf-8")
    right = rewritten(text)
    if right == text:
        return 0
    if "--check" in sys.argv:
        print("docs/reference/attacks.md is stale: run scripts/attack_table.py")
        return 1
    TARGET.write_text(right, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
