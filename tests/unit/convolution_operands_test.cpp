// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <utility>
#include <vector>

#include <potl/numeric/detail/convolution_operands.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "convolution_reference.hpp"

using namespace convolutions;
using namespace potl::numeric;

namespace {

// Strides that do not divide, padding, dilation, groups, one to three dimensions.
std::vector<convolution> geometries() {
  return {square(2, 4, 6, 9, 3, 2, 2),
          square(1, 3, 2, 7, 3, 1),
          {2, 4, 4, 4, {1, 8, 5}, {1, 3, 2}, {1, 3, 2}, {0, 2, 1}, {1, 2, 1}},
          {1, 2, 4, 2, {4, 5, 6}, {2, 3, 2}, {2, 1, 3}, {1, 1, 0}, {1, 1, 2}},
          {3, 2, 5, 1, {1, 1, 11}, {1, 1, 4}, {1, 1, 2}, {0, 0, 3}, {1, 1, 1}}};
}

reference::terms terms_of(const element_operands& operands, std::size_t index) {
  std::vector<float> a{9}, b;  // what is there before is replaced
  operands(index, a, b);
  REQUIRE(a.size() == b.size());
  reference::terms out;
  for (std::size_t k = 0; k < a.size(); ++k) out.emplace_back(a[k], b[k]);
  return out;
}

}  // namespace

TEST_CASE("the operands of an element are the terms of its chain, in order", "[convolution]") {
  std::mt19937 generator(91);
  for (const convolution& g : geometries()) {
    INFO(text(g));
    const operands in(g, inputs::random, generator);
    std::vector<float> y(in.dy.size()), dx(in.x.size()), dw(in.w.size());
    const executor& one = inline_executor();
    convolve(arithmetic::ord32, g, in.x.data(), in.w.data(), y.data(), one);
    convolve_input_gradient(arithmetic::ord32, g, in.dy.data(), in.w.data(), dx.data(), one);
    convolve_weight_gradient(arithmetic::ord32, g, in.x.data(), in.dy.data(), dw.data(), one);
    const auto equal = [](const std::vector<float>& results, const element_operands& from) {
      std::vector<float> own;
      for (std::size_t i = 0; i < results.size(); ++i) {
        own.push_back(reference::ord32(terms_of(from, i)));
      }
      return same_bits(results, own);
    };
    CHECK(equal(y, convolution_operands(g, in.x.data(), in.w.data())));
    CHECK(equal(dx, input_gradient_operands(g, in.dy.data(), in.w.data())));
    CHECK(equal(dw, weight_gradient_operands(g, in.x.data(), in.dy.data())));
  }
}

TEST_CASE("an auditor follows the log of convolutions to the same bits", "[convolution]") {
  std::mt19937 generator(92);
  std::uint64_t corrections = 0, entries = 0;
  for (int trial = 0; trial < 20; ++trial) {
    for (const convolution& g :
         {square(2, 4, 4, 12, 3, 1), square(3, 3, 4, 13, 4, 2),
          convolution{1, 8, 6, 2, {5, 6, 7}, {2, 3, 2}, {1, 2, 1}, {1, 1, 0}, {1, 1, 2}}}) {
      INFO(text(g));
      const operands in(g, inputs::random, generator);
      // The first two channels of each group are high and cancel, with the same weights: errors of
      // rounding are large beside what is left.
      auto x = in.x, w = in.w, dy = in.dy;
      const auto cancel = [](std::vector<float>& all, std::int64_t plane, std::int64_t channels) {
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(all.size()); ++i) {
          const std::int64_t channel = i / plane % channels;
          float& one = all[static_cast<std::size_t>(i)];
          if (channel == 0) one *= 0x1p15F;
          if (channel == 1) one = -all[static_cast<std::size_t>(i - plane)];
        }
      };
      const std::int64_t inner = g.in_channels / g.groups, rows = g.out_channels / g.groups;
      cancel(x, size_of(g.input), inner);
      cancel(dy, size_of(g.output()), rows);
      const std::int64_t taps = size_of(g.kernel);
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(w.size()); ++i) {
        std::int64_t from = i;
        if (from / taps % inner == 1) from -= taps;
        if (from / taps / inner % rows == 1) from -= taps * inner;
        w[static_cast<std::size_t>(i)] = w[static_cast<std::size_t>(from)];
      }
      const auto run = [&](rounding_session& session) {
        std::vector<float> y(dy.size()), dx(x.size()), dw(w.size());
        const log64_options options{session.bits(), session.order()};
        const executor& one = inline_executor();
        const auto ty = convolve_log64(g, x.data(), w.data(), y.data(), options, one);
        session.apply("conv", y, ty, convolution_operands(g, x.data(), w.data()));
        const auto tx =
            convolve_input_gradient_log64(g, dy.data(), w.data(), dx.data(), options, one);
        session.apply("conv_input", dx, tx, input_gradient_operands(g, dy.data(), w.data()));
        const auto tw =
            convolve_weight_gradient_log64(g, x.data(), dy.data(), dw.data(), options, one);
        session.apply("conv_weight", dw, tw, weight_gradient_operands(g, x.data(), dy.data()));
        y.insert(y.end(), dx.begin(), dx.end());
        y.insert(y.end(), dw.begin(), dw.end());
        return y;
      };
      rounding_session trainer({log_role::trainer, 32, 0});
      trainer.begin_step(1);
      const auto ours = run(trainer);
      const step_log log = trainer.end_step();
      rounding_session auditor({log_role::auditor, 32, 3});
      auditor.begin_step(1, log.bytes, log.content);
      const auto theirs = run(auditor);
      const step_audit audit = auditor.end_audit();
      CHECK(audit.accepted());
      CHECK(same_bits(ours, theirs));
      corrections += audit.corrections;
      entries += log.entries;
    }
  }
  INFO(corrections << " corrections, " << entries << " entries");
  CHECK(entries > 100);
  CHECK(corrections > 0);
}
