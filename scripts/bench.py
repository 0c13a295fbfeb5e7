#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks/<stem>_bench.cpp or .py and prints one table of what they wrote.

A stem stands for its own benchmark and for those whose names begin with it: "extra_task" runs
extra_task_bench.cpp and extra_task_verify_bench.py.

Each benchmark writes build/bench/<stem>.json: {"machine": {...}, "results": [{"name", "value",
"unit", "baseline", "ratio", ...}]}, where a result may name a bound for its ratio or value as
"at_least" or "at_most". POTL_BENCH_DIR names the folder; POTL_BENCH_FULL=1 asks for long runs.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build/bench"


def benchmarks() -> dict[str, list[str]]:
    """Stem -> command."""
    found: dict[str, list[str]] = {}
    for source in sorted((ROOT / "benchmarks").glob("*_bench.*")):
        stem = source.name.split("_bench.")[0]
        if source.suffix == ".cpp":
            found[stem] = [str(ROOT / "build/benchmarks" / f"{stem}_bench")]
        elif source.suffix == ".py":
            found[stem] = [sys.executable, str(source)]
    return found


def chosen_of(known: dict[str, list[str]], stem: str) -> list[str]:
    """All benchmarks that a stem stands for; all there are when it is empty."""
    return [name for name in known if not stem or name == stem or name.startswith(stem + "_")]


def bound(result: dict[str, Any]) -> str:
    """What was asked for, and whether it was reached."""
    measured = result.get("ratio")
    if measured is None:
        measured = result["value"]
    if "at_least" in result:
        met, text = measured >= result["at_least"], f">= {result['at_least']:g}"
    elif "at_most" in result:
        met, text = measured <= result["at_most"], f"<= {result['at_most']:g}"
    else:
        return ""
    return f"{text} {'met' if met else 'MISSED'}"


def row(result: dict[str, Any]) -> list[str]:
    ratio = result.get("ratio")
    return [
        result["name"],
        f"{result['value']:.4g} {result['unit']}",
        "" if ratio is None else f"{ratio:.3f}",
        bound(result),
        str(result.get("baseline", "")),
    ]


def table(documents: list[dict[str, Any]]) -> str:
    rows = [["name", "value", "ratio", "asked for", "baseline"]]
    rows += [row(result) for document in documents for result in document["results"]]
    widths = [max(len(cells[column]) for cells in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stem", default="", help="one subject; all of them when empty")
    parser.add_argument("--full", default="", help="1: long runs")
    arguments = parser.parse_args()
    known = benchmarks()
    chosen = chosen_of(known, arguments.stem)
    if not chosen:
        print(f"STEM is one of: {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "POTL_BENCH_DIR": str(OUT)}
    if arguments.full == "1":
        environment["POTL_BENCH_FULL"] = "1"
    failed: list[str] = []
    documents: list[dict[str, Any]] = []
    for stem in chosen:
        print(f"\n== {stem}", flush=True)
        written = OUT / f"{stem}.json"
        written.unlink(missing_ok=True)
        status = subprocess.run(known[stem], cwd=ROOT, env=environment).returncode
        if status != 0 or not written.is_file():
            failed.append(stem)
        else:
            documents.append(json.loads(written.read_text()))
    print("\n" + table(documents))
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
