# SPDX-License-Identifier: Apache-2.0
"""What the page says, and that nothing written by somebody else becomes markup."""

from __future__ import annotations

import html.parser
import json
import re
from typing import Any

import pytest
from places import ROOT

from potl._report import _report

Reports = dict[str, dict[str, Any]]

VERDICTS = ("accepted", "rejected", "inconclusive")
_VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(html.parser.HTMLParser):
    """Elements, ids and text of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_page_says_the_verdict_and_why_in_one_sentence(reports: Reports, verdict: str) -> None:
    page = Page(_report.render_html(reports[verdict]))
    assert verdict.capitalize() in page.words
    assert reports[verdict]["sentence"] in page.words


@pytest.mark.parametrize("verdict", VERDICTS)
def test_ids_are_unique_and_every_reference_has_its_target(reports: Reports, verdict: str) -> None:
    page = Page(_report.render_html(reports[verdict]))
    assert len(page.ids) == len(set(page.ids))
    for _, attributes in page.tags:
        targets = (attributes.get("aria-labelledby") or "").split()
        link = attributes.get("href") or ""
        targets += [link[1:]] if link.startswith("#") else []
        assert set(targets) <= set(page.ids)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_page_loads_nothing_and_runs_nothing(reports: Reports, verdict: str) -> None:
    text = _report.render_html(reports[verdict])
    page = Page(text)
    assert {"script", "iframe", "object", "embed", "img"}.isdisjoint(tag for tag, _ in page.tags)
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "action", "data"):
            assert re.match(r"#|data:,$", attributes.get(name) or "#")
    assert "url(" not in text
    assert "@import" not in text


def test_every_table_has_a_caption_and_column_headers(reports: Reports) -> None:
    text = _report.render_html(reports["rejected"])
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        assert "<caption>" in table
        assert '<th scope="col"' in table


def test_each_rejecting_finding_names_its_rule_and_the_meaning(reports: Reports) -> None:
    words = Page(_report.render_html(reports["rejected"])).words
    assert "the replayed parameters differ by 43 tolerances" in words
    assert "replayed parameters equal the recorded ones within tolerance" in words


def test_the_strength_is_a_sentence_about_false_transitions(reports: Reports) -> None:
    words = Page(_report.render_html(reports["accepted"])).words
    expected = (
        "False transitions in 5 % of the segments (3 of them) would be seen with probability "
        "49.5 %. "
        "With probability 95 % at most 11 transitions are false; by themselves they move the "
        "weights at most 1.25 times as far as the training did."
    )
    assert expected in words


def test_a_report_without_reach_says_that_nothing_bounds_a_false_transition(
    reports: Reports,
) -> None:
    report = reports["accepted"]
    words = Page(
        _report.render_html({**report, "strength": {**report["strength"], "reach": None}})
    ).words
    assert "Nothing bounds how far one false transition carries the weights." in words


def test_limits_cost_nonce_and_the_command_are_on_the_page(reports: Reports) -> None:
    report = reports["accepted"]
    words = Page(_report.render_html(report)).words
    for limit in report["limits"]:
        assert limit["text"] in words
    assert "13.6 % of the 7 min 35 s that the recorded training took" in words
    assert report["nonce"] in words
    assert report["reproduce"] in words


def test_many_findings_of_one_kind_are_folded_but_all_are_there(reports: Reports) -> None:
    report = reports["accepted"]
    extra = [{**report["findings"][3], "reason": f"segment {n} replays"} for n in range(9)]
    report["findings"][3:4] = extra
    words = Page(_report.render_html(report)).words
    assert "9 times: segment 0 replays" in words
    assert all(one["reason"] in words for one in extra)


def folded_and_open(text: str) -> tuple[str, str]:
    """The findings that are folded away, and those that are not."""
    [found] = re.findall(
        r'<ul class="findings">.*</section>\s*<section class="long"', text, re.DOTALL
    )
    folded = re.findall(r"<details>.*?</details>", found, re.DOTALL)
    return " ".join(folded), re.sub(r"<details>.*?</details>", "", found, flags=re.DOTALL)


def test_what_decides_is_open_and_comes_before_what_is_folded(reports: Reports) -> None:
    for verdict, result, words in (
        ("rejected", "reject", "rejects"),
        ("inconclusive", "inconclusive", "cannot be judged"),
    ):
        report = reports[verdict]
        deciding = next(one for one in report["findings"] if one["result"] == result)
        report["findings"] += [{**deciding, "reason": f"again {n}"} for n in range(9)]
        text = _report.render_html(report)
        folded, shown = folded_and_open(text)
        assert words not in folded
        assert "passes" not in shown
        assert all(f"again {n}" in shown for n in range(9))
        assert text.index("again 8") < text.index("<details>")


def test_the_page_answers_whether_to_pay_before_anything_else(reports: Reports) -> None:
    for verdict in VERDICTS:
        report = reports[verdict]
        words = Page(_report.render_html(report)).words
        places = [words.index(report["answer"])]
        places += [words.index("Would a cheat have been seen?")]
        places += [words.index(what) for what in report["looked_at"]]
        places += [words.index(step.split(" (--")[0]) for step in report["next"]["steps"]]
        assert places == sorted(places)
        assert places[-1] < words.index("All findings")


def test_the_first_chart_says_in_words_what_it_draws(reports: Reports) -> None:
    text = _report.render_html(reports["accepted"])
    [chart] = re.findall(r'<figure class="seen".*?</figure>', text, re.DOTALL)
    for share in (1, 5, 20):
        assert f"False transitions in {share} % of the segments" in chart
    assert 'role="img"' in chart
    assert "in 10 %" not in chart
    assert "1 % (1 of 60)" in chart


def test_a_larger_draw_has_a_row_with_its_time_and_probabilities(reports: Reports) -> None:
    page = _report.render_html(reports["accepted"])
    words = Page(page).words
    # No column is so narrow that a line ends between a number and its sign.
    assert "62.1\u00a0%</td>" in page and "5\u00a0%</th>" in page
    assert "36 1 min 30 s 62.1 % 95 % > 99.99 %" in words.replace("</td>", " ")
    assert "58, all" in words


def test_without_random_replays_there_is_no_chart_but_a_sentence(reports: Reports) -> None:
    none = reports["inconclusive"]
    asked = reports["accepted"]
    asked["strength"]["sampled"] = 0  # asked for, and none could be judged
    for report in (none, asked):
        text = _report.render_html(report)
        assert '<svg class="small"' not in text
        assert "so there is no probability" in Page(text).words


def test_a_run_too_short_to_draw_from_says_that_all_of_it_was_trained_again(
    reports: Reports,
) -> None:
    report = reports["accepted"]
    report["strength"].update(segments=2, drawn_from=0, sampled=0)
    words = Page(_report.render_html(report)).words
    assert "every segment is trained again" in words
    assert "Probability of seeing" not in words.split("What would make it stronger")[0]


def test_the_verifiers_own_trouble_is_not_counted_against_the_run(reports: Reports) -> None:
    report = reports["rejected"]
    report["replays"][0].update(status="verifier_error", fits=False)
    assert (
        "Replays 9 of 14 fit, 4 do not, 1 could not be judged"
        in Page(_report.render_html(report)).words
    )


def test_reasons_that_no_finding_gives_are_listed_and_none_twice(reports: Reports) -> None:
    report = reports["inconclusive"]
    report["reasons"].append("there is no valid commitment")
    report["sentence"] = "The run could not be judged."
    words = Page(_report.render_html(report)).words
    assert words.count("there is no valid commitment") == 1
    assert words.count(report["reasons"][0]) == 1


def test_options_in_a_step_are_code_and_a_hostile_step_stays_text(reports: Reports) -> None:
    report = reports["inconclusive"]
    report["next"]["steps"] = ["Pass --replay-samples 10 now.", "--<b>x"]
    text = _report.render_html(report)
    assert 'Pass <code class="flag">--replay-samples 10</code> now.' in text
    assert "--&lt;b&gt;x" in text


def test_a_report_of_an_earlier_version_still_has_its_page(reports: Reports) -> None:
    for report in reports.values():
        for name in ("answer", "looked_at", "next"):
            del report[name]
        page = Page(_report.render_html(report))
        assert report["sentence"] in page.words
        assert "Adds about" not in page.words


def test_what_does_not_fit_is_said_in_words_not_by_colour_alone(reports: Reports) -> None:
    words = Page(_report.render_html(reports["rejected"])).words
    assert "43 times the tolerance" in words
    assert "withheld: the prover did not open it" in words


def test_exact_replays_have_no_axis_of_tolerances(reports: Reports) -> None:
    axis = "Distance, in % of the tolerance"
    assert axis in _report.render_html(reports["accepted"])
    for row in reports["accepted"]["replays"]:
        row.update(ratio=0, equal=True)
    assert axis not in _report.render_html(reports["accepted"])


def test_a_report_without_replays_says_so(reports: Reports) -> None:
    assert "Nothing was replayed." in Page(_report.render_html(reports["inconclusive"])).words


def test_a_spot_check_has_no_parts_about_a_record(guarded: dict[str, Any]) -> None:
    words = Page(_report.render_html(guarded)).words
    assert "With probability 99.90 %, false gradients were caught" in words
    assert "Your own side made every update." in words
    for other in (
        "segment",
        "Nothing was replayed",
        "Nothing was committed",
        "who trained is not proven",
        "How to do this verification again",
        "What would make it stronger",
    ):
        assert other not in words


HOSTILE = (
    "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}"
    "\x1b[2J\u202e\x00"
)


def poisoned(value: Any, key: str = "") -> Any:
    """`value` with every text in it, and every name of a detail, replaced."""
    if isinstance(value, dict):
        return {
            (HOSTILE if key == "details" else name): poisoned(entry, name)
            for name, entry in value.items()
        }
    if isinstance(value, list):
        return [poisoned(entry, key) for entry in value]
    return HOSTILE if isinstance(value, str) and key not in ("verdict", "result") else value


@pytest.mark.parametrize("verdict", VERDICTS)
def test_hostile_text_stays_text(reports: Reports, verdict: str) -> None:
    report = poisoned(reports[verdict])
    text = _report.render_html(report)
    page = Page(text)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in page.tags)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "{{ 7*7 }}" in page.words


def test_numbers_beyond_every_scale_are_drawn(reports: Reports) -> None:
    report = reports["rejected"]
    report["timeline"]["loss"][:6] = [1e308, -1e308, 0, 1e-320, None, "inf"]
    report["replays"][0]["ratio"] = 1e300
    report["replays"][1]["ratio"] = "nan"
    report["replays"][4].update(ratio=5e-324, equal=False)
    for row, count in zip(report["strength"]["table"], ("inf", "nan"), strict=False):
        row["bad_segments"] = count
    text = _report.render_html(report)
    assert re.search(r'="-?(nan|inf)', text) is None


def test_what_was_not_replayed_before_a_segment_hides_no_other_that_does_not_fit(
    reports: Reports,
) -> None:
    report = reports["rejected"]
    fits = next(one for one in report["replays"] if one["fits"])
    report["findings"].append(
        {
            "check": "replay",
            "rule": "replay.reach",
            "result": "inconclusive",
            "first_step": fits["start"] + 1,
            "last_step": fits["end"],
            "reason": "a state lies far",
        }
    )
    assert "Replays 10 of 14 fit, 4 do not" in Page(_report.render_html(report)).words


def test_a_loss_that_is_lost_does_not_end_at_its_last_number(reports: Reports) -> None:
    report = reports["accepted"]
    report["timeline"]["loss"][-3:] = ["nan"] * 3
    assert "and is not finite in the end." in _report.render_html(report)


def test_a_job_that_promises_far_more_than_was_recorded_does_not_squeeze_the_picture(
    reports: Reports,
) -> None:
    report = reports["accepted"]
    report["job"]["steps"] = 10**12
    assert "1,000,000,000,000" not in re.sub(
        r"<dl.*?</dl>", "", _report.render_html(report), flags=re.DOTALL
    )


def test_a_page_of_a_long_run_stays_small(reports: Reports) -> None:
    report = reports["accepted"]
    report["timeline"] = {
        "step": list(range(1, 100_001)),
        "loss": [1 / (1 + n) for n in range(100_000)],
    }
    report["replays"] = [
        {"start": n, "end": n + 10, "why": "random", "status": "ok", "ratio": 0.1}
        for n in range(0, 5000, 10)
    ]
    assert len(_report.render_html(report)) < 900_000


def row(who: str, verdict: str, *, expected: bool = True) -> dict[str, Any]:
    return {
        "who": who,
        "how": f"how {who} works",
        "verdict": verdict,
        "decided_by": "replay.parameters",
        "reason": "because",
        "cost": 0.12,
        "expected_rule": "replay.parameters",
        "as_expected": expected,
    }


def test_the_demo_links_each_row_to_its_report(reports: Reports) -> None:
    rows = [row("honest", "accepted"), row("A3", "rejected"), row("A32", "refused")]
    page = Page(
        _report.render_demo_html(rows, [reports["accepted"], json.dumps(reports["rejected"]), None])
    )
    assert len(page.ids) == len(set(page.ids))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert {"#report-0", "#report-1", "#report-2"} <= set(links)
    assert {"report-0", "report-1", "report-2"} <= set(page.ids)
    assert "Every verdict is the expected one" in page.words


def test_a_narrow_demo_names_each_value_as_its_column() -> None:
    page = _report.render_demo_html([row("honest", "accepted")], [None])
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', page)
    assert re.findall(r'<td[^>]* data-name="([^"]+)"', page) == heads[1:]


def test_the_demo_says_when_a_row_is_not_as_expected(reports: Reports) -> None:
    rows = [row("honest", "accepted"), row("A3", "accepted", expected=False)]
    page = Page(_report.render_demo_html(rows, [reports["accepted"], reports["accepted"]]))
    assert "1 of 2 are not as expected" in page.words


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_reports_of_these_tests_follow_the_schema(reports: Reports, verdict: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = ROOT / "docs/format/report.schema.json"
    jsonschema.validate(reports[verdict], json.loads(schema.read_text(encoding="utf-8")))
