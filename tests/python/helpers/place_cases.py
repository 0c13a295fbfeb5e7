# SPDX-License-Identifier: Apache-2.0
"""Calls that gather, scatter and resample: pooling, interpolation, indexing, embedding."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from neural_case import Case, floats, integers
from torch import Tensor


def _pooling() -> Iterator[Case]:
    x1, x2, x3 = floats(2, 3, 17), floats(2, 5, 13, 9), floats(2, 3, 7, 6, 5)
    yield Case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), (x1,))
    for ceil in (False, True):
        for count in (False, True):
            yield Case(
                f"avg_pool2d/{ceil}/{count}",
                lambda x, ceil=ceil, count=count: F.avg_pool2d(x, 3, 2, 1, ceil, count),
                (x2,),
            )
    yield Case("avg_pool2d/3d input", lambda x: F.avg_pool2d(x[0], (2, 3)), (x2,))
    yield Case("avg_pool2d/divisor", lambda x: F.avg_pool2d(x, 2, divisor_override=3), (x2,))
    yield Case(
        "avg_pool2d/channels_last",
        lambda x: F.avg_pool2d(x.contiguous(memory_format=torch.channels_last), 3, 1, 1),
        (x2,),
    )
    yield Case("avg_pool3d", lambda x: F.avg_pool3d(x, 2, 2, 1), (x3,))
    yield Case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 5), (x1,))
    yield Case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (4, 5)), (x2,))
    yield Case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (3, 4, 2)), (x3,))
    yield Case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), (x1,))
    yield Case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (x2,))
    yield Case("max_pool2d/overlap", lambda x: F.max_pool2d(x, 3, 1, dilation=2), (x2,))
    yield Case("max_pool3d", lambda x: F.max_pool3d(x, 2, 1), (x3,))
    yield Case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (4, 5)), (x2,))
    yield Case("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (3, 4, 2)), (x3,))

    def unpooled(x: Tensor) -> Tensor:
        y, where = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, where, [2, 2], output_size=x.shape)

    yield Case("max_unpool2d", unpooled, (x2,))


def _upsampling() -> Iterator[Case]:
    x1, x2, x3 = floats(2, 3, 9), floats(2, 3, 7, 6), floats(2, 2, 4, 5, 3)
    for mode in ("nearest", "nearest-exact"):
        for name, x in (("1d", x1), ("2d", x2), ("3d", x3)):
            yield Case(
                f"interpolate/{mode}/{name}",
                lambda x, mode=mode: F.interpolate(x, scale_factor=1.7, mode=mode),
                (x,),
            )
    for align in (False, True):
        for mode, x in (("linear", x1), ("bilinear", x2), ("bicubic", x2), ("trilinear", x3)):
            yield Case(
                f"interpolate/{mode}/{align}/scale",
                lambda x, mode=mode, align=align: F.interpolate(
                    x, scale_factor=2.3, mode=mode, align_corners=align
                ),
                (x,),
            )
            yield Case(
                f"interpolate/{mode}/{align}/size",
                lambda x, mode=mode, align=align: F.interpolate(
                    x, size=(5,) * (x.dim() - 2), mode=mode, align_corners=align
                ),
                (x,),
            )
    for mode in ("bilinear", "bicubic"):
        yield Case(
            f"interpolate/{mode}/antialias",
            lambda x, mode=mode: F.interpolate(x, size=(3, 11), mode=mode, antialias=True),
            (x2,),
        )
    yield Case(
        "interpolate/channels_last",
        lambda x: F.interpolate(
            x.to(memory_format=torch.channels_last), size=(9, 4), mode="bilinear"
        ),
        (x2,),
    )
    for mode in ("reflect", "replicate", "circular"):
        yield Case(f"pad/{mode}/1d", lambda x, mode=mode: F.pad(x, (3, 2), mode=mode), (x1,))
        yield Case(f"pad/{mode}/2d", lambda x, mode=mode: F.pad(x, (3, 2, 1, 4), mode=mode), (x2,))
        yield Case(
            f"pad/{mode}/3d", lambda x, mode=mode: F.pad(x, (1, 2, 3, 4, 2, 1), mode=mode), (x3,)
        )
    yield Case("pad/constant", lambda x: F.pad(x, (3, -2, 1, 4), value=0.5), (x2,))
    yield Case("unfold", lambda x: F.unfold(x, (3, 2), 1, 2, (2, 1)), (x2,))
    yield Case(
        "fold", lambda x: F.fold(x, (7, 6), (3, 2), padding=1, stride=2), (floats(2, 18, 16),)
    )
    yield Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (floats(2, 8, 3, 4),))


def _indexing() -> Iterator[Case]:
    x = floats(7, 5, 6)
    rows, values = integers(7, 40), floats(40, 5, 6)
    yield Case("index_add", lambda x, v, i: x.index_add(0, i, v, alpha=0.7), (x, values, rows))
    yield Case(
        "index_add/dim 1",
        lambda x, v, i: x.index_add(1, i, v),
        (x, floats(7, 40, 6), integers(5, 40)),
    )
    where = integers(5, 7, 9, 4)
    yield Case("scatter_add", lambda x, v, i: x.scatter_add(1, i, v), (x, floats(7, 9, 4), where))
    yield Case(
        "scatter_add/1d",
        lambda x, v, i: x.scatter_add(0, i, v),
        (floats(9), floats(50), integers(9, 50)),
    )
    for kind in ("sum", "mean", "amax", "amin", "prod"):
        for own in (True, False):
            yield Case(
                f"scatter_reduce/{kind}/{own}",
                lambda x, v, i, kind=kind, own=own: x.scatter_reduce(
                    1, i, v, kind, include_self=own
                ),
                (x, floats(7, 9, 4), where),
            )
    for kind in ("mean", "amax", "amin"):
        yield Case(
            f"index_reduce/{kind}",
            lambda x, v, i, kind=kind: x.index_reduce(0, i, v, kind),
            (x, values, rows),
        )
    yield Case("gather", lambda x, i: x.gather(1, i), (x, where))
    yield Case("take", lambda x, i: x.take(i - 100), (x, integers(210, 6, 50)))
    yield Case("index_select", lambda x, i: x.index_select(1, i), (x, integers(5, 30)))
    yield Case("index", lambda x, i: x[i], (x, rows))
    yield Case("index/two", lambda x, i, j: x[i, j], (x, integers(7, 50), integers(5, 50)))
    yield Case("index/middle", lambda x, i: x[:, i], (x, integers(5, 30)))
    yield Case("index/apart", lambda x, i, j: x[i, :, j], (x, integers(7, 3, 20), integers(6, 20)))
    yield Case("index/mask", lambda x, i: x[i > 2], (x, integers(5, 7, 5)))
    yield Case(
        "index_put",
        lambda x, v, i: x.index_put((i,), v, accumulate=True),
        (x, values, rows),
    )
    yield Case(
        "index_put/broadcast",
        lambda x, v, i: x.index_put((i,), v, accumulate=True),
        (x, floats(6), rows),
    )
    yield Case(
        "index_put/replace",
        lambda x, v, i: x.index_put((i,), v),
        (x, floats(7, 5, 6), torch.arange(7)),
    )
    yield Case(
        "put", lambda x, v, i: x.put(i, v, accumulate=True), (x, floats(90), integers(210, 90))
    )
    yield Case("unfold tensor", lambda x: x.unfold(1, 3, 1), (x,))


def _embedding() -> Iterator[Case]:
    weight = floats(11, 6)
    words = integers(11, 4, 13)
    yield Case("embedding", lambda w, i: F.embedding(i, w), (weight, words))
    yield Case("embedding/padding", lambda w, i: F.embedding(i, w, padding_idx=3), (weight, words))
    yield Case(
        "embedding/frequency",
        lambda w, i: F.embedding(i, w, scale_grad_by_freq=True),
        (weight, words),
    )
    for mode in ("sum", "mean", "max"):
        yield Case(
            f"embedding_bag/{mode}",
            lambda w, i, mode=mode: F.embedding_bag(i, w, mode=mode),
            (weight, words),
        )
        yield Case(
            f"embedding_bag/{mode}/offsets",
            lambda w, i, o, mode=mode: F.embedding_bag(i, w, o, mode=mode, padding_idx=2),
            (weight, integers(11, 30), torch.tensor([0, 7, 7, 19, 28])),
        )
    yield Case(
        "embedding_bag/weights",
        lambda w, s, i, o: F.embedding_bag(
            i, w, o, mode="sum", per_sample_weights=s, include_last_offset=True
        ),
        (weight, floats(30), integers(11, 30), torch.tensor([0, 7, 7, 19, 30])),
    )


def cases() -> list[Case]:
    return [*_pooling(), *_upsampling(), *_indexing(), *_embedding()]
