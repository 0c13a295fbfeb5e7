// SPDX-License-Identifier: Apache-2.0
// The end of a log, what was added to it, and a commitment that says something else about it.
#include <array>
#include <limits>
#include <string>
#include <utility>

#include <potl/evidence/detail/inspect.hpp>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct damaged_run {
  temporary_directory root;
  std::string path = root.file("run");
  job agreed = small_job();
  std::string commitment = record_run(path, agreed);
  std::vector<std::uint8_t> bytes = bytes_of(path + "/transcript.log");

  std::vector<finding> findings(const std::string& note) const {
    overwrite(path + "/transcript.log", bytes);
    return open_run(path, agreed, note).value().findings();
  }
};

std::size_t count(const std::vector<finding>& findings, outcome result, std::string_view rule) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const finding& one) { return one.result == result && one.rule == rule; }));
}

}  // namespace

TEST_CASE("bytes behind a complete log are rejected once it is committed to") {
  damaged_run run;
  REQUIRE(count(run.findings(run.commitment), outcome::reject, "transcript.chain") == 0);
  run.bytes.insert(run.bytes.end(), {1, 2, 3});
  REQUIRE(count(run.findings(run.commitment), outcome::reject, "transcript.chain") == 1);
  REQUIRE(count(run.findings(""), outcome::reject, "transcript.chain") == 0);
  REQUIRE(count(run.findings(""), outcome::inconclusive, "transcript.chain") == 1);
}

TEST_CASE("of a log without a job no more is read than a client would, and the job is the remedy") {
  const damaged_run run;
  evidence_options options;
  options.directory = run.path;
  std::filesystem::resize_file(run.path + "/transcript.log", (std::uint64_t{2} << 30) + 1);
  const std::array<error, 2> refusals{inspect_run(run.path).why(), evidence::open(options).why()};
  for (const error& why : refusals) {
    CHECK(why.code == errc::limit);
    CHECK(why.remedy.find("--job") != std::string::npos);
  }
}

TEST_CASE("damage in the middle of a log is no crash, whether it is committed to or not") {
  damaged_run run;
  run.bytes[run.bytes.size() / 2] ^= 1;
  REQUIRE(count(run.findings(""), outcome::reject, "transcript.chain") == 1);
  REQUIRE(count(run.findings(run.commitment), outcome::reject, "transcript.chain") >= 1);
}

TEST_CASE("a commitment to the right root of another size, or to another end, is rejected") {
  damaged_run run;
  const std::vector<record> records = read_records(run.path);
  const run_note honest = parse_run_note(run.commitment).value();
  const auto note = [&](std::uint64_t size, const digest& final_state) {
    return sign_run_note(run.agreed.id(), size, honest.note.note.root, final_state, key_of(1))
        .value();
  };
  const std::uint64_t size = records.size();
  const auto rejects = [&](const std::string& text) {
    return count(run.findings(text), outcome::reject, "transcript.chain");
  };
  REQUIRE(rejects(note(size, *honest.final_state)) == 0);
  REQUIRE(rejects(note(size + 1, *honest.final_state)) == 1);
  REQUIRE(rejects(note(size - 1, *honest.final_state)) == 1);
  REQUIRE(rejects(note(size, digest{})) == 1);
  const std::vector<finding> of_another = run.findings(note(size + 1, *honest.final_state));
  CHECK(std::any_of(of_another.begin(), of_another.end(), [](const finding& one) {
    return one.reason.find("or the commitment is that of another run") != std::string::npos;
  }));
}

TEST_CASE("a run that does not say where it starts is rejected for that too") {
  damaged_run run;
  std::vector<record> records = read_records(run.path);
  records.erase(records.begin() + 1);
  write_records(run.path, records);
  const auto found =
      open_run(run.path, run.agreed, commit_to(records, run.agreed)).value().findings();
  REQUIRE(count(found, outcome::reject, "agreed.initial_state") == 1);
  REQUIRE(count(found, outcome::reject, "transcript.sequence") >= 1);
}

TEST_CASE("a rate that follows a metric is a number all the same") {
  static const double used = std::numeric_limits<double>::quiet_NaN();
  const temporary_directory root;
  const job agreed = small_job([](job& what) { what.rates.clear(); });
  deviation how;
  how.entry = [](step_entry& entry) {
    if (entry.step == 3) entry.rates = std::span(&used, 1);
  };
  const std::string path = root.file("run");
  const std::string commitment = record_run(path, agreed, how);
  const auto found = open_run(path, agreed, commitment).value().findings();
  REQUIRE(count(found, outcome::reject, "transcript.finite") == 1);
}

// The agreed recipe may diverge, which a replay knows.
TEST_CASE("a loss or a gradient that is not finite is undecided unless the step was skipped") {
  constexpr auto skipped = static_cast<std::uint32_t>(step_flag::skipped);
  constexpr auto not_finite = static_cast<std::uint32_t>(step_flag::non_finite);
  const auto found_with = [](double loss, std::uint32_t flags) {
    const temporary_directory root;
    const job agreed = small_job();
    deviation how;
    how.entry = [&](step_entry& entry) {
      if (entry.step < 3) return;
      if (loss != 0) entry.loss = loss;
      entry.flags = flags;
    };
    const std::string path = root.file("run");
    const std::string commitment = record_run(path, agreed, how);
    return open_run(path, agreed, commitment).value().findings();
  };
  const std::string rule = "transcript.finite";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  for (const auto& [loss, flags] : {std::pair(nan, 0U), {infinite, 0U}, {0.0, not_finite}}) {
    const auto found = found_with(loss, flags);
    REQUIRE(count(found, outcome::reject, rule) == 0);
    REQUIRE(count(found, outcome::inconclusive, rule) == 1);
    REQUIRE(count(found_with(loss, flags | skipped), outcome::inconclusive, rule) == 0);
  }
}
