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
# Disputes that are gone on with where they were: whoever has the lines of an older one may send
# them, and takes away no newer one.
_MOST_GAMES = 4
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
        self._games: list[_Game] = []  # the one that was heard of last first
        self.line_bytes = 0
        """The most that a next line can have."""

    def hear(self, keys: Mapping[Name, _core.PublicKey], after: int, lines: Sequence[str]) -> int:
        """Follows the lines of a dispute, of which `after` came before. How many it holds then: 0
        where these do not continue what it holds. Which dispute they belong to, the first of them
        says, if it is held; what is held of others stays.

        Args:
            keys: Of both parties. Who the other one is, is the referee's affair.
            after: 0: a dispute from its beginning.
            lines: Without newlines.

        Raises:
            UsageError: The dispute is not about this party's commitment, or not under its key.
            MalformedError, MismatchError, LimitError: These are not lines of a dispute about this
                job, or not this referee's.
        """
        first = lines[0] if lines else ""
        game = next((one for one in self._games if one.has(first)), None)
        if game is None and after > 0:
            game = self._game  # the first of them may continue what was heard last
        if game is None and after == 0 and lines:
            game = _Game(self.party, self.referee, keys, first)
            game.follow(lines)
        elif game is None or not 0 <= after <= len(game.lines):
            return 0
        else:
            try:
                game.follow(lines)
            except (MalformedError, MismatchError, LimitError):
                if after > 0:
                    return 0
                game = _Game(self.party, self.referee, keys, first)
                game.follow(lines)
        others = [one for one in self._games if one is not game and not one.has(first)]
        self._games = [game, *others][:_MOST_GAMES]
        now = 4 * game.player.proceedings.message_bytes // 3 + _FRAME
        self.line_bytes = max(self.line_bytes, now)  # of the others, too
        return len(game.lines)

    @property
    def _game(self) -> _Game | None:
        return self._games[0] if self._games else None

    @property
    def is_over(self) -> bool:
        """Whether there is a verdict."""
        return self._game is not None and self._game.player.proceedings.verdict is not None

    def message(self) -> str | None:
        """What is to be sent after these lines; None while it is somebody else's turn. Asked again,
        the same bytes.
        """
        return None if self._game is None else self._game.next_message()


class _Game:
    """A dispute that a party plays.

    Args:
        party: Who moves.
        referee: Whose lines count.
        keys: Of both parties.
        first: The first line.
    """

    def __init__(
        self,
        party: Party,
        referee: _core.PublicKey,
        keys: Mapping[Name, _core.PublicKey],
        first: str,
    ) -> None:
        own = party.key.public_key.raw
        names = [name for name in NAMES if keys[name].raw == own]
        if len(names) != 1:
            raise UsageError("a party has one place in a dispute", "see with which key it plays")
        self._name = names[0]
        self.player = _core.DisputePlayer(
            setting_of(party.job, keys, referee),
            self._name,
            key=party.key,
            first_line=first,
            claim=party._claim,
            opening=party._opening,
            answer=party._answer,
        )
        require_about(first, {self._name: party.note})
        self.lines = {_digest(first)}
        self._message: str | None = None

    def has(self, line: str) -> bool:
        """Whether it followed this line."""
        return _digest(line) in self.lines

    def follow(self, lines: Sequence[str]) -> None:
        """Takes those of the lines that are new, up to the first that does not continue these."""
        for line in lines:
            if not self.has(line):
                self.player.follow(line)
                self.lines.add(_digest(line))

    def next_message(self) -> str | None:
        """What is to be sent."""
        new = self.player.next_message()
        if new is not None:
            self._message = new
        expected = self.player.proceedings.expected
        return self._message if expected is not None and expected.who == self._name else None


def _digest(line: str) -> bytes:
    return _core.sha256(line.encode())


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
    if held is not None and about_of(note) != about_of(as_note(held)):
        raise MismatchError(
            "the trainer's commitment is another one than you hold",
            "keep both: who signs two for one job has lied in one of them",
        )


def about_of(note: str) -> str:
    """What a commitment is known by: the digest of its text without the signatures below."""
    return _core.sha256(note.partition("\n\n")[0].encode()).hex()


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
