// SPDX-License-Identifier: Apache-2.0
#include "freivalds_adam.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <potl/numeric/detail/projection.hpp>

namespace potl::checks::freivalds_detail {
namespace {

constexpr double unit = unit_of<float>;

}  // namespace

adam_columns::adam_columns(const segment_state& start, const segment_optimizer& optimizer,
                           std::int64_t count, probes& random)
    : of_(optimizer), rows_(start.weights.rows), done_(optimizer.steps_before) {
  std::vector<double> order(static_cast<std::size_t>(start.weights.columns));
  if (count > 0) random.draw(order);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto largest = std::max_element(order.begin(), order.end());
    chosen_.push_back(largest - order.begin());
    *largest = -std::numeric_limits<double>::infinity();
  }
  cells_.resize(chosen_.size() * static_cast<std::size_t>(rows_));
  for (std::size_t at = 0; at < cells_.size(); ++at) {
    const auto value = [&](const numeric::matrix<const float>& m) {
      return m.data == nullptr ? 0.0 : static_cast<double>(m(row_of(at), column_of(at)));
    };
    cells_[at].w = value(start.weights);
    cells_[at].m = value(start.first);
    cells_[at].v = value(start.second);
  }
}

void adam_columns::step(const segment_step& step, const numeric::executor& threads) {
  ++done_;
  const double left1 = 1 - std::pow(of_.beta1, static_cast<double>(done_));
  const double left2 = 1 - std::pow(of_.beta2, static_cast<double>(done_));
  const double error = gamma(static_cast<double>(step.b.rows) + 2, unit);
  std::vector<double> b(static_cast<std::size_t>(step.b.rows)), size(b.size());
  std::vector<double> g(static_cast<std::size_t>(rows_)), terms(g.size());
  for (std::size_t at = 0; at < chosen_.size(); ++at) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      b[k] = static_cast<double>(step.b(static_cast<std::int64_t>(k), chosen_[at]));
      size[k] = std::fabs(b[k]);
    }
    numeric::project(step.a, {b.data(), g.data(), 1, nullptr, size.data(), terms.data()}, threads);
    for (std::size_t row = 0; row < g.size(); ++row) {
      const double most = std::fabs(step.scale) * terms[row];
      update(cells_[at * g.size() + row], step.scale * g[row], error * most, step.rate, left1,
             left2);
    }
  }
}

// torch.optim.AdamW: decay, moments, then m / left1 over sqrt(v / left2) + epsilon. float32 makes
// fewer than eight roundings of each of these.
void adam_columns::update(cell& one, double g, double g_error, double rate, double left1,
                          double left2) const noexcept {
  one.w_error += 2 * unit * std::fabs(one.w);
  one.w *= 1 - rate * of_.weight_decay;
  one.m = of_.beta1 * one.m + (1 - of_.beta1) * g;
  one.m_error = of_.beta1 * one.m_error + (1 - of_.beta1) * g_error +
                4 * unit * (std::fabs(one.m) + (1 - of_.beta1) * std::fabs(g));
  one.v = of_.beta2 * one.v + (1 - of_.beta2) * g * g;
  one.v_error = of_.beta2 * one.v_error + (1 - of_.beta2) * g_error * (2 * std::fabs(g) + g_error) +
                4 * unit * one.v + 0x1p-126;
  const double root = std::sqrt(one.v / left2) + of_.epsilon;
  const double low = std::sqrt(std::max(0.0, one.v - one.v_error) / left2) + of_.epsilon;
  const double high = std::sqrt((one.v + one.v_error) / left2) + of_.epsilon;
  const double value = one.m == 0 ? 0 : one.m / left1 / root;
  const double most = (std::fabs(one.m) + one.m_error) / left1 / low;
  const double least = std::max(0.0, std::fabs(one.m) - one.m_error) / left1 / high;
  const double off = std::max(most - std::fabs(value), std::fabs(value) - least);
  one.w -= rate * value;
  one.w_error += rate * (off + 8 * unit * most) + unit * std::fabs(one.w);
}

freivalds_result adam_columns::compare_weights(const numeric::matrix<const float>& end) const {
  return compare(end, [](const cell& one) {
    return bounded{one.w, one.w_error, std::fabs(one.w)};
  });
}

freivalds_result adam_columns::compare_second(const numeric::matrix<const float>& end) const {
  return compare(end, [](const cell& one) { return bounded{one.v, one.v_error, one.v}; });
}

freivalds_result adam_columns::compare(const numeric::matrix<const float>& end,
                                       const std::function<bounded(const cell&)>& of) const {
  comparison compared({});
  for (std::size_t at = 0; at < cells_.size(); ++at) {
    const bounded what = of(cells_[at]);
    const double off = static_cast<double>(end(row_of(at), column_of(at))) - what.value;
    compared.add(row_of(at), off, what.error, what.error, what.size);
  }
  return compared.finish(0);
}

}  // namespace potl::checks::freivalds_detail
