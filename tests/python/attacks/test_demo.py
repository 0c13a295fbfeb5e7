# SPDX-License-Identifier: Apache-2.0
"""The demo on a small training and a few cheats: its rows, its files, its exit status."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from potl import _attacks
from potl._attacks import Forgery, Scene, _demo, _tasks
from potl._cli import _cli

CHEATS = ("A1 momentum injection", "A18 truncated log", "A32 hidden state")


class Page(HTMLParser):
    """Ids, targets of links inside the page, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "a" and str(values.get("href")).startswith("#"):
            self.targets.append(str(values["href"])[1:])

    def handle_data(self, data: str) -> None:
        self.text += data


def play(out: Path, cheats: list[_attacks.Attack]) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_attacks, "catalogue", lambda: cheats)
        patch.setattr(_tasks, "demo", _tasks.momentum)
        return _demo.run_demo(out, progress=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def result(out: Path) -> dict[str, Any]:
    pytest.importorskip("sklearn")
    return play(out, [one for one in _attacks.catalogue() if f"{one.id} {one.name}" in CHEATS])


def test_the_honest_trainer_comes_first_and_every_cheat_follows(result: dict[str, Any]) -> None:
    assert [row["who"] for row in result["rows"]] == ["honest trainer", *CHEATS]
    assert [row["verdict"] for row in result["rows"]] == [
        "accepted",
        "rejected",
        "rejected",
        "refused",
    ]
    assert result["ok"] is True


def test_each_row_says_what_decided_and_what_it_cost(result: dict[str, Any]) -> None:
    assert [row["decided_by"] for row in result["rows"]] == [
        "all checks passed",
        "replay.optimizer",
        "agreed.step_count",
        "agreed.replayable",
    ]
    for row in result["rows"]:
        assert row["as_expected"] is True
        assert row["how"] and row["reason"]
        assert (row["cost"] > 0) == (row["verdict"] != "refused")


def test_demo_json_holds_what_was_returned(result: dict[str, Any], out: Path) -> None:
    assert json.loads((out / "demo.json").read_text()) == result
    assert result["report"] == str(out / "report.html")


def test_the_page_holds_every_row_and_every_report_within_reach(
    result: dict[str, Any], out: Path
) -> None:
    page = Page((out / "report.html").read_text())
    assert len(page.ids) == len(set(page.ids))
    assert set(page.targets) <= set(page.ids)
    for index, row in enumerate(result["rows"]):
        assert page.text.count(row["who"]) >= 2  # in the table, and above its report
        assert f"report-{index}" in page.targets
        assert (f"r{index}-findings" in page.ids) == (row["verdict"] != "refused")


def test_a_cheat_that_gets_through_is_not_as_expected(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")

    def nothing(scene: Scene) -> Forgery:
        return scene.honest

    cheat = _attacks.Attack(
        id="A99",
        name="no cheat",
        how="Trains as agreed.",
        rule="replay.parameters",
        found_by=("replay.parameters",),
        verdict="rejected",
        task="momentum",
        in_demo=True,
        make=nothing,
    )
    played = play(tmp_path, [cheat])
    assert played["ok"] is False
    assert [row["as_expected"] for row in played["rows"]] == [True, False]
    assert "1 of 2 are not as expected" in Page((tmp_path / "report.html").read_text()).text


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 3)])
def test_the_command_ends_with_0_only_if_all_is_as_expected(
    ok: bool,
    status: int,
    result: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_demo, "run_demo", lambda out: {**result, "ok": ok})
        assert _cli.run(["demo", "--out", str(tmp_path / "new")]) == status
    assert ("NOT AS EXPECTED" in capsys.readouterr().out) == (not ok)
