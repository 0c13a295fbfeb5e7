# SPDX-License-Identifier: Apache-2.0
"""A party that `potl serve --disputes` plays: docs/format/http.md.

Whoever is between could have sent what is not a message of the party's. So it is asked again, until
its time is over, and what it loses by is its silence.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import MissingError, PotlError, StorageError, UsageError
from ._seat import NAMES, Name

if TYPE_CHECKING:
    from .._remote._remote import Remote
    from ._table import Clock

PATH = "/v1/dispute"
# Lines that are sent at a time; a longer one goes alone.
PIECE = 2 << 20
_LEAST_PAUSE, _MOST_PAUSE = 0.02, 1.0
WAIT_SECONDS = 10.0
# A message has at most 256 values. Of tiny ones an answer has room for so many that they take a
# gigabyte, each time that it is asked for.
_MOST_COMMAS = 1024


class There:
    """One side of a dispute, at a URL.

    Args:
        remote: Where.
        name: Who it is.
        job: Id of the job.
        keys: Of both parties, from somebody other than the server.
        referee: Whose lines it has to follow.
        clock: For pauses.

    Raises:
        StorageError: Nobody answers there.
        UsageError: It plays in no dispute, under another key, or before another referee.
    """

    def __init__(
        self,
        remote: Remote,
        name: Name,
        *,
        job: str,
        keys: Mapping[Name, _core.PublicKey],
        referee: _core.PublicKey,
        clock: Clock,
    ) -> None:
        self._name, self._clock = name, clock
        self._wait = min(WAIT_SECONDS, remote.timeout / 2)
        self._keys = [(one, keys[one].raw.hex()) for one in NAMES]
        self._held = 0
        self._http = remote._served()
        self._http.require_job(job)
        try:
            self.note = self._http.get("/v1/commitment", limit=_core.MAX_NOTE_BYTES).decode(
                "utf-8", "backslashreplace"
            )
            self._require_same(remote.url, keys[name].raw.hex(), referee.raw.hex())
        except BaseException:
            self._http.close()
            raise

    def close(self) -> None:
        """Ends the connections."""
        self._http.close()

    def message(
        self,
        lines: Sequence[str],
        left: Callable[[], float],
        *,
        author: Callable[[bytes], Name | None],
        most: int,
    ) -> bytes | None:
        """The message after these lines; None if none has come when no time is left.

        Args:
            lines: All of the dispute.
            left: Seconds until the end of the turn.
            author: Who signed a message for the dispute.
            most: Bytes of a message.
        """
        pause = _LEAST_PAUSE
        while left() >= 0:
            held, message = self._asked(lines, 2 * most + 4096)
            if message is not None and held == len(lines) and author(message) == self._name:
                return message
            if held > self._held:
                pause = _LEAST_PAUSE
            else:
                self._clock.sleep(max(0.0, min(pause, left() + 0.001)))
                pause = min(2 * pause, _MOST_PAUSE)
            self._held = held
        return None

    def _asked(self, lines: Sequence[str], limit: int) -> tuple[int, bytes | None]:
        """How many lines the server has, and what it says."""
        # The last line in any case: it says which dispute this is about.
        first = min(self._held, len(lines) - 1)
        body, end = b"", first
        while end < len(lines):
            line = lines[end].encode() + b"\n"
            if body and len(body) + len(line) > PIECE:
                break
            body, end = body + line, end + 1
        more = ("more", "true" if end < len(lines) else "false")
        query = urllib.parse.urlencode([*self._keys, ("after", first), more, ("wait", self._wait)])
        try:
            raw = self._http.post(f"{PATH}?{query}", body, limit=limit)
            if raw.count(b",") > _MOST_COMMAS:
                raise ValueError
            found = json.loads(raw)
            held, message = found["lines"], found["message"]
            if type(held) is not int or not isinstance(message, str | None):
                raise ValueError
            return max(0, min(held, len(lines))), None if message is None else message.encode()
        except (PotlError, ValueError, KeyError, TypeError, RecursionError):
            # A server that was begun anew reads no long line before those that ask for it.
            return 0, None

    def _require_same(self, url: str, key: str, referee: str) -> None:
        try:
            found = json.loads(self._http.get(PATH, limit=1 << 16))
            says = (found["key"], found["referee"])
        except MissingError as error:
            raise UsageError(
                f"{url} plays in no disputes", "start it with potl serve --disputes"
            ) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StorageError(f"{url} does not say in which disputes it plays", "") from error
        if says[0] != key:
            raise UsageError(
                f"{url} plays under another key than the {self._name} has", "see who serves there"
            )
        if says[1] != referee:
            raise UsageError(
                f"{url} follows another referee", "give it your public key as --referee-key"
            )
