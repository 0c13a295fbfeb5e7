// SPDX-License-Identifier: Apache-2.0
// A run and its repetition: the first difference is named, whoever is ahead, and a log that is
// damaged or of something else is no difference.
#include <potl/transcript/repetition.hpp>

#include <cmath>
#include <limits>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

using log_bytes = std::vector<std::uint8_t>;

log_bytes record_one(const job& agreed, const deviation& how = {}) {
  const temporary_directory place;
  record_run(place.file("run"), agreed, how);
  return read_file(place.file("run/transcript.log"), 1 << 20).value();
}

/// Whose turn it is to go ahead.
enum class order { log_first, auditor_first, in_turn };

repetition compare(const job& agreed, const log_bytes& run, const log_bytes& own, order who,
                   std::size_t piece = 100) {
  repetition out(agreed);
  // What of a log is there when so many bytes were written.
  const auto grown = [](const log_bytes& of, std::size_t size, std::uint64_t position) {
    return bytes_view(of).first(std::min(size, of.size())).subspan(position);
  };
  if (who == order::auditor_first) REQUIRE(out.hear_own(own));
  for (std::size_t size = 0; size < std::max(run.size(), own.size()) + piece; size += piece) {
    REQUIRE(out.hear(grown(run, size, out.position())));
    if (who == order::in_turn) REQUIRE(out.hear_own(grown(own, size, out.own_position())));
  }
  if (who == order::log_first) REQUIRE(out.hear_own(own));
  CHECK(out.position() == run.size());
  CHECK(out.repeated_steps() == agreed.steps);
  return out;
}

bool are_zeros(bytes_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t one) { return one == 0; });
}

constexpr order orders[] = {order::log_first, order::auditor_first, order::in_turn};

}  // namespace

TEST_CASE("an honest run and its repetition agree, in pieces of any size", "[repetition]") {
  const job agreed = small_job();
  const log_bytes own = record_one(agreed);
  for (const std::uint64_t resume_after : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{5}}) {
    deviation how;
    how.resume_after = resume_after;
    const log_bytes run = record_one(agreed, how);
    for (const order who : orders) {
      for (const std::size_t piece : {1UL, 7UL, 100UL, 100000UL}) {
        const repetition done = compare(agreed, run, own, who, piece);
        CHECK(!done.difference());
        CHECK(done.agreed_steps() == 6);
        CHECK(done.is_closed());
      }
    }
  }
}

TEST_CASE("the first difference is named by its step and field", "[repetition]") {
  const job agreed = small_job();
  const log_bytes own = record_one(agreed);
  const std::vector<std::int64_t> others{9, 9, 9, 9};
  const std::vector<double> other_rates{0.2};
  struct lie {
    std::string field;
    std::function<void(step_entry&)> what;
  };
  const std::vector<lie> lies{
      {"samples", [&](step_entry& e) { e.sample_ids = others; }},
      {"learning rates", [&](step_entry& e) { e.rates = other_rates; }},
      {"loss", [](step_entry& e) { e.loss = std::nextafter(e.loss, 2); }},
      {"skipped update",
       [](step_entry& e) { e.flags = static_cast<std::uint32_t>(step_flag::skipped); }},
  };
  for (const lie& one : lies) {
    INFO(one.field);
    deviation how;
    how.entry = [&](step_entry& e) {
      if (e.step >= 4) one.what(e);
    };
    const log_bytes run = record_one(agreed, how);
    for (const order who : orders) {
      const repetition done = compare(agreed, run, own, who);
      REQUIRE(done.difference());
      CHECK(done.difference()->step == 4);
      CHECK(done.difference()->field == (who == order::auditor_first ? "record" : one.field));
      CHECK(done.agreed_steps() == 3);
    }
  }
  for (const std::uint64_t from : {0UL, 5UL}) {
    deviation how;
    how.salt = [=](std::uint64_t step) { return step >= from ? 0.5F : 0.0F; };
    const log_bytes run = record_one(agreed, how);
    for (const order who : orders) {
      const repetition done = compare(agreed, run, own, who);
      REQUIRE(done.difference());
      CHECK(done.difference()->step == from);
      CHECK(done.difference()->field == (from == 0 ? "initial state" : "state"));
    }
  }
}

TEST_CASE("the bits of a loss that is no number are no difference", "[repetition]") {
  const job agreed = small_job();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto diverged = [&](double loss) {
    deviation how;
    how.entry = [loss](step_entry& e) { e.loss = e.step >= 4 ? loss : e.loss; };
    return record_one(agreed, how);
  };
  const log_bytes own = diverged(nan);
  for (const order who : orders) {
    CHECK_FALSE(compare(agreed, diverged(std::copysign(nan, -1)), own, who).difference());
    CHECK(compare(agreed, diverged(1), own, who).difference());
  }
}

TEST_CASE("a later branch of a resumed run is compared again", "[repetition]") {
  const job agreed = small_job();
  const log_bytes own = record_one(agreed);
  int seen = 0;
  deviation how;
  how.resume_after = 3;  // goes on from the state after step 2, so that step 3 comes twice
  how.salt = [&](std::uint64_t step) { return step == 3 && ++seen == 2 ? 0.5F : 0.0F; };
  const log_bytes run = record_one(agreed, how);
  for (const order who : orders) {
    const repetition done = compare(agreed, run, own, who);
    REQUIRE(done.difference());
    CHECK(done.difference()->step == 3);
    CHECK(done.difference()->field == "state");
  }
}

TEST_CASE("the rounding logs of a run are found, and those that were followed are compared",
          "[repetition]") {
  const job agreed = small_job([](job& one) { one.arithmetic = "log64"; });
  const auto logged = [&](std::uint64_t resume_after, std::uint64_t other) {
    deviation how;
    how.resume_after = resume_after;
    int again = 0;
    auto log = std::make_shared<log_bytes>();
    how.entry = [=](step_entry& entry) mutable {
      again += entry.step == other ? 1 : 0;
      log->assign(entry.step, static_cast<std::uint8_t>(entry.step == other ? again : 0));
      entry.rounding_log = *log;
    };
    return record_one(agreed, how);
  };
  const log_bytes own = logged(0, 0);
  repetition ahead(agreed);
  REQUIRE(ahead.hear(logged(3, 0)));  // goes on from the state after step 2
  REQUIRE(ahead.rounding_of(2));
  CHECK(ahead.rounding_of(2)->branch == 0);
  CHECK(ahead.rounding_of(2)->offset == 1);
  CHECK(ahead.rounding_of(2)->bound.bytes == 2);
  CHECK(ahead.rounding_of(3)->branch == 1);
  CHECK(ahead.rounding_of(3)->offset == 0);
  CHECK(ahead.rounding_of(5)->offset == 7);
  CHECK(!ahead.rounding_of(0));
  CHECK(!ahead.rounding_of(7));
  for (const order who : orders) {
    CHECK(!compare(agreed, logged(3, 0), own, who).other_rounding());
    const repetition once = compare(agreed, logged(0, 3), own, who);
    CHECK(once.other_rounding() == 3);
    CHECK(!once.difference());
    // Step 3 comes twice, and the second time with another log than the first.
    const repetition twice = compare(agreed, logged(3, 3), logged(0, 3), who);
    CHECK(twice.other_rounding() == 3);
    CHECK(!twice.difference());
  }
  repetition interrupted(agreed);
  REQUIRE(interrupted.hear_own(logged(3, 3)));
  CHECK(interrupted.other_rounding() == 3);
}

TEST_CASE("what a machine measures is not compared", "[repetition]") {
  const job agreed = small_job();
  const log_bytes own = record_one(agreed);
  deviation how;
  how.entry = [](step_entry& e) {
    e.duration_ns = 7;
    e.random_draws = 12;
  };
  const log_bytes run = record_one(agreed, how);
  for (const order who : orders) CHECK(compare(agreed, run, own, who).agreed_steps() == 6);
}

TEST_CASE("no damage of a log is a difference, and none agrees to its end", "[repetition]") {
  const job agreed = small_job();
  const log_bytes own = record_one(agreed);
  for (std::size_t at = 0; at < own.size(); ++at) {
    log_bytes damaged = own;
    damaged[at] ^= static_cast<std::uint8_t>(1 << (at % 8));
    repetition out(agreed);
    const status heard = out.hear(damaged);
    REQUIRE(out.hear_own(own));
    const bool whole = out.agreed_steps() == 6 && out.is_closed();
    CHECK(!out.difference());
    CHECK(!whole);
    if (!heard) CHECK(!out.hear({}));  // what was refused stays refused
  }
}

TEST_CASE("zeros at the end of a log are not there yet, and agree with nothing", "[repetition]") {
  const job agreed = small_job();
  const log_bytes own = record_one(agreed);
  for (std::size_t at = 0; at < own.size(); ++at) {
    for (const std::size_t more : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
      log_bytes zeros = own;
      if (are_zeros(bytes_view(own).subspan(at))) continue;  // nothing is lost there
      std::fill(zeros.begin() + static_cast<std::ptrdiff_t>(at), zeros.end(), std::uint8_t{0});
      zeros.resize(own.size() + more);
      repetition out(agreed);
      REQUIRE(out.hear(zeros));
      REQUIRE(out.hear_own(own));
      CHECK(out.position() <= std::max<std::size_t>(at, 16));  // a header ends in zeros
      CHECK(!out.is_closed());
      CHECK(!out.difference());
      // Who resumes the run writes in their place.
      REQUIRE(out.hear(bytes_view(own).subspan(out.position())));
      CHECK(out.agreed_steps() == 6);
      CHECK(out.is_closed());
    }
  }
  // Behind the last record nothing is written any more.
  log_bytes longer = own;
  longer.resize(own.size() + 64);
  CHECK(!repetition(agreed).hear(longer));
  // Zeros with something behind them are no torn end.
  log_bytes damaged(own.begin(), own.end() - 400);
  damaged.resize(own.size() - 1);
  damaged.push_back(1);
  CHECK(!repetition(agreed).hear(damaged));
}

TEST_CASE("logs of something else, or longer than agreed, are refused", "[repetition]") {
  const job agreed = small_job();
  const auto hear = [&](const job& of, const deviation& how = {}, const job* by = nullptr) {
    const log_bytes run = record_one(by == nullptr ? of : *by, how);
    repetition out(of);
    const status heard = out.hear(run);
    return heard ? std::string() : heard.why().message;
  };
  const job other = small_job([](job& j) { j.seed = 8; });
  CHECK(hear(agreed, {}, &other) == "the log is of another job");
  const job unpinned = small_job([](job& j) { j.trainer = std::nullopt; });
  deviation stranger;
  stranger.key = 2;
  CHECK(hear(unpinned, stranger) == "");
  const auto appended = [&](std::vector<record> what) {
    digest chain = log_chain_start();
    std::vector<std::uint8_t> out = log_header();
    for (const record& one : what) append_frame(one, chain, out);
    repetition compared(agreed);
    const status heard = compared.hear(out);
    return heard ? std::string() : heard.why().message;
  };
  const digest id = agreed.id();
  const header_record begin{id, *agreed.trainer, "test"};
  const initial_record initial{id, agreed.initial_state};
  step_record step;
  step.job_id = id;
  step.rates = {rate};
  const auto at = [&](std::uint64_t number) {
    step.step = number;
    return step;
  };
  resume_record resume;
  resume.job_id = id;
  CHECK(appended({header_record{id, digest{key_of(2).verifier().raw()}, "test"}}) ==
        "the log is of another trainer than the job's");
  CHECK(appended({initial}) == "the log does not begin with its header record");
  CHECK(appended({begin, begin}) == "a second header record");
  CHECK(appended({begin, at(1)}) == "the log does not say what it starts from");
  CHECK(appended({begin, initial, initial}) == "an initial record that is not the second");
  CHECK(appended({begin, initial, at(2)}) == "step 2 follows step 0");
  CHECK(appended({begin, initial, at(1), at(1)}) == "step 1 follows step 1");
  CHECK(appended({begin, initial, at(1), at(2), at(3), at(4), at(5), at(6), at(7)}) ==
        "step 7 follows step 6");
  CHECK(appended({begin, initial, resume, resume, resume}) ==
        "the run was resumed more often than agreed");
  resume.from_step = 1;
  CHECK(appended({begin, initial, resume}) == "a resume goes on from a step that was not recorded");
  CHECK(appended({begin, initial, at(1), close_record{id, 2, {}, {}}}) ==
        "the close record does not name the last step");
  CHECK(appended({begin, initial, at(1), close_record{id, 1, {}, {}}, at(2)}) ==
        "a record follows the close record");
}

TEST_CASE("an auditor that is interrupted repeats itself, or is not to be relied on",
          "[repetition]") {
  const job agreed = small_job();
  const log_bytes run = record_one(agreed);
  deviation how;
  how.resume_after = 3;
  how.key = 1;
  CHECK(compare(agreed, run, record_one(agreed, how), order::in_turn).agreed_steps() == 6);
  int seen = 0;
  how.salt = [&](std::uint64_t step) { return step == 3 && ++seen == 2 ? 0.5F : 0.0F; };
  repetition out(agreed);
  REQUIRE(out.hear(run));
  CHECK(out.hear_own(record_one(agreed, how)).why().code == errc::internal);
  CHECK(!out.difference());
}

TEST_CASE("an auditor's log has a key of its own", "[repetition]") {
  const job agreed = small_job(), unpinned = small_job([](job&j) { j.trainer = std::nullopt; });
  deviation how;
  how.key = 2;
  CHECK(compare(unpinned, record_one(unpinned), record_one(unpinned, how), order::in_turn)
            .agreed_steps() == 6);
  repetition out(agreed);
  CHECK(out.hear_own(record_one(agreed, how)));
}
