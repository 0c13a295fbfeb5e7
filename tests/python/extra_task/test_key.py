# SPDX-License-Identifier: Apache-2.0
"""Keys, and the file beside a key: what happens when it is changed, cut, put back or lost."""

from __future__ import annotations

import json
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from extra_task_cases import digits, task_of

import potl
from potl import ExtraTask


def zeros(inputs: list[Any]) -> Any:
    return [0] * len(inputs)


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A key after one submission; returns its state."""
    task = task_of(tmp_path)
    task.mix(digits())
    task.verify(predict=zeros)
    return tmp_path / "extra.key.json"


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(submissions=[]),
        lambda state: state.update(uses=[]),
        lambda state: state.update(submissions={}),
        lambda state: state.update(submissions=[{"answers": 3}]),
        lambda state: state["task"].update(samples=1),
        lambda state: state["task"]["options"].update(alpha=0.5),
        lambda state: state["task"]["options"].update(submissions=100),
        lambda state: state.pop("task"),
        lambda state: state.pop("code"),
        lambda state: state.update(code=None),
        lambda state: state.update(code="0" * 64),
        lambda state: state.update(more=1),
    ],
)
def test_a_state_that_somebody_changed_is_refused(used: Path, change: Any) -> None:
    state = json.loads(used.read_text())
    change(state)
    for end in ("\n", ""):  # as potl sets it, and otherwise
        used.write_text(json.dumps(state) + end)
        with pytest.raises(potl.MalformedError):
            ExtraTask(used.with_suffix(""))


@pytest.mark.parametrize("kept", [0, 1, 100, -2])
def test_a_state_that_was_cut_is_refused(used: Path, kept: int) -> None:
    used.write_bytes(used.read_bytes()[:kept])
    with pytest.raises(potl.MalformedError):
        ExtraTask(used.with_suffix(""))


@pytest.mark.parametrize("text", ["[]", "null", "[" * 100_000, '{"format": 1}', "\xff"])
def test_what_is_no_state_is_refused(used: Path, text: str) -> None:
    used.write_text(text, encoding="latin-1")
    with pytest.raises(potl.MalformedError):
        ExtraTask(used.with_suffix(""))


def test_a_lost_state_needs_the_data_again_and_forgets_submissions(used: Path) -> None:
    key = used.with_suffix("")
    used.unlink()
    with pytest.raises(potl.UsageError, match="mix its samples into your data first"):
        ExtraTask(key)
    again = ExtraTask(key, like=digits())
    with pytest.raises(potl.UsageError, match="mix the same data again"):
        again.verify(predict=zeros)
    again.mix(digits())
    # As docs/reference/extra_task_asking.md says: nothing remembers what was handed in.
    assert again.verify(predict=zeros).submission == 1


def test_results_print_as_plain_values_that_nobody_changes(used: Path) -> None:
    result = ExtraTask(used.with_suffix("")).verify(predict=zeros)
    assert "grades=({'grade': '0.6', 'samples': 70, 'hits': 7}, " in repr(result)
    assert dict(result.grades[0]) == {"grade": "0.6", "samples": 70, "hits": 7}
    with pytest.raises(TypeError):
        result.grades[0]["hits"] = 70  # type: ignore[index]
    assert "proxy" not in repr(ExtraTask.plan(1000, classes=10))


def test_new_lines_and_spaces_change_nothing(used: Path) -> None:
    used.write_text(json.dumps(json.loads(used.read_text()), indent=4))
    assert ExtraTask(used.with_suffix("")).verify(predict=zeros).submission == 1


def test_submissions_are_not_counted_when_they_cannot_be_written(
    used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> Any:
        raise OSError("no space left")

    task = ExtraTask(used.with_suffix(""))
    monkeypatch.setattr("potl._extra_task._key.os.fsync", full)
    with pytest.raises(potl.StorageError, match="no space"):
        task.verify(predict=lambda inputs: np.ones(len(inputs)))
    monkeypatch.undo()
    assert sorted(one.name for one in used.parent.iterdir()) == [
        "extra.key", "extra.key.json", "extra.key.json.lock",
    ]  # fmt: skip
    assert task.verify(predict=lambda inputs: np.ones(len(inputs))).submission == 2


def test_a_key_is_for_its_owner_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "extra.key"
    key = ExtraTask.keygen(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(key._secret) == 32
    assert path.read_text() == key._secret.hex() + "\n"
    with pytest.raises(potl.UsageError, match="not replaced"):
        ExtraTask.keygen(path)
    with pytest.raises(TypeError):
        pickle.dumps(key)
    assert key._secret.hex() not in repr(key)


def test_a_key_that_was_never_used_needs_data(tmp_path: Path) -> None:
    ExtraTask.keygen(tmp_path / "k")
    with pytest.raises(potl.UsageError, match="like="):
        ExtraTask(tmp_path / "k")


def test_a_key_that_is_used_twice_warns(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.warns(UserWarning, match="used before"):
        task.mix(digits())


def test_what_lies_beside_the_key_holds_no_secret_and_must_fit_it(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    beside = tmp_path / "extra.key.json"
    assert task.key._secret.hex() not in beside.read_text()
    other = task_of(tmp_path, "other.key")
    other.mix(digits())
    (tmp_path / "other.key.json").write_text(beside.read_text())
    with pytest.raises(potl.MalformedError, match="another key"):
        ExtraTask(tmp_path / "other.key")
    beside.write_text("{")
    with pytest.raises(potl.MalformedError, match="damaged"):
        ExtraTask(tmp_path / "extra.key")
    (tmp_path / "extra.key").write_text("not a key")
    with pytest.raises(potl.MalformedError, match="64"):
        ExtraTask(tmp_path / "extra.key")
