# SPDX-License-Identifier: Apache-2.0
"""The extra task as a check of `potl.verify`."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

import extra_task_cases  # noqa: E402
from extra_task_cases import EPOCHS, digits, task_of  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402
from potl._cli import _cli  # noqa: E402


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An honest run, and one of a job that ends too early, on mixed digits."""
    folder = tmp_path_factory.mktemp("recorded")
    task = task_of(folder, submissions=8)
    mixed = task.mix(digits())
    return {
        "folder": folder,
        "key": folder / "extra.key",
        "honest": extra_task_cases.recorded(folder / "honest", mixed, EPOCHS),
        "early": extra_task_cases.recorded(folder / "early", mixed),
    }


def report_of(recorded: dict[str, Any], name: str, *checks: Any, **options: Any) -> potl.Report:
    arguments = {**recorded[name], **options}
    return potl.verify(arguments.pop("run"), checks=[potl.Replay(samples=12), *checks], **arguments)


def test_a_report_has_the_extra_task_and_neither_key_nor_samples(
    recorded: dict[str, Any], tmp_path: Path
) -> None:
    report = report_of(recorded, "honest", ExtraTask(recorded["key"]))
    assert report.verdict == "accepted", report.sentence
    rules = {one.rule for one in report.findings if one.check == "extra_task"}
    assert rules == {"extra_task.hits", "extra_task.control"}
    secret = recorded["key"].read_text().strip()
    for name in ("r.json", "r.html", "r.xml"):
        report.write(tmp_path / name)
        assert secret not in (tmp_path / name).read_text()
    again = report.document["reproduce"]
    assert "--extra-task EXTRA_TASK" in again and "# fill in" in again
    assert report.document["checks"][-1]["check"] == "extra_task"
    page = (tmp_path / "r.html").read_text()
    assert "What the model knows of the secret samples" in page
    assert "Better than on controls" in page
    jsonschema = pytest.importorskip("jsonschema")
    schema = ROOT / "docs/format/report.schema.json"
    jsonschema.validate(report.document, json.loads(schema.read_text()))


def test_an_early_stop_that_was_agreed_is_rejected_by_the_extra_task_alone(
    recorded: dict[str, Any],
) -> None:
    assert report_of(recorded, "early").verdict == "accepted"
    report = report_of(recorded, "early", ExtraTask(recorded["key"]))
    assert report.verdict == "rejected"
    assert {one.check for one in report.findings if one.result == "reject"} == {"extra_task"}
    gentle = report_of(recorded, "early", ExtraTask(recorded["key"], failing="inconclusive"))
    assert gentle.verdict == "inconclusive"


def test_an_extra_task_never_accepts_alone(recorded: dict[str, Any]) -> None:
    given = dict(recorded["honest"])
    report = potl.verify(given.pop("run"), checks=[ExtraTask(recorded["key"]), potl.PEV()], **given)
    assert report.verdict == "inconclusive"
    assert "replayed at random" in report.sentence


def test_an_extra_task_alone_comes_on_top_of_the_usual_checks(recorded: dict[str, Any]) -> None:
    given = dict(recorded["honest"])
    report = potl.verify(given.pop("run"), checks=[ExtraTask(recorded["key"])], **given)
    assert report.verdict == "accepted", report.sentence


def test_the_command_line_asks_about_the_extra_samples_too(
    recorded: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, verdict in (("honest", "accepted"), ("early", "rejected")):
        given = recorded[name]
        # A task of the user's, by its name.
        module = types.ModuleType(f"extra_task_of_{name}")
        module.build = given["task"]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        given["job"].write(f"{name}.job")
        given["commitment"].write(f"{name}.commitment")
        words = ["verify", str(given["run"]), "--job", f"{name}.job", "--commitment",
                 f"{name}.commitment", "--task", f"{module.__name__}:build", "--no-ledger",
                 "--replay-samples", "12", "--json"]  # fmt: skip
        code = _cli.run([*words, "--extra-task", str(recorded["key"])])
        document = json.loads(capsys.readouterr().out)
        assert (code, document["verdict"]) == ({"accepted": 0, "rejected": 1}[verdict], verdict)
        rules = {one["rule"] for one in document["findings"] if one["check"] == "extra_task"}
        assert rules == {"extra_task.hits", "extra_task.control"}


def test_trouble_with_the_model_is_inconclusive(recorded: dict[str, Any]) -> None:
    def broken(value: Any) -> Any:
        raise ValueError("not today")

    report = report_of(recorded, "honest", ExtraTask(recorded["key"], transform=broken))
    assert report.verdict == "inconclusive"
    assert any("not today" in one.reason for one in report.findings)
