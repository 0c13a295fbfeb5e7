# SPDX-License-Identifier: Apache-2.0
"""Whole trainings end in the same bits whatever the threads, instruction sets and libraries are,
and the control, torch's own arithmetic, does not.

With POTL_FULL every model meets every variation alone; otherwise variations are combined and the
largest models meet few.
"""

import os
import re
import subprocess
from pathlib import Path

import programs
import pytest
import zoo
from places import ROOT
from processor import torch_instruction_sets

pytest.importorskip("potl._torch", reason="potl was built without torch")

FULL = bool(os.environ.get("POTL_FULL"))

# What differs from the base: environment, arguments of zoo.py.
Variation = tuple[dict[str, str], list[str]]
OTHER_LIBM = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2"}
ALONE: dict[str, Variation] = {
    "another process": ({}, []),
    "2 threads": ({}, ["--threads", "2"]),
    "4 threads": ({}, ["--threads", "4"]),
    "portable kernels": ({"POTL_ISA": "portable"}, []),
    "avx2 kernels": ({"POTL_ISA": "avx2"}, []),
    "avx512 kernels": ({"POTL_ISA": "avx512"}, []),
    **{
        f"torch's {name} kernels": ({"ATEN_CPU_CAPABILITY": name}, [])
        for name in torch_instruction_sets()
    },
    "another libm": (OTHER_LIBM, []),
    "a resume": ({}, ["--resume-at", "10"]),
}
TOGETHER: dict[str, Variation] = {
    "2 threads, avx2 everywhere, a resume": (
        {"POTL_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2"},
        ["--threads", "2", "--resume-at", "10"],
    ),
    "4 threads, default kernels, another libm": (
        {"ATEN_CPU_CAPABILITY": "default", **OTHER_LIBM},
        ["--threads", "4"],
    ),
}
SMALL = [name for name in zoo.ZOO if name not in ("resnet20", "resnet50", "gpt2", "vit")]


def names() -> list[str]:
    """What this environment can train."""
    found = list(zoo.ZOO)
    try:
        import transformers  # noqa: F401
    except ImportError:
        found = [name for name in found if name not in ("gpt2", "vit")]
    return found


def digests(wanted: list[str], variation: Variation, *arguments: str) -> dict[str, str]:
    environment, more = {"OMP_NUM_THREADS": "1"} | variation[0], variation[1]
    read_later = ("POTL_ISA",)
    at_start = {name: environment[name] for name in environment if name not in read_later}
    done = subprocess.run(
        [programs.python(**at_start), str(Path(zoo.__file__)), *wanted, *more, *arguments],
        capture_output=True,
        text=True,
        timeout=1500,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def base() -> dict[str, str]:
    return digests(names(), ({}, []))


@pytest.mark.parametrize("variation", [*(ALONE if FULL else TOGETHER)])
def test_the_state_is_the_same_under(variation: str, base: dict[str, str]) -> None:
    chosen = names()
    if not FULL and "libm" in variation:
        chosen = SMALL  # without FMA in libm other parts of torch crawl
    if "resume" in variation:
        chosen = [name for name in chosen if zoo.ZOO[name][5] > 10]
    found = digests(chosen, {**ALONE, **TOGETHER}[variation])
    assert found == {name: base[name] for name in chosen}


def test_portable_kernels_end_in_the_same_state() -> None:
    chosen = ["digits", "bilstm", "gpt"]
    few = ["--steps", "4"]
    assert digests(chosen, ALONE["portable kernels"], *few) == digests(chosen, ({}, []), *few)


def test_activation_checkpointing_changes_no_bit(base: dict[str, str]) -> None:
    assert digests(["gpt"], ({}, []), "--checkpointing") == {"gpt": base["gpt"]}


@pytest.mark.parametrize("mode", ["cr32", "log64", "xint24", "xint16"])
def test_the_other_modes_are_reproducible_too(mode: str) -> None:
    chosen = names() if FULL else ["digits", "gpt"]
    steps = [] if FULL else ["--steps", "5"]
    arguments = ["--arithmetic", mode, *steps]
    one = digests(chosen, ({}, []), *arguments)
    environment = {"POTL_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2"}
    assert digests(chosen, (environment, ["--threads", "2"]), *arguments) == one


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_each_optimizer_is_reproducible(optimizer: str) -> None:
    chosen = names() if FULL else ["digits"]
    arguments = ["--optimizer", optimizer]
    one = digests(chosen, ({}, []), *arguments)
    assert digests(chosen, TOGETHER["4 threads, default kernels, another libm"], *arguments) == one


def test_stock_arithmetic_is_not_reproducible() -> None:
    # The control: were these equal, the tests above would show nothing.
    stock = ["--arithmetic", "stock", "--steps", "3"]
    one = digests(["resnet20", "gpt"], ({}, []), *stock)
    two = digests(["resnet20", "gpt"], ({}, ["--threads", "2"]), *stock)
    assert one != two


def test_the_digest_in_the_readme_is_this_machines(base: dict[str, str]) -> None:
    found = re.search(r"digits ([0-9a-f]{64})", (ROOT / "README.md").read_text())
    assert found is not None
    assert found.group(1) == base["digits"]
