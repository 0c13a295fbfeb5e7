// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <potl/encoding/detail/safetensors.hpp>

#include "allocation_counter.hpp"
#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct saved {
  temporary_directory directory;
  snapshot_memory memory;
  state what = state_after(3, memory);
  std::string path = directory.file("checkpoint");
  std::vector<std::uint8_t> bytes;

  saved() {
    save_checkpoint(path, what).value();
    bytes = bytes_of(path);
  }
};

std::size_t header_end(bytes_view file) {
  std::uint64_t length = 0;
  for (unsigned i = 0; i < 8; ++i) length |= std::uint64_t{file[i]} << (8 * i);
  return static_cast<std::size_t>(length) + 8;
}

/// A file with the tree of `what`, and with what `change` makes of the tensors beside it.
std::string refusal_of(const state& what,
                       const std::function<void(safetensors_writer::tensor&)>& change,
                       const std::string& more = "") {
  std::vector<safetensors_writer::tensor> tensors{
      {std::string("potl.state"), dtype::u8, {what.encoding().size()}}};
  for (const state_tensor* one : what.tensors()) {
    tensors.push_back({one->path, one->type, one->dims});
    change(tensors.back());
  }
  if (!more.empty()) tensors.push_back({more, dtype::u8, {0}});
  std::vector<std::uint8_t> file;
  safetensors_writer writer =
      safetensors_writer::create(std::move(tensors), {{"format", "potl-checkpoint-v1"}},
                                 [&](bytes_view part) -> status {
                                   file.insert(file.end(), part.begin(), part.end());
                                   return unit{};
                                 })
          .value();
  for (const auto& one : writer.order()) {
    if (one.name == "potl.state") writer.write(what.encoding()).value();
    for (const state_tensor* tensor : what.tensors()) {
      if (tensor->path == one.name) writer.write(tensor->bytes).value();
    }
  }
  const result<state> got = parse_checkpoint(std::move(file), &what.state_digest());
  return got ? "" : got.why().message;
}

}  // namespace

TEST_CASE("a checkpoint restores the state", "[checkpoint]") {
  const saved one;
  const state got = load_checkpoint(one.path, one.what.state_digest(), 1 << 20).value();
  CHECK(got.state_digest() == one.what.state_digest());
  CHECK(got.encoding() == one.what.encoding());
  REQUIRE(got.tensors().size() == one.what.tensors().size());
  for (std::size_t i = 0; i < got.tensors().size(); ++i) {
    const state_tensor& a = *got.tensors()[i];
    const state_tensor& b = *one.what.tensors()[i];
    CHECK(a.path == b.path);
    CHECK(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()));
  }
}

TEST_CASE("every element type is restored as it was", "[checkpoint]") {
  const temporary_directory directory;
  snapshot_memory memory;
  const std::vector<std::uint8_t> raw{1, 0, 1, 1, 0, 1, 0, 0};
  state_map tree;
  for (const dtype_info& one : dtypes) {
    state_tensor tensor;
    tensor.type = one.type;
    tensor.memory_format = "contiguous";
    tensor.dims = {8 / one.size};
    tensor.bytes = raw;
    tree.push_back({std::string(one.name), {std::move(tensor)}});
  }
  const state before = capture({std::move(tree)}, memory).value();
  const std::string path = directory.file("all");
  save_checkpoint(path, before).value();
  const state after = load_checkpoint(path, before.state_digest(), 1 << 20).value();
  REQUIRE(after.tensors().size() == dtypes.size());
  for (const state_tensor* tensor : after.tensors()) {
    CHECK(info(tensor->type).name == tensor->path);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor->bytes.data()) % info(tensor->type).size == 0);
  }
}

TEST_CASE("every flipped bit of a checkpoint is noticed", "[checkpoint]") {
  const saved one;
  const digest expected = one.what.state_digest();
  for (std::size_t bit = 0; bit < one.bytes.size() * 8; ++bit) {
    std::vector<std::uint8_t> changed = one.bytes;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    CHECK_FALSE(parse_checkpoint(changed, &expected));
    // Without a digest to compare with, a header still has one form only.
    if (bit / 8 < header_end(one.bytes)) CHECK_FALSE(parse_checkpoint(changed, nullptr));
  }
}

TEST_CASE("every truncation and continuation of a checkpoint is noticed", "[checkpoint]") {
  const saved one;
  const digest expected = one.what.state_digest();
  for (std::size_t size = 0; size < one.bytes.size(); ++size) {
    CHECK_FALSE(parse_checkpoint(
        {one.bytes.begin(), one.bytes.begin() + static_cast<std::ptrdiff_t>(size)}, &expected));
  }
  std::vector<std::uint8_t> longer = one.bytes;
  longer.push_back(0);
  CHECK_FALSE(parse_checkpoint(longer, &expected));
}

TEST_CASE("another state's checkpoint is a mismatch", "[checkpoint]") {
  const saved one;
  snapshot_memory memory;
  const digest other = state_after(4, memory).state_digest();
  CHECK(load_checkpoint(one.path, other, 1 << 20).why().code == errc::mismatch);
}

TEST_CASE("a file holds the tensors of its tree, in their dtypes and shapes", "[checkpoint]") {
  const saved one;
  const auto nothing = [](auto&) {};
  CHECK(refusal_of(one.what, nothing).empty());
  CHECK(refusal_of(one.what, nothing, "more") ==
        "checkpoint: the file does not hold the tensors of its tree");
  const std::string first = one.what.tensors()[0]->path;
  const std::string other = "checkpoint: tensor \"" + first + "\" has another dtype or shape";
  CHECK(refusal_of(one.what, [&](auto& tensor) {
          if (tensor.name == first) tensor.type = dtype::i32;
        }) == other);
  CHECK(refusal_of(one.what, [&](auto& tensor) {
          if (tensor.name == first) tensor.dims.push_back(1);
        }) == other);
}

TEST_CASE("what cannot be read is told apart from what is wrong", "[checkpoint]") {
  const saved one;
  const digest expected = one.what.state_digest();
  CHECK(load_checkpoint(one.directory.file("none"), expected, 1 << 20).why().code == errc::missing);
  CHECK(load_checkpoint(one.path, expected, 10).why().code == errc::limit);
  std::filesystem::create_directory(one.directory.file("folder"));
  CHECK_FALSE(load_checkpoint(one.directory.file("folder"), expected, 1 << 20));
}

TEST_CASE("a hostile tree costs no more memory than its file explains", "[checkpoint]") {
  // A million nothings, in a file of a megabyte.
  const std::size_t count = 1'000'000;
  std::vector<std::uint8_t> tree{7};
  for (unsigned i = 0; i < 8; ++i) tree.push_back(static_cast<std::uint8_t>(count >> (8 * i)));
  tree.resize(9 + count, 0);
  std::vector<std::uint8_t> file;
  safetensors_writer writer =
      safetensors_writer::create({{"potl.state", dtype::u8, {tree.size()}}},
                                 {{"format", "potl-checkpoint-v1"}},
                                 [&](bytes_view part) -> status {
                                   file.insert(file.end(), part.begin(), part.end());
                                   return unit{};
                                 })
          .value();
  writer.write(tree).value();
  const potl_test::allocation_counter memory;
  CHECK(parse_checkpoint(std::move(file), nullptr).why().code == errc::limit);
  CHECK(memory.peak() < 64u << 20);
}
