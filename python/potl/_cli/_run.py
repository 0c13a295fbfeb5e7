# SPDX-License-Identifier: Apache-2.0
"""Commands that work with a task: job, record, commit, check, calibrate, trace."""

from __future__ import annotations

import contextlib
import dataclasses
import json as json_module
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._arithmetic._arithmetic import AUTO, STOCK
from .._base._printable import counted, number, percent, printable, size
from ._files import RunPath, parse_size, signing_key
from ._options import constant
from ._result import FAILED, Result, command
from ._task import TaskArgument, TaskOption, load

if TYPE_CHECKING:
    from rich.console import Console

    from .._core import Job as CoreJob

KeyPath = Annotated[
    Path | None,
    typer.Option(help="The signing key, a file of potl keygen. Default: one in RUN."),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    job = typer.Typer(
        help="What client and trainer agree on: create a job, or show one.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.add_typer(job, name="job")
    command(
        job,
        "create",
        examples="  potl job create trainer:build job.json --seed 7 --checkpoint-every 20 "
        "--trainer trainer.pub",
    )(_job_create)
    command(job, "show", examples="  potl job show job.json")(_job_show)
    command(
        app,
        "record",
        examples="  potl record trainer:build runs/1 --job job.json --key trainer.pem\n\n"
        "  potl record trainer:build runs/2 --seed 7 --checkpoint-every 20\n\n"
        "  torchrun --nproc-per-node 4 --no-python potl record trainer:build runs/3 --job job.json "
        "--key trainer.pem --data-parallel",
    )(_record)
    command(
        app,
        "commit",
        examples="  potl commit runs/1 --key trainer.pem > note.txt",
    )(_commit)
    command(app, "export", examples="  potl export runs/1 delivered.safetensors")(_export)
    command(
        app,
        "rederive",
        examples="  potl rederive runs/1 --task trainer:build\n\n"
        "  potl rederive runs/1 --task trainer:build --challenge challenge.json",
    )(_rederive)
    command(app, "check", examples="  potl check trainer:build")(_check)
    command(
        app,
        "calibrate",
        examples="  potl calibrate trainer:build --steps 50\n\n"
        "  potl calibrate trainer:build --run-steps 5000 --max-bytes 2GB\n\n"
        "  potl calibrate trainer:build --run-steps 5000 --max-bytes 200MB --rederive",
    )(_calibrate)
    command(
        app,
        "trace",
        examples="  potl trace runs/1 --task trainer:build --step 57",
    )(_trace)


def parse_interval(text: str) -> int | str:
    """ "20" or "epoch".

    Raises:
        typer.BadParameter: Neither.
    """
    if text == "epoch":
        return text
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(f'"{text}" is neither a number of steps nor "epoch"')
    return int(text)


def _job_create(
    task: TaskArgument,
    out: Annotated[Path, typer.Argument(metavar="JOB", help="The file to write.")],
    *,
    seed: Annotated[int, typer.Option(help="Seed of everything random in the run.")],
    checkpoint_every: Annotated[
        str, typer.Option(metavar="STEPS", help='Steps between stored states, or "epoch".')
    ],
    trainer: Annotated[
        Path | None, typer.Option(help="Public key that pins who trains: NAME.pub.")
    ] = None,
    max_segment: Annotated[
        int | None,
        typer.Option(help="Longest distance in steps between states that `potl prune` may leave."),
    ] = None,
    store_every: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            help="Steps between stored states, a multiple of --checkpoint-every; the states "
            "between are derived when they are drawn. Not in stock arithmetic. Default: as many "
            "states as fit into 2 GB, or 20 if that is more.",
        ),
    ] = None,
    tolerance_cap: Annotated[
        float, typer.Option(help="Largest tolerance, as a share of a segment's update.")
    ] = constant("TOLERANCE_CAP"),
    max_resumes: Annotated[
        int, typer.Option(help="How often recording may be resumed.")
    ] = constant("MAX_RESUMES"),
    arithmetic: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="ord32, cr32, log64, xint24, xint16, or stock, in which replays have a tolerance. "
            "auto: ord32 if the task allows it.",
        ),
    ] = AUTO,
) -> Result:
    """Write down what is agreed before the training.

    That is data, recipe, seed, initial state, arithmetic, the trainer's key, and the words after
    --. Needs the data set and builds the task once. Refuses a task that cannot be replayed, and
    says what to change.
    """
    from .._base._errors import UsageError
    from .._job._job import Job

    if out.exists():
        raise UsageError(f"{out} exists and is not replaced", "choose another name")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", "make it first")
    job = Job.create(
        load(task),
        seed=seed,
        checkpoint_every=parse_interval(checkpoint_every),
        trainer=trainer,
        max_segment=max_segment,
        store_every=store_every,
        tolerance_cap=tolerance_cap,
        max_resumes=max_resumes,
        arithmetic=arithmetic,
    )
    job.write(out)
    return _job_result(job.core, str(out))


def _job_show(
    path: Annotated[Path, typer.Argument(metavar="JOB", help="A job file.")],
) -> Result:
    """Show what a job says."""
    from .._record._inputs import as_job

    return _job_result(as_job(path).core, str(path))


def _job_result(job: CoreJob, path: str) -> Result:
    fields = job.fields()
    document = {"path": path, "id": job.id.hex(), "job": fields}
    kept = f", stored every {number(job.store_every)}" if job.store_every else ""
    longest = fields["max_segment"]
    if longest > job.checkpoint_every:
        kept += f"; segments of up to {counted(longest, 'step')}"
    # What a job that somebody else made may bring, or leave to whoever trains.
    most = fields["limits"]
    replaced = f"which replace {counted(most['max_superseded'], 'step')} at most"
    is_of_file = fields["initial_state"]["source"] == "file"
    origin = "of a file, which need not follow from the seed" if is_of_file else "of the seed"

    def show(console: Console) -> None:
        rows = [
            ("job", job.id.hex()),
            ("trainer", job.trainer.hex() if job.trainer else "not pinned"),
            ("seed", str(job.seed)),
            ("steps", f"{number(job.steps)} in {counted(job.epochs, 'epoch')}"),
            ("batch", f"{number(job.batch_size)} of {counted(job.data_count, 'sample')}"),
            ("data", job.data_root.hex()),
            ("first state", f"{job.initial_state.hex()}, {origin}"),
            ("rates", "left to the task" if fields["learning_rates"] is None else "listed"),
            ("checkpoint", f"every {counted(job.checkpoint_every, 'step')}{kept}"),
            ("resumes", f"at most {number(most['max_resumes'])}, {replaced}"),
            ("arithmetic", printable(job.arithmetic)),
        ]
        if isinstance(words := fields["environment"].get("arguments"), list):
            rows.append(("made with", printable(shlex.join(["--", *map(str, words)]))))
        if job.arithmetic == STOCK:
            share = percent(fields["tolerance_cap"])
            rows.append(("tolerance", f"at most {share} of what a segment moves"))
        for name, value in rows:
            console.print(f"{name:<12}{value}")

    return Result(document=document, show=show)


def _record(
    task: TaskArgument,
    run: RunPath,
    *,
    job: Annotated[
        Path | None,
        typer.Option(help="What was agreed. Without it, --seed and --checkpoint-every."),
    ] = None,
    key: KeyPath = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a job made here.")] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help='Steps between stored states, or "epoch".'),
    ] = None,
    data_parallel: Annotated[
        bool,
        typer.Option(
            "--data-parallel",
            help="Compute the micro-batches of a step in all processes that torchrun started.",
        ),
    ] = False,
) -> Result:
    """Train a task and keep the evidence.

    To resume an interrupted recording, give the same command again. The record says that it was
    resumed.
    """
    from .._record._data_parallel import launched
    from .._record._record import record

    with launched() if data_parallel else contextlib.nullcontext() as group:
        records = group is None or group.rank() == 0
        made = record(
            load(task),
            run,
            job=job,
            key=signing_key(key) if records else None,
            seed=seed,
            checkpoint_every=None if checkpoint_every is None else parse_interval(checkpoint_every),
            group=group,
        )
    if made is None:  # rank 0 has it
        return Result(document=b"", show=lambda console: None)
    facts = made.inspect()
    next_words = ["potl", "commit", str(run), *([] if key is None else ["--key", str(key)])]

    def show(console: Console) -> None:
        from .._record._inspect import show as show_run

        show_run(facts, console)
        console.print(f"next: {printable(shlex.join(next_words))}", soft_wrap=True)

    return Result(document=facts, show=show)


def _commit(
    run: RunPath,
    *,
    key: KeyPath = None,
    out: Annotated[Path | None, typer.Option(help="Also write the note to this file.")] = None,
) -> Result:
    """Sign a finished run: from here its story cannot change. Give the printed note to the client.

    The note is also kept in the run directory. A run has one commitment; a second, different one is
    refused. If you recorded a job twice, commit to one of the runs only.
    """
    from .._record._run import Run

    commitment = Run(run, key=key).commit()
    if out is not None:
        commitment.write(out)
    text = str(commitment)
    document = {"note": text, "root": commitment.root.hex(), "size": commitment.size}
    return Result(document=document, show=lambda console: console.out(text, end=""))


def _export(
    run: RunPath,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The file to write.", show_default=False)
    ],
) -> Result:
    """Write the trained model of a finished run as safetensors, to be delivered.

    Holds the parameters and buffers of the last state under their names in the model. The client
    passes the file to potl verify --model.
    """
    from .._base._errors import UsageError
    from .._record._run import Run

    if model.exists():
        raise UsageError(f"{model} exists and is not replaced", "choose another name")
    if not model.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {model.parent}", "make it first")
    Run(run).export(model)
    written = model.stat().st_size

    def show(console: Console) -> None:
        console.print(f"{printable(model)}: {size(written)}", soft_wrap=True)

    return Result(document={"path": str(model), "bytes": written}, show=show)


def _rederive(
    run: RunPath,
    *,
    task: TaskOption,
    challenge: Annotated[
        Path | None,
        typer.Option(
            help="Derive only the states that this file of potl challenge names, and stored "
            "ones that were lost."
        ),
    ] = None,
) -> Result:
    """Train again, and store, the states that a run lacks.

    Each is stored only if it comes out bit for bit as it was recorded. A job in stock arithmetic
    needs the machine and the number of threads of the recording for that.
    """
    from .._verify._rederive import rederive

    done = rederive(run, task=load(task, run), challenge=challenge)
    document = {"steps": list(done.steps), "trained": done.trained}

    def show(console: Console) -> None:
        console.print(
            f"{counted(len(done.steps), 'state')} stored again after "
            f"{counted(done.trained, 'step')}"
        )

    return Result(document=document, show=show)


def _trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")],
    *,
    task: TaskOption,
    step: Annotated[int, typer.Option(help="The step, counted from 1.")],
    job: Annotated[Path | None, typer.Option(help="Your own job file. Default: the run's.")] = None,
) -> Result:
    """Replay one step and write a digest of each operator's result.

    If an exact replay differs, the trainer traces the step that the report names. The next `potl
    verify` then names the first operator that differs.
    """
    from .._record._trace import trace

    traced = trace(run, step=step, task=load(task, run), job=job)
    path = traced.write(run)
    document = {
        "path": str(path),
        "step": step,
        "operators": [{"name": name, "digest": digest} for name, digest in traced.operators],
    }

    def show(console: Console) -> None:
        console.print(f"{path}: {counted(len(traced.operators), 'operator')} of step {step}")

    return Result(document=document, show=show)


def _check(
    task: TaskArgument,
    *,
    arithmetic: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="As in potl job create. auto also lists what keeps the task from ord32.",
        ),
    ] = AUTO,
    disputable: Annotated[
        bool,
        typer.Option("--disputable", help="End with 3 also if no dispute could be decided."),
    ] = False,
) -> Result:
    """List what in a task prevents a replay, with its remedy.

    What only prevents an exact replay is listed, too. Ends with 0 if the task can be recorded and
    verified, else with 3. What keeps a referee from deciding a dispute about it is named in a line.
    """
    from .._arithmetic._arithmetic import LOST, STOCK
    from .._dispute._check import check

    found = check(load(task), arithmetic=arithmetic, disputable=True)
    disputes = [one for one in found if one.prevents == "dispute"]
    problems = [one for one in found if one.prevents != "dispute"]
    refused = [one for one in problems if one.prevents == "replay"]
    exact = not problems and arithmetic != STOCK
    decidable = exact and not disputes
    document = {
        "replayable": not refused,
        "exact": exact,
        "disputable": decidable,
        "problems": [dataclasses.asdict(one) for one in found],
    }

    def show(console: Console) -> None:
        for one in [*problems, *(disputes if disputable else ())]:
            console.print(f"{printable(one.where)}: {printable(one.what)}")
            console.print(f"    {printable(one.remedy)}")
        if refused:
            console.print(counted(len(refused), "problem"))
        elif problems or arithmetic == STOCK:
            console.print(f"the task can be replayed, not bit for bit. {LOST}")
        else:
            console.print("the task can be replayed bit for bit")
        for one in disputes:
            what = f"{printable(one.where)}: {printable(one.what)}"
            console.print(f"no dispute about it could be decided: {what}")

    failed = refused or (disputable and not decidable)
    return Result(document=document, show=show, exit_code=FAILED if failed else 0)


def _calibrate(
    task: TaskArgument,
    *,
    seed: Annotated[int, typer.Option(help="Seed of the job that is tried.")] = 0,
    steps: Annotated[
        int, typer.Option(help="Length of the longest segment that is measured.")
    ] = 100,
    repeats: Annotated[int, typer.Option(help="Honest replays to compare.")] = 4,
    run_steps: Annotated[
        int | None, typer.Option(help="Steps of the run to plan; goes with --max-bytes.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Disk for its checkpoints, for example 500MB or 2GiB.")
    ] = None,
    probability: Annotated[
        float,
        typer.Option(help="Probability with which a cheat in --cheat-fraction must be seen."),
    ] = 0.95,
    cheat_fraction: Annotated[
        float, typer.Option(help="Share of the segments that are false.")
    ] = 0.05,
    rederive: Annotated[
        bool,
        typer.Option(
            "--rederive",
            help="Plan for an exact arithmetic, in which challenged states are derived on demand.",
        ),
    ] = False,
) -> Result:
    """Measure how far honest replays drift on this machine.

    It helps to choose --checkpoint-every. With --run-steps and --max-bytes it also says which
    intervals make a verification of that run cheapest.
    """
    from .._job._calibrate import calibrate

    if (run_steps is None) != (max_bytes is None) or (rederive and run_steps is None):
        raise typer.BadParameter("--run-steps and --max-bytes go together, --rederive with both")
    budget = None if max_bytes is None else parse_size(max_bytes)
    found = calibrate(load(task), seed=seed, steps=steps, repeats=repeats)
    document = json_module.loads(found.json())
    plan = None
    if run_steps is not None and budget is not None:
        plan = found.storage(
            steps=run_steps,
            budget_bytes=budget,
            probability=probability,
            cheat_fraction=cheat_fraction,
            rederive=rederive,
        )
        document["storage"] = dataclasses.asdict(plan)

    def show(console: Console) -> None:
        console.print(found.table())
        console.print(f"{size(found.checkpoint_bytes)} per stored state")
        if plan is None:
            return
        stored = f" --store-every {plan.store_every}" if rederive else ""
        console.print(
            f"--checkpoint-every {plan.checkpoint_every}{stored}: {size(plan.bytes)}, "
            f"{number(plan.samples)} of {number(plan.segments)} segments to replay, "
            f"{percent(plan.verification_fraction)} of the training time"
        )
        if rederive:
            console.print(f"the trainer derives for {percent(plan.rederivation_fraction)} of it")
        if not plan.noise_fits:
            console.print(
                "such a segment is longer than what was measured to be quiet: measure longer "
                "(--steps), or raise --max-bytes"
            )

    return Result(document=document, show=show)
