# SPDX-License-Identifier: Apache-2.0
"""The report on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from potl._record._inspect import show, sparkline
from potl._report import _report

Reports = dict[str, dict[str, Any]]


def printed(report: dict[str, Any], width: int = 120) -> str:
    out = io.StringIO()
    _report.render_terminal(report, Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("verdict", ["accepted", "rejected", "inconclusive"])
def test_the_verdict_comes_first(reports: Reports, verdict: str) -> None:
    assert verdict.capitalize() in printed(reports[verdict]).splitlines()[0]


def test_findings_that_decide_come_before_the_others(reports: Reports) -> None:
    text = printed(reports["rejected"])
    assert text.index("transcript.withheld") < text.index("transcript.chain")


def test_text_of_the_prover_cannot_move_the_cursor_or_style_the_output(reports: Reports) -> None:
    report = reports["rejected"]
    report["findings"][3]["reason"] = "\x1b]0;owned\x07[bold red]x[/] \u202e"
    text = printed(report)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold red]x[/]" in text


def test_the_answer_and_what_would_be_stronger_are_printed(reports: Reports) -> None:
    text = " ".join(printed(reports["accepted"], width=200).split())
    assert text.startswith("\u2713 Accepted You may pay: everything that was looked at")
    assert "looked at 14 of 60 segments, trained again" in text
    assert "False transitions in 1 % of the segments (1 of them)" in text
    assert "next To see more, verify again with more random segments" in text
    assert (
        "stronger 36 random segments, another 1 min 30 s: 62.1 % for 1 %, 95 % for 5 %, "
        "> 99.99 % for 20 %" in text
    )


def test_what_could_not_be_judged_for_one_reason_is_one_line(reports: Reports) -> None:
    report = reports["inconclusive"]
    unjudged = {"check": "replay", "rule": "", "result": "inconclusive"}
    trouble = "no task was given"
    why = f"could not be recomputed here: {trouble}"
    report["findings"] = [
        {**unjudged, "reason": f"segment {at} {why}", "details": {"trouble": trouble}}
        for at in range(5)
    ] + [{**unjudged, "reason": f"step {at}: {trouble}"} for at in range(5)]
    note = {"check": "replay", "rule": "replay.parameters", "result": "note"}
    report["findings"] += [
        {**note, "reason": f"place {at}: not replayed", "details": {"status": "verifier_error"}}
        for at in range(5)
    ] + [
        {**note, "reason": f"place {at} is another state", "details": {"status": "ok"}}
        for at in range(5)
    ]
    text = printed(report, width=200)
    assert "place 0: not replayed (and 4 more)" in text
    assert "place 1: not" not in text
    assert all(f"place {at} is another state" in text for at in range(5))
    assert f"segment 0 {why} (and 4 more)" in text
    assert "segment 1" not in text
    assert all(f"step {at}: {trouble}" in text for at in range(5))


def test_the_verdict_is_also_the_last_line(reports: Reports) -> None:
    assert printed(reports["rejected"]).splitlines()[-1] == "verdict   \u2717 Rejected"


def test_the_command_to_verify_again_is_one_line_on_any_terminal(reports: Reports) -> None:
    command = reports["accepted"]["reproduce"]
    assert len(command) > 60
    assert f"again     {command}" in printed(reports["accepted"], width=60).splitlines()


def test_a_finding_is_readable_on_80_columns(reports: Reports) -> None:
    report = reports["rejected"]
    report["findings"] = [
        {
            "check": "replay",
            "rule": "replay.random_segments",
            "result": "inconclusive",
            "reason": "0 of 12 randomly drawn segments, of 15 in all, were judged",
        }
    ]
    lines = [line.rstrip() for line in printed(report, width=80).splitlines()]
    assert "? cannot be judged  replay  0 of 12 randomly drawn segments, of 15 in all," in lines


def test_where_a_finding_is_stands_before_it_unless_it_says_so(reports: Reports) -> None:
    report = reports["rejected"]
    report["findings"] = [
        {"check": "replay", "rule": "r", "result": "reject", "reason": reason, "first_step": 3}
        for reason in ("other parameters", "step 3 logged another loss")
    ]
    text = printed(report, width=200)
    assert "step 3: other parameters  r" in text
    assert "step 3: step 3" not in text


def test_a_spot_check_says_what_is_certified_and_nothing_of_segments(
    guarded: dict[str, Any],
) -> None:
    text = " ".join(printed(guarded, width=200).split())
    assert "With probability 99.90 %, false gradients were caught" in text
    assert "at most 18.0018" in text
    assert not {"segment", "again", "nonce", "reach"} & set(text.split())


def test_what_rejects_for_one_reason_stays_apart(reports: Reports) -> None:
    report = reports["rejected"]
    report["findings"] = [
        {"check": "replay", "rule": "r", "result": "reject", "reason": f"step {at}: false"}
        for at in range(5)
    ]
    assert printed(report, width=200).count(": false") == 5


def test_one_replayed_segment_is_no_plural(reports: Reports) -> None:
    report = reports["accepted"]
    del report["replays"][1:]
    assert "replays   1 segment, it fits" in printed(report, width=200)
    report["replays"][0].update(fits=False, equal=False, ratio=0.0)
    assert "replays   1 segment, it does not fit\n" in printed(report, width=200)


def test_replays_that_were_not_made_are_not_counted_as_misfits(reports: Reports) -> None:
    report = reports["accepted"]
    for one in report["replays"]:
        one.update(status="verifier_error", fits=False, equal=False, ratio=None)
    assert f"replays   {len(report['replays'])} segments, none could be judged\n" in printed(
        report, width=200
    )


def test_a_report_without_random_replays_has_no_probabilities(reports: Reports) -> None:
    report = reports["accepted"]
    report["strength"]["sampled"] = 0
    text = printed(report, width=200)
    assert "No segment that was drawn at random was judged" in text
    assert "would be seen with probability" not in text


def test_a_report_of_an_earlier_version_is_printed_with_what_its_verdict_means(
    reports: Reports,
) -> None:
    report = reports["accepted"]
    for name in ("answer", "looked_at", "next"):
        del report[name]
    text = printed(report, width=200)
    assert "Everything that was looked at is as it should be" in text
    assert "stronger" not in text


def test_a_narrow_terminal_keeps_every_reason(reports: Reports) -> None:
    words = printed(reports["accepted"], width=60).split()
    assert {"delivered", "committed", "recomputed", "utilisation"} <= set(words)


def test_a_sparkline_shows_where_a_loss_is_not_finite() -> None:
    assert sparkline([3.0, 2.0, float("nan"), 1.0]) == "\u2588\u2585x\u2581"


def test_a_sparkline_of_many_values_is_as_wide_as_asked() -> None:
    assert len(sparkline([float(n) for n in range(1000)], width=40)) == 40


def test_a_sparkline_survives_values_whose_difference_is_infinite() -> None:
    assert sparkline([1.7e308, -1.7e308]) == "\u2588\u2581"


FACTS: dict[str, Any] = {
    "job": "3f" * 32,
    "trainer": None,
    "software": "potl 0.1.0",
    "agreed_steps": 600,
    "steps": 580,
    "superseded_steps": 7,
    "seconds": 14.2,
    "losses": [2.3, None, 0.1],
    "checkpoints": [{"name": "checkpoints/step-0.safetensors", "bytes": 10}],
    "checkpoint_bytes": 1 << 20,
    "records": 590,
    "log_bytes": 2048,
    "telemetry_bytes": 100,
    "closed": False,
    "committed": False,
    "rounding_logs": 580,
    "rounding_bytes": 58_000,
    "resumes": [{"from_step": 20, "last_step": 27}],
    "gaps": [{"first_step": 40, "last_step": 80}],
    "unused": [],
    "damage": [],
}


def inspected(**changes: Any) -> str:
    out = io.StringIO()
    show({**FACTS, **changes}, Console(file=out, width=100, color_system=None))
    return out.getvalue()


def test_a_run_is_shown_with_its_steps_resumes_and_gaps() -> None:
    text = inspected()
    assert "580 of 600 agreed, 7 done again after resumes, trained in 14.2 s" in text
    assert "580 logs, " in text and " a step" in text
    assert "went on from step 20, 7 steps done again" in text
    assert "no checkpoint is stored within steps 40\u201380" in text
    assert "none seen" in text


def test_damage_is_shown_with_control_characters_spelled_out() -> None:
    assert "bad \\u001b[2J record" in inspected(damage=["bad \x1b[2J record"])


def test_a_long_list_of_damage_is_cut_and_counted() -> None:
    assert "and 988 more" in inspected(damage=["torn"] * 1000)
