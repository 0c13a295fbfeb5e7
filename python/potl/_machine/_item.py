# SPDX-License-Identifier: Apache-2.0
"""One thing that `potl doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Item:
    """Attributes:
    name: What was looked at.
    state: "ok", "warning" (potl works, something does not) or "problem".
    seen: What was found.
    remedy: What to do; empty when ok.
    """

    name: str
    state: str
    seen: str
    remedy: str = ""


def well(name: str, seen: str) -> Item:
    """As it should be."""
    return Item(name=name, state="ok", seen=seen)


def warning(name: str, seen: str, remedy: str) -> Item:
    """Works, with a restriction."""
    return Item(name=name, state="warning", seen=seen, remedy=remedy)


def problem(name: str, seen: str, remedy: str) -> Item:
    """Does not work."""
    return Item(name=name, state="problem", seen=seen, remedy=remedy)
