// SPDX-License-Identifier: Apache-2.0
// Job and key are named in several places of a run: each is compared by itself.
#include <algorithm>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct honest_run {
  temporary_directory root;
  std::string path = root.file("run");
  job agreed = small_job();
  job other = small_job([](job& what) { what.seed = 8; });
  std::string commitment = record_run(path, agreed);
  std::vector<record> records = read_records(path);

  std::vector<finding> findings(const std::string& note,
                                const std::vector<std::string>& published = {}) const {
    write_records(path, records);
    evidence_options options;
    options.directory = path;
    options.client_job = agreed;
    options.commitment = note;
    options.published = published;
    return evidence::open(options).value().findings();
  }
};

std::size_t rejections(const std::vector<finding>& findings, std::string_view rule,
                       std::string_view reason) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(), [&](const finding& one) {
        return one.result == outcome::reject && one.rule == rule &&
               one.reason.find(reason) != std::string::npos;
      }));
}

void rename(record& one, const digest& id) {
  std::visit([&](auto& content) { content.job_id = id; }, one);
}

}  // namespace

TEST_CASE("a run whose records all name another job is rejected, whatever the commitment says") {
  honest_run run;
  for (record& one : run.records) rename(one, run.other.id());
  const auto found = run.findings(commit_to(run.records, run.agreed));
  REQUIRE(rejections(found, "agreed.job", "the run was recorded for job") == 1);
}

TEST_CASE("a single record of another job is rejected") {
  honest_run run;
  rename(run.records[4], run.other.id());
  const auto found = run.findings(commit_to(run.records, run.agreed));
  REQUIRE(rejections(found, "agreed.job", "a record names another job") == 1);
}

TEST_CASE("a commitment for another job is rejected") {
  const honest_run run;
  const auto found = run.findings(commit_to(run.records, run.other));
  REQUIRE(rejections(found, "agreed.job", "the commitment is for job") == 1);
}

TEST_CASE("a header with another key is rejected, though the pinned key commits") {
  honest_run run;
  std::get<header_record>(run.records[0]).trainer = digest{key_of(2).verifier().raw()};
  const auto found = run.findings(commit_to(run.records, run.agreed));
  REQUIRE(rejections(found, "agreed.trainer_key", "another key than the one") == 1);
  REQUIRE(rejections(found, "agreed.trainer_key", "is not signed") == 0);
}

TEST_CASE("a published note of somebody else is no promise of this trainer") {
  const honest_run run;
  const auto note = [&](std::uint8_t key) {
    merkle_frontier tree;
    for (std::size_t i = 0; i < 4; ++i) tree.append(leaf_hash(encode(run.records[i])));
    return sign_run_note(run.agreed.id(), 4, tree.root(), std::nullopt, key_of(key)).value();
  };
  const auto inconclusive = [&](std::uint8_t key) {
    const auto found = run.findings(run.commitment, {note(key)});
    return std::count_if(found.begin(), found.end(), [](const finding& one) {
      return one.result == outcome::inconclusive && one.rule == "transcript.history";
    });
  };
  REQUIRE(inconclusive(1) == 0);
  REQUIRE(inconclusive(2) == 1);
}

TEST_CASE("a report says that a job brings its initial state in a file") {
  const auto notes = [](bool from_seed) {
    temporary_directory root;
    const job agreed = small_job([&](job& what) { what.initial_state_from_seed = from_seed; });
    evidence_options options;
    options.directory = root.file("run");
    options.client_job = agreed;
    options.commitment = record_run(options.directory, agreed);
    const auto found = evidence::open(options).value().findings();
    return std::count_if(found.begin(), found.end(), [](const finding& one) {
      return one.result == outcome::note && one.reason.find("in a file") != std::string::npos;
    });
  };
  REQUIRE(notes(true) == 0);
  REQUIRE(notes(false) == 1);
}
