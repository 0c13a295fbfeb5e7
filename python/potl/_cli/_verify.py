# SPDX-License-Identifier: Apache-2.0
"""Commands of the client: verify, challenge, plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import counted, number, percent
from ._options import chosen, parameters, policy_of
from ._result import Result, command
from ._serve import AnyRun, CacheBytes, OpenWith, TlsCa, TokenFile, run_of
from ._task import TaskName, make_importable

if TYPE_CHECKING:
    from rich.console import Console

    from .._checks._checks import AnyCheck


Ledger = Annotated[
    Path | None,
    typer.Option(
        help="Where your challenges of this job are remembered. "
        "Default: a file in your state directory."
    ),
]
NoLedger = Annotated[
    bool, typer.Option("--no-ledger", help="Remember nothing and repeat no earlier challenge.")
]

# As a policy's.
_FRACTIONS = (1e-9, 1)
# Doubles count exactly so far, and so do jobs.
_MOST_SEGMENTS = 2**53 - 1


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    command(
        app,
        "verify",
        examples="  potl verify runs/1 --job job.json --commitment note.txt "
        "--task trainer:build --html report.html\n\n"
        "  potl verify runs/1 --job job.json --commitment note.txt --task trainer:build "
        "--model delivered.safetensors --check replay --replay-samples 20 --json",
        extra=parameters(),
    )(_verify)
    command(
        app,
        "challenge",
        examples="  potl challenge runs/1 challenge.json --job job.json --commitment note.txt\n\n"
        "  potl rederive runs/1 --task trainer:build --challenge challenge.json\n\n"
        "  potl verify runs/1 --job job.json --commitment note.txt --task trainer:build "
        "--challenge challenge.json",
        extra=parameters(),
    )(_challenge)
    command(
        app,
        "plan",
        examples="  potl plan --segments 250 --cheat-fraction 0.05 --probability 0.95\n\n"
        "  potl plan --segments 250 --cheat-fraction 0.05 --samples 12",
    )(_plan)


def _verify(
    run: AnyRun,
    *,
    job: Annotated[
        Path | None, typer.Option(help="Your own copy of the job. Without it: never accepted.")
    ] = None,
    commitment: Annotated[
        Path | None, typer.Option(help="The prover's commitment. Without it: never accepted.")
    ] = None,
    task: TaskName = None,
    model: Annotated[
        Path | None, typer.Option(help="The delivered safetensors file, compared bit for bit.")
    ] = None,
    extra_task: Annotated[
        Path | None,
        typer.Option(help="Key of an extra task in the data: ask the model about it too."),
    ] = None,
    published: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A note from during the training, which the commitment must extend. Repeatable.",
        ),
    ] = None,
    other_commitment: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A commitment that the prover showed elsewhere. Repeatable."
        ),
    ] = None,
    nonce: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|HEX",
            help="64 hexadecimal digits, or a file of those: repeat an earlier challenge.",
        ),
    ] = None,
    challenge: Annotated[
        Path | None,
        typer.Option(help="File of potl challenge, which the trainer answered: asks the same."),
    ] = None,
    ledger: Ledger = None,
    no_ledger: NoLedger = False,
    workers: Annotated[int, typer.Option(help="Processes that replay in parallel.")] = 0,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that one replay may take with its repeats.")
    ] = None,
    max_checkpoint_bytes: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="BYTES",
            help="Largest checkpoint that is read. Default: twice the largest of your own first "
            "states, plus 64 MiB; 4 GiB without --task.",
        ),
    ] = None,
    token_file: TokenFile = None,
    open_with: OpenWith = None,
    tls_ca: TlsCa = None,
    cache_bytes: CacheBytes = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML.")] = None,
    **options: object,
) -> Result:
    """Check that a run was trained as agreed.

    Ends with 0 if the run is accepted, 1 if it is rejected and 3 if it is inconclusive; only a
    computed verdict ends with 0 or 1. The challenge is drawn now, so you must already hold the
    commitment.
    """
    from .._record._inputs import as_note
    from .._report._page import require_page
    from .._report._report import render_html, render_junit, render_terminal
    from .._verify._verify import verify

    checks: list[AnyCheck] = [*chosen(options)]
    policy = policy_of(options)
    for target in filter(None, (html, junit)):
        require_page(target)
    place = run_of(run, token_file, tls_ca, cache_bytes, open_with)
    make_importable(place if isinstance(place, Path) else None)
    if extra_task is not None:
        from .._extra_task._extra_task import ExtraTask

        checks.append(ExtraTask(extra_task))
    report = verify(
        place,
        job=job,
        commitment=commitment,
        task=task,
        model=model,
        checks=checks or None,
        policy=policy,
        nonce=nonce,
        published=[as_note(path) for path in published or []],
        other_commitments=[as_note(path) for path in other_commitment or []],
        challenge=challenge,
        ledger=_ledger_of(ledger, no_ledger),
        workers=workers,
        timeout=timeout,
        max_checkpoint_bytes=max_checkpoint_bytes,
    )
    document = report.document
    files = {} if html is None else {html: render_html(document)}
    if junit is not None:
        files[junit] = render_junit(document)
    return Result(
        document=report.json().encode(),
        show=lambda console: render_terminal(document, console),
        exit_code=report.exit_code,
        files=files,
    )


def _ledger_of(ledger: Path | None, no_ledger: bool) -> Path | bool:
    if ledger is not None and no_ledger:
        raise typer.BadParameter("--ledger and --no-ledger exclude each other")
    if ledger == Path("none") and not ledger.exists():
        raise typer.BadParameter("--ledger none names a file: use --no-ledger")
    return not no_ledger if ledger is None else ledger


def _challenge(
    run: AnyRun,
    out: Annotated[Path, typer.Argument(metavar="CHALLENGE", help="The file to write.")],
    *,
    job: Annotated[Path, typer.Option(help="Your own copy of the job.")],
    commitment: Annotated[Path, typer.Option(help="The prover's commitment.")],
    nonce: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|HEX",
            help="64 hexadecimal digits, or a file of those, instead of fresh ones.",
        ),
    ] = None,
    ledger: Ledger = None,
    token_file: TokenFile = None,
    open_with: OpenWith = None,
    tls_ca: TlsCa = None,
    cache_bytes: CacheBytes = None,
    **options: object,
) -> Result:
    """Draw what you will verify, for the trainer to answer.

    Use it for jobs with --store-every. Give the file to the trainer (potl rederive --challenge),
    then verify with it. The challenge is remembered: a trainer that does not answer gets no other
    draw.
    """
    from .._base._errors import UsageError
    from .._verify._challenge import challenge

    if out.exists():
        raise UsageError(f"{out} exists and is not replaced", "choose another name")
    drawn = challenge(
        run_of(run, token_file, tls_ca, cache_bytes, open_with),
        job=job,
        commitment=commitment,
        checks=chosen(options) or None,
        policy=policy_of(options),
        nonce=nonce,
        ledger=True if ledger is None else ledger,
    )
    drawn.write(out)

    def show(console: Console) -> None:
        states = len(drawn.states)
        wanted = f"{counted(states, 'state')} {'is' if states == 1 else 'are'} wanted"
        console.print(f"{wanted} beside the stored ones")

    return Result(document={"path": str(out), "challenge": drawn.document()}, show=show)


def _require(flag: str, value: float, low: float, high: float) -> None:
    # Not typer's min and max, which let NaN pass.
    if not low <= value <= high:
        raise typer.BadParameter(
            f"{flag} is {value}; it takes a number from {number(low)} to {number(high)}"
        )


def _plan(
    *,
    segments: Annotated[int, typer.Option(help="Segments of the run: steps / checkpoint_every.")],
    cheat_fraction: Annotated[
        float, typer.Option(help="Share of the segments that are false.")
    ] = 0.05,
    probability: Annotated[
        float | None, typer.Option(help="Probability with which it must be seen.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Instead of --probability: the number of samples.")
    ] = None,
) -> Result:
    """Say how many replays a goal takes, or what a number can see.

    False segments are counted, wherever they are in the run.
    """
    from .. import _core

    if (probability is None) == (samples is None):
        raise typer.BadParameter("give either --probability or --samples")
    _require("--segments", segments, 1, _MOST_SEGMENTS)
    _require("--cheat-fraction", cheat_fraction, *_FRACTIONS)
    if samples is None:
        _require("--probability", float(probability or 0), 0, 1)
        samples = _core.samples_for(
            segments, probability=float(probability or 0), cheat_fraction=cheat_fraction
        )
    _require("--samples", samples, 0, segments)
    reached = _core.strength(segments, samples, cheat_fraction)
    document = {
        "segments": segments,
        "cheat_fraction": cheat_fraction,
        "samples": samples,
        "probability": reached,
    }

    def show(console: Console) -> None:
        console.print(
            f"{number(samples)} of {counted(segments, 'segment')} see false transitions in "
            f"{percent(cheat_fraction)} of them with probability {percent(reached)}"
        )

    return Result(document=document, show=show)
