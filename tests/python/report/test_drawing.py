# SPDX-License-Identifier: Apache-2.0
"""Scales, and numbers as people read them."""

from __future__ import annotations

import math

import pytest

from potl._base import _printable
from potl._report._svg import Scale, element, thin


def test_a_scale_maps_its_range_and_holds_what_is_outside_at_its_ends() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(value) for value in (-5, 0, 5, 10, 1e300)] == [100, 100, 150, 200, 200]


def test_a_logarithmic_scale_gives_each_decade_the_same_room() -> None:
    scale = Scale(0.01, 100, 0, 4, logarithmic=True)
    assert [round(scale(10.0**power), 9) for power in (-2, -1, 0, 1, 2)] == [0, 1, 2, 3, 4]


def test_a_range_whose_width_is_infinite_still_has_a_middle() -> None:
    assert Scale(-1.7e308, 1.7e308, 0, 1)(0.0) == 0.5


@pytest.mark.parametrize("high", [1e-300, 0.7, 1.0, 37.0, 1e12])
def test_ticks_are_few_and_within_the_range(high: float) -> None:
    ticks = Scale(0, high, 0, 1).ticks(4)
    assert 2 <= len(ticks) <= 9
    assert all(0 <= tick <= high * (1 + 1e-9) for tick in ticks)


def test_thinning_keeps_every_spike() -> None:
    values = [0.0] * 10_000
    values[1234], values[7777] = 5.0, -5.0
    thinned = thin(values, 50)
    assert len(thinned) <= 100
    assert (1234, 5.0) in thinned
    assert (7777, -5.0) in thinned


def test_attributes_and_children_are_escaped() -> None:
    assert element("text", "<b>", title='"&') == '<text title="&#34;&amp;">&lt;b&gt;</text>'


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.05, "5 %"),
        (0.4954, "49.5 %"),
        (0.9994, "99.94 %"),
        (0.999999, "> 99.99 %"),
        (1e-7, "< 0.01 %"),
        (5.02, "502 %"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_a_share_never_rounds_to_a_certainty(share: float | None, text: str) -> None:
    assert _printable.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1797, "1,797"),
        ("12", "12"),
        (0.0123456, "0.0123"),
        (1.23456e-7, "1.23e-7"),
        (math.nan, "not a number"),
        (math.inf, "infinite"),
        (10**30, "1.00e30"),
    ],
)
def test_a_number_has_few_digits(value: object, text: str) -> None:
    assert _printable.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1e-4, "less than 1 ms"),
        (0.012, "12 ms"),
        (3.44, "3.4 s"),
        (12000, "3 h 20 min"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, text: str) -> None:
    assert _printable.duration(seconds) == text


def test_hidden_characters_are_spelled_out() -> None:
    assert _printable.printable("a\u202eb\x1b\n\U000e0001") == "a\\u202eb\\u001b \\U000e0001"
    # A joiner, a filler, a variation selector, another space.
    assert _printable.printable("\u034f\u3164\ufe0f \xa0") == "\\u034f\\u3164\\ufe0f \\u00a0"


def test_a_long_text_says_how_much_is_missing() -> None:
    assert _printable.printable("x" * 50, limit=10) == "x" * 10 + "... (40 more characters)"


def test_the_smallest_numbers_have_a_place_and_ticks() -> None:
    for low, high in ((0.0, 5e-324), (5e-324, 1e-323), (-5e-324, 0.0)):
        scale = Scale(low, high, 0, 1)
        assert 0 <= scale(low) <= scale(high) <= 1
        assert scale.ticks(4) == [low]
