// SPDX-License-Identifier: Apache-2.0
// Content roots of torch's tensors where they lie: a transposed matrix is read in the order of its
// elements, chunk by chunk, and not copied first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>

#include <potl/crypto/detail/tensor_digest.hpp>

namespace potl_torch {

/// The content root of the elements of a dense torch.Tensor, in the order of their indices. Needs
/// no lock of the interpreter's.
potl::digest content_root(PyObject* tensor, const potl::content_runner& run);

/// Content roots of memory of a device, hashed there; `places` are addresses and sizes.
std::vector<potl::digest> content_roots_there(
    const std::string& device, const std::vector<std::pair<std::uintptr_t, std::size_t>>& places);

}  // namespace potl_torch
