// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "allocation_counter.hpp"
#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct workplace {
  temporary_directory root;
  std::string path = root.file("run");
  job agreed = small_job();
  signing_key key = key_of(1);
  snapshot_memory memory;
  writer_options options{path, "test", 2, 1};

  writer start() {
    writer log = writer::create(options, agreed, key).value();
    log.append_initial(state_after(0, memory)).value();
    return log;
  }
};

}  // namespace

TEST_CASE("a run recorded without Python is found to be in order", "[writer]") {
  workplace here;
  const std::string commitment = record_run(here.path, here.agreed);
  const evidence got = open_run(here.path, here.agreed, commitment).value();
  for (const finding& one : got.findings()) {
    INFO(one.reason);
    CHECK(one.result == outcome::pass);
  }
  CHECK(got.steps().size() == 6);
  CHECK(got.checkpoints().size() == 4);
  for (const std::uint64_t step : {0u, 2u, 4u, 6u}) {
    CHECK(got.load_state(step).value().state_digest() == *got.state_digest(step));
  }
}

TEST_CASE("a run is interrupted and resumed where it stopped", "[writer]") {
  workplace here;
  deviation how;
  how.resume_after = 5;
  const std::string commitment = record_run(here.path, here.agreed, how);
  const evidence got = open_run(here.path, here.agreed, commitment).value();
  CHECK(rejecting_rules(got).empty());
  REQUIRE(got.superseded().size() == 1);
  CHECK(got.superseded()[0].from_step == 4);
  CHECK(got.superseded()[0].last_step == 5);
  CHECK(got.superseded_steps().size() == 1);
  CHECK((got.steps()[4].flags & static_cast<std::uint32_t>(step_flag::resumed)) != 0);
  CHECK(got.load_state(6).value().state_digest() == *got.state_digest(6));
}

TEST_CASE("a resumed run ends in the state of one that was not interrupted", "[writer]") {
  workplace here;
  workplace there;
  deviation how;
  how.resume_after = 3;
  const std::string first = record_run(here.path, here.agreed);
  const std::string second = record_run(there.path, there.agreed, how);
  CHECK(parse_run_note(first)->final_state == parse_run_note(second)->final_state);
}

TEST_CASE("a process that was forked writes nothing into the run", "[writer]") {
  workplace here;
  std::optional<writer> log = here.start();
  record_steps(*log, here.agreed, 1, 3, here.memory);
  const pid_t forked = ::fork();
  REQUIRE(forked >= 0);
  if (forked == 0) {
    ::alarm(60);  // what waits for the threads that are not here waits for ever
    bool refused = true;
    for (std::uint64_t step = 4; step <= 6; ++step) {
      step_entry entry;
      entry.step = step;
      const status appended = log->append_step(state_after(step, here.memory), entry);
      refused = refused && !appended && appended.why().code == errc::usage;
    }
    refused = refused && !log->publish() && !log->flush() && !log->close();
    log.reset();
    ::_exit(refused ? 0 : 1);
  }
  int ended = -1;
  REQUIRE(::waitpid(forked, &ended, 0) == forked);
  CHECK(ended == 0);
  record_steps(*log, here.agreed, 4, 6, here.memory);
  log->close().value();
  const std::string commitment = commit_run(here.path, here.key).value();
  CHECK(rejecting_rules(open_run(here.path, here.agreed, commitment).value()).empty());
}

TEST_CASE("a run that has stopped is resumed beside a process that was forked", "[writer]") {
  workplace here;
  std::optional<writer> log = here.start();
  record_steps(*log, here.agreed, 1, 3, here.memory);
  const pid_t forked = ::fork();
  REQUIRE(forked >= 0);
  if (forked == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  log.reset();
  const auto resumed = writer::resume(here.options, here.agreed, here.key);
  ::kill(forked, SIGKILL);
  REQUIRE(::waitpid(forked, nullptr, 0) == forked);
  CHECK(resumed.has_value());
}

TEST_CASE("a run is not resumed past what its job allows", "[writer]") {
  const auto resumed = [](std::uint64_t resumes, std::uint64_t superseded, bool past_limits) {
    workplace here;
    here.agreed = small_job([&](job& change) {
      change.max_resumes = resumes;
      change.max_superseded = superseded;
    });
    {
      writer log = here.start();
      record_steps(log, here.agreed, 1, 3, here.memory);
      log.abandon().value();
    }
    const std::vector<std::uint8_t> log = bytes_of(here.path + "/transcript.log");
    here.options.past_limits = past_limits;
    const auto got = writer::resume(here.options, here.agreed, here.key);
    if (got) return std::string("resumed");
    CHECK(got.why().code == errc::usage);
    CHECK(bytes_of(here.path + "/transcript.log") == log);
    return got.why().message;
  };
  CHECK(resumed(1, 1, false) == "resumed");
  CHECK(resumed(0, 1, false) == "the job allows 0 resumes, and to resume would make it 1");
  CHECK(resumed(1, 0, false) == "the job allows 0 superseded steps, and to resume would make it 1");
  CHECK(resumed(0, 0, true) == "resumed");
}

TEST_CASE("a step that is no checkpoint can be recorded by its digest", "[writer]") {
  workplace here, there;
  const std::string expected = record_run(there.path, there.agreed);
  writer log = here.start();
  deviation how;
  how.by_digest = true;
  record_steps(log, here.agreed, 1, here.agreed.steps, here.memory, how);
  step_entry entry;
  entry.step = here.agreed.steps + 1;
  entry.checkpoint = true;
  CHECK(log.append_step(digest{}, entry).why().code == errc::usage);
  log.close().value();
  const std::string commitment = commit_run(here.path, here.key).value();
  CHECK(rejecting_rules(open_run(here.path, here.agreed, commitment).value()).empty());
  CHECK(bytes_of(here.path + "/transcript.log") == bytes_of(there.path + "/transcript.log"));
  CHECK(commitment == expected);
}

TEST_CASE("both branches of a resumed run keep their checkpoints", "[writer]") {
  workplace here;
  {
    writer log = here.start();
    record_steps(log, here.agreed, 1, 4, here.memory);
  }
  std::filesystem::remove(here.path + "/checkpoints/step-4.safetensors");
  writer::resumed again = writer::resume(here.options, here.agreed, here.key).value();
  CHECK(again.step == 2);
  record_steps(again.recorder, here.agreed, 3, 6, here.memory);
  again.recorder.close().value();
  CHECK(std::filesystem::exists(here.path + "/checkpoints/step-2.safetensors"));
  CHECK(std::filesystem::exists(here.path + "/checkpoints/step-4.b1.safetensors"));
}

TEST_CASE("the newest checkpoint that hashes to its record is restored", "[writer]") {
  workplace here;
  {
    writer log = here.start();
    record_steps(log, here.agreed, 1, 5, here.memory);
  }
  const std::string newest = here.path + "/checkpoints/step-4.safetensors";
  std::vector<std::uint8_t> bytes = bytes_of(newest);
  bytes.back() ^= 1;
  overwrite(newest, bytes);
  const writer::resumed again = writer::resume(here.options, here.agreed, here.key).value();
  CHECK(again.step == 2);
  CHECK(again.at.state_digest() == state_after(2, here.memory).state_digest());
}

TEST_CASE("a torn record is dropped, what precedes it stays", "[writer]") {
  workplace here;
  {
    writer log = here.start();
    record_steps(log, here.agreed, 1, 4, here.memory);
  }
  const std::string path = here.path + "/transcript.log";
  std::vector<std::uint8_t> bytes = bytes_of(path);
  const std::vector<record> before = read_records(here.path);
  bytes.resize(bytes.size() - 7);
  overwrite(path, bytes);
  const writer::resumed again = writer::resume(here.options, here.agreed, here.key).value();
  CHECK(again.step == 2);
  const std::vector<record> after = read_records(here.path);
  REQUIRE(after.size() == before.size());  // one less, and the resume
  CHECK(std::get<resume_record>(after.back()).last_step == 3);
}

TEST_CASE("a damaged log is refused and left as it is", "[writer]") {
  workplace here;
  {
    writer log = here.start();
    record_steps(log, here.agreed, 1, 4, here.memory);
  }
  const std::string path = here.path + "/transcript.log";
  std::vector<std::uint8_t> bytes = bytes_of(path);
  bytes[bytes.size() / 2] ^= 1;
  overwrite(path, bytes);
  CHECK(writer::resume(here.options, here.agreed, here.key).why().code == errc::malformed);
  CHECK(bytes_of(path) == bytes);
}

TEST_CASE("a read error is not taken for the end of a log", "[writer]") {
  workplace here;
  { writer log = here.start(); }
  std::filesystem::remove(here.path + "/transcript.log");
  std::filesystem::create_directory(here.path + "/transcript.log");
  const auto why = [](const auto& got) { return got.why().code; };
  CHECK(why(writer::resume(here.options, here.agreed, here.key)) != errc::missing);
  CHECK(why(writer::create(here.options, here.agreed, here.key)) != errc::missing);
  CHECK_FALSE(open_run(here.path, here.agreed, ""));
}

TEST_CASE("a directory that holds a run takes no other", "[writer]") {
  workplace here;
  { writer log = here.start(); }
  CHECK(writer::create(here.options, here.agreed, here.key).why().code == errc::usage);
  const job other = small_job([](job& what) { what.seed = 8; });
  CHECK(writer::resume(here.options, other, here.key).why().code == errc::usage);
  const signing_key stranger = key_of(2);
  CHECK(writer::resume(here.options, here.agreed, stranger).why().code == errc::usage);
}

TEST_CASE("a directory of other files takes no run", "[writer]") {
  workplace here;
  CHECK_FALSE(holds_run(here.path).value());
  std::filesystem::create_directory(here.path);
  for (const char* const own : {"key.pem", "job.json", "telemetry.log"}) {
    write_file_atomically(here.path + "/" + own, as_bytes_view(here.agreed.text)).value();
  }
  CHECK_FALSE(holds_run(here.path).value());
  write_file_atomically(here.path + "/notes.txt", {}).value();
  CHECK(holds_run(here.path).why().code == errc::usage);
  CHECK(writer::create(here.options, here.agreed, here.key).why().message.find("notes.txt") !=
        std::string::npos);
  std::filesystem::remove(here.path + "/notes.txt");
  here.start().abandon().value();
  CHECK(holds_run(here.path).value());
  CHECK(holds_run(here.path + "/job.json").why().code == errc::usage);
}

TEST_CASE("what a crash before the first state left is replaced", "[writer]") {
  workplace here;
  { writer log = writer::create(here.options, here.agreed, here.key).value(); }
  writer log = here.start();
  log.close().value();
}

TEST_CASE("a closed run is neither resumed nor continued", "[writer]") {
  workplace here;
  writer log = here.start();
  record_steps(log, here.agreed, 1, 6, here.memory);
  log.close().value();
  const error why = writer::resume(here.options, here.agreed, here.key).why();
  CHECK(why.code == errc::usage);
  CHECK(why.remedy.find("another directory") != std::string::npos);
  CHECK(log.append_step(state_after(7, here.memory), {.step = 7}).why().code == errc::usage);
  CHECK(log.close().why().code == errc::usage);
}

TEST_CASE("steps are taken one after the other only", "[writer]") {
  workplace here;
  writer log = here.start();
  CHECK(log.append_step(state_after(2, here.memory), {.step = 2}).why().code == errc::usage);
  record_steps(log, here.agreed, 1, 1, here.memory);
  CHECK(log.append_step(state_after(1, here.memory), {.step = 1}).why().code == errc::usage);
}

TEST_CASE("a flushed step is acknowledged", "[writer]") {
  workplace here;
  writer log = here.start();
  CHECK(log.acknowledged() == 0);
  record_steps(log, here.agreed, 1, 3, here.memory);
  log.flush().value();
  CHECK(log.acknowledged() == 3);
}

TEST_CASE("the commitment extends what was published", "[writer]") {
  workplace here;
  writer log = here.start();
  record_steps(log, here.agreed, 1, 3, here.memory);
  const std::string early = log.publish().value();
  record_steps(log, here.agreed, 4, 6, here.memory);
  log.close().value();
  evidence_options options;
  options.directory = here.path;
  options.client_job = here.agreed;
  options.commitment = commit_run(here.path, here.key).value();
  options.published = {early};
  CHECK(rejecting_rules(evidence::open(options).value()).empty());
}

TEST_CASE("committing again gives the same note, another one is refused", "[writer]") {
  workplace here;
  const std::string note = record_run(here.path, here.agreed);
  CHECK(commit_run(here.path, here.key).value() == note);
  overwrite(here.path + "/commitment", as_bytes_view("something else"));
  CHECK(commit_run(here.path, here.key).why().code == errc::usage);
  const signing_key stranger = key_of(2);
  CHECK(commit_run(here.path, stranger).why().code == errc::usage);
}

TEST_CASE("an open run cannot be committed to", "[writer]") {
  workplace here;
  { writer log = here.start(); }
  CHECK(commit_run(here.path, here.key).why().code == errc::usage);
}

TEST_CASE("recording needs memory for two states, however slow the disk", "[writer]") {
  workplace here;
  const std::vector<float> weights(250'000, 1.0F);
  std::size_t one = 0;
  writer log = here.start();
  snapshot_memory memory;
  std::uint64_t step = 0;
  for (int i = 0; i < 30; ++i) {
    state copy = capture({tensor_of(weights)}, memory).value();
    if (one == 0) one = memory.total_bytes();
    step_entry entry;
    entry.step = ++step;
    entry.checkpoint = true;
    log.append_step(std::move(copy), entry).value();
    CHECK(memory.total_bytes() <= 2 * one);
  }
  log.abandon().value();
}

TEST_CASE("a recorded step allocates little beside the snapshots", "[writer]") {
  workplace here;
  const std::vector<float> weights(1'000'000, 1.0F);
  writer log = here.start();
  snapshot_memory memory;
  const auto record_step = [&](std::uint64_t step) {
    log.append_step(capture({tensor_of(weights)}, memory).value(), {.step = step}).value();
  };
  {
    // Both blocks, which are used again from here on.
    const state one = capture({tensor_of(weights)}, memory).value();
    const state other = capture({tensor_of(weights)}, memory).value();
  }
  record_step(1);
  const std::size_t blocks = memory.total_bytes();
  const allocation_counter beyond;
  for (std::uint64_t step = 2; step <= 30; ++step) record_step(step);
  log.flush().value();
  // What this thread allocates and another one frees adds up: a tree of one tensor, and 32 bytes
  // for each of its 245 chunks, in each of 29 steps.
  CHECK(beyond.peak() < 29 * 16 * 1024);
  CHECK(memory.total_bytes() == blocks);
}

TEST_CASE("a step is acknowledged though nobody flushes", "[writer]") {
  workplace here;
  writer log = here.start();
  for (std::uint64_t step = 1; step <= 3; ++step) {
    log.append_step(state_after(step, here.memory), {.step = step}).value();
    for (int waited = 0; log.acknowledged() != step && waited < 20'000; ++waited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(log.acknowledged() == step);
  }
}

TEST_CASE("records keep their order whoever appends them", "[writer]") {
  for (const unsigned queue : {1u, 2u, 3u}) {
    workplace here;
    here.options.queue_states = queue;
    {
      writer log = here.start();
      for (std::uint64_t step = 1; step <= 2000; ++step) {
        log.append_step(state_after(step, here.memory), {.step = step}).value();
        if (step % 700 == 0) log.flush().value();
      }
      log.close().value();
    }
    std::uint64_t last = 0;
    for (const record& one : read_records(here.path)) {
      const auto* step = std::get_if<step_record>(&one);
      if (step == nullptr) continue;
      REQUIRE(step->step == ++last);
      REQUIRE(step->state == state_after(last, here.memory).state_digest());
    }
    CHECK(last == 2000);
  }
}
