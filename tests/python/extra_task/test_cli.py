# SPDX-License-Identifier: Apache-2.0
"""potl extra-task on files alone: from a key to a verdict, and what can go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
datasets = pytest.importorskip("sklearn.datasets")

from potl._cli import _cli  # noqa: E402
from potl._extra_task import _audit  # noqa: E402

Run = Callable[..., tuple[int, dict[str, Any]]]

MODEL = """
import numpy as np, torch
from torch import nn

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256),
                         nn.ReLU(), nn.Linear(256, 10))

def scaled(image):
    return torch.as_tensor(np.asarray(image)).float() / 255

def trained():
    with np.load("upload.npz") as file:
        x, y = scaled(file["x"]), torch.tensor(file["y"])
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for _ in range(40):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    torch.save(model.state_dict(), "model.pt")
    return model

def loaded():
    model = net()
    model.load_state_dict(torch.load("model.pt"))
    return model

def zeros():
    return lambda inputs: [0] * len(inputs)

def broken():
    def predict(inputs):
        raise OSError("the service is down")
    return predict
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """Runs a command line in a folder with digits in train.npz."""
    monkeypatch.chdir(tmp_path)
    pixels, labels = datasets.load_digits(return_X_y=True)
    np.savez("train.npz", x=(pixels.reshape(-1, 8, 8) * 15).astype(np.uint8), y=labels)
    Path("extra_cli_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        code = _cli.run(["extra-task", *words, "--json"])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, document

    return call


def test_from_a_key_to_a_verdict_by_model_and_by_answers(run: Run) -> None:
    assert run("keygen", "extra.key")[0] == 0
    code, plan = run("plan", "train.npz", "--submissions", "4")
    assert (code, plan["samples"], plan["needed"] > 30) == (0, 200, True)
    code, written = run("mix", "train.npz", "upload.npz", "--key", "extra.key",
                        "--submissions", "4")  # fmt: skip
    assert (code, written["count"]) == (0, 1997)

    code, result = run("verify", "extra.key", "--model", "extra_cli_model:zeros")
    assert (code, result["verdict"], result["hits"]) == (1, "rejected", 20)

    import extra_cli_model as user  # type: ignore[import-not-found]

    user.trained()
    scaled = ("--transform", "extra_cli_model:scaled")
    code, result = run("verify", "extra.key", "--model", "extra_cli_model:loaded", *scaled)
    assert (code, result["verdict"], result["submission"]) == (0, "accepted", 2)
    secret = Path("extra.key").read_text().strip()
    assert secret not in json.dumps(result)

    code, asked = run("verify", "extra.key", "--questions", "questions.npz")
    assert (code, asked["count"]) == (0, 1000)
    with np.load("questions.npz") as file:
        images = user.scaled(file["x"])
    answers = user.loaded()(images).argmax(1).tolist()
    Path("answers.csv").write_text("\n".join(map(str, answers)))
    code, again = run("verify", "extra.key", "--answers", "answers.csv")
    assert (code, again["hits"], again["submission"]) == (0, result["hits"], 2)
    Path("answers.json").write_text(json.dumps(answers[:-1]))
    code, error = run("verify", "extra.key", "--answers", "answers.json")
    assert (code, "999 answers to 1000" in error["error"]["message"]) == (2, True)


def test_a_predict_that_raises_ends_with_3(run: Run) -> None:
    run("keygen", "extra.key")
    run("mix", "train.npz", "upload.npz", "--key", "extra.key")
    code, error = run("verify", "extra.key", "--model", "extra_cli_model:broken")
    assert (code, error["error"]["kind"]) == (3, "PredictionError")
    assert "--transform" in error["error"]["remedy"]


def test_make_writes_the_extra_samples_alone(run: Run) -> None:
    run("keygen", "extra.key")
    code, made = run("make", "train.npz", "extra.npz", "--key", "extra.key", "--layout", "paper")
    assert (code, made["count"]) == (0, 200)
    with np.load("extra.npz") as file:
        assert np.bincount(file["y"]).tolist() == [20] * 10
        assert file["x"].shape == (200, 8, 8)
        assert len(np.unique(file["x"][:, 4:, 4:], axis=0)) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["verify", "none.key", "--model", "a:b"], 2),
        (["verify", "extra.key"], 2),
        (["verify", "extra.key", "--model", "extra_cli_model:zeros"], 2),
        (["verify", "extra.key", "--answers", "missing.csv"], 2),
        (["plan"], 2),
        (["plan", "--samples", "100", "--classes", "1"], 2),
        (["plan", "missing.npz"], 2),
        (["plan", "broken.npz"], 4),
        (["mix", "train.npz", "train.npz", "--key", "extra.key"], 2),
        (["keygen", "extra.key"], 2),
        (["mix", "train.npz", "out.npz", "--key", "extra.key", "--alpha", "0.9"], 2),
    ],
)
def test_wrong_usage_and_unreadable_input_have_their_codes(
    run: Run, words: list[str], code: int
) -> None:
    assert run("keygen", "extra.key")[0] == 0
    Path("broken.npz").write_bytes(b"PK no zip")
    found, document = run(*words)
    assert found == code, document
    assert document["error"]["message"]


def test_what_was_not_judged_has_no_numbers_to_read(run: Run, capsys: Any) -> None:
    run("keygen", "extra.key")
    run("mix", "train.npz", "upload.npz", "--key", "extra.key")
    for answer in ("0", "1"):
        Path("answers.txt").write_text(f"{answer}\n" * 1000)
        _cli.run(["extra-task", "verify", "extra.key", "--answers", "answers.txt"])
        text = capsys.readouterr().out
        assert ("hits (p = " in text) == (answer == "0")
    assert "alpha is spent" in text


def test_people_can_read_it_too(run: Run, capsys: Any) -> None:
    assert _cli.run(["extra-task", "plan", "--samples", "50000", "--classes", "10"]) == 0
    text = capsys.readouterr().out
    assert "400 extra samples" in text
    assert "hits are accepted, fewer than 68 fail" in text
    assert "1,600 controls" in text
    assert text.count("of them is not rejected, and one that knows") == 3
    assert "up to 0.8 points of accuracy" in text
    many = ["extra-task", "plan", "--samples", "5000", "--classes", "1600"]
    assert _cli.run(many) == 0
    text = capsys.readouterr().out
    assert "experiments had no share as large; in proportion they would cost 2 points" in text
    assert "no experiment had more than 16 % extra samples" in text


def test_the_audit_names_the_cheapest_attack_of_each_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The same key in every run: nothing is left to chance.
    monkeypatch.setattr(
        "potl._extra_task._key.secrets.token_bytes", lambda size: bytes(range(size))
    )
    pixels, labels = datasets.load_digits(return_X_y=True)
    data = ((pixels[:600].reshape(-1, 8, 8) * 15).astype(np.uint8), labels[:600])
    report = _audit.audit(data, epochs=40)
    by_name = {(one.layout, one.name): one for one in report.attacks}
    for layout in ("jittered", "paper"):
        assert by_name[layout, "honest"].verdict == "accepted"
        assert by_name[layout, "stop early"].hits < by_name[layout, "honest"].hits
        assert by_name[layout, "one class for everything"].verdict == "rejected"
        told = by_name[layout, "told: tune on them"]
        assert (told.found, told.recall) == (1.0, 1.0)
        assert told.verdict == "accepted"
    # What the paper's layout gives away.
    assert (by_name["paper", "repeated regions: tune on them"].recall or 0) > 0.9
    document = report.document()
    assert document["cheapest"]["paper"]["api"]["cost"] < 1
    json.dumps(document)
    assert "cheapest" in report.table()
