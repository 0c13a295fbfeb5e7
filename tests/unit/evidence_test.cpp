// SPDX-License-Identifier: Apache-2.0
// Every structural forgery is rejected by the rule that is named against it, and accepted when that
// rule is off.
#include <filesystem>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct forged_run {
  temporary_directory root;
  std::string path = root.file("run");
  job agreed = small_job();
  evidence_options options;

  explicit forged_run(const deviation& how = {}) {
    options.directory = path;
    options.commitment = record_run(path, agreed, how);
    options.client_job = agreed;
  }

  // A prover who lies from the start: rewrites the log and commits to it.
  void rewrite(const std::function<void(std::vector<record>&)>& change, std::uint8_t key = 1) {
    std::vector<record> records = read_records(path);
    change(records);
    write_records(path, records);
    options.commitment = commit_to(records, agreed, key);
  }

  evidence open() const { return evidence::open(options).value(); }
  std::vector<std::string> rules() const { return rejecting_rules(open()); }

  void falls_only_to(const std::string& rule) const {
    CHECK(rules() == std::vector<std::string>{rule});
    const without_rule off(rule);
    CHECK(rules().empty());
  }
};

step_record& step_in(std::vector<record>& records, std::uint64_t step) {
  for (record& one : records) {
    auto* found = std::get_if<step_record>(&one);
    if (found != nullptr && found->step == step) return *found;
  }
  throw std::runtime_error("no such step");
}

// A file of this size that begins like a checkpoint, and has a hole behind its head.
void vast_checkpoint(const std::string& path, std::uint64_t bytes) {
  constexpr std::uint64_t header = 128;
  const std::string data = std::to_string(bytes - 8 - header);
  std::string text =
      R"({"potl.state":{"dtype":"U8","shape":[)" + data + R"(],"data_offsets":[0,)" + data + "]}}";
  text.resize(header, ' ');
  std::ofstream out(path, std::ios::binary);
  out << static_cast<char>(header) << std::string(7, '\0') << text;
  out.close();
  std::filesystem::resize_file(path, bytes);
}

}  // namespace

TEST_CASE("a run for another job is rejected", "[evidence]") {
  forged_run run;
  run.options.client_job = small_job([](job& what) { what.tolerance_cap = 0.05; });
  run.falls_only_to("agreed.job");
}

TEST_CASE("a run by another trainer is rejected", "[evidence]") {
  deviation how;
  how.key = 2;
  const forged_run run(how);
  run.falls_only_to("agreed.trainer_key");
}

TEST_CASE("a commitment by another key than the header's is rejected", "[evidence]") {
  forged_run run;
  run.options.commitment = commit_to(read_records(run.path), run.agreed, 3);
  CHECK(run.rules() == std::vector<std::string>{"agreed.trainer_key"});
}

TEST_CASE("a record changed after the commitment is rejected", "[evidence]") {
  const forged_run run;
  std::vector<record> records = read_records(run.path);
  step_in(records, 3).duration_ns += 1;
  write_records(run.path, records);
  run.falls_only_to("transcript.chain");
}

TEST_CASE("a log that was cut short after the commitment is rejected", "[evidence]") {
  const forged_run run;
  const std::string path = run.path + "/transcript.log";
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  for (std::size_t size = log_header_bytes; size < bytes.size(); size += 13) {
    overwrite(path, bytes_view(bytes).first(size));
    CHECK_FALSE(run.rules().empty());
  }
}

TEST_CASE("every flipped bit of a log is rejected or refused", "[evidence]") {
  const forged_run run;
  const std::string path = run.path + "/transcript.log";
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  for (std::size_t bit = 0; bit < bytes.size() * 8; bit += 7) {
    std::vector<std::uint8_t> changed = bytes;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    overwrite(path, changed);
    const result<evidence> got = evidence::open(run.options);
    CHECK((!got || !rejecting_rules(*got).empty()));
  }
}

TEST_CASE("a log without a head is rejected once the pinned trainer has committed to it",
          "[evidence]") {
  forged_run run;
  const std::string path = run.path + "/transcript.log";
  std::vector<std::uint8_t> bytes = bytes_of(path);
  bytes[0] ^= 1;
  overwrite(path, bytes);
  const std::vector<std::string> found = run.rules();
  REQUIRE_FALSE(found.empty());
  CHECK(found.front() == "transcript.chain");
  overwrite(path, {});
  CHECK(run.rules().front() == "transcript.chain");
}

TEST_CASE("a log without a head is an error while nobody vouches for it", "[evidence]") {
  forged_run run;
  overwrite(run.path + "/transcript.log", as_bytes_view("no log"));
  const auto refused = [&](const evidence_options& options) {
    return evidence::open(options).why().code == errc::malformed;
  };
  evidence_options options = run.options;
  options.commitment.clear();
  CHECK(refused(options));
  options = run.options;
  options.commitment = sign_run_note(run.agreed.id(), 9, digest{}, digest{}, key_of(3)).value();
  CHECK(refused(options));
  options.commitment = sign_run_note(digest{}, 9, digest{}, digest{}, key_of(1)).value();
  CHECK(refused(options));
  options = run.options;
  options.client_job->trainer.reset();
  CHECK(refused(options));
}

TEST_CASE("a log of another format version, or beyond the limits, is never a rejection",
          "[evidence]") {
  forged_run run;
  const std::string path = run.path + "/transcript.log";
  std::vector<std::uint8_t> bytes = bytes_of(path);
  bytes[8] = 2;
  overwrite(path, bytes);
  CHECK(evidence::open(run.options).why().code == errc::unsupported);
  std::filesystem::resize_file(path, std::uint64_t{1} << 40);
  CHECK(evidence::open(run.options).why().code == errc::limit);
}

TEST_CASE("every flipped bit and truncation of a commitment is rejected or refused", "[evidence]") {
  forged_run run;
  const std::string note = run.options.commitment;
  for (std::size_t bit = 0; bit < note.size() * 8; ++bit) {
    run.options.commitment = note;
    char& changed = run.options.commitment[bit / 8];
    changed = static_cast<char>(changed ^ (1 << bit % 8));
    const result<evidence> got = evidence::open(run.options);
    CHECK((!got || !rejecting_rules(*got).empty()));
  }
  for (std::size_t size = 1; size < note.size(); ++size) {
    run.options.commitment = note.substr(0, size);
    const result<evidence> got = evidence::open(run.options);
    CHECK((!got || !rejecting_rules(*got).empty()));
  }
}

TEST_CASE("a step that occurs twice is rejected", "[evidence]") {
  forged_run run;
  run.rewrite(
      [](std::vector<record>& records) { records.insert(records.begin() + 5, records[4]); });
  run.falls_only_to("transcript.sequence");
}

TEST_CASE("a missing step is rejected", "[evidence]") {
  forged_run run;
  run.rewrite([](std::vector<record>& records) { records.erase(records.begin() + 4); });
  run.falls_only_to("transcript.sequence");
}

TEST_CASE("steps in another order are rejected", "[evidence]") {
  forged_run run;
  run.rewrite([](std::vector<record>& records) { std::swap(records[3], records[4]); });
  run.falls_only_to("transcript.sequence");
}

TEST_CASE("a step in the wrong epoch is rejected", "[evidence]") {
  forged_run run;
  run.rewrite([](std::vector<record>& records) { step_in(records, 4).epoch = 0; });
  run.falls_only_to("transcript.sequence");
}

TEST_CASE("a run without an end is rejected once it is committed to", "[evidence]") {
  forged_run run;
  run.rewrite([](std::vector<record>& records) { records.pop_back(); });
  run.falls_only_to("transcript.sequence");
}

TEST_CASE("too few steps are rejected", "[evidence]") {
  deviation how;
  how.last_step = 4;
  const forged_run run(how);
  run.falls_only_to("agreed.step_count");
}

TEST_CASE("other samples than the seed selects are rejected, in every epoch", "[evidence]") {
  static const std::vector<std::int64_t> chosen{0, 1, 2, 3};
  for (const std::uint64_t step : std::array<std::uint64_t, 4>{1, 2, 4, 5}) {
    deviation how;
    how.entry = [&](step_entry& entry) {
      if (entry.step == step) entry.sample_ids = chosen;
    };
    const forged_run run(how);
    run.falls_only_to("agreed.batch_order");
  }
}

TEST_CASE("samples of the epoch before are other samples", "[evidence]") {
  const job agreed = small_job();
  const std::vector<std::int64_t> before = agreed.sample_ids(1);
  REQUIRE(before != agreed.sample_ids(4));
  deviation how;
  how.entry = [&](step_entry& entry) {
    if (entry.step == 4) entry.sample_ids = before;
  };
  const forged_run run(how);
  run.falls_only_to("agreed.batch_order");
}

TEST_CASE("steps that break a rule alike are one finding, and the rule does not pass",
          "[evidence]") {
  static const double other = 2 * rate;
  deviation how;
  how.entry = [](step_entry& entry) {
    if (entry.step == 3 || entry.step == 5) entry.rates = std::span(&other, 1);
  };
  const evidence seen = forged_run(how).open();
  std::vector<std::string> reasons;
  for (const finding& one : seen.findings()) {
    if (one.rule != "agreed.recipe") continue;
    CHECK(one.result == outcome::reject);
    CHECK(one.first_step == 3);
    reasons.push_back(one.reason);
  }
  CHECK(reasons == std::vector<std::string>{
                       "step 3 used other learning rates than agreed, as did 1 later step"});
}

TEST_CASE("another learning rate is rejected, in its last bit", "[evidence]") {
  static const double other = std::nextafter(rate, 1.0);
  deviation how;
  how.entry = [](step_entry& entry) {
    if (entry.step == 5) entry.rates = std::span(&other, 1);
  };
  const forged_run run(how);
  run.falls_only_to("agreed.recipe");
}

TEST_CASE("the rate of every group is compared, and there is none more or less", "[evidence]") {
  static const std::array<double, 3> agreed{rate, 0.5, 0.25};
  static std::array<double, 3> used = agreed;
  const auto run_with = [](std::size_t groups, std::size_t recorded) {
    forged_run run;
    run.agreed = small_job([&](job& what) {
      what.rates = {{6, {agreed.begin(), agreed.begin() + static_cast<std::ptrdiff_t>(groups)}}};
    });
    run.path = run.root.file("groups");
    deviation how;
    how.entry = [=](step_entry& entry) {
      entry.rates = std::span(used).first(entry.step == 5 ? recorded : groups);
    };
    run.options.directory = run.path;
    run.options.commitment = record_run(run.path, run.agreed, how);
    run.options.client_job = run.agreed;
    return run.rules();
  };
  const std::vector<std::string> recipe{"agreed.recipe"};
  CHECK(run_with(2, 2).empty());
  CHECK(run_with(2, 1) == recipe);
  CHECK(run_with(2, 3) == recipe);
  used[1] = std::nextafter(used[1], 1.0);
  CHECK(run_with(2, 2) == recipe);
  used = agreed;
}

TEST_CASE("another initial state is rejected", "[evidence]") {
  deviation how;
  how.salt = [](std::uint64_t) { return 0.5F; };
  const forged_run run(how);
  run.falls_only_to("agreed.initial_state");
}

TEST_CASE("a withheld checkpoint is rejected", "[evidence]") {
  for (const char* name : {"step-0", "step-4", "step-6"}) {
    const forged_run run;
    std::filesystem::remove(run.path + "/checkpoints/" + name + ".safetensors");
    run.falls_only_to("transcript.withheld");
  }
}

TEST_CASE("a state where none is agreed is rejected, and so is one that was left out",
          "[evidence]") {
  for (const std::uint64_t step : {3U, 4U}) {
    deviation how;
    how.entry = [&](step_entry& entry) {
      if (entry.step == step) entry.checkpoint = !entry.checkpoint;
    };
    const evidence got = forged_run(how).open();
    const auto rules = rejecting_rules(got);
    CHECK(std::count(rules.begin(), rules.end(), "agreed.segments") == 1);
    CHECK(got.rejected());
  }
}

TEST_CASE("a state file of a step that has none is rejected, what a crash leaves is not",
          "[evidence]") {
  const forged_run run;
  const auto copy = [&](const std::string& name) {
    const std::string folder = run.path + "/checkpoints/";
    std::filesystem::copy_file(folder + "step-4.safetensors", folder + name);
  };
  for (const char* name : {".step-3.safetensors.tmp", "step-3.safetensors.b1",
                           "step-4.b1.safetensors", "step-x.safetensors", "notes.txt"}) {
    copy(name);
  }
  CHECK(run.rules().empty());
  CHECK_FALSE(run.open().rejected());
  copy("step-3.b1.safetensors");
  run.falls_only_to("agreed.segments");
}

TEST_CASE("a state between stored ones may be missing where it can be derived, and is found after",
          "[evidence]") {
  const temporary_directory root;
  const std::string path = root.file("run");
  const job agreed = small_job([](job& what) {
    what.arithmetic = "ord32";
    what.store_every = 4;
  });
  const std::string note = record_run(path, agreed);
  CHECK_FALSE(std::filesystem::exists(path + "/checkpoints/step-2.safetensors"));
  const evidence sparse = open_run(path, agreed, note).value();
  CHECK(rejecting_rules(sparse).empty());
  REQUIRE(sparse.missing_checkpoints().size() == 1);
  CHECK(sparse.missing_checkpoints().front().step == 2);
  CHECK(sparse.load_state(2).why().code == errc::missing);

  snapshot_memory memory;
  const std::string derived = path + "/checkpoints/step-2.safetensors";
  save_checkpoint(derived, state_after(2, memory)).value();
  const evidence found = open_run(path, agreed, note).value();
  CHECK(rejecting_rules(found).empty());
  CHECK(found.missing_checkpoints().empty());
  CHECK(found.load_state(2));
  save_checkpoint(derived, state_after(3, memory)).value();
  CHECK(open_run(path, agreed, note)->load_state(2).why().code == errc::mismatch);

  std::filesystem::remove(path + "/checkpoints/step-4.safetensors");
  std::filesystem::remove(derived);
  CHECK(rejecting_rules(open_run(path, agreed, note).value()) ==
        std::vector<std::string>{"transcript.withheld"});
}

TEST_CASE("the checkpoint that superseded steps started from is not to be withheld", "[evidence]") {
  deviation how;
  how.resume_after = 3;
  forged_run run(how);
  run.options.client_job = run.agreed;
  run.options.client_job->max_segment = 6;  // else the gap is reason enough
  std::filesystem::remove(run.path + "/checkpoints/step-2.safetensors");
  run.falls_only_to("transcript.withheld");
}

TEST_CASE("a tampered checkpoint does not load unless its rule is off", "[evidence]") {
  const forged_run run;
  snapshot_memory memory;
  save_checkpoint(run.path + "/checkpoints/step-4.safetensors", state_after(9, memory)).value();
  const evidence got = evidence::open(run.options).value();
  CHECK(got.load_state(4).why().code == errc::mismatch);
  const without_rule off("transcript.checkpoint");
  CHECK(got.load_state(4).value().state_digest() == state_after(9, memory).state_digest());
}

TEST_CASE("what load_state cannot give is told apart", "[evidence]") {
  const forged_run run;
  const std::string file = run.path + "/checkpoints/step-4.safetensors";
  const evidence got = evidence::open(run.options).value();
  CHECK(got.load_state(3).why().code == errc::missing);
  CHECK(got.load_state(77).why().code == errc::missing);
  overwrite(file, as_bytes_view("no checkpoint"));
  CHECK(got.load_state(4).why().code == errc::mismatch);
  std::filesystem::remove(file);
  CHECK(got.load_state(4).why().code == errc::missing);
  std::filesystem::create_symlink("step-2.safetensors", file);
  CHECK(got.load_state(4).why().code == errc::mismatch);
}

TEST_CASE("a symbolic link among the checkpoints is named before anything is drawn", "[evidence]") {
  const forged_run run;
  const std::filesystem::path folder = run.path + "/checkpoints";
  const auto refused = [&](const std::string& what) {
    const result<evidence> got = evidence::open(run.options);
    return !got && got.why().code == errc::malformed &&
           got.why().message.find(what + " is a symbolic link") != std::string::npos &&
           !got.why().remedy.empty();
  };
  std::filesystem::rename(folder / "step-4.safetensors", folder / "elsewhere");
  std::filesystem::create_symlink("elsewhere", folder / "step-4.safetensors");
  CHECK(refused("step-4.safetensors"));
  std::filesystem::rename(folder / "elsewhere", folder / "step-4.safetensors");
  CHECK(run.rules().empty());
  std::filesystem::rename(folder, run.path + "/moved");
  std::filesystem::create_directory_symlink("moved", folder);
  CHECK(refused("checkpoints"));
}

TEST_CASE("a checkpoint beyond what the verifier expects is not read, and not held against anybody",
          "[evidence]") {
  forged_run run;
  constexpr std::uint64_t slack = std::uint64_t{64} << 20;
  const evidence got = evidence::open(run.options).value();
  const auto load = [&](std::uint64_t bytes) {
    vast_checkpoint(run.path + "/checkpoints/step-4.safetensors", bytes);
    return got.load_state(4).why();
  };
  got.expect_state_bytes(100);
  CHECK(load(slack + 8 * 100 + 1).code == errc::limit);
  CHECK_FALSE(load(slack + 8 * 100 + 1).remedy.empty());
  CHECK(load(slack + 8 * 100).code == errc::mismatch);
  got.expect_largest_state_bytes(100);
  CHECK(load(slack + 2 * 100 + 1).code == errc::limit);
  CHECK(load(slack + 2 * 100).code == errc::mismatch);
  CHECK(got.load_state(2));
  run.options.max_checkpoint_bytes = 16;
  const evidence small = evidence::open(run.options).value();
  CHECK(small.load_state(2).why().code == errc::limit);
  run.options.max_checkpoint_bytes = std::uint64_t{1} << 30;
  const evidence large = evidence::open(run.options).value();
  large.expect_state_bytes(100);
  CHECK(large.load_state(4).why().code == errc::mismatch);
}

TEST_CASE("of a checkpoint whose size is not what its head tells no more than the head is read",
          "[evidence]") {
  forged_run run;
  const std::string file = run.path + "/checkpoints/step-4.safetensors";
  std::filesystem::resize_file(file, std::uint64_t{1} << 40);  // a hole
  const evidence got = evidence::open(run.options).value();
  std::uint64_t read = 0;
  set_read_observer([&](const std::string& path, std::uint64_t bytes) {
    if (path == file) read += bytes;
  });
  const error why = got.load_state(4).why();
  set_read_observer({});
  CHECK(why.code == errc::mismatch);
  CHECK(why.message.find("step-4.safetensors") != std::string::npos);
  CHECK(read > 8);
  CHECK(read < 4096);
}

TEST_CASE("no byte of a checkpoint is read twice", "[evidence]") {
  forged_run run;
  const std::string file = run.path + "/checkpoints/step-4.safetensors";
  const evidence got = evidence::open(run.options).value();
  std::uint64_t read = 0;
  set_read_observer([&](const std::string& path, std::uint64_t bytes) {
    if (path == file) read += bytes;
  });
  CHECK(got.load_state(4));
  set_read_observer({});
  CHECK(read == std::filesystem::file_size(file));
}

TEST_CASE("more resumes than agreed are rejected", "[evidence]") {
  deviation how;
  how.resume_after = 3;
  forged_run run(how);
  run.options.client_job = run.agreed;
  run.options.client_job->max_resumes = 0;  // the same text, hence the same id
  run.falls_only_to("transcript.resume");
  run.options.client_job->max_resumes = 1;
  run.options.client_job->max_superseded = 0;
  run.falls_only_to("transcript.resume");
}

TEST_CASE("a resume that hides steps or is not signed is rejected", "[evidence]") {
  const std::vector<std::function<void(resume_record&)>> lies{
      [](resume_record& one) { one.signature[0] ^= 1; },
      [](resume_record& one) { one.last_step -= 1; },
      [](resume_record& one) { one.number += 1; },
      [](resume_record& one) { one.log_size -= 1; },
      [](resume_record& one) { one.log_root.bytes[0] ^= 1; },
      [](resume_record& one) { one.state.bytes[0] ^= 1; },
  };
  for (const auto& lie : lies) {
    deviation how;
    how.resume_after = 3;
    forged_run run(how);
    run.rewrite([&](std::vector<record>& records) {
      for (record& one : records) {
        auto* resume = std::get_if<resume_record>(&one);
        if (resume == nullptr) continue;
        lie(*resume);
      }
    });
    run.falls_only_to("transcript.resume");
  }
}

TEST_CASE("a dropped branch is not consistent with the resume that followed it", "[evidence]") {
  deviation how;
  how.resume_after = 3;
  forged_run run(how);
  run.rewrite([](std::vector<record>& records) {
    // Step 3 of the first branch, just before the resume.
    records.erase(records.begin() + 4);
  });
  run.falls_only_to("transcript.resume");
}

TEST_CASE("superseded steps are held to the batch order too", "[evidence]") {
  static const std::vector<std::int64_t> chosen{0, 1, 2, 3};
  deviation how;
  how.resume_after = 3;
  how.entry = [done = false](step_entry& entry) mutable {
    if (entry.step == 3 && !done) {
      entry.sample_ids = chosen;
      done = true;
    }
  };
  const forged_run run(how);
  run.falls_only_to("agreed.batch_order");
}

TEST_CASE("superseded steps are held to the recipe too", "[evidence]") {
  static const double other = 0.2;
  deviation how;
  how.resume_after = 3;
  how.entry = [done = false](step_entry& entry) mutable {
    if (entry.step == 3 && !done) {
      entry.rates = std::span(&other, 1);
      done = true;
    }
  };
  const forged_run run(how);
  run.falls_only_to("agreed.recipe");
}

TEST_CASE("a published root that the log does not extend is rejected", "[evidence]") {
  forged_run run;
  digest root;
  root.bytes.fill(1);
  run.options.published = {
      sign_run_note(run.agreed.id(), 4, root, std::nullopt, key_of(1)).value()};
  run.falls_only_to("transcript.history");
}

TEST_CASE("a published root over more records than there are is rejected", "[evidence]") {
  forged_run run;
  run.options.published = {
      sign_run_note(run.agreed.id(), 100, digest{}, std::nullopt, key_of(1)).value()};
  run.falls_only_to("transcript.history");
}

TEST_CASE("a second commitment for the job is rejected", "[evidence]") {
  forged_run run;
  run.options.other_commitments = {run.options.commitment};
  CHECK(run.rules().empty());
  run.options.other_commitments = {
      sign_run_note(run.agreed.id(), 9, digest{}, digest{}, key_of(1)).value()};
  run.falls_only_to("transcript.history");
}

TEST_CASE("a note signed while recording is no commitment", "[evidence]") {
  forged_run run;
  const run_note note = parse_run_note(run.options.commitment).value();
  run.options.commitment = sign_run_note(run.agreed.id(), note.note.note.size, note.note.note.root,
                                         std::nullopt, key_of(1))
                               .value();
  run.falls_only_to("transcript.history");
}

TEST_CASE("telemetry is bound by the close record", "[evidence]") {
  const temporary_directory root;
  const std::string path = root.file("run");
  const job agreed = small_job();
  std::filesystem::create_directory(path);
  overwrite(path + "/telemetry.log", as_bytes_view("power\n"));
  const std::string note = record_run(path, agreed);
  CHECK(open_run(path, agreed, note)->telemetry().size() == 6);
  overwrite(path + "/telemetry.log", as_bytes_view("watts\n"));
  const evidence changed = open_run(path, agreed, note).value();
  CHECK(rejecting_rules(changed) == std::vector<std::string>{"transcript.chain"});
  CHECK(changed.telemetry().empty());
  std::filesystem::remove(path + "/telemetry.log");
  CHECK(rejecting_rules(open_run(path, agreed, note).value()) ==
        std::vector<std::string>{"transcript.withheld"});
  std::filesystem::create_symlink(root.file("away"), path + "/telemetry.log");
  CHECK(open_run(path, agreed, note).why().code == errc::malformed);  // as other links: no verdict
}

TEST_CASE("without a commitment or a job of one's own nothing is rejected for it", "[evidence]") {
  forged_run run;
  run.options.commitment.clear();
  run.options.client_job.reset();
  const evidence got = evidence::open(run.options).value();
  CHECK(rejecting_rules(got).empty());
  CHECK_FALSE(got.committed());
  CHECK_FALSE(got.job_is_own());
}

TEST_CASE("an interrupted run without a commitment is inconclusive", "[evidence]") {
  const temporary_directory root;
  const std::string path = root.file("run");
  const job agreed = small_job();
  const signing_key key = key_of(1);
  snapshot_memory memory;
  {
    writer log = writer::create({path, "test", 2, 1}, agreed, key).value();
    log.append_initial(state_after(0, memory)).value();
    record_steps(log, agreed, 1, 3, memory);
  }
  const evidence got = open_run(path, agreed, "").value();
  CHECK(rejecting_rules(got).empty());
  CHECK(std::any_of(got.findings().begin(), got.findings().end(),
                    [](const finding& one) { return one.result == outcome::inconclusive; }));
}

TEST_CASE("a claimed number of steps costs nothing", "[evidence]") {
  forged_run run;
  run.rewrite([](std::vector<record>& records) {
    step_in(records, 5).step = 1'000'000'000'000;
    step_in(records, 4).step = 999'999'999'999;
  });
  CHECK_FALSE(run.rules().empty());
}
