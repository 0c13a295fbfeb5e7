// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/verifier_notes.hpp>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct told {
  temporary_directory directory;
  evidence_options options;

  explicit told(bool own_job = true, bool committed = true) {
    const job agreed = small_job();
    options.directory = directory.file("run");
    const std::string commitment = record_run(options.directory, agreed);
    if (own_job) options.client_job = agreed;
    if (committed) options.commitment = commitment;
  }

  std::string of(const checks::verifier_work& done) const {
    std::string out;
    for (const finding& one : checks::verifier_notes(evidence::open(options).value(), done)) {
      REQUIRE(one.check == "verifier");
      REQUIRE(one.result == outcome::note);
      REQUIRE(one.rule.empty());
      out += one.reason.substr(0, one.reason.find(',')) + (one.details.empty() ? ";" : "!");
    }
    return out;
  }
};

}  // namespace

TEST_CASE("a report says what a verifier remembered, was given, and left out") {
  const told run;
  checks::verifier_work done;
  done.ledger = "here";
  REQUIRE(run.of(done).empty());
  done.verified_before = true;
  REQUIRE(run.of(done).find("verified before: earlier challenges are repeated") !=
          std::string::npos);
  done.rejected = true;
  REQUIRE(run.of(done).starts_with("this job was verified before: earlier commitments compared"));
  done.verified_before = false;
  done.nonce_given = done.rejected = true;
  done.unknown = {"a", "b"};
  done.not_looked_at = 3;
  REQUIRE(run.of(done) ==
          "the nonce was given!the record itself is rejected;the check a;the check b;"
          "what was seen rejects the run;");
}

TEST_CASE("a report says that no ledger was kept where one could have been") {
  REQUIRE(told().of({}).starts_with("no ledger was kept"));
  REQUIRE(told(false, true).of({}).empty());
  REQUIRE(told(true, false).of({}).empty());
}
