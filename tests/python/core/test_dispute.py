# SPDX-License-Identifier: Apache-2.0
"""Disputes through potl._core, with texts made and read again by docs/format/dispute.md alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from pure_format import CHUNK, Step, content_root, encode_record, leaf_hash, root_of, sha256
from transcript_helpers import job_text

from potl import _core

JOB = _core.Job.parse(job_text())
OPERATORS = 3
RESULT = CHUNK + 50
AT, TURN = 1_700_000_000_000, 60_000


def inclusion(index: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962, section 2.1.1, of leaf hashes."""
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    if index < half:
        return [*inclusion(index, leaves[:half]), root_of(leaves[half:])]
    return [*inclusion(index - half, leaves[half:]), root_of(leaves[:half])]


def key_of(name: str) -> _core.SigningKey:
    return _core.SigningKey.from_seed(sha256(name.encode()))


KEYS = {name: key_of(name) for name in ("trainer", "auditor", "referee")}
SETTING = _core.DisputeSetting(JOB, **{name: key.public_key for name, key in KEYS.items()})


class Run:
    """A party's run, wrong from a step and an operator on."""

    def __init__(self, name: str, wrong: tuple[int, int] | None = None) -> None:
        self.name = name
        self.wrong = wrong
        self.records = [encode_record(self.record(step)) for step in range(1, JOB.steps + 1)]
        self.log = [leaf_hash(record) for record in self.records]
        note = _core.CheckpointNote(
            f"potl/v1/{JOB.id.hex()}",
            len(self.log),
            root_of(self.log),
            [f"final {self.state(JOB.steps).hex()}"],
        )
        self.commitment = note.sign(KEYS[name])

    def record(self, step: int) -> Step:
        zeros = bytes(32)
        return Step(JOB.id, step, 0, zeros, 0, 0, 0, 0, self.state(step), ())

    def is_wrong(self, step: int, operator: int = OPERATORS) -> bool:
        return self.wrong is not None and step >= self.wrong[0] and operator >= self.wrong[1]

    def state(self, step: int) -> bytes:
        return sha256(f"state {step} {self.name if self.is_wrong(step) else ''}".encode())

    def result(self, step: int, operator: int) -> bytes:
        end = self.name[:1] if self.is_wrong(step, operator) else "x"
        return bytes([operator]) * CHUNK + end.encode() * 50

    def operators(self, step: int) -> list[bytes]:
        """Leaves, each with the content root of a result at its end."""
        leaves = [b"operator" + content_root(self.result(step, i)) for i in range(OPERATORS - 1)]
        return [*leaves, b"capture" + content_root(self.state(step))]

    def leaves(self, now: _core.DisputeProceedings) -> list[bytes]:
        if now.inner is None or now.inner.kind == "operators":
            return self.operators(now.step)
        result = self.result(now.step, now.bisections[1].low)
        return [result[i : i + CHUNK] for i in range(0, len(result), CHUNK)]

    def claim(self, now: _core.DisputeProceedings) -> _core.DisputeClaim:
        assert now.expected is not None
        index = now.expected.index
        if now.inner is None:
            proof = inclusion(index - 1, self.log)
            record = self.records[index - 1]
            return _core.DisputeClaim(
                self.state(index), record=record, index=index - 1, proof=proof
            )
        return _core.DisputeClaim(root_of([leaf_hash(one) for one in self.leaves(now)[:index]]))

    def opening(self, now: _core.DisputeProceedings) -> _core.DisputeOpening:
        assert now.expected is not None
        leaves = self.leaves(now)
        index = OPERATORS - 1 if now.inner is None else now.expected.index
        hashes = [leaf_hash(one) for one in leaves[: index + 1]]
        return _core.DisputeOpening(leaves[index], inclusion(index, hashes))

    def answer(self, now: _core.DisputeProceedings) -> bytes:
        return b"answer to " + now.asked.text


TRUTH = Run("trainer")


def decision(now: _core.DisputeProceedings) -> _core.DisputeDecision:
    """What a referee decides that knows the truth."""
    inner, opened = now.inner, now.openings
    if inner is None:
        return _core.DisputeNext("operators", OPERATORS)
    if inner.kind == "operators":
        claimed = (opened[0].leaf[-32:], opened[1].leaf[-32:])
        return _core.DisputeNext("chunks", 2, length=RESULT, claimed=claimed)
    if not now.bisections[-1].asked:
        return _core.DisputeQuestion(b"operands?", 40)
    assert now.answers == (b"answer to operands?",) * 2
    chunk = now.bisections[-1].low * CHUNK
    true = TRUTH.result(now.step, now.bisections[1].low)[chunk : chunk + CHUNK]
    return _core.DisputeRuling(
        "value",
        trainer_wrong=opened[0].leaf != true,
        auditor_wrong=opened[1].leaf != true,
        evidence=b"seen",
    )


def opened(trainer: Run, auditor: Run) -> _core.DisputeReferee:
    return _core.DisputeReferee.open(
        SETTING,
        trainer=trainer.commitment,
        auditor=auditor.commitment,
        turn_ms=TURN,
        key=KEYS["referee"],
        at=AT,
    )


def player(run: Run, referee: _core.DisputeReferee) -> _core.DisputePlayer:
    return _core.DisputePlayer(
        SETTING,
        "trainer" if run.name == "trainer" else "auditor",
        key=KEYS[run.name],
        first_line=referee.transcript.splitlines()[0],
        claim=run.claim,
        opening=run.opening,
        answer=run.answer,
    )


def play(trainer: Run, auditor: Run) -> _core.DisputeReferee:
    referee = opened(trainer, auditor)
    players = {run.name: player(run, referee) for run in (trainer, auditor)}
    at = AT
    while referee.proceedings.verdict is None:
        at += 1
        expected = referee.proceedings.expected
        if expected is None:
            line: str | None = referee.decide(decision(referee.proceedings), at=at)
        else:
            message = players[expected.who].next_message()
            assert message is not None
            assert len(message) <= referee.proceedings.message_bytes
            assert players[expected.who].next_message() is None
            assert referee.author(message.encode()) == expected.who
            line = referee.receive(expected.who, message.encode(), at=at)
        assert line is not None
        for one in players.values():
            one.follow(line)
    return referee


CASES = [
    (Run("trainer", (4, 1)), Run("auditor"), "auditor", 4),
    (Run("trainer"), Run("auditor", (1, 0)), "trainer", 1),
    (Run("trainer", (6, 0)), Run("auditor", (6, 0)), None, 6),
]


@pytest.mark.parametrize(("trainer", "auditor", "winner", "step"), CASES)
def test_the_right_party_wins(trainer: Run, auditor: Run, winner: str | None, step: int) -> None:
    referee = play(trainer, auditor)
    verdict = referee.proceedings.verdict
    assert verdict is not None
    assert (verdict.winner, verdict.why) == (winner, "value")
    assert verdict.trainer_wrong == (trainer.wrong is not None)
    assert verdict.auditor_wrong == (auditor.wrong is not None)

    def again(now: _core.DisputeProceedings, made: _core.DisputeDecision) -> str | None:
        return None if decision(now) == made else "another decision"

    judged = _core.judge_dispute(SETTING, referee.transcript, again)
    assert (judged.verdict, judged.believed, judged.step) == (verdict, 0, step)
    assert _core.judge_dispute(SETTING, referee.transcript).believed == 4
    with pytest.raises(_core.MismatchError, match="another value"):
        _core.judge_dispute(SETTING, referee.transcript, lambda now, made: "another value")
    with pytest.raises(_core.MissingError):
        _core.judge_dispute(SETTING, referee.transcript[: referee.transcript.index("\n") + 1])


def body(text: str) -> tuple[dict[str, Any], bytes]:
    """An object without its signature, and that; the text is canonical."""
    read = json.loads(text)
    assert _core.canonical_json(read).decode() == text
    signature = base64.b64decode(read.pop("signature"))
    return read, signature


def test_a_transcript_is_what_the_page_says() -> None:
    trainer, auditor, _, _ = CASES[0]
    text = play(trainer, auditor).transcript
    previous, parent, at, sent = bytes(32), b"", 0, 0
    for line in text.splitlines():
        read, signature = body(line)
        signed = b"potl.dispute.entry.v1\0" + _core.canonical_json(read)
        KEYS["referee"].public_key.verify(signed, signature)
        assert sorted(read) == ["at", "entry", "previous"]
        assert read["previous"] == previous.hex()
        assert read["at"] >= at
        entry, at = read["entry"], read["at"]
        if entry["kind"] == "terms":
            assert entry["trainer"] == trainer.commitment
            assert entry["job"] == JOB.id.hex()
            assert entry["turn_ms"] == TURN
        if entry["kind"] == "message":
            sent += 1
            message, its_signature = body(base64.b64decode(entry["message"]).decode())
            signed = b"potl.dispute.message.v1\0" + _core.canonical_json(message)
            KEYS[entry["from"]].public_key.verify(signed, its_signature)
            assert message["from"] == entry["from"]
            assert message["parent"] == parent.hex()
            assert message["job"] == JOB.id.hex()
            assert message["trainer"] == sha256(trainer.commitment.encode()).hex()
            assert message["auditor"] == sha256(auditor.commitment.encode()).hex()
        previous = parent = sha256(line.encode())
    assert sent == 2 * (2 + 2 + 1) + 3 * 2 + 2  # claims, openings, answers


def test_a_message_written_from_the_page_is_taken() -> None:
    trainer, auditor, _, _ = CASES[0]
    referee = opened(trainer, auditor)
    run = {"trainer": trainer.commitment, "auditor": auditor.commitment}
    message: dict[str, Any] = {
        "format": "potl-dispute-message-v1",
        "from": "trainer",
        "job": JOB.id.hex(),
        **{name: sha256(text.encode()).hex() for name, text in run.items()},
        "parent": referee.proceedings.head.hex(),
        "level": 0,
        "index": 3,
        "what": "claim",
        "content": {
            "digest": trainer.state(3).hex(),
            "record": {
                "bytes": base64.b64encode(trainer.records[2]).decode(),
                "index": 2,
                "proof": [one.hex() for one in inclusion(2, trainer.log)],
            },
        },
    }
    signed = b"potl.dispute.message.v1\0" + _core.canonical_json(message)
    message["signature"] = base64.b64encode(KEYS["trainer"].sign(signed)).decode()
    assert referee.receive("trainer", _core.canonical_json(message), at=AT + 1) is not None
    assert referee.proceedings.verdict is None
    expected = referee.proceedings.expected
    assert expected is not None
    assert (expected.who, expected.index, expected.what) == ("auditor", 3, "claim")
    assert expected.deadline == AT + 1 + TURN
    assert referee.proceedings.moves == 1


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda referee: referee.tick(at=AT + TURN + 1), "silence"),
        (lambda referee: referee.receive("trainer", b"no message", at=AT), "garbage"),
        (lambda referee: referee.decide(_core.DisputeRuling("referee"), at=AT), "referee"),
    ],
)
def test_a_dispute_may_end_early(
    act: Callable[[_core.DisputeReferee], str | None], why: str
) -> None:
    referee = opened(CASES[0][0], CASES[0][1])
    assert referee.tick(at=AT + TURN) is None
    assert act(referee) is not None
    judged = _core.judge_dispute(SETTING, referee.transcript)
    assert judged.verdict.why == why
    assert judged.verdict.winner == (None if why == "referee" else "auditor")


def test_a_referee_goes_on_where_it_was() -> None:
    referee = opened(CASES[0][0], CASES[0][1])
    later = AT + 10 * TURN
    again = _core.DisputeReferee.resume(
        SETTING, referee.transcript + "half a li", key=KEYS["referee"], at=later
    )
    assert again.transcript.startswith(referee.transcript)
    assert again.tick(at=later + TURN) is None
    message = player(CASES[0][0], referee).next_message()
    assert message is not None
    assert again.receive("trainer", message.encode(), at=later + TURN) is not None


def test_a_decision_has_its_time() -> None:
    referee = opened(CASES[0][0], CASES[0][1])
    with pytest.raises(_core.MismatchError):
        referee.decide(_core.DisputeNext("operators", 3), at=AT)
    with pytest.raises(_core.MismatchError):
        referee.proceedings.append(referee.transcript.splitlines()[0])
