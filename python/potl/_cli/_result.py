# SPDX-License-Identifier: Apache-2.0
"""How a command ends: what it prints and its exit code.

Exit codes: 0 success or accepted, 1 rejected (`diff`: the runs part), 2 usage, 3 inconclusive or an
error, 4 unreadable input, 130 interrupted. Only what was computed ends in 1, and `verify` ends in 0
only with a verdict: whatever a user's task does, raising SystemExit included, becomes 3.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json as json_module
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from .._base._printable import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

_LIBRARIES = (
    str(Path(__file__).parents[1]),
    str(Path(os.__file__).parent),
    "site-packages",
    "dist-packages",
    "<frozen",
)

_EXTRA_WITH = {"torch": "torch", "numpy": "torch", "safetensors": "torch", "sklearn": "demo"}

REJECTED, USAGE, FAILED, UNREADABLE, INTERRUPTED = 1, 2, 3, 4, 130

# Of every command.
_COMMON = [
    inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option(f"--{name}", help=text)],
    )
    for name, text in (
        ("json", "Print one JSON document and nothing else."),
        ("debug", "Show where an error came from."),
    )
]

# typer carries its own copy of click since 0.2x; this is the class that its parser raises.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[1]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command found.

    Attributes:
        document: What `--json` prints: a value, or the canonical bytes of one; no bytes, nothing.
        show: Prints the same for people.
        exit_code: Of the process.
        files: What else is written, after that.
    """

    document: Mapping[str, object] | bytes
    show: Callable[[Console], None]
    exit_code: int = 0
    files: Mapping[Path, str] = field(default_factory=dict)


def command(
    app: typer.Typer, name: str, *, examples: str, extra: Sequence[inspect.Parameter] = ()
) -> Callable[[Callable[..., Result]], Callable[..., int]]:
    """Adds a function to `app`, with the options `--json` and `--debug`, which are obeyed here;
    `extra` are parameters that it takes as `**options`."""

    def decorate(function: Callable[..., Result]) -> Callable[..., int]:
        @functools.wraps(function)
        def run(*args: object, json: bool, debug: bool, **options: object) -> int:
            def work() -> Result:
                if not options.get("data_parallel"):  # of its processes only the first has it
                    _require_job(options.get("job"))
                return function(*args, **options)

            return perform(work, json=json, debug=debug)

        # In Python 3.10 get_type_hints hides what is annotated behind the None of a default.
        own = [
            one
            for one in inspect.signature(function, eval_str=True).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        # typer reads the flags from here.
        told = [*own, *_COMMON, *extra]
        run.__signature__ = inspect.Signature(told)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in told}
        app.command(name, epilog="Examples:\n\n" + examples)(run)
        return run

    return decorate


def _require_job(given: object) -> None:
    """Says at once that a job's file is not there: to load torch first takes seconds."""
    if isinstance(given, Path):
        from .._record._inputs import require_file

        require_file(given, "job")


def perform(work: Callable[[], Result], *, json: bool, debug: bool) -> int:
    """Runs a command's body and prints what came of it."""
    try:
        with _stdout_kept_clean(json) as out:
            try:
                result = work()
            except BaseException as error:
                return failed(error, out if json else None, debug=debug)
            try:
                if not json:
                    result.show(_console(out))
                elif result.document != b"":
                    print(_text_of(result.document), file=out)
                out.flush()
            finally:
                # Whoever asked for a page gets it even where nobody reads on: `| head -1`.
                for path, text in result.files.items():
                    from .._report._page import write_page

                    write_page(path, text)
            return result.exit_code
    except (BrokenPipeError, SystemExit):  # the latter is what rich makes of the former
        return unread()
    except BaseException as error:  # printing failed: full disk, interrupt
        if isinstance(error, OSError) and error.filename is None:
            error.filename = "standard output"
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # what has not been written yet never will be
            _drop_output()
        return failed(error, None, debug=debug)


def unread() -> int:
    """Ends quietly, and without a verdict, where nobody reads the output any more: `| head -1`."""
    _drop_output()
    return FAILED


def _drop_output() -> None:
    # The interpreter flushes once more at exit, and would complain with an exit code of its own.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(error: BaseException) -> int:
    """The exit code that an error ends a command with."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, UsageProblem):
        return USAGE
    try:
        from .._base._errors import LimitError, MalformedError, MismatchError, UsageError
    except ImportError:
        return FAILED
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, (LimitError, MalformedError, MismatchError)):
        return UNREADABLE
    return FAILED


def describe(error: BaseException) -> tuple[str, str]:
    """(what happened, what to do about it), each on one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", (
            "give the same command again; record and audit resume from the newest stored state"
        )
    if isinstance(error, SystemExit):
        # As argparse does with options that it does not know, or lacks.
        remedy = "options of the task's module follow --, as in -- --lr 0.1"
        return f"the task ended the process (exit {printable(error.code)})", (
            remedy if error.code == USAGE else ""
        )
    if isinstance(error, UsageProblem):
        return _of_the_parser(error)
    message = getattr(error, "message", None)
    if not isinstance(message, str) or not message:
        message = str(error)
    name = type(error).__name__
    if isinstance(error, OSError) and error.filename and error.strerror and not _own_frames(error):
        return printable(f"{error.filename}: {error.strerror}"), (
            "check the path, who may write there, and the free space"
        )
    if not message:
        message = name
    elif not type(error).__module__.startswith("potl"):
        message = "; ".join([f"{name}: {message}{_place_of(error)}", *_notes_of(error)])
    remedy = getattr(error, "remedy", "")
    if isinstance(error, ImportError) and "potl._core" in message:
        remedy = "potl doctor says what is wrong with this installation"
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRA_WITH:
        return f"this needs {error.name}", f'pip install "potl[{_EXTRA_WITH[error.name]}]"'
    return printable(message), printable(remedy) if isinstance(remedy, str) else ""


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The lines on its way that are in no library, as a task's mostly are."""
    return [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not any(part in one.filename for part in _LIBRARIES)
    ]


def _place_of(error: BaseException) -> str:
    """Where it comes from: the last line that is in no library."""
    places = _own_frames(error) or traceback.extract_tb(error.__traceback__)
    return f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""


def _notes_of(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", None)
    return [one for one in notes if isinstance(one, str)] if isinstance(notes, list) else []


def _of_the_parser(error: Exception) -> tuple[str, str]:
    # Its message alone does not name the option.
    message = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if context is None:  # raised by a command, whose words need no introduction
        message = message.removeprefix("Invalid value: ")
    remedy = "" if context is None else f"{context.command_path} --help says what it takes"
    return printable(message), printable(remedy)


def failed(error: BaseException, machine: TextIO | None, *, debug: bool = False) -> int:
    """Prints what went wrong, to `machine` as JSON too, and returns the exit code."""
    code = exit_code_of(error)
    message, remedy = describe(error)
    # A closed pipe may be the reason for being here.
    with contextlib.suppress(OSError, ValueError):
        if debug:
            print(printable_lines("".join(traceback.format_exception(error))), file=sys.stderr)
        elif not remedy and code == FAILED:  # an exception of a task or a library
            remedy = "--debug shows the traceback"
        line = f"{message} ({remedy})" if remedy else message
        print(f"potl: {line}", file=sys.stderr, flush=True)
    if machine is not None:
        problem = {"kind": type(error).__name__, "message": message, "remedy": remedy}
        with contextlib.suppress(OSError, ValueError):
            print(_text_of({"error": problem, "exit_code": code}), file=machine, flush=True)
    return code


def _text_of(document: Mapping[str, object] | bytes) -> str:
    if isinstance(document, bytes):
        return document.decode("utf-8")
    return json_module.dumps(document, indent=1, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _console(out: TextIO) -> Console:
    from rich.console import Console

    # Piped output keeps whole lines: a width of 80 would cut digests.
    width = None if out.isatty() else 160
    return Console(
        file=out, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


@contextlib.contextmanager
def _stdout_kept_clean(json: bool) -> Iterator[TextIO]:
    """Yields where the result goes. With `json`, whatever else is printed meanwhile, by a task, a
    library or a worker process, goes to stderr."""
    real = sys.stdout
    if not json:
        yield real
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            is_process_stdout = real.fileno() == 1
        except (OSError, ValueError, AttributeError):
            is_process_stdout = False
        if not is_process_stdout:
            yield real
            return
        real.flush()
        saved = os.dup(1)
        # fd 1 itself, because C code and child processes do not know sys.stdout.
        os.dup2(2, 1)
        with os.fdopen(saved, "w", encoding="utf-8") as out:
            try:
                yield out
            finally:
                out.flush()
                os.dup2(out.fileno(), 1)
