# SPDX-License-Identifier: Apache-2.0
"""A3, A4, A10, A16: weights that travel to a stolen model in a straight line, all at once, or by
somebody else's steps.
"""

from __future__ import annotations

import torch

from .._checks._checks import Replay
from .._job._job import Job
from .._job._session import Session
from ._scene import Forgery, Scene, Weights, assign, attack, blend, parameters
from ._tasks import SMALL, digits


@attack(
    "A3",
    "infinitesimal interpolation",
    rule="replay.update_relative",
    found_by=("replay.update_relative", "replay.parameters"),
    in_demo=True,
)
def infinitesimal_interpolation(scene: Scene) -> Forgery:
    """Moves the weights in straight steps so small against the weights that a weight-relative
    tolerance admits them.
    """
    first: Weights = {}
    goal: Weights = {}
    steps = scene.job.core.steps

    def keep_start(session: Session) -> None:
        first.update(parameters(session))
        # A goal near enough that every step stays below one percent of the weights.
        goal.update(blend(first, scene.stolen, 0.05))

    def interpolate(session: Session, step: int) -> None:
        assign(session, blend(first, goal, step / steps))

    return scene.forged("A3", start=keep_start, rewrite=interpolate)


@attack("A3", "rank-matched start", rule="agreed.initial_state")
def rank_matched_start(scene: Scene) -> Forgery:
    """Sorts the agreed initial weights into the order of a stolen model's, so that the way there is
    short.

    A test of W0's distribution cannot see it: the values are the agreed ones.
    """

    def match(session: Session) -> None:
        with torch.no_grad():
            for name, p in session.task.model.named_parameters():
                values = p.flatten().sort().values
                order = scene.stolen[name].flatten().argsort()
                matched = torch.empty_like(values)
                matched[order] = values
                p.copy_(matched.reshape(p.shape))

    return scene.forged("A3-rank", start=match)


@attack(
    "A3",
    "below a loose tolerance",
    rule="replay.interpolation_guard",
    verdict="inconclusive",
    task="mixed",
)
def below_a_loose_tolerance(scene: Scene) -> Forgery:
    """Trains under bfloat16 autocast as agreed, and drifts towards a stolen model within the
    tolerances of a client who allows as much noise as there are updates.
    """
    # The client's own mistake: tolerances that add up to more than the way that was agreed.
    forgery = drifting(scene, 0.7, scene.job.replace(tolerance_cap=1.0))
    return scene.with_options(forgery, options={"checks": [Replay(samples=24, safety=1000.0)]})


@attack(
    "A4",
    "blindfold top-q",
    rule="replay.random_segments",
    found_by=("replay.parameters", "replay.update_relative"),
    in_demo=True,
)
def blindfold(scene: Scene) -> Forgery:
    """Trains honestly for an epoch, in which updates are largest, and draws the rest towards a
    stolen model.
    """
    job = scene.job.core
    last: Weights = {}

    def keep_start(session: Session) -> None:
        last.update(parameters(session))

    def draw_line(session: Session, step: int) -> None:
        now = parameters(session)
        if job.steps_per_epoch < step < job.steps:
            real = sum(float((now[n] - last[n]).square().sum()) for n in now) ** 0.5
            way = sum(float((scene.stolen[n] - last[n]).square().sum()) for n in now) ** 0.5
            now = blend(last, scene.stolen, 0.2 * real / way)
            assign(session, now)
        last.update(now)

    # With more samples the furthest of other epochs are replayed, too, and what led to them.
    return scene.with_options(scene.forged("A4", start=keep_start, rewrite=draw_line), samples=10)


@attack(
    "A10",
    "glued runs",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative"),
    in_demo=True,
)
def glued_runs(scene: Scene) -> Forgery:
    """Splices two honest trainings: from the middle on, the weights are those of a run with another
    seed.
    """
    middle = scene.job.core.steps // 2

    def splice(session: Session, step: int) -> None:
        if middle <= step < middle + scene.job.core.checkpoint_every:
            assign(session, scene.stolen)

    # One bad segment: a client who replays a fraction would see it with that probability only.
    segments = -(-scene.job.steps // scene.job.checkpoint_every)
    return scene.with_options(scene.forged("A10", rewrite=splice), samples=segments)


@attack(
    "A16",
    "invented history",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative"),
    in_demo=True,
)
def invented_history(scene: Scene) -> Forgery:
    """Presents a bought model: from the agreed start, the history is drawn as a line that ends in
    it exactly.
    """
    first: Weights = {}
    steps = scene.job.core.steps

    def keep_start(session: Session) -> None:
        first.update(parameters(session))

    def interpolate(session: Session, step: int) -> None:
        assign(session, blend(first, scene.stolen, step / steps))

    return scene.forged("A16", start=keep_start, rewrite=interpolate)


@attack(
    "A29",
    "drift below the noise",
    rule="replay.tolerance_cap",
    verdict="inconclusive",
    task="mixed",
)
def drift_below_the_noise(scene: Scene) -> Forgery:
    """Trains under bfloat16 autocast as agreed, whose noise explains more than the client allows,
    and drifts towards a stolen model within that noise.
    """
    return drifting(scene, 0.008, scene.job.replace(tolerance_cap=0.003))


def drifting(scene: Scene, share: float, job: Job) -> Forgery:
    """Moves the first layer at each checkpoint towards a stolen one, by a share of what the segment
    did to it.
    """
    last: Weights = {}
    layer = "0.weight"

    def keep_start(session: Session) -> None:
        last.update(parameters(session))

    def drift(session: Session, step: int) -> None:
        now = parameters(session)
        way = scene.stolen[layer] - now[layer]
        way[now[layer] == last[layer]] = 0
        now[layer] += share * (now[layer] - last[layer]).norm() * way / way.norm()
        assign(session, now)
        last.update(now)

    run = scene.forge(f"drifting-{share}", start=keep_start, rewrite=drift, client_job=job)
    return Forgery(run=run, commitment=scene.commit(run), job=job)


@attack(
    "A29",
    "drift of a frozen tensor",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative", "replay.tolerance_cap"),
    verdict="inconclusive",
    task="frozen",
)
def drift_of_a_frozen_tensor(scene: Scene) -> Forgery:
    """Trains in bfloat16 as agreed, and at each checkpoint moves a small tensor that is not trained
    by as much as rounding explains.
    """
    return _drifting_by_rounding(scene, "A29-frozen", "gain")


@attack(
    "A29",
    "drift of a small tensor",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative", "replay.tolerance_cap"),
    verdict="inconclusive",
    task="frozen",
)
def drift_of_a_small_tensor(scene: Scene) -> Forgery:
    """Trains in bfloat16 as agreed, and at each checkpoint moves the last bias by as much as
    rounding explains, where the training moved it by less.
    """
    return _drifting_by_rounding(scene, "A29-small", "net.2.bias", where_moved=True)


def _drifting_by_rounding(
    scene: Scene, name: str, parameter: str, *, where_moved: bool = False
) -> Forgery:
    last: Weights = {}

    def drift(session: Session, step: int) -> None:
        one = dict(session.task.model.named_parameters())[parameter]
        factor = torch.where(scene.stolen["net.2.bias"] > 0, 1.011, 0.991)
        if where_moved:
            factor[one == last[parameter]] = 1
        with torch.no_grad():
            one.mul_(factor)
        last.update(parameters(session))

    return scene.forged(name, start=lambda s: last.update(parameters(s)), rewrite=drift)


@attack(
    "A29",
    "drift beside noise",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative", "replay.tolerance_cap"),
    verdict="inconclusive",
    task="attentive",
)
def drift_beside_noise(scene: Scene) -> Forgery:
    """Trains under bfloat16 autocast as agreed, and at each checkpoint moves the biases of values
    by as much as the noise of those of the keys allows, which lie in the same tensor.
    """

    def drift(session: Session, step: int) -> None:
        with torch.no_grad():
            session.task.model.get_parameter("asked.bias")[32:] += 0.008

    return scene.forged("A29-beside", rewrite=drift)


@attack(
    "A29",
    "noise inflation",
    rule="replay.parameters",
    found_by=(
        "replay.parameters",
        "replay.update_relative",
        "replay.magnitude",
        "replay.tolerance_cap",
    ),
    verdict="inconclusive",
    task="normed",
)
def noise_inflation(scene: Scene) -> Forgery:
    """Scales up weights that a norm follows, until their rounding hides any drift, and drifts."""
    return inflated(scene, 2.0**8)


def inflated(scene: Scene, scale: float) -> Forgery:
    """A29 at a scale.

    The output stays the same, the layer's gradients vanish against its weights. The one segment in
    which the scale changes would show it: this is the draw under which nobody looks there.
    """
    scaled_at = 2 * scene.job.core.checkpoint_every

    def inflate_and_drift(session: Session, step: int) -> None:
        weight = next(session.task.model.parameters())
        with torch.no_grad():
            if step == scaled_at:
                weight.mul_(scale)
            elif step > scaled_at:
                # One unit in the last place, towards the stolen layer.
                weight.add_(weight.abs() * 2.0**-23 * torch.sign(scene.stolen["0.weight"]))

    run = scene.forge(f"A29-{scale:.0f}", rewrite=inflate_and_drift)
    commitment = scene.commit(run)
    samples = 6
    nonce = scene.lucky_draw(run, commitment, samples, scaled_at)
    return Forgery(run=run, commitment=commitment, samples=samples, nonce=nonce)


@attack(
    "A29",
    "drift without gradients",
    rule="replay.parameters",
    verdict="inconclusive",
    task="mixed",
)
def drift_without_gradients(scene: Scene) -> Forgery:
    """Trains under bfloat16 autocast as agreed, and at each checkpoint moves the weights behind
    pixels that are always 0 by a share of what noise allows the others.
    """
    unused = (digits(SMALL).tensors[0] == 0).all(0)

    def drift(session: Session, step: int) -> None:
        with torch.no_grad():
            next(session.task.model.parameters())[:, unused] -= 1e-5

    return scene.forged("A29-still", rewrite=drift)


@attack(
    "A29",
    "drift of an average",
    rule="replay.parameters",
    verdict="inconclusive",
    task="taught",
)
def drift_of_an_average(scene: Scene) -> Forgery:
    """Trains under bfloat16 autocast as agreed, and at each checkpoint moves the weights behind
    pixels that are always 0 in a teacher alone: an average that the task's own code keeps, and that
    is delivered.
    """
    unused = (digits(SMALL).tensors[0] == 0).all(0)

    def drift(session: Session, step: int) -> None:
        with torch.no_grad():
            session.task.model.get_parameter("teacher.0.weight")[:, unused] -= 5e-7

    return scene.forged("A29-average", rewrite=drift)
