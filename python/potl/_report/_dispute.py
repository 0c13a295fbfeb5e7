# SPDX-License-Identifier: Apache-2.0
"""A stored dispute for people, on a terminal and as a page. What is shown was written by whoever
made the file, so it is a verdict only where the file was judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from .._base._printable import as_float, duration, number, printable, size
from ._html import environment
from ._model import rows_of, section_of
from ._svg import element

if TYPE_CHECKING:
    from rich.console import Console

_SIGNS = {"accepted": "\u2713", "rejected": "\u2717", "inconclusive": "?"}
_STYLES = {"accepted": "bold green", "rejected": "bold red", "inconclusive": "bold yellow"}
_LEVELS = {"steps": "Steps", "operators": "Operators", "chunks": "Chunks of 16 KiB"}
_CELLS = ("true", "trainer", "auditor")
_RULED = ("value", "structure", "opening")


@dataclass(frozen=True, kw_only=True)
class Round:
    """Both claims at one index, and where the difference can still be after it."""

    index: str
    trainer: str
    auditor: str
    equal: bool
    left: Markup


@dataclass(frozen=True, kw_only=True)
class Game:
    """One bisection."""

    title: str
    rounds: list[Round]
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the transcript."""

    number: str
    who: str
    what: str
    about: str
    after: str
    size: str


@dataclass(frozen=True, kw_only=True)
class View:
    """What is shown. `facts` are names and texts; `values` whose it is, the number and its bytes;
    `keys` whose it is, the key and who vouches for it."""

    judged: bool
    kind: str
    sign: str
    headline: str
    answer: list[str]
    facts: list[tuple[str, str]]
    values: list[tuple[str, str, str]]
    job: str
    keys: list[tuple[str, str, str]]
    games: list[Game]
    lines: list[Line]
    lines_title: str


def render_html(account: Mapping[str, object]) -> str:
    """One page, without scripts, that loads nothing."""
    return environment().get_template("dispute.html.j2").render(view=view_of(account))


def render_terminal(account: Mapping[str, object], console: Console) -> None:
    """The same for a terminal."""
    from rich.text import Text

    view = view_of(account)
    console.print(Text(f"{view.sign} {view.headline}", style=_STYLES[view.kind]))
    for line in view.answer:
        console.print(Text(line))
    rows = [*view.facts, *((name, f"{value}  {data}") for name, value, data in view.values)]
    for name, text in rows:
        console.print(Text.assemble((f"{name:<12}", "dim"), text))
    for game in view.games:
        console.print()
        console.print(Text(game.title, style="bold"))
        for one in game.rounds:
            sign = "=" if one.equal else "\u2260"
            console.print(Text(f"{one.index:>12}  {one.trainer:<12} {sign} {one.auditor}"))
        for line in game.notes:
            console.print(Text(line))
    console.print()
    console.print(Text(view.lines_title, style="dim"))


def view_of(account: Mapping[str, object]) -> View:
    """What is shown of it."""
    verdict = section_of(account, "verdict")
    status = account.get("status")
    unknown = [
        printable(one.get("who", ""), limit=20)
        for one in rows_of(account, "keys")
        if not one.get("known")
    ]
    lines = rows_of(account, "lines")
    games = [_game(one) for one in rows_of(account, "bisections")]
    kind, headline = _headline(status, verdict, unknown)
    judged = status == "judged"
    return View(
        judged=judged,
        kind=kind,
        sign=_SIGNS[kind],
        headline=headline,
        answer=_answer(status, account),
        facts=_facts(verdict, unknown) if judged else [],
        values=_values(account) if judged else [],
        job=printable(account.get("job", ""), limit=64),
        keys=[
            (
                printable(one.get("who", ""), limit=20),
                printable(one.get("id", ""), limit=64),
                "compared with the key that you have"
                if one.get("known")
                else "nothing but this file says whose it is",
            )
            for one in rows_of(account, "keys")
        ],
        games=[one for one in games if one.rounds or one.notes],
        lines=[_line(index, one) for index, one in enumerate(lines)],
        lines_title=_lines_title(account, lines),
    )


def _headline(
    status: object, verdict: Mapping[str, object], unknown: Sequence[str]
) -> tuple[str, str]:
    if status == "invalid":
        return "inconclusive", "This is not valid evidence: it shows nothing"
    if status != "judged":
        return "inconclusive", "Not checked"
    winner, why = verdict.get("winner"), verdict.get("why")
    if why == "referee":
        return "inconclusive", "Undecided"
    losers = _losers(verdict)
    who = f"The {losers[0]} is wrong" if winner and losers else "Both are wrong"
    if winner == "trainer":
        who = "The trainer is right"
    elif why == "agreement":
        who = "No dispute"
    if may_be_made_up(verdict, unknown):
        return "inconclusive", f"{who}, if the keys are right"
    return "rejected" if "trainer" in losers else "accepted", who


def may_be_made_up(verdict: Mapping[str, object], unknown: Collection[str]) -> bool:
    """Whether owners of keys that nobody vouches for can have written all that a verdict rests on:
    what convicts, or that both agree.
    """
    if verdict.get("why") == "agreement":
        return not {"trainer", "auditor"}.isdisjoint(unknown)
    rests_on = {*_losers(verdict), *(() if verdict.get("recomputed") else ("referee",))}
    return not rests_on.isdisjoint(unknown)


def _losers(verdict: Mapping[str, object]) -> list[str]:
    return [who for who in ("trainer", "auditor") if verdict.get(f"{who}_wrong")]


def _answer(status: object, account: Mapping[str, object]) -> list[str]:
    if status != "judged":
        out = [printable(account.get("problem", ""), limit=400)]
        if status != "invalid":
            out.append("Judge it with the job (--job) and the keys that you know.")
        return [*out, "What follows is what the file says of itself, which anybody can write."]
    summary = account.get("summary")
    first = printable(summary[0], limit=400) if isinstance(summary, list) and summary else ""
    return [first[:1].upper() + first[1:] + "."]


def _facts(verdict: Mapping[str, object], unknown: Sequence[str]) -> list[tuple[str, str]]:
    facts, seen = [], section_of(verdict, "facts")
    if verdict.get("step"):
        where = [f"step {number(verdict['step'])}"]
        operator = verdict.get("operator")
        if isinstance(operator, (list, tuple)) and len(operator) == 2:
            where.append(f"operator {number(operator[0])}, {printable(operator[1], limit=120)}")
        if verdict.get("element") is not None:
            dtype = printable(seen.get("dtype", ""), limit=20)
            where.append(f"element {number(verdict['element'])} of its result, {dtype}")
        facts.append(("About", "; ".join(where).removesuffix(", ")))
    if "undecided" in seen:
        facts.append(("Undecided", printable(seen["undecided"], limit=1000)))
    believed = as_float(verdict.get("believed")) or 0
    recomputed, ruled = bool(verdict.get("recomputed")), verdict.get("why") in _RULED
    cost = as_float(seen.get("multiply_adds")) or 0
    work = f": {number(cost)} multiply-adds" if cost else ""
    facts.append(
        (
            "Computed",
            ("the ruling, from what both opened" + work if recomputed else "not the ruling")
            if ruled
            else "that the rules of the game end it so",
        )
    )
    what = "which operators the agreed program has" if recomputed or not ruled else "the ruling too"
    facts.append(
        (
            "Believed",
            f"{number(believed)} decisions of the referee: {what}. With the task they are computed."
            if believed
            else "nothing of the referee's but its clock and who sent what is not signed",
        )
    )
    if verdict.get("winner") == "trainer":
        facts.append(("Not shown", "the trainer's other steps: a dispute is no verification"))
    facts.append(
        (
            "Keys",
            f"nothing but this file vouches for those of: {', '.join(unknown)}. Whoever has all "
            "three can make up a dispute."
            if unknown
            else "compared with those that you have",
        )
    )
    return facts


def _values(account: Mapping[str, object]) -> list[tuple[str, str, str]]:
    names = {"true": "True value", "trainer": "Trainer", "auditor": "Auditor"}
    values = section_of(account, "values")
    cells = {name: section_of(values, name) for name in _CELLS if name in values}
    return [
        (names[name], printable(one.get("number", ""), limit=60), printable(one.get("hex", "")))
        for name, one in cells.items()
    ]


def _game(game: Mapping[str, object]) -> Game:
    kind = game.get("kind")
    title = _LEVELS.get(str(kind), "Something else")
    count = as_float(game.get("size"))
    low, high, rounds = 0.0, count, []
    for one in rows_of(game, "rounds"):
        index = as_float(one.get("index")) or 0.0
        low, high = (index, high) if one.get("equal") else (low, index)
        rounds.append(
            Round(
                index=number(index),
                trainer=printable(one.get("trainer", ""), limit=64)[:12],
                auditor=printable(one.get("auditor", ""), limit=64)[:12],
                equal=bool(one.get("equal")),
                left=_left(low, high, count) if count and high is not None else Markup(""),
            )
        )
    notes = []
    opened = section_of(game, "opened")
    if opened:
        sizes = ", ".join(f"{who} {size(opened.get(who))}" for who in _CELLS[1:] if who in opened)
        notes.append(f"Opened: leaf {number(game.get('low'))} ({sizes}).")
    asked = section_of(game, "question")
    if asked:
        answers = section_of(asked, "answers")
        sizes = ", ".join(f"{who} {size(answers.get(who))}" for who in _CELLS[1:] if who in answers)
        what, most = printable(asked.get("ask", ""), limit=200), size(asked.get("most_bytes"))
        notes.append(f"Asked: {what}, at most {most}; answered: {sizes or 'nothing'}.")
    return Game(
        title=title if count is None else f"{title}: {number(count)}", rounds=rounds, notes=notes
    )


def _left(low: float, high: float, count: float) -> Markup:
    """Where among all indices the difference lies after a round."""
    width = 160.0
    start, end = (min(one / count, 1.0) * width for one in (low, high))
    start = min(start, width - 2)  # as much as can be seen
    bar = element("rect", x=start, y=0.0, width=max(end - start, 2.0), height=10.0, class_="bar")
    trough = element("rect", x=0.0, y=0.0, width=width, height=10.0, class_="trough")
    words = f"between {number(low)} and {number(high)}"
    return element(
        "svg",
        trough,
        bar,
        viewBox="0 0 160 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=words,
        class_="halving",
    )


def _line(index: int, line: Mapping[str, object]) -> Line:
    kind = printable(line.get("kind", ""), limit=20)
    what = printable(line.get("what") or kind, limit=20)
    about = {
        "message": f"level {number(line.get('level'))}, index {number(line.get('index'))}",
        "question": printable(line.get("ask", ""), limit=200),
        "next": printable(line.get("of", ""), limit=20),
        "ruling": printable(line.get("why", ""), limit=20),
    }.get(kind, "")
    after = as_float(line.get("after_ms"))
    return Line(
        number=number(index),
        who=printable(line.get("from") or "referee", limit=20),
        what=what,
        about=about,
        after="-" if after is None else duration(after / 1000),
        size=size(line.get("bytes")),
    )


def _lines_title(account: Mapping[str, object], lines: Sequence[Mapping[str, object]]) -> str:
    left = as_float(account.get("lines_left_out")) or 0
    turn = as_float(account.get("turn_ms"))
    count = len(lines) + left
    out = f"{number(count)} {'line' if count == 1 else 'lines'}, {size(account.get('bytes'))}"
    out += "" if turn is None else f"; each turn may take {duration(turn / 1000)}"
    return out + (f"; {number(left)} lines are not shown" if left else "")
