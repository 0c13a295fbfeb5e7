# SPDX-License-Identifier: Apache-2.0
"""The machine code of the CUDA kernels rounds where their definition does, and nowhere else."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from places import ROOT

OBJECTS = ROOT / "build" / "test" / "src" / "kernels" / "CMakeFiles" / "potl_cuda.dir"
# Where the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm put their programs.
PACKAGED = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"


@functools.cache
def machine_code(group: str, architecture: str) -> list[tuple[str, str]]:
    """Names and texts of the functions of a group of sources (kernels/CMakeLists.txt)."""
    compiled = OBJECTS / f"potl_cuda.{group}.cu.o"
    if not compiled.exists():
        pytest.skip("the kernels for CUDA are not built: there is no nvcc")
    path = f"{PACKAGED}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("cuobjdump", path=path)
    if program is None:
        pytest.skip("there is no cuobjdump: install nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm")
    found = subprocess.run(
        [program, "-sass", "-arch", architecture, str(compiled)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "PATH": path},
    ).stdout
    parts = re.split(r"^\s*Function : (\S+)", found, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def operations(group: str, kernel: str, architecture: str, read: str = r"\w+") -> Counter[str]:
    """How often each operation stands in a kernel's machine code, by what `read` matches of it."""
    code = [text for name, text in machine_code(group, architecture) if kernel in name]
    assert len(code) == 1, f"{len(code)} kernels are called {kernel}"
    return Counter(
        re.findall(rf"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?({read})", code[0], re.MULTILINE)
    )


LARGE, MEDIUM, SMALL = (
    f"9gemm_tileILj{size}ELj8EE" for size in ("128ELj128", "64ELj128", "64ELj64")
)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"])
@pytest.mark.parametrize(("tile", "split"), [(LARGE, 0), (LARGE, 1), (MEDIUM, 0), (SMALL, 0)])
def test_a_product_in_ord32_multiplies_only_with_fma(
    tile: str, split: int, architecture: str
) -> None:
    kernel = f"run_blocksINS0_16ordered_productsINS0_{tile}ELb{split}E"
    found = operations("products", kernel, architecture)
    # Eight k for each of a thread's elements, where all slices are whole and where they are not,
    # and once more for the k left over; each loop ends with the sum of a chunk.
    assert found["FFMA"] == (8 + 8 + 1) * 64
    # Where all slices are whole, C may be put in fours or not.
    assert found["FADD"] == 3 * 64
    # HFMA2 makes constants.
    assert not {"FMUL", "FFMA2", "FADD2", "FMUL2", "HMMA"} & found.keys()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("tile", [LARGE, SMALL])
@pytest.mark.parametrize("operand", ["NS0_8gatheredELb0E", "NS0_8gatheredELb1E", "NS_7numeric6"])
def test_a_convolution_multiplies_as_a_product_does(
    operand: str, tile: str, architecture: str
) -> None:
    found = operations(
        "products", f"run_blocksINS0_17gathered_productsINS0_{tile}E{operand}", architecture
    )
    assert found["FFMA"] == (8 + 1) * 64
    assert found["FADD"] == 64
    assert not {"FMUL", "FFMA2", "FADD2", "FMUL2", "HMMA"} & found.keys()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"])
@pytest.mark.parametrize(("digits", "pairs"), [(3, 9), (2, 4)])
@pytest.mark.parametrize("targets", ["14stored_targets", "14gather_targets"])
def test_a_product_of_integers_multiplies_bytes_with_tensor_cores(
    targets: str, digits: int, pairs: int, architecture: str
) -> None:
    kernel = f"blocksINS0_16integer_productsILj{digits}ENS0_{targets}E"
    found = operations("products", kernel, architecture)
    # Eight tiles of a warp for each pair of bytes.
    assert found["IMMA"] == 8 * pairs
    assert not {"HMMA", "DMMA", "FFMA"} & found.keys()


@pytest.mark.parametrize(("digits", "products"), [(3, 9 * 2), (2, 4 * 2 * 2)])
@pytest.mark.parametrize("targets", ["14stored_targets", "14gather_targets"])
def test_warpgroups_multiply_bytes_on_hopper_alone(
    targets: str, digits: int, products: int
) -> None:
    kernel = f"blocksINS0_21wide_integer_productsILj{digits}ENS0_{targets}E"
    found = operations("products", kernel, "sm_90a")
    # Of two slices, and of two digits 2 x 64 columns.
    assert found["IGMMA"] == products
    assert not {"IMMA", "LDL", "STL"} & found.keys()
    elsewhere = operations("products", kernel, "sm_80")
    assert not {"IMMA", "IGMMA"} & elsewhere.keys() and sum(elsewhere.values()) < 30


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("operands", ["stored", "gathered"])
def test_an_exact_sum_looks_for_its_highest_bit(operands: str, architecture: str) -> None:
    """nvcc makes a constant of std::countl_zero, without a word."""
    kernel = f"run_blocksINS0_16settled_elementsINS0_{DOUBLES[operands]}_targets"
    assert operations("products", kernel, architecture)["FLO"] >= 1


DOUBLES = {
    "stored": "12stored_linesES3_NS0_14stored",
    "gathered": "14gathered_linesES3_NS0_14gather",
}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"])
@pytest.mark.parametrize("operands", ["stored", "gathered"])
def test_a_product_of_doubles_is_multiplied_by_tensor_cores(
    operands: str, architecture: str
) -> None:
    kernel = f"run_blocksINS0_16rounded_productsINS0_{DOUBLES[operands]}_targets"
    found = operations("products", kernel, architecture, r"[A-Z]MMA\.\w+")
    # 2 x 4 tiles of a warp, twice for a slice of eight, where all slices are whole and where they
    # are not. Only sm_90 has an instruction for 16 rows: elsewhere it is two.
    loops = 2 if operands == "stored" else 1
    if architecture == "sm_90a":
        assert found == {"DMMA.16x8x4": 16 * loops}
    else:
        assert found == {"DMMA.8x8x4" if architecture == "sm_100" else "DMMA.884": 32 * loops}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"])
@pytest.mark.parametrize("operands", ["stored", "gathered"])
def test_a_product_of_doubles_needs_no_local_memory(operands: str, architecture: str) -> None:
    kernel = f"run_blocksINS0_16rounded_productsINS0_{DOUBLES[operands]}_targets"
    found = operations("products", kernel, architecture)
    assert not {"LDL", "STL"} & found.keys()


def test_a_softmax_slope_is_rounded_at_each_operation() -> None:
    # y (dy - sum): one sum, one product, and nothing fused.
    kernel = "softmax_rowsILNS0_10row_resultE3E"
    found = operations("rows", kernel, "sm_90a")
    assert found["FADD"] >= 1 and found["FMUL"] == found["FADD"]
    assert "FFMA" not in found


@pytest.mark.parametrize("kernel", ["leaf_hashes", "node_hashes", "root_digests"])
def test_a_digest_computes_with_whole_numbers(kernel: str) -> None:
    found = operations("states", kernel, "sm_90a")
    assert not [
        name
        for name in found
        if name.startswith(("F", "D", "HF", "MUFU")) and name[:3] not in {"FLO", "DEP"}
    ]
