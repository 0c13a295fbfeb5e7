# SPDX-License-Identifier: Apache-2.0
"""What tests/install/libtorch/rehearsal.cpp leaves."""

import json
from pathlib import Path
from typing import Any

from potl import _core


class Played:
    """A run with its report."""

    def __init__(self, path: Path, said: str) -> None:
        self.path = path
        self.said = said
        self.report: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
        self.job = _core.Job.parse((path / "job.json").read_bytes())

    @property
    def verdict(self) -> str:
        return str(self.report["verdict"])

    def rules(self, result: str = "reject", *, check: str = "") -> set[str]:
        return {
            f["rule"]
            for f in self.report["findings"]
            if f["result"] == result and check in ("", f["check"])
        }

    def evidence(self) -> _core.Evidence:
        note = (self.path / "commitment").read_text()
        return _core.Evidence.open(str(self.path), job=self.job, commitment=note)

    @property
    def stored(self) -> list[int]:
        names = (self.path / "checkpoints").glob("step-*.safetensors")
        return sorted(int(name.stem.removeprefix("step-")) for name in names)
