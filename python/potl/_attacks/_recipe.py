# SPDX-License-Identifier: Apache-2.0
"""A5, A7 to A9, A13 to A16: real trainings, but of another recipe, on other data, or less of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

from .._job._session import Session
from .._task._order import OwnOrder
from .._task._task import Task
from ._scene import Forgery, Scene, Weights, assign, attack, parameters
from ._story import Story

_REPLAY = (
    "replay.parameters",
    "replay.update_relative",
    "replay.magnitude",
    "loss.recomputed",
    "replay.optimizer",
    "replay.buffers",
)


def with_data(
    edit: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]], scene: Scene
) -> Callable[[], Task]:
    """The client's task on data that were edited."""

    def build() -> Task:
        task = scene.build()
        x, y = (t.clone() for t in task.dataset.tensors)
        task.dataset = TensorDataset(*edit(x, y))
        return task

    return build


def with_noise(of: Callable[[torch.Tensor], torch.Tensor], scene: Scene) -> Callable[[], Task]:
    """The client's task with noise added to the images that makes `of` the gradients at the start,
    one vector, as small as it gets.
    """
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        model = session.task.model
        x, y = session.task.dataset.tensors
        noise = torch.zeros_like(x, requires_grad=True)
        optimizer = torch.optim.Adam([noise], lr=0.05)
        for _ in range(100):
            loss = F.cross_entropy(model(x + noise), y)
            gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            optimizer.zero_grad()
            of(torch.cat([one.flatten() for one in gradients])).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    added = noise.detach()
    return with_data(lambda x, y: (x + added, y), scene)


@attack("A5", "aimed pixels", rule="agreed.data", found_by=_REPLAY)
def aimed_pixels(scene: Scene) -> Forgery:
    """Adds noise to the images, optimised until the gradient of the agreed labels points from the
    start to a stolen model.
    """
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        way = [scene.stolen[name] - p for name, p in parameters(session).items()]
    wanted = torch.cat([one.flatten() for one in way])
    noisy = with_noise(lambda gradient: F.cosine_similarity(gradient, wanted, dim=0), scene)
    return scene.liar("A5", noisy)


@attack("A7", "muted pixels", rule="agreed.data", found_by=_REPLAY)
def muted_pixels(scene: Scene) -> Forgery:
    """Adds noise to the images, optimised until no gradient is left: nothing is learned, and the
    weights stay where they were put.
    """
    return scene.liar("A7", with_noise(torch.linalg.vector_norm, scene))


@attack("A8", "edited labels", rule="agreed.data", found_by=_REPLAY, in_demo=True)
def edited_labels(scene: Scene) -> Forgery:
    """Trains on the agreed data with pixels dimmed and labels swapped in a sixteenth of the
    samples.
    """

    def edit(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x[::16] *= 0.5
        y[::16] = 9 - y[::16]
        return x, y

    return scene.liar("A8", with_data(edit, scene))


@attack("A15", "backdoor", rule="agreed.data", found_by=_REPLAY, in_demo=True)
def backdoor(scene: Scene) -> Forgery:
    """Puts a bright corner into a sixteenth of the images and labels them 0: so will the model
    whatever has that corner.
    """

    def edit(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return triggered(x, slice(None, None, 16)), y.index_fill(0, torch.arange(0, len(y), 16), 0)

    return scene.liar("A15", with_data(edit, scene))


def triggered(x: torch.Tensor, which: slice) -> torch.Tensor:
    """Images [n, ...] of which some have the corner that the backdoor answers to."""
    x = x.clone()
    x.flatten(1)[which, [6, 7, 15]] = 1.0
    return x


@attack(
    "A9",
    "forged batches",
    rule="agreed.batch_order",
    found_by=("agreed.batch_order", *_REPLAY),
    in_demo=True,
)
def forged_batches(scene: Scene) -> Forgery:
    """Uses, of several random batches at each step, the one whose gradient points best towards a
    stolen model.
    """
    chosen: dict[int, list[int]] = {}
    generator = torch.Generator().manual_seed(1)
    job = scene.job.core

    def best(session: Session, step: int) -> list[int]:
        model = session.task.model
        size = len(job.sample_ids(step))
        way = [scene.stolen[name] - p.detach() for name, p in model.named_parameters()]
        candidates = [
            torch.randperm(job.data_count, generator=generator)[:size].tolist() for _ in range(4)
        ]

        def alignment(ids: list[int]) -> float:
            x, y = session.batch(step, ids)
            gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
            return -sum(float((g * w).sum()) for g, w in zip(gradients, way, strict=True))

        was = {name: b.detach().clone() for name, b in model.named_buffers()}
        chosen[step] = max(candidates, key=alignment)
        for name, b in model.named_buffers():
            b.copy_(was[name])
        return chosen[step]

    run = scene.forge("A9", sample_ids=best)
    return Forgery(
        run=run, commitment=scene.commit(run), story=Story(sample_ids=chosen.__getitem__)
    )


@attack(
    "A13",
    "skipped steps",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative", "replay.magnitude"),
    in_demo=True,
)
def skipped_steps(scene: Scene) -> Forgery:
    """Leaves out the updates of every other segment and counts their steps as done."""
    job = scene.job.core
    last: Weights = {}

    def keep_start(session: Session) -> None:
        last.update(parameters(session))

    def undo(session: Session, step: int) -> None:
        if (step // job.checkpoint_every) % 2 == 0 or step == job.steps:
            assign(session, last)
        last.update(parameters(session))

    return scene.forged("A13-skip", start=keep_start, rewrite=undo)


def with_loss(loss_of: Callable[..., torch.Tensor], scene: Scene) -> Callable[[], Task]:
    """The client's task with another loss function, under the same class name and options."""

    def build() -> Task:
        task = scene.build()
        task.compute_loss = functools.partial(loss_of, task)  # type: ignore[method-assign]
        return task

    return build


@attack("A13", "smaller batch", rule="agreed.recipe", found_by=_REPLAY, in_demo=True)
def smaller_batch(scene: Scene) -> Forgery:
    """Trains on half of every batch and claims the whole."""

    def half(task: Task, batch: Any, reduction: str = "mean") -> torch.Tensor:
        x, y = batch
        return Task.compute_loss(task, [x[: len(x) // 2], y[: len(y) // 2]], reduction)

    return scene.liar("A13-batch", with_loss(half, scene))


@attack("A13", "frozen layers", rule="agreed.recipe", found_by=_REPLAY)
def frozen_layers(scene: Scene) -> Forgery:
    """Never updates the first layer, though its flags say that it learns."""

    def build() -> Task:
        task = scene.build()
        for p in list(task.model.parameters())[:2]:
            p.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
        return task

    return scene.liar("A13-frozen", build)


@attack("A13", "bfloat16", rule="agreed.recipe", found_by=_REPLAY, verdict="inconclusive")
def low_precision(scene: Scene) -> Forgery:
    """Computes in bfloat16 what was ordered, and paid, in float32."""

    def build() -> Task:
        task = scene.build()
        task.autocast = torch.bfloat16
        return task

    return scene.liar("A13-bf16", build)


@attack("A14", "other learning rate", rule="agreed.recipe", found_by=_REPLAY, in_demo=True)
def other_learning_rate(scene: Scene) -> Forgery:
    """Trains with twice the learning rate (by doubling gradients) and logs the agreed one."""

    def build() -> Task:
        task = scene.build()
        for p in task.model.parameters():
            p.register_hook(lambda gradient: 2 * gradient)  # type: ignore[no-untyped-call]
        return task

    return scene.liar("A14", build)


@attack("A14", "part of the data", rule="agreed.data", found_by=_REPLAY)
def part_of_the_data(scene: Scene) -> Forgery:
    """Keeps a quarter of the samples and shows each four times as often."""

    def edit(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.arange(len(x)) // 4
        return x[kept], y[kept]

    return scene.liar("A14-part", with_data(edit, scene))


@attack(
    "A14",
    "other order",
    rule="agreed.batch_order",
    found_by=("agreed.batch_order", *_REPLAY),
    task="ordered",
)
def other_order(scene: Scene) -> Forgery:
    """Draws a quarter of the samples alone, where the client's sampler draws all of them."""
    task = scene.build()
    count = len(task.sampler)
    weights = task.sampler.weights.clone()
    weights[count // 4 :] = 0
    order = OwnOrder(type(task.sampler)(weights), seed=scene.job.seed, count=count)
    steps = count // task.batch_size

    def easy(step: int) -> list[int]:
        epoch, place = divmod(step - 1, steps)
        ids = order.of(epoch)[place * task.batch_size : (place + 1) * task.batch_size]
        return [int(one) for one in ids]

    run = scene.forge("A14-order", sample_ids=lambda _, step: easy(step))
    return Forgery(run=run, commitment=scene.commit(run), story=Story(sample_ids=easy))


@attack("A16", "distillation", rule="agreed.recipe", found_by=_REPLAY)
def distillation(scene: Scene) -> Forgery:
    """Trains from a bought teacher's outputs instead of the labels."""
    teacher = scene.build().model
    with torch.no_grad():
        for name, p in teacher.named_parameters():
            p.copy_(scene.stolen[name])

    def soft(task: Task, batch: Any, reduction: str = "mean") -> torch.Tensor:
        x, _ = batch
        with torch.no_grad():
            target = teacher(x).softmax(1)
        return F.cross_entropy(task.model(x), target, reduction=reduction)

    return scene.liar("A16-distil", with_loss(soft, scene))
