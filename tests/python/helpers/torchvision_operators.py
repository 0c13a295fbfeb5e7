# SPDX-License-Identifier: Apache-2.0
"""Operators of torchvision, declared as it declares them where it is not installed."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch

import potl

_POOLED = "SymInt pooled_height, SymInt pooled_width"
_IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORMED = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, float spatial_scale, {_POOLED}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, {_POOLED}, {_IMAGE}, "
    "int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, float spatial_scale, {_POOLED}) -> (Tensor, Tensor)",
    f"deform_conv2d({_DEFORMED}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORMED}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@contextlib.contextmanager
def declared() -> Iterator[None]:
    """After potl has registered its kernels, as in a program that imports torchvision late."""
    with potl.deterministic():
        pass
    if importlib.util.find_spec("torchvision") is not None:
        import torchvision  # noqa: F401

        yield
        return
    with torch.library._scoped_library("torchvision", "DEF") as library:
        for schema in _SCHEMAS:
            library.define(schema)
        yield


def call(name: str, *arguments: Any) -> Any:
    with potl.deterministic():
        return getattr(torch.ops.torchvision, name)(*arguments)
