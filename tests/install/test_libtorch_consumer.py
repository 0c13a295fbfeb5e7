# SPDX-License-Identifier: Apache-2.0
"""A LibTorch trainer outside this tree records, commits and verifies; Python reads its run."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from libtorch_build import run, run_well  # noqa: E402

import potl  # noqa: E402
from potl import _core  # noqa: E402
from potl._task._data import scan  # noqa: E402

Trained = tuple[int, Path, dict[str, Any]]


@pytest.fixture(scope="session")
def train(
    built: Path, digits: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Trained]:
    def train(*words: str) -> Trained:
        path = tmp_path_factory.mktemp("run") / "run"
        done = run(built / "example/trainer", digits, path, *words)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.returncode, path, json.loads(path.with_suffix(".json").read_bytes())

    return train


@pytest.fixture(scope="session")
def honest(train: Callable[..., Trained]) -> Trained:
    return train()


def evidence(path: Path) -> _core.Evidence:
    return _core.Evidence.open(
        str(path),
        job=_core.Job.parse((path / "job.json").read_bytes()),
        commitment=(path / "commitment").read_text(),
    )


def rejecting(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(f["check"], f["rule"]) for f in report["findings"] if f["result"] == "reject"}


def test_the_adapter_keeps_its_promises_and_hashes_data_as_python_does(
    built: Path, tmp_path: Path
) -> None:
    printed = run_well(built / "adapter_test", tmp_path / "run")
    data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(4, 3), torch.arange(4))
    assert printed.strip() == scan(data).root.hex()


def test_an_honest_run_is_accepted(honest: Trained) -> None:
    status, _, report = honest
    assert (status, report["verdict"], rejecting(report)) == (0, "accepted", set())


def test_training_on_a_quarter_of_each_batch_is_rejected(train: Callable[..., Trained]) -> None:
    status, _, report = train("--cheat", "lazy")
    assert (status, report["verdict"]) == (1, "rejected")
    assert "loss.recomputed" in {rule for _, rule in rejecting(report)}


def test_delivering_another_model_is_rejected_by_that_alone(train: Callable[..., Trained]) -> None:
    status, _, report = train("--cheat", "deliver")
    assert (status, rejecting(report)) == (1, {("model", "model.delivered")})


def test_the_cli_inspects_a_run_of_the_trainer(honest: Trained) -> None:
    printed = run_well(sys.executable, "-m", "potl", "inspect", "--json", honest[1])
    shown = json.loads(printed)
    assert (shown["steps"], shown["agreed_steps"], shown["closed"]) == (168, 168, True)
    assert (shown["damage"], shown["gaps"], len(shown["checkpoints"])) == ([], [], 20)
    assert "LibTorch" in shown["software"]


def test_python_verifies_the_structure_and_reaches_no_verdict_without_replay(
    honest: Trained,
) -> None:
    opened = evidence(honest[1])
    findings = opened.findings()
    assert {one.result for one in findings} == {"pass"}
    report = json.loads(_core.conclude(opened, findings, policy={}, context={}))
    assert report["verdict"] == "inconclusive"
    found = potl.verify(honest[1], ledger=False).document["findings"]
    assert any("only the C++ program" in one["reason"] for one in found)


def test_python_reads_the_states_in_its_own_layout(honest: Trained) -> None:
    opened = evidence(honest[1])
    tree = opened.load_state(9).tree()
    assert list(tree["counters"].items()) == [("epoch", 0), ("step", 9)]
    weight = tree["model"]["parameters"]["first.weight"]
    assert (weight.dtype, weight.shape) == ("float32", (8, 1, 3, 3))
    assert tree["model"]["training"][""] is True
    assert tree["optimizers"][0]["param_groups"][0]["momentum"] == 0.9
    assert tree["optimizers"][0]["state"][0]["momentum_buffer"].shape == (8, 1, 3, 3)
    assert opened.load_state(0).tree()["optimizers"][0]["state"] == {}


def test_python_finds_a_changed_byte_in_the_trainers_run(honest: Trained, tmp_path: Path) -> None:
    changed = tmp_path / "run"
    shutil.copytree(honest[1], changed)
    log = changed / "transcript.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    try:
        results = {one.result for one in evidence(changed).findings()}
    except _core.MalformedError:
        return
    assert "reject" in results


def test_a_missing_libtorch_is_named_with_the_remedy(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(c LANGUAGES CXX)\n"
        "find_package(potl REQUIRED COMPONENTS libtorch)\n"
    )
    done = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert done.returncode != 0
    assert "torch.utils.cmake_prefix_path" in done.stderr
