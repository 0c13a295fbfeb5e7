// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <potl/checks/model.hpp>
#include <potl/core/file.hpp>

#include "run_fixture.hpp"
#include "state_tree.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

struct delivered_tensor {
  std::vector<float> values;
  dtype type = dtype::f32;
  std::vector<std::uint64_t> dims = {values.size()};
};
using delivery = std::map<std::string, delivered_tensor>;

void write_model(const std::string& path, const delivery& model) {
  std::ofstream out(path, std::ios::binary);
  std::vector<safetensors_writer::tensor> tensors;
  for (const auto& [name, one] : model) tensors.push_back({name, one.type, one.dims});
  auto writer = safetensors_writer::create(tensors, {}, [&](bytes_view part) -> status {
    out.write(reinterpret_cast<const char*>(part.data()),
              static_cast<std::streamsize>(part.size()));
    return unit{};
  });
  REQUIRE(writer);
  for (const auto& [name, one] : model) REQUIRE(writer->write(potl_test::floats(one.values)));
}

finding compare(const tree::value& state, const delivery& model,
                const optional_buffers& may_lack = std::vector<std::string>{}) {
  const potl_test::temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  write_model(path, model);
  return compare_model_file(state, path, may_lack);
}

delivery model_of(const small_state& state) {
  return {{"w", {state.weights}}, {"mean", {state.means}}};
}

tree::value tied(tree& t, const std::vector<float>& values) {
  tree::value alias{transcript::state_alias{"model/parameters/a"}};
  return tree::dict(
      {{"model", tree::dict({{"parameters", tree::dict({{"a", t.floats(values)}, {"b", alias}})},
                             {"buffers", tree::dict({})}})}});
}

}  // namespace

TEST_CASE("the last committed state is recognised bit for bit") {
  small_state state;
  REQUIRE(compare(state.root(), model_of(state)).result == outcome::pass);
}

TEST_CASE("one changed bit of one tensor rejects and is named") {
  small_state state;
  auto changed = state;
  changed.weights[2] = std::nextafter(changed.weights[2], 9.0f);
  const finding found = compare(state.root(), model_of(changed));
  REQUIRE(found.result == outcome::reject);
  REQUIRE(found.rule == "model.delivered");
  REQUIRE(found.reason.find("\"w\" has other values") != std::string::npos);
}

TEST_CASE("another shape or dtype of the same bytes rejects") {
  small_state state;
  delivery file = model_of(state);
  file.at("w").dims = {2, 2};
  REQUIRE(compare(state.root(), file).result == outcome::reject);
  file.at("w").dims = {4};
  file.at("w").type = dtype::i32;
  REQUIRE(compare(state.root(), file).result == outcome::reject);
}

TEST_CASE("a tensor too many or too few rejects") {
  small_state state;
  delivery extra = model_of(state);
  extra["backdoor"] = {{1}};
  REQUIRE(compare(state.root(), extra).result == outcome::reject);
  REQUIRE(compare(state.root(), {{"mean", {state.means}}}).result == outcome::reject);
}

TEST_CASE("a file without any name of the state is told which file is meant") {
  small_state state;
  delivery renamed;
  renamed["model.w"] = {state.weights};
  const finding found = compare(state.root(), renamed);
  REQUIRE(found.result == outcome::reject);
  REQUIRE(found.reason.find("the run's export writes") != std::string::npos);
  renamed["mean"] = {state.means};
  const finding one_name = compare(state.root(), renamed);
  REQUIRE(one_name.result == outcome::reject);
  REQUIRE(one_name.reason.find("export") == std::string::npos);
}

TEST_CASE("a buffer may be left out only if the task keeps it out of its state_dict") {
  small_state state;
  const delivery file{{"w", {state.weights}}};
  const auto with = [&](const optional_buffers& may_lack) {
    return compare(state.root(), file, may_lack);
  };
  REQUIRE(compare(state.root(), file).result == outcome::reject);
  REQUIRE(with(std::vector<std::string>{"other"}).result == outcome::reject);
  REQUIRE(with(std::nullopt).result == outcome::inconclusive);
  const finding found = with(std::vector<std::string>{"mean"});
  REQUIRE(found.result == outcome::pass);
  REQUIRE(found.reason.find("mean") != std::string::npos);
}

TEST_CASE("no excuse lets a parameter be left out") {
  small_state state;
  const std::vector<std::string> all{"w", "mean"};
  REQUIRE(compare(state.root(), {{"mean", {state.means}}}, all).result == outcome::reject);
}

TEST_CASE("tied weights may be delivered under one name or under both") {
  tree t;
  const auto state = tied(t, {1, 2});
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"a", "b"}}) {
    delivery file;
    for (const std::string& name : names) file[name] = {{1, 2}};
    REQUIRE(compare(state, file).result == outcome::pass);
  }
  REQUIRE(compare(state, {{"a", {{1, 2}}}, {"b", {{1, 3}}}}).result == outcome::reject);
  REQUIRE(compare(state, {}).result == outcome::reject);
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
    write_model(path, {{"a", {large}}, {"b", {small}}});
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

TEST_CASE("a delivered file is compared and hashed in pieces of a few MiB") {
  delivered_file file;
  REQUIRE(file.compare().result == outcome::pass);
  REQUIRE(*std::max_element(file.reads.begin(), file.reads.end()) == 4 * mib);
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : file.reads) sum += bytes;
  REQUIRE(sum == 2 * std::filesystem::file_size(file.path));
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
