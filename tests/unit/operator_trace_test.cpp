// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <potl/core/file.hpp>
#include <potl/transcript/operator_trace.hpp>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

operator_trace example() {
  return {4, digest{}, {{"aten.mm.default", digest{}}, {"aten.add.Tensor", digest{}}}};
}

errc read_after(const std::string& text) {
  const temporary_directory run;
  std::filesystem::create_directory(run.file("traces"));
  write_file_atomically(run.file("traces/step-4.json"), as_bytes_view(text)).value();
  const auto found = read_trace(run.file("."), 4);
  return found ? errc::internal : found.why().code;
}

}  // namespace

TEST_CASE("the first operator that differs is named", "[operator_trace]") {
  const operator_trace own = example();
  CHECK_FALSE(first_difference(own, example()));
  operator_trace other = example();
  other.operators[1].result.bytes[0] ^= 1;
  CHECK(first_difference(own, other) == "operator 2 of 2, aten.add.Tensor");
  other.operators[0].name = "aten.addmm.default";
  CHECK(first_difference(own, other) ==
        "operator 1 of 2, aten.mm.default (the other side calls aten.addmm.default)");
  other = example();
  other.operators.pop_back();
  CHECK(first_difference(own, other) == "operator 2: one side stops");
  CHECK(first_difference(other, own) == "operator 2: one side stops");
}

TEST_CASE("traces from other states or of other steps are not compared", "[operator_trace]") {
  operator_trace other = example();
  other.before.bytes[0] ^= 1;
  CHECK_THROWS(first_difference(example(), other));
  other = example();
  other.step = 5;
  CHECK_THROWS(first_difference(example(), other));
}

TEST_CASE("memory that an operator leaves as it was is named", "[operator_trace]") {
  CHECK(returns_unset("aten.empty_like.default"));
  CHECK(returns_unset("aten.new_empty.default"));
  CHECK(returns_unset("aten.resize_.default"));
  CHECK_FALSE(returns_unset("aten.zeros.default"));
}

TEST_CASE("a trace is read as it was written", "[operator_trace]") {
  const temporary_directory place;
  const std::string run = place.file(".");
  CHECK(read_trace(run, 4).why().code == errc::missing);
  operator_trace own = example();
  own.before.bytes[3] = 7;
  own.operators[0].result.bytes[31] = 9;
  for (int i = 0; i < 2; ++i) {
    CHECK(write_trace(run, own).value() == run + "/traces/step-4.json");
    own.operators.pop_back();  // what is shorter leaves nothing of the other behind
  }
  own = example();
  own.before.bytes[3] = 7;
  own.operators[0].result.bytes[31] = 9;
  own.operators.pop_back();
  const operator_trace again = read_trace(run, 4).value();
  CHECK((again.step == 4 && again.before == own.before && again.operators == own.operators));
}

TEST_CASE("what is no trace of the step is malformed", "[operator_trace]") {
  const std::string zeros(64, '0'), rows = R"(,"operators":[["aten.mm",")" + zeros + R"("]])";
  const std::string head = R"({"format":"potl-operator-trace-v1","before":")" + zeros + '"';
  CHECK(read_after(head + R"(,"step":4)" + rows + "}") == errc::internal);  // it is one
  CHECK(read_after(head + R"(,"step":5)" + rows + "}") == errc::malformed);
  CHECK(read_after(R"({"format":"other","before":")" + zeros + R"(","step":4)" + rows + "}") ==
        errc::malformed);
  CHECK(read_after(head + R"(,"step":4})") == errc::malformed);
  CHECK(read_after(head + R"(,"step":4,"operators":[["aten.mm"]]})") == errc::malformed);
  CHECK(read_after(head + R"(,"step":4,"operators":[["aten.mm","00"]]})") == errc::malformed);
  CHECK(read_after(R"({"format":"potl-operator-trace-v1","before":"00","step":4)" + rows + "}") ==
        errc::malformed);
}
