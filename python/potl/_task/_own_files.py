# SPDX-License-Identifier: Apache-2.0
"""Files that data code keeps open, in a process that was forked.

It shares the position of each with its parent and its siblings. Where two of them read through one,
each moves the position of the other, samples come out mixed, and a replay would reject an honest
run. So a worker opens such files again, under the same numbers.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path


def positions() -> dict[int, int]:
    """Where this process is in the regular files that it only reads, by number."""
    out: dict[int, int] = {}
    try:
        numbers = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:  # another system than Linux
        return out
    for number in numbers:
        try:
            reads = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            if reads and stat.S_ISREG(os.fstat(number).st_mode):
                out[number] = os.lseek(number, 0, os.SEEK_CUR)
        except OSError:  # closed meanwhile, as what listed them
            continue
    return out


def open_again(at: dict[int, int]) -> None:
    """Gives this process positions of its own, which begin at those of its parent."""
    for number, position in at.items():
        try:
            own = os.open(f"/proc/self/fd/{number}", fcntl.fcntl(number, fcntl.F_GETFL))
        except OSError:  # its rights were taken since: it stays shared
            continue
        os.lseek(own, position, os.SEEK_SET)
        os.dup2(own, number, inheritable=os.get_inheritable(number))
        os.close(own)
