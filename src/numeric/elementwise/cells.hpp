// SPDX-License-Identifier: Apache-2.0
// Steps of an LSTM (numeric/detail/cells.hpp) for any form of lanes.
#pragma once

#include "functions.hpp"
#include "loops.hpp"

namespace potl::numeric::elementwise {
namespace {

/// Of samples [first, last).
template <class R>
void lstm_loop(const lstm_step<typename R::element>& step, std::size_t first, std::size_t last) {
  using Real = typename R::element;
  const auto hidden = static_cast<std::size_t>(step.hidden);
  const std::size_t part = static_cast<std::size_t>(step.batch) * hidden;
  for (std::size_t sample = first; sample < last; ++sample) {
    const std::size_t at = sample * hidden;
    const Real *s = step.of_state + 4 * at, *x = step.of_input + 4 * at;
    const stream<Real> in[] = {{s, 1},
                               {x, 1},
                               {s + hidden, 1},
                               {x + hidden, 1},
                               {s + 2 * hidden, 1},
                               {x + 2 * hidden, 1},
                               {s + 3 * hidden, 1},
                               {x + 3 * hidden, 1},
                               {step.before + at, 1}};
    Real* const p = step.parts + at;
    Real* const out[] = {p, p + part, p + 2 * part, p + 3 * part, p + 4 * part, step.h + at};
    for_lanes<R, 9, 6>(hidden, in, out, false, [](const R* v, R* y) {
      y[0] = compute<unary::sigmoid>(v[0] + v[1]);
      y[1] = compute<unary::sigmoid>(v[2] + v[3]);
      y[2] = compute<unary::tanh>(v[4] + v[5]);
      y[3] = compute<unary::sigmoid>(v[6] + v[7]);
      y[4] = canonical(y[1] * v[8] + y[0] * y[2]);
      y[5] = canonical(y[3] * compute<unary::tanh>(y[4]));
    });
  }
}

template <class R>
void lstm_slope_loop(const lstm_slope<typename R::element>& slope, std::size_t first,
                     std::size_t last) {
  using Real = typename R::element;
  const auto hidden = static_cast<std::size_t>(slope.hidden);
  const std::size_t part = static_cast<std::size_t>(slope.batch) * hidden;
  const bool flows = slope.d_output != nullptr || slope.dh != nullptr;
  // Adding -0 changes nothing. A gradient of which nothing comes is +0.
  const Real absent = flows ? Real{-0.0} : Real{0};
  const auto from = [&](const Real* values, std::size_t at) {
    return values == nullptr ? stream<Real>{&absent, 0} : stream<Real>{values + at, 1};
  };
  for (std::size_t sample = first; sample < last; ++sample) {
    const std::size_t at = sample * hidden;
    const Real* const p = slope.parts + at;
    const stream<Real> in[] = {from(slope.d_output, at),
                               from(slope.dh, at),
                               from(slope.dc, at),
                               {p, 1},
                               {p + part, 1},
                               {p + 2 * part, 1},
                               {p + 3 * part, 1},
                               {p + 4 * part, 1},
                               {slope.before + at, 1}};
    Real* const d = slope.d_gates + 4 * at;
    Real* const out[] = {d, d + hidden, d + 2 * hidden, d + 3 * hidden, slope.dc_before + at};
    for_lanes<R, 9, 5>(hidden, in, out, false, [flows](const R* v, R* y) {
      const R &input = v[3], &forget = v[4], &cell = v[5], &output = v[6];
      R dc = v[2], d_output = constant<R>(0.0);
      if (flows) {
        const R state = compute<unary::tanh>(v[7]), dh = v[0] + v[1];
        d_output = dh * state;
        dc = dc + compute<gradient::tanh>(dh * output, state);
      }
      y[0] = compute<gradient::sigmoid>(dc * cell, input);
      y[1] = compute<gradient::sigmoid>(dc * v[8], forget);
      y[2] = compute<gradient::tanh>(dc * input, cell);
      y[3] = compute<gradient::sigmoid>(d_output, output);
      y[4] = canonical(dc * forget);
    });
  }
}

}  // namespace
}  // namespace potl::numeric::elementwise
