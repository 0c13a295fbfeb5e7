# SPDX-License-Identifier: Apache-2.0
"""The published threshold, searched per type of layer: sums of real operands in float64, in two
orders, and the largest tau at which a trainer logs all that an auditor rounds differently.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import rounding_nets as nets
import torch
from torch import nn
from torch.nn import functional, grad

from potl import _core

BITS = (32, 28)
STEPS = 20  # before operands are taken


def thresholds() -> str:
    """A table: per type of layer and b, what was found."""
    lines = [
        "| net | layer type | values | b | rounded differently | tau | logged at tau | potl logs |",
        "|" + "---|" * 8,
    ]
    for name, make in (("ResNet-20", nets.resnet20), ("GPT 4 x 256", nets.small_gpt)):
        net = make()
        for _ in range(STEPS):
            net.step()
        pairs: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for kind, one, other in sums_of(net):
            pairs.setdefault(kind, []).append((one.flatten(), other.flatten()))
        logged = shares_logged(make())
        for kind, found in pairs.items():
            one, other = (torch.cat([pair[i] for pair in found]).numpy() for i in (0, 1))
            for bits in BITS:
                result = _core.search_threshold(
                    np.ascontiguousarray(one), np.ascontiguousarray(other), bits=bits
                )
                own = f"{logged[kind]:.1e}" if bits == 32 else ""
                lines.append(
                    f"| {name} | {kind} | {one.size:,} | {bits} | {result['mismatches']} "
                    f"| {result['tau']:.6f} | {result['logged']:.1e} | {own} |"
                )
    return "\n".join(lines)


def shares_logged(net: nets.Net) -> dict[str, float]:
    """What potl's own log holds of each type of layer, by the same names."""
    trainer = nets.session("trainer")
    nets.trained_step(net, trainer, 1)
    names = {
        "conv": "convolution",
        "conv_input": "convolution, input gradient",
        "conv_weight": "convolution, weight gradient",
    }
    counts: dict[str, list[int]] = {}
    for kind, each in trainer.counts.items():
        total = counts.setdefault(names.get(kind, "linear"), [0, 0])
        total[0] += each["ties"]
        total[1] += each["values"]
    for kind in ("linear, input gradient", "linear, weight gradient"):
        counts.setdefault(kind, counts.get("linear", [0, 1]))
    return {kind: ties / max(1, values) for kind, (ties, values) in counts.items()}


def sums_of(net: nets.Net) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(type, sums, sums in another order) of every layer of one step, forward and backward."""
    seen: list[tuple[nn.Module, torch.Tensor, torch.Tensor]] = []
    hooks = []
    for layer in net.model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) or type(layer).__name__ == "Conv1D":

            def note(layer: nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
                x = given[0].detach()
                out.register_hook(lambda dy: seen.append((layer, x, dy.detach())))

            hooks.append(layer.register_forward_hook(note))
    net.step()
    for hook in hooks:
        hook.remove()
    for layer, x, dy in seen:
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        if isinstance(layer, nn.Conv2d):
            yield from _convolution(layer, x.double(), weight.detach().double(), dy.double())
        else:
            w = weight.detach().double()
            yield from _linear(x.double(), w if type(layer).__name__ == "Conv1D" else w.t(), dy)


def _convolution(
    layer: nn.Conv2d, x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    stride, padding = layer.stride, layer.padding
    assert isinstance(padding, tuple)
    inputs, outputs, batch = (torch.randperm(n) for n in (x.shape[1], w.shape[0], x.shape[0]))
    yield (
        "convolution",
        functional.conv2d(x, w, None, stride, padding),
        functional.conv2d(x[:, inputs], w[:, inputs], None, stride, padding),
    )
    if x.shape[1] != 3:
        gradient = grad.conv2d_input
        yield (
            "convolution, input gradient",
            gradient(x.shape, w, dy, stride, padding),  # type: ignore[no-untyped-call]
            gradient(x.shape, w[outputs], dy[:, outputs], stride, padding),  # type: ignore[no-untyped-call]
        )
    gradient = grad.conv2d_weight
    yield (
        "convolution, weight gradient",
        gradient(x, w.shape, dy, stride, padding),  # type: ignore[no-untyped-call]
        gradient(x[batch], w.shape, dy[batch], stride, padding),  # type: ignore[no-untyped-call]
    )


def _linear(
    x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    x, dy = x.flatten(0, -2), dy.double().flatten(0, -2)
    inputs, outputs, rows = (torch.randperm(n) for n in (*w.shape, x.shape[0]))
    yield "linear", x @ w, x[:, inputs] @ w[inputs]
    yield "linear, input gradient", dy @ w.t(), dy[:, outputs] @ w[:, outputs].t()
    yield "linear, weight gradient", x.t() @ dy, x[rows].t() @ dy[rows]
