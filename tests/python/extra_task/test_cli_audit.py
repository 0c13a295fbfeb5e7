# SPDX-License-Identifier: Apache-2.0
"""potl extra-task audit and plan on every kind of data that their help lists."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
image_module = pytest.importorskip("PIL.Image")

from potl._cli import _cli  # noqa: E402

Run = Callable[..., tuple[int, dict[str, Any]]]
DRAW = np.random.default_rng(5)
WORDS = [f"w{number}" for number in range(300)]

USER = """
import numpy as np
import torch

def three():
    return 3

def channels(image):
    assert image.mode == "L"
    return torch.as_tensor(np.asarray(image)).float() / 255

def ragged(image):
    ragged.calls = getattr(ragged, "calls", 0) + 1
    return torch.zeros(3 + ragged.calls % 2)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("extra_audit_user.py").write_text(USER)

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        code = _cli.run(["extra-task", *words, "--json"])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, document

    return call


def text() -> str:
    return " ".join(DRAW.choice(WORDS, 20 + DRAW.integers(5)))


def photos(mode: str) -> str:
    for number in range(200):
        path = Path("photos", "ab"[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = DRAW.integers(0, 256, (16, 16, 3), np.uint8)
        image_module.fromarray(pixels).convert(mode).save(path)
    return "photos"


def table() -> str:
    with Path("t.csv").open("w", newline="") as file:
        rows = [[*DRAW.normal(size=12).round(3), number % 2] for number in range(200)]
        csv.writer(file).writerows([[*"abcdefghijkl", "label"], *rows])
    return "t.csv"


def texts() -> str:
    with Path("t.csv").open("w", newline="") as file:
        rows = [[text(), "ab"[number % 2]] for number in range(200)]
        csv.writer(file).writerows([["text", "label"], *rows])
    return "t.csv"


def lines(name: str) -> str:
    with Path("t.jsonl").open("w") as file:
        for number in range(200):
            value = text() if name == "text" else DRAW.integers(5, 400, 20 + number % 3).tolist()
            file.write(json.dumps({name: value, "label": number % 2}) + "\n")
    return "t.jsonl"


DATA: dict[str, Callable[[], str]] = {
    "folder of colours": lambda: photos("RGB"),
    "folder of grey": lambda: photos("L"),
    "table": table,
    "texts": texts,
    "lines of texts": lambda: lines("text"),
    "lines of ids": lambda: lines("input_ids"),
}


@pytest.mark.parametrize("name", DATA)
def test_the_audit_plays_with_all_kinds_of_files(run: Run, name: str) -> None:
    code, report = run("audit", DATA[name](), "--epochs", "1", "--layout", "jittered")
    assert code == 0, report
    assert {one["layout"] for one in report["attacks"]} == {"jittered"}
    # Trained on all at once or looked up: the data reach the models.
    told = [one for one in report["attacks"] if one["name"] == "told: look them up"]
    assert all(one["hits"] == 200 for one in told)


def test_the_audit_plays_with_the_layout_that_is_asked_for(run: Run) -> None:
    code, report = run("audit", table(), "--epochs", "1", "--layout", "paper")
    assert code == 0
    assert {one["layout"] for one in report["attacks"]} == {"paper"}
    assert set(report["cheapest"]) == {"paper"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--epochs", "0"), "--epochs must be at least 1"),
        (("--build", "extra_audit_user:three"), "build= returned a int"),
        (("--transform", "extra_audit_user:ragged"), "inputs have different shapes"),
    ],
)
def test_what_the_audit_cannot_play_with_is_named(
    run: Run, words: tuple[str, ...], what: str
) -> None:
    code, report = run("audit", photos("L"), "--epochs", "1", *words)
    assert code == 2, report
    assert what in report["error"]["message"]


def test_a_model_of_ones_own_gets_texts_through_a_transform_alone(run: Run) -> None:
    code, report = run("audit", texts(), "--epochs", "1", "--build", "extra_audit_user:three")
    assert (code, "texts have to become tensors" in report["error"]["message"]) == (2, True)


def test_the_audits_transform_gets_what_the_folder_holds(run: Run) -> None:
    words = ("--epochs", "1", "--layout", "paper", "--transform", "extra_audit_user:channels")
    assert run("audit", photos("L"), *words)[0] == 0


def test_plans_know_lengths_padding_and_axes_as_mixing_does(run: Run) -> None:
    code, plan = run("plan", texts(), "--length", "6")
    assert code == 0
    assert any("grade 0.6 is drawn as" in one for one in plan["warnings"])
    assert not any("grade 0.6 is drawn as" in one for one in run("plan", "t.csv")[1]["warnings"])
    np.savez("a.npz", x=DRAW.random((300, 4, 4, 4)), y=np.arange(300) % 2)
    for axes, code in (("HWC", 0), ("CHW", 0), ("HW", 2)):
        assert run("plan", "a.npz", "--axes", axes)[0] == code
    assert run("plan", lines("input_ids"), "--padding", "0")[0] == 0
    code, error = run("plan", "--samples", "5000", "--classes", "2", "--length", "7")
    assert (code, "--length is about DATA" in error["error"]["message"]) == (2, True)
