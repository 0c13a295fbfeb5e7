# SPDX-License-Identifier: Apache-2.0
"""Tiles of AMX are the operating system's to grant; without them the kernels of `vnni` run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CPU = Path("/proc/cpuinfo")
_ASK = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(158, 0x1023, 18) != 0)"

# What a program does before potl asks, what it then multiplies, and whether potl holds tiles.
_PROGRAM = """
import ctypes
import sys

libc = ctypes.CDLL(None, use_errno=True)


class Stack(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


if "small-stack" in sys.argv:
    room = ctypes.create_string_buffer(4096)
    stack = Stack(ctypes.cast(room, ctypes.c_void_p), 0, 4096)
    assert libc.sigaltstack(ctypes.byref(stack), None) == 0

import torch

import potl

with potl.deterministic(sys.argv[1]):
    ones = torch.ones(3, 100)
    assert (ones @ ones.t() == 100).all()
granted = ctypes.c_ulong(0)
arch_prctl, get_permissions, tiles = 158, 0x1022, 18
assert libc.syscall(arch_prctl, get_permissions, ctypes.byref(granted)) == 0
sys.exit(granted.value >> tiles & 1)
"""


def holds_tiles(*arguments: str, **environment: str) -> bool:
    inherited = {name: text for name, text in os.environ.items() if name != "POTL_ISA"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**inherited, **environment},
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.returncode == 1


@pytest.fixture(scope="module", autouse=True)
def _granted() -> None:
    if not _CPU.is_file() or " amx_int8" not in _CPU.read_text():
        pytest.skip("this processor has no AMX")
    if subprocess.run([sys.executable, "-c", _ASK], timeout=120).returncode != 0:
        pytest.skip("the operating system grants no tiles")


@pytest.mark.parametrize("mode", ["xint24", "xint16"])
def test_products_of_integers_ask_for_tiles(mode: str) -> None:
    assert holds_tiles(mode)


def test_other_products_ask_for_nothing() -> None:
    assert not holds_tiles("ord32")


def test_a_signal_stack_without_room_for_tiles_means_vnni() -> None:
    assert not holds_tiles("xint24", "small-stack")


def test_a_lower_level_asks_for_nothing() -> None:
    assert not holds_tiles("xint24", POTL_ISA="vnni")
