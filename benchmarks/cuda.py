# SPDX-License-Identifier: Apache-2.0
"""potl's kernels for CUDA against what torch would use instead, in one process, on one stream.

digest: the content roots of 300 MB that are on the device, against copying them there.
gemm.ord32: a product of square matrices against cuBLAS in float32 without TF32.

`make bench-gpu` builds what this loads, and runs it.

    python benchmarks/cuda.py build/gpu/libpotl_cuda_launchers.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections.abc import Callable, Iterator
from typing import Any

import measuring
import torch

from potl import _core

ROUNDS = 15
BYTES, TENSORS = 300_000_000, 150
SIZES = (2048, 4096, 8192)
ORD32_AT_LEAST = {2048: 0.85, 4096: 0.85, 8192: 0.85}
DIGEST_AT_LEAST = 0.05


def timed(work: Callable[[], object]) -> float:
    """Seconds that the device takes for what `work` queues."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def called(function: Any, *arguments: Any) -> None:
    """Queues on torch's stream."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if function(*arguments, stream):
        raise RuntimeError(f"{function.__name__} was refused")


def digest(library: ctypes.CDLL) -> Iterator[dict[str, Any]]:
    """Content roots, compared with the CPU's before they are timed."""
    each = BYTES // TENSORS
    state = [torch.randint(256, (each,), dtype=torch.uint8, device="cuda") for _ in range(TENSORS)]
    copies = [torch.empty_like(one) for one in state]
    roots = torch.zeros(TENSORS, 32, dtype=torch.uint8, device="cuda")
    places = (ctypes.c_void_p * TENSORS)(*(one.data_ptr() for one in state))
    sizes = (ctypes.c_size_t * TENSORS)(*(one.numel() for one in state))
    count, out = ctypes.c_size_t(TENSORS), ctypes.c_void_p(roots.data_ptr())

    def hashing() -> None:
        called(library.potl_content_roots, places, sizes, count, out)

    hashing()
    for one, root in zip(state[:3], roots.cpu(), strict=False):
        if bytes(root.numpy()) != _core.content_root(one.cpu().numpy()):
            raise RuntimeError("a content root of the device is not the CPU's")
    found = measuring.paired(
        lambda: timed(lambda: [to.copy_(one) for to, one in zip(copies, state, strict=True)]),
        lambda: timed(hashing),
        rounds=ROUNDS,
    )
    yield measuring.result(
        "cuda.digest",
        found.baseline_seconds * 1e3,
        "ms for 300 MB, of which at most 3 are wanted",
        f"copying them on the device, {found.seconds * 1e3:.3g} ms",
        found,
        at_least=DIGEST_AT_LEAST,
    )


def gemm(library: ctypes.CDLL) -> Iterator[dict[str, Any]]:
    """Square products."""
    for n in SIZES:
        a, b, ours, theirs = (torch.randn(n, n, device="cuda") for _ in range(4))
        places = [ctypes.c_void_p(one.data_ptr()) for one in (a, b, ours)]
        size = ctypes.c_int64(n)

        def product(places: Any = places, size: Any = size) -> None:
            called(library.potl_gemm_ord32, *places, size)

        def stock(a: Any = a, b: Any = b, out: Any = theirs) -> None:
            torch.mm(a, b, out=out)

        product()
        stock()
        if not torch.allclose(ours, theirs, rtol=0, atol=1e-3 * n**0.5):
            raise RuntimeError(f"a product of {n} rows is not near that of cuBLAS")
        found = measuring.paired(
            lambda stock=stock: timed(stock),  # type: ignore[misc]
            lambda product=product: timed(product),  # type: ignore[misc]
            rounds=ROUNDS,
        )
        yield measuring.result(
            f"cuda.gemm.ord32.{n}",
            2 * n**3 / found.baseline_seconds / 1e12,
            "TFLOP/s",
            f"cuBLAS in float32, {2 * n**3 / found.seconds / 1e12:.3g} TFLOP/s",
            found,
            at_least=ORD32_AT_LEAST[n],
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    library = ctypes.CDLL(parser.parse_args().library)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    print(torch.cuda.get_device_name())
    results: list[dict[str, Any]] = []
    for group in (digest, gemm):
        for found in group(library):
            print(json.dumps(found), flush=True)
            results.append(found)
    measuring.write("cuda", results)


if __name__ == "__main__":
    main()
