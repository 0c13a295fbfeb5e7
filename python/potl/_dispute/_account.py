# SPDX-License-Identifier: Apache-2.0
"""What a stored dispute says, for people: the verdict where one follows, and the game move by move.

Whoever wrote the file chose everything in it. So each value is looked at before it is taken, and
there are at most so many of them as a page can show.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import LimitError, MalformedError, MismatchError, MissingError
from .._record._inputs import as_job
from ._evidence import DisputeEvidence, Verdict, judge

if TYPE_CHECKING:
    from .._job._job import Job

_PARTIES = ("trainer", "auditor")
_MOST_LINES, _MOST_GAMES, _MOST_ROUNDS, _MOST_TEXT = 2000, 8, 64, 200
_FORMATS = {
    "float32": "<f",
    "float64": "<d",
    "float16": "<e",
    "bool": "<?",
    "uint8": "<B",
    "int8": "<b",
    "int16": "<h",
    "int32": "<i",
    "int64": "<q",
}

# A document of JSON values, as readers of it take any (docs/reference/cli.md).
Document = dict[str, object]


def account(
    path: str | os.PathLike[str],
    *,
    job: Job | str | os.PathLike[str] | None = None,
    keys: Mapping[str, _core.PublicKey | str | os.PathLike[str]] | None = None,
) -> Document:
    """What the evidence of a dispute says, and whether it was judged.

    Args:
        path: What `DisputeEvidence.write` wrote.
        job: What was agreed; None judges nothing.
        keys: As for `judge`.

    Raises:
        MalformedError: It is not evidence.
    """
    evidence = DisputeEvidence.read(path)
    status, problem = "unchecked", "without the job no signature was checked and no rule"
    verdict: Verdict | None = None
    if job is not None:
        try:
            verdict = judge(evidence, job=job, keys=keys)
            status, problem = "judged", ""
        except (LimitError, MalformedError, MismatchError, MissingError) as error:
            status, problem = "invalid", str(error)
    said = verdict.document() if verdict is not None else {}
    told = _Told(None if job is None else as_job(job).core.steps)
    told.read(evidence.transcript)
    return {
        "status": status,
        "problem": problem,
        "verdict": said,
        "summary": verdict.lines() if verdict is not None else [],
        "values": {} if verdict is None else _values(verdict.facts),
        "job": evidence.job.hex(),
        "keys": [
            {"who": who, "id": _key_id(pem), "known": bool(said) and who not in _unknown(said)}
            for who, pem in evidence.keys.items()
        ],
        "bytes": len(evidence.transcript),
        **told.document(),
    }


def shown_number(dtype: object, data: bytes) -> str:
    """The number that these bytes are, with as many digits as tell it from its neighbours; "" where
    that is not known."""
    if dtype == "bfloat16" and len(data) == 2:
        dtype, data = "float32", bytes(2) + data
    format_ = _FORMATS.get(dtype) if isinstance(dtype, str) else None
    if format_ is None or struct.calcsize(format_) != len(data):
        return ""
    value = struct.unpack(format_, data)[0]
    if dtype in ("float32", "float16") and math.isfinite(value):
        return f"{value:.9g}"
    return repr(value)


def _values(facts: Mapping[str, object]) -> Document:
    """The true value of the element and both parties', as bytes and as numbers."""
    out: Document = {}
    for name in ("true", *_PARTIES):
        given = facts.get(name)
        try:
            data = bytes.fromhex(given) if isinstance(given, str) else b""
        except ValueError:
            continue
        if data and len(data) <= 32:
            out[name] = {"hex": data.hex(), "number": shown_number(facts.get("dtype"), data)}
    return out


def _unknown(verdict: Mapping[str, object]) -> tuple[str, ...]:
    found = verdict["unknown_keys"]
    return found if isinstance(found, tuple) else ()


def _key_id(pem: str) -> str:
    return _core.PublicKey.from_pem(pem).raw.hex()


class _Told:
    """The game as the lines of a transcript tell it, whoever wrote them."""

    def __init__(self, steps: int | None) -> None:
        self._games = [_game("steps", steps, None, None)]
        self._lines: list[Document] = []
        self._count = 0
        self._turn: int | None = None
        self._began: int | None = None

    def document(self) -> Document:
        """What was read."""
        return {
            "turn_ms": self._turn,
            "bisections": [{**game, "rounds": _rounds(game)} for game in self._games],
            "lines": self._lines,
            "lines_left_out": self._count - len(self._lines),
        }

    def read(self, transcript: str) -> None:
        """Takes the lines, as many as there is room for."""
        lines = transcript.split("\n")[:-1]
        self._count = len(lines)
        for text in lines[:_MOST_LINES]:
            line = _object(text)
            entry = _members(line.get("entry"))
            self._lines.append(self._row(entry, _integer(line.get("at")), len(text)))

    def _row(self, entry: Document, at: int | None, size: int) -> Document:
        if self._began is None:
            self._began = at
        after = None if at is None or self._began is None else at - self._began
        row: Document = {"after_ms": after, "bytes": size, "kind": _text(entry.get("kind"))}
        handle: Callable[[Document, Document], None] = {
            "terms": self._terms,
            "message": self._message,
            "next": self._next,
            "question": self._question,
            "ruling": self._ruling,
        }.get(str(row["kind"]), self._other)
        handle(entry, row)
        return row

    def _terms(self, entry: Document, row: Document) -> None:
        self._turn = _integer(entry.get("turn_ms"))

    def _other(self, entry: Document, row: Document) -> None:
        if "from" in entry:
            row["from"] = _text(entry["from"])

    def _ruling(self, entry: Document, row: Document) -> None:
        row["why"] = _text(entry.get("why"))

    def _next(self, entry: Document, row: Document) -> None:
        row["of"] = _text(entry.get("of"))
        if len(self._games) < _MOST_GAMES:
            size, subject, length = (_integer(entry.get(n)) for n in ("size", "subject", "bytes"))
            self._games.append(_game(str(row["of"]), size, subject, length))

    def _question(self, entry: Document, row: Document) -> None:
        asked = _object(_bytes(entry.get("question")))
        row["ask"] = _asked(asked)
        question = {"ask": row["ask"], "most_bytes": _integer(entry.get("max_bytes"))}
        self._games[-1]["question"] = {**question, "answers": {}}

    def _message(self, entry: Document, row: Document) -> None:
        message = _object(_bytes(entry.get("message")))
        who, what = _text(entry.get("from")), _text(message.get("what"))
        level, index = _integer(message.get("level")), _integer(message.get("index"))
        row |= {"from": who, "what": what, "level": level, "index": index}
        if level is None or level >= len(self._games) or who not in _PARTIES:
            return
        game, content = self._games[level], _members(message.get("content"))
        if what == "claim":
            rounds = game["rounds"]
            assert isinstance(rounds, dict)
            if index is not None and (index in rounds or len(rounds) < _MOST_ROUNDS):
                rounds.setdefault(index, {})[who] = _text(content.get("digest"))[:64]
        elif what == "opening":
            opened = _members(game["opened"])
            opened[who] = len(_bytes(content.get("leaf")))
            game["low"] = index
        elif what == "answer":
            _members(_members(game["question"]).get("answers"))[who] = len(
                _bytes(content.get("bytes"))
            )


def _game(kind: str, size: int | None, subject: int | None, length: int | None) -> Document:
    shape: Document = {"kind": kind, "size": size, "subject": subject, "bytes": length}
    return {**shape, "rounds": {}, "low": None, "opened": {}, "question": {}}


def _rounds(game: Document) -> list[Document]:
    """What both claimed at each index, in the order of the rounds."""
    rounds = game["rounds"]
    assert isinstance(rounds, dict)
    return [
        {
            "index": index,
            **{who: claims.get(who, "") for who in _PARTIES},
            "equal": len(claims) == 2 and len(set(claims.values())) == 1,
        }
        for index, claims in rounds.items()
    ]


def _asked(asked: Mapping[str, object]) -> str:
    """A question of potl's referee in words."""
    if asked.get("ask") == "state":
        state = "the state before the step, without the elements of its tensors"
        return f"{state}, and a NaN that explains another end" if asked.get("end") else state
    operators, chunks = asked.get("operators"), asked.get("chunks")
    if isinstance(operators, list):
        return f"the leaves of {len(operators)} operators whose results are operands"
    if isinstance(chunks, list):
        pairs = [one[1] for one in chunks if isinstance(one, list) and len(one) == 2]
        count = sum(len(one) for one in pairs if isinstance(one, list))
        return f"{count} chunks of {len(pairs)} operands"
    return "something that potl's referee does not ask"


def _object(text: str | bytes) -> Document:
    try:
        return _members(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _members(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:_MOST_TEXT] if isinstance(value, str) else ""


def _integer(value: object) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if fits else None  # type: ignore[return-value]


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except ValueError:
        return b""
