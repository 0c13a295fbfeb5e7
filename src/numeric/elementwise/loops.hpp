// SPDX-License-Identifier: Apache-2.0
// Functions of lanes over contiguous elements.
#pragma once

#include "kernels.hpp"
#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {

/// function(in, out) for each vector of elements; `out` arrays are written and, where `reads`,
/// read. Elements behind the last whole vector are a vector of fewer lanes: a lane does not
/// see its neighbours.
template <class R, std::size_t In, std::size_t Out, std::size_t Steps = 1, class Function>
POTL_INLINE void for_lanes(std::size_t count, const stream<typename R::element>* in,
                           typename R::element* const* out, bool reads, const Function& function) {
  using Real = typename R::element;
  constexpr std::size_t lanes = R::lanes;
  Real repeated[In][lanes];
  const Real* from[In];
  for (std::size_t k = 0; k < In; ++k) {
    from[k] = in[k].data;
    if (in[k].step != 0) continue;
    for (Real& element : repeated[k]) element = *in[k].data;
    from[k] = repeated[k];
  }
  std::size_t i = 0;
  R values[In], results[Out];
  const auto whole = [&](std::size_t at) {
    for (std::size_t k = 0; k < In; ++k) values[k] = R::load(from[k] + at * in[k].step);
    for (std::size_t k = 0; reads && k < Out; ++k) results[k] = R::load(out[k] + at);
    function(values, results);
    for (std::size_t k = 0; k < Out; ++k) results[k].store(out[k] + at);
  };
  if constexpr (Steps > 1) {
    // What computes little waits for the second cache, for lines to write as for those to read.
    constexpr std::size_t read_ahead = 256, write_ahead = 128;
    const auto fetch = [&](std::size_t at) {
      for (std::size_t k = 0; k < In; ++k)
        __builtin_prefetch(from[k] + (at + read_ahead) * in[k].step, 0);
      for (std::size_t k = 0; k < Out; ++k) __builtin_prefetch(out[k] + at + write_ahead, 1);
    };
    for (; i + Steps * lanes <= count; i += Steps * lanes) {
      for (std::size_t step = 0; step < Steps; ++step) fetch(i + step * lanes);
      for (std::size_t step = 0; step < Steps; ++step) whole(i + step * lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) whole(i);
  if (i == count) return;
  const std::size_t rest = count - i;
  for (std::size_t k = 0; k < In; ++k) values[k] = R::load_first(from[k] + i * in[k].step, rest);
  for (std::size_t k = 0; reads && k < Out; ++k) results[k] = R::load_first(out[k] + i, rest);
  function(values, results);
  for (std::size_t k = 0; k < Out; ++k) results[k].store_first(out[k] + i, rest);
}

template <class R, std::size_t Steps = 1, class Function>
POTL_INLINE void map(const typename R::element* x, typename R::element* y, std::size_t count,
                     const Function& function) {
  const stream<typename R::element> in[] = {{x, 1}};
  for_lanes<R, 1, 1, Steps>(count, in, &y, false, [&](const R* a, R* b) { b[0] = function(a[0]); });
}
template <class R, class Function>
POTL_INLINE void map(stream<typename R::element> x, stream<typename R::element> y,
                     typename R::element* out, std::size_t count, const Function& function) {
  const stream<typename R::element> in[] = {x, y};
  for_lanes<R, 2, 1>(count, in, &out, false,
                     [&](const R* a, R* b) { b[0] = function(a[0], a[1]); });
}

}  // namespace
}  // namespace potl::numeric::elementwise
