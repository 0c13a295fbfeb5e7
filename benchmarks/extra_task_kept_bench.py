# SPDX-License-Identifier: Apache-2.0
"""Figures of the extra task's experiments from the kept tables: hours of training are not repeated
by `make bench`. experiments/extra_task_experiments.py measures them.
"""

from __future__ import annotations

import extra_task_pages
import measuring


def main() -> None:
    wanted = ("extra_task.cq.", "extra_task.loss.")
    results = [
        entry
        for section in extra_task_pages.kept().values()
        for entry in section
        if entry["name"].startswith(wanted)
    ]
    if not results:
        raise SystemExit("no table is kept: run experiments/extra_task_experiments.py --write")
    measuring.write("extra_task_kept", results)


if __name__ == "__main__":
    main()
