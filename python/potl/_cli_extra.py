# SPDX-License-Identifier: Apache-2.0
"""Commands of the extra task, on files alone: extra-task keygen, make, mix, verify, plan, audit."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._cli_options import given_of, parameters_of
from ._cli_result import Debug, Json, Result, command
from ._cli_task import make_importable
from ._printable import number, percent, printable

if TYPE_CHECKING:
    from rich.console import Console

    from ._extra_result import ExtraPlan, ExtraResult
    from ._extra_task import ExtraTask
    from ._sample_files import SampleFile

_TABLE = "extra_task"

DataPath = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A folder with one folder of images per class, .npz, .safetensors, .csv or .jsonl.",
        show_default=False,
    ),
]
OutPath = Annotated[
    Path, typer.Argument(metavar="OUT", help="What is written; must not exist.", show_default=False)
]
KeyPath = Annotated[
    Path, typer.Option("--key", help="The secret key's file, from keygen.", show_default=False)
]
Inputs = Annotated[str | None, typer.Option(help="Name of the array or column of inputs.")]
Labels = Annotated[str | None, typer.Option(help="Name of the array or column of labels.")]
Unlabelled = Annotated[bool, typer.Option("--unlabelled", help="The data have no labels.")]
Kind = Annotated[
    str | None,
    typer.Option(help="image, text, table, autoencoder or language. Default: found out."),
]
Length = Annotated[
    int | None,
    typer.Option(help="Words of an extra text, no more than the model reads. Default: the median."),
]
Padding = Annotated[int | None, typer.Option(help="Id of padding. Default: found out.")]
Classes = Annotated[int | None, typer.Option(help="Classes. Default: as the labels say.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    group = typer.Typer(
        help="Secret samples in the training data that show whether a model converged.",
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
        extra=parameters_of(_TABLE),
    )(_plan)
    command(
        group,
        "make",
        examples="  potl extra-task make train.npz extra.npz --key extra.key",
        extra=parameters_of(_TABLE),
    )(_make)
    command(
        group,
        "mix",
        examples="  potl extra-task mix photos upload --key extra.key\n\n"
        "  potl extra-task mix reviews.csv upload.csv --key extra.key --length 200",
        extra=parameters_of(_TABLE),
    )(_mix)
    command(
        group,
        "verify",
        examples="  potl extra-task verify extra.key --model trained:load\n\n"
        "  potl extra-task verify extra.key --questions questions.npz\n\n"
        "  potl extra-task verify extra.key --answers answers.csv --json",
    )(_verify)
    command(
        group,
        "audit",
        examples="  potl extra-task audit train.npz --epochs 20\n\n"
        "  potl extra-task audit train.npz --build net:build --json",
        extra=parameters_of(_TABLE),
    )(_audit)


def _keygen(
    path: Annotated[
        Path, typer.Argument(metavar="KEY", help="The file to write.", show_default=False)
    ],
    *,
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Make the secret key of one extra task: 32 bytes that only you may have.

    Samples are generated from it. One key is for one model. Existing files are never replaced.
    """
    from ._extra_key import ExtraKey

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
        int | None, typer.Option(help="Instead of data: how many training samples there are.")
    ] = None,
    classes: Classes = None,
    inputs: Inputs = None,
    labels: Labels = None,
    unlabelled: Unlabelled = False,
    kind: Kind = None,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> Result:
    """Say how many extra samples there would be, how many hits are needed, and what that can tell.

    Sets that are too small for 200 samples at this eta get more, and the plan says so.
    """
    from ._extra_task import ExtraTask

    if (data is None) == (samples is None):
        raise typer.BadParameter("give either DATA or --samples")
    if data is None:
        plan = ExtraTask.plan(samples, classes=classes, **given_of(_TABLE, options))
    else:
        file = _read(data, inputs, labels, unlabelled)
        plan = ExtraTask.plan(file.data, classes=classes, kind=kind, **given_of(_TABLE, options))
    return Result(document=plan.document(), show=lambda console: _show_plan(plan, console))


def _show_plan(plan: ExtraPlan, console: Console) -> None:
    console.print(
        f"{number(plan.samples)} extra samples ({percent(plan.eta)} of "
        f"{number(plan.training_samples)}) and {number(plan.controls)} controls, grades "
        f"{', '.join(plan.grades)}"
    )
    if plan.classes:
        console.print(
            f"{number(plan.needed)} hits are needed; a model that knows none has "
            f"{number(plan.chance * plan.samples)} on average, epsilon included"
        )
    for row in plan.powers:
        console.print(
            f"who has learned {percent(row['share'])} of them passes with probability "
            f"{percent(row['power'])}"
        )
    console.print(f"{percent(plan.cost)} of the training steps go to the extra samples")
    for warning in plan.warnings:
        console.print(f"warning: {printable(warning)}")


def _mix(
    data: DataPath,
    out: OutPath,
    *,
    key: KeyPath,
    classes: Classes = None,
    inputs: Inputs = None,
    labels: Labels = None,
    unlabelled: Unlabelled = False,
    kind: Kind = None,
    length: Length = None,
    padding: Padding = None,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> Result:
    """Write the training data with the extra samples among them, for upload.

    OUT has the layout of DATA. File names are random, all times are equal and the order is secret.
    Keep the key, and the .json file beside it.
    """
    file = _read(data, inputs, labels, unlabelled)
    task = _task(file, key, classes, kind, length, padding, options)
    extras, order = task.uploads()
    file.write(out, extras, order)
    return _written(task, out, len(order))


def _make(
    data: DataPath,
    out: OutPath,
    *,
    key: KeyPath,
    classes: Classes = None,
    inputs: Inputs = None,
    labels: Labels = None,
    unlabelled: Unlabelled = False,
    kind: Kind = None,
    length: Length = None,
    padding: Padding = None,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> Result:
    """Write the extra samples alone, to look at them or to mix them by other means.

    Whoever sees this file can cheat: it shows which samples are extra.
    """
    file = _read(data, inputs, labels, unlabelled)
    task = _task(file, key, classes, kind, length, padding, options)
    extras = task.make()
    real = task.planned.training_samples
    file.write(out, extras, [real + place for place in range(len(extras))])
    return _written(task, out, len(extras))


def _verify(
    key: Annotated[
        Path, typer.Argument(metavar="KEY", help="The secret key's file.", show_default=False)
    ],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Your function that returns the model (a torch module, or a function of a list of "
            "inputs); the current directory is importable.",
        ),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Your function that makes a tensor of one input, as in evaluation.",
        ),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(help="Write what to ask: a folder for images, .npz, .safetensors or .jsonl."),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(
            help="Judge answers in the order of the questions: .npz, .json, or a line each."
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Reference curves (JSON), for an estimate of progress.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Ask a model about the extra samples, and judge its answers.

    Ends with 0 when it has learned them, 1 when it has not, 3 when that could not be judged. Every
    different set of answers is a submission; planned submissions share alpha.
    """
    from ._extra_task import ExtraTask

    if sum(one is not None for one in (model, questions, answers)) != 1:
        raise typer.BadParameter("give one of --model, --questions and --answers")
    curves = () if calibration is None else json_module.loads(calibration.read_text())
    task = ExtraTask(
        key,
        calibration=curves,
        transform=None if transform is None else _function(transform),
    )
    if questions is not None:
        return _asked(task, questions)
    if answers is not None:
        from ._extra_questions import read_answers

        return _judged(task.judge(*read_answers(task, answers)))
    loaded = _function(str(model))()
    if hasattr(loaded, "parameters"):
        return _judged(task.verify(loaded))
    return _judged(task.verify(predict=loaded))


def _asked(task: ExtraTask, path: Path) -> Result:
    from ._extra_questions import write_questions

    count = write_questions(task, path)

    def show(console: Console) -> None:
        console.print(f"{number(count)} questions in {printable(path)}; answer them in this order")

    return Result(document={"questions": str(path), "count": count}, show=show)


def _judged(result: ExtraResult) -> Result:
    def show(console: Console) -> None:
        console.print(f"{result.verdict}: {printable(result.reason)}")
        if result.classes:
            console.print(
                f"{number(result.hits)} of {number(result.samples)} hits, {number(result.needed)} "
                f"needed (p = {number(result.p_value)}); controls: {number(result.control_hits)} "
                f"of {number(result.controls)} (p = {number(result.control_p_value)})"
            )
        if result.progress is not None:
            console.print(printable(result.progress.text))
        for limit in result.limits:
            console.print(f"unseen: {printable(limit)}")

    return Result(document=result.document(), show=show, exit_code=result.exit_code)


def _audit(
    data: DataPath,
    *,
    classes: Classes = None,
    inputs: Inputs = None,
    labels: Labels = None,
    kind: Kind = None,
    build: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Your function that returns a fresh torch module. Default: a small net.",
        ),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Your function that makes a tensor of one input."
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of honest training.")] = 20,
    seed: Annotated[int, typer.Option(help="Of initial weights and order.")] = 0,
    json: Json = False,
    debug: Debug = False,
    **options: Any,
) -> Result:
    """Play a cheating cloud against extra samples in these data, with both layouts.

    Trains small models here. Says which attack is the cheapest that is accepted, and its cost as a
    share of the honest training.
    """
    from ._extra_audit import audit

    if epochs < 1:
        raise typer.BadParameter("--epochs must be at least 1")
    report = audit(
        _read(data, inputs, labels, unlabelled=False).data,
        classes=classes,
        kind=kind,
        build=None if build is None else _function(build),
        transform=None if transform is None else _function(transform),
        epochs=epochs,
        seed=seed,
        **given_of(_TABLE, options),
    )
    return Result(document=report.document(), show=lambda console: console.print(report.table()))


def _read(path: Path, inputs: str | None, labels: str | None, unlabelled: bool) -> SampleFile:
    from ._sample_files import read

    return read(path, inputs=inputs, labels=labels, unlabelled=unlabelled)


def _task(
    file: SampleFile,
    key: Path,
    classes: int | None,
    kind: str | None,
    length: int | None,
    padding: int | None,
    options: dict[str, Any],
) -> ExtraTask:
    from ._extra_task import ExtraTask

    return ExtraTask(
        key,
        like=file.data,
        classes=classes,
        kind=kind,
        length=length,
        padding=padding,
        **given_of(_TABLE, options),
    )


def _written(task: ExtraTask, out: Path, count: int) -> Result:
    plan = task.planned

    def show(console: Console) -> None:
        console.print(f"{printable(out)}  {number(count)} samples")
        _show_plan(plan, console)

    document = {"written": str(out), "count": count, "plan": plan.document()}
    return Result(document=document, show=show)


def _function(name: str) -> Callable[..., Any]:
    from ._executors import load_task

    make_importable()
    return load_task(name)
