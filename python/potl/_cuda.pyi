# SPDX-License-Identifier: Apache-2.0
"""Kernels for CUDA devices, in C++ (python/bindings_cuda); so is the tests' `potl._simulated`."""

def kernels() -> object:
    """What `potl._torch.use_device` takes."""
