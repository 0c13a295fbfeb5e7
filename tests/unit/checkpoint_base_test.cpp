// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

// Two tensors that are not trained and one that is, of 64 KiB each.
struct net {
  std::vector<float> first = std::vector<float>(16384, 1.5F);
  std::vector<float> second = std::vector<float>(16384, 2.5F);
  std::vector<float> trained = std::vector<float>(16384, 0.0F);

  state captured(snapshot_memory& memory) const {
    state_map tree;
    tree.push_back({std::string("first"), state_value{tensor_of(first)}});
    tree.push_back({std::string("second"), state_value{tensor_of(second)}});
    tree.push_back({std::string("trained"), state_value{tensor_of(trained)}});
    return capture(state_value{std::move(tree)}, memory).value();
  }
};

struct trained_net {
  temporary_directory directory;
  snapshot_memory memory;
  net weights;
  state initial = weights.captured(memory);
  checkpoint_base base = checkpoint_base::to_write(initial);
  std::string path = directory.file("step-4.safetensors");
  state after;
  std::vector<std::uint8_t> file;

  trained_net() : after(train()) {
    save_checkpoint(path, after, &base).value();
    file = bytes_of(path);
  }
  state train() {
    weights.trained[7] = 1;
    return weights.captured(memory);
  }
};

base_source from(const state& initial) {
  return [initial]() -> result<std::shared_ptr<const checkpoint_base>> {
    return std::make_shared<const checkpoint_base>(checkpoint_base::to_read(initial));
  };
}

errc refusal(const std::vector<std::uint8_t>& file, const digest& expected,
             const base_source& base) {
  const result<state> got = parse_checkpoint(file, &expected, base);
  return got ? errc::internal : got.why().code;
}

}  // namespace

TEST_CASE("a checkpoint leaves out what did not change", "[checkpoint_base]") {
  const trained_net one;
  CHECK(one.file.size() < 70'000);
  const state got =
      parse_checkpoint(one.file, &one.after.state_digest(), from(one.initial)).value();
  CHECK(got.encoding() == one.after.encoding());
  CHECK(got.size_bytes() == one.after.size_bytes());
  for (std::size_t i = 0; i < 3; ++i) {
    const bytes_view a = got.tensors()[i]->bytes, b = one.after.tensors()[i]->bytes;
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

TEST_CASE("the same bytes in another form, or of another tensor, are stored", "[checkpoint_base]") {
  trained_net one;
  const auto stored = [&](const std::string& path,
                          const std::function<void(state_tensor&)>& change) {
    state_tensor tensor = tensor_of(one.weights.first);
    change(tensor);
    state_map tree;
    tree.push_back({path, state_value{std::move(tensor)}});
    const state other = capture(state_value{std::move(tree)}, one.memory).value();
    save_checkpoint(one.path, other, &one.base).value();
    const std::vector<std::uint8_t> file = bytes_of(one.path);
    CHECK(parse_checkpoint(file, &other.state_digest(), from(one.initial)));
    return file.size() > 65536;
  };
  CHECK_FALSE(stored("first", [](auto&) {}));
  CHECK(stored("first", [](auto& tensor) { tensor.type = dtype::i32; }));
  CHECK(stored("first", [](auto& tensor) { tensor.dims = {128, 128}; }));
  CHECK(stored("fi", [](auto&) {}));
}

TEST_CASE("a state outlives the base that it was read with", "[checkpoint_base]") {
  const trained_net one;
  const state got = [&] {
    snapshot_memory other;
    return parse_checkpoint(one.file, nullptr, from(net().captured(other))).value();
  }();
  CHECK(got.tensors()[0]->bytes[2] == floats(one.weights.first)[2]);
}

TEST_CASE("a checkpoint in which everything changed is of the first version", "[checkpoint_base]") {
  trained_net one;
  for (auto* weights : {&one.weights.first, &one.weights.second}) (*weights)[0] = 9;
  const state other = one.weights.captured(one.memory);
  save_checkpoint(one.path, other, &one.base).value();
  const std::vector<std::uint8_t> with = bytes_of(one.path);
  save_checkpoint(one.path, other).value();
  CHECK(bytes_of(one.path) == with);
}

TEST_CASE("a whole checkpoint loads where there is a base", "[checkpoint_base]") {
  const trained_net one;
  save_checkpoint(one.path, one.after).value();
  CHECK(parse_checkpoint(bytes_of(one.path), &one.after.state_digest(), from(one.initial)));
}

TEST_CASE("a checkpoint that leaves something out needs the initial state", "[checkpoint_base]") {
  const trained_net one;
  const digest expected = one.after.state_digest();
  CHECK(refusal(one.file, expected, nullptr) == errc::mismatch);
  CHECK(refusal(one.file, expected, [] {
          return result<std::shared_ptr<const checkpoint_base>>(error{errc::missing, "", ""});
        }) == errc::missing);
  CHECK_FALSE(load_checkpoint(one.path, expected, 1 << 24));
  save_checkpoint(one.directory.file("step-0.safetensors"), one.initial).value();
  CHECK(load_checkpoint(one.path, expected, 1 << 24));
  CHECK(load_own_checkpoint(one.path, 1 << 24));
}

TEST_CASE("another initial state does not stand for what is left out", "[checkpoint_base]") {
  trained_net one;
  net other;
  other.second[16383] = 3;
  CHECK(refusal(one.file, one.after.state_digest(), from(other.captured(one.memory))) ==
        errc::mismatch);
  // Not even one that only names itself otherwise.
  other = net();
  other.trained[0] = 3;
  CHECK(refusal(one.file, one.after.state_digest(), from(other.captured(one.memory))) ==
        errc::mismatch);
}

TEST_CASE("a checkpoint leaves out all or nothing of what it may", "[checkpoint_base]") {
  trained_net one;
  net partly;
  partly.second[0] = 7;
  const checkpoint_base narrow = checkpoint_base::to_write(partly.captured(one.memory));
  save_checkpoint(one.path, one.after, &narrow).value();
  CHECK(refusal(bytes_of(one.path), one.after.state_digest(), from(one.initial)) == errc::mismatch);
}

TEST_CASE("every changed byte of a header that leaves something out is noticed",
          "[checkpoint_base]") {
  const trained_net one;
  const std::size_t header = 8 + one.file[0] + one.file[1] * std::size_t{256};
  for (std::size_t at = 0; at < header; ++at) {
    std::vector<std::uint8_t> changed = one.file;
    changed[at] ^= 1;
    CHECK(refusal(changed, one.after.state_digest(), from(one.initial)) != errc::internal);
  }
}

TEST_CASE("what a base says is small is stored", "[checkpoint_base]") {
  snapshot_memory memory;
  const state initial = state_after(0, memory);
  const checkpoint_base base = checkpoint_base::to_write(initial);
  const temporary_directory directory;
  save_checkpoint(directory.file("a"), initial, &base).value();
  save_checkpoint(directory.file("b"), initial).value();
  CHECK(bytes_of(directory.file("a")) == bytes_of(directory.file("b")));
}
