# SPDX-License-Identifier: Apache-2.0
"""What cannot be asked, judged or calibrated is refused by type, with what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn.datasets")

from extra_task_cases import digits, key_of, net, task_of  # noqa: E402

import potl  # noqa: E402
from potl import ExtraTask  # noqa: E402


def zeros(inputs: list[Any]) -> Any:
    return [0] * len(inputs)


class Classifier:
    def predict(self, inputs: Any) -> Any:
        return zeros(inputs)


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (zeros, "predict="),
        (Classifier(), r"model\.predict"),
        ("model.pt", "load the file"),
        (Path("model.pt"), "load the file"),
        ({"weight": torch.zeros(1)}, "load_state_dict"),
        (net().to("meta"), "weights"),
        (torch.export.export(net(), (torch.zeros(1, 1, 8, 8),)).module(), "after eval"),
        (3, "predict="),
    ],
)
def test_what_is_no_module_is_refused_with_the_remedy(
    tmp_path: Path, model: Any, remedy: str
) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError, match=remedy):
        task.verify(model)
    assert task.verify(predict=zeros).submission == 1


@pytest.mark.parametrize("form", [lambda answers: answers, list], ids=["array", "list"])
def test_answers_that_are_masked_are_missing_whatever_lies_below(
    tmp_path: Path, form: Callable[[Any], Any]
) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    known = {task.inputs([("extra", n)])[0].numpy().tobytes(): n % 10 for n in range(200)}

    def masked(inputs: list[Any]) -> Any:
        right = [known.get(one.numpy().tobytes(), 0) for one in inputs]
        return form(np.ma.array(right, mask=True))

    result = task.verify(predict=masked)
    assert (result.verdict, result.invalid) == ("inconclusive", 1000)


def test_answers_without_values_are_a_usage_error(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError, match="not an array of numbers"):
        task.verify(predict=lambda inputs: torch.zeros(len(inputs), 10, device="meta"))


@pytest.mark.parametrize("size", [0, -1, 2.5, "8", True, None])
def test_a_batch_size_is_a_whole_number(tmp_path: Path, size: Any) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError, match="batch_size"):
        task.verify(predict=zeros, batch_size=size)
    assert task.verify(predict=zeros, batch_size=np.int64(7)).submission == 1


def test_predict_has_no_transform_and_is_a_function(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    task.mix(digits())
    with pytest.raises(potl.UsageError, match="for torch modules"):
        task.verify(predict=zeros, transform=torch.as_tensor)
    with pytest.raises(potl.UsageError, match="for torch modules"):
        ExtraTask(tmp_path / "extra.key", transform=torch.as_tensor).verify(predict=zeros)
    wrong: Any = 3
    with pytest.raises(potl.UsageError, match="predict is a int"):
        task.verify(predict=wrong)


def test_images_that_are_stored_with_channels_first_become_pillow_images(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    draw = np.random.default_rng(0)

    class Stored:
        """Like SVHN."""

        data, labels = draw.integers(0, 256, (600, 3, 12, 10), np.uint8), np.arange(600) % 10

        def transform(self, image: Any) -> torch.Tensor:
            assert (image.mode, image.size) == ("RGB", (10, 12))
            return torch.as_tensor(np.array(image)).permute(2, 0, 1).float()

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("what is stored is read")

    data = Stored()
    task = ExtraTask(key_of(tmp_path / "k"), like=data)
    task.mix(data)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(360, 10))
    assert task.verify(model).verdict == "rejected"


def test_strings_have_no_losses_of_next_words(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [" ".join(f"w{one}" for one in draw.integers(0, 300, 20)) for _ in range(500)]
    task = ExtraTask(key_of(tmp_path / "k"), like=texts, kind="language")
    task.mix(texts)
    with pytest.raises(potl.UsageError, match="one loss per sample"):
        task.verify(predict=lambda inputs: np.zeros((len(inputs), 20, 300)))
    assert task.verify(predict=lambda inputs: draw.random(len(inputs))).verdict == "rejected"


@pytest.mark.parametrize(
    "wrong",
    [{"samples": -1}, {"samples": 400.5}, {"classes": -3}, {"submissions": -1}, {"samples": "4"}],
)
def test_sizes_are_whole_numbers(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"samples": 400, "classes": 10, **wrong}
    with pytest.raises(potl.UsageError, match=f"{next(iter(wrong))} is"):
        ExtraTask.needed_hits(**given)
    with pytest.raises(potl.UsageError, match="samples of"):
        ExtraTask.plan(-5, classes=10)
    assert ExtraTask.plan(np.int64(50_000), classes=10).samples == 400


# ---------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"eta": 0.008}, "eta is 0.008, but the data were mixed with 0.2"),
        ({"layout": "jittered"}, "'paper'"),
        ({"classes": 5}, "classes is 5"),
        ({"kind": "text"}, "kind is 'text', but the data were mixed with 'image'"),
        ({"length": 7}, "length is 7"),
        ({"axes": "HWC"}, "'CHW'"),
        ({"padding": 0}, "padding is 0"),
    ],
)
def test_what_is_given_is_compared_also_where_it_is_the_default(
    tmp_path: Path, given: dict[str, Any], named: str
) -> None:
    task_of(tmp_path, eta=0.2, layout="paper").mix(digits())
    with pytest.raises(potl.UsageError, match=named):
        ExtraTask(tmp_path / "extra.key", **given)
    same = ExtraTask(tmp_path / "extra.key", eta=0.2, classes=10, kind="image", axes="CHW")
    assert same.planned == ExtraTask(tmp_path / "extra.key").planned


def test_what_a_failure_makes_may_change_both_ways(tmp_path: Path) -> None:
    task_of(tmp_path, failing="inconclusive").mix(digits())
    key = tmp_path / "extra.key"
    assert ExtraTask(key).options()["failing"] == "inconclusive"
    assert ExtraTask(key, failing="reject").options()["failing"] == "reject"
