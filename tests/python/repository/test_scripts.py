# SPDX-License-Identifier: Apache-2.0
"""What the Makefile's scripts decide: shards of the long tests, and the benchmarks' table."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from places import ROOT, script


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_every_long_test_is_in_exactly_one_shard(count: int) -> None:
    full = script("test_full")
    everything = [unit.name for unit in full.units()]
    split = [unit.name for part in full.shards(full.units(), count) for unit in part]
    assert sorted(split) == sorted(everything)
    assert len(set(everything)) == len(everything)


def test_enough_shards_are_half_an_hour_each() -> None:
    full = script("test_full")
    total = sum(unit.minutes for unit in full.units())
    parts = full.shards(full.units(), -(-total // 15))
    assert max(sum(unit.minutes for unit in part) for part in parts) <= full.LIMIT_MINUTES


def test_every_fuzz_target_is_a_long_test() -> None:
    names = {unit.name for unit in script("test_full").units()}
    targets = {f"fuzz {path.stem}" for path in (ROOT / "tests/fuzz").glob("*_fuzz.cpp")}
    assert targets and targets <= names


@pytest.mark.parametrize("count", [1, 2, 11])
def test_parts_of_a_long_file_are_all_of_its_tests(
    count: int, request: pytest.FixtureRequest
) -> None:
    select = request.config.pluginmanager.getplugin(str(ROOT / "tests/conftest.py"))
    everything = [f"test {number}" for number in range(22)]
    dropped: list[list[str]] = []
    found = []
    for part in range(1, count + 1):
        config = SimpleNamespace(
            getoption={"--part": f"{part}/{count}"}.__getitem__,
            hook=SimpleNamespace(pytest_deselected=lambda items: dropped.append(items)),
        )
        items = list(everything)
        select.pytest_collection_modifyitems(config, items)
        assert items and sorted(items + dropped[-1]) == sorted(everything)
        found += items
    assert sorted(found) == sorted(everything)


def test_every_part_of_a_long_file_is_a_unit() -> None:
    full = script("test_full")
    for name, count in full.PARTS.items():
        parts = [unit.command[-1] for unit in full.units() if unit.name.startswith(name)]
        assert parts == [f"{part}/{count}" for part in range(1, count + 1)]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"value": 1.0, "ratio": 0.95, "at_least": 0.92}, ">= 0.92 met"),
        ({"value": 1.0, "ratio": 0.91, "at_least": 0.92}, ">= 0.92 MISSED"),
        ({"value": 1.0, "ratio": 1.04, "at_most": 1.03}, "<= 1.03 MISSED"),
        ({"value": 380.0, "at_most": 400}, "<= 400 met"),
        ({"value": 380.0}, ""),
    ],
)
def test_a_benchmark_is_compared_with_what_was_asked_for(
    result: dict[str, float], text: str
) -> None:
    assert script("bench").bound(result) == text


def test_the_table_has_a_row_per_result() -> None:
    document = {"results": [{"name": "hash.a", "value": 2e9, "unit": "B/s", "baseline": "raw"}]}
    lines = script("bench").table([document]).splitlines()
    assert len(lines) == 2
    assert lines[1].split() == ["hash.a", "2e+09", "B/s", "raw"]


CTEST = "100% tests passed, 0 tests failed out of 8\n\nTotal Test time (real) =  90.10 sec\n"
SKIPPED = "The following tests did not run:\n\t  8 - gpu (Skipped)\n"
PYTEST = "tests/a.py ..s\n1 passed in 0.1s of a test's own output\n"


@pytest.mark.parametrize(
    ("status", "output", "good", "counts"),
    [
        (0, CTEST, True, "8 passed, 0 failed"),
        (0, CTEST + SKIPPED, True, "8 passed, 0 failed, 1 of them skipped"),
        (8, "75% tests passed, 2 tests failed out of 8\n", False, "6 passed, 2 failed"),
        (0, PYTEST + "31 passed, 2 skipped in 9.1s\n", True, "31 passed, 2 skipped"),
        (1, "1 failed, 3 passed, 2 errors in 3s\n", False, "1 failed, 3 passed, 2 errors"),
        (0, "=== 2 skipped in 0.3s ===\n", False, "2 skipped"),
        (5, "no tests ran in 0.01s\n", False, "no test ran"),
        (0, "\n10 passed, 0 failed\n", True, "10 passed, 0 failed"),
        (0, "", False, "no test ran"),
    ],
)
def test_a_suite_is_good_when_it_ended_well_and_ran_tests(
    status: int, output: str, good: bool, counts: str
) -> None:
    outcome = script("suites").judged("a", status, output, 1.0)
    assert (outcome.good, outcome.counts) == (good, counts)


def test_two_suites_run_at_a_time_and_one_that_fails_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suites = script("suites")

    def meets(name: str, other: str, status: int) -> Any:
        code = f"""
import pathlib, sys, time
folder = pathlib.Path({str(tmp_path)!r})
(folder / {name!r}).touch()
until = time.monotonic() + 30
while not (folder / {other!r}).exists() and time.monotonic() < until:
    time.sleep(0.01)
while time.process_time() < 0.2:
    pass
print("1 passed in 0.01s" if (folder / {other!r}).exists() else "no tests ran")
sys.exit({status})
"""
        return suites.Suite(name, [sys.executable, "-c", code])

    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.setattr(suites, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(suites, "BUILD", suites.Suite("build", [sys.executable, "-c", ""]))
    monkeypatch.setattr(suites, "suites", lambda: [meets("a", "b", 1), meets("b", "a", 0)])
    assert suites.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "failed: a"
    # A line as it ends, and one in the summary.
    assert sum(line.startswith("passed  b ") and "1 passed" in line for line in lines) == 2
    assert sum(line.startswith("FAILED  a ") and "1 passed" in line for line in lines) == 2
    assert suites.run(meets("a", "b", 0)).processor_seconds >= 0.2


def test_the_closing_lines_of_a_suite_are_those_of_its_runner() -> None:
    suites = script("suites")
    catch = "1: All tests passed (56 assertions in 7 test cases)\n"
    assert suites.closing_lines(catch + CTEST) == [
        "All tests passed (56 assertions in 7 test cases)",
        "100% tests passed, 0 tests failed out of 8",
        "Total Test time (real) =  90.10 sec",
    ]


def test_a_build_without_work_says_so() -> None:
    suites = script("suites")
    assert suites.judged("build", 0, "ninja: no work to do.\n", 1.0).counts == "nothing to do"
    assert suites.judged("build", 0, "[1/7] a\n[7/7] b\n", 1.0).counts == "7 steps"
    assert not suites.judged("build", 1, "[1/7] a\nFAILED: b\n", 1.0).good


def test_what_a_compilation_costs_is_counted_by_target(tmp_path: Path) -> None:
    bench = script("build_bench", "benchmarks")
    records = tmp_path / "records"
    command = ["sh", "-c", "exit 3", "-o", "src/CMakeFiles/potl.dir/core/a.cpp.o"]
    assert bench.launch(records, command) == 3
    assert bench.launch(records, ["true", "-o", "python/_core.cpython-311.so", "a.o"]) == 0
    lines = records.read_text().splitlines()
    assert [bench.record_of(line, "test", tmp_path)[0] for line in lines] == ["potl", "_core"]
    target, _, seconds = bench.record_of(lines[0], "fuzz", tmp_path)
    assert target == "fuzz.potl"
    assert 0 <= seconds < 1


def test_a_benchmark_beside_others_can_import_what_they_all_import() -> None:
    """A file there is found before a package of its name: a cuda.py kept torch from loading."""
    found = subprocess.run(
        [sys.executable, "-c", "import measuring, torch, sklearn"],
        cwd=ROOT / "benchmarks",
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
