# SPDX-License-Identifier: Apache-2.0
"""Every Python example runs as it is, in an empty folder, and its run is accepted."""

import os
import subprocess
from pathlib import Path

import programs
import pytest
from places import ROOT

pytest.importorskip("torch")
pytest.importorskip("sklearn")

EXAMPLES = ROOT / "examples"
SCRIPTS = {
    "01_quickstart/quickstart.py": ["report.html", "report.json", "junit.xml", "job.json"],
    "02_own_loop/own_loop.py": ["runs/2/commitment"],
    "03_finetune/finetune.py": ["base.safetensors", "adapted.safetensors"],
    "05_extra_task/extra_task.py": ["extra.key", "extra.key.json", "upload.pt"],
    "07_data_parallel/data_parallel.py": ["runs/1/commitment"],
}
LAUNCHED = {
    "07_data_parallel/data_parallel.py": ["-m", "torch.distributed.run", "--nproc-per-node=2"]
}


def test_every_example_is_listed_here() -> None:
    assert {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/*.py")} == set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_runs_in_an_empty_folder(script: str, tmp_path: Path) -> None:
    if "finetune" in script:
        pytest.importorskip("safetensors")
    done = subprocess.run(
        [programs.python(), *LAUNCHED.get(script, []), str(EXAMPLES / script)],
        cwd=tmp_path,
        env={
            **os.environ,
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accepted" in done.stdout.splitlines()
    for name in SCRIPTS[script]:
        assert (tmp_path / name).stat().st_size > 0
