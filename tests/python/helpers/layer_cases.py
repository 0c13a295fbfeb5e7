# SPDX-License-Identifier: Apache-2.0
"""Calls of norms, softmax and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from neural_case import Case, floats, integers, unit
from torch import Tensor


def _normalization() -> Iterator[Case]:
    x, weight, bias = floats(3, 8, 7, 5), floats(8), floats(8)
    last, shift = floats(7, 5), floats(7, 5)
    yield Case("layer_norm", lambda x, w, b: F.layer_norm(x, (7, 5), w, b), (x, last, shift))
    yield Case("layer_norm/plain", lambda x: F.layer_norm(x, (5,)), (x,))
    yield Case("layer_norm/weight", lambda x, w: F.layer_norm(x, (7, 5), w), (x, last))
    yield Case("layer_norm/wide", lambda x: F.layer_norm(x, (9000,)), (floats(3, 9000),))
    yield Case(
        "layer_norm/strided",
        lambda x, w: F.layer_norm(x.transpose(1, 3)[:, 1:], (7, 8), w),
        (x, floats(7, 8)),
    )
    yield Case("rms_norm", lambda x, w: F.rms_norm(x, (7, 5), w), (x, last))
    yield Case("group_norm", lambda x, w, b: F.group_norm(x, 4, w, b), (x, weight, bias))
    yield Case("group_norm/plain", lambda x: F.group_norm(x, 2), (x,))
    yield Case(
        "instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (x, weight, bias)
    )

    def batch_norm(
        training: bool, layout: torch.memory_format
    ) -> Callable[..., tuple[Tensor, ...]]:
        def call(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
            mean, variance = torch.full_like(b, 0.25), torch.full_like(b, 1.5)
            x = x.contiguous(memory_format=layout)
            return F.batch_norm(x, mean, variance, w, b, training), mean, variance

        return call

    for training in (True, False):
        for layout in (torch.contiguous_format, torch.channels_last):
            yield Case(
                f"batch_norm/{training}/{layout}", batch_norm(training, layout), (x, weight, bias)
            )
    yield Case(
        "batch_norm/2d", lambda x: F.batch_norm(x, None, None, training=True), (floats(40, 6),)
    )
    yield Case(
        "batch_norm/3d",
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
        (floats(4, 6, 33), floats(6)),
    )
    yield Case(
        "weight_norm", lambda v, g: torch._weight_norm(v, g, 0), (floats(5, 7), floats(5, 1))
    )
    yield Case("renorm", lambda x: torch.renorm(x, 2, 0, 2.0), (floats(5, 7),))
    yield Case("normalize", lambda x: F.normalize(x, dim=1), (x,))
    yield Case("local_response_norm", lambda x: F.local_response_norm(x, 3), (x,))
    yield Case(
        "cosine_similarity", lambda x, y: F.cosine_similarity(x, y), (floats(6, 9), floats(6, 9))
    )


def _softmax() -> Iterator[Case]:
    x = floats(4, 11, 6, scale=4.0)
    for dim in (0, 1, -1):
        yield Case(f"softmax/{dim}", lambda x, dim=dim: x.softmax(dim), (x,))
        yield Case(f"log_softmax/{dim}", lambda x, dim=dim: x.log_softmax(dim), (x,))
        yield Case(f"logsumexp/{dim}", lambda x, dim=dim: x.logsumexp(dim), (x,))
    yield Case("softmax/wide", lambda x: x.softmax(1), (floats(3, 9000),))
    yield Case("softmax/scalar", lambda x: x.sum().softmax(0), (x,))
    yield Case("softmax/masked", lambda x: x.masked_fill(x > 1, -torch.inf).softmax(1), (x,))
    yield Case("logsumexp/dims", lambda x: x.logsumexp((0, 2), keepdim=True), (x,))
    yield Case("logsumexp/empty row", lambda x: torch.full_like(x, -torch.inf).logsumexp(1), (x,))
    yield Case("softmin", lambda x: F.softmin(x, 1), (x,))
    for dim in (0, 1, -1):
        yield Case(f"logcumsumexp/{dim}", lambda x, dim=dim: x.logcumsumexp(dim), (x,))
    yield Case("logcumsumexp/scalar", lambda x: x.sum().logcumsumexp(0), (x,))
    yield Case(
        "safe_softmax",
        lambda x: torch._safe_softmax(x.masked_fill(x[:, :, :1] > 0, -torch.inf), -1),
        (x,),
    )


def _losses() -> Iterator[Case]:
    x, y = floats(9, 5), floats(9, 5)
    classes = integers(5, 9)
    image, labels = floats(2, 5, 4, 3), integers(5, 2, 4, 3)
    weight = unit(5)
    for how in ("none", "mean", "sum"):
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            yield Case(
                f"{name}/{how}",
                lambda x, y, f=name, how=how: getattr(F, f)(x, y, reduction=how),
                (x, y),
            )
        yield Case(
            f"soft_margin_loss/{how}",
            lambda x, y, how=how: F.soft_margin_loss(x, y.detach(), reduction=how),
            (x, y),
        )
        yield Case(
            f"huber_loss/delta/{how}",
            lambda x, y, how=how: F.huber_loss(x, y, how, delta=0.4),
            (x, y),
        )
        yield Case(
            f"smooth_l1_loss/beta/{how}",
            lambda x, y, how=how: F.smooth_l1_loss(x, y, reduction=how, beta=0.3),
            (x, y),
        )
        yield Case(
            f"cross_entropy/{how}",
            lambda x, w, t, how=how: F.cross_entropy(
                x, t, w.detach(), reduction=how, ignore_index=2
            ),
            (x, weight, classes),
        )
        yield Case(
            f"cross_entropy/smooth/{how}",
            lambda x, t, how=how: F.cross_entropy(x, t, reduction=how, label_smoothing=0.1),
            (x, classes),
        )
        yield Case(
            f"cross_entropy/2d/{how}",
            lambda x, t, how=how: F.cross_entropy(x, t, reduction=how, ignore_index=1),
            (image, labels),
        )
        yield Case(
            f"cross_entropy/soft/{how}",
            lambda x, y, how=how: F.cross_entropy(x, y.softmax(1), reduction=how),
            (x, y),
        )
        yield Case(
            f"binary_cross_entropy/{how}",
            lambda p, t, w, how=how: F.binary_cross_entropy(p, t, w.detach(), reduction=how),
            (unit(9, 5), unit(9, 5), unit(5).expand(9, 5)),
        )
        yield Case(
            f"bce_with_logits/{how}",
            lambda x, t, w, how=how: F.binary_cross_entropy_with_logits(
                x, t, w.detach(), reduction=how, pos_weight=w.detach()
            ),
            (x, unit(9, 5), unit(5)),
        )
        yield Case(
            f"kl_div/{how}",
            lambda x, y, how=how: F.kl_div(x.log_softmax(1), y.softmax(1), reduction=how),
            (x, y),
        )
        yield Case(
            f"kl_div/log/{how}",
            lambda x, y, how=how: F.kl_div(
                x.log_softmax(1), y.log_softmax(1), reduction=how, log_target=True
            ),
            (x, y),
        )
        yield Case(
            f"poisson_nll_loss/{how}",
            lambda x, y, how=how: F.poisson_nll_loss(x, y.abs(), reduction=how),
            (x, y),
        )
    yield Case("nll_loss/one", lambda x, t: F.nll_loss(x[0], t[0]), (x, classes))
    yield Case("mse_loss/broadcast scalar", lambda x, y: F.mse_loss(x.sum(), y.sum()), (x, y), 2e-4)
    yield Case(
        "gaussian_nll_loss", lambda x, y, v: F.gaussian_nll_loss(x, y, v), (x, y, unit(9, 5))
    )
    yield Case("margin_ranking_loss", lambda x, y: F.margin_ranking_loss(x, y, y.sign()), (x, y))
    yield Case("triplet_margin_loss", lambda x, y: F.triplet_margin_loss(x, y, x + y), (x, y))
    yield Case(
        "cosine_embedding_loss",
        lambda x, y, t: F.cosine_embedding_loss(x, y, t.float().sub(2).sign().type_as(x)),
        (x, y, classes),
    )


def cases() -> list[Case]:
    return [*_normalization(), *_softmax(), *_losses()]
