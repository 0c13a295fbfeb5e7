// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <numeric>
#include <vector>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/transcript/detail/kept_tensor.hpp>
#include <potl/transcript/snapshot.hpp>

#include "catch.hpp"
#include "state_tree.hpp"

using namespace potl;
using namespace potl::transcript;

namespace {

using finding = kept_tensor::finding;

struct frozen {
  std::vector<std::uint8_t> live = std::vector<std::uint8_t>(100'003);
  std::shared_ptr<kept_tensor> kept = std::make_shared<kept_tensor>();

  frozen() { std::iota(live.begin(), live.end(), std::uint8_t{1}); }
  finding look(bool whole = false) { return kept->look(live, whole); }
  void look_until_late() {
    for (int i = 0; i < 5; ++i) REQUIRE(look() == finding::same);
  }

  /// {"frozen": the bytes, "w": something that is trained}
  result<state> captured(snapshot_memory& memory, bool whole = false) {
    state_tensor tensor;
    tensor.type = dtype::u8;
    tensor.memory_format = "contiguous";
    tensor.dims = {live.size()};
    tensor.bytes = live;
    tensor.kept = kept;
    return capture(tree::dict({{"frozen", {std::move(tensor)}}, {"w", others.floats({1, 2})}}),
                   memory, whole);
  }
  tree others;
};

}  // namespace

TEST_CASE("a kept tensor has the root of its bytes", "[kept_tensor]") {
  frozen one;
  one.look_until_late();
  CHECK(one.kept->root() == content_root(one.live));
  CHECK(one.kept->bytes().data() != one.live.data());
}

TEST_CASE("a state with a kept tensor has the digest of one without", "[kept_tensor]") {
  frozen one;
  snapshot_memory memory;
  const state kept = one.captured(memory).value();
  const state again = one.captured(memory).value();
  one.kept = nullptr;
  const state copied = one.captured(memory).value();
  CHECK(kept.state_digest() == copied.state_digest());
  CHECK(again.encoding() == copied.encoding());
  CHECK(kept.tensors()[0]->bytes.data() == again.tensors()[0]->bytes.data());
}

TEST_CASE("a kept tensor needs no memory of later snapshots", "[kept_tensor]") {
  frozen one;
  snapshot_memory memory;
  const state first = one.captured(memory).value();
  const state second = one.captured(memory).value();
  CHECK(memory.total_bytes() < one.live.size());
}

TEST_CASE("a state keeps what it was captured with", "[kept_tensor]") {
  frozen one;
  snapshot_memory memory;
  const state before = one.captured(memory).value();
  const std::vector<std::uint8_t> old = one.live;
  for (std::uint8_t& byte : one.live) ++byte;
  const state after = one.captured(memory).value();
  CHECK(std::equal(old.begin(), old.end(), before.tensors()[0]->bytes.begin()));
  CHECK(std::equal(one.live.begin(), one.live.end(), after.tensors()[0]->bytes.begin()));
  CHECK(after.state_digest() != before.state_digest());
}

TEST_CASE("a tensor that is written at the first steps is not kept", "[kept_tensor]") {
  frozen one;
  REQUIRE(one.look() == finding::same);
  ++one.live[77];
  CHECK(one.look() == finding::changed);
  CHECK(one.look() == finding::changed);
}

TEST_CASE("a tensor that is written as a whole is noticed at once", "[kept_tensor]") {
  frozen one;
  one.look_until_late();
  for (std::uint8_t& byte : one.live) ++byte;
  CHECK(one.look() == finding::changed);
}

TEST_CASE("a byte that is written is noticed by looks at all parts", "[kept_tensor]") {
  for (const std::size_t at : {std::size_t{0}, std::size_t{50'000}, std::size_t{100'002}}) {
    frozen one;
    one.look_until_late();
    ++one.live[at];
    std::size_t same = 0;
    while (same < kept_tensor::parts && one.look() == finding::same) ++same;
    CHECK(same < kept_tensor::parts);
    CHECK(one.look() == finding::torn);
  }
}

TEST_CASE("a byte that is written is noticed where a state is stored", "[kept_tensor]") {
  frozen one;
  snapshot_memory memory;
  for (int i = 0; i < 5; ++i) REQUIRE(one.captured(memory));
  ++one.live[99'999];
  const result<state> got = one.captured(memory, true);
  REQUIRE_FALSE(got);
  CHECK(got.why().code == errc::usage);
  CHECK(got.why().message.find("\"frozen\"") != std::string::npos);
}
