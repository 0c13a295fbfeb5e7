# SPDX-License-Identifier: Apache-2.0
"""Questions to a model that answers elsewhere, as files, and its answers."""

from __future__ import annotations

import csv
import functools
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import LimitError, MalformedError, UsageError
from ._answers import classes_of, lines_of, wrong_count
from ._content import carrier_of
from ._extra_task import ExtraTask
from ._predict import Floats, asked
from ._sample_files import read_arrays, require_new, write_arrays

_BATCH = 1024
_STRUCTURED = (".npz", ".safetensors", ".json")
# Who answers may be the cheat: no more bytes than this are read or unpacked.
_MOST_TEXT, _MOST_ARRAY = 1 << 26, 1 << 31


def write_questions(task: ExtraTask, path: Path) -> int:
    """Writes all inputs, in the secret order in which answers are expected; returns their number.

    A folder gets images 00000.png, ...; .npz and .safetensors an array "x"; .jsonl and .csv a line
    each.
    """
    questions = task.questions()
    inputs: list[Any] = []
    for first in range(0, len(questions), _BATCH):
        inputs += task.inputs(questions[first : first + _BATCH])
    if task.form.pairs:
        inputs = [one[:-1] for one in inputs]
    carrier = carrier_of(inputs[0])
    if path.suffix in (".npz", ".safetensors") and carrier in ("array", "tensor", "list", "tuple"):
        write_arrays(path, {"x": np.stack([np.asarray(one) for one in inputs])})
    elif path.suffix in (".jsonl", ".csv") and carrier != "pil":
        require_new(path)
        plain = [one if carrier == "str" else np.asarray(one).tolist() for one in inputs]
        with path.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".jsonl":
                file.writelines(json.dumps({"input": one}) + "\n" for one in plain)
            else:
                rows = [[one] if carrier == "str" else one for one in plain]
                csv.writer(file, lineterminator="\n").writerows(rows)
    elif not path.suffix and carrier == "pil":
        from ._sample_images import write_images

        write_images(path, inputs)
    else:
        raise UsageError(
            f"inputs of this data set cannot be written to {path}",
            "images go to a folder, arrays to .npz or .safetensors, texts to .jsonl or .csv",
        )
    return len(inputs)


def read_answers(task: ExtraTask, path: Path) -> tuple[Floats, Floats]:
    """Answers in the order of the questions: an array in .npz or .safetensors, a list in .json, or
    a line each: names of classes, class numbers, rows of scores, or errors.

    Raises:
        MalformedError: They cannot be read.
        UsageError: They are too many or too few, have the wrong form, or one is not an answer.
    """
    if not path.is_file():
        raise UsageError(f"there are no answers {path}", "")
    values: Any
    is_array = path.suffix in (".npz", ".safetensors")
    _require_at_most(path, _MOST_ARRAY if is_array else _MOST_TEXT)
    if is_array:
        arrays = read_arrays(path)
        if len(arrays) != 1:
            raise UsageError(f"{path} holds {len(arrays)} arrays", "leave the one of answers")
        [values] = arrays.values()
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
            values = json.loads(text) if path.suffix == ".json" else None
        except (ValueError, RecursionError) as error:
            raise MalformedError(f"{path} cannot be read: {error}", "") from error
    questions = task.questions()
    if path.suffix not in _STRUCTURED:
        values = lines_of(text, path, task.form, len(questions))
    is_list = isinstance(values, list) or (isinstance(values, np.ndarray) and values.ndim > 0)
    if not is_list or len(values) != len(questions):
        raise wrong_count(len(values) if is_list else "no", len(questions))
    values = classes_of(values, path, task.form)
    out = []
    for first in range(0, len(questions), _BATCH):
        given = functools.partial(_given, values[first : first + _BATCH])
        inputs = task.inputs(questions[first : first + _BATCH])
        out.append(asked(given, inputs, task.form))
    return task.sorted(np.concatenate(out))


def _require_at_most(path: Path, most: int) -> None:
    size = path.stat().st_size
    if path.suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as packed:
                size = sum(one.file_size for one in packed.infolist())
        except zipfile.BadZipFile as error:
            raise MalformedError(f"{path} cannot be read: {error}", "") from error
    if size > most:
        raise LimitError(
            f"{path} holds {size} bytes, more than the {most} that answers may take",
            "answer with class numbers, or one error per question",
        )


def _given(answers: Any, inputs: list[Any]) -> Any:
    return answers
