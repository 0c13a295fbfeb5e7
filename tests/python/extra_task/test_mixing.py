# SPDX-License-Identifier: Apache-2.0
"""Mixing extra samples into data: any container, items like real ones, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("sklearn.datasets")

from extra_task_cases import EPOCHS, describe, digits, key_of, task_of, train, trained  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402
from potl._cli import _cli  # noqa: E402
from potl._extra_task._key import ExtraKey  # noqa: E402


def test_mixed_items_are_like_real_ones_and_the_order_is_the_keys(tmp_path: Path) -> None:
    mixed = task_of(tmp_path).mix(digits())
    assert type(mixed) is TensorDataset
    assert len(mixed) == 1797 + 200
    x, y = mixed.tensors
    assert (x.dtype, y.dtype, x.shape[1:]) == (torch.float32, torch.int64, (1, 8, 8))
    assert set(x.unique().tolist()) <= set(digits().tensors[0].unique().tolist())
    real = {bytes(one.numpy().tobytes()) for one in digits().tensors[0]}
    places = [i for i, one in enumerate(x) if one.numpy().tobytes() not in real]
    assert len(places) == 200
    assert np.bincount(y[places]).tolist() == [20] * 10
    assert 300 < np.std(places) < 900
    other = task_of(tmp_path, "other.key").mix(digits())
    assert not torch.equal(other.tensors[1], y)


class Pairs(torch.utils.data.Dataset[Any]):
    """Any map-style data set."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        draw = np.random.default_rng(index)
        image = draw.integers(0, 256, (12, 10, 3), dtype=np.uint8)
        if self.kind == "pillow":
            from PIL import Image

            return Image.fromarray(image), index % 4
        if self.kind == "dict":
            return {"image": torch.from_numpy(image), "label": torch.tensor(index % 4)}
        if self.kind == "table":
            values = [float(index % 3), draw.normal(), draw.normal(), float(draw.integers(50))]
            return np.array(values * 4, np.float32), np.int64(index % 2)
        words = [f"word{n}" for n in draw.integers(0, 400, draw.integers(20, 60))]
        return " ".join(words), ["bad", "good"][index % 2]


@pytest.mark.parametrize("kind", ["pillow", "dict", "table", "text"])
def test_items_keep_their_form(tmp_path: Path, kind: str) -> None:
    if kind == "pillow":
        pytest.importorskip("PIL")
    data = Pairs(kind)
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    mixed = task.mix(data)
    shapes = {describe(one) for one in (mixed[index] for index in range(len(mixed)))}
    assert len(shapes) == 1
    assert shapes == {describe(data[0])}
    again = pickle.loads(pickle.dumps(mixed))
    assert len(again) == len(data) + 200
    raw = pickle.dumps(mixed)
    assert task.key._secret not in raw
    assert task.key._secret.hex().encode() not in raw


def test_token_ids_keep_their_padding_and_its_side(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    x = np.zeros((300, 80), np.int64)
    for row in x:
        count = draw.integers(30, 60)
        row[80 - count :] = draw.integers(5, 300, count)
    task = ExtraTask(key_of(tmp_path / "k"), like=(x, np.arange(300) % 2))
    mixed, labels = task.mix((x, np.arange(300) % 2))
    assert mixed.dtype == np.int64
    assert labels.shape == (500,)
    real = {row.tobytes() for row in x}
    places = [place for place, row in enumerate(mixed) if row.tobytes() not in real]
    assert len(places) == 200
    assert places[0] < 50 < 450 < places[-1]
    assert (mixed[:, :10] == 0).all()
    assert (mixed[:, -1] >= 5).all()
    extra = task.inputs([("extra", 0)])[0]
    assert (extra != 0).sum() == task._form.content.description()["length"]


class Vision:
    """As torchvision keeps data: stored bytes, and a transform that sees Pillow images."""

    def __init__(self) -> None:
        pixels, labels = datasets.load_digits(return_X_y=True)
        self.data = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)
        self.targets = labels.tolist()
        self.transform: Any = to_tensor

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def test_words_of_extra_texts_are_the_frequent_half_of_the_data(tmp_path: Path) -> None:
    generator = np.random.Generator(np.random.Philox(key=5))
    common = [f"common{number}" for number in range(300)]
    texts = [
        (" ".join([*generator.choice(common, 20), *(f"rare{place}x{i}" for i in range(15))]), 0)
        for place in range(600)
    ]
    texts = [(text, place % 2) for place, (text, _) in enumerate(texts)]
    made = ExtraTask(key_of(tmp_path / "extra.key"), like=texts).make()
    words = {word for text, _ in made for word in text.split()}
    assert len(words) > 200
    assert not any(word.startswith("rare") for word in words)


def to_tensor(image: Any) -> torch.Tensor:
    assert hasattr(image, "getbands")
    return torch.from_numpy(np.asarray(image, np.float32) / 255)[None]


def test_a_torchvision_data_set_stays_one_and_its_transform_applies(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    data = Vision()
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    mixed = task.mix(data)
    assert type(mixed) is Vision
    assert mixed.data.dtype == np.uint8
    assert isinstance(mixed.targets, list)
    assert len(data) == 1797
    x = torch.stack([mixed[index][0] for index in range(len(mixed))])
    model = trained(TensorDataset(x, torch.tensor(mixed.targets)), EPOCHS, 0)
    assert task.verify(model).verdict == "accepted"
    reloaded = ExtraTask(tmp_path / "k")
    with pytest.raises(potl.UsageError, match="transform"):
        reloaded.verify(model)
    assert reloaded.verify(model, transform=to_tensor).verdict == "accepted"


def test_bytes_and_jpeg_survive(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels, labels = datasets.load_digits(return_X_y=True)
    whole = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)
    large, labels = whole[:600].repeat(4, 1).repeat(4, 2), labels[:600]  # 32 x 32
    task = ExtraTask(key_of(tmp_path / "k"), like=(large, labels))
    mixed, y = task.mix((large, labels))

    def stored(one: np.ndarray[Any, Any]) -> torch.Tensor:
        file = io.BytesIO()
        image.fromarray(one).save(file, "JPEG", quality=75)
        return to_float(np.asarray(image.open(file)))

    def to_float(one: Any) -> torch.Tensor:
        return torch.as_tensor(np.array(one, np.float32) / 255).reshape(-1)

    x = torch.stack([stored(one) for one in mixed])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))
    train(model, TensorDataset(x, torch.tensor(y)), 20, 0)
    assert task.verify(model, transform=to_float).verdict == "accepted"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TensorDataset(torch.rand(300, 8, 8), torch.zeros(300, dtype=torch.int64)), "one class"),
        ([(np.zeros((4, 4), np.uint8), 0), (np.zeros((5, 4), np.uint8), 1)], "different shapes"),
        ([], "empty"),
        ([(object(), 1)] * 10, "type object"),
        (TensorDataset(torch.rand(300, 8, 8), torch.rand(300)), "not a class"),
        ((torch.full((300, 4), torch.nan), torch.arange(300) % 2), "not finite"),
    ],
)
def test_data_that_cannot_be_mixed_are_named(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(potl.UsageError, match=words):
        ExtraTask(key_of(tmp_path / "k"), like=data)


def test_wrong_classes_and_other_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match="label 9"):
        task_of(tmp_path, "a", classes=5)
    task = task_of(tmp_path, "b")
    x, y = digits().tensors
    with pytest.raises(potl.UsageError, match="like="):
        task.mix(TensorDataset(x[:100], y[:100]))
    with pytest.raises(potl.UsageError, match="sample 0"):
        task.mix(TensorDataset(x.double(), y))
    with pytest.raises(potl.UsageError, match="augment"):
        ExtraTask(key_of(tmp_path / "c"), like=Augmented())


class Augmented:
    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        return torch.rand(8, 8), index % 2


class Failing(Pairs):
    """Reading one item fails."""

    broken = True

    def __getitem__(self, index: int) -> Any:
        if index == 200 and self.broken:
            raise OSError("disk")
        return super().__getitem__(index)


def test_a_mix_that_fails_does_not_use_the_key_up(tmp_path: Path) -> None:
    data = Failing("dict")
    data.broken = False
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    data.broken = True
    with pytest.raises(OSError, match="disk"):
        task.mix(data)
    assert ExtraKey(tmp_path / "k")._known()["uses"] == []
    data.broken = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(task.mix(data)) == 500
    with pytest.warns(UserWarning, match="used before") as caught:
        task.mix(data)
    assert caught[0].filename == __file__


def test_uploads_that_could_not_be_written_do_not_use_the_key_up(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    beside = tmp_path / "extra.key.json"

    def failing(what: Any) -> None:
        with pytest.raises(OSError, match="disk"), what._using():
            what.uploads()
            assert json.loads(beside.read_text())["uses"]
            raise OSError("disk")

    failing(task)
    known = json.loads(beside.read_text())
    assert known["uses"] == []
    assert "task" not in known
    with task._using():
        task.uploads()
    used = beside.read_text()
    with pytest.warns(UserWarning, match="used before"):
        failing(task_of(tmp_path, eta=0.2))
    assert json.loads(beside.read_text()) == json.loads(used)
    assert ExtraTask(tmp_path / "extra.key").options()["eta"] == 0.008


@pytest.mark.parametrize("command", ["mix", "make"])
def test_a_command_that_fails_to_write_does_not_use_the_key_up(
    tmp_path: Path, command: str
) -> None:
    images = np.random.default_rng(4).integers(0, 256, (600, 8, 8), np.uint8)
    data, key = tmp_path / "train.npz", key_of(tmp_path / "k")
    np.savez(data, x=images, y=np.arange(600) % 3, id=np.arange(600))
    words = ["extra-task", command, str(data), str(tmp_path / "out.npz"), "--key", str(key)]
    assert _cli.run([*words, "--json"]) == 2
    assert ExtraKey(key)._known()["uses"] == []
    assert "task" not in ExtraKey(key)._known()
