#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/ that say what the code has. `--check` only compares.

Each replaces what lies between its mark and `<!-- end -->`. `<!-- options: NAME -->` is for the
options of check NAME, from the field tables in C++; `<!-- attacks -->` for the catalogue;
`<!-- unproven -->` for the rules that no forgery of it is about.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from potl import _core
from potl._attacks import catalogue

BLOCK = re.compile(
    r"(<!-- (?:options: (\w+)|(attacks|unproven)) -->\n).*?(<!-- end -->)", re.DOTALL
)


def value_text(value: Any) -> str:
    """A default, as a reader would write it."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, str) else f"{value:g}"


def range_text(row: dict[str, Any]) -> str:
    """What a value may be."""
    if row["choices"]:
        return ", ".join(f"`{choice}`" for choice in row["choices"])
    low, high = row["low"], row["high"]
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return "" if low is None else f"at least {low:g}"


def options(name: str) -> str:
    """The field table of one check in Markdown."""
    lines = ["| option | type | default | range | meaning |", "|---|---|---|---|---|"]
    for row in _core.check_fields(name):
        cells = [f"`{row['name']}`", row["type"], value_text(row["default"]), range_text(row)]
        lines.append("| " + " | ".join([*cells, row["doc"]]) + " |")
    return "\n".join(lines) + "\n"


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


def written(found: re.Match[str]) -> str:
    """A block as it should be."""
    start, check, other, end = found.groups()
    table = options(check) if check else {"attacks": attacks, "unproven": unproven}[other]()
    return start + table + end


def main() -> int:
    """0 if nothing had to be, or was to be, changed."""
    stale = []
    for page in sorted((Path(__file__).parent.parent / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        right = BLOCK.sub(written, text)
        if right != text:
            stale.append(page)
            if "--check" not in sys.argv:
                page.write_text(right, encoding="utf-8")
    print(*(f"{page.name} is stale: run scripts/docs_tables.py" for page in stale), sep="\n")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
