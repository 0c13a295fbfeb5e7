// SPDX-License-Identifier: Apache-2.0
// One step of an LSTM and its gradient, in one pass over the cells: the functions of
// numeric/elementwise.hpp between products and sums that are rounded each.
//
// Claims, costs and rules for memory as in numeric/elementwise.hpp.
#pragma once

#include <cstdint>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// A step. Gates are [batch][4][hidden] before their functions: input, forget, cell and output
/// gate, of which the cell gate has tanh and the others sigmoid.
template <class Real>
struct lstm_step {
  std::int64_t batch = 0, hidden = 0;
  const Real* of_state = nullptr;  ///< gates, to which those of the input are added
  const Real* of_input = nullptr;
  const Real* before = nullptr;  ///< cells [batch][hidden] before the step
  Real* parts = nullptr;         ///< [5][batch][hidden]: gates, and forget before + in cell
  Real* h = nullptr;             ///< out tanh(cells behind the step)
};
/// Computes `parts` and `h`.
void lstm(const lstm_step<float>& step, const executor& workers);
void lstm(const lstm_step<double>& step, const executor& workers);

/// The gradient of a step. Gradients that are absent are null, and add nothing.
template <class Real>
struct lstm_slope {
  std::int64_t batch = 0, hidden = 0;
  const Real* d_output = nullptr;  ///< of h, by what uses it outside
  const Real* dh = nullptr;        ///< of h, by the next step
  const Real* dc = nullptr;        ///< of the cells behind the step
  const Real* parts = nullptr;
  const Real* before = nullptr;
  Real* d_gates = nullptr;    ///< [batch][4][hidden]
  Real* dc_before = nullptr;  ///< of the cells before the step; dc may be the same memory
};
/// Computes `d_gates` and `dc_before`.
void lstm(const lstm_slope<float>& slope, const executor& workers);
void lstm(const lstm_slope<double>& slope, const executor& workers);

}  // namespace potl::numeric
