# SPDX-License-Identifier: Apache-2.0
"""One digest per operator and arithmetic mode, over fixed inputs: two machines that print the same
lines train the same bits.

The digests of this version are kept beside this module, so that one machine is enough to see that
it computes otherwise than the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .. import _core
from .._arithmetic import _library
from .._arithmetic._deterministic import deterministic
from .._base._elements import bytes_of_elements
from .._base._errors import NotReproducible, UnsupportedError
from .._task import _random

Tensors = Iterable[torch.Tensor]
_KEPT = Path(__file__).with_name("_selftest.json")


class Inputs:
    """Tensors that follow from a case's name alone, on one device."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        self.device = device
        self._key = hashlib.sha256(b"potl.selftest.v1\x00" + name.encode()).digest()
        self._drawn = 0

    def __call__(self, *shape: int, grad: bool = True) -> torch.Tensor:
        """Standard normal float32."""
        out = torch.empty(shape)
        _core.fill_normal(out.view(-1).numpy(), self._next(), 0, 0.0, 1.0)
        return out.to(self.device).requires_grad_(grad)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """int64 in [0, high)."""
        out = torch.empty(shape, dtype=torch.int64)
        _core.fill_integers(out.view(-1).numpy(), self._next(), 0, 0, high)
        return out.to(self.device)

    def _next(self) -> bytes:
        self._drawn += 1
        return hashlib.sha256(self._key + bytes([self._drawn])).digest()


Case = Callable[[Inputs], Tensors]


def backward(out: torch.Tensor, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """A result and the gradients of its inputs, for a cotangent that is not a constant."""
    count = out.numel()
    weights = torch.arange(-3.0, 4.0).repeat(count // 7 + 1)[:count].view(out.shape)
    return [out.detach(), *torch.autograd.grad(out, inputs, weights.to(out.device))]


def unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Case:
    def case(draw: Inputs) -> Tensors:
        x = draw(1000)
        return backward(function(x), x)

    return case


def positive(function: Callable[[torch.Tensor], torch.Tensor]) -> Case:
    def case(draw: Inputs) -> Tensors:
        x = (draw(1000, grad=False).abs() + 0.001).requires_grad_()
        return backward(function(x), x)

    return case


def binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *shapes: Any) -> Case:
    def case(draw: Inputs) -> Tensors:
        a, b = (draw(*shape) for shape in shapes)
        return backward(function(a, b), a, b)

    return case


def module(make: Callable[[], nn.Module], *shape: int) -> Case:
    """A module with drawn weights: result, and gradients of input and weights."""

    def case(draw: Inputs) -> Tensors:
        net = make()
        with torch.no_grad():
            for weight in net.parameters():
                weight.copy_(draw(*weight.shape, grad=False) * 0.25)
        net.to(draw.device)
        x = draw(*shape)
        out = net(x)
        out = out[0] if isinstance(out, tuple) else out
        return [*backward(out, x, *net.parameters()), *net.buffers()]

    return case


def optimizer(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]) -> Case:
    """Three updates."""

    def case(draw: Inputs) -> Tensors:
        weights = [draw(300), draw(7)]
        chosen = make(weights)
        for _ in range(3):
            for weight in weights:
                weight.grad = draw(*weight.shape, grad=False)
            chosen.step()
        return [weight.detach() for weight in weights]

    return case


# What is a dot product, and therefore depends on the mode.
PRODUCTS: Mapping[str, Case] = {
    "matmul": binary(torch.matmul, (33, 700), (700, 17)),
    "bmm": binary(torch.bmm, (3, 9, 40), (3, 40, 11)),
    "linear": module(lambda: nn.Linear(600, 20), 10, 600),
    "conv1d": module(lambda: nn.Conv1d(6, 8, 5, padding=2), 3, 6, 30),
    "conv2d": module(lambda: nn.Conv2d(8, 12, 3, stride=2, padding=1), 4, 8, 11, 11),
    "conv2d.groups": module(
        lambda: nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8), 2, 8, 9, 9
    ),
    "conv3d": module(lambda: nn.Conv3d(3, 4, 3), 2, 3, 6, 6, 6),
    "conv_transpose2d": module(
        lambda: nn.ConvTranspose2d(6, 5, 4, stride=2, padding=1), 2, 6, 7, 7
    ),
    "attention": lambda draw: _attention(draw),
    "lstm": module(lambda: nn.LSTM(9, 8, bidirectional=True), 6, 4, 9),
    "gru": module(lambda: nn.GRU(9, 8), 6, 4, 9),
}

OTHERS: Mapping[str, Case] = {
    "exp": unary(torch.exp),
    "expm1": unary(torch.expm1),
    "log": positive(torch.log),
    "log1p": positive(torch.log1p),
    "sqrt": positive(torch.sqrt),
    "rsqrt": positive(torch.rsqrt),
    "pow": positive(lambda x: x**1.7),
    "sin": unary(torch.sin),
    "cos": unary(torch.cos),
    "tanh": unary(torch.tanh),
    "sigmoid": unary(torch.sigmoid),
    "erf": unary(torch.erf),
    "erfinv": unary(lambda x: torch.erfinv(x * 0.2)),
    "relu": unary(F.relu),
    "gelu": unary(F.gelu),
    "gelu.tanh": unary(lambda x: F.gelu(x, approximate="tanh")),
    "silu": unary(F.silu),
    "sum": unary(lambda x: x.view(20, 50).sum(0)),
    "mean": unary(lambda x: x.view(20, 50).mean(1)),
    "var": unary(lambda x: x.view(20, 50).var(1)),
    "norm": unary(torch.linalg.vector_norm),
    "eigh": lambda draw: torch.linalg.eigh(_symmetric(draw)),
    "svd": lambda draw: torch.linalg.svd(draw(12, 9, grad=False)),
    "cumsum": unary(lambda x: x.view(20, 50).cumsum(1)),
    "softmax": unary(lambda x: F.softmax(x.view(20, 50), 1)),
    "log_softmax": unary(lambda x: F.log_softmax(x.view(20, 50), 1)),
    "logsumexp": unary(lambda x: torch.logsumexp(x.view(20, 50), 1)),
    "cross_entropy": lambda draw: _cross_entropy(draw),
    "mse_loss": binary(F.mse_loss, (50, 4), (50, 4)),
    "bce_with_logits": unary(lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x))),
    "layer_norm": module(lambda: nn.LayerNorm(50), 20, 50),
    "batch_norm": module(lambda: nn.BatchNorm2d(6), 5, 6, 4, 4),
    "group_norm": module(lambda: nn.GroupNorm(2, 6), 5, 6, 4, 4),
    "max_pool2d": unary(lambda x: F.max_pool2d(x.view(1, 10, 10, 10), 2)),
    "avg_pool2d": unary(lambda x: F.avg_pool2d(x.view(1, 10, 10, 10), 3)),
    "adaptive_avg_pool2d": unary(lambda x: F.adaptive_avg_pool2d(x.view(1, 10, 10, 10), 3)),
    "interpolate": unary(
        lambda x: F.interpolate(x.view(1, 10, 10, 10), scale_factor=2.0, mode="bilinear")
    ),
    "embedding": lambda draw: _embedding(draw),
    "index_add": lambda draw: _index_add(draw),
    "scatter_add": lambda draw: _scatter_add(draw),
    "normal_": lambda draw: [_seeded(draw).normal_()],
    "uniform_": lambda draw: [_seeded(draw).uniform_()],
    "dropout": lambda draw: [F.dropout(_seeded(draw), 0.3)],
    "sgd": optimizer(lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9)),
    "adam": optimizer(lambda weights: torch.optim.Adam(weights, lr=0.01)),
    "adamw": optimizer(lambda weights: torch.optim.AdamW(weights, lr=0.01, foreach=True)),
    "adamw.fused": optimizer(lambda weights: torch.optim.AdamW(weights, lr=0.01, fused=True)),
}


def _attention(draw: Inputs) -> Tensors:
    q, k, v = draw(2, 3, 10, 8), draw(2, 3, 10, 8), draw(2, 3, 10, 8)
    return backward(F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)


def _symmetric(draw: Inputs) -> torch.Tensor:
    x = draw(12, 12, grad=False)
    return x + x.mT


def _cross_entropy(draw: Inputs) -> Tensors:
    x = draw(40, 9)
    return backward(F.cross_entropy(x, draw.integers(9, 40), label_smoothing=0.1), x)


def _embedding(draw: Inputs) -> Tensors:
    weight = draw(11, 6)
    return backward(F.embedding(draw.integers(11, 50), weight), weight)


def _index_add(draw: Inputs) -> Tensors:
    x, source = draw(7, 5), draw(60, 5)
    return backward(x.index_add(0, draw.integers(7, 60), source), x, source)


def _scatter_add(draw: Inputs) -> Tensors:
    x, source = draw(7, 5), draw(60, 5)
    return backward(x.scatter_add(0, draw.integers(7, 60, 5), source), x, source)


def _seeded(draw: Inputs) -> torch.Tensor:
    _random.seed_torch(draw._next())
    return torch.ones(999, device=draw.device)


@dataclass(frozen=True)
class Line:
    """One operator in one mode."""

    mode: str
    """"any" where all modes compute alike."""
    operator: str
    digest: str
    """The first 16 hexadecimal digits of SHA-256."""
    as_kept: bool
    """Whether it is the digest that this version of potl was released with."""
    refused: bool = False
    """Whether the operator has no form for the device; then there is no digest."""


def lines(device: str = "cpu") -> Iterator[Line]:
    """Runs every case in every mode that it depends on.

    Args:
        device: "cuda" for what a GPU computes: the digests are the CPU's, or there is none.

    Raises:
        NotReproducible: The floating-point environment is broken.
        UnsupportedError: potl was built without torch, or has no kernels for the device.
    """
    if device != "cpu" and not (device == "cuda" and torch.cuda.is_available()):
        raise UnsupportedError(f"torch has no device {device!r} here", 'use "cpu" or "cuda"')
    may_refuse = bool(_library.module().knows_device(device))
    if device != "cpu" and not may_refuse:
        raise UnsupportedError(
            f"this potl has no kernels for {device!r}",
            "docs/reference/cuda.md says how to build it",
        )
    kept: dict[str, str] = json.loads(_KEPT.read_text()) if _KEPT.exists() else {}
    for mode in _core.MODES:
        for name, case in PRODUCTS.items():
            yield _line(mode, name, case, kept, device, may_refuse)
    for name, case in OTHERS.items():
        yield _line("any", name, case, kept, device, may_refuse)


def _line(
    mode: str, name: str, case: Case, kept: Mapping[str, str], device: str, may_refuse: bool
) -> Line:
    try:
        with _random.scope(), deterministic("ord32" if mode == "any" else mode):
            tensors = [one.cpu() for one in case(Inputs(name, device))]
    except NotReproducible:
        if not may_refuse:
            raise
        return Line(mode, name, "", as_kept=False, refused=True)
    hasher = hashlib.sha256()
    for tensor in tensors:
        hasher.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        hasher.update(bytes_of_elements(tensor).numpy().data)
    digest = hasher.hexdigest()[:16]
    return Line(mode, name, digest, kept.get(f"{mode} {name}") == digest)


def write_kept() -> None:
    """Keeps the digests of this machine: for a release, after two kinds of machine agreed."""
    rows = {f"{line.mode} {line.operator}": line.digest for line in lines()}
    _KEPT.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
