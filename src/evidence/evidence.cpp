// SPDX-License-Identifier: Apache-2.0
#include <potl/evidence/evidence.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include <potl/crypto/hasher.hpp>
#include <potl/numeric/rounding_log.hpp>
#include <potl/transcript/detail/checkpoint_file.hpp>

#include "evidence/audit.hpp"

namespace potl::transcript {

struct evidence::body {
  explicit body(const evidence_options& given)
      : options(given), files(given.directory, given.fetch) {}

  evidence_options options;
  run_files files;
  std::optional<run_note> commitment;
  std::optional<public_key> key;
  job agreed;
  bool committed = false;
  digest log;
  history run;
  std::vector<checkpoint_info> checkpoints;
  std::vector<std::uint8_t> telemetry;
  std::vector<finding> findings;
  // Of files, as the verifier's own states say; 0: not known yet.
  mutable std::atomic<std::uint64_t> checkpoint_limit{0};
  mutable std::mutex reading_base;
  mutable std::shared_ptr<const checkpoint_base> base;
  mutable std::mutex measuring;
  mutable std::shared_ptr<const void> measured;

  std::uint64_t at_most(std::uint64_t known) const;
  result<checkpoint_file> read_checkpoint(const std::string& name) const;
};

namespace {

// Optimizers and averages hold a few copies of the parameters, which the initial state lacks.
constexpr std::uint64_t state_growth = 8;
// What was seen with all that an optimizer keeps grows by the user's own lists alone.
constexpr std::uint64_t seen_growth = 2;
constexpr std::uint64_t state_slack = std::uint64_t{64} << 20;
constexpr std::uint64_t largest_checkpoint = std::uint64_t{64} << 30;
constexpr std::string_view limit_remedy =
    "the limit follows from the size of the task's own state; pass max_checkpoint_bytes to read "
    "larger ones";

// More than any log of the client's job: each step recorded anew by every allowed resume, four
// times over, so that a few resumes too many are still read and reported as that.
std::uint64_t log_limit(const std::optional<job>& agreed) {
  if (!agreed) return max_unagreed_log_bytes;
  constexpr std::uint64_t many = std::uint64_t{1} << 40;
  const std::uint64_t records = 64 + std::min(agreed->steps, many) +
                                std::min(agreed->max_superseded, many) +
                                std::min(agreed->max_resumes, many);
  // Metric-driven rates: a thousand parameter groups.
  const std::uint64_t groups = agreed->rates.empty() ? 1024 : agreed->rates.front().rates.size();
  const std::uint64_t bytes = 4 * records * (288 + 8 * std::min<std::uint64_t>(groups, 1 << 16));
  return std::min(max_log_bytes, bytes + (std::uint64_t{1} << 20));
}

result<job> job_of_run(const run_files& files) {
  const auto text = files.read(std::string(job_name), max_job_bytes);
  if (!text) return text.why();
  return parse_job(*text);
}

struct notes {
  std::optional<run_note> commitment;
  std::vector<run_note> published;
  std::vector<run_note> others;
};

status parse_all(const std::vector<std::string>& texts, std::vector<run_note>& out) {
  for (const std::string& text : texts) {
    result<run_note> note = parse_run_note(text);
    if (!note) return note.why();
    out.push_back(std::move(*note));
  }
  return unit{};
}

result<notes> parse_notes(const evidence_options& options) {
  notes out;
  if (!options.commitment.empty()) {
    result<run_note> note = parse_run_note(options.commitment);
    if (!note) return note.why();
    out.commitment = std::move(*note);
  }
  if (status parsed = parse_all(options.published, out.published); !parsed) return parsed.why();
  if (status parsed = parse_all(options.other_commitments, out.others); !parsed) {
    return parsed.why();
  }
  return out;
}

// The header's key, if there is one, without keeping the whole history.
std::optional<public_key> key_in(bytes_view log, chain_rule chain) {
  result<log_reader> reader = log_reader::open(log, chain);
  if (!reader) return std::nullopt;
  const std::optional<record> first = reader->next();
  const auto* header = first ? std::get_if<header_record>(&*first) : nullptr;
  if (header == nullptr) return std::nullopt;
  const result<public_key> key = public_key::from_raw(header->trainer);
  return key ? std::optional(*key) : std::nullopt;
}

std::optional<digest> job_id_in(bytes_view log, chain_rule chain) {
  result<log_reader> reader = log_reader::open(log, chain);
  if (!reader) return std::nullopt;
  const std::optional<record> first = reader->next();
  if (!first) return std::nullopt;
  return std::visit([](const auto& one) { return one.job_id; }, *first);
}

// What was agreed is the client's job. Only with rule agreed.job off is the prover's word taken.
result<job> agreed_job(const evidence_options& options, const run_files& files, bytes_view log,
                       chain_rule chain) {
  if (!options.client_job) return job_of_run(files);
  if (in_force("agreed.job")) return *options.client_job;
  const std::optional<digest> claimed = job_id_in(log, chain);
  result<job> own = job_of_run(files);
  if (own && claimed && own->id() == *claimed) return own;
  return *options.client_job;
}

// Whether the trainer that the client's job pins has signed what the log must be. From then on a
// log without a head is the prover's doing, like one that was changed: docs/decisions/0008.
bool is_bound(const evidence_options& options, const std::optional<run_note>& commitment) {
  if (!options.client_job || !options.client_job->trainer || !commitment) return false;
  const result<public_key> pinned = public_key::from_raw(*options.client_job->trainer);
  return pinned && commitment->final_state && commitment->job_id == options.client_job->id() &&
         verify_note(commitment->note, *pinned);
}

// Nothing is withheld by whoever lost the whole directory, and a disk that went away is own
// trouble.
error unless_gone(error why, const std::string& directory) {
  if (why.code != errc::missing) return why;
  const auto head = read_entry_part(directory, log_name, 0, 0);
  if (head) return why;
  return {errc::io, "the run is not there any more: " + head.why().message,
          "verify again when it is back: the same is asked"};
}

std::uint64_t grown(std::uint64_t bytes, std::uint64_t times) {
  const std::uint64_t most = (std::numeric_limits<std::uint64_t>::max() - state_slack) / times;
  return std::min(bytes, most) * times + state_slack;
}

bool lacks_files(const std::vector<finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const finding& one) {
    return one.result == outcome::reject && one.rule == "transcript.withheld";
  });
}

}  // namespace

result<evidence> evidence::open(const evidence_options& options) {
  const result<notes> given = parse_notes(options);
  if (!given) return given.why();
  auto content = std::make_shared<body>(options);
  const run_files& files = content->files;
  const auto log = files.read(std::string(log_name), log_limit(options.client_job));
  if (!log) return options.client_job ? log.why() : unread_without_job(log.why());
  const digest log_digest = sha256_of(*log);
  if (options.expected_log && *options.expected_log != log_digest &&
      in_force("transcript.one_reading")) {
    return error{errc::mismatch,
                 "transcript.log is not the one that was judged: it was changed meanwhile",
                 "verify a copy that nobody else can write to: the same is asked again"};
  }

  history_options reading;
  reading.chain = in_force("transcript.chain") ? chain_rule::required : chain_rule::ignored;
  result<job> agreed = agreed_job(options, files, *log, reading.chain);
  if (!agreed) return agreed.why();
  if (agreed->trainer && in_force("agreed.trainer_key")) {
    const result<public_key> pinned = public_key::from_raw(*agreed->trainer);
    if (pinned) reading.key = *pinned;
  } else {
    reading.key = key_in(*log, reading.chain);
  }
  // More resumes than agreed are a finding by their number: their signatures need no look.
  reading.max_signatures = std::min<std::uint64_t>(agreed->max_resumes + 1, 4096);
  for (const run_note& note : given->published) reading.roots_at.push_back(note.note.note.size);
  result<history> run = read_history(*log, reading);
  if (!run) {
    const error why = run.why();
    if (why.code != errc::malformed || !is_bound(options, given->commitment)) return why;
    run = history();
    run->tail = log_tail::damage;
    run->tail_problem = why.message;
  }

  content->agreed = std::move(*agreed);
  content->committed = given->commitment.has_value();
  content->commitment = given->commitment;
  content->key = reading.key;
  content->log = log_digest;
  content->run = std::move(*run);
  audit_log findings(content->findings);
  const audit_input input{content->agreed,  options.client_job.has_value(),
                          content->run,     given->commitment,
                          given->published, given->others,
                          reading.key};
  audit_identity(input, findings);
  audit_structure(input, findings);
  audit_history(input, findings);
  audit_recipe(input, findings);
  audit_finite(input, findings);
  auto checkpoints = audit_checkpoints(options.directory, input, findings);
  if (!checkpoints) return checkpoints.why();
  audit_segments(options.directory, input, findings);
  content->checkpoints = std::move(*checkpoints);
  if (status looked = audit_rounding(options.directory, input, findings); !looked) {
    return looked.why();
  }
  auto telemetry = audit_telemetry(files, input, findings);
  if (!telemetry) return telemetry.why();
  content->telemetry = std::move(*telemetry);
  if (lacks_files(content->findings)) {
    const error why = unless_gone({errc::missing, "", ""}, options.directory);
    if (why.code == errc::io) return why;
  }
  return evidence(std::move(content));
}

const job& evidence::agreed() const { return body_->agreed; }
bool evidence::job_is_own() const { return body_->options.client_job.has_value(); }
bool evidence::committed() const { return body_->committed; }
bool evidence::closed() const { return body_->run.close.has_value(); }
const digest& evidence::commitment_digest() const { return body_->run.root; }
const digest& evidence::log_digest() const { return body_->log; }
std::uint64_t evidence::records() const { return body_->run.records; }
const std::vector<finding>& evidence::findings() const { return body_->findings; }
const std::string& evidence::commitment_note() const { return body_->options.commitment; }
result<std::vector<finding>> evidence::compare_commitments(
    const std::vector<std::string>& others) const {
  std::vector<run_note> notes;
  if (status parsed = parse_all(others, notes); !parsed) return parsed.why();
  std::vector<finding> out;
  audit_log log(out);
  audit_others({body_->agreed, job_is_own(), body_->run, body_->commitment, {}, notes, body_->key},
               log);
  return out;
}
bool evidence::rejected() const {
  return std::any_of(findings().begin(), findings().end(),
                     [](const finding& one) { return one.result == outcome::reject; });
}
const std::vector<step_record>& evidence::steps() const { return body_->run.steps; }
const initial_record* evidence::initial() const {
  return body_->run.initial ? &*body_->run.initial : nullptr;
}
const std::vector<checkpoint_info>& evidence::checkpoints() const { return body_->checkpoints; }
std::vector<checkpoint_info> evidence::missing_checkpoints() const {
  const history& run = body_->run;
  std::vector<checkpoint_info> out;
  auto stored = body_->checkpoints.begin();
  const auto look = [&](std::uint64_t step, std::uint64_t branch, const digest& state) {
    while (stored != body_->checkpoints.end() && stored->step < step) ++stored;
    const bool there = stored != body_->checkpoints.end() && stored->step == step;
    if (!there) out.push_back({step, branch, state, 0});
  };
  if (run.initial) look(0, 0, run.initial->state);
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const step_record& one = run.steps[i];
    const bool derivable = body_->agreed.store_every != 0 && body_->agreed.is_boundary(one.step);
    if (derivable || has(one.flags, step_flag::checkpoint)) {
      look(one.step, run.branches[i], one.state);
    }
  }
  return out;
}
const std::vector<superseded_range>& evidence::superseded() const { return body_->run.ranges; }
const std::vector<step_record>& evidence::superseded_steps() const { return body_->run.superseded; }
const std::vector<resume_record>& evidence::resumes() const { return body_->run.resumes; }
const std::vector<std::uint8_t>& evidence::telemetry() const { return body_->telemetry; }
std::uint64_t evidence::log_bytes() const { return body_->run.bytes; }

void evidence::expect_state_bytes(std::uint64_t initial) const noexcept {
  body_->checkpoint_limit = grown(initial, state_growth);
}

void evidence::expect_largest_state_bytes(std::uint64_t largest) const noexcept {
  body_->checkpoint_limit = grown(largest, seen_growth);
}

result<operator_trace> evidence::load_trace(std::uint64_t step) const {
  return read_trace(body_->options.directory, step);
}

std::shared_ptr<const void> evidence::once(
    const std::function<std::shared_ptr<const void>()>& measure) const {
  const std::lock_guard lock(body_->measuring);
  if (!body_->measured) body_->measured = measure();
  return body_->measured;
}

const digest* evidence::state_digest(std::uint64_t step) const { return body_->run.state_at(step); }

std::uint64_t evidence::body::at_most(std::uint64_t known) const {
  return options.max_checkpoint_bytes.value_or(known > 0 ? std::min(known, largest_checkpoint)
                                                         : largest_checkpoint);
}

// A file whose size is not the one that its head tells is none of the recorder's: it is refused
// before memory is taken for it.
result<checkpoint_file> evidence::body::read_checkpoint(const std::string& name) const {
  const std::uint64_t limit = at_most(checkpoint_limit);
  const auto file = files.open(name, max_checkpoint_head, limit);
  if (!file) return file.why();
  result<checkpoint_file> out = transcript::read_checkpoint(*file, limit);
  if (out || out.why().code != errc::mismatch) return out;
  error why = out.why();
  why.message = name + ": " + why.message;
  return why;
}

result<state> evidence::load_state(std::uint64_t step) const {
  const auto at = step == 0 ? std::optional<std::size_t>() : body_->run.find(step);
  if (step != 0 && !at) {
    return error{errc::missing, "step " + std::to_string(step) + " is not in the log", ""};
  }
  return load_state(step, step == 0 ? 0 : body_->run.branches[*at]);
}

result<state> evidence::load_state(std::uint64_t step, std::uint64_t branch) const {
  const digest* expected = body_->run.state_in(step, branch);
  const std::string name = checkpoint_entry(step, branch);
  if (expected == nullptr) {
    return error{errc::missing, name + " belongs to no record of the log", ""};
  }
  auto file = body_->read_checkpoint(name);
  if (!file) {
    // A link, a directory or no checkpoint in its place is the prover's doing, not own trouble. A
    // vast state may be an honest one of an unusual optimizer.
    error why = unless_gone(file.why(), body_->options.directory);
    if (why.code == errc::malformed) why.code = errc::mismatch;
    if (why.code == errc::limit) {
      why.remedy = limit_remedy;
    }
    return why;
  }
  std::optional<error> of_base;
  const auto find_base = [&] {
    auto found = base();
    if (!found) of_base = found.why();
    return found;
  };
  result<state> out =
      parse_checkpoint(std::move(*file), in_force("transcript.checkpoint") ? expected : nullptr,
                       step == 0 ? base_source() : base_source(find_base));
  if (out) return out;
  // It has been said there whose fault it is.
  if (of_base) return *of_base;
  error why = out.why();
  if (why.code == errc::malformed || why.code == errc::limit) why.code = errc::mismatch;
  why.message = name + ": " + why.message;
  return why;
}

// Read once. The agreed initial state and no other, so that the size of it is the job's.
result<std::shared_ptr<const checkpoint_base>> evidence::base() const {
  const std::lock_guard lock(body_->reading_base);
  if (body_->base) return body_->base;
  result<state> initial = load_state(0, 0);
  if (!initial) return initial.why();
  if (initial->state_digest() != body_->agreed.initial_state) {
    return error{errc::mismatch, "the run begins with another state than the agreed one", ""};
  }
  body_->base =
      std::make_shared<const checkpoint_base>(checkpoint_base::to_read(std::move(*initial)));
  return body_->base;
}

std::optional<rounding_reference> evidence::rounding_log_of(std::uint64_t step) const {
  const auto at = body_->run.find(step);
  return at ? body_->run.steps[*at].rounding : std::nullopt;
}

std::optional<rounding_reference> evidence::rounding_log_of(std::uint64_t step,
                                                            std::uint64_t branch) const {
  const auto place = body_->run.rounding_in(step, branch);
  return place ? std::optional(place->log) : std::nullopt;
}

result<std::vector<std::uint8_t>> evidence::load_rounding_log(std::uint64_t step) const {
  const auto at = body_->run.find(step);
  return load_rounding_log(step, at ? body_->run.branches[*at] : 0);
}

result<std::vector<std::uint8_t>> evidence::load_rounding_log(std::uint64_t step,
                                                              std::uint64_t branch) const {
  const std::optional<rounding_place> place = body_->run.rounding_in(step, branch);
  if (!place) {
    return error{errc::missing, "step " + std::to_string(step) + " binds no rounding log", ""};
  }
  const std::string name = rounding_entry(branch);
  auto bytes = body_->files.read_part(name, place->offset, place->log.bytes);
  if (!bytes) {
    // A link or a directory in its place is the prover's doing, not own trouble.
    error why = unless_gone(bytes.why(), body_->options.directory);
    if (why.code == errc::malformed) why.code = errc::mismatch;
    return why;
  }
  if (numeric::rounding_log_digest(*bytes) != place->log.content &&
      in_force("transcript.rounding")) {
    return error{errc::mismatch,
                 name + ": the rounding log of step " + std::to_string(step) +
                     " is not the one that its leaf binds",
                 ""};
  }
  return bytes;
}

}  // namespace potl::transcript
