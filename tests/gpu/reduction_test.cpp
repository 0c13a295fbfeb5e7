// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/cuda/reduction.hpp>
#include <potl/numeric/detail/normalization.hpp>
#include <potl/numeric/detail/softmax.hpp>

#include "catch.hpp"
#include "device_memory.hpp"
#include "gemm_cases.hpp"
#include "numeric_levels.hpp"

using namespace potl;
using numeric::inline_executor;
using numeric::reduction;
using numeric::reduction_shape;
using numbers = std::vector<float>;

namespace {

numbers draw(std::int64_t count, std::uint64_t seed) {
  gemm_cases::source from(seed);
  numbers out(static_cast<std::size_t>(count));
  for (float& x : out) x = static_cast<float>(2 * from.unit() - 1);
  return out;
}

/// The same numbers here and on the device.
struct two_sided {
  explicit two_sided(numbers values) : here(std::move(values)), there(here) {}
  numbers here;
  test::device_memory<float> there;
  bool agree() const { return test::same_bits(here, there.read()); }
};

TEST_CASE("reductions and softmax have the CPU's bits on a device", "[gpu][small]") {
  std::uint64_t seed = 0;
  for (const reduction_shape s : {reduction_shape{3, 1, 1},
                                  {9, 33, 1},
                                  {2, 33, 3},
                                  {1, 64, 130},
                                  {300, 4097, 1},
                                  {1, 20000, 33},
                                  {1, 3'000'000, 1},
                                  {3, 0, 2}}) {
    INFO(s.outer << " x " << s.count << " x " << s.inner);
    const two_sided x(draw(s.outer * s.count * s.inner, ++seed));
    for (const reduction kind : {reduction::sum, reduction::mean, reduction::sum_of_squares,
                                 reduction::norm, reduction::product, reduction::maximum}) {
      if (kind == reduction::maximum && s.count == 0) continue;
      two_sided y(numbers(static_cast<std::size_t>(s.outer * s.inner), 7));
      cuda::reduce(kind, s, x.there.data(), y.there.data(), nullptr);
      reduce(kind, s, x.here.data(), y.here.data(), inline_executor());
      INFO(to_string(kind));
      CHECK(y.agree());
    }
    if (s.inner != 1 || s.count == 0) continue;
    two_sided y(x.here), dx(draw(s.outer * s.count, seed + 100));
    cuda::softmax(s, x.there.data(), y.there.data(), nullptr);
    softmax(s, x.here.data(), y.here.data(), inline_executor());
    CHECK(y.agree());
    cuda::softmax_backward(s, dx.there.data(), y.there.data(), dx.there.data(), nullptr);
    softmax_backward(s, dx.here.data(), y.here.data(), dx.here.data(), inline_executor());
    CHECK(dx.agree());
    cuda::log_softmax(s, x.there.data(), y.there.data(), nullptr);
    log_softmax(s, x.here.data(), y.here.data(), inline_executor());
    CHECK(y.agree());
    cuda::log_softmax_backward(s, dx.there.data(), y.there.data(), dx.there.data(), nullptr);
    log_softmax_backward(s, dx.here.data(), y.here.data(), dx.here.data(), inline_executor());
    CHECK(dx.agree());
  }
}

TEST_CASE("losses have the CPU's bits on a device", "[gpu][small]") {
  const reduction_shape s{500, 11, 3};
  const two_sided x(draw(500 * 11 * 3, 1)), weights(draw(11, 2));
  std::vector<std::int64_t> targets;
  for (std::int64_t i = 0; i < 1500; ++i) targets.push_back(i % 5 == 0 ? -100 : i % 11);
  const test::device_memory<std::int64_t> targets_there(targets);
  two_sided losses(numbers(1500)), used(numbers(1500));
  cuda::nll_losses(s, x.there.data(), targets_there.data(), weights.there.data(), -100,
                   losses.there.data(), used.there.data(), nullptr);
  nll_losses(s, x.here.data(), targets.data(), weights.here.data(), -100, losses.here.data(),
             used.here.data(), inline_executor());
  CHECK((losses.agree() && used.agree()));
}

TEST_CASE("norms have the CPU's bits on a device", "[gpu][small]") {
  std::uint64_t seed = 0;
  for (const auto& [batch, channels, size] :
       std::vector<std::array<std::int64_t, 3>>{{5, 33, 1}, {3, 7, 64}, {300, 16, 49}}) {
    const std::int64_t all = batch * channels * size;
    const auto some = static_cast<std::size_t>(channels);
    const two_sided x(draw(all, ++seed)), weight(draw(channels, seed)), bias(draw(channels, seed));
    INFO(batch << " x " << channels << " x " << size);
    {
      two_sided y(numbers(x.here.size())), mean{numbers(some)}, reciprocal{numbers(some)};
      two_sided dx(draw(all, seed + 9)), dweight{numbers(some)}, dbias{numbers(some)};
      two_sided running_mean(weight.here), running_variance(numbers(some, 1));
      cuda::batch_norm(
          numeric::batch_norm_forward<float>{
              batch, channels, size, 1e-5, 0.1, true, x.there.data(), weight.there.data(),
              bias.there.data(), running_mean.there.data(), running_variance.there.data(),
              y.there.data(), mean.there.data(), reciprocal.there.data()},
          nullptr);
      batch_norm(numeric::batch_norm_forward<float>{batch, channels, size, 1e-5, 0.1, true,
                                                    x.here.data(), weight.here.data(),
                                                    bias.here.data(), running_mean.here.data(),
                                                    running_variance.here.data(), y.here.data(),
                                                    mean.here.data(), reciprocal.here.data()},
                 inline_executor());
      cuda::batch_norm(
          numeric::batch_norm_backward<float>{
              batch, channels, size, true, dx.there.data(), x.there.data(), mean.there.data(),
              reciprocal.there.data(), weight.there.data(), dx.there.data(), dweight.there.data(),
              dbias.there.data()},
          nullptr);
      batch_norm(numeric::batch_norm_backward<float>{batch, channels, size, true, dx.here.data(),
                                                     x.here.data(), mean.here.data(),
                                                     reciprocal.here.data(), weight.here.data(),
                                                     dx.here.data(), dweight.here.data(),
                                                     dbias.here.data()},
                 inline_executor());
      CHECK((y.agree() && running_mean.agree() && running_variance.agree()));
      CHECK((dx.agree() && dweight.agree() && dbias.agree()));
    }
    const std::int64_t rows = batch * size;
    two_sided y(numbers(x.here.size())), mean(numbers(static_cast<std::size_t>(rows)));
    two_sided reciprocal(mean.here), dx(draw(all, seed + 9)), dweight{numbers(some)},
        dbias{numbers(some)};
    cuda::layer_norm(
        numeric::layer_norm_forward<float>{rows, channels, 1e-5, x.there.data(),
                                           weight.there.data(), bias.there.data(), y.there.data(),
                                           mean.there.data(), reciprocal.there.data()},
        nullptr);
    layer_norm(
        numeric::layer_norm_forward<float>{rows, channels, 1e-5, x.here.data(), weight.here.data(),
                                           bias.here.data(), y.here.data(), mean.here.data(),
                                           reciprocal.here.data()},
        inline_executor());
    cuda::layer_norm(
        numeric::layer_norm_backward<float>{rows, channels, dx.there.data(), x.there.data(),
                                            mean.there.data(), reciprocal.there.data(),
                                            weight.there.data(), dx.there.data(),
                                            dweight.there.data(), dbias.there.data()},
        nullptr);
    layer_norm(numeric::layer_norm_backward<float>{rows, channels, dx.here.data(), x.here.data(),
                                                   mean.here.data(), reciprocal.here.data(),
                                                   weight.here.data(), dx.here.data(),
                                                   dweight.here.data(), dbias.here.data()},
               inline_executor());
    CHECK((y.agree() && dx.agree() && dweight.agree() && dbias.agree()));
  }
}

TEST_CASE("what a device cannot reduce is refused", "[gpu][small]") {
  float x = 0;
  CHECK_THROWS_AS(cuda::reduce(reduction::minimum, {1, 1, 1}, &x, &x, nullptr), exception);
  CHECK_THROWS_AS(cuda::softmax({1, 1, 2}, &x, &x, nullptr), exception);
}

}  // namespace
