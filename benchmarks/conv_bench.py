#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convolutions in ord32 against stock torch (oneDNN) in float32: speed of the layers of ResNet-20
(batch 128, 32x32 images) and ResNet-50 (batch 4, 224x224 images), each with a depthwise layer of
the same size of images, forward and both gradients, with one thread and with two.

A ratio is torch's time over potl's, for the same calls outside and inside `potl.deterministic`, so
on the same threads; entering it is not timed. The input gradient of a first layer is left out: no
training computes it. `--layers TEXT` measures the layers whose names hold TEXT and writes nothing.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import measuring
import torch

import potl
from potl import _core

ROUNDS = 15 if measuring.FULL else 7
MOST_ROUNDS = 41  # where the machine is noisy
SECONDS = 0.02  # of each timed block, about


@dataclass(frozen=True)
class Layer:
    batch: int
    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        kind = "depthwise " if self.groups > 1 else ""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        shape = f"{self.inputs}-{self.outputs} {self.kernel}x{self.kernel}{stride}"
        return f"{kind}{shape} @{self.size}"


def _resnet20() -> Iterator[Layer]:
    yield Layer(128, 3, 16, 32, 3)
    for width, size in ((16, 32), (32, 16), (64, 8)):
        if width > 16:
            yield Layer(128, width // 2, width, 2 * size, 3, 2)
            yield Layer(128, width // 2, width, 2 * size, 1, 2)
        yield Layer(128, width, width, size, 3)
    yield Layer(128, 32, 32, 32, 3, groups=32)


def _resnet50() -> Iterator[Layer]:
    yield Layer(4, 3, 64, 224, 7, 2)
    before = 64
    for width, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        stride = 1 if width == 64 else 2
        yield Layer(4, before, width, size * stride, 1)
        if stride == 2:
            yield Layer(4, width, width, size * stride, 3, stride)
        yield Layer(4, before, 4 * width, size * stride, 1, stride)
        if stride == 2:
            yield Layer(4, width, 4 * width, size, 1)
        yield Layer(4, 4 * width, width, size, 1)
        yield Layer(4, width, width, size, 3)
        before = 4 * width
    yield Layer(4, 144, 144, 56, 3, groups=144)
    yield Layer(4, 144, 144, 56, 3, 2, groups=144)


NETWORKS = {"resnet20": list(_resnet20()), "resnet50": list(_resnet50())}
Work = Callable[[], torch.Tensor]


def works(layer: Layer) -> dict[str, Work]:
    """What is called, per direction."""
    pad, stride = layer.kernel // 2, layer.stride
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(layer.batch, layer.inputs, layer.size, layer.size, generator=generator)
    w = torch.randn(
        layer.outputs,
        layer.inputs // layer.groups,
        layer.kernel,
        layer.kernel,
        generator=generator,
    )
    dy = torch.randn_like(torch.conv2d(x, w, None, stride, pad, 1, layer.groups))

    def gradient(which: int) -> torch.Tensor:
        wanted = [number == which for number in range(3)]
        both = [stride, stride], [pad, pad], [1, 1]
        grads = torch.ops.aten.convolution_backward(
            dy, x, w, None, *both, False, [0, 0], layer.groups, wanted
        )
        result: torch.Tensor = grads[which]
        return result

    found: dict[str, Work] = {
        "forward": lambda: torch.conv2d(x, w, None, stride, pad, 1, layer.groups),
        "dx": lambda: gradient(0),
        "dw": lambda: gradient(1),
    }
    if layer.inputs == 3:
        del found["dx"]
    return found


def compare(layer: Layer, threads: int) -> dict[str, measuring.Ratio]:
    """Per direction, torch's time over potl's."""
    ratios = {}
    for direction, work in works(layer).items():
        expected = work()
        with potl.deterministic("ord32"):
            torch.testing.assert_close(work(), expected, rtol=1e-3, atol=1e-2)
        times = max(1, round(SECONDS / max(1e-6, measuring.timed(work))))
        found = measuring.outside_and_inside(
            work, "ord32", times=times, rounds=ROUNDS, most=MOST_ROUNDS
        )
        ratios[direction] = found
        flops = 2 * layer.batch * layer.outputs * layer.inputs // layer.groups * layer.kernel**2
        flops *= ((layer.size - 1) // layer.stride + 1) ** 2 * times
        print(
            f"{threads} thread(s) {layer.name:28} {direction:8} {found.value:6.3f} "
            f"[{found.low:.3f}, {found.high:.3f}]  torch {flops / found.seconds / 1e9:6.1f}, "
            f"potl {flops / found.baseline_seconds / 1e9:6.1f} GFLOP/s",
            flush=True,
        )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="", metavar="TEXT")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    arguments = parser.parse_args()
    print(f"{measuring.processor()}, potl runs {_core.active_isa()}; torch {torch.__version__}")
    results = []
    for network, layers in NETWORKS.items():
        means, worst = {}, []
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            ratios = {
                f"{layer.name} {direction}": ratio.value
                for layer in layers
                if arguments.layers in layer.name
                for direction, ratio in compare(layer, threads).items()
            }
            if ratios:
                logarithms = math.fsum(math.log(ratio) for ratio in ratios.values())
                means[threads] = math.exp(logarithms / len(ratios))
                worst += [(ratio, f"{threads}t {name}") for name, ratio in ratios.items()]
        if not means:
            continue
        # The lower of both numbers of threads.
        name = f"conv.ord32.{network}"
        against = f"torch.conv2d fp32 (oneDNN), batch {layers[0].batch}"
        each = ", ".join(f"{threads}t {mean:.3f}" for threads, mean in means.items())
        lowest, where = min(worst)
        results += [
            measuring.result(
                name, min(means.values()), "ratio", f"{against} ({each})", at_least=0.95
            ),
            measuring.result(f"{name}.worst", lowest, "ratio", f"{against}: {where}", at_least=0.8),
        ]
    print(f"load averages {os.getloadavg()}")
    if arguments.layers:
        for entry in results:
            print(f"{entry['name']} {entry['value']:.3f}")
    else:
        measuring.write("conv", results)


if __name__ == "__main__":
    main()
