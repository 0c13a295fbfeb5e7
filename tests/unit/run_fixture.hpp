// SPDX-License-Identifier: Apache-2.0
// Small runs in a directory of their own, recorded as a C++ trainer would.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <potl/core/file.hpp>
#include <potl/core/rules.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/snapshot.hpp>
#include <potl/transcript/writer.hpp>

#include "catch.hpp"
#include "transcript/log.hpp"

namespace potl_test {

using namespace potl;
using namespace potl::transcript;

/// A directory that is removed at the end of the test.
class temporary_directory {
 public:
  temporary_directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "potl-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  temporary_directory(const temporary_directory&) = delete;
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline bytes_view floats(const std::vector<float>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)};
}

inline state_tensor tensor_of(const std::vector<float>& values) {
  state_tensor out;
  out.type = dtype::f32;
  out.memory_format = "contiguous";
  out.dims = {values.size()};
  out.bytes = floats(values);
  return out;
}

/// What a training run of one weight vector holds after `step` updates.
inline state state_after(std::uint64_t step, snapshot_memory& memory, float salt = 0) {
  const std::vector<float> weights{static_cast<float>(step) + salt, 2, 3};
  const std::vector<float> momentum{static_cast<float>(step) / 2};
  state_map tree, parameters, model;
  parameters.push_back({std::string("weights"), state_value{tensor_of(weights)}});
  model.push_back({std::string("parameters"), state_value{std::move(parameters)}});
  tree.push_back({std::string("model"), state_value{std::move(model)}});
  tree.push_back({std::string("momentum"), state_value{tensor_of(momentum)}});
  tree.push_back({std::string("step"), state_value{static_cast<std::int64_t>(step)}});
  return capture(state_value{std::move(tree)}, memory).value();
}

inline signing_key key_of(std::uint8_t seed) {
  std::array<std::uint8_t, 32> bytes{};
  bytes.fill(seed);
  return signing_key::from_seed(bytes).value();
}

constexpr double rate = 0.1;

/// 6 steps over 10 samples, a checkpoint every 2 steps, two resumes allowed.
inline job small_job(const std::function<void(job&)>& change = {}) {
  snapshot_memory memory;
  job out;
  out.seed = 7;
  out.steps = 6;
  out.epochs = 2;
  out.batch_size = 4;
  out.checkpoint_every = 2;
  out.max_segment = 2;
  out.data_count = 10;
  out.initial_state = state_after(0, memory).state_digest();
  out.rates = {{6, {rate}}};
  out.max_resumes = 2;
  out.max_superseded = 10;
  out.trainer = digest{key_of(1).verifier().raw()};
  if (change) change(out);
  return parse_job(as_bytes_view(format_job(out).value())).value();
}

/// How a prover may deviate; nothing set: honest.
struct deviation {
  std::function<void(step_entry&)> entry;
  std::function<float(std::uint64_t step)> salt;
  std::uint64_t resume_after = 0;
  std::uint64_t last_step = 0;
  bool by_digest = false;  // states that are not stored
  std::uint8_t key = 1;
};

inline void record_steps(writer& log, const job& agreed, std::uint64_t first, std::uint64_t last,
                         snapshot_memory& memory, const deviation& how = {}) {
  for (std::uint64_t step = first; step <= last; ++step) {
    const std::vector<std::int64_t> ids = agreed.sample_ids(step);
    const std::array<double, 1> rates{rate};
    step_entry entry;
    entry.step = step;
    entry.epoch = agreed.epoch_of(step);
    entry.sample_ids = ids;
    entry.loss = 1.0 / static_cast<double>(step);
    entry.rates = rates;
    entry.duration_ns = 1000;
    entry.checkpoint = agreed.is_checkpoint(step);
    if (how.entry) how.entry(entry);
    const float salt = how.salt ? how.salt(step) : 0.0F;
    const state after = state_after(step, memory, salt);
    const bool by_digest = how.by_digest && !entry.checkpoint;
    (by_digest ? log.append_step(after.state_digest(), entry) : log.append_step(after, entry))
        .value();
  }
}

/// Records, closes and commits; returns the commitment.
inline std::string record_run(const std::string& directory, const job& agreed,
                              const deviation& how = {}) {
  snapshot_memory memory;
  const signing_key key = key_of(how.key);
  const writer_options options{directory, "test", 2, 1};
  std::uint64_t next = 1;
  writer log = writer::create(options, agreed, key).value();
  log.append_initial(state_after(0, memory, how.salt ? how.salt(0) : 0.0F)).value();
  if (how.resume_after != 0) {
    record_steps(log, agreed, 1, how.resume_after, memory, how);
    log.abandon().value();
    writer::resumed again = writer::resume(options, agreed, key).value();
    log = std::move(again.recorder);
    next = again.step + 1;
  }
  record_steps(log, agreed, next, how.last_step != 0 ? how.last_step : agreed.steps, memory, how);
  log.close().value();
  return commit_run(directory, key).value();
}

inline result<evidence> open_run(const std::string& directory, const job& agreed,
                                 const std::string& commitment) {
  evidence_options options;
  options.directory = directory;
  options.client_job = agreed;
  options.commitment = commitment;
  return evidence::open(options);
}

inline std::vector<std::uint8_t> bytes_of(const std::string& path) {
  return read_file(path, 1 << 24).value();
}

/// Replaces a file, whatever it was.
inline void overwrite(const std::string& path, bytes_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

/// The records of a log, to be changed and written again with a new chain.
inline std::vector<record> read_records(const std::string& directory) {
  const std::vector<std::uint8_t> file = bytes_of(directory + "/transcript.log");
  log_reader reader = log_reader::open(file).value();
  std::vector<record> out;
  while (const auto next = reader.next()) out.push_back(*next);
  return out;
}

inline void write_records(const std::string& directory, const std::vector<record>& records) {
  std::vector<std::uint8_t> out = log_header();
  digest chain = log_chain_start();
  for (const record& one : records) append_frame(one, chain, out);
  overwrite(directory + "/transcript.log", out);
}

/// A commitment to whatever the log holds, signed by a prover who does not mind.
inline std::string commit_to(const std::vector<record>& records, const job& agreed,
                             std::uint8_t key = 1) {
  merkle_frontier tree;
  digest last;
  for (const record& one : records) {
    tree.append(leaf_hash(encode(one)));
    if (const auto* close = std::get_if<close_record>(&one)) last = close->state;
  }
  return sign_run_note(agreed.id(), tree.size(), tree.root(), last, key_of(key)).value();
}

inline std::vector<std::string> rejecting_rules(const evidence& what) {
  std::vector<std::string> out;
  for (const finding& one : what.findings()) {
    const bool known = std::find(out.begin(), out.end(), one.rule) != out.end();
    if (one.result == outcome::reject && !known) out.push_back(one.rule);
  }
  return out;
}

/// Switches a rule off for a scope.
class without_rule {
 public:
  explicit without_rule(std::string rule) : rule_(std::move(rule)) {
    REQUIRE(set_rule_enabled(rule_, false));
  }
  without_rule(const without_rule&) = delete;
  ~without_rule() { set_rule_enabled(rule_, true); }

 private:
  std::string rule_;
};

}  // namespace potl_test
