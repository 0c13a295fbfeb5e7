# SPDX-License-Identifier: Apache-2.0
"""`potl selftest`: one digest per operator and mode, the same on every machine."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import programs
import pytest

pytest.importorskip("torch")  # before the adapter, which needs its libraries
pytest.importorskip("potl._torch", reason="potl was built without torch")


def selftest(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    environment = {"OMP_NUM_THREADS": "1", **environment}
    at_start = {name: environment[name] for name in environment if name != "POTL_ISA"}
    done = subprocess.run(
        [programs.python(**at_start), "-m", "potl", "selftest", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    code, document = selftest()
    strange = [row for row in document["operators"] if not row["ok"]]
    assert strange == []
    assert code == 0
    return document


def test_it_names_the_processor_and_its_environment(here: dict[str, Any]) -> None:
    assert here["processor"]
    assert here["kernels"] in ("portable", "avx2", "avx512", "vnni", "amx")
    assert all(check["ok"] for check in here["environment"])
    assert {row["mode"] for row in here["operators"]} >= {"ord32", "cr32", "log64", "xint24", "any"}


@pytest.mark.parametrize(
    "environment",
    [
        {"POTL_ISA": "portable", "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "2"},
        {"POTL_ISA": "avx2", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2"},
    ],
    ids=["portable", "avx2"],
)
def test_other_kernels_and_libraries_print_the_same(
    here: dict[str, Any], environment: dict[str, str]
) -> None:
    code, document = selftest(**environment)
    assert code == 0
    assert document["kernels"] == environment["POTL_ISA"]
    assert document["operators"] == here["operators"]
    assert document["digest"] == here["digest"]


def test_a_digest_that_is_not_this_versions_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from potl._machine import _selftest

    kept = dict.fromkeys(json.loads(_selftest._KEPT.read_text()), "0" * 16)
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    monkeypatch.setattr(_selftest, "_KEPT", tmp_path / "kept.json")
    assert not next(iter(_selftest.lines())).as_kept
