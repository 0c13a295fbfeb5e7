# SPDX-License-Identifier: Apache-2.0
"""The command line. Importing it imports neither torch nor the C++ module, so that `potl doctor`
can say what is wrong."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from .._base import _arguments
from .._base._printable import printable_lines
from . import (
    _attestation,
    _audit,
    _demo,
    _diff,
    _dispute,
    _ending,
    _explain,
    _extra,
    _files,
    _monitor,
    _referee,
    _result,
    _run,
    _seal,
    _serve,
    _spot_check,
    _system,
    _verify,
)

app = typer.Typer(
    name="potl",
    help="Check that somebody else trained a model as agreed: "
    "record a run, commit to it, verify it.",
    epilog="Examples:\n\n"
    "  potl demo\n\n"
    "  potl job create trainer:build job.json --seed 7 --checkpoint-every 20\n\n"
    "  potl record trainer:build runs/1 --job job.json --key trainer.pem\n\n"
    "  potl commit runs/1 --key trainer.pem > note.txt\n\n"
    "  potl verify runs/1 --job job.json --commitment note.txt --task trainer:build\n\n"
    "Options follow the command. Each takes --json, for programs, and --debug, for a traceback: "
    "potl inspect runs/1 --json\n\n"
    "What follows -- on any of them is the command line of the task's module: "
    "potl check trainer:build -- --lr 0.1\n\n"
    "Exit codes: 0 success or accepted, 1 rejected, or runs that differ, 2 usage, "
    "3 inconclusive or an error, 4 unreadable input, 130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_run.add_to(app)
_explain.add_to(app)
_diff.add_to(app)
_audit.add_to(app)
_dispute.add_to(app)
_referee.add_to(app)
_verify.add_to(app)
_monitor.add_to(app)
_attestation.add_to(app)
_seal.add_to(app)
_serve.add_to(app)
_files.add_to(app)
_extra.add_to(app)
_spot_check.add_to(app)
_system.add_to(app)
_demo.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .._core import version

        print(f"potl {version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


# typer takes 40 ms to read all signatures.
_command = functools.cache(lambda: typer.main.get_command(app))


def _require_utf8(words: Sequence[str]) -> None:
    """Refuses what has other bytes, or came through a locale that does not know them."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(
                f"{word!a} is not UTF-8 here: rename it, or set a locale such as C.UTF-8"
            ) from None


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    given, of_the_module = _arguments.split(given)
    try:
        _require_utf8(given)
        with _arguments.in_place_of_ours(of_the_module):
            value = _command().main(args=given, prog_name="potl", standalone_mode=False)
        code = value if isinstance(value, int) else 0
        sys.stdout.flush()
    except _result.UsageProblem as error:
        # The parser stopped before it knew of --json.
        if "--json" in given:
            return _result.failed(error, sys.stdout)
        with contextlib.suppress(OSError):
            error.show()  # type: ignore[attr-defined]
        return _result.USAGE
    except BrokenPipeError:
        return _result.unread()
    except SystemExit as ended:  # of the options for completion, or of the parser for a broken pipe
        if ended.code == 0 and given[0] in ("--install-completion", "--show-completion"):
            return 0
        return _result.unread()
    except BaseException as error:
        message, remedy = _result.describe(error)
        with contextlib.suppress(OSError):
            print(f"potl: {message} ({remedy})" if remedy else f"potl: {message}", file=sys.stderr)
        return _result.exit_code_of(error)
    return code


class LogLines(logging.Formatter):
    """The log of a server, of whose words a terminal obeys none."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def _open_closed_streams() -> None:
    """Opens the standard streams that whoever started the process had closed. Otherwise a file of
    the run could get the number of such a stream, and what torch prints would be written into it.
    """
    for name in ("stdin", "stdout", "stderr"):  # each gets the lowest number that is free: its own
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("r" if name == "stdin" else "w")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def main() -> NoReturn:
    """Entry point of the `potl` command."""
    _open_closed_streams()
    log = logging.StreamHandler()
    log.setFormatter(LogLines())
    logging.getLogger("potl").addHandler(log)
    # A note is UTF-8 in every locale, and no verdict is lost to a tick that a locale lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    with _ending.ends_tidily():
        code = run()
    sys.exit(code)
