# SPDX-License-Identifier: Apache-2.0
"""The table of docs/reference/extra_task_audit.md: `potl extra-task audit` on 1,797 real images.

    scripts/experiment extra_task_audit [--write]

The same seed gives the same keys, data and weights. Without --write the table is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/extra_task_audit.md"
BEGIN, END = "<!-- audit: digits -->\n", "<!-- end -->\n"
EPOCHS = 30


def audited() -> dict[str, Any]:
    """What the command reports."""
    with tempfile.TemporaryDirectory() as folder:
        pixels, labels = load_digits(return_X_y=True)
        data = Path(folder) / "train.npz"
        np.savez(data, x=(pixels.reshape(-1, 8, 8) * 15).astype(np.uint8), y=labels)
        words = ["extra-task", "audit", str(data), "--epochs", str(EPOCHS), "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "potl", *words], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def row(one: Mapping[str, Any]) -> str:
    recall = "" if one["recall"] is None else f"{one['recall']:.2f}"
    name = one["name"] + (" (API)" if one["api_only"] else "")
    return (
        f"| {one['layout']} | {name} | {100 * one['cost']:.0f} % | {recall} | {one['hits']} | "
        f"{one['needed']} | {one['accuracy']:.3f} | {one['verdict']} |"
    )


def section(report: Mapping[str, Any]) -> str:
    lines = [
        "| layout | attack | cost | recall | hits | needed | accuracy | verdict |",
        "|---|---|---|---|---|---|---|---|",
        *map(row, report["attacks"]),
        "",
    ]
    for layout, best in report["cheapest"].items():
        told = [
            f"{who}: " + ("none" if one is None else f"{one['name']}, {100 * one['cost']:.0f} %")
            for who, one in best.items()
        ]
        lines.append(f"Cheapest accepted, {layout}: {'; '.join(told)}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    write = parser.parse_args().write
    text = section(audited())
    print(text)
    if write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not end:
            raise SystemExit(f"{PAGE} has no place for the table")
        PAGE.write_text(before + BEGIN + text + END + after)


if __name__ == "__main__":
    main()
