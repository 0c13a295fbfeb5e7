// SPDX-License-Identifier: Apache-2.0
// Functions of elements and steps of optimizers, run by simulated blocks.
#include <span>
#include <utility>
#include <vector>

#include <potl/numeric/combine.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "elementwise.hpp"
#include "numeric/elementwise/scalars.hpp"
#include "numeric_levels.hpp"
#include "simulated_device.hpp"
#include "update.hpp"

using namespace potl;
using namespace potl::test;
using numeric::gradient;
using numeric::unary;

namespace {

using block = simulated_block<32>;

/// body(block) for each of `blocks`.
template <class Body>
void each_block(std::uint64_t blocks, std::uint64_t order, const Body& body) {
  for (std::uint64_t i = 0; i < blocks; ++i) {
    block one(order % 2 == 0 ? i : blocks - 1 - i, order);
    body(one);
  }
}

template <unary Function, class Real>
void check_one(const std::vector<Real>& x) {
  if constexpr (Function != unary::erfinv) {
    std::vector<Real> wanted, found = x;
    for (const Real value : x) wanted.push_back(evaluate(Function, value));
    // In place.
    simulated_device(3).each(found.size(),
                             cuda::one_operand<Function, Real>{found.data(), found.data()});
    INFO(to_string(Function));
    CHECK(same_bits(found, wanted));
  }
}

template <gradient Function>
void check_slope(const std::vector<float>& dy, const std::vector<float>& x) {
  std::vector<float> wanted, found(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) wanted.push_back(evaluate(Function, dy[i], x[i]));
  simulated_device(4).each(x.size(),
                           cuda::two_operands<Function, float>{dy.data(), x.data(), found.data()});
  INFO(to_string(Function));
  CHECK(same_bits(found, wanted));
}

template <std::size_t Count, class Check>
void for_all(const Check& check) {
  [&]<std::size_t... I>(std::index_sequence<I...>) { (check.template operator()<I>(), ...); }
  (std::make_index_sequence<Count>{});
}

TEST_CASE("simulated functions of elements have the CPU's bits", "[kernels]") {
  constexpr std::size_t functions = static_cast<std::size_t>(unary::mish) + 1;
  const auto floats = hostile<float>(3001, 41);
  const auto doubles = hostile<double>(701, 42);
  for_all<functions>([&]<std::size_t I>() {
    check_one<static_cast<unary>(I)>(floats);
    check_one<static_cast<unary>(I)>(doubles);
  });
  auto dy = hostile<float>(3001, 43);
  std::reverse(dy.begin(), dy.end());
  for_all<static_cast<std::size_t>(gradient::mish) + 1>(
      [&]<std::size_t I>() { check_slope<static_cast<gradient>(I)>(dy, floats); });
}

/// Tensors of every kind of size, and a memory of each kind beside the parameters.
struct parameters {
  std::vector<std::vector<float>> p, g, m, v, u;

  explicit parameters(std::uint64_t seed) {
    const std::size_t piece = cuda::update_piece;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{0}, piece - 1, piece,
                                   piece + 1, 2 * piece + 77, std::size_t{30}, std::size_t{0}}) {
      for (auto* all : {&p, &g, &m, &v, &u}) {
        auto values = hostile<float>(size, ++seed);
        // The hostile ones first; a square is not negative, but may be anything else.
        if (size > 40) std::rotate(values.begin(), values.begin() + 20, values.end());
        values.resize(size);
        if (all == &v || all == &u)
          for (float& x : values) x = std::fabs(x);
        all->push_back(std::move(values));
      }
    }
  }

  cuda::updated_tensors table(std::uint64_t& pieces) {
    cuda::updated_tensors all{};
    pieces = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      all.of[all.count++] = {p[i].data(), g[i].data(), m[i].data(), v[i].data(),
                             u[i].data(), p[i].size(), pieces};
      pieces += (p[i].size() + cuda::update_piece - 1) / cuda::update_piece;
    }
    return all;
  }
};

bool same(const parameters& a, const parameters& b) {
  const auto equal = [](const auto& x, const auto& y) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!same_bits(x[i], y[i])) return false;
    return true;
  };
  return equal(a.p, b.p) && equal(a.m, b.m) && equal(a.v, b.v) && equal(a.u, b.u);
}

TEST_CASE("simulated steps of SGD have the CPU's bits", "[kernels]") {
  for (unsigned flags = 0; flags < 32; ++flags) {
    numeric::sgd_options options{0.1, (flags & 1) != 0 ? 0.9 : 0.0, 0.1,
                                 (flags & 2) != 0 ? 5e-4 : 0.0};
    options.nesterov = (flags & 4) != 0;
    options.maximize = (flags & 8) != 0;
    options.first_step = (flags & 16) != 0;
    parameters found(flags), wanted(flags);
    std::uint64_t pieces = 0;
    const auto table = found.table(pieces);
    auto scalars = numeric::elementwise::scalars_of<float>(options);
    each_block(pieces, flags, [&](block& one) {
      cuda::nothing_shared::memory<block> none;
      cuda::sgd_update<decltype(scalars)>{{}, table, scalars}(one, none);
    });
    for (std::size_t i = 0; i < wanted.p.size(); ++i) {
      sgd(options, std::span(wanted.p[i]), wanted.g[i], wanted.m[i], numeric::inline_executor());
    }
    INFO("flags " << flags);
    CHECK(same(found, wanted));
  }
}

TEST_CASE("simulated steps of Adam have the CPU's bits", "[kernels]") {
  for (unsigned flags = 0; flags < 16; ++flags) {
    numeric::adam_options options{1e-3};
    options.weight_decay = (flags & 1) != 0 ? 0.01 : 0.0;
    options.decoupled_decay = (flags & 2) != 0;
    options.maximize = (flags & 4) != 0;
    options.step = 7;
    const bool amsgrad = (flags & 8) != 0;
    parameters found(flags), wanted(flags);
    std::uint64_t pieces = 0;
    const auto table = found.table(pieces);
    auto scalars = numeric::elementwise::scalars_of<float>(options, amsgrad);
    each_block(pieces, flags, [&](block& one) {
      cuda::nothing_shared::memory<block> none;
      cuda::adam_update<decltype(scalars)>{{}, table, scalars}(one, none);
    });
    for (std::size_t i = 0; i < wanted.p.size(); ++i) {
      adam(options, std::span(wanted.p[i]), wanted.g[i], wanted.m[i], wanted.v[i],
           amsgrad ? std::span(wanted.u[i]) : std::span<float>(), numeric::inline_executor());
    }
    INFO("flags " << flags);
    CHECK(same(found, wanted));
  }
}

}  // namespace
