# SPDX-License-Identifier: Apache-2.0
"""What --with packs lies below the current directory, and is a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import potl
from potl._seal._contents import require_names
from potl._seal._packing import _below


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A client's folder, and what lies beside it."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/secret").touch()
    folder = tmp_path.resolve() / "own"
    for name in (
        "data/a",
        "data/b/c",
        "data/__pycache__/a.pyc",
        "data/.git/config",
        "data/.hg/hgrc",
        "config.yaml",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(own: Path, given: str) -> set[str]:
    return {path.relative_to(own).as_posix() for path in _below(own, given)}


@pytest.mark.parametrize("given", ["data", "data/", "./data", "data/b/..", "other/../data"])
def test_a_folder_is_packed_without_what_python_and_git_keep_in_it(own: Path, given: str) -> None:
    assert names(own, given) == {"data/a", "data/b/c"}


def test_a_file_is_packed(own: Path) -> None:
    assert names(own, "config.yaml") == {"config.yaml"}
    assert names(own, "data/a") == {"data/a"}


@pytest.mark.parametrize("given", [".", "", "..", "../beside", "data/../../beside", "/etc/hosts"])
def test_what_lies_elsewhere_is_refused(own: Path, given: str) -> None:
    with pytest.raises(potl.UsageError, match="does not lie below the current directory"):
        names(own, given)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("trainer.so", "pack its source"), ("runs/1/key.pem", "leave it out"), ("HEAD", "leave it")],
)
def test_what_acts_unread_has_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(potl.UsageError, match=remedy):
        require_names([name])


def test_a_link_is_packed_as_the_file_that_it_leads_to_in_the_folder(own: Path) -> None:
    (own / "data/link").symlink_to("../config.yaml")
    assert names(own, "data") == {"data/a", "data/b/c", "data/link"}


@pytest.mark.parametrize(
    ("place", "leads"),
    [
        ("data/link", "../../beside/secret"),
        ("data/link", "../../beside"),
        ("data/link", "b"),
        ("data/link", ".."),
        ("link", "../beside"),
        ("link", "../beside/secret"),
    ],
)
def test_a_link_that_leads_elsewhere_or_to_a_folder_is_refused(
    own: Path, place: str, leads: str
) -> None:
    (own / place).symlink_to(leads)
    with pytest.raises(potl.UsageError, match=f"{place}.* is no file that lies below"):
        names(own, place.partition("/")[0])


def test_a_path_through_a_link_is_refused(own: Path) -> None:
    (own / "link").symlink_to("../beside")
    with pytest.raises(potl.UsageError, match="is no file that lies below"):
        names(own, "link/secret")


def test_what_is_no_file_is_refused(own: Path) -> None:
    os.mkfifo(own / "data/fifo")
    with pytest.raises(potl.UsageError, match="data/fifo is no file"):
        names(own, "data")
    for missing in ("none", "data/none"):
        with pytest.raises(potl.UsageError, match=f"there is no {missing}"):
            names(own, missing)
    (own / "dangling").symlink_to("none")
    with pytest.raises(potl.UsageError, match="there is no dangling"):
        names(own, "dangling")
