// SPDX-License-Identifier: Apache-2.0
// Convolutions of every mode equal their definition at every level of the instruction set, with any
// number of threads; one digest per mode and direction over all cases. POTL_FULL=1 draws 300 shapes
// per mode. log64 has tests of its own: it reports where two orders may differ.
#include <array>
#include <memory>

#include <potl/crypto/hasher.hpp>
#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/isa.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "convolution_reference.hpp"
#include "long_tests.hpp"
#include "numeric_levels.hpp"

using namespace convolutions;
using namespace potl::numeric;
using potl::test::at_each_level;
using potl::test::is_full;

namespace {

void add(potl::sha256& hash, const std::vector<float>& values) {
  hash.update({reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * 4});
}

using digests = std::array<std::string, 3>;  // forward, gradient of the input, of the weights

digests digests_of_cases(arithmetic mode) {
  std::vector<std::unique_ptr<executor>> pools;
  for (const std::size_t threads : {1U, 2U, 3U, 4U, 7U, 8U})
    pools.push_back(make_thread_pool(threads));
  potl::sha256 hash[3];
  std::mt19937 generator(2026);
  const int cases = is_full() ? 300 : 12;
  for (int number = 0; number < cases; ++number) {
    const convolution g = random_geometry(generator, 30'000);
    const auto kind = static_cast<inputs>(generator() % 3);
    const operands in(g, kind, generator, draws::exact);
    const std::vector<float> wanted[] = {reference::forward(mode, g, in.x, in.w),
                                         reference::input_gradient(mode, g, in.dy, in.w),
                                         reference::weight_gradient(mode, g, in.x, in.dy)};
    at_each_level([&](isa level) {
      const auto& pool =
          *pools[(static_cast<std::size_t>(number) + static_cast<std::size_t>(level)) %
                 pools.size()];
      INFO("case " << number << ": " << to_string(mode) << " " << text(g) << ", level "
                   << to_string(level) << ", threads " << pool.concurrency());
      for (const guarded_end at : guarded_ends) {
        const guarded_operands of(in, at);
        guarded<float> y(wanted[0].size(), at), dx(wanted[1].size(), at), dw(wanted[2].size(), at);
        convolve(mode, g, of.x.data(), of.w.data(), y.data(), pool);
        REQUIRE(same_bits(y, wanted[0]));
        convolve_input_gradient(mode, g, of.dy.data(), of.w.data(), dx.data(), pool);
        REQUIRE(same_bits(dx, wanted[1]));
        convolve_weight_gradient(mode, g, of.x.data(), of.dy.data(), dw.data(), pool);
        REQUIRE(same_bits(dw, wanted[2]));
      }
    });
    for (int i = 0; i < 3; ++i) add(hash[i], wanted[i]);
  }
  return {hash[0].finish().hex(), hash[1].finish().hex(), hash[2].finish().hex()};
}

}  // namespace

TEST_CASE("convolutions in ord32 have one digest per direction", "[convolution]") {
  CHECK(digests_of_cases(arithmetic::ord32) ==
        (is_full() ? digests{"9247ee9f3e254cef6630c11ae1785ce63c0fc0021a26e70a9987a90ff7ad5c81",
                             "f1933f6589e4e374418075055a9dace7388002ac5fc0e19dac01e321fad7c475",
                             "feb7080b1b26f4a67d1588ccefbb6451ce3fecbcf64d559b59b89274c1acfde1"}
                   : digests{"cd2f46ff1f424f96db50b05220670962d575c9f26349eca4bb0322350360ab2d",
                             "acc10183fb1fe4038250e7887cb37def2e419747a3d3d45d06d04f4dcb497f75",
                             "bb0cbd41c776fc9070d99c055fce526913b17b79aa8cc3a90effe1e9d45944e9"}));
}

TEST_CASE("convolutions in cr32 have one digest per direction", "[convolution]") {
  CHECK(digests_of_cases(arithmetic::cr32) ==
        (is_full() ? digests{"e80084747d19d885ffe8b5aa3c04e8bebfdf39e5ecd0bb0a273b3683f6c279e2",
                             "a6dd688530d838ac21ba12db57e55ef3acb99dbd44a01742c656e15464edfacc",
                             "e8522d9430332284f6d666e0f3786f9a1d22c98e1d9af67a79d3f1113cd4ca04"}
                   : digests{"9aaa61362a239ac5495366511180673d759f35566dc18e64976077aa2cc19618",
                             "4fd8064fbb04a0fc07d05192c263332e4e0b25d8e68797577921531505cd0a74",
                             "12c057936eba21231cfa5e5bcfe4e48fe4f96b8bcf5fae6f01bef16939a8b357"}));
}

TEST_CASE("convolutions in xint24 have one digest per direction", "[convolution]") {
  CHECK(digests_of_cases(arithmetic::xint24) ==
        (is_full() ? digests{"81167a3011a2d48ca2875c5674af9b7040d616146280b6bf23b82511d598caed",
                             "71cbd0f5a6ac9cbc255eb5ab22d9a9be9dbee9dec004ca6d3b962e4d2465f42f",
                             "f7016e8aaddf689195fba2965a1e16f239b04bbc50bee6747f5f8542aeb81985"}
                   : digests{"38c85da5feb0e4e1be7f26e83d283d9e03b5fc736621a8ee6de435b33de26ba9",
                             "2e59c50bad8958877974504918413a81c1eb64d5fd64e2f8b53337cf575412f5",
                             "f63ee968bbe43bf096a4cda626150910fb39130ee0ae8ca57e5317147ab4300e"}));
}

TEST_CASE("convolutions in xint16 have one digest per direction", "[convolution]") {
  CHECK(digests_of_cases(arithmetic::xint16) ==
        (is_full() ? digests{"3b7e937ea0a398c393644a88bf164710181a2f7ee77853f6796b48f9f21c6324",
                             "d92115ac00ef4eb35f2998adb19f161c858be17d1dfd79acebf24f4cf2714b82",
                             "dffc91f9a822dcb23eb156c898c6e59af70f2d9c1af1e3907e7be5f4346a8cd3"}
                   : digests{"d68e073cc7b5852e68f40d39c1aa23c6ab910856ee5b6a19b710e66594752ff8",
                             "e017d84b98797ae7c595df77dcf9427d58489294defa66e33feaa5ac1e0734a8",
                             "65181287f33079757cf041dc1dd548bf61edf6f89a411b6a16296915327c2c04"}));
}

TEST_CASE("integer convolutions of more terms than 64 bits hold are exact", "[convolution]") {
  constexpr std::int64_t many = (1 << 17) + 301;
  convolution wide, deep, places;
  wide.in_channels = deep.out_channels = many;
  wide.out_channels = deep.in_channels = 2;
  wide.batch = deep.batch = 3;
  places.input[2] = many;
  places.out_channels = 2;
  const auto pool = make_thread_pool(2);
  std::mt19937 generator(5);
  // As large as integers get, all of one sign.
  const auto drawn = [&](std::int64_t size) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < size; ++i)
      out.push_back(2.0F - 0x1p-22F * static_cast<float>(1 + generator() % 4));
    return out;
  };
  const auto one = drawn(2 * many), other = drawn(3 * many);
  const auto check = [&](const std::vector<float>& wanted, const auto& compute) {
    at_each_level([&](isa) {
      for (const executor* threads : {&inline_executor(), static_cast<const executor*>(&*pool)}) {
        std::vector<float> found(wanted.size());
        compute(found.data(), *threads);
        CHECK(found == wanted);
      }
    });
  };
  for (const auto mode : {arithmetic::xint24, arithmetic::xint16}) {
    check(reference::forward(mode, wide, other, one), [&](float* y, const executor& threads) {
      convolve(mode, wide, other.data(), one.data(), y, threads);
    });
    check(reference::input_gradient(mode, deep, other, one),
          [&](float* dx, const executor& threads) {
            convolve_input_gradient(mode, deep, other.data(), one.data(), dx, threads);
          });
    check(reference::weight_gradient(mode, places, other, one),
          [&](float* dw, const executor& threads) {
            convolve_weight_gradient(mode, places, other.data(), one.data(), dw, threads);
          });
  }
}
