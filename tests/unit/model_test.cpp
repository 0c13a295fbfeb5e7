// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include <potl/checks/model.hpp>
#include <potl/core/file.hpp>

#include "run_fixture.hpp"
#include "state_tree.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

struct delivery {
  std::vector<std::vector<float>> memory;
  safetensors_view view;

  void add(const std::string& name, const std::vector<float>& values) {
    memory.reserve(16);
    const auto& kept = memory.emplace_back(values);
    safetensors_tensor one;
    one.name = name;
    one.type = dtype::f32;
    one.dims = {kept.size()};
    one.data = {reinterpret_cast<const std::uint8_t*>(kept.data()), 4 * kept.size()};
    view.tensors.push_back(one);
    std::sort(view.tensors.begin(), view.tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
};

struct honest_delivery : delivery {
  explicit honest_delivery(const small_state& state) {
    add("w", state.weights);
    add("mean", state.means);
  }
};

tree::value tied(tree& t, const std::vector<float>& values) {
  tree::value alias{transcript::state_alias{"model/parameters/a"}};
  return tree::dict(
      {{"model", tree::dict({{"parameters", tree::dict({{"a", t.floats(values)}, {"b", alias}})},
                             {"buffers", tree::dict({})}})}});
}

}  // namespace

TEST_CASE("the last committed state is recognised bit for bit") {
  small_state state;
  const honest_delivery file(state);
  REQUIRE(compare_model(state.root(), file.view).result == outcome::pass);
}

TEST_CASE("one changed bit of one tensor rejects and is named") {
  small_state state;
  auto changed = state;
  changed.weights[2] = std::nextafter(changed.weights[2], 9.0f);
  const honest_delivery file(changed);
  const finding found = compare_model(state.root(), file.view);
  REQUIRE(found.result == outcome::reject);
  REQUIRE(found.rule == "model.delivered");
  REQUIRE(found.reason.find("\"w\" has other values") != std::string::npos);
}

TEST_CASE("another shape or dtype of the same bytes rejects") {
  small_state state;
  honest_delivery file(state);
  file.view.tensors[1].dims = {2, 2};
  REQUIRE(compare_model(state.root(), file.view).result == outcome::reject);
  file.view.tensors[1].dims = {4};
  file.view.tensors[1].type = dtype::i32;
  REQUIRE(compare_model(state.root(), file.view).result == outcome::reject);
}

TEST_CASE("a tensor too many or too few rejects") {
  small_state state;
  honest_delivery extra(state);
  extra.add("backdoor", {1});
  REQUIRE(compare_model(state.root(), extra.view).result == outcome::reject);
  delivery lacking;
  lacking.add("mean", state.means);
  REQUIRE(compare_model(state.root(), lacking.view).result == outcome::reject);
}

TEST_CASE("a buffer may be left out only if the task keeps it out of its state_dict") {
  small_state state;
  delivery file;
  file.add("w", state.weights);
  const auto with = [&](const optional_buffers& may_lack) {
    return compare_model(state.root(), file.view, may_lack);
  };
  REQUIRE(compare_model(state.root(), file.view).result == outcome::reject);
  REQUIRE(with(std::vector<std::string>{"other"}).result == outcome::reject);
  REQUIRE(with(std::nullopt).result == outcome::inconclusive);
  const finding found = with(std::vector<std::string>{"mean"});
  REQUIRE(found.result == outcome::pass);
  REQUIRE(found.reason.find("mean") != std::string::npos);
}

TEST_CASE("no excuse lets a parameter be left out") {
  small_state state;
  delivery file;
  file.add("mean", state.means);
  const std::vector<std::string> all{"w", "mean"};
  REQUIRE(compare_model(state.root(), file.view, all).result == outcome::reject);
}

TEST_CASE("tied weights may be delivered under one name or under both") {
  tree t;
  const auto state = tied(t, {1, 2});
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"a", "b"}}) {
    delivery file;
    for (const std::string& name : names) file.add(name, {1, 2});
    REQUIRE(compare_model(state, file.view).result == outcome::pass);
  }
  delivery split;
  split.add("a", {1, 2});
  split.add("b", {1, 3});
  REQUIRE(compare_model(state, split.view).result == outcome::reject);
  REQUIRE(compare_model(state, delivery().view).result == outcome::reject);
}

TEST_CASE("the digest of a model depends on names, shapes and bits, not on the optimizer") {
  small_state state, other;
  const digest before = model_digest(state.root());
  other.momentum[0] = 9;
  REQUIRE(model_digest(other.root()) == before);
  other.means[0] = 9;
  REQUIRE(model_digest(other.root()) != before);
}

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

// A delivered file of 26 MiB, and the reads that comparing it takes.
struct delivered_file {
  potl_test::temporary_directory folder;
  std::string path = folder.file("model.safetensors");
  std::vector<float> large = std::vector<float>(25 * mib / 4 + 3, 1.5f), small = {1, 2, 3};
  tree t;
  tree::value state = tree::dict(
      {{"model",
        tree::dict({{"parameters", tree::dict({{"a", t.floats(large)}, {"b", t.floats(small)}})},
                    {"buffers", tree::dict({})}})}});
  std::vector<std::uint64_t> reads;

  delivered_file() {
    std::ofstream out(path, std::ios::binary);
    auto writer = safetensors_writer::create(
        {{"a", dtype::f32, {large.size()}}, {"b", dtype::f32, {small.size()}}}, {},
        [&](bytes_view part) -> status {
          out.write(reinterpret_cast<const char*>(part.data()),
                    static_cast<std::streamsize>(part.size()));
          return unit{};
        });
    REQUIRE(writer);
    REQUIRE(writer->write(potl_test::floats(large)));
    REQUIRE(writer->write(potl_test::floats(small)));
    out.close();
    // Changes of a file are told apart by the ticks of a clock.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  void flip(std::uint64_t from_end) const {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-static_cast<std::streamoff>(from_end), std::ios::end);
    const char old = static_cast<char>(file.get());
    file.seekp(-static_cast<std::streamoff>(from_end), std::ios::end);
    file.put(static_cast<char>(old ^ 1));
  }

  template <class After>
  finding compare(After after) {
    reads.clear();
    set_read_observer([&](const std::string&, std::uint64_t bytes) {
      reads.push_back(bytes);
      after(reads.size());
    });
    const finding out = compare_model_file(state, path);
    set_read_observer({});
    return out;
  }
  finding compare() {
    return compare([](std::size_t) {});
  }
};

}  // namespace

TEST_CASE("a delivered file is read once, in pieces of a few MiB") {
  delivered_file file;
  REQUIRE(file.compare().result == outcome::pass);
  REQUIRE(*std::max_element(file.reads.begin(), file.reads.end()) == 4 * mib);
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : file.reads) sum += bytes;
  REQUIRE(sum == std::filesystem::file_size(file.path));
}

TEST_CASE("one changed byte in any piece of a delivered file rejects") {
  for (const std::uint64_t from_end :
       {std::uint64_t{1}, std::uint64_t{13}, std::uint64_t{9 * mib}, std::uint64_t{25 * mib}}) {
    delivered_file file;
    file.flip(from_end);
    const finding found = file.compare();
    REQUIRE(found.result == outcome::reject);
    REQUIRE(found.reason.find("has other values") != std::string::npos);
  }
}

TEST_CASE("a delivered file that changes while it is read is noticed, whichever byte it is") {
  delivered_file file;
  // Reads are the length, the header, then pieces: of what was compared and of what was not yet.
  for (const std::uint64_t from_end : {std::uint64_t{1}, std::uint64_t{25 * mib}}) {
    const finding found = file.compare([&](std::size_t now) {
      if (now == 4) file.flip(from_end);
    });
    REQUIRE(found.result == outcome::inconclusive);
    REQUIRE(found.reason.find("changed while it was read") != std::string::npos);
    file.flip(from_end);
  }
}

TEST_CASE("a delivered file that is cut while it is read is never accepted") {
  delivered_file file;
  const finding found = file.compare([&](std::size_t now) {
    if (now == 3) std::filesystem::resize_file(file.path, 8 * mib);
  });
  REQUIRE(found.result == outcome::inconclusive);
}

TEST_CASE("a file that is no model accuses nobody, however large it is") {
  delivered_file file;
  for (const std::uint64_t bytes : {std::uint64_t{9 * mib}, std::uint64_t{7}, std::uint64_t{0}}) {
    std::filesystem::resize_file(file.path, bytes);
    REQUIRE(file.compare().result == outcome::inconclusive);
  }
  std::ofstream(file.path) << std::string(40 * mib, '{');
  const finding found = file.compare();
  REQUIRE(found.result == outcome::inconclusive);
  REQUIRE(found.reason.find(file.path) != std::string::npos);
  REQUIRE(file.reads.size() <= 2);
}
