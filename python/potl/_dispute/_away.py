# SPDX-License-Identifier: Apache-2.0
"""`dispute_at`: a party plays before a referee that it calls (docs/format/http.md)."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from .. import _core
from .._base._errors import (
    LimitError,
    MalformedError,
    MismatchError,
    MissingError,
    StorageError,
    UsageError,
)
from .._base._public_key import public_key
from .._record._inputs import as_note
from .._remote._remote import Remote
from ._evidence import DisputeEvidence, Verdict, judge
from ._seat import NAMES, Name, Seat, about_of, notes_in, require_held
from ._table import MOST_STORED, Store, stored
from ._there import PIECE, WAIT_SECONDS

if TYPE_CHECKING:
    from .._remote._http import Http
    from ._party import Party

T = TypeVar("T")

REFEREE, DISPUTES = "/v1/referee", "/v1/disputes"
FORMAT = "potl-referee-v1"
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 5.0
_MOST_ANSWER = 1 << 16
_MOST_TURN_MS = 1 << 53
# Unless a party says how patient it is: the referee chooses how long a turn is, within these.
_LEAST_PATIENCE, _MOST_PATIENCE = 3600.0, 7 * 86400.0


def dispute_at(
    referee: Remote | str,
    *,
    party: Party,
    referee_key: _core.PublicKey | str | os.PathLike[str],
    keys: Mapping[str, _core.PublicKey | str | os.PathLike[str]] | None = None,
    commitment: object = None,
    transcript: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> Verdict:
    """Plays one side of a dispute before a referee elsewhere (`potl referee --listen`), until there
    is a verdict. A party that was interrupted is called again, and says the same.

    Args:
        referee: Where it listens.
        party: Who plays. Its key says whether it is the trainer or the auditor.
        referee_key: The referee's public key, or its file. Only lines that it signed count.
        keys: Public keys that you know, or their files, of the other party.
        commitment: The trainer's, as you hold it: no dispute about another one begins with you.
        transcript: File that keeps the lines. Called again with it, a party notices a referee that
            tells another story than before.
        timeout: Seconds that the other party may take to come, and for which there may be no new
            line, whatever the referee answers meanwhile; your own work is not counted. None for two
            turns of the referee's, but at least an hour and at most a week. With less than a turn
            you may leave while the other party has time.

    Example:
        >>> party = potl.Party("runs/1", job=job, task=build)  # doctest: +SKIP
        >>> verdict = potl.dispute_at(  # doctest: +SKIP
        ...     "https://referee.example", party=party, referee_key="referee.pub"
        ... )

    Raises:
        JobMismatch: The party's task is not that of the job.
        UnsupportedError: It is on a device on which a step has other operators.
        UsageError: The referee holds disputes between others, or under another key.
        MismatchError, MalformedError, LimitError: What the referee says is not a dispute of this
            party, or not what it said before.
        StorageError: It does not answer, the other party does not come, or there is no new line for
            too long. Nobody has lost by that: call again with the same transcript.
    """
    own = public_key(referee_key)
    known = {**(keys or {}), "referee": own}
    remote = Remote(referee) if isinstance(referee, str) else referee
    with contextlib.closing(remote._served()) as http, stored(transcript) as store:
        http.require_job(party.job.id.hex())
        hall = _Hall.of(http, remote.url)
        hall.require(party, own, known)
        # Found out in the middle of a dispute, it would be silence.
        with party.open():
            pass
        calling = _Calling(http, remote, patience=hall.patience if timeout is None else timeout)
        text = _Play(Seat(party, own), hall, calling, store, commitment).to_the_end()
    pem = {str(name): key.to_pem() for name, key in hall.keys.items()}
    evidence = DisputeEvidence(party.job.id, {**pem, "referee": own.to_pem()}, text)
    known[hall.place_of(party)] = party.key.public_key
    return judge(evidence, job=party.job, keys=known, commitment=commitment)


class _Hall:
    """Who disputes before a referee, as it says itself."""

    def __init__(
        self,
        url: str,
        key: _core.PublicKey,
        keys: Mapping[Name, _core.PublicKey],
        *,
        turn_seconds: float,
    ) -> None:
        self._url, self._key, self.keys = url, key, dict(keys)
        self.patience = min(max(2 * turn_seconds, _LEAST_PATIENCE), _MOST_PATIENCE)

    @staticmethod
    def of(http: Http, url: str) -> _Hall:
        """Asks."""
        try:
            found = json.loads(http.get(REFEREE, limit=_MOST_ANSWER))
            if found["format"] != FORMAT:
                raise ValueError
            raw = {name: bytes.fromhex(found[name]) for name in ("key", *NAMES)}
            turn_ms = found["turn_ms"]
            if type(turn_ms) is not int or not 0 < turn_ms <= _MOST_TURN_MS:
                raise ValueError
        except MissingError as error:
            raise UsageError(f"{url} is not a referee", "see potl referee --listen") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MalformedError(f"{url} does not say in which disputes it decides") from error
        public = {name: _core.PublicKey.from_raw(one) for name, one in raw.items()}
        return _Hall(
            url,
            public["key"],
            {name: public[name] for name in NAMES},
            turn_seconds=turn_ms / 1000,
        )

    def place_of(self, party: Party) -> Name:
        """Who a party is there. UsageError: nobody."""
        own = party.key.public_key.raw
        names: list[Name] = [name for name in NAMES if self.keys[name].raw == own]
        if len(names) != 1:
            raise UsageError(f"{self._url} holds disputes between others", "see with which key")
        return names[0]

    def require(
        self,
        party: Party,
        referee: _core.PublicKey,
        known: Mapping[str, _core.PublicKey | str | os.PathLike[str]],
    ) -> None:
        """Raises UsageError where it is another referee, or one between others."""
        if self._key.raw != referee.raw:
            raise UsageError(f"{self._url} is another referee than the one of that key", "")
        self.place_of(party)
        pinned = party.job.core.trainer
        expected = {name: public_key(one).raw for name, one in known.items() if name != "referee"}
        for name, raw in (expected if pinned is None else {**expected, "trainer": pinned}).items():
            if name not in self.keys:
                raise UsageError("keys are of the trainer and the auditor", "")
            if self.keys[name].raw != raw:
                raise UsageError(f"{self._url} knows another key of the {name}", "")


class _Calling:
    """A referee that may be away for a while."""

    def __init__(self, http: Http, remote: Remote, *, patience: float) -> None:
        self.http, self.url = http, remote.url
        self.wait = min(WAIT_SECONDS, remote.timeout / 2)
        self._patience = patience
        self.until = time.monotonic() + patience

    def ask(self, call: Callable[[], T]) -> T | None:
        """The answer; None: none came, and one may still come. StorageError: it was too long."""
        try:
            answer = call()
        except (StorageError, MissingError):
            if time.monotonic() > self.until:
                raise
            return None
        return answer

    def heard(self) -> None:
        """Something went on."""
        self.until = time.monotonic() + self._patience

    def require_patience(self) -> None:
        """Raises StorageError where nothing has gone on for too long."""
        if time.monotonic() > self.until:
            raise StorageError(
                f"{self.url} has had no new line for {self._patience:g} seconds",
                "nothing is decided: call again with the same transcript to go on, and with a "
                "larger timeout where a turn is that long",
            )

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Time that the party itself takes does not count."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.until += time.monotonic() - began


class _Play:
    """From the first line to the verdict."""

    def __init__(
        self, seat: Seat, hall: _Hall, calling: _Calling, store: Store | None, commitment: object
    ) -> None:
        self._commitment = commitment
        self._seat, self._hall, self._calling, self._store = seat, hall, calling, store
        self._lines = [] if store is None else store.text.split("\n")[:-1]
        self._bytes = sum(len(line) + 1 for line in self._lines)
        self._pause = _LEAST_PAUSE

    def to_the_end(self) -> str:
        """All lines, each with its newline."""
        if self._lines:
            with self._calling.working():
                self._hear(self._lines, 0)
            name = name_of(notes_in(self._lines[0]))
        else:
            name = self._join()
        while not self._seat.is_over:
            with self._calling.working():
                message = self._seat.message()
            if message is not None:
                self._say(name, message)
            self._listen(name)
        return "".join(f"{line}\n" for line in self._lines)

    def _join(self) -> str:
        """The dispute about the party's commitment, once the other party is there too."""
        party, calling = self._seat.party, self._calling
        who, nonce = self._hall.place_of(party), bytes(32)
        if who == "trainer":
            require_held(party.note, self._commitment)
        # The trainer chooses what it brings: about that alone, an auditor could only be silent.
        about = None if self._commitment is None else about_of(as_note(self._commitment))
        while True:
            text = joining(party.job.id, self._seat.referee, party.note, nonce, about)
            query = {
                "who": who,
                "nonce": nonce.hex(),
                "signature": party.key.sign(text).hex(),
                "wait": calling.wait,
                **({} if about is None else {"about": about}),
            }
            path = f"{DISPUTES}?{urllib.parse.urlencode(query)}"
            note = party.note.encode()
            began = time.monotonic()
            answer = calling.ask(partial(calling.http.post, path, note, limit=_MOST_ANSWER))
            if answer is None:
                self._rest()
                continue
            try:
                found = json.loads(answer)
                name, nonce = found["dispute"], bytes.fromhex(found["nonce"])
                here = None if name is None else urllib.parse.quote(name, safe="")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise MalformedError(f"{calling.url} does not say which dispute") from error
            if here is not None:
                calling.heard()
                return here
            if time.monotonic() > calling.until:
                raise StorageError(
                    f"the other party did not come to {calling.url}"
                    + ("" if about is None else " with the commitment that you hold"),
                    "call again once it is there",
                )
            self._rest_after(began)

    def _say(self, name: str, message: str) -> None:
        calling = self._calling
        path, body = f"{DISPUTES}/{name}/messages", message.encode()
        calling.ask(partial(calling.http.post, path, body, limit=_MOST_ANSWER))

    def _listen(self, name: str) -> None:
        """The next lines, if there are some."""
        calling, after = self._calling, len(self._lines)
        path = f"{DISPUTES}/{name}/lines?after={after}&wait={calling.wait}"
        limit = max(PIECE, self._seat.line_bytes)
        began = time.monotonic()
        body = calling.ask(partial(calling.http.get, path, limit=limit))
        if body is None:
            self._rest()
            return
        if not body:
            # Somebody who answers, and has nothing to say, would be asked for ever.
            calling.require_patience()
            self._rest_after(began)
            return
        self._pause = _LEAST_PAUSE
        self._bytes += len(body)
        if self._bytes > MOST_STORED:
            raise LimitError(f"{calling.url} sends more lines than a dispute has")
        if not body.endswith(b"\n"):
            raise MalformedError(f"{calling.url} sends half a line")
        try:
            lines = body[:-1].decode().split("\n")
        except UnicodeDecodeError as error:
            raise MalformedError(f"{calling.url} sends what is not text") from error
        self._hear(lines, after)
        for line in lines:
            if self._store is not None:
                self._store.append(line)
            self._lines.append(line)
        calling.heard()

    def _hear(self, lines: Sequence[str], after: int) -> None:
        if self._seat.hear(self._hall.keys, after, lines) != after + len(lines):
            raise MismatchError(f"{self._calling.url} sends lines that do not continue the dispute")
        if after == 0:
            require_held(notes_in(lines[0])["trainer"], self._commitment)

    def _rest_after(self, began: float) -> None:
        """Rests after an answer with nothing in it that came at once, though it may wait."""
        if time.monotonic() - began < self._calling.wait / 2:
            self._rest()

    def _rest(self) -> None:
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _MOST_PAUSE)


def joining(
    job: bytes, referee: _core.PublicKey, note: str, nonce: bytes, about: str | None = None
) -> bytes:
    """What a party signs that is there: others have its commitment, too."""
    document = {
        **({} if about is None else {"about": about}),
        "commitment": digest_of(note),
        "job": job.hex(),
        "nonce": nonce.hex(),
        "referee": referee.raw.hex(),
    }
    return b"potl.dispute.join.v1\0" + _core.canonical_json(document)


def digest_of(note: str) -> str:
    """Of a commitment's text."""
    return _core.sha256(note.encode()).hex()


def name_of(notes: Mapping[Name, str]) -> str:
    """Of a dispute."""
    return "-".join(digest_of(notes[name]) for name in NAMES)
