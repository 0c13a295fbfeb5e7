// SPDX-License-Identifier: Apache-2.0
// Rounding logs in a run: bound by the step's record, kept in a file of their own.
#include <filesystem>

#include <potl/evidence/detail/inspect.hpp>
#include <potl/numeric/rounding_log.hpp>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

/// A log that differs from step to step, also in its length.
std::vector<std::uint8_t> log_of(std::uint64_t step) {
  numeric::rounding_log log{32, 100000, {}};
  for (std::uint64_t i = 0; i < 10 * step; ++i) log.entries.push_back({31 * i + step, i % 3 == 0});
  return numeric::encode_rounding_log(log);
}

job log64_job() {
  return small_job([](job& what) { what.arithmetic = "log64"; });
}

struct rounded_run {
  temporary_directory root;
  std::string path = root.file("run");
  job agreed = log64_job();
  evidence_options options;
  std::vector<std::uint8_t> bytes;  // of the step being recorded

  deviation logging(deviation how = {}) {
    const auto other = how.entry;
    how.entry = [this, other](step_entry& entry) {
      bytes = log_of(entry.step);
      entry.rounding_log = bytes;
      if (other) other(entry);
    };
    return how;
  }

  explicit rounded_run(deviation how = {}, const job& what = log64_job()) : agreed(what) {
    options.directory = path;
    options.commitment = record_run(path, agreed, logging(std::move(how)));
    options.client_job = agreed;
  }

  evidence open() const { return evidence::open(options).value(); }
  std::vector<std::string> rules() const { return rejecting_rules(open()); }
  std::string file(std::uint64_t branch = 0) const {
    return path + "/rounding/branch-" + std::to_string(branch) + ".log";
  }
};

}  // namespace

TEST_CASE("a run keeps the rounding log that each step binds", "[rounding_run]") {
  const rounded_run run;
  const evidence got = run.open();
  for (const finding& one : got.findings()) {
    INFO(one.reason);
    CHECK(one.result == outcome::pass);
  }
  for (std::uint64_t step = 1; step <= 6; ++step) {
    const std::vector<std::uint8_t> log = log_of(step);
    CHECK(got.load_rounding_log(step).value() == log);
    CHECK(got.rounding_log_of(step) ==
          rounding_reference{numeric::rounding_log_digest(log), log.size()});
  }
  CHECK(got.load_rounding_log(7).why().code == errc::missing);
  CHECK_FALSE(got.rounding_log_of(0));
}

TEST_CASE("a resumed run keeps the rounding logs of both branches", "[rounding_run]") {
  deviation how;
  how.resume_after = 5;
  const rounded_run run(how);
  const evidence got = run.open();
  CHECK(rejecting_rules(got).empty());
  for (std::uint64_t step = 1; step <= 6; ++step) {
    CHECK(got.load_rounding_log(step).value() == log_of(step));
  }
  CHECK(got.load_rounding_log(5, 0).value() == log_of(5));  // superseded
  CHECK(got.load_rounding_log(5, 1).value() == log_of(5));
  CHECK(got.load_rounding_log(4, 1).why().code == errc::missing);
}

TEST_CASE("a step of log64 that binds no log is rejected: what comes later is late",
          "[rounding_run]") {
  deviation how;
  how.entry = [](step_entry& entry) {
    if (entry.step == 3) entry.rounding_log = {};
  };
  const rounded_run run(how);
  CHECK(run.rules() == std::vector<std::string>{"transcript.rounding"});
  const without_rule off("transcript.rounding");
  CHECK(run.rules().empty());
}

TEST_CASE("a step that binds a log in another arithmetic is rejected", "[rounding_run]") {
  const rounded_run run({}, small_job());
  CHECK(run.rules() == std::vector<std::string>{"transcript.rounding"});
}

TEST_CASE("rounding logs that are not there are withheld", "[rounding_run]") {
  const rounded_run run;
  const std::vector<std::uint8_t> all = bytes_of(run.file());
  overwrite(run.file(), bytes_view(all).first(all.size() - 1));
  CHECK(run.rules() == std::vector<std::string>{"transcript.withheld"});
  CHECK(run.open().load_rounding_log(6).why().code == errc::missing);
  CHECK(run.open().load_rounding_log(5).value() == log_of(5));
  std::filesystem::remove(run.file());
  CHECK(run.rules() == std::vector<std::string>{"transcript.withheld"});
  const evidence before = run.open();
  std::filesystem::create_symlink("/dev/zero", run.file());
  CHECK(evidence::open(run.options).why().code == errc::malformed);  // docs/decisions/0008
  CHECK_FALSE(before.load_rounding_log(1));
}

TEST_CASE("a rounding log that was changed after the commitment does not load", "[rounding_run]") {
  const rounded_run run;
  std::vector<std::uint8_t> all = bytes_of(run.file());
  all[log_of(1).size() + 21] ^= 1;  // in that of step 2
  overwrite(run.file(), all);
  const evidence got = run.open();
  CHECK(rejecting_rules(got).empty());
  CHECK(got.load_rounding_log(2).why().code == errc::mismatch);
  CHECK(got.load_rounding_log(3).value() == log_of(3));
  const without_rule off("transcript.rounding");
  CHECK(got.load_rounding_log(2));
}

TEST_CASE("a size that a record claims takes no memory before the file is known to have it",
          "[rounding_run]") {
  rounded_run run;
  std::vector<record> records = read_records(run.path);
  for (record& one : records) {
    auto* step = std::get_if<step_record>(&one);
    if (step != nullptr && step->step == 2) step->rounding->bytes = max_rounding_log_bytes;
  }
  write_records(run.path, records);
  run.options.commitment = commit_to(records, run.agreed);
  CHECK(run.open().load_rounding_log(2).why().code == errc::missing);
}

TEST_CASE("records whose rounding logs a power cut took are dropped and recorded again",
          "[rounding_run]") {
  for (const bool zeros : {false, true}) {
    rounded_run source;
    temporary_directory root;
    const std::string path = root.file("run");
    snapshot_memory memory;
    const signing_key key = key_of(1);
    const writer_options options{path, "test", 2, 1};
    writer log = writer::create(options, source.agreed, key).value();
    log.append_initial(state_after(0, memory)).value();
    record_steps(log, source.agreed, 1, 5, memory, source.logging());
    log.abandon().value();
    // Step 4 is a checkpoint: what led to it was on the disk before it. Step 5 was in flight.
    const std::string file = path + "/rounding/branch-0.log";
    std::vector<std::uint8_t> all = bytes_of(file);
    if (zeros) {
      std::fill(all.end() - 20, all.end(), std::uint8_t{0});
    } else {
      all.resize(all.size() - 20);
    }
    overwrite(file, all);
    writer::resumed again = writer::resume(options, source.agreed, key).value();
    CHECK(again.step == 4);
    record_steps(again.recorder, source.agreed, 5, 6, memory, source.logging());
    again.recorder.close().value();
    const std::string commitment = commit_run(path, key).value();
    const evidence got = open_run(path, source.agreed, commitment).value();
    CHECK(rejecting_rules(got).empty());
    CHECK(got.superseded_steps().empty());
    CHECK(got.load_rounding_log(5).value() == log_of(5));
    CHECK(got.load_rounding_log(4).value() == log_of(4));
  }
}

TEST_CASE("inspection counts rounding logs and sees when they end early; pruning keeps them",
          "[rounding_run]") {
  const rounded_run run;
  std::uint64_t bytes = 0;
  for (std::uint64_t step = 1; step <= 6; ++step) bytes += log_of(step).size();
  run_facts facts = inspect_run(run.path).value();
  CHECK(facts.rounding_logs == 6);
  CHECK(facts.rounding_bytes == bytes);
  CHECK(facts.damage.empty());
  const prune_plan plan = plan_prune(run.path, std::uint64_t{1} << 40).value();
  CHECK(plan.remove.empty());
  const auto unlogged = [&] {
    std::uint64_t total = 0;
    for (const auto& one : std::filesystem::recursive_directory_iterator(run.path))
      if (one.is_regular_file()) total += one.file_size();
    return total;
  };
  CHECK(plan.bytes == unlogged());
  overwrite(run.file(), bytes_view(bytes_of(run.file())).first(100));
  CHECK(inspect_run(run.path).value().damage.size() == 1);
}

TEST_CASE("a rounding log that is too long is refused by the writer", "[rounding_run]") {
  temporary_directory root;
  snapshot_memory memory;
  const job agreed = log64_job();
  const signing_key key = key_of(1);
  writer log = writer::create({root.file("run"), "test", 2, 1}, agreed, key).value();
  log.append_initial(state_after(0, memory)).value();
  step_entry entry;
  entry.step = 1;
  const std::uint8_t some = 0;  // the size alone is looked at
  entry.rounding_log = {&some, max_rounding_log_bytes + 1};
  CHECK(log.append_step(state_after(1, memory), entry).why().code == errc::usage);
}
