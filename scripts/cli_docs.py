#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/cli.md and the pages of its GROUPS from the command line itself. With
--check: fails when the files are not that."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from potl._cli import _cli

MANY = 6  # options that two commands share before one refers to the other
CODE = re.compile(r"`[^`]*`")
FOLDER = Path(__file__).resolve().parent.parent / "docs/reference"

HEAD = """# The command line

After this page you know every command with its options. `potl COMMAND --help` shows the same; this
page is written from it by `scripts/cli_docs.py`.

A task is named `module:function`; the current directory is importable. Every command takes

- `--json`: one JSON document on standard output and nothing else; what a task prints goes to
  standard error;
- `--debug`: a traceback beside the error's one line.

If the task's module parses a command line, give it last, behind `--`, and give the same to every
command: `potl record trainer:build runs/1 --job job.json -- --lr 0.1`.

Progress is drawn on standard error, and only on a terminal.

`potl --install-completion` has your shell complete commands and options; `potl --show-completion`
prints the lines for a file of your own.

| exit code | meaning |
|---|---|
| 0 | success; for `verify`: accepted; never for `monitor` |
| 1 | rejected by a computed verdict; `diff`, `audit`: a difference; disputes: trainer wrong |
| 2 | wrong usage: a flag, a file that is not there, a task that does not match the job |
| 3 | inconclusive, or any other error |
| 4 | unreadable input: a damaged or foreign file |
| 130 | interrupted |

"""
GROUP_HEAD = """# The command line: {title}

After this page you know the commands {what}. Exit codes and common flags are those of
[the other commands](cli.md).

"""
# Groups of commands with a page of their own: title, what they are, and the same in a table.
GROUPS = {
    "verify": (
        "verification",
        "that [check a run](verifying.md), or [watch](../guide/monitor.md) one",
        "check a run, or watch one that is trained: also monitor, challenge, plan",
    ),
    "extra-task": (
        "extra task",
        "that work on files with an [extra task](extra_task.md)",
        "secret samples in the data: commands on files",
    ),
    "spot-check": (
        "spot-check",
        "of a [training with a worker that you do not trust](../guide/spot_check.md)",
        "train with a worker that you do not trust",
    ),
    "dispute": (
        "disputes",
        "that [repeat runs](../guide/audit.md), [compare](../guide/diff.md) them and "
        "[settle disputes](../guide/dispute.md) about them",
        "repeat runs, compare them, and settle disputes about them: also audit, diff, referee",
    ),
}
# Those whose names do not begin as the group's does.
MEMBERS = {
    "verify": ("verify", "challenge", "plan", "monitor"),
    "dispute": ("audit", "diff", "dispute", "referee"),
}


def pages() -> dict[Path, str]:
    """The text of each page."""
    rest = list(commands(typer.main.get_command(_cli.app), ()))
    out = {}
    links = []
    for group, (title, what, short) in GROUPS.items():
        found = [one for one in rest if one[0].startswith(MEMBERS.get(group, group))]
        rest = [one for one in rest if one not in found]
        name = f"cli_{group.replace('-', '_')}.md"
        out[FOLDER / name] = page(GROUP_HEAD.format(title=title, what=what), found, [])
        links.append(f"| [potl {group}]({name}) | {short} |")
    return {FOLDER / "cli.md": page(HEAD, rest, links), **out}


def page(head: str, found: list[tuple[str, Any]], more: list[str]) -> str:
    """A table of the commands, then each of them."""
    parts = [head + "| command | does |", "|---|---|"]
    for name, command in found:
        first = " ".join(command.help.strip().partition("\n\n")[0].split())
        parts.append(f"| [potl {name}](#potl-{name.replace(' ', '-')}) | {first} |")
    parts += more
    known: dict[str, str] = {}
    for name, command in found:
        parts += ["", f"## potl {name}", "", *described(name, command, known)]
    return "\n".join(parts).rstrip() + "\n"


def commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """All commands that do something, in the order of --help."""
    for name, command in group.commands.items():
        inner = (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, inner)
        else:
            yield " ".join(inner), command


def described(name: str, command: Any, known: dict[str, str]) -> Iterator[str]:
    """Usage, meaning, parameters and examples of one command. `known` has the options of the
    commands before it and the first that has them.
    """
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one
        for one in command.params
        if one.param_type_name == "option" and one.name not in ("json", "debug", "help")
    ]
    yield from (*paragraphs(command.help), "")
    usage = " ".join([f"potl {name}", *(str(one.metavar) for one in arguments)])
    yield from ("```", usage + (" [OPTIONS]" if options else ""), "```", "")
    for one in arguments:
        yield item(f"`{one.metavar}`: {one.help}")
    yield from listed(name, options, known)
    yield from ("", "```sh")
    examples = str(command.epilog).removeprefix("Examples:")
    yield from (line.strip() for line in examples.splitlines() if line.strip())
    yield "```"


def listed(name: str, options: list[Any], known: dict[str, str]) -> Iterator[str]:
    """The options; many that an earlier command has too are named with a link to it."""
    lines = [item(f"{spelled(one)}: {one.help}{ending(one)}") for one in options]
    shared: dict[str, list[str]] = {}
    for one, line in zip(options, lines, strict=True):
        if line in known:
            shared.setdefault(known[line], []).append(str(one.opts[0]))
    shared = {first: names for first, names in shared.items() if len(names) >= MANY}
    for line in lines:
        if known.setdefault(line, name) not in shared:
            yield line
    for first, names in shared.items():
        anchor = f"#potl-{first.replace(' ', '-')}"
        spelled_out = ", ".join(f"`{one}`" for one in names)
        yield item(f"As for [potl {first}]({anchor}): {spelled_out}.")


def item(words: str) -> str:
    """A list item of at most 100 columns."""
    # The name of a flag and its value stay together.
    kept = CODE.sub(lambda code: code[0].replace(" ", "\0"), words)
    lines = textwrap.wrap(
        kept,
        100,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def paragraphs(help_text: str) -> Iterator[str]:
    """The docstring without its indentation."""
    yield from (line.strip() for line in help_text.strip().splitlines())


def spelled(option: Any) -> str:
    """`--flag VALUE`."""
    names = [*option.opts, *option.secondary_opts]
    if option.is_flag:
        return " or ".join(f"`{name}`" for name in names)
    value = option.metavar or str(option.name).rsplit("_", 1)[-1].upper()
    return " or ".join(f"`{name} {value}`" for name in names)


def ending(option: Any) -> str:
    """What is assumed when an option is not given."""
    if option.required:
        return " Required."
    shown = option.default
    if shown is None or shown is False or shown == "" or callable(shown):
        return ""
    return f" Default: `{shown}`." if isinstance(shown, Path) else f" Default: {shown}."


def main() -> int:
    """Exit code."""
    stale = [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    if sys.argv[1:] == ["--check"]:
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
