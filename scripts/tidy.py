#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over src/ and python/bindings/, two files at a time.

Sources that tests compile once more, with other flags, are read as the library compiles them.
A file that was clean is looked at again only when it, a header or .clang-tidy has changed: digests
of clean files are kept in build/tidy.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build/tidy"
COMMANDS = "compile_commands.json"
COMPILED_AGAIN = ("CMakeFiles/fp_", "CMakeFiles/potl_kernel_")


def write_commands() -> None:
    """Keeps the compilations that clang-tidy shall see, in build/tidy."""
    commands = json.loads((ROOT / "build/test" / COMMANDS).read_text())
    kept = [one for one in commands if not any(part in one["command"] for part in COMPILED_AGAIN)]
    single = [one for command in kept for one in taken_apart(command)]
    (KEPT / COMMANDS).write_text(json.dumps(single))


def taken_apart(command: dict[str, str]) -> list[dict[str, str]]:
    """The command for each source that the build joins into one (cmake/sources.cmake)."""
    joined = Path(command["file"])
    if not joined.is_relative_to(ROOT / "build/test") or not joined.is_file():
        return [command]
    sources = re.findall(r'^#include "(.*\.cpp)"$', joined.read_text(), re.MULTILINE)
    text = json.dumps(command)
    return [json.loads(text.replace(str(joined), str(ROOT / source))) for source in sources]


def headers_digest() -> bytes:
    state = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for folder in ("include", "src", "python/bindings", "python/bindings_torch"):
        for header in sorted((ROOT / folder).rglob("*.hpp")):
            state.update(header.read_bytes())
    return state.digest()


def tidy(source: Path, headers: bytes) -> str:
    """What clang-tidy says about one file; nothing when it is clean."""
    mark = KEPT / hashlib.sha256(headers + source.read_bytes()).hexdigest()
    if mark.exists():
        return ""
    # The flags are g++'s: clang does not know all of its warnings, nor those of its linking.
    done = subprocess.run(
        [
            *(
                "clang-tidy-14",
                "-p",
                KEPT,
                "--quiet",
                "--extra-arg=-Wno-unknown-warning-option",
                "--extra-arg=-Wno-ignored-optimization-argument",
                "--extra-arg=-Wno-unused-command-line-argument",
            ),
            source,
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        mark.touch()
        return ""
    return done.stdout or done.stderr


def main() -> int:
    KEPT.mkdir(parents=True, exist_ok=True)
    write_commands()
    headers = headers_digest()
    sources = sorted([*(ROOT / "src").rglob("*.cpp"), *(ROOT / "python").glob("bindings*/*.cpp")])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(lambda source: tidy(source, headers), sources) if text]
    print("\n".join(said), end="")
    print(f"clang-tidy: {len(sources) - len(said)} of {len(sources)} files are clean")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
