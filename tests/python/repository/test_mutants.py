# SPDX-License-Identifier: Apache-2.0
"""The mutants of tests/mutants fit the sources; `scripts/mutants` plays them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from places import ROOT, script

runner = script("mutants")
MUTANTS = runner.mutants()


def test_there_are_enough_and_each_has_a_name() -> None:
    names = [one.name for one in MUTANTS]
    assert len(names) >= 150
    assert len(set(names)) == len(names)
    assert all(one.what for one in MUTANTS)


@pytest.mark.parametrize("one", MUTANTS, ids=[one.name for one in MUTANTS])
def test_a_mutant_applies_and_names_tests(one: runner.Mutant) -> None:  # type: ignore[name-defined]
    text = (ROOT / one.source).read_text()
    assert one.apply(text) != text
    assert one.unit or one.python
    for stem in one.unit:
        assert (ROOT / f"tests/unit/{stem}_test.cpp").is_file()
    for argument in one.python:
        if argument.startswith("tests/"):
            assert (ROOT / argument.partition("::")[0]).exists()


def test_a_hunk_whose_lines_are_gone_or_doubled_is_refused() -> None:
    mutant = runner.Mutant("a", "b", "c", [], [], old="one\n", new="two\n")
    assert mutant.apply("zero\none\n") == "zero\ntwo\n"
    for text in ("zero\n", "one\none\n"):
        with pytest.raises(ValueError, match="occur"):
            mutant.apply(text)


def test_a_mutant_that_allocates_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MEMORY", 1 << 30)
    status, output = runner.run([sys.executable, "-c", "bytearray(2 << 30)"])
    assert status == 1
    assert "MemoryError" in output
    assert runner.run([sys.executable, "-c", "bytearray(1 << 20)"]) == (0, "")


def test_a_second_run_in_one_checkout_is_refused(tmp_path: Path) -> None:
    lock = runner.held(tmp_path)
    with pytest.raises(SystemExit, match="already plays"):
        runner.held(tmp_path)
    os.close(lock)
    os.close(runner.held(tmp_path))
