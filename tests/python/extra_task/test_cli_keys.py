# SPDX-License-Identifier: Apache-2.0
"""potl extra-task and its key: where it lies, who reads it, and what says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from potl._cli import _cli

Run = Callable[..., tuple[int, str]]

USER = """
def constant():
    return lambda inputs: [0] * len(inputs)

def transform(value):
    return value
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """Exit code and standard error of a command, in a folder with a data set and a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("extra_keys_user.py").write_text(USER)
    images = np.random.default_rng(0).integers(0, 256, (300, 8, 8), np.uint8)
    np.savez("a.npz", x=images, y=np.arange(300) % 2)

    def call(*words: str) -> tuple[int, str]:
        code = _cli.run(["extra-task", *words])
        return code, capsys.readouterr().err

    return call


@pytest.mark.parametrize("path", ["/proc/x.key", "/proc/x/y.key", "a.npz/x.key"])
def test_a_key_that_cannot_be_written_is_named_with_what_to_do(run: Run, path: str) -> None:
    code, told = run("keygen", path)
    assert code == 3
    assert f"the key {path} cannot be written" in told
    assert "choose a file in a folder of yours" in told


def test_a_folder_is_no_key(run: Run) -> None:
    Path("folder").mkdir()
    assert run("keygen", "folder")[0] == 2
    for words in (("mix", "a.npz", "b.npz", "--key", "folder"), ("verify", "folder", "--questions",
                  "q.npz")):  # fmt: skip
        code, told = run(*words)
        assert (code, "the key folder cannot be read: Is a directory" in told) == (2, True)


def test_a_key_that_was_used_is_warned_of_in_one_line(run: Run) -> None:
    run("keygen", "k")
    assert run("mix", "a.npz", "b.npz", "--key", "k") == (0, "")
    code, told = run("mix", "a.npz", "c.npz", "--key", "k")
    assert code == 0
    assert told.startswith("potl: warning: k was used before: two data sets")
    assert told.count("\n") == 1
    assert run("make", "a.npz", "d.npz", "--key", "k")[1] == told


def test_a_key_that_others_can_read_is_warned_of(run: Run) -> None:
    run("keygen", "k")
    Path("k").chmod(0o644)
    for words in (("mix", "a.npz", "b.npz", "--key", "k"), ("verify", "k", "--questions",
                  "q.npz")):  # fmt: skip
        code, told = run(*words)
        assert (code, "warning: k can be read by others" in told) == (0, True)
        assert "chmod 600 k" in told
    Path("k").chmod(0o600)
    assert run("verify", "k", "--questions", "r.npz") == (0, "")


def test_a_transform_that_nobody_would_call_is_refused(run: Run) -> None:
    run("keygen", "k")
    run("mix", "a.npz", "b.npz", "--key", "k")
    transform = ("--transform", "extra_keys_user:transform")
    code, told = run("verify", "k", "--model", "extra_keys_user:constant", *transform)
    assert (code, "returns a function, which gets inputs as they are" in told) == (2, True)
    code, told = run("verify", "k", "--questions", "q.npz", *transform)
    assert (code, "--transform goes with --model alone" in told) == (2, True)
    assert run("verify", "k", "--model", "extra_keys_user:constant")[0] == 1
