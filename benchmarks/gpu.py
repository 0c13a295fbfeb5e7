# SPDX-License-Identifier: Apache-2.0
"""potl's kernels for CUDA against what torch would use instead, in one process, on one stream.

digest: the content roots of 300 MB that are on the device, against copying them there.
gemm: a product of square matrices against cuBLAS, in float32 without TF32, bfloat16 or float64.
conv.ord32: convolutions of a ResNet-50 and their gradients against cuDNN, likewise.
train_step: a step in potl.deterministic against a stock step, likewise.
record.overhead: a recorded step, whose whole state is hashed, against the same step in a loop.

`make bench-gpu` builds what this loads, and runs it.

    python benchmarks/gpu.py build/gpu/libpotl_cuda_launchers.so
    python benchmarks/gpu.py build/gpu/libpotl_cuda_launchers.so --only digest gemm
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from statistics import geometric_mean
from typing import Any

import measuring
import torch
import torch.nn.functional as F
from measuring import ROOT
from torch import Tensor, nn

import potl
from potl import _core

sys.path.insert(0, str(ROOT / "tests" / "python" / "helpers"))
import zoo

ROUNDS = 15
BYTES, TENSORS = 300_000_000, 150
# mode -> size -> what is asked for.
PRODUCTS = {
    "ord32": {2048: 0.85, 4096: 0.85, 8192: 0.85},
    "xint24": {2048: 0.7, 4096: 2.0, 8192: 2.5, 16384: 3.0},
    "xint16": {4096: 0.5, 8192: 0.5},
    "cr32": {4096: 0.85, 8192: 0.85},
    "log64": {4096: 0.85, 8192: 0.85},
}
# What a user would multiply in instead; others: float32.
STOCK = {"xint16": torch.bfloat16, "cr32": torch.float64, "log64": torch.float64}
DIGEST_AT_LEAST = 0.05
CONV_AT_LEAST = 0.7
STEP_AT_MOST = {"ord32": 1.3, "xint24": 1.0}
RECORD_AT_MOST, RECORD_STEPS, RECORD_ROUNDS = 1.03, 4, 3
# Of a ResNet-50 on images of 224 x 224: inputs, outputs, size of the image, kernel, stride.
CONVOLUTIONS = (
    *((3, 64, 224, 7, 2), (64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1)),
    *((256, 128, 56, 1, 1), (128, 128, 56, 3, 2), (128, 512, 28, 1, 1), (512, 256, 28, 1, 1)),
    *((256, 256, 28, 3, 2), (256, 1024, 14, 1, 1), (512, 512, 7, 3, 1), (512, 2048, 7, 1, 1)),
)


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
    for mode, sizes in PRODUCTS.items():
        for n, at_least in sizes.items():
            yield product(library, mode, n, at_least)


def product(library: ctypes.CDLL, mode: str, n: int, at_least: float) -> dict[str, Any]:
    """One of them, in a mode."""
    dtype = STOCK.get(mode, torch.float32)
    a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    wide_a, wide_b, ours = a.float(), b.float(), torch.empty(n, n, device="cuda")
    theirs = torch.empty(n, n, device="cuda", dtype=dtype)
    places = [ctypes.c_void_p(one.data_ptr()) for one in (wide_a, wide_b, ours)]

    def exact() -> None:
        called(library.potl_gemm, mode.encode(), *places, ctypes.c_int64(n))

    def stock() -> None:
        torch.mm(a, b, out=theirs)

    exact()
    stock()
    off = (ours - theirs).abs().max().item()
    if not off <= (1e-3 if mode != "xint16" else 0.05) * n**0.5:
        raise RuntimeError(f"a product of {n} rows in {mode} is {off} off that of cuBLAS")
    found = measuring.paired(lambda: timed(stock), lambda: timed(exact), rounds=ROUNDS)
    return measuring.result(
        f"cuda.gemm.{mode}.{n}",
        2 * n**3 / found.baseline_seconds / 1e12,
        "TFLOP/s",
        f"cuBLAS in {dtype}, {2 * n**3 / found.seconds / 1e12:.3g} TFLOP/s".replace("torch.", ""),
        found,
        at_least=at_least,
    )


def convolution(_: ctypes.CDLL) -> Iterator[dict[str, Any]]:
    """Forward pass and both gradients of each, for 32 images."""
    ratios = []
    for inputs, outputs, size, kernel, stride in CONVOLUTIONS:
        x = torch.randn(32, inputs, size, size, device="cuda", requires_grad=True)
        w = torch.randn(outputs, inputs, kernel, kernel, device="cuda", requires_grad=True)
        dy = torch.ones_like(F.conv2d(x, w, stride=stride, padding=kernel // 2))

        def work(x: Tensor = x, w: Tensor = w, dy: Tensor = dy, stride: int = stride) -> None:
            torch.autograd.backward(F.conv2d(x, w, stride=stride, padding=w.shape[2] // 2), dy)

        def exact(work: Callable[[], None] = work) -> None:
            with potl.deterministic():
                work()

        found = measuring.paired(
            lambda work=work: timed(work),  # type: ignore[misc]
            lambda exact=exact: timed(exact),  # type: ignore[misc]
            rounds=3,
        )
        ratios.append(found.value)
        print(f"conv {inputs} -> {outputs}, {size} x {size}, kernel {kernel}: {found.value:.2f}")
    yield measuring.result(
        "cuda.conv.ord32.resnet50",
        geometric_mean(ratios),
        "geometric mean of the ratios to cuDNN",
        "cuDNN in float32",
        at_least=CONV_AT_LEAST,
    )


class GPT(nn.Module):
    """124 million parameters, as GPT-2's smallest has."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.Sequential(*(zoo.Layer(768, 12) for _ in range(12)), nn.LayerNorm(768))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.layers(self.tokens(tokens) + self.places.weight)
        return F.linear(hidden, self.tokens.weight)


def train_step(_: ctypes.CDLL) -> Iterator[dict[str, Any]]:
    """A ResNet-50 on 32 images of 64 x 64, and a GPT on four texts of 1,024 tokens."""
    resnet, gpt = zoo.ZOO["resnet50"][0](), GPT()
    cases: dict[str, tuple[nn.Module, Tensor, Tensor]] = {
        "resnet50": (resnet, torch.randn(32, 3, 64, 64), torch.randint(10, (32,))),
        "gpt124m": (gpt, torch.randint(50257, (4, 1024)), torch.randint(50257, (4096,))),
    }
    for name, (model, x, y) in cases.items():
        x, y = x.cuda(), y.cuda()
        optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=1e-4, fused=True)

        def step(
            model: nn.Module = model,
            x: Tensor = x,
            y: Tensor = y,
            optimizer: torch.optim.Optimizer = optimizer,
        ) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, -2), y).backward()
            optimizer.step()

        for mode, at_most in STEP_AT_MOST.items():

            def exact(step: Callable[[], None] = step, mode: str = mode) -> None:
                with potl.deterministic(mode):
                    step()

            found = measuring.paired(
                lambda exact=exact: timed(exact),  # type: ignore[misc]
                lambda step=step: timed(step),  # type: ignore[misc]
                rounds=3,
            )
            yield measuring.result(
                f"cuda.train_step.{name}.{mode}",
                found.seconds * 1e3,
                "ms for a step",
                f"a stock step in float32, {found.baseline_seconds * 1e3:.3g} ms",
                found,
                at_most=at_most,
            )
        model.cpu()


def texts(epochs: int) -> potl.Task:
    """A GPT on 64 texts of 1,024 tokens, eight at a time."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(50257, (64, 1025), generator=generator)
    model = GPT().cuda()
    return potl.Task(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True),
        dataset=torch.utils.data.TensorDataset(tokens[:, :-1], tokens[:, 1:]),
        loss=zoo.next_character,
        batch_size=8,
        epochs=epochs,
    )


def plain_steps(task: potl.Task) -> Iterator[float]:
    """The loop that a user would write."""
    (optimizer,) = task.optimizers
    loader = torch.utils.data.DataLoader(task.dataset, batch_size=task.batch_size, shuffle=True)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = zoo.next_character(task.model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            yield loss.item()


def record(_: ctypes.CDLL) -> Iterator[dict[str, Any]]:
    """Blocks of steps in turn; no checkpoint is among them."""
    build = functools.partial(texts, 1 + RECORD_STEPS * (RECORD_ROUNDS + 1) // 8)
    plain = plain_steps(build())
    with tempfile.TemporaryDirectory() as folder:
        job = potl.Job.create(build, seed=7, checkpoint_every=100, arithmetic="stock")
        with potl.Prover(build, folder + "/run", job=job) as prover:
            recorded = prover.steps()

            def ours() -> None:
                for _ in itertools.islice(recorded, RECORD_STEPS):
                    pass
                prover.flush()

            def theirs() -> None:
                for _ in itertools.islice(plain, RECORD_STEPS):
                    pass

            found = measuring.paired(
                lambda: measuring.timed(ours),
                lambda: measuring.timed(theirs),
                rounds=RECORD_ROUNDS,
            )
    yield measuring.result(
        "cuda.record.overhead.gpt124m",
        found.seconds / RECORD_STEPS * 1e3,
        "ms for a step whose state is hashed",
        f"a loop over a DataLoader, {found.baseline_seconds / RECORD_STEPS * 1e3:.3g} ms",
        found,
        at_most=RECORD_AT_MOST,
    )


GROUPS: dict[str, Callable[[ctypes.CDLL], Iterator[dict[str, Any]]]] = {
    "digest": digest,
    "gemm": gemm,
    "conv": convolution,
    "train_step": train_step,
    "record": record,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="what make bench-gpu builds")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="these figures")
    options = parser.parse_args()
    library = ctypes.CDLL(options.library)
    if library.potl_keep_memory():
        raise SystemExit("the device has no pool of memory")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    print(torch.cuda.get_device_name())
    results: list[dict[str, Any]] = []
    for name in options.only:
        for found in GROUPS[name](library):
            print(json.dumps(found), flush=True)
            results.append(found)
    measuring.write("cuda", results)


if __name__ == "__main__":
    main()
