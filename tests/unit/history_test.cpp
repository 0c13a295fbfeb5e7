// SPDX-License-Identifier: Apache-2.0
// Each contradiction in the order of records is seen by itself, whatever else it entails.
#include <algorithm>
#include <filesystem>
#include <functional>

#include "run_fixture.hpp"
#include "transcript/history.hpp"

using namespace potl_test;

namespace {

/// What a log says against itself after a change of its records, chained anew.
std::vector<std::string> anomalies(const std::function<void(std::vector<record>&)>& change,
                                   std::uint64_t resume_after = 0) {
  const temporary_directory root;
  const std::string path = root.file("run");
  deviation how;
  how.resume_after = resume_after;
  record_run(path, small_job(), how);
  std::vector<record> records = read_records(path);
  change(records);
  write_records(path, records);
  std::vector<std::string> out;
  const auto found = read_history(bytes_of(path + "/transcript.log"), {}).value();
  for (const anomaly& one : found.anomalies) {
    out.push_back(one.reason + (one.step ? " at " + std::to_string(*one.step) : ""));
  }
  return out;
}

bool says(const std::vector<std::string>& reasons, std::string_view what) {
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const std::string& one) { return one.find(what) != std::string::npos; });
}

resume_record& resume_in(std::vector<record>& records) {
  const auto at = std::find_if(records.begin(), records.end(), [](const record& one) {
    return std::holds_alternative<resume_record>(one);
  });
  return std::get<resume_record>(*at);
}

}  // namespace

TEST_CASE("an honest log says nothing against itself") {
  REQUIRE(anomalies([](auto&) {}).empty());
  REQUIRE(anomalies([](auto&) {}, 3).empty());
}

TEST_CASE("records in places where they have no business are named") {
  REQUIRE(says(anomalies([](auto& r) { r.push_back(r[3]); }), "follows the close record"));
  REQUIRE(says(anomalies([](auto& r) { r.insert(r.begin() + 2, r[0]); }), "a second header"));
  REQUIRE(says(anomalies([](auto& r) { r.insert(r.begin() + 3, r[1]); }), "not the second"));
  REQUIRE(says(anomalies([](auto& r) { r.erase(r.begin() + 1); }), "no initial record"));
  REQUIRE(says(anomalies([](auto& r) { r.erase(r.begin() + 3); }), "step 3 follows step 1"));
}

TEST_CASE("a record of another job is named") {
  const auto change = [](auto& r) { std::get<step_record>(r[3]).job_id = digest{}; };
  REQUIRE(says(anomalies(change), "another job than the header at 1"));
}

TEST_CASE("a close record names the last step and its state") {
  const auto close = [](auto& r) -> close_record& { return std::get<close_record>(r.back()); };
  const std::string_view what = "does not name the last step's state";
  REQUIRE(says(anomalies([&](auto& r) { close(r).state = digest{}; }), what));
  const auto earlier = [&](auto& r) {
    close(r).step = 5;
    close(r).state = std::get<step_record>(r[6]).state;
  };
  REQUIRE(says(anomalies(earlier), what));
}

TEST_CASE("every field of a resume is compared") {
  const auto after = [](const std::function<void(resume_record&)>& change) {
    return anomalies([&](auto& r) { change(resume_in(r)); }, 3);
  };
  REQUIRE(says(after([](auto& r) { r.number = 2; }), "another number"));
  REQUIRE(says(after([](auto& r) { r.log_size += 1; }), "another number of records"));
  REQUIRE(says(after([](auto& r) { r.log_root = digest{}; }), "another root"));
  REQUIRE(says(after([](auto& r) { r.last_step = 2; }), "another last step"));
  REQUIRE(says(after([](auto& r) { r.state = digest{}; }), "another state than"));
  REQUIRE(says(after([](auto& r) { r.from_step = 99; }), "not in the log"));
  REQUIRE(says(after([](auto& r) { r.from_step = 1; }), "without a checkpoint"));
  REQUIRE(says(after([](auto& r) { r.signature[0] ^= 1; }), "not signed"));
}

TEST_CASE("who commits holds the run's key, and the run is whole") {
  const temporary_directory root;
  const std::string path = root.file("run");
  record_run(path, small_job());
  std::filesystem::remove(path + "/commitment");
  REQUIRE_FALSE(commit_run(path, key_of(2)));
  std::vector<std::uint8_t> log = bytes_of(path + "/transcript.log");
  log.push_back(0);
  overwrite(path + "/transcript.log", log);
  REQUIRE_FALSE(commit_run(path, key_of(1)));
  log.pop_back();
  overwrite(path + "/transcript.log", log);
  REQUIRE(commit_run(path, key_of(1)));
}
