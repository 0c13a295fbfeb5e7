// SPDX-License-Identifier: Apache-2.0
// Steps of an LSTM against the same functions, products and sums one after the other.
#include <potl/numeric/detail/cells.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

constexpr std::size_t batch = 3, hidden = 37, cells = batch * hidden;

template <class Real>
Real canonical(Real x) {
  return std::isnan(x) ? std::numeric_limits<Real>::quiet_NaN() : x;
}

template <class Real>
std::vector<Real> numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::normal_distribution<double> normal(0, 2);
  std::vector<Real> x(count);
  for (Real& one : x) one = static_cast<Real>(normal(draw));
  x[0] = Real(-0.0);
  x[1] = 0;
  x[2] = Real(1e4);
  x[3] = Real(-1e4);
  x[5] = std::numeric_limits<Real>::denorm_min();
  // At other places for each seed, so that they meet numbers and each other.
  x[6 + seed] = x[count - seed] = std::numeric_limits<Real>::infinity();
  x[20] = -std::numeric_limits<Real>::infinity();
  x[21] = -std::numeric_limits<Real>::quiet_NaN();
  return x;
}

template <class Real>
struct step_of {
  std::vector<Real> parts = std::vector<Real>(5 * cells), h = std::vector<Real>(cells);
};

template <class Real>
step_of<Real> one_by_one(const std::vector<Real>& of_state, const std::vector<Real>& of_input,
                         const std::vector<Real>& before) {
  step_of<Real> out;
  for (std::size_t i = 0; i < cells; ++i) {
    const std::size_t at = i / hidden * 4 * hidden + i % hidden;
    Real gates[4];
    for (std::size_t gate = 0; gate < 4; ++gate) {
      const Real sum = of_state[at + gate * hidden] + of_input[at + gate * hidden];
      gates[gate] = evaluate(gate == 2 ? unary::tanh : unary::sigmoid, sum);
      out.parts[gate * cells + i] = gates[gate];
    }
    const Real kept = gates[1] * before[i], added = gates[0] * gates[2];
    const Real cell = out.parts[4 * cells + i] = canonical(kept + added);
    out.h[i] = canonical(gates[3] * evaluate(unary::tanh, cell));
  }
  return out;
}

template <class Real>
void step_check() {
  const auto s = numbers<Real>(4 * cells, 1), x = numbers<Real>(4 * cells, 2);
  const auto c = numbers<Real>(cells, 3);
  const step_of<Real> want = one_by_one(s, x, c);
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level));
    const guarded of_state(s, at), of_input(x, at), before(c, at);
    guarded<Real> parts(5 * cells, at), h(cells, at);
    lstm(lstm_step<Real>{batch, hidden, of_state.data(), of_input.data(), before.data(),
                         parts.data(), h.data()},
         inline_executor());
    CHECK(same_bits(parts, want.parts));
    CHECK(same_bits(h, want.h));
  });
}

/// Which gradients there are, by bits: of the output, of h and of the cells.
template <class Real>
void slope_check(unsigned given) {
  const auto s = numbers<Real>(4 * cells, 4), c = numbers<Real>(cells, 5);
  const std::vector<Real> forward = one_by_one(s, s, c).parts;
  const auto d_output = numbers<Real>(cells, 6), dh = numbers<Real>(cells, 7);
  const auto dc = numbers<Real>(cells, 8);
  std::vector<Real> d_gates(4 * cells), dc_before(cells);
  for (std::size_t i = 0; i < cells; ++i) {
    const auto part = [&](std::size_t k) { return forward[k * cells + i]; };
    const Real state = evaluate(unary::tanh, part(4));
    Real slope = (given & 4) != 0 ? dc[i] : Real(0), of_out = 0;
    if ((given & 3) != 0) {
      const Real sum = (given & 3) == 3   ? d_output[i] + dh[i]
                       : (given & 1) != 0 ? d_output[i]
                                          : dh[i];
      of_out = sum * state;
      const Real more = evaluate(gradient::tanh, sum * part(3), state);
      slope = (given & 4) != 0 ? slope + more : more;
    }
    Real* const d = &d_gates[i / hidden * 4 * hidden + i % hidden];
    d[0] = evaluate(gradient::sigmoid, slope * part(2), part(0));
    d[hidden] = evaluate(gradient::sigmoid, slope * c[i], part(1));
    d[2 * hidden] = evaluate(gradient::tanh, slope * part(0), part(2));
    d[3 * hidden] = evaluate(gradient::sigmoid, of_out, part(3));
    dc_before[i] = canonical(slope * part(1));
  }
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level) << " given " << given);
    const guarded out(d_output, at), h(dh, at), parts(forward, at), before(c, at);
    guarded<Real> gates(4 * cells, at), cell(dc, at);
    lstm(lstm_slope<Real>{batch, hidden, (given & 1) != 0 ? out.data() : nullptr,
                          (given & 2) != 0 ? h.data() : nullptr,
                          (given & 4) != 0 ? cell.data() : nullptr, parts.data(), before.data(),
                          gates.data(), cell.data()},
         inline_executor());
    CHECK(same_bits(gates, d_gates));
    CHECK(same_bits(cell, dc_before));
  });
}

}  // namespace

TEST_CASE("a step of an LSTM is its operators", "[cells]") {
  step_check<float>();
  step_check<double>();
}

TEST_CASE("the gradient of a step is its operators, whichever gradients there are", "[cells]") {
  for (unsigned given = 0; given < 8; ++given) {
    slope_check<float>(given);
    slope_check<double>(given);
  }
}
