# SPDX-License-Identifier: Apache-2.0
"""potl extra-task verify and audit."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._base._printable import counted, number, percent, printable
from ._extra_data import TABLE, DataPath, Transform, function_of, read, split, tell_of_key
from ._options import given_of
from ._result import Result

if TYPE_CHECKING:
    from rich.console import Console

    from .._extra_task._extra_task import ExtraTask
    from .._extra_task._result import ExtraResult


def verify(
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
    transform: Transform = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            help="Write what to ask: a folder for images, .npz, .safetensors, .csv or .jsonl."
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(
            help="Judge answers in the order of the questions: names of classes, class numbers "
            "from 0 on, rows of scores, or errors; .npz, .json, .csv, or one per line."
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Reference curves (JSON), for an estimate of progress.")
    ] = None,
) -> Result:
    """Ask a model about the extra samples, and judge its answers.

    Ends with 0 if the model has learned them, 1 if it has not, and 3 if it knows few of them or
    could not be judged. Every different set of answers is a submission; planned submissions share
    alpha.
    """
    from .._extra_task._extra_task import ExtraTask

    if sum(one is not None for one in (model, questions, answers)) != 1:
        raise typer.BadParameter("give one of --model, --questions and --answers")
    if transform is not None and model is None:
        raise typer.BadParameter("--transform goes with --model alone")
    tell_of_key(key)
    curves = () if calibration is None else _curves(calibration)
    task = ExtraTask(key, calibration=curves, transform=function_of(transform))
    if questions is not None:
        return _asked(task, questions)
    if answers is not None:
        from .._extra_task._question_files import read_answers

        return _judged(task.judge(*read_answers(task, answers)))
    loaded = function_of(str(model))()
    if hasattr(loaded, "parameters"):
        return _judged(task.verify(loaded))
    if transform is not None:
        raise typer.BadParameter(
            f"--model {model} returns a function, which gets inputs as they are: transform them "
            "there, without --transform"
        )
    return _judged(task.verify(predict=loaded))


def _curves(path: Path) -> Any:
    try:
        return json_module.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--calibration {path} cannot be read: {error}") from error


def _asked(task: ExtraTask, path: Path) -> Result:
    from .._extra_task._question_files import write_questions

    count = write_questions(task, path)

    def show(console: Console) -> None:
        console.print(
            f"{counted(count, 'question')} in {printable(path)}; keep the order when you answer"
        )

    return Result(document={"questions": str(path), "count": count}, show=show)


def _judged(result: ExtraResult) -> Result:
    def show(console: Console) -> None:
        console.print(f"{result.verdict}: {printable(result.reason)}")
        if result.classes and result.needed:  # none where nothing was judged
            console.print(
                f"{number(result.hits)} of {number(result.samples)} hits "
                f"(p = {number(result.p_value)}), fewer than {number(result.needed)} fail, "
                f"{number(result.needed_for_acceptance)} are accepted; on controls "
                f"{number(result.control_hits)} of "
                f"{number(result.controls)} (difference: p = {number(result.control_p_value)})"
            )
        elif result.needed_effect:
            console.print(
                f"errors are smaller than on controls in {percent(result.effect)} of pairs of one "
                f"grade, {percent(result.needed_effect)} for acceptance "
                f"(p = {number(result.acceptance_p_value)})"
            )
        if result.progress is not None:
            console.print(printable(result.progress.text))
        for limit in result.limits:
            console.print(f"unseen: {printable(limit)}")

    return Result(document=result.document(), show=show, exit_code=result.exit_code)


def audit(
    data: DataPath,
    *,
    build: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Your function that returns a fresh torch module. Default: a small net.",
        ),
    ] = None,
    transform: Transform = None,
    epochs: Annotated[int, typer.Option(help="Epochs of honest training.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of keys, initial weights and order.")] = 0,
    **given: object,
) -> Result:
    """Play a cheating cloud against extra samples in these data, with both layouts or --layout.

    Trains small models on this machine. Names the cheapest attack that is accepted, and its cost as
    a share of the honest training.
    """
    from .._extra_task._audit import audit as play

    if epochs < 1:
        raise typer.BadParameter("--epochs must be at least 1")
    if seed < 0:
        raise typer.BadParameter("--seed must be at least 0")
    reading, form, options = split(given)
    report = play(
        read(data, **reading).data,
        build=function_of(build),
        transform=function_of(transform),
        epochs=epochs,
        seed=seed,
        **form,
        **given_of(TABLE, options),
    )
    return Result(document=report.document(), show=lambda console: console.print(report.table()))
