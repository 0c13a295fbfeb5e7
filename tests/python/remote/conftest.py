# SPDX-License-Identifier: Apache-2.0
"""A recorded run, and a server of it, for the tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import programs
import pytest
from serving import Recorded, served

from potl._remote import _http


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded.make(tmp_path_factory.mktemp("remote"))


@pytest.fixture(scope="session")
def url(recorded: Recorded) -> Iterator[str]:
    with served(recorded.run) as where:
        yield where


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is asked for again at once."""
    monkeypatch.setattr(_http, "_PAUSE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing is left in the folder for temporary files."""
    programs.python()  # keeps a folder, which the first test makes
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    # torch's compiler makes a folder of its own when it is first loaded.
    assert [one for one in place.iterdir() if not one.name.startswith("torchinductor_")] == []
