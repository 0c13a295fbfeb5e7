# SPDX-License-Identifier: Apache-2.0
"""Calls of neural-network operators, for test_neural_operators.py.

Run as a program it prints one digest of the forward and backward bits of all cases.
"""

from __future__ import annotations

import hashlib
import sys

import layer_cases
import numpy as np
import place_cases
import sampling_cases
import sequence_cases
import special_cases
import spectral_cases
import torch
from neural_case import Case
from torch import Tensor

import potl


def cases() -> list[Case]:
    parts = (
        place_cases,
        layer_cases,
        sequence_cases,
        sampling_cases,
        special_cases,
        spectral_cases,
    )
    return [case for part in parts for case in part.cases()]


def run(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """The outputs of a case and the gradients of its floating-point operands."""
    operands = [
        o.to(dtype).requires_grad_() if o.is_floating_point() else o.clone() for o in case.operands
    ]
    results = case.call(*operands)
    outputs = list(results) if isinstance(results, tuple) else [results]
    random = np.random.default_rng(1)
    wanted = [o for o in outputs if o.requires_grad]
    cotangents = [torch.from_numpy(random.standard_normal(o.shape)).to(o.dtype) for o in wanted]
    leaves = [o for o in operands if o.requires_grad]
    gradients = torch.autograd.grad(wanted, leaves, cotangents, allow_unused=True) if wanted else ()
    return [o.detach() for o in outputs] + [g for g in gradients if g is not None]


def digest(mode: str) -> str:
    sha = hashlib.sha256()
    for case in cases():
        for dtype in (torch.float32, torch.float64):
            with potl.deterministic(mode):
                for tensor in run(case, dtype):
                    sha.update(tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(digest(sys.argv[2]))
