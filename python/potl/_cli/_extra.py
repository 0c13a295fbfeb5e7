# SPDX-License-Identifier: Apache-2.0
"""Commands of the extra task, on files alone: extra-task keygen, make, mix, verify, plan, audit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import counted, number, percent, printable
from ._extra_data import (
    TABLE,
    DataPath,
    KeyPath,
    OutPath,
    making,
    read,
    split,
    tell_of_key,
    telling,
)
from ._extra_verify import audit, verify
from ._options import given_of
from ._result import Result, command

if TYPE_CHECKING:
    from rich.console import Console

    from .._extra_task._extra_task import ExtraTask
    from .._extra_task._files import SampleFile
    from .._extra_task._result import ExtraPlan


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    group = typer.Typer(
        help="See from a model alone whether it was trained to the end.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.add_typer(group, name="extra-task")
    command(group, "keygen", examples="  potl extra-task keygen extra.key")(_keygen)
    command(
        group,
        "plan",
        examples="  potl extra-task plan photos\n\n"
        "  potl extra-task plan --samples 50000 --classes 10 --eta 0.004",
        extra=making(),
    )(_plan)
    command(
        group,
        "make",
        examples="  potl extra-task make train.npz extra.npz --key extra.key",
        extra=making(),
    )(_make)
    command(
        group,
        "mix",
        examples="  potl extra-task mix photos upload --key extra.key\n\n"
        "  potl extra-task mix reviews.csv upload.csv --key extra.key --length 200",
        extra=making(),
    )(_mix)
    command(
        group,
        "verify",
        examples="  potl extra-task verify extra.key --model trained:load\n\n"
        "  potl extra-task verify extra.key --questions questions.npz\n\n"
        "  potl extra-task verify extra.key --answers answers.csv --json",
    )(verify)
    command(
        group,
        "audit",
        examples="  potl extra-task audit train.npz --epochs 20\n\n"
        "  potl extra-task audit train.npz --build net:build --json",
        extra=making("unlabelled"),
    )(audit)


def _keygen(
    path: Annotated[
        Path, typer.Argument(metavar="KEY", help="The file to write.", show_default=False)
    ],
) -> Result:
    """Make the secret key of one extra task: 32 bytes that only you may have.

    Samples are generated from it. Use one key for one model. Existing files are never replaced.
    """
    from .._extra_task._key import ExtraKey

    key = ExtraKey.generate(path)

    def show(console: Console) -> None:
        console.print(f"{printable(path)}  secret: never give it to the trainer, keep a copy")

    return Result(document={"key": str(path), "id": key.id}, show=show)


def _plan(
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="The training data.", show_default=False)
    ] = None,
    *,
    samples: Annotated[
        int | None, typer.Option(help="Instead of DATA: the number of training samples.")
    ] = None,
    **given: object,
) -> Result:
    """Say how many extra samples there would be, what each verdict takes, and what they cost.

    A data set that is too small for 200 samples at this eta gets 200, and the plan says so.
    """
    from .._extra_task._extra_task import ExtraTask

    if (data is None) == (samples is None):
        raise typer.BadParameter("give either DATA or --samples")
    reading, form, options = split(given)
    own = given_of(TABLE, options)
    if data is None:
        unused = [
            name for name, value in {**reading, **form}.items() if value and name != "classes"
        ]
        if unused:
            raise typer.BadParameter(f"--{unused[0]} is about DATA, and there are none")
        plan = ExtraTask.plan(samples, classes=form["classes"], **own)
    else:
        plan = ExtraTask.plan(read(data, **reading).data, **form, **own)
    return Result(document=plan.document(), show=lambda console: _show_plan(plan, console))


def _show_plan(plan: ExtraPlan, console: Console) -> None:
    console.print(
        f"{number(plan.samples)} extra samples ({percent(plan.eta)} of "
        f"{number(plan.training_samples)}) and {number(plan.controls)} controls, grades "
        f"{', '.join(plan.grades)}"
    )
    if plan.classes:
        console.print(
            f"{number(plan.needed_for_acceptance)} hits are accepted, fewer than "
            f"{number(plan.needed)} fail, and those between are inconclusive; a model that "
            f"knows epsilon of the samples has {number(plan.chance * plan.samples)} on average"
        )
    elif plan.needed_effect:
        console.print(
            "for acceptance, errors must be smaller than on controls in "
            f"{percent(plan.needed_effect)} of pairs of one grade"
        )
    for escaped, accepted in zip(plan.powers, plan.acceptance, strict=True):
        console.print(
            f"with probability {percent(escaped['power'])}, a model that knows "
            f"{percent(escaped['share'])} of them is not rejected, and one that knows "
            f"{percent(accepted['share'])} is accepted"
        )
    console.print(f"{percent(plan.cost)} of the training steps go to the extra samples")
    if plan.classes:
        expected, most = (number(round(plan.accuracy[name], 2)) for name in ("expected", "most"))
        console.print(
            f"in experiments they cost up to {expected} points of accuracy, up to {most} at the "
            "ends of intervals (docs/experiments/extra_task.md)"
            if plan.accuracy.get("measured", True)
            else f"experiments had no share as large; in proportion they would cost {expected} "
            f"points of accuracy, up to {most}"
        )
    for warning in plan.warnings:
        console.print(f"warning: {printable(warning)}")


def _mix(
    data: DataPath,
    out: OutPath,
    *,
    key: KeyPath,
    **given: object,
) -> Result:
    """Write the training data with the extra samples among them, for upload.

    OUT has the layout of DATA, with random file names, equal times and a secret order. What images
    carry beside their pixels is left out. Keep the key, and the .json file beside it.
    """
    from .._extra_task._writing import whole

    file, task = _task(data, out, key, given)
    with telling(), task._using():
        extras, order = task.uploads()
        with whole(out) as made:
            file.write(made, extras, order)
    return _written(task, out, len(order))


def _make(
    data: DataPath,
    out: OutPath,
    *,
    key: KeyPath,
    **given: object,
) -> Result:
    """Write the extra samples alone, to look at them or to mix them by other means.

    Keep this file secret: it shows which samples are extra.
    """
    from .._extra_task._writing import whole

    file, task = _task(data, out, key, given)
    real = task.planned.training_samples
    with telling(), task._using():
        extras = task.make()
        with whole(out) as made:
            file.write(made, extras, [real + place for place in range(len(extras))])
    return _written(task, out, len(extras))


def _task(
    data: Path, out: Path, key: Path, given: Mapping[str, object]
) -> tuple[SampleFile, ExtraTask]:
    from .._extra_task._extra_task import ExtraTask
    from .._extra_task._files import require_fitting

    require_fitting(out, data)  # before the key counts as used
    tell_of_key(key)
    reading, form, options = split(given)
    file = read(data, **reading)
    return file, ExtraTask(key, like=file.data, **form, **given_of(TABLE, options))


def _written(task: ExtraTask, out: Path, count: int) -> Result:
    plan = task.planned

    def show(console: Console) -> None:
        console.print(f"{printable(out)}  {counted(count, 'sample')}")
        _show_plan(plan, console)

    document = {"written": str(out), "count": count, "plan": plan.document()}
    return Result(document=document, show=show)
