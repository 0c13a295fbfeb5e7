# SPDX-License-Identifier: Apache-2.0
"""The commands of spot-checks: spot-check plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import duration, printable
from ._result import Debug, Json, Result, command
from ._task import load

if TYPE_CHECKING:
    from rich.console import Console

    from .._job._job import Job
    from .._spot_check._cost import CostModel


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    group = typer.Typer(
        help="A small trusted side guards a worker that only returns gradients.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.add_typer(group, name="spot-check")
    command(
        group,
        "plan",
        examples="  potl spot-check plan job.json --displacement 0.5\n\n"
        "  potl spot-check plan job.json --steps-at-risk 100 --task trainer:build\n\n"
        "  potl spot-check plan --rate 0.1 --momentum 0.9 --steps 50000 --clip 1 "
        "--steps-at-risk 100 --json",
    )(_plan)


def _plan(
    job: Annotated[
        Path | None,
        typer.Argument(metavar="[JOB]", help="What was agreed: recipe, clip and number of steps."),
    ] = None,
    *,
    displacement: Annotated[
        float | None,
        typer.Option(
            metavar="NORM",
            help="The goal: how far (l2) false gradients may move the weights. Steps that can move "
            "them further are checked more often.",
        ),
    ] = None,
    steps_at_risk: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            help="Or the goal: so many false steps are caught, wherever they are.",
        ),
    ] = None,
    probability: Annotated[float, typer.Option(help="With which the certificate holds.")] = 0.999,
    rate: Annotated[
        float | None,
        typer.Option(help="A learning rate that no step exceeds, in the place of the job's."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps, without a job.")] = None,
    momentum: Annotated[float, typer.Option(help="As torch.optim.SGD has it, with --rate.")] = 0.0,
    dampening: Annotated[float, typer.Option(help="The same.")] = 0.0,
    nesterov: Annotated[bool, typer.Option("--nesterov", help="The same.")] = False,
    clip: Annotated[
        float | None,
        typer.Option(
            metavar="NORM", help="Largest norm of a step's gradient. Default: grad_clip of the job."
        ),
    ] = None,
    update_clip: Annotated[
        float | None,
        typer.Option(
            metavar="NORM",
            help="Instead of a recipe, with --steps: largest norm of a step's update, for an "
            "optimizer that keeps nothing between steps.",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="NORM", help="Distance from the true gradient beyond which a check sees it."
        ),
    ] = 0.0,
    miss_rate: Annotated[
        float, typer.Option(help="Probability that a check passes a gradient beyond that.")
    ] = 0.0,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Measure here what steps and checks of this task take."
        ),
    ] = None,
    step_seconds: Annotated[
        float | None, typer.Option(help="What a step takes, where nothing is measured.")
    ] = None,
    check_seconds: Annotated[
        float | None, typer.Option(help="What a check takes, where nothing is measured.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Say how often each step has to be checked, what that guarantees, and what it costs.

    Ends with 3 if no checks reach the goal, or if nothing bounds how far a gradient moves the
    weights, and says what would have to change.
    """
    from .._record._inputs import as_job
    from .._spot_check._plan import plan

    agreed = None if job is None else as_job(job)
    found = plan(
        agreed,
        displacement=displacement,
        steps_at_risk=steps_at_risk,
        probability=probability,
        rates=rate,
        steps=steps,
        momentum=momentum,
        dampening=dampening,
        nesterov=nesterov,
        clip=clip,
        update_clip=update_clip,
        tolerance=tolerance,
        miss_rate=miss_rate,
        cost=_cost(agreed, task, step_seconds, check_seconds),
    )

    def show(console: Console) -> None:
        for line in str(found).splitlines():
            console.print(printable(line), soft_wrap=True)
        if found.cost is not None:
            step, check = duration(found.cost.step_seconds), duration(found.cost.check_seconds)
            console.print(f"a step takes {step} and a check {check}")

    return Result(document=found.document(), show=show)


def _cost(
    job: Job | None, task: str | None, step_seconds: float | None, check_seconds: float | None
) -> CostModel | None:
    from .._spot_check._cost import CostModel

    if task is not None:
        if step_seconds is not None or check_seconds is not None:
            raise typer.BadParameter("--task measures what --step-seconds and --check-seconds say")
        return CostModel.measure(load(task), job=job)
    if step_seconds is None and check_seconds is None:
        return None
    if step_seconds is None or check_seconds is None:
        raise typer.BadParameter("give --step-seconds and --check-seconds together")
    return CostModel(step_seconds=step_seconds, check_seconds=check_seconds)
