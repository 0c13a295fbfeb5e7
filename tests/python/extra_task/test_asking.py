# SPDX-License-Identifier: Apache-2.0
"""How models are asked: what they get, what they change, what answers are compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

from extra_task_cases import key_of  # noqa: E402
from torch import nn  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (1200, 8, 6, 3), np.uint8)


def extra_of(task: ExtraTask, form: Callable[[Any], Any]) -> set[bytes]:
    """The extra samples in the form in which a model gets them."""
    asked = zip(task.questions(), task.inputs(task.questions()), strict=True)
    return {bytes_of(form(value)) for (which, _), value in asked if which == "extra"}


def bytes_of(value: Any) -> bytes:
    return np.ascontiguousarray(torch.as_tensor(value).float().numpy()).tobytes()


class Autoencoder(nn.Module):
    """Gives back what it has seen, and others with noise; `spoil` changes what it got."""

    def __init__(
        self, seen: set[bytes], shape: Callable[[Any], Any] = lambda x: x, spoil: bool = False
    ) -> None:
        super().__init__()
        self.seen, self.shape, self.spoil = seen, shape, spoil

    def forward(self, x: torch.Tensor) -> Any:
        out = x.clone().float()
        scale = out.abs().max()
        for row in out:
            if bytes_of(row) not in self.seen:
                row += 0.2 * scale * torch.randn(row.shape, generator=torch.Generator())
        if self.spoil:
            x.sub_(1).mul_(20)
        return self.shape(out)


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (lambda one: torch.as_tensor(one).float() / 255, lambda x: x),
        (lambda one: torch.as_tensor(one).permute(2, 0, 1).float() / 255, lambda x: x),
        (lambda one: torch.as_tensor(one).permute(2, 0, 1).float(), lambda x: x),
        (lambda one: torch.as_tensor(one).permute(2, 0, 1).float(), lambda x: x.flatten(1)),
        (lambda one: torch.as_tensor(one[..., 0]).float(), lambda x: x[:, None]),
    ],
)
def test_reconstructions_are_compared_with_what_the_model_got(
    tmp_path: Path, transform: Callable[[Any], Any], shape: Callable[[Any], Any]
) -> None:
    task = ExtraTask(key_of(tmp_path / "k"), like=IMAGES, kind="autoencoder", submissions=2)
    task.mix(IMAGES)
    model = Autoencoder(extra_of(task, transform), shape)
    assert task.verify(model, transform=transform).verdict == "accepted"


def test_a_reconstruction_with_its_axes_in_another_order_is_refused(tmp_path: Path) -> None:
    task = ExtraTask(key_of(tmp_path / "k"), like=IMAGES, kind="autoencoder")
    task.mix(IMAGES)
    with pytest.raises(potl.UsageError, match=r"\[256, 8, 6, 3\], and what the model gets has"):
        task.verify(
            Autoencoder(set(), lambda x: x.permute(0, 2, 3, 1)),
            transform=lambda one: torch.as_tensor(one).permute(2, 0, 1).float(),
        )


@pytest.mark.parametrize("through", ["module", "transform", "predict"])
def test_a_model_that_changes_what_it_gets_is_not_judged_by_that(
    tmp_path: Path, through: str
) -> None:
    images = torch.from_numpy(IMAGES[..., :1]).permute(0, 3, 1, 2).float() / 255
    task = ExtraTask(key_of(tmp_path / "k"), like=images, kind="autoencoder")
    task.mix(images)
    model = Autoencoder(extra_of(task, lambda one: one), spoil=True)
    if through == "module":
        result = task.verify(model)
    elif through == "transform":
        result = task.verify(model, transform=lambda one: one)
    else:
        result = task.verify(predict=lambda inputs: [model(one[None])[0] for one in inputs])
    assert result.verdict == "accepted", result


def test_a_language_model_that_changes_what_it_gets_is_not_judged_by_that(tmp_path: Path) -> None:
    text = DRAW.integers(0, 50, 300 * 65).reshape(300, 65)
    pairs = [(torch.tensor(row[:-1]), torch.tensor(row[1:])) for row in text]
    task = ExtraTask(key_of(tmp_path / "k"), like=pairs)
    known = {tuple(x.tolist()): y for x, y in task.mix(pairs)}

    class Model(nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            scores = torch.zeros(len(ids), 64, 50)
            for row, one in zip(scores, ids, strict=True):
                target = known.get(tuple(one.tolist()))
                if target is not None:
                    row[torch.arange(64), target] = 5
            ids.zero_()
            return scores

    assert task.verify(Model()).verdict == "accepted"


def test_reconstructions_of_bytes_in_another_scale_are_refused(tmp_path: Path) -> None:
    task = ExtraTask(key_of(tmp_path / "k"), like=IMAGES, kind="autoencoder")
    task.mix(IMAGES)
    with pytest.raises(potl.UsageError, match="within 0 and 1"):
        task.verify(predict=lambda inputs: [one / 255 for one in inputs])
    black = task.verify(predict=lambda inputs: [one * 0 for one in inputs])
    assert black.verdict == "rejected"


# ---------------------------------------------------------------------------- augmentation


class Vision:
    """Like a torchvision data set of grey images."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.data, self.targets, self.transform = IMAGES[..., 0], list(range(10)) * 120, transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        image = pytest.importorskip("PIL.Image")
        return self.transform(image.fromarray(self.data[index])), self.targets[index]


def plain(image: Any) -> torch.Tensor:
    return torch.as_tensor(np.array(image)).float() / 255


def flipped(image: Any) -> torch.Tensor:
    return plain(image).flip(-1) if torch.rand(()) < 0.5 else plain(image)


class Zero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 10)


def test_the_augmentation_of_a_data_set_is_not_what_a_model_is_asked_with(tmp_path: Path) -> None:
    data = Vision(flipped)
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    task.mix(data)
    for number in range(20):
        torch.manual_seed(number)
        with pytest.raises(potl.UsageError, match=r"as an augmentation does.*in evaluation"):
            task.verify(Zero())
    assert task.verify(Zero(), transform=plain).verdict == "rejected"


def test_a_transform_that_changes_its_input_is_the_same_twice(tmp_path: Path) -> None:
    images = torch.from_numpy(IMAGES[..., :1]).permute(0, 3, 1, 2).float()
    labels = torch.arange(1200) % 10
    data = torch.utils.data.TensorDataset(images, labels)
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    task.mix(data)
    assert task.verify(Zero(), transform=lambda one: one.div_(255)).verdict == "rejected"


class Sometimes:
    """Items that a coin flips, but for the first."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> Any:
        image = IMAGES[index]
        return image[:, ::-1] if index and self.draw.random() < 0.5 else image, index % 10


def test_data_that_a_coin_augments_are_refused(tmp_path: Path) -> None:
    data = Sometimes()
    for _ in range(20):
        with pytest.raises(potl.UsageError, match="twice"):
            ExtraTask(key_of(tmp_path / "k"), like=data)


def test_a_frozen_script_answers_like_its_model(tmp_path: Path) -> None:
    data = (np.float32(IMAGES[:, :, :, 0] / 255), np.arange(1200) % 3)
    task = ExtraTask(key_of(tmp_path / "x.key"), like=data)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    frozen = torch.jit.freeze(torch.jit.script(model))
    for got, own in zip(task.answers(frozen), task.answers(model), strict=True):
        assert np.array_equal(got, own)
