# SPDX-License-Identifier: Apache-2.0
"""Settings of torch that say how a device computes: a program sets them for itself, and another
program that repeats a step has to have the same.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping

import torch

from .. import _core

# Below torch.backends; where "float32" may be computed in less, which torch calls fp32_precision.
_BACKENDS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "mkldnn.matmul.fp32_precision",
        "mkldnn.conv.fp32_precision",
        "mkldnn.rnn.fp32_precision",
    ),
    "cuda": (
        "cuda.matmul.fp32_precision",
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_bf16_reduced_precision_reduction",
        "cudnn.enabled",
        "cudnn.benchmark",
        "cudnn.deterministic",
        "cudnn.conv.fp32_precision",
        "cudnn.rnn.fp32_precision",
    ),
}
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def settings(device: str) -> dict[str, _core.Json]:
    """What is set for a type of device; nothing for those that potl does not know."""
    found: dict[str, _core.Json] = {}
    for name in _BACKENDS.get(device, ()):
        value = operator.attrgetter(name)(torch.backends)
        # Nobody has set it: then it is IEEE's.
        found[f"torch.backends.{name}"] = "ieee" if value == "none" else value
    if device == "cuda":
        found["torch.use_deterministic_algorithms"] = torch.get_deterministic_debug_mode() != 0
        found[_WORKSPACE] = os.environ.get(_WORKSPACE)
    return found


def setting_differences(agreed: object, own: object) -> Iterator[str]:
    """One sentence for each setting that is not the agreed one, of the devices that both name: who
    repeats on another kind of device has that one's settings.
    """
    for device, name, value in _each(own):
        for its_device, its_name, its_value in _each(agreed):
            if (device, name) == (its_device, its_name) and value != its_value:
                yield f"{name} is {value!r}, agreed was {its_value!r}: set it before potl begins"


def _each(all_settings: object) -> Iterator[tuple[str, str, object]]:
    for device, its in all_settings.items() if isinstance(all_settings, Mapping) else ():
        for name, value in its.items() if isinstance(its, Mapping) else ():
            yield device, name, value
