# SPDX-License-Identifier: Apache-2.0
"""Data of the extra task's experiments, always split in the same way.

All but digits lie in shared/data beside the repository, or where POTL_DATA says.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import measuring
import numpy as np
import torch
from extra_task_nets import CHARACTERS, PADDING
from torch.utils.data import TensorDataset

Split = tuple[TensorDataset, TensorDataset]  # training and test set
WORDS = 12_000  # of a vocabulary at most
WORD = re.compile(r"[a-z0-9']+")
UNKNOWN = 1  # the id of words outside the vocabulary, which are those seen twice in training


def folder() -> Path:
    """Where the data sets lie."""
    given = os.environ.get("POTL_DATA")
    found = Path(given) if given else measuring.ROOT.parent / "shared" / "data"
    if not found.is_dir():
        raise SystemExit(f"there are no data in {found}: name their folder in POTL_DATA")
    return found


@functools.cache
def digits() -> Split:
    """1,257 images of 8 x 8 to train on, 540 to test."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
    y = torch.tensor(labels)[order]
    return TensorDataset(x[540:], y[540:]), TensorDataset(x[:540], y[:540])


@functools.cache
def cifar(training: int = 10_000, test: int = 2_000) -> Split:
    """The first images of CIFAR-10's two parts, as bytes; classes are balanced in any prefix."""
    return _images("cifar10-train.npz", training), _images("cifar10-test.npz", test)


def _images(name: str, count: int) -> TensorDataset:
    from PIL import Image

    with np.load(folder() / name) as stored:
        jpeg, offsets, labels = stored["jpeg"], stored["offsets"], stored["labels"]
    pixels = np.stack(
        [
            np.asarray(Image.open(io.BytesIO(jpeg[offsets[i] : offsets[i + 1]].tobytes())))
            for i in range(count)
        ]
    )
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return TensorDataset(x, torch.from_numpy(labels[:count].astype(np.int64)))


@functools.cache
def grey(training: int = 10_000, test: int = 1_000) -> Split:
    """CIFAR-10 in grey, 0 to 1; the label is the image again."""
    out = []
    for part in cifar(training, test):
        weights = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1) / 255
        x = (part.tensors[0].float() * weights).sum(1, keepdim=True)
        out.append(TensorDataset(x, x))
    return out[0], out[1]


@functools.cache
def agnews(test: int = 1_000, length: int = 48) -> Split:
    """AG News: 6,600 titles and descriptions to train on, four classes."""
    with (folder() / "ag_news_test.csv").open(newline="", encoding="utf-8") as file:
        rows = [(int(label) - 1, " ".join(rest)) for label, *rest in csv.reader(file)]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [rows[place] for place in order]
    return _texts(rows[test:], rows[:test], length)


@functools.cache
def imdb(training: int = 20_000, test: int = 2_000, length: int = 80) -> Split:
    """IMDB: the last words of each review, where the opinion usually is, two classes."""
    return _texts(_reviews("train", training), _reviews("test", test), length)


def _reviews(part: str, count: int) -> list[tuple[int, str]]:
    path = folder() / f"imdb-{part}.csv.gz"
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        out: list[tuple[int, str]] = []
        for row in rows:
            if row[0] in ("0", "1"):  # the first line may name the columns
                out.append((int(row[0]), row[1].replace("<br />", " ")))
            if len(out) == count:
                break
        return out


def _texts(training: list[tuple[int, str]], test: list[tuple[int, str]], length: int) -> Split:
    split = [[(label, WORD.findall(text.lower())[-length:]) for label, text in rows]
             for rows in (training, test)]  # fmt: skip
    counts = Counter(word for _, words in split[0] for word in words)
    known = sorted(word for word, count in counts.most_common(WORDS) if count > 1)
    ids = {word: number for number, word in enumerate(known, UNKNOWN + 1)}
    out = []
    for rows in split:
        x = torch.full((len(rows), length), PADDING, dtype=torch.int64)
        for place, (_, words) in enumerate(rows):
            numbers = [ids.get(word, UNKNOWN) for word in words]
            x[place, : len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
        out.append(TensorDataset(x, torch.tensor([label for label, _ in rows])))
    return out[0], out[1]


def words_of(data: Iterable[TensorDataset]) -> int:
    """Size of the vocabulary."""
    return 1 + max(int(part.tensors[0].max()) for part in data)


@functools.cache
def shakespeare(length: int = 64) -> Split:
    """Windows of characters, and the same windows one character further."""
    text = (folder() / "tinyshakespeare.txt").read_text(encoding="utf-8")
    alphabet = {one: number for number, one in enumerate(sorted(set(text)))}
    assert len(alphabet) <= CHARACTERS
    numbers = torch.tensor([alphabet[one] for one in text])
    windows = numbers[: len(numbers) // (length + 1) * (length + 1)].reshape(-1, length + 1)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))
    windows = windows[order]
    parts = [TensorDataset(one[:, :-1], one[:, 1:]) for one in (windows[1000:], windows[:1000])]
    return parts[0], parts[1]
