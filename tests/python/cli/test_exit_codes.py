# SPDX-License-Identifier: Apache-2.0
"""What a command line ends with. Only a computed verdict may end `verify` with 0 or 1."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from potl._base import _errors
from potl._base._printable import counted
from potl._cli import _cli, _result
from potl._cli._result import Result, describe, exit_code_of, perform


def fails_with(error: BaseException) -> Callable[[], Result]:
    def work() -> Result:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (_errors.UsageError("x", ""), 2),
        (_errors.JobMismatch("x"), 2),
        (typer.BadParameter("x"), 2),
        (_errors.MalformedError("x", ""), 4),
        (_errors.LimitError("x", ""), 4),
        (_errors.MismatchError("x", ""), 4),
        (_errors.StorageError("x", ""), 3),
        (_errors.MissingError("x", ""), 3),
        (_errors.InternalError("x", ""), 3),
        (RuntimeError("x"), 3),
        (MemoryError(), 3),
        (RecursionError("x"), 3),
        (FileNotFoundError("x"), 3),
        (ImportError("x"), 3),
        (BrokenPipeError(), 3),
        (SystemExit(0), 3),
        (SystemExit(1), 3),
        (typer.Exit(0), 3),
        (typer.Exit(1), 3),
        (typer.Abort(), 3),
        (GeneratorExit(), 3),
        (KeyboardInterrupt(), 130),
    ],
    ids=repr,
)
def test_an_error_has_its_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error) == code
    assert perform(fails_with(error), json=False, debug=False) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_the_line_says_the_cause_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    perform(fails_with(_errors.StorageError("disk full", "free some")), json=False, debug=False)
    assert capsys.readouterr().err == "potl: disk full (free some)\n"


def test_an_error_of_many_lines_with_control_characters_stays_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    perform(fails_with(ValueError("a\nb\x1b[2J")), json=False, debug=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("potl: ValueError: a b\\u001b[2J (test_exit_codes.py:")


def test_who_gives_no_options_to_the_tasks_own_parser_is_told_where(
    capsys: pytest.CaptureFixture[str],
) -> None:
    perform(fails_with(SystemExit(2)), json=False, debug=False)
    assert "options of the task's module follow --" in capsys.readouterr().err


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from Python 3.11")
def test_the_line_has_what_was_noted_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    error = RuntimeError("no such dtype")
    error.add_note("step 1 was given\nthe batch")
    perform(fails_with(error), json=False, debug=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert "); step 1 was given the batch (--debug" in line


def test_a_log_of_strangers_words_moves_no_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("potl")
    monkeypatch.setattr(log, "handlers", [])

    def serves() -> int:
        try:
            raise ValueError("a\x1b[2J\nb\u202e")
        except ValueError:
            log.exception("a request failed")
        return 0

    monkeypatch.setattr(_cli, "run", serves)
    with pytest.raises(SystemExit):
        _cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "a request failed" and lines[1].startswith("Traceback")
    assert lines[-2:] == ["ValueError: a\\u001b[2J", "b\\u202e"]


def test_an_error_that_a_library_raised_names_the_line_that_called_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> Result:
        typer.style("text", fg=(1, 2))  # type: ignore[arg-type]
        raise AssertionError

    perform(work, json=False, debug=False)
    first = work.__code__.co_firstlineno
    assert f"(test_exit_codes.py:{first + 1}) (--debug shows " in capsys.readouterr().err


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    perform(fails_with(ValueError("x\x1b[2J")), json=False, debug=True)
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "\nValueError: x\\u001b[2J\n" in shown
    assert "--debug" not in shown


def test_with_json_an_error_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    error = _errors.MalformedError("torn", "ask again")
    assert perform(fails_with(error), json=True, debug=False) == 4
    assert json.loads(capsys.readouterr().out) == {
        "error": {"kind": "MalformedError", "message": "torn", "remedy": "ask again"},
        "exit_code": 4,
    }


def test_with_json_what_a_task_prints_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> Result:
        print("epoch 1")
        return Result(document={"fine": True}, show=lambda console: None)

    assert perform(work, json=True, debug=False) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"fine": True}
    assert err == "epoch 1\n"


def test_a_file_that_cannot_be_written_costs_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    found = Result(
        document={"seen": True}, show=lambda console: None, files={Path("/dev/full"): "page"}
    )
    assert perform(lambda: found, json=True, debug=False) == _result.USAGE
    out, err = capsys.readouterr()
    assert json.loads(out) == {"seen": True}
    assert err.startswith("potl: /dev/full exists and is no report (")


def test_a_result_that_finds_no_room_says_where() -> None:
    # With it nothing would be left for the interpreter to write in the end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "potl", "plan", "--segments", "10", "--samples", "3"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == _result.FAILED
    assert done.stderr == (
        "potl: standard output: No space left on device (check the path, who may write there, and "
        "the free space)\n"
    )


def test_what_is_not_installed_is_named_with_its_extra() -> None:
    missing = ModuleNotFoundError("No module named 'sklearn.datasets'", name="sklearn")
    assert describe(missing) == ("this needs sklearn", 'pip install "potl[demo]"')
    assert describe(ModuleNotFoundError("No module named 'x'", name="x"))[1] == ""


def test_an_interrupt_says_what_goes_on() -> None:
    message, remedy = describe(KeyboardInterrupt())
    assert message == "interrupted" and "give the same command again" in remedy


def test_a_key_that_finds_no_room_leaves_no_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        code = _cli.run(["keygen", str(tmp_path / "trainer")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == _result.FAILED
    assert f"potl: {tmp_path}/trainer.pem: File too large (" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["inspect", "verify", "commit", "prune --max-bytes 1MB"])
def test_a_folder_that_is_no_run_has_a_remedy(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run([*command.split(), str(tmp_path)]) == _result.USAGE
    assert "holds no run: there is no transcript.log (name the folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "inspect evidence.json --job job.json",
        "referee --offline evidence.json --job job.json",
        "extra-task plan evidence.json",
    ],
)
def test_a_file_that_is_not_there_has_a_remedy(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.json").touch()  # which is looked for first
    assert _cli.run(command.split()) == 2
    said = capsys.readouterr().err
    assert "there is no " in said and "evidence.json (check the path" in said


def test_a_page_is_written_where_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    def closed(console: object) -> None:
        raise BrokenPipeError

    page = tmp_path / "report.html"
    result = Result(document={}, show=closed, files={page: "page"})
    assert perform(lambda: result, json=False, debug=False) == _result.FAILED
    assert page.read_text() == "page"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_at_the_start_stops_no_command(closed: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    script = f'exec "$0" -m potl keygen "$1" {closed}'
    done = subprocess.run(["sh", "-c", script, sys.executable, str(key)], check=False)
    assert done.returncode == 0
    assert key.with_suffix(".pem").read_text().startswith("-----BEGIN")


def test_a_result_that_cannot_be_printed_is_no_verdict() -> None:
    def broken(console: object) -> None:
        raise OSError("no space left")

    for code in (0, 1):
        result = Result(document={}, show=broken, exit_code=code)
        assert perform(lambda result=result: result, json=False, debug=False) == 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["verify", "--help"], 0),
        ([], 2),
        (["no-such-command"], 2),
        (["inspect"], 2),
        (["inspect", "no/such/run"], 2),
        (["verify", "no/such/run", "--no-such-flag"], 2),
        (["prune", ".", "--max-bytes", "many"], 2),
        (["plan", "--segments", "x"], 2),
        (["plan", "--segments", "10"], 2),
    ],
    ids=str,
)
def test_a_command_line_has_its_exit_code(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(arguments) == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command", "--json"],
        ["inspect", "--json"],
        ["verify", "no/such/run", "--json", "--no-such-flag"],
        ["prune", ".", "--json", "--max-bytes", "many"],
        ["prune", ".", "--json"],
        ["keygen", "a", "b", "--json"],
    ],
    ids=str,
)
def test_with_json_a_usage_error_of_the_parser_is_a_document(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(arguments) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["exit_code"] == 2
    assert document["error"]["message"]
    assert err.startswith("potl: ")


def test_what_follows_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.run(["keygen", "a", "b", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def command_line(*arguments: str, first: str = "pass", patch: str = "pass") -> list[str]:
    """A fresh process that runs `first` before potl is imported, `patch` before the command
    line.
    """
    imported = f"import sys\n{first}\nimport potl._cli._cli, potl._cli._result"
    script = f"{imported}\n{patch}\nsys.argv = {['potl', *arguments]!r}\npotl._cli._cli.main()"
    return [sys.executable, "-c", script]


def run(
    *arguments: str, first: str = "pass", patch: str = "pass"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments, first=first, patch=patch),
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_an_interrupt_ends_the_process_with_130() -> None:
    patch = "def _raise(): raise KeyboardInterrupt\nimport potl._core\npotl._core.version = _raise"
    done = run("--version", patch=patch)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--segments 0 --samples 0", "--segments is 0; it takes a number from 1 to "),
        ("--segments -3 --samples 1", "--segments is -3; it takes a number from 1 to "),
        ("--segments 9 --samples -1", "--samples is -1; it takes a number from 0 to 9"),
        ("--segments 9 --samples 10", "--samples is 10; it takes a number from 0 to 9"),
        ("--segments 9 --samples 2 --cheat-fraction 5", "5.0; it takes a number from 1.00e-9 to 1"),
        ("--segments 9 --samples 2 --cheat-fraction 0", "0.0; it takes a number from 1.00e-9 to 1"),
        ("--segments 9 --samples 2 --cheat-fraction nan", "--cheat-fraction is nan; it takes"),
        ("--segments 9 --probability 1.5", "--probability is 1.5; it takes a number from 0 to 1"),
        ("--segments 9 --probability nan", "--probability is nan; it takes a number from 0 to 1"),
    ],
)
def test_a_plan_for_what_cannot_be_says_what_can(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(["plan", *flags.split()]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("goal", ["--samples 0", "--samples 9", "--probability 1"])
def test_a_plan_at_an_end_of_its_range_is_made(goal: str) -> None:
    assert _cli.run(["plan", "--segments", "9", "--cheat-fraction", "1", *goal.split()]) == 0


def left_alone(script: list[str]) -> tuple[int, bytes]:
    """The exit code and the stderr of a command whose output nobody reads."""
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        return process.wait(timeout=600), process.stderr.read()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["verify", "--help"],
        ["plan", "--segments", "9", "--samples", "3"],
        ["plan", "--segments", "9", "--samples", "3", "--json"],
    ],
    ids=str,
)
def test_a_reader_that_goes_away_ends_a_command_quietly_and_without_success(
    arguments: list[str],
) -> None:
    assert left_alone(command_line(*arguments)) == (3, b"")


def test_a_verdict_that_nobody_reads_is_no_verdict() -> None:
    patch = (
        "import potl._cli._files\n"
        "def show(*a, **k):\n"
        "    def many(console):\n"
        "        for n in range(100000): console.print('x' * 70)\n"
        "    return potl._cli._result.Result(document={}, show=many, exit_code=1)\n"
        "sys.exit(potl._cli._result.perform(show, json=False, debug=False))"
    )
    assert left_alone(command_line(patch=patch)) == (3, b"")


def test_without_the_module_a_command_names_doctor() -> None:
    done = run("inspect", ".", first="sys.modules['potl._core'] = None")
    assert done.returncode == 3
    assert "potl doctor" in done.stderr


def test_doctor_works_where_the_module_does_not_load() -> None:
    done = run("doctor", "--json", first="sys.modules['potl._core'] = None")
    assert done.returncode == 3, done.stderr
    wrong = [item for item in json.loads(done.stdout)["items"] if item["state"] == "problem"]
    assert [item["name"] for item in wrong] == ["potl._core"]
    assert "pip install" in wrong[0]["remedy"]


def test_the_command_line_does_not_import_torch() -> None:
    done = run(
        "--version", patch="import atexit; atexit.register(lambda: print('torch' in sys.modules))"
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_a_job_that_is_not_there_is_named_before_torch_is_imported() -> None:
    done = run(
        *("seal", "trainer:build", "no.json", "job.sealed", "--for", "box.pub"),
        patch="import atexit; atexit.register(lambda: print('torch' in sys.modules))",
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "False")
    assert "there is no job file no.json" in done.stderr


def test_even_c_code_cannot_print_into_json(tmp_path: Path) -> None:
    patch = (
        "import os, potl._record._keygen\nreal = potl._record._keygen.write_pair\n"
        "def noisy(*given, **named):\n    os.write(1, b'noise from C')\n"
        "    return real(*given, **named)\n"
        "potl._record._keygen.write_pair = noisy"
    )
    done = run("keygen", str(tmp_path / "k"), "--json", patch=patch)
    assert json.loads(done.stdout)["public"].endswith("k.pub")
    assert "noise from C" in done.stderr


def test_the_parser_of_the_installed_typer_raises_what_the_command_line_expects() -> None:
    with pytest.raises(_result.UsageProblem):
        typer.main.get_command(_cli.app).main(args=["nope"], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "named", "command"),
    [
        (["verify", ".", "--replay-samples", "x"], "--replay-samples", "potl verify"),
        (["verify"], "RUN", "potl verify"),
        (["job", "create", "a:b", "j", "--checkpoint-every", "2"], "--seed", "potl job create"),
        (["no-such-command"], "no-such-command", "potl"),
    ],
    ids=str,
)
def test_with_json_a_usage_error_names_what_is_wrong_and_where_help_is(
    arguments: list[str], named: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run([*arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert named in error["message"]
    assert f"{command} --help" in error["remedy"]


def test_the_help_says_a_default_as_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.run(["verify", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "From 1 to 1,000,000,000. Default: 1. --probability" in out
    assert "(1)" not in out


@pytest.mark.parametrize("command", ["verify", "challenge", "extra-task mix", "spot-check bench"])
def test_the_help_shows_no_types_of_python(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert "list[" not in out
    assert " range>" not in out


def test_whoever_joins_checks_is_told_to_repeat_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(["verify", str(tmp_path), "--check", "replay,pev"]) == 2
    assert "give --check several times" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "said"), [(0, "0 problems"), (1, "1 problem")])
def test_what_is_counted_has_its_plural(count: int, said: str) -> None:
    assert counted(count, "problem") == said


def test_the_help_begins_with_the_whole_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli.run(["--help"]) == 0
    out = capsys.readouterr().out
    lines = [line.strip() for line in out.partition("Examples:")[2].splitlines()]
    commands = [" ".join(line.split()[:2]) for line in lines if line.startswith("potl ")]
    story = ["potl demo", "potl job", "potl record", "potl commit", "potl verify"]
    assert commands == [*story, "potl check"]
