// SPDX-License-Identifier: Apache-2.0
#include <potl/verify.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <potl/evidence/detail/ledger.hpp>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl_test;

namespace {

/// The training of the fixture: its state is a function of the number of steps done.
class counting_workload {
 public:
  void load_state(const state& from, std::uint64_t step) {
    const bool own = from.state_digest() == state_after(0, memory_).state_digest();
    if (unfit && !own) throw exception({errc::mismatch, "another model", ""});
    if (broken) throw std::bad_alloc();
    REQUIRE(from.tensors().size() == 2);
    done_ = step;
  }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t> ids) {
    if (fails && fails(step, done_)) throw std::runtime_error("an exploding step");
    if (exhausted && exhausted(step, done_)) throw std::bad_alloc();
    if (throws_a_number) throw step;
    REQUIRE((step == done_ + 1 || done_ == 0));  // 0: a control experiment
    ++steps_run;
    REQUIRE_FALSE(ids.empty());
    done_ = step;
    return {1.0 / static_cast<double>(step), {rate}, false, 1};
  }
  state capture() {
    if (foreign && done_ == 0) {
      static const std::vector<float> other{1};
      state_map parameters{{std::string("other"), state_value{tensor_of(other)}}};
      state_map model{{std::string("parameters"), state_value{std::move(parameters)}}};
      state_map tree{{std::string("model"), state_value{std::move(model)}}};
      return potl::transcript::capture(state_value{std::move(tree)}, memory_).value();
    }
    return state_after(done_, memory_, salt ? salt(done_) : 0.0F);
  }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t>) {
    REQUIRE(step == done_ + 1);
    return 1.0 / static_cast<double>(step);
  }
  subset_outcome subset_loss(std::span<const std::int64_t>) { return {0.5, 1}; }
  void perturb(std::uint64_t) {}

  bool unfit = false, broken = false, foreign = false, throws_a_number = false;
  std::function<float(std::uint64_t step)> salt;
  std::function<bool(std::uint64_t step, std::uint64_t done)> fails, exhausted;
  int steps_run = 0;

 private:
  snapshot_memory memory_;
  std::uint64_t done_ = 0;
};

struct verification {
  temporary_directory directory;
  job agreed = small_job();
  counting_workload work;

  verify_options wanted;

  checks::replay_options replay;

  verification() {
    wanted.nonce = nonce_of(1);
    wanted.ledger = "";
  }

  json_value report(const deviation& how = {}, const std::string& name = "run") {
    const std::string run = directory.file(name);
    evidence_options options;
    options.directory = run;
    options.client_job = agreed;
    options.commitment = record_run(run, agreed, how);
    return of(evidence::open(options).value());
  }
  json_value of(const evidence& seen) {
    return verify(seen, work, wanted, checks::pev_options(), replay);
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

TEST_CASE("what a C++ client cannot have meant is its own mistake") {
  const auto code_of = [](verification& one) {
    try {
      one.report();
    } catch (const exception& thrown) {
      return thrown.details().code;
    }
    return errc::internal;
  };
  verification percent, backwards;
  percent.wanted.policy = policy::for_detection(95, 0.2);
  REQUIRE(code_of(percent) == errc::usage);
  backwards.wanted.timeout = -1;
  REQUIRE(code_of(backwards) == errc::usage);
}

TEST_CASE("a C++ workload that throws what is no std::exception judges nobody") {
  verification one;
  one.work.throws_a_number = true;
  const json_value report = one.report();
  INFO(canonical_json(report));
  REQUIRE(verdict_of(report) == "inconclusive");
}

TEST_CASE("a C++ workload of another job judges nobody") {
  struct job_workload : counting_workload {
    job of = small_job();
    const job& agreed() const { return of; }
  };
  const temporary_directory directory;
  const job agreed = small_job();
  evidence_options options;
  options.directory = directory.file("run");
  options.client_job = agreed;
  options.commitment = record_run(options.directory, agreed, {});
  const evidence seen = evidence::open(options).value();
  verify_options wanted;
  wanted.ledger = "";
  job_workload work;
  REQUIRE(verdict_of(verify(seen, work, wanted, checks::replay_options())) == "accepted");
  work.of.text += " ";
  REQUIRE_THROWS_WITH(verify(seen, work, wanted, checks::replay_options()),
                      Catch::Matchers::Contains("another job than the run"));
}

TEST_CASE("a C++ report has no stack of addresses") {
  const std::runtime_error thrown(
      "mm: sizes do not fit\nException raised from f at a.cpp:1 (most recent call first):\n"
      "frame #0: 0x7f");
  REQUIRE(checks::trouble_of(thrown).message == "mm: sizes do not fit");
}

TEST_CASE("a C++ workload does not accept a state that its steps do not lead to") {
  verification one;
  deviation how;
  how.salt = [](std::uint64_t step) { return step == 4 ? 0.5F : 0.0F; };
  // What it repeats is no other arithmetic, so that a tolerance accuses nobody.
  REQUIRE(verdict_of(one.report(how)) == "inconclusive");
  verification exact;
  exact.replay.tolerance = "exact";
  const json_value report = exact.report(how);
  REQUIRE(verdict_of(report) == "rejected");
  REQUIRE(rejects(report, "replay.parameters"));
}

TEST_CASE("a C++ workload accepts no NaN from which it trains on to the recorded bits") {
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
    REQUIRE(verdict_of(report) == "inconclusive");
    verification again;
    again.work.salt = how.salt;
    const rule_off off("transcript.finite");
    REQUIRE(verdict_of(again.report(how)) == "accepted");
  }
}

TEST_CASE("a C++ workload accepts no NaN that is gone before the end, and rejects a false one") {
  verification one;
  deviation how;
  how.salt = [](std::uint64_t step) {
    return step == 4 ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  };
  REQUIRE(rejects(one.report(how), "transcript.finite"));
  verification diverging;
  diverging.work.salt = how.salt;
  REQUIRE(verdict_of(diverging.report(how)) == "inconclusive");
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

TEST_CASE("a C++ verification draws its nonce, and refuses one that nobody drew") {
  verification one;
  const auto is_given = [](const json_value& report) {
    return canonical_json(report).find("the nonce was given") != std::string::npos;
  };
  REQUIRE(is_given(one.report({}, "given")));
  one.wanted.nonce = {};
  const json_value drawn = one.report();
  REQUIRE_FALSE(is_given(drawn));
  const std::string first = *drawn.find("nonce")->if_string();
  REQUIRE(first.size() == 64);
  REQUIRE(*one.report({}, "again").find("nonce")->if_string() != first);
  one.wanted.nonce = digest{};
  REQUIRE_THROWS_WITH(one.report({}, "zero"), Catch::Matchers::Contains("nonce is zero"));
}

TEST_CASE("a C++ verification repeats earlier challenges and compares earlier commitments") {
  verification one;
  one.wanted.ledger = one.directory.file("folder/ledger.json");
  one.agreed = small_job([](job& what) {
    what.steps = 60;
    what.epochs = 30;
    what.rates = {{60, {rate}}};
  });
  const auto asked = [](const json_value& report) {
    std::set<std::string> out;
    for (const json_value& each : *report.find("replays")->if_array()) {
      out.insert(canonical_json(*each.find("start")));
    }
    return out;
  };
  const json_value remembered = one.report();
  const auto says_none = [](const json_value& report) {
    return canonical_json(report).find("no ledger was kept") != std::string::npos;
  };
  REQUIRE_FALSE(says_none(remembered));
  REQUIRE(says_none(verification().report()));
  const auto first = asked(remembered);
  evidence_options options;
  options.directory = one.directory.file("run");
  options.client_job = one.agreed;
  options.commitment = record_run(one.directory.file("copy"), one.agreed);
  const evidence seen = evidence::open(options).value();
  one.wanted.nonce = nonce_of(2);
  const auto second = asked(one.of(seen));
  REQUIRE(second.size() > first.size());
  REQUIRE(std::includes(second.begin(), second.end(), first.begin(), first.end()));
  const auto known = recall(*one.wanted.ledger, one.agreed.id()).value();
  REQUIRE(known.challenges.size() == 2);
  REQUIRE(known.commitments.size() == 1);

  deviation how;
  how.entry = [](step_entry& entry) { entry.duration_ns += 1; };
  one.work.steps_run = 0;
  REQUIRE(rejects(one.report(how, "other"), "transcript.history"));
  REQUIRE(one.work.steps_run == 0);
  one.agreed = small_job();
  REQUIRE_THROWS_WITH(one.report({}, "job"), Catch::Matchers::Contains("another job"));
}

TEST_CASE("a C++ step that fails from the recorded state alone is the record's fault") {
  verification one;
  one.work.fails = [](std::uint64_t step, std::uint64_t done) { return step == 4 && done == 3; };
  const json_value report = one.report();
  INFO(canonical_json(report));
  REQUIRE(verdict_of(report) == "rejected");
}

TEST_CASE("memory that a C++ step lacks from the recorded state alone accuses nobody") {
  verification one;
  one.work.exhausted = [](std::uint64_t step, std::uint64_t done) {
    return step == 4 && done == 3;
  };
  REQUIRE(verdict_of(one.report()) == "inconclusive");
}

TEST_CASE("a C++ step that fails from the verifier's own state too is the verifier's trouble") {
  verification one;
  one.work.fails = [](std::uint64_t step, std::uint64_t) { return step == 4; };
  REQUIRE(verdict_of(one.report()) == "inconclusive");
}

TEST_CASE("a C++ replay that ends in the recorded bits when it is repeated accuses nobody") {
  verification one;
  one.agreed.arithmetic = "ord32";
  one.agreed = parse_job(as_bytes_view(format_job(one.agreed).value())).value();
  bool wrong = false;
  one.work.salt = [&](std::uint64_t step) {
    return step == 4 && !std::exchange(wrong, true) ? 0.5F : 0.0F;
  };
  const json_value report = one.report();
  INFO(canonical_json(report));
  REQUIRE(wrong);
  REQUIRE(verdict_of(report) == "inconclusive");
}

TEST_CASE("a C++ step that fails once is run again") {
  verification one;
  bool failed = false;
  one.work.fails = [&](std::uint64_t step, std::uint64_t done) {
    return step == 4 && done == 3 && !std::exchange(failed, true);
  };
  REQUIRE(verdict_of(one.report()) == "accepted");
}

TEST_CASE("a C++ verification replays nothing of a record that is rejected itself") {
  verification one;
  deviation how;
  constexpr static std::array<double, 1> other{0.5};
  how.entry = [](step_entry& entry) { entry.rates = other; };
  const json_value report = one.report(how);
  REQUIRE(rejects(report, "agreed.recipe"));
  REQUIRE(one.work.steps_run == 0);
  REQUIRE(canonical_json(report).find("nothing was recomputed") != std::string::npos);
}

TEST_CASE("a C++ verification replays nothing after a state that rejects by itself") {
  verification one;
  const std::string run = one.directory.file("run");
  evidence_options options;
  options.directory = run;
  options.client_job = one.agreed;
  options.commitment = record_run(run, one.agreed, {});
  for (const int step : {2, 4, 6}) {
    const std::string file = run + "/checkpoints/step-" + std::to_string(step) + ".safetensors";
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekp(-1, std::ios::end);
    bytes.put('?');
  }
  const json_value report = one.of(evidence::open(options).value());
  REQUIRE(rejects(report, "transcript.checkpoint"));
  REQUIRE(one.work.steps_run == 2);  // the first segment lies before it
  REQUIRE(report.find("replays")->if_array()->size() == 1);
}

TEST_CASE("a C++ verification knows the form of its own model") {
  for (const bool other_shape : {false, true}) {
    verification one;
    const std::string run = one.directory.file("run");
    snapshot_memory memory, changed_memory;
    const signing_key key = key_of(1);
    writer log = writer::create({run, "test", 2, 1}, one.agreed, key).value();
    log.append_initial(state_after(0, memory)).value();
    for (std::uint64_t step = 1; step <= one.agreed.steps; ++step) {
      if (step != 4) {
        record_steps(log, one.agreed, step, step, memory);
        continue;
      }
      state_value root = state_after(step, memory).root();
      auto& model = std::get<state_map>(root.content)[0].second;
      auto& parameters = std::get<state_map>(std::get<state_map>(model.content)[0].second.content);
      const std::vector<float> more{1, 2, 3, 4};
      if (!other_shape) parameters.push_back({std::string("zz"), state_value()});
      parameters.back().second = state_value{tensor_of(more)};
      const std::array<double, 1> rates{rate};
      const std::vector<std::int64_t> ids = one.agreed.sample_ids(step);
      step_entry entry;
      entry.step = step;
      entry.epoch = one.agreed.epoch_of(step);
      entry.sample_ids = ids;
      entry.loss = 1.0 / static_cast<double>(step);
      entry.rates = rates;
      entry.duration_ns = 1000;
      entry.checkpoint = true;
      log.append_step(capture(std::move(root), changed_memory).value(), entry).value();
    }
    log.close().value();
    evidence_options options;
    options.directory = run;
    options.client_job = one.agreed;
    options.commitment = commit_run(run, key).value();
    const json_value report = one.of(evidence::open(options).value());
    INFO(canonical_json(report));
    REQUIRE(rejects(report, "agreed.schema"));
    const std::string path = other_shape ? "model/parameters/weights" : "model/parameters/zz";
    REQUIRE(canonical_json(report).find(path) != std::string::npos);
  }
}

TEST_CASE("the form of another model than the agreed one accuses nobody") {
  verification one;
  one.work.foreign = true;
  REQUIRE(verdict_of(one.report()) == "accepted");
}

TEST_CASE("a C++ verification derives states that the trainer stores on demand") {
  const auto storing_few = [] {
    return small_job([](job& what) {
      what.arithmetic = "ord32";
      what.store_every = 4;
    });
  };
  verification honest;
  honest.agreed = storing_few();
  const json_value report = honest.report();
  INFO(canonical_json(report));
  REQUIRE_FALSE(
      std::filesystem::exists(honest.directory.file("run/checkpoints/step-2.safetensors")));
  REQUIRE(verdict_of(report) == "accepted");
  REQUIRE(report.find("replays")->if_array()->size() == 3);
  REQUIRE(canonical_json(report).find("3 of 3 segments, trained again") != std::string::npos);

  verification lying;
  lying.agreed = storing_few();
  deviation how;
  how.salt = [](std::uint64_t step) { return step == 2 ? 0.5F : 0.0F; };
  const json_value rejected = lying.report(how);
  INFO(canonical_json(rejected));
  REQUIRE(verdict_of(rejected) == "rejected");
}

TEST_CASE("a C++ request that takes too long is inconclusive") {
  verification one;
  one.wanted.timeout = 1e-9;
  const json_value report = one.report();
  REQUIRE(verdict_of(report) == "inconclusive");
  REQUIRE(canonical_json(report).find("time limit") != std::string::npos);
}
