# SPDX-License-Identifier: Apache-2.0
"""The commands of spot-checks: spot-check plan, worker, train, bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import duration, printable
from ._result import FAILED, Result, command
from ._task import TaskArgument, load, make_importable

if TYPE_CHECKING:
    from rich.console import Console

    from .._job._job import Job
    from .._spot_check._cost import CostModel
    from .._spot_check._guard import SpotCheck

KeyFile = Annotated[
    Path,
    typer.Option(help="File with the secret of both sides: head -c 32 /dev/urandom > shared.key"),
]
Goal = Annotated[
    int | None,
    typer.Option(
        metavar="STEPS",
        help="Number of false steps to catch. Default: a tenth of them, at most 100.",
    ),
]
Displacement = Annotated[
    float | None,
    typer.Option(
        metavar="NORM", help="Or: largest distance (l2) that false gradients may move the weights."
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(metavar="NORM", help="Largest norm of a gradient. Default: grad_clip of the job."),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        metavar="NORM",
        help="Distance of clipped gradients that passes. Default: 0 in a reproducible arithmetic, "
        "else measured.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    group = typer.Typer(
        help="Train with a worker that you do not trust.",
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
    command(
        group,
        "worker",
        examples="  potl spot-check worker trainer:build --listen tcp://0.0.0.0:7070 "
        "--key shared.key\n\n"
        "  potl spot-check worker trainer:build --listen unix:/run/potl.sock --key shared.key",
    )(_worker)
    command(
        group,
        "train",
        examples="  potl spot-check train trainer:build guard/ --job job.json "
        "--worker tcp://gpu.example:7070 --key shared.key\n\n"
        "  potl spot-check train trainer:build guard/ --job job.json --worker unix:/run/potl.sock "
        "--key shared.key --displacement 0.5 --model model.safetensors --html report.html",
    )(_train)
    command(
        group,
        "bench",
        examples="  potl spot-check bench trainer:build --job job.json\n\n"
        "  potl spot-check bench trainer:build --job job.json --steps-at-risk 1000 --json",
    )(_bench)


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
            help="Or the goal: number of false steps to catch, wherever they are.",
        ),
    ] = None,
    probability: Annotated[
        float, typer.Option(help="Probability with which the certificate holds.")
    ] = 0.999,
    rate: Annotated[
        float | None,
        typer.Option(help="A learning rate that no step exceeds, instead of the job's."),
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
            metavar="MODULE:FUNCTION",
            help="Measure the time of steps and checks of this task here.",
        ),
    ] = None,
    step_seconds: Annotated[
        float | None, typer.Option(help="Time of a step, if it is not measured.")
    ] = None,
    check_seconds: Annotated[
        float | None, typer.Option(help="Time of a check, if it is not measured.")
    ] = None,
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


def _worker(
    task: TaskArgument,
    *,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="unix:/path/of/a.sock or tcp://host:port.")
    ],
    key: KeyFile,
    timeout: Annotated[
        float, typer.Option(help="Seconds that the trusted side may be silent.")
    ] = 600.0,
) -> Result:
    """Compute gradients for a trusted side, until it ends the training.

    Says on stderr when it can be connected to. Ends with 0 when the training came to its end, and
    with 3 when the trusted side stopped it before.
    """
    from .._spot_check._worker import Worker

    make_importable()
    worker = Worker(load(task), key=key)
    served = worker.serve(
        listen,
        timeout=timeout,
        ready=lambda address: typer.echo(f"listening at {address}", err=True),
    )

    def show(console: Console) -> None:
        how = "the training is finished" if served.finished else f"stopped: {served.reason}"
        console.print(printable(f"{served.steps} gradients sent; {how}"), soft_wrap=True)

    return Result(
        document={"steps": served.steps, "finished": served.finished, "reason": served.reason},
        show=show,
        exit_code=0 if served.finished else FAILED,
    )


def _train(
    task: TaskArgument,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Where the training is kept. The same command resumes it.",
        ),
    ],
    *,
    job: Annotated[Path, typer.Option(help="Your own copy of the job.")],
    worker: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address on which the worker listens.")
    ],
    key: KeyFile,
    probability: Annotated[
        float, typer.Option(help="Probability with which the certificate holds.")
    ] = 0.999,
    steps_at_risk: Goal = None,
    displacement: Displacement = None,
    clip: Clip = None,
    tolerance: Tolerance = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that the worker has for one gradient.")
    ] = 60.0,
    model: Annotated[
        Path | None, typer.Option(help="Write the weights as safetensors when all is final.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
) -> Result:
    """Train with a worker that nobody has to trust, and check its gradients.

    Ends with 0 if every step is final, with 1 if a gradient was false, and with 3 if the training
    did not reach its end. What was not final is taken back; give the command again, with this or
    another worker, to go on. Of a training that is finished, --model writes the weights.
    """
    from .._report._page import require_page
    from .._report._report import render_html, render_terminal
    from .._spot_check._guard import SpotCheck

    if html is not None:
        require_page(html)
    if model is not None and not model.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {model.absolute().parent}")
    make_importable()
    with SpotCheck(
        load(task),
        job=job,
        key=key,
        path=folder,
        probability=probability,
        steps_at_risk=steps_at_risk,
        displacement=displacement,
        clip=clip,
        tolerance=tolerance,
        timeout=timeout,
    ) as guard:
        if guard.is_finished:
            return _weights_of(guard, model)
        report = guard.train(worker)
        if model is not None and report.verdict == "accepted":
            guard.save_model(model)
    document = report.document
    return Result(
        document=report.json().encode(),
        show=lambda console: render_terminal(document, console),
        exit_code=report.exit_code,
        files={} if html is None else {html: render_html(document)},
    )


def _weights_of(guard: SpotCheck, model: Path | None) -> Result:
    """Of a training that an earlier command finished."""
    from .._base._errors import UsageError

    steps = guard.final_step
    if model is None:
        raise UsageError(f"all {steps} steps are final already", "--model FILE writes the weights")
    guard.save_model(model)
    return Result(
        document={"final_steps": steps, "model": str(model)},
        show=lambda console: console.print(
            f"all {steps} steps were final already; {printable(model)} has the weights"
        ),
    )


def _bench(
    task: TaskArgument,
    *,
    job: Annotated[Path, typer.Option(help="The agreed job.")],
    steps: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of steps to measure.")
    ] = 20,
    probability: Annotated[
        float, typer.Option(help="Probability with which the certificate holds.")
    ] = 0.999,
    steps_at_risk: Goal = None,
    displacement: Displacement = None,
    clip: Clip = None,
) -> Result:
    """Measure here what a guarded training of a task costs.

    The worker is a process of its own on this machine, so that both sides share its processors.
    """
    from .._spot_check._bench import measure

    make_importable()
    found = measure(
        task,
        job=job,
        steps=steps,
        probability=probability,
        steps_at_risk=steps_at_risk,
        displacement=displacement,
        clip=clip,
    )

    def show(console: Console) -> None:
        console.print(
            f"a step takes {duration(found.plain_seconds)} alone and "
            f"{duration(found.guarded_seconds)} guarded: {found.overhead:.2f} times as long, with "
            f"{found.checked} of {found.steps} steps checked on the same machine"
        )

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
