# SPDX-License-Identifier: Apache-2.0
"""Text that somebody else wrote, and numbers, in the form in which people read them."""

from __future__ import annotations

import math
import re
import unicodedata

# Categories that move the cursor, reorder the line or cannot be seen: control, format, surrogate,
# private, unassigned, and spaces, all but one of which look like another.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Marks and letters of which nothing shows: Unicode's Default_Ignorable_Code_Point in other
# categories, and Braille without dots.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: object, *, limit: int = 4000) -> str:
    """`text` with everything that a terminal or browser would obey or hide spelled out as an
    escape.

    Line ends and tabs become spaces: what is printed on one line stays on it.
    """
    out: list[str] = []
    raw = str(text)
    for character in raw[:limit]:
        if character in " \n\r\t":
            out.append(" ")
        elif unicodedata.category(character) in _UNSEEN or _BLANK.match(character):
            code = ord(character)
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
        else:
            out.append(character)
    if len(raw) > limit:
        out.append(f"... ({len(raw) - limit} more characters)")
    return "".join(out)


def printable_lines(text: str) -> str:
    """The same of each line: a traceback holds words of strangers too."""
    return "\n".join(printable(line) for line in text.split("\n"))


def as_float(value: object) -> float | None:
    """A JSON number, or the text forms of what JSON cannot say ("nan", "inf"); None for anything
    else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


def number(value: object, *, digits: int = 3) -> str:
    """A number with few digits: 0.0123, 1,234, 1.2e-7; "-" for nothing."""
    real = as_float(value)
    if real is None:
        return "-" if value is None else printable(value, limit=40)
    if math.isnan(real):
        return "not a number"
    if math.isinf(real):
        return "infinite" if real > 0 else "minus infinite"
    if real == int(real) and abs(real) < 1e15:
        return f"{int(real):,}"
    if 1e-3 <= abs(real) < 1e4:
        return f"{real:.{digits}g}" if abs(real) < 1000 else f"{real:,.0f}"
    return f"{real:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def counted(count: int, one: str) -> str:
    """ "1 step", "2,000 steps"."""
    return f"{number(count)} {one}" + ("" if count == 1 else "s")


def percent(value: object) -> str:
    """A share as a percentage that never rounds to a certainty: "99.98 %", "> 99.99 %", "0 %"."""
    real = as_float(value)
    if real is None or not math.isfinite(real):
        return "-"
    share = 100.0 * real
    if share == 0.0 or share == 100.0 or share > 1000.0:
        return f"{share:,.0f} %"
    if 99.995 <= share < 100.0:
        return "> 99.99 %"
    if 0.0 < share < 0.01:
        return "< 0.01 %"
    decimals = 2 if 99.0 <= share < 100.0 else 1 if share < 100.0 else 0
    return f"{share:.{decimals}f} %".replace(".0 %", " %")


def duration(value: object) -> str:
    """Seconds as people say them: "12 ms", "3.4 s", "2 min 5 s", "3 h 20 min"."""
    seconds = as_float(value)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 1e-3:
        return "less than 1 ms" if seconds > 0 else "0 s"
    if seconds < 1.0:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60.0:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(value: object) -> str:
    """Bytes in binary units: "1.5 MiB"."""
    real = as_float(value)
    if real is None or not math.isfinite(real) or real < 0:
        return "-"
    unit = 0
    while real >= 1024.0 and unit + 1 < len(_UNITS):
        real /= 1024.0
        unit += 1
    return f"{real:.0f} {_UNITS[unit]}" if unit == 0 else f"{real:.1f} {_UNITS[unit]}"


def steps(first: object, last: object) -> str:
    """ "step 5", "steps 5-9", or "" when no step is meant."""
    if first is None and last is None:
        return ""
    if last is None or first == last:
        return f"step {number(first)}"
    if first is None:
        return f"up to step {number(last)}"
    return f"steps {number(first)}\u2013{number(last)}"
