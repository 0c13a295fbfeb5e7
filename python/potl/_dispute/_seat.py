# SPDX-License-Identifier: Apache-2.0
"""A party that follows a dispute and says what is to be sent, wherever the lines come from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from .. import _core
from .._base._errors import LimitError, MalformedError, MismatchError, UsageError
from .._record._inputs import as_note

if TYPE_CHECKING:
    from .._job._job import Job
    from ._party import Party

Name = Literal["trainer", "auditor"]
# What a line has around a message.
_FRAME = 1 << 16
NAMES: tuple[Name, Name] = ("trainer", "auditor")


class Seat:
    """Holds nothing that does not follow from the party's run and the lines: gone and made anew, it
    signs the same bytes at the same place.

    Args:
        party: Who moves.
        referee: Only lines that this key signed count.
    """

    def __init__(self, party: Party, referee: _core.PublicKey) -> None:
        self.party = party
        self.referee = referee
        self._name: Name = "trainer"
        self._player: _core.DisputePlayer | None = None
        self._lines: set[bytes] = set()
        self._message: str | None = None
        self.line_bytes = 0
        """The most that the next line can have."""

    def hear(self, keys: Mapping[Name, _core.PublicKey], after: int, lines: Sequence[str]) -> int:
        """Follows the lines of a dispute, of which `after` came before. How many it holds then: 0
        where these do not continue what it holds.

        Args:
            keys: Of both parties. Who the other one is, is the referee's affair.
            after: 0: a dispute from its beginning.
            lines: Without newlines.

        Raises:
            UsageError: The dispute is not about this party's commitment, or not under its key.
            MalformedError, MismatchError, LimitError: These are not lines of a dispute about this
                job, or not this referee's.
        """
        begins = after == 0 and bool(lines) and _core.sha256(lines[0].encode()) not in self._lines
        if begins:
            self._leave()
            self._begin(keys, lines[0])
        player = self._player
        if player is None or not 0 <= after <= len(self._lines):
            return 0
        for line in lines:
            digest = _core.sha256(line.encode())
            if digest in self._lines:
                continue
            try:
                player.follow(line)
            except (MalformedError, MismatchError, LimitError):
                self._leave()
                if begins:
                    raise
                return 0
            self._lines.add(digest)
        self.line_bytes = 4 * player.proceedings.message_bytes // 3 + _FRAME
        return len(self._lines)

    @property
    def is_over(self) -> bool:
        """Whether there is a verdict."""
        return self._player is not None and self._player.proceedings.verdict is not None

    def message(self) -> str | None:
        """What is to be sent after these lines; None while it is somebody else's turn. Asked again,
        the same bytes.
        """
        if self._player is None:
            return None
        new = self._player.next_message()
        if new is not None:
            self._message = new
        expected = self._player.proceedings.expected
        return self._message if expected is not None and expected.who == self._name else None

    def _begin(self, keys: Mapping[Name, _core.PublicKey], first: str) -> None:
        own = self.party.key.public_key.raw
        names = [name for name in NAMES if keys[name].raw == own]
        if len(names) != 1:
            raise UsageError("a party has one place in a dispute", "see with which key it plays")
        name = names[0]
        setting = setting_of(self.party.job, keys, self.referee)
        player = _core.DisputePlayer(
            setting,
            name,
            key=self.party.key,
            first_line=first,
            claim=self.party.claim,
            opening=self.party.opening,
            answer=self.party.answer,
        )
        require_about(first, {name: self.party.note})
        self._name, self._player, self._message = name, player, None
        self._lines = {_core.sha256(first.encode())}

    def _leave(self) -> None:
        self._player, self._message, self._lines = None, None, set()


def setting_of(
    job: Job, keys: Mapping[Name, _core.PublicKey], referee: _core.PublicKey
) -> _core.DisputeSetting:
    """What everybody knows before a dispute."""
    return _core.DisputeSetting(
        job.core, trainer=keys["trainer"], auditor=keys["auditor"], referee=referee
    )


def require_held(note: str, held: object) -> None:
    """Raises MismatchError where a trainer disputes about another commitment than the one that
    somebody holds of it: an honest run made afterwards would win any dispute.
    """
    if held is not None and note.partition("\n\n")[0] != as_note(held).partition("\n\n")[0]:
        raise MismatchError(
            "the trainer's commitment is another one than you hold",
            "keep both: who signs two for one job has lied in one of them",
        )


def notes_in(first_line: str) -> dict[Name, str]:
    """The commitments in a first line. The core read the line before."""
    found = json.loads(first_line)["entry"]
    return {name: str(found[name]) for name in NAMES}


def require_about(first_line: str, notes: Mapping[Name, str]) -> None:
    """Raises UsageError where a transcript begins with other commitments."""
    agreed = notes_in(first_line)
    for name, note in notes.items():
        if agreed[name] != note:
            raise UsageError(
                f"the dispute is about another commitment of the {name}",
                "name the run that it is about",
            )
