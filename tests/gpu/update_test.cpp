// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <span>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/cuda/update.hpp>

#include "catch.hpp"
#include "device_memory.hpp"
#include "numeric_levels.hpp"

using namespace potl;

namespace {

/// The same numbers here and on the device.
struct two_sided {
  explicit two_sided(std::vector<float> values) : here(std::move(values)), there(here) {}
  std::vector<float> here;
  test::device_memory<float> there;
  bool agree() const { return test::same_bits(here, there.read()); }
};
struct parameter {
  explicit parameter(std::uint64_t seed)
      : p(test::hostile<float>(seed * 97 % 3001, seed)),
        g(test::hostile<float>(seed * 97 % 3001, seed + 1)),
        m(test::hostile<float>(seed * 97 % 3001, seed + 2)),
        v(test::hostile<float>(seed * 97 % 3001, seed + 3)) {}
  two_sided p, g, m, v;
};
std::vector<std::unique_ptr<parameter>> some_parameters() {
  std::vector<std::unique_ptr<parameter>> all;
  for (std::uint64_t i = 0; i < 150; ++i) all.push_back(std::make_unique<parameter>(i));
  return all;
}

TEST_CASE("steps of optimizers have the CPU's bits on a device", "[gpu][small]") {
  const auto all = some_parameters();
  const numeric::sgd_options sgd_options{0.1, 0.9, 0.0, 5e-4, true};
  numeric::adam_options adam_options{1e-3};
  adam_options.weight_decay = 0.01;
  adam_options.decoupled_decay = true;
  std::vector<cuda::sgd_tensor> sgd_tensors;
  std::vector<cuda::adam_tensor> adam_tensors;
  for (const auto& one : all) {
    const std::size_t count = one->p.here.size();
    sgd_tensors.push_back({one->p.there.data(), one->g.there.data(), one->m.there.data(), count});
    adam_tensors.push_back({one->p.there.data(), one->g.there.data(), one->m.there.data(),
                            one->v.there.data(), nullptr, count});
  }
  cuda::sgd(sgd_options, sgd_tensors, nullptr);
  cuda::adam(adam_options, adam_tensors, nullptr);
  for (const auto& one : all) {
    const std::span<float> p(one->p.here), m(one->m.here), v(one->v.here);
    sgd(sgd_options, p, one->g.here, m, numeric::inline_executor());
    adam(adam_options, p, one->g.here, m, v, std::span<float>(), numeric::inline_executor());
    REQUIRE((one->p.agree() && one->m.agree() && one->v.agree()));
  }
}

TEST_CASE("a step whose memory is missing is refused", "[gpu][small]") {
  float x = 0;
  const cuda::sgd_tensor bare{&x, &x, nullptr, 1};
  CHECK_THROWS_AS(cuda::sgd({0.1, 0.9}, {&bare, 1}, nullptr), exception);
  const cuda::adam_tensor tensors[] = {{&x, &x, &x, &x, &x, 1}, {&x, &x, &x, &x, nullptr, 1}};
  CHECK_THROWS_AS(cuda::adam({}, tensors, nullptr), exception);
}

}  // namespace
