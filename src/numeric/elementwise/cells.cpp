// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/cells.hpp>

#include "kernels.hpp"
#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

/// What a task is worth: a cell has four gates with functions.
constexpr std::int64_t cost_of_a_cell = 16;

template <class Cells, class Kernel>
void for_samples(const Cells& of, Kernel kernel, const executor& workers) {
  for_ranges(workers, of.batch, cost_of_a_cell * of.hidden,
             [&](std::int64_t begin, std::int64_t end) {
               kernel(of, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
             });
}

}  // namespace

void lstm(const lstm_step<float>& step, const executor& workers) {
  for_samples(step, elementwise::active<float>().lstm, workers);
}
void lstm(const lstm_step<double>& step, const executor& workers) {
  for_samples(step, elementwise::active<double>().lstm, workers);
}
void lstm(const lstm_slope<float>& slope, const executor& workers) {
  for_samples(slope, elementwise::active<float>().lstm_gradient, workers);
}
void lstm(const lstm_slope<double>& slope, const executor& workers) {
  for_samples(slope, elementwise::active<double>().lstm_gradient, workers);
}

}  // namespace potl::numeric
