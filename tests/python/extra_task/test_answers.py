# SPDX-License-Identifier: Apache-2.0
"""Files of answers come from whoever answers: whatever they hold is refused by type, soon."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import potl
from potl._cli import _cli
from potl._extra_task import _question_files


@pytest.fixture
def task(tmp_path: Path) -> potl.ExtraTask:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (1000, 8, 8), np.uint8)
    labels = draw.integers(0, 10, 1000)
    task = potl.ExtraTask(potl.ExtraTask.keygen(tmp_path / "extra.key"), like=(images, labels))
    task.mix((images, labels))
    return task


def test_answers_that_unpack_to_gigabytes_are_not_unpacked(
    task: potl.ExtraTask, tmp_path: Path
) -> None:
    path = tmp_path / "answers.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x.npy", bytes(1 << 20))
    # The sizes are those that the archive names.
    raw = path.read_bytes()
    large = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(raw.replace((1 << 20).to_bytes(4, "little"), large))
    with pytest.raises(potl.LimitError, match="4294967280 bytes"):
        _question_files.read_answers(task, path)


def test_text_that_is_too_long_is_not_read(task: potl.ExtraTask, tmp_path: Path) -> None:
    without = tmp_path / "without.key"
    images = np.random.default_rng(0).integers(0, 256, (1000, 8, 8), np.uint8)
    errors = potl.ExtraTask(potl.ExtraTask.keygen(without), like=(images, images), classes=0)
    path = tmp_path / "answers.csv"
    with path.open("wb") as file:
        file.truncate((1 << 26) + 1)
    with pytest.raises(potl.LimitError, match="more than"):
        _question_files.read_answers(errors, path)


@pytest.mark.parametrize("name", ["answers.csv", "answers.json", "answers.safetensors"])
def test_answers_take_no_more_than_scores_of_all_classes_can(
    task: potl.ExtraTask, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(len(task.questions()) * (16384 + 10 * 64) + 1)
    with pytest.raises(potl.LimitError, match="answer with class numbers"):
        _question_files.read_answers(task, path)


def test_a_model_of_many_outputs_fits(task: potl.ExtraTask, tmp_path: Path) -> None:
    scores = np.zeros((len(task.questions()), 2048))
    np.savez(tmp_path / "answers.npz", scores)
    _question_files.read_answers(task, tmp_path / "answers.npz")


def test_lines_beyond_the_questions_are_not_gathered(task: potl.ExtraTask, tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    count = len(task.questions())
    path.write_text("1\n" * (count + 5))
    with pytest.raises(potl.UsageError, match=f"more than {count} answers to {count} questions"):
        _question_files.read_answers(task, path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("answers.npz", b"no archive"),
        ("answers.safetensors", b"\xff" * 64),
        ("answers.json", b"[" * 100_000),
        ("answers.json", b"[1, 2"),
        ("answers.json", b'"' + b"1" * 1000 + b'"'),
        ("answers.json", b"1000"),
        ("answers.json", json.dumps({str(i): 0 for i in range(1000)}).encode()),
        ("answers.json", json.dumps([[[]]] * 1000).encode()),
        ("answers.csv", b"\xff\xfe" * 1000),
        ("answers.csv", b"1,2\n1\n" * 500),
        ("answers.csv", b""),
    ],
)
def test_answers_that_are_none_are_refused(
    task: potl.ExtraTask, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((potl.MalformedError, potl.UsageError)):
        _question_files.read_answers(task, path)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn"])
def test_answers_in_a_type_that_numpy_lacks_are_refused_with_what_to_write(
    task: potl.ExtraTask, tmp_path: Path, kind: str
) -> None:
    torch = pytest.importorskip("torch")
    saved = pytest.importorskip("safetensors.torch")
    path = tmp_path / "answers.safetensors"
    saved.save_file({"scores": torch.zeros(1000, 2).to(getattr(torch, kind))}, path)
    with pytest.raises(potl.UsageError, match="scores holds numbers of type") as raised:
        _question_files.read_answers(task, path)
    assert "float32" in raised.value.remedy


@pytest.mark.parametrize("odd", [["1"], {"label": "1"}])
def test_names_beside_what_is_no_name_are_refused(task: potl.ExtraTask, odd: object) -> None:
    with pytest.raises(potl.UsageError, match="answers are not classes"):
        task.verify(predict=lambda inputs: ["1", *[odd] * (len(inputs) - 1)])


def test_numbers_that_are_no_class_are_kept_as_such(task: potl.ExtraTask, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps([1e400, -1.0, 0.5, None] * 250))
    extra, control = _question_files.read_answers(task, path)
    assert task.judge(extra, control).verdict == "inconclusive"


@pytest.mark.parametrize(
    "content", ["[1, 2]", '[["0.75", [[0.1]]]]', '[["0.75", [["a", 1]]]]', "7"]
)
def test_a_calibration_that_is_none_is_refused(
    task: potl.ExtraTask, tmp_path: Path, content: str
) -> None:
    with pytest.raises(potl.UsageError, match="reference curves"):
        potl.ExtraTask(tmp_path / "extra.key", calibration=json.loads(content))


@pytest.mark.parametrize("content", ["[1", "[" * 100_000, None])
def test_a_calibration_that_cannot_be_read_is_a_usage_error(
    task: potl.ExtraTask, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    path = tmp_path / "curves.json"
    if content is not None:
        path.write_text(content)
    words = ["extra-task", "verify", str(tmp_path / "extra.key"), "--questions", "q.npz"]
    assert _cli.run([*words, "--calibration", str(path), "--json"]) == 2
    assert "curves.json cannot be read" in json.loads(capsys.readouterr().out)["error"]["message"]
