// SPDX-License-Identifier: Apache-2.0
// Content roots of torch's tensors where they lie: a transposed matrix is read in the order of its
// elements, chunk by chunk, and not copied first.
#pragma once

#include <Python.h>

#include <potl/crypto/detail/tensor_digest.hpp>

namespace potl_torch {

/// The content root of the elements of a dense torch.Tensor, in the order of their indices. Needs
/// no lock of the interpreter's.
potl::digest content_root(PyObject* tensor, const potl::content_runner& run);

}  // namespace potl_torch
