# SPDX-License-Identifier: Apache-2.0
"""Answers in files, by name or number, with headers and numbers of questions; and a file that was
written wrongly, which costs no submission.
"""

from __future__ import annotations

import csv
import json
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from extra_task_cases import key_of

import potl
from potl._cli import _cli

WORDS = [f"w{number}" for number in range(400)]
Ask = Callable[[Path], tuple[int, dict[str, Any]]]


class Upload:
    """Texts with these labels, and a model that knows all that was uploaded."""

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        self.folder, self.labels = folder, sorted(labels)
        draw = np.random.default_rng(1)
        with (folder / "data.csv").open("w", newline="") as file:
            rows = [(" ".join(draw.choice(WORDS, 25)), labels[number % len(labels)])
                    for number in range(1200)]  # fmt: skip
            csv.writer(file).writerows([("text", "label"), *rows])
        self.key = key_of(folder / "k")
        self._run("mix", str(folder / "data.csv"), str(folder / "up.csv"), "--key", str(self.key))
        self._run("verify", str(self.key), "--questions", str(folder / "q.jsonl"))
        with (folder / "up.csv").open(newline="") as file:
            known = {row[0]: row[1] for row in csv.reader(file)}
        lines = (folder / "q.jsonl").read_text().splitlines()
        asked = [json.loads(line)["input"] for line in lines]
        self.answers = [known.get(one, str(draw.choice(labels))) for one in asked]
        self.numbers = [self.labels.index(one) for one in self.answers]

    def _run(self, *words: str) -> int:
        return _cli.run(["extra-task", *words, "--json"])

    def judged(self, name: str, text: str) -> int:
        (self.folder / name).write_text(text)
        return self._run("verify", str(self.key), "--answers", str(self.folder / name))

    def rows(self, rows: Sequence[Sequence[Any]], **options: Any) -> int:
        path = self.folder / "rows.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, **options).writerows(rows)
        return self._run("verify", str(self.key), "--answers", str(path))

    @property
    def submissions(self) -> int:
        return len(potl.ExtraKey(self.key)._known()["submissions"])


def test_questions_that_find_no_room_leave_no_half(tmp_path: Path) -> None:
    upload = Upload(tmp_path, ("cat", "dog"))
    before, there = resource.getrlimit(resource.RLIMIT_FSIZE), set(tmp_path.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        code = upload._run("verify", str(upload.key), "--questions", str(tmp_path / "more.csv"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 3
    # No form of theirs has that name: no folder is made for it.
    assert upload._run("verify", str(upload.key), "--questions", str(tmp_path / "new/x.txt")) == 2
    assert set(tmp_path.iterdir()) == there
    assert upload._run("verify", str(upload.key), "--questions", str(tmp_path / "new/x.csv")) == 0


STARS = ("1", "2", "3", "4", "5")
MANY = tuple(str(number) for number in range(12))
WORDY = ("cat", "dog, brown", 'a "bird"')


@pytest.mark.parametrize("labels", [STARS, MANY, WORDY])
def test_the_datas_own_labels_are_answers(tmp_path: Path, labels: Sequence[str]) -> None:
    upload = Upload(tmp_path, labels)
    assert upload.judged("a.txt", "\n".join(upload.answers)) == 0
    assert upload.judged("a.csv", "\n".join(upload.answers)) == 0
    assert upload.judged("a.json", json.dumps(upload.answers)) == 0
    assert upload.judged("n.json", json.dumps(upload.numbers)) == 0
    np.savez(tmp_path / "n.npz", a=np.array(upload.answers))
    assert upload._run("verify", str(upload.key), "--answers", str(tmp_path / "n.npz")) == 0
    assert upload.submissions == 1


def test_whole_numbers_that_are_names_and_no_class_numbers_are_names(tmp_path: Path) -> None:
    upload = Upload(tmp_path, STARS)
    assert upload.judged("a.json", json.dumps([int(one) for one in upload.answers])) == 0


@pytest.mark.parametrize("labels", [("cat", "dog"), WORDY])
def test_headers_quotes_and_numbers_of_questions_are_understood(
    tmp_path: Path, labels: Sequence[str]
) -> None:
    upload = Upload(tmp_path, labels)
    named = list(enumerate(upload.answers))
    numbered = list(enumerate(upload.numbers))
    assert upload.rows([[one] for one in upload.answers], quoting=csv.QUOTE_ALL) == 0
    assert upload.rows([["label"], *[[one] for one in upload.answers]]) == 0
    assert upload.rows(named) == 0
    assert upload.rows([["id", "label"], *named]) == 0
    assert upload.rows([(number + 1, one) for number, one in named]) == 0
    assert upload.rows(numbered) == 0
    assert upload.rows(numbered[::-1]) == 0
    assert upload.rows([(f"{number:05d}.png", one) for number, one in numbered]) == 0
    assert upload.judged("bom.csv", "\ufeff" + "\n".join(map(str, upload.numbers))) == 0
    scores = np.eye(len(labels))[upload.numbers].tolist()
    assert upload.rows(scores) == 0
    assert upload.rows([[number, *row] for number, row in enumerate(scores)]) == 0
    backwards = [upload.labels[::-1], *[row[::-1] for row in scores]]
    assert upload.rows(backwards) == 0
    assert upload.submissions == 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("Cat", "'Cat', which is not a class"),
        ("2", "'2', which is not a class"),
        ("0.97", "'0.97', which is not a class"),
        ("-1", "'-1', which is not a class"),
        ("1,x", "not a number"),
        ("1,0.5,", "has 3 cells"),
        ('""', "999 answers"),
    ],
)
def test_a_line_that_is_no_answer_is_named_and_costs_no_submission(
    tmp_path: Path, capsys: Any, wrong: str, named: str
) -> None:
    upload = Upload(tmp_path, ("cat", "dog"))
    for good in (upload.answers, list(map(str, upload.numbers)), ["0.5,0.5"] * 1000):
        capsys.readouterr()
        assert upload.judged("a.csv", "\n".join([*good[:500], wrong, *good[501:]])) == 2
        message = capsys.readouterr().err
        if "not a class" in named and good[0] != "0.5,0.5":
            assert f"answer 501 is {named}" in message
    assert upload.submissions == 0
    assert upload.judged("a.csv", "\n".join(upload.answers)) == 0


def test_an_unknown_name_in_json_costs_no_submission(tmp_path: Path, capsys: Any) -> None:
    upload = Upload(tmp_path, ("cat", "dog"))
    assert upload.judged("a.json", json.dumps([one.title() for one in upload.answers])) == 2
    assert "names are cat, dog" in capsys.readouterr().err
    assert upload.judged("a.json", json.dumps([*upload.answers[:-1], 1])) == 2
    assert upload.judged("a.json", json.dumps([one + 1 for one in upload.numbers])) == 2
    assert upload.submissions == 0


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("a.json", '"' + "x" * 1_000_000 + '"'),
        ("a.csv", "x" * 100_000),
        ("b.csv", "1," + "x" * 999),
    ],
)
def test_a_long_answer_is_not_repeated_whole(
    tmp_path: Path, capsys: Any, name: str, answer: str
) -> None:
    """Who answers may be the cheat, and chooses how long."""
    upload = Upload(tmp_path, ("cat", "dog"))
    others = ["0,0" if name == "b.csv" else "0"] * (len(upload.answers) - 1)
    text = "[{}]".format(",".join([answer, *others])) if name == "a.json" else None
    assert upload.judged(name, text or "\n".join([answer, *others])) == 2
    said = capsys.readouterr().err
    assert "xxx..." in said and len(said) < 1000


def test_labels_that_are_numbers_are_answers_whatever_they_are(tmp_path: Path, capsys: Any) -> None:
    images = np.random.default_rng(2).integers(0, 256, (600, 8, 8), np.uint8)
    labels = np.array((3, 7, 900))[np.arange(600) % 3]
    np.savez(tmp_path / "a.npz", x=images, y=labels)
    key = str(key_of(tmp_path / "k"))

    def run(*words: str) -> int:
        return _cli.run(["extra-task", *words])

    assert run("mix", str(tmp_path / "a.npz"), str(tmp_path / "up.npz"), "--key", key) == 0
    assert run("verify", key, "--questions", str(tmp_path / "q.npz")) == 0
    with np.load(tmp_path / "up.npz") as file:
        known = {x.tobytes(): int(y) for x, y in zip(file["x"], file["y"], strict=True)}
    with np.load(tmp_path / "q.npz") as file:
        answers = [known.get(one.tobytes(), 7) for one in file["x"]]
    for name, content in (
        ("a.csv", "\n".join(map(str, answers))),
        ("a.json", json.dumps(answers)),
        ("s.json", json.dumps(list(map(str, answers)))),
    ):
        (tmp_path / name).write_text(content)
        assert run("verify", key, "--answers", str(tmp_path / name)) == 0
    (tmp_path / "a.csv").write_text("\n".join(["1", *map(str, answers[1:])]))
    capsys.readouterr()
    assert run("verify", key, "--answers", str(tmp_path / "a.csv")) == 2
    assert "labels are 3, 7, 900" in capsys.readouterr().err


def test_a_model_that_has_no_answer_may_say_so(tmp_path: Path) -> None:
    upload = Upload(tmp_path, ("cat", "dog"))
    assert upload.judged("a.csv", "\n".join(["nan", *map(str, upload.numbers[1:])])) == 3
    assert upload.submissions == 1


def test_labels_that_are_no_classes_do_not_stand_in_the_way_of_errors(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=draw.integers(0, 256, (600, 8, 8), np.uint8),
             y=np.arange(600) % 3 + 4)  # fmt: skip
    key = str(key_of(tmp_path / "k"))
    run = ["extra-task", "mix", str(tmp_path / "a.npz"), str(tmp_path / "up.npz"), "--key", key]
    assert _cli.run([*run, "--classes", "0"]) == 0
    (tmp_path / "errors.csv").write_text("\n".join(map(str, draw.random(1000))))
    assert _cli.run(["extra-task", "verify", key, "--answers", str(tmp_path / "errors.csv")]) == 1
