# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: nothing overflows, is cut off, too faint, or loaded from
elsewhere."""

from __future__ import annotations

import contextlib
import html
import http.server
import itertools
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from potl._report import _dispute, _report

Reports = dict[str, dict[str, Any]]

WIDTHS = (320, 360, 390, 480, 600, 900, 1200, 1400, 1600)
# What is seen before scrolling: a phone and a small laptop.
HEIGHTS = {390: 844, 1200: 800}
VERDICTS = ("accepted", "rejected", "inconclusive")
# Blink's numbers of the media feature prefers-color-scheme.
SCHEMES = {"light": 1, "dark": 0}
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

# Start-up traffic that no page causes.
_OF_THE_BROWSER_ITSELF = re.compile(r"(google|gstatic|googleapis|gvt1|chromium)\.(com|org)")

pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")


def without_policy(page: str) -> str:
    """The page with its scripts allowed: the measuring one is not the page's own."""
    stripped, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert count == 1
    return stripped


def browse(address: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Opens a page; stdout is its document as the browser has it then."""
    return subprocess.run(
        [
            str(_CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",  # containers have little of it
            "--disable-background-networking",
            f"--user-data-dir={folder / 'profile'}",
            *flags,
            "--dump-dom",
            address,
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )


def in_browser(
    pages: dict[str, str], folder: Path, scheme: str
) -> tuple[list[dict[str, Any]], str]:
    """What measure.js finds for each page and width, and the browser's console."""
    frames = "".join(
        f'<iframe name="{name}" '
        f'style="border:0;width:{width}px;height:{HEIGHTS.get(width, 900)}px" '
        f'srcdoc="{html.escape(without_policy(page))}"></iframe>'
        for name, page in pages.items()
        for width in WIDTHS
    )
    script = (Path(__file__).parent / "measure.js").read_text()
    test_page = folder / "measure.html"
    test_page.write_text(
        '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
        f"<script>{script}</script><body>{frames}</body>"
    )
    done = browse(
        test_page.as_uri(),
        folder,
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
    )
    found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    measured = json.loads(html.unescape(found[1]))
    assert isinstance(measured, list), measured
    return measured, done.stderr


@contextlib.contextmanager
def watching_proxy(body: bytes) -> Iterator[tuple[str, list[str]]]:
    """A proxy that answers everything with `body` and keeps what was asked for."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            seen.append(f"{self.command} {self.path}")
            self.send_response(200 if self.command == "GET" else 403)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_POST = do_HEAD = do_CONNECT = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module", params=list(SCHEMES))
def looked_at(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    all_reports: Reports,
    not_learned: dict[str, Any],
    disputed: dict[str, Any],
) -> tuple[list[dict[str, Any]], str]:
    row = {
        "who": "A3 interpolation towards a bought model, in steps below the tolerance",
        "how": "It interpolates.",
        "verdict": "rejected",
        "decided_by": "replay.interpolation_guard",
        "reason": "because",
        "cost": 0.12,
        "expected_rule": "replay.interpolation_guard",
        "as_expected": True,
    }
    pages = {verdict: _report.render_html(report) for verdict, report in all_reports.items()}
    unjudged = all_reports["inconclusive"]["findings"][3] | {"details": {"trouble": "no task"}}
    troubled = all_reports["inconclusive"] | {"findings": [unjudged] * 5}
    pages["troubled"] = _report.render_html(troubled)
    demo = _report.render_demo_html([row, row], [all_reports["rejected"], None])
    pages["demo"] = demo.replace("<details>", "<details open>")
    pages["closed demo"] = demo
    pages["extra task"] = _report.render_html(not_learned)
    pages["dispute"] = _dispute.render_html(disputed).replace("<details>", "<details open>")
    pages["printed"] = pages["accepted"].replace("@media print", "@media all")
    return in_browser(pages, tmp_path_factory.mktemp("browser"), request.param)


def test_the_browser_has_nothing_to_complain_about(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    assert "CONSOLE" not in looked_at[1]


def test_every_width_was_really_tried(looked_at: tuple[list[dict[str, Any]], str]) -> None:
    assert {one["width"] for one in looked_at[0]} == set(WIDTHS)
    assert all(one["text"] > 500 for one in looked_at[0] if one["name"] != "closed demo")


def test_nothing_is_wider_than_the_window(looked_at: tuple[list[dict[str, Any]], str]) -> None:
    wide = {(one["name"], one["width"]): one["overflow"] for one in looked_at[0] if one["overflow"]}
    assert wide == {}
    assert all(one["scroll"] <= one["width"] for one in looked_at[0])


def test_no_label_of_a_picture_is_cut_off(looked_at: tuple[list[dict[str, Any]], str]) -> None:
    cut = {(one["name"], one["width"]): one["clipped"] for one in looked_at[0] if one["clipped"]}
    assert cut == {}


def test_each_picture_is_shown_once(looked_at: tuple[list[dict[str, Any]], str]) -> None:
    counts = {(one["name"], one["pictures"]) for one in looked_at[0]}
    assert counts == {
        ("accepted", 3),
        ("rejected", 3),
        ("inconclusive", 1),
        ("troubled", 1),
        ("demo", 3),
        ("closed demo", 0),
        ("extra task", 3),
        ("dispute", 9),
        ("printed", 3),
    }


@pytest.mark.parametrize("width", HEIGHTS)
@pytest.mark.parametrize("verdict", ["accepted", "rejected", "extra task", "dispute"])
def test_the_first_screen_has_the_verdict_and_what_would_have_been_seen(
    looked_at: tuple[list[dict[str, Any]], str], verdict: str, width: int
) -> None:
    [one] = [one for one in looked_at[0] if (one["name"], one["width"]) == (verdict, width)]
    assert set(one["first"]) == {"verdict", "answer", "chart", "words"}
    assert all(0 < edge <= HEIGHTS[width] for edge in one["first"].values())


def test_nothing_is_cut_off_but_the_end_of_a_folded_finding(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    cut = {(one["name"], one["width"]): one["cut"] for one in looked_at[0] if one["cut"]}
    assert cut == {}


def test_what_passed_is_folded_into_one_line_each_and_the_lines_align(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    for one in looked_at[0]:
        if one["name"] in VERDICTS and one["width"] in HEIGHTS:
            assert len(one["lines"]) >= 5
            assert all(line["height"] < 40 for line in one["lines"])
            assert len({tuple(line["parts"]) for line in one["lines"]}) == 1


def test_how_many_more_there_are_for_a_reason_is_one_line(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    pages = [one for one in looked_at[0] if one["name"] == "troubled"]
    found = [one["more"] for one in pages if one["width"] in HEIGHTS]
    assert len(found) == len(HEIGHTS)
    assert all(len(heights) == 1 and heights[0] < 40 for heights in found)


def test_the_cells_of_a_column_begin_at_one_edge(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    for one in looked_at[0]:
        # At the right edge of a column are numbers.
        found = [{k: v for k, v in table.items() if k != "Cost"} for table in one["columns"]]
        assert all(len(edges) == 1 for table in found for edges in table.values()), one["name"]
        if one["width"] == 390:  # and all columns at one, since they stand below each other
            assert all(len({edge for [edge] in table.values()}) <= 1 for table in found)
    assert any(table for one in looked_at[0] for table in one["columns"])


def test_headings_start_at_one_and_leave_no_level_out(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    for one in looked_at[0]:
        levels = one["headings"]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


def test_the_rows_of_many_verifications_are_closed_until_they_are_opened(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    closed = [one for one in looked_at[0] if one["name"] == "closed demo"]
    assert len(closed) == len(WIDTHS)
    assert all(one["unfolded"] == 0 and one["folded"] >= 2 for one in closed)
    assert all(one["unfolded"] for one in looked_at[0] if one["name"] == "demo")


def test_paper_shows_what_the_screen_folds(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    unfolded = {one["name"]: (one["unfolded"], one["folded"]) for one in looked_at[0]}
    assert unfolded["accepted"][0] == 0
    assert unfolded["printed"][0] == unfolded["printed"][1] > 0


def test_all_text_stands_out_from_its_background(
    looked_at: tuple[list[dict[str, Any]], str],
) -> None:
    faint = {(one["name"], one["width"]): one["faint"] for one in looked_at[0] if one["faint"]}
    assert faint == {}


def test_nothing_is_requested_even_without_the_policy(reports: Reports, tmp_path: Path) -> None:
    body = without_policy(_report.render_html(reports["rejected"])).encode()
    with watching_proxy(body) as (address, seen):
        browse(
            "http://report.test/report.html",
            tmp_path,
            f"--proxy-server={address}",
            "--virtual-time-budget=3000",
        )
    assert [request for request in seen if not _OF_THE_BROWSER_ITSELF.search(request)] == [
        "GET http://report.test/report.html"
    ]


def test_the_title_says_the_verdict(looked_at: tuple[list[dict[str, Any]], str]) -> None:
    for one in looked_at[0]:
        if one["name"] in VERDICTS:
            assert one["title"].startswith(one["name"].capitalize())
