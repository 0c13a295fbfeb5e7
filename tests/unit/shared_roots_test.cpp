// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include <potl/crypto/detail/tensor_digest.hpp>

#include "catch.hpp"
#include "transcript/shared_roots.hpp"

using potl::bytes_view;
using potl::digest;
using potl::transcript::shared_roots;

namespace {

std::vector<std::vector<std::uint8_t>> contents_of(std::initializer_list<std::size_t> sizes) {
  std::vector<std::vector<std::uint8_t>> out;
  std::uint32_t word = 1;
  for (const std::size_t size : sizes) {
    auto& bytes = out.emplace_back(size);
    for (std::uint8_t& byte : bytes) {
      word = word * 1664525 + 1013904223;
      byte = static_cast<std::uint8_t>(word >> 24);
    }
  }
  return out;
}

std::vector<digest> expected_of(const std::vector<std::vector<std::uint8_t>>& contents) {
  std::vector<digest> out;
  for (const auto& bytes : contents) out.push_back(potl::content_root(bytes));
  return out;
}

std::vector<bytes_view> views_of(const std::vector<std::vector<std::uint8_t>>& contents) {
  return {contents.begin(), contents.end()};
}

}  // namespace

TEST_CASE("shared roots are content roots", "[state]") {
  for (const unsigned threads : {0u, 1u, 2u, 5u}) {
    const auto contents =
        contents_of({0, 1, 16384, 0, 16385, 4 * 16384, 7, 3 * 1024 * 1024 + 5, 0});
    shared_roots roots(views_of(contents));
    CHECK(roots.compute(threads) == expected_of(contents));
    CHECK(roots.compute(threads) == expected_of(contents));
  }
  shared_roots of_nothing({});
  CHECK(of_nothing.compute(1).empty());
  const auto empty = contents_of({0, 0});
  CHECK(shared_roots(views_of(empty)).compute(1) == expected_of(empty));
}

TEST_CASE("threads that ask for roots at once share the work", "[state]") {
  const auto contents = contents_of({100, 70'000, 1 << 20, 5, 300'000});
  const std::vector<digest> expected = expected_of(contents);
  std::size_t chunks = 0;
  for (const auto& bytes : contents) chunks += potl::content_chunks(bytes.size());
  for (int round = 0; round < 50; ++round) {
    shared_roots roots(views_of(contents));
    std::vector<std::vector<digest>> got(4);
    std::vector<std::thread> threads;
    for (auto& one : got) threads.emplace_back([&] { one = roots.compute(1); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& one : got) CHECK(one == expected);
    CHECK(roots.hashed() == chunks);  // no chunk twice
  }
}
