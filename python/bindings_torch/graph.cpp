// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <limits>
#include <unordered_set>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>  // Node: torch 2.13 moved it to node.h
#include <torch/csrc/autograd/python_variable.h>

#include "libtorch/arithmetic/mode.hpp"

namespace potl_torch {

graph_places places_of(const std::vector<PyObject*>& tensors) {
  std::vector<torch::autograd::Node*> open;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  // Nodes live as long as the tensors do.
  for (PyObject* tensor : tensors) {
    const at::Tensor& value = THPVariable_Unpack(tensor);
    if (value.defined() && value.requires_grad()) {
      visit(torch::autograd::impl::gradient_edge(value).function.get());
    }
  }
  graph_places places;
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
    const std::uint64_t number = node->sequence_nr();
    if (number == std::numeric_limits<std::uint64_t>::max()) continue;  // a leaf's AccumulateGrad
    if (potl::libtorch::dispatch::made_inside(node->thread_id(), number)) {
      ++places.inside;
    } else {
      ++places.outside;
    }
  }
  return places;
}

bool made_here(std::uint64_t number) {
  return potl::libtorch::dispatch::made_inside(at::RecordFunction::currentThreadId(), number);
}

}  // namespace potl_torch
