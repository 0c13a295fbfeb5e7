// SPDX-License-Identifier: Apache-2.0
#include <potl/verify.hpp>

#include <limits>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl_test;

namespace {

/// The training of the fixture: its state is a function of the number of steps done.
class counting_workload {
 public:
  void load_state(const state& from, std::uint64_t step) {
    if (unfit) throw exception({errc::mismatch, "another model", ""});
    if (broken) throw std::bad_alloc();
    REQUIRE(from.tensors().size() == 2);
    done_ = step;
  }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t> ids) {
    REQUIRE(step == done_ + 1);
    REQUIRE_FALSE(ids.empty());
    done_ = step;
    return {1.0 / static_cast<double>(step), {rate}, false, 1};
  }
  state capture() { return state_after(done_, memory_, salt ? salt(done_) : 0.0F); }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t>) {
    REQUIRE(step == done_ + 1);
    return 1.0 / static_cast<double>(step);
  }
  subset_outcome subset_loss(std::span<const std::int64_t>) { return {0.5, 1}; }
  void perturb(std::uint64_t) {}

  bool unfit = false, broken = false;
  std::function<float(std::uint64_t step)> salt;

 private:
  snapshot_memory memory_;
  std::uint64_t done_ = 0;
};

struct verification {
  temporary_directory directory;
  job agreed = small_job();
  counting_workload work;

  json_value report(const deviation& how = {}) {
    const std::string run = directory.file("run");
    evidence_options options;
    options.directory = run;
    options.client_job = agreed;
    options.commitment = record_run(run, agreed, how);
    const evidence seen = evidence::open(options).value();
    verify_options wanted;
    wanted.nonce.bytes.fill(1);
    return verify(seen, work, wanted, checks::pev_options(), checks::replay_options());
  }
};

std::string verdict_of(const json_value& report) { return *report.find("verdict")->if_string(); }

bool rejects(const json_value& report, std::string_view rule) {
  for (const json_value& one : *report.find("findings")->if_array()) {
    if (*one.find("result")->if_string() == "reject" && *one.find("rule")->if_string() == rule) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("a C++ workload accepts its own run") {
  verification one;
  const json_value report = one.report();
  INFO(canonical_json(report));
  REQUIRE(verdict_of(report) == "accepted");
  REQUIRE(report.find("replays")->if_array()->size() == 3);
  REQUIRE(report.find("cost")->find("checks")->if_array()->size() == 2);
}

TEST_CASE("a C++ workload rejects a state that its steps do not lead to") {
  verification one;
  deviation how;
  how.salt = [](std::uint64_t step) { return step == 4 ? 0.5F : 0.0F; };
  const json_value report = one.report(how);
  REQUIRE(verdict_of(report) == "rejected");
  REQUIRE(rejects(report, "replay.magnitude"));
}

TEST_CASE("a C++ workload rejects a NaN from which it trains on to the recorded bits") {
  // In the last segment; only opened at a start; and in the last state, which nothing starts from.
  for (const std::uint64_t from : {5u, 3u, 6u}) {
    verification one;
    deviation how;
    how.salt = [from](std::uint64_t step) {
      return step >= from ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
    };
    one.work.salt = how.salt;
    const json_value report = one.report(how);
    INFO(canonical_json(report));
    REQUIRE(rejects(report, "transcript.finite"));
    verification again;
    again.work.salt = how.salt;
    const rule_off off("transcript.finite");
    REQUIRE(verdict_of(again.report(how)) == "accepted");
  }
}

TEST_CASE("a C++ workload rejects a NaN that is gone before the end") {
  verification one;
  deviation how;
  how.salt = [](std::uint64_t step) {
    return step == 4 ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  };
  one.work.salt = how.salt;
  REQUIRE(rejects(one.report(how), "transcript.finite"));
}

TEST_CASE("a C++ workload rejects an invented loss") {
  verification one;
  deviation how;
  how.entry = [](step_entry& entry) { entry.loss *= 0.5; };
  REQUIRE(rejects(one.report(how), "loss.recomputed"));
}

TEST_CASE("a C++ workload replays what a resume replaced") {
  verification one;
  deviation how;
  how.resume_after = 3;
  const json_value report = one.report(how);
  INFO(canonical_json(report));
  REQUIRE(verdict_of(report) == "accepted");
  REQUIRE(report.find("replays")->if_array()->size() == 4);
}

TEST_CASE("trouble of a C++ workload is inconclusive") {
  verification one;
  one.work.broken = true;
  REQUIRE(verdict_of(one.report()) == "inconclusive");
}

TEST_CASE("a recorded state that does not fit a C++ workload rejects") {
  verification one;
  one.work.unfit = true;
  REQUIRE(rejects(one.report(), "transcript.checkpoint"));
}
