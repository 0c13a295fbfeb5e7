# SPDX-License-Identifier: Apache-2.0
"""Reports as values, for tests of what is shown: one per verdict."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

_STEPS, _EVERY = 600, 10


def _loss(step: int) -> float:
    return (
        2.3 * math.exp(-step / 140) + 0.05 + 0.04 * math.sin(step * 12.9898) * math.cos(step * 0.37)
    )


def _finding(check: str, rule: str, result: str, reason: str, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        ("first_step", "last_step", "statistic", "threshold", "error_probability")
    )
    return {
        "check": check,
        "rule": rule,
        "result": result,
        "reason": reason,
        **empty,
        "details": {},
        **more,
    }


def _stronger(samples: int, more: float, *seen: float) -> dict[str, Any]:
    return {
        "samples": samples,
        "more_segments": samples - 12,
        "more_seconds": more,
        "seconds": 61.93 + more,
        "table": [
            {"cheat_fraction": fraction, "probability": probability}
            for fraction, probability in zip((0.01, 0.05, 0.2), seen, strict=True)
        ],
    }


def accepted() -> dict[str, Any]:
    """An honest run, verified with the defaults."""
    starts = (0, 40, 70, 150, 220, 230, 290, 340, 410, 450, 520, 560)
    replays = [
        {
            "start": start,
            "end": start + _EVERY,
            "why": "random",
            "status": "ok",
            "equal": index % 3 != 0,
            "fits": True,
            "ratio": 0.0 if index % 3 else 0.004 * (index + 1),
        }
        for index, start in enumerate(starts)
    ]
    replays += [
        {
            "start": 10,
            "end": 20,
            "why": "top-q",
            "status": "ok",
            "equal": False,
            "fits": True,
            "ratio": 0.21,
        },
        {
            "start": 590,
            "end": 600,
            "why": "final",
            "status": "ok",
            "equal": True,
            "fits": True,
            "ratio": 0.0,
        },
    ]
    return {
        "format": "potl-report-v1",
        "software": "potl 0.1.0",
        "verdict": "accepted",
        "exit_code": 0,
        "answer": "You may pay: everything that was looked at is as agreed, and as much was looked "
        "at as your policy asks. False transitions in 5 % of the segments would more likely than "
        "not have been missed.",
        "looked_at": [
            "the record of 600 steps",
            "14 of 60 segments, trained again: 12 drawn at random after the commitment",
            "losses of drawn batches, computed again",
            "the delivered model, compared with the last recorded state",
        ],
        "next": {
            "steps": ["To see more, verify again with more random segments (--replay-samples)."],
            "seconds_per_segment": 3.75,
            "stronger": [
                _stronger(24, 45.0, 0.414, 0.806, 0.9994),
                _stronger(36, 90.0, 0.621, 0.95, 0.9999993),
                _stronger(45, 123.75, 0.776, 0.991, 0.99999999998),
                _stronger(58, 172.5, 1.0, 1.0, 1.0),
            ],
        },
        "reasons": [],
        "sentence": "12 of 60 segments drawn at random, and 2 more, replay to the recorded states; "
        "nothing contradicts the job.",
        "job": {
            "id": "3f" * 32,
            "own": True,
            "arithmetic": "stock",
            "trainer": "a1" * 32,
            "steps": _STEPS,
            "epochs": 10,
            "samples": 1797,
        },
        "commitment": {"root": "7c" * 32, "size": 603},
        "model": {"digest": "9b" * 32, "delivered": True},
        "nonce": "5e" * 32,
        "checks": [{"check": "replay", "options": {"samples": 12}}],
        "findings": [
            _finding(
                "transcript", "transcript.chain", "pass", "603 records hash to the committed root"
            ),
            _finding(
                "transcript", "agreed.step_count", "pass", "600 of 600 agreed steps are there"
            ),
            _finding(
                "model", "model.delivered", "pass", "the delivered file is the last committed state"
            ),
            _finding(
                "replay",
                "replay.parameters",
                "pass",
                "14 segments replay within tolerance; the worst reaches 0.21 of it",
                statistic=0.21,
                threshold=1.0,
                error_probability=1e-6,
            ),
            _finding(
                "pev",
                "loss.recomputed",
                "pass",
                "60 of 60 recomputed losses equal the logged ones",
                statistic=0.0,
                threshold=1e-6,
                details={"largest difference": "0"},
            ),
            _finding("telemetry", "", "note", "no GPU was seen; utilisation is of the processor"),
        ],
        "strength": {
            "segments": 60,
            "drawn_from": 58,
            "sampled": 12,
            "table": [
                {"cheat_fraction": 0.01, "bad_segments": 1, "probability": 0.2},
                {"cheat_fraction": 0.05, "bad_segments": 3, "probability": 0.495},
                {"cheat_fraction": 0.1, "bad_segments": 6, "probability": 0.755},
                {"cheat_fraction": 0.2, "bad_segments": 12, "probability": 0.951},
                {"cheat_fraction": 0.5, "bad_segments": 30, "probability": 0.99994},
            ],
            "reach": {
                "factor": 20.0,
                "false_segments": 11,
                "probability": 0.95,
                "displacement": 1.25,
            },
        },
        "replays": replays,
        "timeline": {
            "step": list(range(1, _STEPS + 1)),
            "loss": [_loss(s) for s in range(1, _STEPS + 1)],
        },
        "cost": {
            "seconds": 61.93,
            "training_seconds": 455.4,
            "fraction": 0.136,
            "checks": [
                {"check": "transcript", "seconds": 1.021, "fraction": 0.0015},
                {"check": "replay", "seconds": 52.5, "fraction": 0.106},
                {"check": "pev", "seconds": 8.39, "fraction": 0.027},
                {"check": "telemetry", "seconds": 0.0008, "fraction": 0.00006},
            ],
        },
        "limits": [
            {"check": "replay", "text": "Segments that were not drawn were not looked at."},
            {"check": "replay", "text": "A bias below the tolerance on every step is not seen."},
            {
                "check": "pev",
                "text": "Losses say nothing about what the optimizer did with the gradients.",
            },
            {
                "check": "telemetry",
                "text": "Readings can be invented: they never accept or reject.",
            },
        ],
        "reproduce": "potl verify runs/1 --job job.json --commitment runs/1/commitment "
        "--task trainer:build --check telemetry --check pev --pev-fraction 0.1 --check replay "
        "--replay-samples 12 --nonce " + "5e" * 32,
    }


def rejected() -> dict[str, Any]:
    """An interpolation towards a bought model."""
    report = copy.deepcopy(accepted())
    report["verdict"] = "rejected"
    report["exit_code"] = 1
    report["answer"] = (
        "Do not pay for this run: there is evidence that it was not trained as agreed."
    )
    report["looked_at"][1] = (
        "13 of 60 segments, trained again: 11 drawn at random after the commitment"
    )
    report["next"] = {
        "steps": [
            "Send the trainer the findings that reject: they say what does not fit.",
            "A file that was damaged or lost can be replaced by an intact one that fits the "
            "commitment; a lost state is trained again by potl rederive. Anything else needs a "
            "new run of a new job: a second commitment for this one rejects.",
        ],
        "seconds_per_segment": None,
        "stronger": [],
    }
    report["sentence"] = (
        "The state recorded after step 160 is 43 tolerances away from what steps 151-160 lead "
        "to: the parameters were not produced by the agreed training."
    )
    report["model"]["delivered"] = False
    report["job"]["trainer"] = None
    for index in (3, 7, 9):
        report["replays"][index].update(equal=False, fits=False, ratio=43.0 / (index - 2))
    report["replays"][5] = {
        "start": 230,
        "end": 240,
        "why": "random",
        "status": "withheld",
        "equal": False,
        "fits": False,
        "ratio": None,
    }
    report["timeline"]["loss"][299] = None
    report["findings"][3] = _finding(
        "replay",
        "replay.parameters",
        "reject",
        "steps 151-160: the replayed parameters differ by 43 tolerances",
        first_step=151,
        last_step=160,
        statistic=43.0,
        threshold=1.0,
        details={"worst tensor": "model/0.weight"},
    )
    report["findings"].append(
        _finding(
            "transcript",
            "transcript.withheld",
            "reject",
            "the checkpoint at step 240 was not opened",
            first_step=240,
        )
    )
    return report


def inconclusive() -> dict[str, Any]:
    """Nothing was replayed: the verifier had no task."""
    report = copy.deepcopy(accepted())
    report["verdict"] = "inconclusive"
    report["exit_code"] = 3
    report["answer"] = (
        "Do not decide yet: the run could not be judged. This says nothing for or against the "
        "trainer."
    )
    del report["looked_at"][1]
    report["next"] = {
        "steps": [
            "Read the findings that could not be judged: each says what was missing. Provide it, "
            'and verify again. The guide\'s page "When it says inconclusive" tells how.',
            "Replay at least 10 random segments (--replay-samples 10).",
        ],
        "seconds_per_segment": None,
        "stronger": [],
    }
    report["reasons"] = ["no task was given, so nothing could be replayed"]
    report["sentence"] = (
        "No segment was replayed at random, so nothing shows that the recorded training happened."
    )
    report["replays"] = []
    report["strength"] = {
        "segments": 60,
        "drawn_from": 58,
        "sampled": 0,
        "table": [],
        "reach": None,
    }
    report["job"]["own"] = False
    report["findings"][3] = _finding(
        "verifier",
        "replay.random_segments",
        "inconclusive",
        "no task was given, so nothing could be replayed",
    )
    report["cost"]["fraction"] = None
    return report


@pytest.fixture(scope="module")
def not_learned() -> dict[str, Any]:
    """A model that knows nothing of the secret samples."""
    report = copy.deepcopy(accepted())
    sentence = "the model has not learned the extra samples: 25 of 200 extra samples hit, 42 needed"
    report |= {name: rejected()[name] for name in ("verdict", "exit_code", "answer", "next")}
    report["sentence"] = f"There is evidence that this run was not trained as agreed: {sentence}."
    report["looked_at"].append("what the model knows of the secret samples")
    sizes = {"samples": "200", "controls": "800", "level": "0.00125", "submission": "2"}
    report["findings"][:0] = [
        _finding(
            "extra_task",
            "extra_task.hits",
            "reject",
            f"{sentence}, p = 0.566",
            statistic=25,
            threshold=42,
            details=sizes,
        ),
        _finding(
            "extra_task",
            "extra_task.control",
            "reject",
            "93 of 800 control samples hit, for which 50 hits among the extra samples are needed",
            statistic=0.789,
            threshold=0.00125,
            details=sizes,
        ),
    ]
    return report


@pytest.fixture
def guarded() -> dict[str, Any]:
    """Of a spot-check: no segments, no replays, nothing delivered."""
    report = copy.deepcopy(accepted())
    report["answer"] = report["sentence"] = "You may pay: your own side made every update."
    report["limits"] = []
    report["looked_at"] = ["600 steps, each updated by your own side"]
    report["next"]["steps"] = ["The weights are your own: take them from the trusted side."]
    report["next"]["stronger"] = report["replays"] = []
    report["nonce"] = report["reproduce"] = ""
    report["commitment"] = {"root": None, "size": None}
    report["strength"] = inconclusive()["strength"] | {"segments": 0, "drawn_from": 0}
    certified = {"probability": "0.999", "displacement": "18.0018"}
    report["findings"] = [
        _finding("spot_check", "spot_check.gradients", "pass", "none was false", details=certified)
    ]
    return report


@pytest.fixture(scope="module")
def disputed() -> dict[str, Any]:
    """What `potl._dispute._account` makes of a dispute that the trainer lost."""
    rounds = [
        {"index": index, "trainer": f"{index:064x}", "auditor": f"{other:064x}", "equal": same}
        for index, other, same in ((1000, 1, False), (500, 500, True), (750, 2, False))
    ]
    sizes = {"trainer": 81, "auditor": 81}
    question = {"ask": "2 chunks of 2 operands", "most_bytes": 118_074, "answers": sizes}
    shape: dict[str, Any] = {"subject": None, "bytes": None, "low": 20, "opened": sizes}
    games = [
        {"kind": kind, "size": size, "rounds": rounds, "question": question, **shape}
        for kind, size in (("steps", 2000), ("operators", 1300), ("chunks", 4))
    ]
    messages = [
        {"kind": "message", "from": who, "what": "claim", "level": 0, "index": 1000}
        for who in ("trainer", "auditor")
    ]
    lines = [{"kind": "terms"}, *messages, {"kind": "ruling", "why": "value"}]
    number = "-0.0014962229"
    return {
        "status": "judged",
        "problem": "",
        "verdict": {
            "winner": "auditor",
            "trainer_wrong": True,
            "auditor_wrong": False,
            "why": "value",
            "step": 1342,
            "element": 1_376_768,
            "operator": [1042, "aten.convolution_backward.default"],
            "moves": 36,
            "believed": 2,
            "recomputed": True,
            "facts": {"dtype": "float32", "multiply_adds": 131_072},
        },
        "summary": ["the auditor is right: computed again, the value is another one"],
        "values": {
            who: {"hex": "e81cc4ba", "number": number} for who in ("true", "trainer", "auditor")
        },
        "job": "3f" * 32,
        "keys": [
            {"who": who, "id": "a1" * 32, "known": who == "trainer"}
            for who in ("trainer", "auditor", "referee")
        ],
        "bytes": 181_946,
        "turn_ms": 3_600_000,
        "bisections": games,
        "lines": [{"after_ms": 100 * at, "bytes": 1906, **one} for at, one in enumerate(lines)],
        "lines_left_out": 0,
    }


ALL: dict[str, Callable[[], dict[str, Any]]] = {
    "accepted": accepted,
    "rejected": rejected,
    "inconclusive": inconclusive,
}


@pytest.fixture
def reports() -> dict[str, dict[str, Any]]:
    """A fresh report per verdict."""
    return {verdict: make() for verdict, make in ALL.items()}


@pytest.fixture(scope="module")
def all_reports() -> dict[str, dict[str, Any]]:
    """The same for tests that only read them."""
    return {verdict: make() for verdict, make in ALL.items()}
