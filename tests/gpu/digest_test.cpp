// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/cuda/digest.hpp>

#include "catch.hpp"
#include "device_memory.hpp"
#include "gemm_cases.hpp"

using namespace potl;

namespace {

TEST_CASE("content roots are the CPU's on a device", "[gpu]") {
  gemm_cases::source from(3);
  std::vector<std::uint8_t> bytes(40'000'000);
  for (auto& one : bytes) one = static_cast<std::uint8_t>(from.bits());
  const test::device_memory<std::uint8_t> there(bytes);
  std::vector<cuda::device_bytes> tensors;
  std::vector<digest> wanted;
  // Every offset within a word, and lengths around words, blocks of SHA-256 and chunks.
  for (std::size_t i = 0; i < 400; ++i) {
    const auto start = static_cast<std::size_t>(from.below(1000));
    const auto size = static_cast<std::size_t>(i < 130   ? static_cast<std::int64_t>(i)
                                               : i < 390 ? 16384 * from.below(12) + from.below(3)
                                                         : from.below(39'000'000));
    tensors.push_back({there.data() + start, size});
    wanted.push_back(content_root(bytes_view(bytes).subspan(start, size)));
  }
  const test::device_memory<digest> roots(std::vector<digest>(tensors.size()));
  cuda::content_roots(tensors, roots.data(), nullptr);
  const auto found = roots.read();
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(tensors[i].size << " bytes");
    REQUIRE(found[i] == wanted[i]);
  }
  CHECK_NOTHROW(cuda::content_roots({}, nullptr, nullptr));
}

}  // namespace
