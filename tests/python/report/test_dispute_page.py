# SPDX-License-Identifier: Apache-2.0
"""What people see of a stored dispute, whoever wrote it."""

from __future__ import annotations

import copy
import io
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from potl._report import _dispute

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e{{ 7*7 }}" + "x" * 100_000

UNWON = {"winner": None, "trainer_wrong": False}


def hostile(value: Any) -> Any:
    """The same document with something else in place of every text and number."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def printed(account: dict[str, Any]) -> str:
    out = io.StringIO()
    _dispute.render_terminal(account, Console(file=out, width=160))
    return out.getvalue()


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_first_lines_say_who_is_right_about_what(disputed: dict[str, Any]) -> None:
    lines = printed(disputed).splitlines()
    assert lines[:2] == [
        "\u2717 The trainer is wrong",
        "The auditor is right: computed again, the value is another one.",
    ]
    text = "\n".join(lines)
    assert "step 1,342; operator 1,042, aten.convolution_backward.default" in text
    assert "element 1,376,768 of its result, float32" in text
    assert "the ruling, from what both opened: 131,072 multiply-adds" in text
    assert "2 decisions of the referee: which operators the agreed program has" in text
    assert "those of: auditor, referee" in text
    assert "1,000  000000000000 \u2260 000000000000" in text


def test_nothing_in_a_file_becomes_markup_or_fills_the_page(disputed: dict[str, Any]) -> None:
    whole = disputed
    for account in (hostile(whole), {**whole, "verdict": hostile(whole["verdict"])}, {}):
        for status in ("judged", "unchecked", "invalid", HOSTILE, None, 7):
            page = _dispute.render_html({**account, "status": status})
            tags = Tags(page)
            assert "script" not in tags.seen and "a" in tags.seen
            assert not any(name.startswith("on") for name in tags.attributes)
            assert "\x1b" not in page and "\u202e" not in page
            assert len(page) < 200_000
            assert "\x1b[31m" not in printed({**account, "status": status})


@pytest.mark.parametrize("status", ["unchecked", "invalid", "anything"])
def test_without_a_judgement_there_is_no_verdict(status: str, disputed: dict[str, Any]) -> None:
    """Whatever else stands in the document."""
    account = disputed | {"status": status, "problem": "line 7 is not the referee's"}
    page, text = _dispute.render_html(account), printed(account)
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    for shown in (body, text):
        first = "This is not valid evidence" if status == "invalid" else "Not checked"
        assert first in shown and "line 7 is not the referee&#39;s" in shown.replace("'", "&#39;")
        assert "is wrong" not in shown and "is right:" not in shown and "0.00149" not in shown
    assert 'class="verdict inconclusive"' in body


@pytest.mark.parametrize(
    ("changes", "unknown", "kind", "headline"),
    [
        ({}, (), "rejected", "The trainer is wrong"),
        ({}, ("referee", "auditor"), "rejected", "The trainer is wrong"),
        ({}, ("trainer",), "inconclusive", "The trainer is wrong, if the keys are right"),
        (
            {"recomputed": False},
            ("referee",),
            "inconclusive",
            "The trainer is wrong, if the keys are right",
        ),
        (
            {"winner": "trainer", "trainer_wrong": False, "auditor_wrong": True},
            (),
            "accepted",
            "The trainer is right",
        ),
        ({"winner": None, "auditor_wrong": True}, (), "rejected", "Both are wrong"),
        (UNWON | {"why": "agreement"}, ("referee",), "accepted", "No dispute"),
        (
            UNWON | {"why": "agreement"},
            ("auditor",),
            "inconclusive",
            "No dispute, if the keys are right",
        ),
        (UNWON | {"why": "referee"}, (), "inconclusive", "Undecided"),
    ],
)
def test_the_headline_says_no_more_than_the_keys_do(
    changes: dict[str, object],
    unknown: tuple[str, ...],
    kind: str,
    headline: str,
    disputed: dict[str, Any],
) -> None:
    account = copy.deepcopy(disputed)
    account["verdict"] |= changes
    account["keys"] = [{**one, "known": one["who"] not in unknown} for one in account["keys"]]
    view = _dispute.view_of(account)
    assert (view.kind, view.headline) == (kind, headline)
    assert ("Not shown" in dict(view.facts)) == (account["verdict"]["winner"] == "trainer")


def test_what_ends_by_the_rules_was_not_ruled(disputed: dict[str, Any]) -> None:
    account = copy.deepcopy(disputed)
    account["verdict"] |= {"why": "silence", "recomputed": False, "believed": 0, "facts": {}}
    facts = dict(_dispute.view_of(account).facts)
    assert facts["Computed"] == "that the rules of the game end it so"
    assert (
        facts["Believed"]
        == "nothing of the referee's but its clock and who sent what is not signed"
    )


def test_one_line_of_a_transcript_is_not_several(disputed: dict[str, Any]) -> None:
    disputed["lines"] = disputed["lines"][:1]
    assert "1 line, 177.7 KiB;" in printed(disputed)


def test_a_range_is_halved_to_where_the_difference_is(disputed: dict[str, Any]) -> None:
    game = _dispute.view_of(disputed).games[0]
    words = [re.search('aria-label="(.*?)"', one.left)[1] for one in game.rounds]  # type: ignore[index]
    assert words == ["between 0 and 1,000", "between 500 and 1,000", "between 500 and 750"]
    assert game.notes == [
        "Opened: leaf 20 (trainer 81 B, auditor 81 B).",
        "Asked: 2 chunks of 2 operands, at most 115.3 KiB; answered: trainer 81 B, auditor 81 B.",
    ]


def test_a_game_without_a_move_has_no_heading(disputed: dict[str, Any]) -> None:
    unmoved = {"kind": "steps", "size": 2000, "rounds": [], "opened": {}, "question": {}}
    account = {**disputed, "bisections": [unmoved]}
    assert "Steps" not in printed(account)
    page = _dispute.render_html(account)
    assert "<h3>" not in page and "How it was found" not in page
