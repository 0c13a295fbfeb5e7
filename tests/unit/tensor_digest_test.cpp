// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <future>
#include <limits>
#include <new>
#include <vector>

#include <potl/core/detail/rng.hpp>
#include <potl/crypto/detail/tensor_digest.hpp>

#include "crypto/chunk_hashes.hpp"

namespace {

constexpr std::size_t chunk = potl::content_chunk_bytes;

std::vector<std::uint8_t> some_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(potl::random_bits({3, 4}, i));
  }
  return bytes;
}

potl::digest by_definition(potl::bytes_view bytes) {
  potl::merkle_tree tree;
  for (std::size_t at = 0; at < bytes.size(); at += chunk) {
    tree.append(potl::leaf_hash(bytes.subspan(at, std::min(chunk, bytes.size() - at))));
  }
  return tree.root();
}

}  // namespace

TEST_CASE("the content root is the RFC 6962 root of 16 KiB chunks, whoever runs the parts") {
  std::size_t most = 0;
  const potl::content_runner backwards = [&](std::size_t tasks, const auto& body) {
    most = std::max(most, tasks);
    for (std::size_t task = tasks; task-- > 0;) body(task);
  };
  const auto bytes = some_bytes(101 * chunk);
  for (std::size_t chunks : {0u, 1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 100u}) {
    for (std::size_t more : {std::size_t{0}, std::size_t{1}, std::size_t{5}, chunk - 1}) {
      const auto view = potl::bytes_view(bytes).first(chunks * chunk + more);
      const potl::digest expected = by_definition(view);
      REQUIRE(potl::content_root(view) == expected);
      REQUIRE(potl::content_tree(view).root() == expected);
      REQUIRE(potl::content_root(view, backwards) == expected);
      const potl::content_source copied = [&](std::uint64_t offset, std::span<std::uint8_t> out) {
        std::copy_n(view.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      };
      REQUIRE(potl::content_root(view.size(), copied, backwards) == expected);
    }
  }
  REQUIRE(potl::content_root({}) == potl::empty_root());
  CHECK(most == 101 / 8 + 1);  // of eight chunks each
  const potl::content_runner failing = [](std::size_t, const auto&) { throw std::bad_alloc(); };
  CHECK_THROWS_AS(potl::content_root(bytes, failing), std::bad_alloc);
}

TEST_CASE(
    "chunks hashed at once have their own leaf hashes, whatever their lengths and the thread") {
  const auto bytes = some_bytes(chunk + 30);
  const auto work = [&](std::uint64_t seed) {
    bool same = true;
    for (std::size_t count = 0; count <= 20; ++count) {
      std::vector<potl::bytes_view> chunks;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t drawn = potl::random_bits({seed, count}, i);
        const std::size_t length = drawn % 3 == 0 ? chunk : (drawn >> 2) % (chunk + 1);
        chunks.push_back(potl::bytes_view(bytes).subspan((drawn >> 32) % 30, length));
      }
      std::vector<potl::digest> found(count);
      potl::detail::chunk_hashes(chunks, found.data());
      for (std::size_t i = 0; i < count; ++i) same &= found[i] == potl::leaf_hash(chunks[i]);
    }
    return same;
  };
  auto elsewhere = std::async(std::launch::async, work, 1);
  CHECK(work(2));
  CHECK(elsewhere.get());
}

TEST_CASE("a single chunk is opened, and no other chunk passes for it") {
  const auto bytes = some_bytes(6 * chunk + 10);
  const potl::bytes_view all(bytes);
  const potl::digest root = potl::content_root(all);
  for (std::uint64_t index = 0; index < 7; ++index) {
    const auto proof = potl::open_chunk(all, index).value();
    const auto part = all.subspan(index * chunk, std::min(chunk, all.size() - index * chunk));
    REQUIRE(potl::verify_chunk(root, all.size(), index, part, proof));
    std::vector<std::uint8_t> other(part.begin(), part.end());
    other[other.size() / 2] ^= 1;
    REQUIRE(potl::verify_chunk(root, all.size(), index, other, proof).why().code ==
            potl::errc::mismatch);
    REQUIRE_FALSE(potl::verify_chunk(root, all.size(), (index + 1) % 7, part, proof));
    REQUIRE(potl::verify_chunk(root, all.size(), index, part.first(part.size() - 1), proof)
                .why()
                .code == potl::errc::malformed);
  }
  REQUIRE(potl::open_chunk(all, 7).why().code == potl::errc::usage);
  REQUIRE(potl::verify_chunk(root, all.size(), 7, all.first(chunk), {}).why().message ==
          "chunk 7 is not among 7");
  REQUIRE(potl::open_chunk({}, 0).why().code == potl::errc::usage);
}

TEST_CASE("lengths up to 2^64-1 are answered at once") {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  REQUIRE(potl::content_chunks(most) == std::uint64_t{1} << 50);
  REQUIRE_FALSE(potl::verify_chunk({}, most, most, {}, {}));
  REQUIRE_FALSE(potl::verify_chunk({}, most, (std::uint64_t{1} << 50) - 1, {}, {}));
  REQUIRE_FALSE(potl::verify_chunk(potl::empty_root(), 0, 0, {}, {}));
}
