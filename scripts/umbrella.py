#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes include/potl/potl.hpp, which includes every public header that needs no adapter's library.

What lies in a folder detail/ serves other headers and is not public.

With --check it writes nothing and exits 1 when the file is not what it would write.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
UMBRELLA = INCLUDE / "potl/potl.hpp"
ADAPTERS = {"libtorch", "cuda"}
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Everything that a program without PyTorch can use. scripts/umbrella.py writes this file.
#pragma once

"""


def umbrella() -> str:
    headers = sorted(path.relative_to(INCLUDE) for path in INCLUDE.rglob("*.hpp"))
    public = [
        path
        for path in headers
        if path.parts[1] not in ADAPTERS | {"potl.hpp"} and "detail" not in path.parts
    ]
    return HEAD + "".join(f"#include <{path.as_posix()}>\n" for path in public)


def main(arguments: list[str]) -> int:
    wanted = umbrella()
    if UMBRELLA.is_file() and UMBRELLA.read_text() == wanted:
        return 0
    if arguments == ["--check"]:
        print("include/potl/potl.hpp does not name every public header: make format writes it")
        return 1
    UMBRELLA.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
