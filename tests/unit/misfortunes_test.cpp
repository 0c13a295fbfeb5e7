// SPDX-License-Identifier: Apache-2.0
// Whose fault an error is, with a workload that fails on command: the table that Python goes
// through, too (tests/misfortunes.json).
#include <new>
#include <system_error>

#include <potl/checks/replayer.hpp>
#include <potl/encoding/json.hpp>

#include "run_fixture.hpp"
#include "shared_vectors.hpp"

using namespace potl_test;

namespace {

/// The training of the fixture, which fails in one function.
class failing_workload {
 public:
  std::string where, error;
  bool always = true;
  std::int64_t left = -1;  ///< how often; below 0: without end

  void load_state(const state& from, std::uint64_t step) {
    recorded_ = from.state_digest() != state_after(0, memory_).state_digest();
    maybe_fail("load_state");
    done_ = step;
  }
  void fetch(std::uint64_t, std::span<const std::int64_t>) { maybe_fail("fetch"); }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t>) {
    maybe_fail("run_step");
    done_ = step;
    return {1.0 / static_cast<double>(step), {rate}, false, 1};
  }
  state capture() {
    maybe_fail("capture");
    return state_after(done_, memory_);
  }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t>) {
    maybe_fail("batch_loss");
    return 1.0 / static_cast<double>(step);
  }
  subset_outcome subset_loss(std::span<const std::int64_t>) {
    maybe_fail("subset_loss");
    return {0.5, 1};
  }
  void perturb(std::uint64_t) {}

 private:
  void maybe_fail(const std::string& here) {
    if (here != where || left == 0 || !(always || recorded_)) return;
    --left;
    if (error == "memory") throw std::bad_alloc();
    if (error == "allocation")
      throw std::runtime_error("DefaultCPUAllocator: can't allocate memory");
    if (error == "files") throw std::system_error(std::make_error_code(std::errc::io_error));
    other_ = !other_;
    if (error == "alternating" && other_) throw std::out_of_range("image 6");
    throw std::runtime_error("no such operator");
  }

  snapshot_memory memory_;
  std::uint64_t done_ = 0;
  bool recorded_ = false, other_ = false;
};

/// The same on a machine that ends the job's first steps otherwise.
class other_machine : public failing_workload {
 public:
  std::string other_first_steps() {
    ++asked;
    return "step 1 ends in other bits here";
  }

  int asked = 0;
};

template <class Workload>
checks::measurement answer_of(const evidence& run, Workload& work, const checks::request& asked) {
  checks::workload_of<Workload> handle(work);
  return checks::replayer(run, handle).answer(asked);
}

std::string text_of(const json_value& from, std::string_view name) {
  return *from.find(name)->if_string();
}

}  // namespace

TEST_CASE("a misfortune ends as in Python") {
  const auto table = parse_json(as_bytes_view(contents(test_file("misfortunes.json")))).value();
  const auto& cases = *table.find("cases")->if_array();
  REQUIRE(cases.size() > 20);
  for (const json_value& one : cases) {
    INFO(text_of(one, "name"));
    const temporary_directory directory;
    const std::string run = directory.file("run");
    evidence_options options;
    options.directory = run;
    options.client_job = small_job();
    options.commitment = record_run(run, *options.client_job);
    const evidence seen = evidence::open(options).value();
    const std::string place = text_of(one, "in");
    const std::string checkpoint = run + "/checkpoints/step-2.safetensors";
    if (place == "missing file") std::filesystem::remove(checkpoint);
    if (place == "damaged file") {
      std::fstream bytes(checkpoint, std::ios::binary | std::ios::in | std::ios::out);
      bytes.seekp(-1, std::ios::end);
      bytes.put('?');
    }

    failing_workload work;
    checks::workload_of<failing_workload> handle(work);
    checks::replay_settings settings;
    if (place == "time") settings.timeout_seconds = 1e-9;
    checks::replayer replays(seen, handle, settings);
    work.where = place;
    work.always = text_of(one, "at") == "always";
    work.error = text_of(one, "error");
    const std::int64_t times = *one.find("times")->if_integer();
    work.left = times == 0 ? -1 : times;

    const std::string kind = text_of(one, "request");
    checks::segment_request segment;
    segment.start = 2;
    segment.end = 4;
    const checks::request asked = kind == "segment" ? checks::request(segment)
                                  : kind == "loss"
                                      ? checks::request(checks::loss_request{3, 1})
                                      : checks::request(checks::subset_loss_request{2, {0, 1}});
    const checks::measurement answer = replays.answer(asked);
    CHECK(to_string(answer.status()) == text_of(one, "status"));
    CHECK(answer.message().empty() == (answer.status() == checks::measured::ok));
  }
}

TEST_CASE("a machine that ends the first steps otherwise holds no other bits against a run") {
  const job agreed = small_job([](job& one) { one.arithmetic = "ord32"; });
  deviation false_end, false_loss;
  false_end.salt = [](std::uint64_t step) { return step > 3 ? 1.0F : 0.0F; };
  false_loss.entry = [](step_entry& one) { one.loss += one.step == 3 ? 0.5 : 0; };
  checks::segment_request segment;
  segment.start = 2;
  segment.end = 4;
  const checks::loss_request loss{3};
  const auto both = [&](const deviation& how, const checks::request& asked) {
    const temporary_directory directory;
    const std::string run = directory.file("run");
    const evidence seen = open_run(run, agreed, record_run(run, agreed, how)).value();
    failing_workload here;
    other_machine there;
    CHECK(answer_of(seen, here, asked).status() == checks::measured::ok);
    const checks::measurement answer = answer_of(seen, there, asked);
    CHECK(answer.message() == (there.asked > 0 ? "step 1 ends in other bits here" : ""));
    CHECK(there.asked <= 1);
    return answer.status();
  };
  CHECK(both(false_end, segment) == checks::measured::unrepeatable);
  CHECK(both(false_loss, segment) == checks::measured::unrepeatable);
  CHECK(both(false_loss, loss) == checks::measured::unrepeatable);
  // It is not asked where nothing is to be held against the run.
  CHECK(both(deviation{}, segment) == checks::measured::ok);
  CHECK(both(deviation{}, loss) == checks::measured::ok);
  CHECK(both(false_end, loss) == checks::measured::ok);
}

TEST_CASE("first steps that a trainer pins excuse no trainer") {
  const temporary_directory directory;
  deviation false_end;
  false_end.salt = [](std::uint64_t step) { return step > 3 ? 1.0F : 0.0F; };
  evidence_options options;
  options.directory = directory.file("run");
  options.commitment = record_run(options.directory,
                                  small_job([](job& one) { one.arithmetic = "ord32"; }), false_end);
  const evidence seen = evidence::open(options).value();
  REQUIRE_FALSE(seen.job_is_own());
  other_machine there;
  checks::segment_request segment;
  segment.start = 2;
  segment.end = 4;
  CHECK(answer_of(seen, there, segment).status() == checks::measured::ok);
  CHECK(there.asked == 0);
}
