#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the option tables of docs/ from the field tables in C++. `--check` only compares.

The table of check NAME replaces what lies between `<!-- options: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from potl import _core

BLOCK = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


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


def table(name: str) -> str:
    """The field table of one check in Markdown."""
    lines = ["| option | type | default | range | meaning |", "|---|---|---|---|---|"]
    for row in _core.check_fields(name):
        cells = [f"`{row['name']}`", row["type"], value_text(row["default"]), range_text(row)]
        lines.append("| " + " | ".join([*cells, row["doc"]]) + " |")
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    """`text` with every table as it should be."""
    return BLOCK.sub(lambda found: found[1] + table(found[2]) + found[3], text)


def main() -> int:
    """0 if nothing had to be, or was to be, changed."""
    stale = []
    for page in sorted((Path(__file__).parent.parent / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if rewritten(text) != text:
            stale.append(page)
            if "--check" not in sys.argv:
                page.write_text(rewritten(text), encoding="utf-8")
    print(*(f"{page.name} is stale" for page in stale), sep="\n")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
