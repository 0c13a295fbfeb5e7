# SPDX-License-Identifier: Apache-2.0
"""Floating-point environments that are not IEEE 754's are refused, with the cause.

A foreign library is compiled here: it changes the control registers of the thread that calls it, or
when it is loaded. Two environments are those of a build: the probe itself is compiled that way.
"""

import ctypes
import functools
import platform
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import programs
import pytest
import torch
from places import ROOT

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="control registers of x86"),
]

FOREIGN = """
#include <cfenv>
#include <cstdint>
#include <xmmintrin.h>
extern "C" {
unsigned get_mxcsr() { return _mm_getcsr(); }
void set_mxcsr(unsigned value) { _mm_setcsr(value); }
void upwards() { std::fesetround(FE_UPWARD); }
void nearest() { std::fesetround(FE_TONEAREST); }
void x87(unsigned word) {
  auto value = static_cast<std::uint16_t>(word);
  __asm__ volatile("fldcw %0" ::"m"(value));
}
}
"""
PROBE = """
#include <cstdio>
#include <potl/numeric/detail/fp_environment.hpp>
int main() {
  for (const auto& check : potl::fp_environment()) {
    if (!check.ok) std::printf("%s: %s\\n", std::string(check.name).c_str(), check.cause.c_str());
  }
}
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The foreign library."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "foreign.cpp").write_text(FOREIGN)
    compile_(folder / "foreign.cpp", "-O1", "-shared", "-fPIC", "-o", folder / "libforeign.so")
    return folder / "libforeign.so"


def compile_(*arguments: str | Path) -> None:
    done = subprocess.run(
        [str(COMPILER), *map(str, arguments)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def refused() -> str:
    with pytest.raises(potl.NotReproducible) as raised:
        potl.deterministic().__enter__()
    assert raised.value.remedy
    return raised.value.message


MXCSR = {
    "flush-to-zero": (0x8000, "flush-to-zero is set"),
    "denormals-are-zero": (0x0040, "denormals-are-zero is set"),
    "rounding": (0x4000, "a rounding direction is set"),
    "traps": (-0x0200, "exceptions end the process"),
}


@pytest.mark.parametrize("name", MXCSR)
def test_a_control_register_that_a_library_changed_is_named(name: str, foreign: Path) -> None:
    library = ctypes.CDLL(str(foreign))
    bits, cause = MXCSR[name]
    before = library.get_mxcsr()
    library.set_mxcsr(before | bits if bits > 0 else before & ~-bits)
    try:
        message = refused()
    finally:
        library.set_mxcsr(before)
    assert cause in message
    with potl.deterministic():
        pass


def test_a_rounding_direction_of_the_c_library_is_refused(foreign: Path) -> None:
    library = ctypes.CDLL(str(foreign))
    library.upwards()
    try:
        message = refused()
    finally:
        library.nearest()
    assert "not rounded to the nearest" in message


def test_less_precision_of_the_x87_unit_is_refused(foreign: Path) -> None:
    library = ctypes.CDLL(str(foreign))
    library.x87(0x027F)  # 53 bits, as Windows programs have it
    try:
        message = refused()
    finally:
        library.x87(0x037F)
    assert "x87" in message
    assert "0x27f" in message


def test_torchs_own_switch_is_refused() -> None:
    assert torch.set_flush_denormal(True)
    try:
        message = refused()
    finally:
        torch.set_flush_denormal(False)
    assert "flush-to-zero" in message


def test_every_entry_tests_anew(foreign: Path) -> None:
    # The verified step is the block: a library that is loaded between two steps is found.
    library = ctypes.CDLL(str(foreign))
    before = library.get_mxcsr()
    for step in range(3):
        with potl.deterministic():
            pass
        if step == 1:
            library.set_mxcsr(before | 0x8000)
            try:
                refused()
            finally:
                library.set_mxcsr(before)


def in_process(code: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [programs.python(), "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WORKER = """
    import ctypes, sys, torch, potl
    library = ctypes.CDLL(sys.argv[1])
    torch.set_num_threads(2)
    before = library.get_mxcsr()
    library.set_mxcsr(before | int(sys.argv[2], 0))
    x = torch.ones(1 << 20)
    x + x                       # the pool's worker is born with what its maker has
    library.set_mxcsr(before)
    try:
        with potl.deterministic():
            print("entered")
    except potl.NotReproducible as error:
        print(error.message)
"""


@pytest.mark.parametrize(
    ("bits", "cause"),
    [("0x8000", "flush-to-zero"), ("0x0040", "denormals-are-zero"), ("0x2000", "rounding")],
)
def test_a_worker_that_was_born_while_it_was_broken_is_found(
    bits: str, cause: str, foreign: Path
) -> None:
    message = in_process(WORKER, foreign, bits)
    assert "in a worker of torch's thread pool" in message
    assert cause in message


LATE_WORKER = """
    import ctypes, sys, torch, potl
    library = ctypes.CDLL(sys.argv[1])
    x = torch.ones(1 << 20)

    def use(threads):
        torch.set_num_threads(threads)
        return x + x

    use(3)
    with potl.deterministic():
        x.exp()
    use(int(sys.argv[2]))       # 2: the third worker ends
    before = library.get_mxcsr()
    library.set_mxcsr(before | 0x8000)
    use(int(sys.argv[3]))
    library.set_mxcsr(before)
    try:
        with potl.deterministic():
            print("entered")
    except potl.NotReproducible as error:
        print(error.message)
"""


@pytest.mark.parametrize(("fewer", "more"), [(2, 3), (3, 4)])
def test_a_worker_that_was_born_broken_between_two_blocks_is_found(
    fewer: int, more: int, foreign: Path
) -> None:
    told = in_process(LATE_WORKER, foreign, str(fewer), str(more))
    assert "in a worker of torch's thread pool" in told
    assert "entered" not in told


def test_workers_are_fine_when_nothing_is_broken(foreign: Path) -> None:
    assert in_process(WORKER, foreign, "0x0") == "entered\n"


def test_loading_a_library_linked_with_fast_math_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fast.cpp").write_text('extern "C" int fast() { return 1; }\n')
    library = tmp_path / "libfast.so"
    compile_(tmp_path / "fast.cpp", "-O2", "-ffast-math", "-shared", "-fPIC", "-o", library)
    message = in_process(
        """
        import ctypes, sys, potl
        library = ctypes.CDLL(sys.argv[1])
        probe = (ctypes.c_double(5e-324).value * 1.0, 2.2250738585072014e-308 / 2)
        try:
            with potl.deterministic():
                print("entered", probe)
        except potl.NotReproducible as error:
            print(error.message)
        """,
        library,
    )
    if message.startswith("entered (5e-324, 1.1"):
        pytest.skip("this compiler's -ffast-math changes no register of who loads the library")
    assert "flush-to-zero" in message
    assert "-ffast-math" in message


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Flags of the compiler -> what fails in a potl that is built with them."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cpp").write_text(PROBE)
    common = ["-std=c++20", "-O2", f"-I{ROOT / 'include'}"]
    compile_(*common, "-c", folder / "probe.cpp", "-o", folder / "probe.o")

    @functools.cache
    def failing(flags: str) -> dict[str, str]:
        source = ROOT / "src/numeric/fp_environment.cpp"
        compile_(*common, *flags.split(), source, folder / "probe.o", "-o", folder / "program")
        done = subprocess.run([folder / "program"], capture_output=True, text=True, timeout=600)
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    return failing


def test_a_build_with_potls_arithmetic_is_fine(probe: Callable[[str], dict[str, str]]) -> None:
    assert probe("-ffp-contract=off") == {}


@pytest.mark.parametrize(
    ("flags", "name", "cause"),
    [
        ("-mfma -ffp-contract=fast", "contraction", "without -ffp-contract=off"),
        ("-ffast-math", "association", "-ffast-math"),
        ("-ffast-math", "nan", "-ffast-math"),
        ("-fassociative-math -fno-signed-zeros -fno-trapping-math", "association", "sums"),
    ],
)
def test_a_build_with_other_arithmetic_is_refused(
    flags: str, name: str, cause: str, probe: Callable[[str], dict[str, str]]
) -> None:
    if "-mfma" in flags and "fma" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("a processor without fused multiply-add contracts nothing")
    assert cause in probe(flags)[name]
