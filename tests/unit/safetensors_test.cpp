// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>

#include "allocation_counter.hpp"
#include "catch.hpp"
#include "shared_vectors.hpp"

#include <nlohmann/json.hpp>
#include <potl/encoding/detail/safetensors.hpp>

using potl::dtype;
using potl::errc;
using potl::safetensors_view;
using potl::safetensors_writer;

namespace {

constexpr std::size_t megabyte = std::size_t{1} << 20;

std::string file_of(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + data;
}

potl::result<safetensors_view> parse(const std::string& file) {
  return potl::parse_safetensors(potl::as_bytes_view(file));
}

// A header of many tensors of one byte each.
std::string many_tensors(std::size_t count, const std::string& prefix, const std::string& shape) {
  std::string header = "{";
  for (std::size_t i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    header += (i == 0 ? "\"" : ",\"") + prefix + n + R"(":{"dtype":"U8","shape":[)" + shape +
              R"(],"data_offsets":[)" + n + "," + std::to_string(i + 1) + "]}";
  }
  return header + "}";
}

std::size_t peak_of_refusal(const std::string& file, errc expected) {
  const potl_test::allocation_counter counter;
  const auto parsed = parse(file);
  REQUIRE_FALSE(parsed.has_value());
  INFO(parsed.why().message);
  REQUIRE(parsed.why().code == expected);
  REQUIRE(parsed.why().message.size() < 256);
  return counter.peak();
}

std::string write(std::vector<safetensors_writer::tensor> tensors,
                  potl::safetensors_metadata metadata, const std::string& data) {
  std::string out;
  auto writer = safetensors_writer::create(std::move(tensors), std::move(metadata),
                                           [&](potl::bytes_view part) -> potl::status {
                                             out.append(part.begin(), part.end());
                                             return potl::unit{};
                                           })
                    .value();
  for (const char c : data) REQUIRE(writer.write(potl::as_bytes_view({&c, 1})));
  REQUIRE(writer.finish().has_value());
  REQUIRE(out.size() == writer.file_bytes());
  return out;
}

}  // namespace

TEST_CASE("every file of the corpus gets its verdict, cheaply") {
  if (!potl_test::have_vectors("safetensors-corpus")) return;
  const auto folder = potl_test::vectors("safetensors-corpus");
  const auto manifest = nlohmann::json::parse(potl_test::contents(folder / "manifest.json"));
  double slowest = 0;
  std::size_t cases = 0;
  for (const auto& each : manifest["cases"]) {
    INFO(each["file"] << ": " << each["why"]);
    const std::string file = potl_test::contents(folder / each["file"].get<std::string>());
    const auto start = std::chrono::steady_clock::now();
    const potl_test::allocation_counter counter;
    const bool accepted = parse(file).has_value();
    const std::size_t peak = counter.peak();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    slowest = std::max(slowest, time.count());
    CHECK(accepted == (each["expect"] == "accept"));
    CHECK(peak < 16 * megabyte);
    ++cases;
  }
  CHECK(cases == 94);
  // Time is printed only: a loaded machine must not fail a test.
  std::printf("safetensors corpus: slowest file %.2f ms\n", slowest);
}

TEST_CASE("the sample written by the reference library is read, its abuse refused") {
  if (!potl_test::have_vectors("safetensors-cpp-sample")) return;
  const auto folder = potl_test::vectors("safetensors-cpp-sample");
  const std::string sample = potl_test::contents(folder / "gen/model.safetensors");
  REQUIRE(parse(sample).value().tensors.size() > 0);
  REQUIRE_FALSE(
      parse(potl_test::contents(folder / "test/safetensors_abuse_attempt_1.safetensors")));
}

TEST_CASE("tensors are found by name and point into the file") {
  const std::string file = file_of(
      R"({"b":{"dtype":"I16","shape":[1,2],"data_offsets":[1,5]},)"
      R"("a":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},"__metadata__":{"z":"1","k":"v"}})",
      "Xabcd");
  const safetensors_view view = parse(file).value();
  REQUIRE(view.metadata == potl::safetensors_metadata{{"k", "v"}, {"z", "1"}});
  REQUIRE(view.tensors.size() == 2);
  const potl::safetensors_tensor* b = view.find("b");
  REQUIRE(b != nullptr);
  REQUIRE(b->type == dtype::i16);
  REQUIRE(b->dims == std::vector<std::uint64_t>{1, 2});
  REQUIRE(std::memcmp(b->data.data(), "abcd", 4) == 0);
  REQUIRE(reinterpret_cast<const char*>(b->data.data()) == file.data() + file.size() - 4);
  REQUIRE(view.find("__metadata__") == nullptr);
  REQUIRE(view.find("c") == nullptr);
}

TEST_CASE("a negative zero is no size") {
  REQUIRE_FALSE(parse(file_of(R"({"t":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}})", "")));
}

TEST_CASE("a field that occurs twice is refused even where both agree") {
  for (const char* twice : {R"("dtype":"U8")", R"("shape":[])", R"("data_offsets":[0,1])"}) {
    INFO(twice);
    REQUIRE_FALSE(parse(file_of(
        std::string("{\"t\":{") + twice + R"(,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        "x")));
  }
}

TEST_CASE("empty tensors may share a place, also the last") {
  REQUIRE(parse(file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
                        R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                        R"("d":{"dtype":"U8","shape":[3,0],"data_offsets":[1,1]}})",
                        "x")));
}

TEST_CASE("every truncation of a file is refused") {
  const std::string file =
      write({{"a", dtype::f32, {2}}, {"b", dtype::u8, {3}}}, {{"k", "v"}}, "12345678abc");
  REQUIRE(parse(file));
  for (std::size_t size = 0; size < file.size(); ++size) {
    INFO(size);
    REQUIRE_FALSE(parse(file.substr(0, size)));
  }
  REQUIRE_FALSE(parse(file + '\0'));
}

TEST_CASE("a million names are refused within bounded memory") {
  std::string header = "{";
  for (std::size_t i = 0; header.size() < 8 * megabyte - 64; ++i)
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[],"data_offsets":[0,0]})";
  REQUIRE(peak_of_refusal(file_of(header + "}", ""), errc::limit) < 64 * megabyte);
  REQUIRE(peak_of_refusal(file_of(std::string(9 * megabyte, ' '), ""), errc::limit) < 4096);
  REQUIRE(peak_of_refusal(file_of(R"({"__metadata__":)" + many_tensors(1, "x", ""), ""),
                          errc::malformed) < megabyte);
}

TEST_CASE("the largest header within the limits is read within bounded memory") {
  std::string ones = "1";
  for (int i = 1; i < 28; ++i) ones += ",1";
  const std::string header = many_tensors(60000, "", ones);
  REQUIRE(header.size() < 8 * megabyte);
  const std::string file = file_of(header, std::string(60000, 'x'));
  const potl_test::allocation_counter counter;
  REQUIRE(parse(file).value().tensors.size() == 60000);
  REQUIRE(counter.peak() < 64 * megabyte);
}

TEST_CASE("long names, long metadata and high ranks are refused") {
  const auto with_name = [](std::size_t length) {
    return file_of(
        "{\"" + std::string(length, 'n') + R"(":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
        "x");
  };
  REQUIRE(parse(with_name(1024)));
  REQUIRE(peak_of_refusal(with_name(1025), errc::limit) < megabyte);
  const auto with_text = [](std::size_t length) {
    return file_of(R"({"__metadata__":{"k":")" + std::string(length, 'v') + "\"}}", "");
  };
  REQUIRE(parse(with_text(megabyte)));
  REQUIRE(peak_of_refusal(with_text(megabyte + 1), errc::limit) < 32 * megabyte);
  const auto with_rank = [](int rank) {
    std::string shape = "1";
    for (int i = 1; i < rank; ++i) shape += ",1";
    return file_of(many_tensors(1, "t", shape), "x");
  };
  REQUIRE(parse(with_rank(32)));
  REQUIRE(peak_of_refusal(with_rank(33), errc::limit) < megabyte);
}

TEST_CASE("what is written is read back, in an order that aligns every tensor") {
  std::vector<safetensors_writer::tensor> tensors;
  std::uint64_t bytes = 0;
  for (const potl::dtype_info& type : potl::dtypes) {
    tensors.push_back({"t." + std::string(type.name), type.type, {3}});
    bytes += 3 * type.size;
  }
  std::string data;
  for (std::uint64_t i = 0; i < bytes; ++i) data += static_cast<char>(i);
  const std::string file = write(tensors, {{"b", "2"}, {"a", "\"\n"}}, data);
  const safetensors_view view = parse(file).value();
  REQUIRE(view.metadata == potl::safetensors_metadata{{"a", "\"\n"}, {"b", "2"}});
  REQUIRE(view.tensors.size() == potl::dtypes.size());
  for (const potl::safetensors_tensor& tensor : view.tensors) {
    const auto place = reinterpret_cast<const char*>(tensor.data.data()) - file.data();
    REQUIRE(static_cast<std::size_t>(place) % potl::info(tensor.type).size == 0);
    REQUIRE(tensor.name == "t." + std::string(potl::info(tensor.type).name));
  }
  std::reverse(tensors.begin(), tensors.end());
  REQUIRE(write(tensors, {{"a", "\"\n"}, {"b", "2"}}, data) == file);
}

TEST_CASE("the writer refuses what the reader would refuse") {
  const auto refuses = [](std::vector<safetensors_writer::tensor> tensors,
                          potl::safetensors_metadata metadata) {
    return !safetensors_writer::create(
        std::move(tensors), std::move(metadata),
        [](potl::bytes_view) -> potl::status { return potl::unit{}; });
  };
  REQUIRE_FALSE(refuses({}, {}));
  REQUIRE(refuses({{"a", dtype::u8, {}}, {"a", dtype::f32, {}}}, {}));
  REQUIRE(refuses({{"__metadata__", dtype::u8, {}}}, {}));
  REQUIRE(refuses({{"\xFF", dtype::u8, {}}}, {}));
  REQUIRE(refuses({}, {{"a", "1"}, {"a", "2"}}));
  REQUIRE(refuses({}, {{"a", "\xFF"}}));
  REQUIRE(refuses({{"a", dtype::u8, {std::uint64_t{1} << 33, std::uint64_t{1} << 33}}}, {}));
  REQUIRE(refuses({{"a", dtype::u8, std::vector<std::uint64_t>(33, 1)}}, {}));
}

TEST_CASE("the writer holds the caller to what was announced") {
  auto writer =
      safetensors_writer::create({{"a", dtype::u8, {4}}}, {}, [](potl::bytes_view) -> potl::status {
        return potl::unit{};
      }).value();
  REQUIRE_FALSE(writer.write(potl::as_bytes_view("12345")));
  REQUIRE(writer.write(potl::as_bytes_view("123")));
  REQUIRE_FALSE(writer.finish());
  REQUIRE(writer.write(potl::as_bytes_view("4")));
  REQUIRE(writer.finish());
}

TEST_CASE("a sink that failed once is not written to again") {
  int calls = 0;
  auto writer = safetensors_writer::create({{"a", dtype::u8, {4}}}, {},
                                           [&](potl::bytes_view) -> potl::status {
                                             if (++calls == 2)
                                               return potl::error{errc::io, "full", ""};
                                             return potl::unit{};
                                           })
                    .value();
  REQUIRE(writer.write(potl::as_bytes_view("12")).why().message == "full");
  REQUIRE_FALSE(writer.write(potl::as_bytes_view("34")));
  REQUIRE_FALSE(writer.finish());
  REQUIRE(calls == 2);
}
