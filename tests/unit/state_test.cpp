// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/transcript/detail/state_encoding.hpp>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

digest digest_of(state_value tree) {
  snapshot_memory memory;
  return capture(std::move(tree), memory).value().state_digest();
}

state_value text(const char* what) { return {std::string(what)}; }
state_value number(std::int64_t what) { return {what}; }

state_value map_of(state_map items) { return {std::move(items)}; }
state_key name(const char* what) { return std::string(what); }

}  // namespace

TEST_CASE("values of different type have different digests", "[state]") {
  const std::vector<state_value> values{{std::monostate{}},
                                        {false},
                                        {true},
                                        number(0),
                                        number(1),
                                        {0.0},
                                        {-0.0},
                                        {1.0},
                                        text(""),
                                        text("0"),
                                        {state_bytes{}},
                                        {state_list{}},
                                        {state_tuple{}},
                                        {state_map{}},
                                        map_of({{name("a"), {}}}),
                                        map_of({{name("0"), {}}}),
                                        map_of({{std::int64_t{0}, {}}})};
  std::vector<digest> digests;
  for (const state_value& value : values) digests.push_back(digest_of(value));
  std::sort(digests.begin(), digests.end());
  CHECK(std::adjacent_find(digests.begin(), digests.end()) == digests.end());
}

TEST_CASE("an absent entry differs from one that holds nothing or zero", "[state]") {
  const digest absent = digest_of(map_of({{name("a"), number(1)}}));
  CHECK(absent != digest_of(map_of({{name("a"), number(1)}, {name("b"), {}}})));
  CHECK(absent != digest_of(map_of({{name("a"), number(1)}, {name("b"), number(0)}})));
}

TEST_CASE("the order in which a map is given does not matter", "[state]") {
  CHECK(
      digest_of(map_of({{name("b"), number(2)}, {std::int64_t{9}, number(3)}, {name("a"), {}}})) ==
      digest_of(map_of({{name("a"), {}}, {name("b"), number(2)}, {std::int64_t{9}, number(3)}})));
}

TEST_CASE("the order of a list matters", "[state]") {
  CHECK(digest_of({state_list{number(1), number(2)}}) !=
        digest_of({state_list{number(2), number(1)}}));
}

TEST_CASE("a key that occurs twice is refused", "[state]") {
  snapshot_memory memory;
  CHECK(capture(map_of({{name("a"), {}}, {name("a"), {}}}), memory).why().code == errc::malformed);
}

TEST_CASE("the payload of a NaN is part of the digest and survives a file", "[state]") {
  const temporary_directory directory;
  snapshot_memory memory;
  const double first = std::bit_cast<double>(std::uint64_t{0x7ff8000000000001});
  const double second = std::bit_cast<double>(std::uint64_t{0x7ff8000000000002});
  CHECK(digest_of({first}) != digest_of({second}));
  const state kept = capture(state_value{first}, memory).value();
  save_checkpoint(directory.file("nan"), kept).value();
  const state loaded = load_checkpoint(directory.file("nan"), kept.state_digest(), 1 << 20).value();
  CHECK(std::bit_cast<std::uint64_t>(std::get<double>(loaded.root().content)) ==
        0x7ff8000000000001);
}

TEST_CASE("the bits of floats in tensors are kept", "[state]") {
  const std::vector<std::uint32_t> bits{0x7fc00001, 0xff800001, 0x80000000, 0x00000001};
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), 16);
  std::vector<float> quiet(values);
  snapshot_memory memory;
  const state one = capture(state_value{tensor_of(values)}, memory).value();
  CHECK(std::memcmp(one.tensors()[0]->bytes.data(), bits.data(), 16) == 0);
}

TEST_CASE("the digest of a state never changes", "[state]") {
  const std::vector<float> shared{0, 1, 2, 3, 4, 5};
  state_tensor tensor = tensor_of(shared);
  tensor.dims = {2, 3};
  const state_value list{state_list{{std::int64_t{1}},
                                    {2.5},
                                    {std::monostate{}},
                                    {true},
                                    {std::string("x")},
                                    {state_bytes{{'y'}}},
                                    {state_tuple{{number(3)}}}}};
  const digest found =
      digest_of(map_of({{name("b"), list},
                        {std::int64_t{7}, map_of({{name("w"), {tensor}}, {name("v"), {tensor}}})},
                        {name("a"), number(-1)}}));
  CHECK(found.hex() == "6164013b10a9b0eff28834373a9c66245bfda0a85b09c02574b6363ee02df65b");
}

TEST_CASE("tensors that share memory become aliases of the first", "[state]") {
  snapshot_memory memory;
  const std::vector<float> shared{1, 2};
  const std::vector<float> equal{1, 2};
  const state tied = capture(map_of({{name("z"), {tensor_of(shared)}},
                                     {name("a"), {tensor_of(shared)}},
                                     {name("m"), {tensor_of(equal)}}}),
                             memory)
                         .value();
  const auto& map = std::get<state_map>(tied.root().content);
  CHECK(std::holds_alternative<state_tensor>(map[0].second.content));
  CHECK(std::holds_alternative<state_tensor>(map[1].second.content));
  CHECK(std::get<state_alias>(map[2].second.content).path == "a");
  CHECK(tied.tensors().size() == 2);
  CHECK(tied.size_bytes() == 16);
  const digest untied = digest_of(map_of({{name("z"), {tensor_of(std::vector<float>(equal))}},
                                          {name("a"), {tensor_of(shared)}},
                                          {name("m"), {tensor_of(equal)}}}));
  CHECK(tied.state_digest() != untied);
}

TEST_CASE("tensors without bytes are never aliases", "[state]") {
  snapshot_memory memory;
  const std::vector<float> none;
  const state two =
      capture(map_of({{name("a"), {tensor_of(none)}}, {name("b"), {tensor_of(none)}}}), memory)
          .value();
  CHECK(two.tensors().size() == 2);
}

TEST_CASE("dtype, shape and memory format are part of the digest", "[state]") {
  const std::vector<float> values{1, 2, 3, 4};
  const auto with = [&](const std::function<void(state_tensor&)>& change) {
    state_tensor tensor = tensor_of(values);
    change(tensor);
    return digest_of({std::move(tensor)});
  };
  const digest plain = with([](state_tensor&) {});
  CHECK(plain != with([](state_tensor& t) { t.type = dtype::i32; }));
  CHECK(plain != with([](state_tensor& t) { t.dims = {2, 2}; }));
  CHECK(plain != with([](state_tensor& t) { t.dims = {1, 4}; }));
  CHECK(plain != with([](state_tensor& t) { t.memory_format = "channels_last"; }));
}

TEST_CASE("a state equals a tree exactly where their digests are equal", "[state]") {
  const std::vector<float> values{1, 2, 3, 4}, copy = values, others{1, 2, 3, 5};
  const std::vector<float> zero{0}, negative{-0.0F};
  const auto shaped = [](const std::vector<float>& of, std::vector<std::uint64_t> dims) {
    state_tensor tensor = tensor_of(of);
    tensor.dims = std::move(dims);
    return tensor;
  };
  const std::vector<state_value> trees{
      map_of({{name("b"), number(1)}, {name("a"), {tensor_of(values)}}}),
      map_of({{name("a"), {tensor_of(copy)}}, {name("b"), number(1)}}),
      map_of({{name("a"), {tensor_of(others)}}, {name("b"), number(1)}}),
      map_of({{name("a"), {tensor_of(values)}}, {name("b"), number(2)}}),
      map_of({{name("a"), {tensor_of(values)}}, {name("b"), {1.0}}}),
      map_of({{name("a"), {tensor_of(values)}}, {name("c"), number(1)}}),
      map_of({{name("a"), {shaped(values, {2, 2})}}, {name("b"), number(1)}}),
      map_of({{name("a"), {tensor_of(values)}}, {name("b"), {tensor_of(values)}}}),
      map_of({{name("a"), {tensor_of(values)}}, {name("b"), {tensor_of(copy)}}}),
      map_of({{name("a"), {tensor_of(zero)}}}),
      map_of({{name("a"), {tensor_of(negative)}}}),
  };
  snapshot_memory memory;
  for (const state_value& one : trees) {
    const state before = capture(one, memory).value();
    for (const state_value& other : trees)
      CHECK(would_equal(other, before).value() == (before.state_digest() == digest_of(other)));
  }
  state_tensor wrong = tensor_of(values);
  wrong.dims = {5};
  CHECK_FALSE(would_equal({std::move(wrong)}, capture(trees[0], memory).value()).has_value());
}

TEST_CASE("a tensor that is not what it says is refused", "[state]") {
  snapshot_memory memory;
  const std::vector<float> values{1, 2};
  state_tensor tensor = tensor_of(values);
  tensor.dims = {3};
  CHECK(capture({tensor}, memory).why().code == errc::malformed);
  tensor.dims = {std::uint64_t{1} << 32, std::uint64_t{1} << 32};
  CHECK_FALSE(capture({tensor}, memory));
  tensor.dims = {2};
  tensor.memory_format = "strided";
  CHECK(capture({tensor}, memory).why().code == errc::malformed);
}

TEST_CASE("text in a state that is not UTF-8 is refused", "[state]") {
  snapshot_memory memory;
  CHECK(capture(text("\xff"), memory).why().code == errc::malformed);
  CHECK(capture(map_of({{name("\xc0\x80"), {}}}), memory).why().code == errc::malformed);
}

TEST_CASE("a state that contains too much or too deeply is refused with a remedy", "[state]") {
  snapshot_memory memory;
  state_value deep;
  for (int i = 0; i < 100; ++i) {
    state_list list;
    list.push_back(std::move(deep));
    deep.content = std::move(list);
  }
  CHECK(capture(std::move(deep), memory).why().code == errc::limit);
  const error wide = capture({state_list(max_state_nodes)}, memory).why();
  CHECK(wide.code == errc::limit);
  CHECK(wide.remedy.find("tensor") != std::string::npos);
}

TEST_CASE("reserved names are refused", "[state]") {
  snapshot_memory memory;
  const std::vector<float> one{1};
  CHECK_FALSE(capture(map_of({{name("potl.state"), {tensor_of(one)}}}), memory));
  CHECK_FALSE(capture(map_of({{name("__metadata__"), {tensor_of(one)}}}), memory));
}

TEST_CASE("bytes behind the tree of a state are refused", "[state]") {
  std::vector<std::uint8_t> bytes = encode_tree(number(7), {});
  CHECK(decode_tree(bytes));
  bytes.push_back(0);
  CHECK_FALSE(decode_tree(bytes));
}

TEST_CASE("a tree that nests too deeply is refused while it is read", "[state]") {
  state_value deep = number(7);
  for (std::size_t i = 0; i < max_state_depth; ++i) {
    state_list list;
    list.push_back(std::move(deep));
    deep.content = std::move(list);
  }
  CHECK(decode_tree(encode_tree(deep, {})));
  state_list list;
  list.push_back(std::move(deep));
  CHECK(decode_tree(encode_tree({std::move(list)}, {})).why().code == errc::limit);
}

TEST_CASE("declared counts are compared with the bytes before memory is taken", "[state]") {
  std::vector<std::uint8_t> bytes{7};  // a list of 2^63 items
  bytes.resize(9, 0);
  bytes[8] = 0x80;
  CHECK(decode_tree(bytes).why().code == errc::malformed);
  bytes[0] = 5;  // a text of that length
  CHECK(decode_tree(bytes).why().code == errc::malformed);
}

TEST_CASE("steady capturing uses the same memory again", "[state]") {
  snapshot_memory memory;
  const std::vector<float> values(100'000, 1.0F);
  std::size_t first = 0;
  for (int step = 0; step < 20; ++step) {
    const state one = capture({tensor_of(values)}, memory).value();
    if (step == 0) first = memory.total_bytes();
    CHECK(memory.total_bytes() == first);
  }
}

TEST_CASE("a digest can be had of tensors that the CPU does not read", "[state]") {
  const std::vector<float> here{1, 2, 3};
  const std::vector<float> there(5000, 2.5F), other(4097, -1.0F);
  const auto placed = [](const std::vector<float>& values) {
    state_tensor out = tensor_of(values);
    out.elsewhere = true;
    return out;
  };
  const state_value tree = map_of({{name("z"), {placed(there)}},
                                   {name("a"), {placed(there)}},
                                   {name("b"), {tensor_of(here)}},
                                   {name("c"), {placed(other)}}});
  std::vector<bytes_view> asked;
  const auto roots_of = [&](std::span<const bytes_view> places) {
    std::vector<digest> roots;
    for (const bytes_view one : places) {
      asked.push_back(one);
      roots.push_back(content_root(one));
    }
    return roots;
  };
  const digest found = potl::transcript::digest_of(tree, roots_of).value();
  CHECK(found == digest_of(map_of({{name("z"), {tensor_of(there)}},
                                   {name("a"), {tensor_of(there)}},
                                   {name("b"), {tensor_of(here)}},
                                   {name("c"), {tensor_of(other)}}})));
  REQUIRE(asked.size() == 2);  // "z" is an alias of "a"
  CHECK(asked[0].data() == reinterpret_cast<const std::uint8_t*>(there.data()));

  SECTION("a root that is missing is no digest") {
    const auto none = [](std::span<const bytes_view>) { return std::vector<digest>(); };
    CHECK(potl::transcript::digest_of(tree, none).why().code == errc::internal);
  }
  SECTION("nothing else takes them") {
    snapshot_memory memory;
    CHECK(capture(tree, memory).why().code == errc::usage);
    CHECK(adopt(tree, nullptr).why().code == errc::usage);
    const state one = capture(map_of({}), memory).value();
    CHECK(would_equal(tree, one).why().code == errc::usage);
    CHECK(state::make(tree, nullptr).why().code == errc::usage);
  }
}
