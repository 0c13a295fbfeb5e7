# SPDX-License-Identifier: Apache-2.0
"""Files as the core takes them from Python."""

import os
from pathlib import Path

import pytest

import potl
from potl import _core


def test_a_name_that_is_not_utf_8_is_refused_with_its_remedy(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    for refused in (
        lambda: _core.create_directory(folder),
        lambda: _core.read_file(folder, max_bytes=1),
        lambda: _core.DirectoryLock(folder, "it is held", ""),
        lambda: _core.holds_run(folder),
        lambda: _core.State.load_unverified(folder),
    ):
        with pytest.raises(potl.UsageError, match=r"udce9' is not UTF-8 here \(rename it"):
            refused()
    assert not [*tmp_path.iterdir()]
