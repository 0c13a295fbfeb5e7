# SPDX-License-Identifier: Apache-2.0
"""Every C++ and CUDA source is listed in the CMakeLists.txt of its folder, once."""

import re
from pathlib import Path

from places import ROOT

FOLDERS = (
    *("src", "python/bindings", "python/bindings_torch", "benchmarks"),
    *("tests/unit", "tests/fp", "tests/fuzz", "tests/gpu"),
)


def problems(root: Path) -> list[str]:
    """The sources that a build leaves out, or would compile twice into one target."""
    found = []
    sources = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.c[pu]*"))
    for source in sources:
        lists = source.parent / "CMakeLists.txt"
        text = re.sub(r"#.*", "", lists.read_text()) if lists.is_file() else ""
        count = len(re.findall(rf"(?<![\w/.]){re.escape(source.name)}(?![\w.])", text))
        # A list may set properties of a file that it has listed.
        count -= len(re.findall(rf"set_source_files_properties\({re.escape(source.name)} ", text))
        if source.suffix in (".cpp", ".cu") and count != 1:
            name = source.relative_to(root)
            found.append(f"{name} is listed {count} times in {lists.relative_to(root)}")
    return found


def test_every_source_is_listed_once() -> None:
    # src/core/rule_switch.cpp is compiled once for each library, by src/CMakeLists.txt.
    assert [line for line in problems(ROOT) if "/rule_switch.cpp" not in line] == []


def test_a_source_that_is_listed_nowhere_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "src/core"
    folder.mkdir(parents=True)
    for name in ("a.cpp", "aa.cpp", "b.cpp", "c.cpp"):
        (folder / name).touch()
    (folder / "CMakeLists.txt").write_text("potl_sources(\n  aa.cpp\n  b.cpp b.cpp) # c.cpp\n")
    assert problems(tmp_path) == [
        "src/core/a.cpp is listed 0 times in src/core/CMakeLists.txt",
        "src/core/b.cpp is listed 2 times in src/core/CMakeLists.txt",
        "src/core/c.cpp is listed 0 times in src/core/CMakeLists.txt",
    ]


def test_no_list_is_a_pattern() -> None:
    lists = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir()]
    lists += [path for folder in FOLDERS for path in (ROOT / folder).rglob("CMakeLists.txt")]
    assert len(lists) > 20
    assert [path for path in lists if re.search(r"file\(\s*GLOB", path.read_text())] == []
