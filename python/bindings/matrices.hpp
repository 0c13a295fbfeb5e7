// SPDX-License-Identifier: Apache-2.0
// Matrices and pools of threads as Python hands them over.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>

#include "bindings.hpp"

namespace potl::python {

/// A pool, or nothing for the calling thread alone.
struct thread_pool {
  explicit thread_pool(std::size_t threads) : pool(numeric::make_thread_pool(threads)) {}
  std::unique_ptr<numeric::executor> pool;
};

inline const numeric::executor& threads_of(const thread_pool* pool) {
  return pool == nullptr ? numeric::inline_executor() : *pool->pool;
}

/// A view of a two-dimensional buffer, any strides.
template <class Element>
numeric::matrix<Element> matrix_of(const py::buffer_info& info) {
  using value = std::remove_const_t<Element>;
  const auto size = static_cast<py::ssize_t>(sizeof(value));
  const bool fits = info.ndim == 2 && info.item_type_is_equivalent_to<value>() &&
                    info.strides[0] % size == 0 && info.strides[1] % size == 0;
  if (!fits) {
    throw exception({errc::usage,
                     "an operand is not a matrix of " + py::format_descriptor<value>::format(),
                     "pass two-dimensional buffers of one type, float32 or float64"});
  }
  return {static_cast<Element*>(info.ptr), info.shape[0], info.shape[1], info.strides[0] / size,
          info.strides[1] / size};
}

}  // namespace potl::python
