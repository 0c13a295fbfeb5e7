// SPDX-License-Identifier: Apache-2.0
// Where the autograd graph of a tensor was made.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace potl_torch {

/// How many nodes of the graphs that end in these tensors (objects of torch.Tensor, borrowed) were
/// made inside and outside of blocks. Leaves have no place.
struct graph_places {
  std::size_t inside = 0;
  std::size_t outside = 0;
};

graph_places places_of(const std::vector<PyObject*>& tensors);

/// Whether this thread made the node with that number inside of a block.
bool made_here(std::uint64_t number);

}  // namespace potl_torch
