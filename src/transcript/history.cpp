// SPDX-License-Identifier: Apache-2.0
#include "transcript/history.hpp"

#include <algorithm>

#include <potl/crypto/merkle.hpp>

namespace potl::transcript {
namespace {

constexpr std::size_t max_anomalies = 256;
constexpr std::size_t max_insertions = 1000;

class walker {
 public:
  walker(history& out, const history_options& options) : out_(out), options_(options) {}

  void take(const record& what, bytes_view payload) {
    std::visit([this](const auto& one) { check_job(one.job_id); }, what);
    if (out_.close) out_.add("transcript.sequence", "a record follows the close record");
    std::visit(*this, what);
    tree_.append(leaf_hash(payload));
    ++out_.records;
    if (std::binary_search(options_.roots_at.begin(), options_.roots_at.end(), out_.records)) {
      out_.roots[out_.records] = tree_.root();
    }
  }

  digest root() const { return tree_.root(); }

  void operator()(const header_record& what) {
    if (out_.records != 0) return out_.add("transcript.sequence", "a second header record");
    out_.header = what;
  }

  void operator()(const initial_record& what) {
    if (out_.records != 1) {
      return out_.add("transcript.sequence", "an initial record that is not the second");
    }
    out_.initial = what;
  }

  void operator()(const step_record& what) {
    const std::uint64_t last = out_.last_step();
    if (what.step == last + 1) return push(what);
    if (what.step > last) {
      out_.add("transcript.sequence",
               "step " + std::to_string(what.step) + " follows step " + std::to_string(last),
               what.step);
      return push(what);
    }
    out_.add("transcript.sequence",
             "step " + std::to_string(what.step) + " comes again, or late, after step " +
                 std::to_string(last),
             what.step);
    place(what);
  }

  void operator()(const resume_record& what) {
    out_.resumes.push_back(what);
    check_resume(what);
    const std::uint64_t last = out_.last_step();
    branch_ = out_.resumes.size();
    if (what.from_step >= last) return;
    const auto keep = std::upper_bound(
        out_.steps.begin(), out_.steps.end(), what.from_step,
        [](std::uint64_t step, const step_record& other) { return step < other.step; });
    const auto first = static_cast<std::size_t>(keep - out_.steps.begin());
    for (std::size_t i = first; i < out_.steps.size(); ++i) supersede(i);
    out_.steps.resize(first);
    out_.branches.resize(first);
    out_.rounding_offsets.resize(first);
  }

  void operator()(const close_record& what) {
    if (out_.close) return;
    out_.close = what;
    const digest* state = out_.state_at(what.step);
    if (what.step != out_.last_step() || state == nullptr || *state != what.state) {
      out_.add("transcript.sequence", "the close record does not name the last step's state");
    }
  }

 private:
  void push(const step_record& what) {
    out_.steps.push_back(what);
    out_.branches.push_back(branch_);
    out_.rounding_offsets.push_back(rounding_offset(what));
  }

  // Records lie in the order in which their logs were appended.
  std::uint64_t rounding_offset(const step_record& what) {
    out_.rounding_bytes.resize(branch_ + 1, 0);
    std::uint64_t& end = out_.rounding_bytes.back();
    const std::uint64_t begin = end;
    if (what.rounding) end += what.rounding->bytes;
    return begin;
  }

  // A step out of order replaces the one of its number, or goes where it belongs: whoever looks on
  // with the rule switched off sees ascending steps. Few, because each insertion is linear.
  void place(const step_record& what) {
    const auto at = std::lower_bound(
        out_.steps.begin(), out_.steps.end(), what.step,
        [](const step_record& other, std::uint64_t wanted) { return other.step < wanted; });
    const auto index = at - out_.steps.begin();
    const std::uint64_t offset = rounding_offset(what);
    if (at != out_.steps.end() && at->step == what.step) {
      *at = what;
      out_.branches[static_cast<std::size_t>(index)] = branch_;
      out_.rounding_offsets[static_cast<std::size_t>(index)] = offset;
    } else if (what.step != 0 && inserted_ < max_insertions) {
      ++inserted_;
      out_.steps.insert(at, what);
      out_.branches.insert(out_.branches.begin() + index, branch_);
      out_.rounding_offsets.insert(out_.rounding_offsets.begin() + index, offset);
    }
  }

  // Moves an effective step to the superseded ones; neighbours of one branch share a range.
  void supersede(std::size_t at) {
    const std::uint64_t step = out_.steps[at].step;
    const std::uint64_t branch = out_.branches[at];
    const std::uint64_t before = at == 0 ? 0 : out_.branches[at - 1];
    const bool goes_on = !out_.ranges.empty() && out_.ranges.back().branch == branch &&
                         out_.ranges.back().last_step + 1 == step;
    if (goes_on) {
      out_.ranges.back().last_step = step;
    } else {
      out_.ranges.push_back({branch, step - 1, step, before});
    }
    out_.superseded.push_back(std::move(out_.steps[at]));
    out_.superseded_branches.push_back(branch);
    out_.superseded_rounding_offsets.push_back(out_.rounding_offsets[at]);
  }

  void check_job(const digest& id) {
    if (out_.header && id != out_.header->job_id) {
      out_.add("agreed.job", "a record names another job than the header", out_.last_step());
    }
  }

  void check_resume(const resume_record& what) {
    const auto wrong = [&](const std::string& why) {
      out_.add("transcript.resume", "resume " + std::to_string(out_.resumes.size()) + " " + why,
               what.from_step);
    };
    if (what.number != out_.resumes.size()) wrong("has another number");
    if (what.log_size != out_.records) wrong("states another number of records before it");
    if (what.log_root != tree_.root()) wrong("states another root of the records before it");
    if (what.last_step != out_.last_step()) wrong("states another last step");
    const digest* state = out_.state_at(what.from_step);
    if (state == nullptr) {
      wrong("starts from a step that is not in the log");
    } else if (*state != what.state) {
      wrong("starts from another state than the one recorded");
    }
    if (!is_checkpointed(what.from_step)) wrong("starts from a step without a checkpoint");
    if (out_.resumes.size() <= options_.max_signatures && !is_signed(what)) {
      wrong("is not signed by the trainer");
    }
  }

  bool is_checkpointed(std::uint64_t step) const {
    if (step == 0) return true;
    const auto at = out_.find(step);
    return at && has(out_.steps[*at].flags, step_flag::checkpoint);
  }

  bool is_signed(const resume_record& what) const {
    std::optional<public_key> key = options_.key;
    if (!key && out_.header) {
      const result<public_key> own = public_key::from_raw(out_.header->trainer);
      if (own) key = *own;
    }
    return key && key->verify(resume_message(what), what.signature);
  }

  history& out_;
  const history_options& options_;
  merkle_frontier tree_;
  std::uint64_t branch_ = 0;
  std::size_t inserted_ = 0;
};

}  // namespace

const digest* history::state_at(std::uint64_t step) const {
  if (step == 0) return initial ? &initial->state : nullptr;
  const auto at = find(step);
  return at ? &steps[*at].state : nullptr;
}

const digest* history::state_in(std::uint64_t step, std::uint64_t branch) const {
  if (step == 0) return branch == 0 ? state_at(0) : nullptr;
  const auto at = find(step);
  if (at && branches[*at] == branch) return &steps[*at].state;
  for (std::size_t i = 0; i < superseded.size(); ++i) {
    if (superseded[i].step == step && superseded_branches[i] == branch) return &superseded[i].state;
  }
  return nullptr;
}

std::optional<rounding_place> history::rounding_in(std::uint64_t step, std::uint64_t branch) const {
  const auto at = find(step);
  if (at && branches[*at] == branch) {
    if (!steps[*at].rounding) return std::nullopt;
    return rounding_place{*steps[*at].rounding, rounding_offsets[*at]};
  }
  for (std::size_t i = 0; i < superseded.size(); ++i) {
    if (superseded[i].step != step || superseded_branches[i] != branch) continue;
    if (!superseded[i].rounding) return std::nullopt;
    return rounding_place{*superseded[i].rounding, superseded_rounding_offsets[i]};
  }
  return std::nullopt;
}

std::optional<std::size_t> history::find(std::uint64_t step) const {
  const auto at = std::lower_bound(
      steps.begin(), steps.end(), step,
      [](const step_record& other, std::uint64_t wanted) { return other.step < wanted; });
  if (at == steps.end() || at->step != step) return std::nullopt;
  return static_cast<std::size_t>(at - steps.begin());
}

void history::add(std::string_view rule, std::string reason, std::optional<std::uint64_t> step) {
  ++anomaly_count;
  const bool known = std::any_of(anomalies.begin(), anomalies.end(),
                                 [&](const anomaly& one) { return one.rule == rule; });
  if (known && anomalies.size() >= max_anomalies) return;
  anomalies.push_back({rule, std::move(reason), step});
}

result<history> read_history(bytes_view log, const history_options& options) {
  result<log_reader> reader = log_reader::open(log, options.chain);
  if (!reader) return reader.why();
  history out;
  history_options sorted = options;
  std::sort(sorted.roots_at.begin(), sorted.roots_at.end());
  walker walk(out, sorted);
  while (const std::optional<record> next = reader->next()) walk.take(*next, reader->payload());
  out.bytes = reader->position();
  out.chain = reader->chain();
  out.root = walk.root();
  out.tail = reader->tail();
  out.tail_problem = reader->problem();
  if (!out.header) out.add("transcript.sequence", "the log does not begin with a header record");
  if (!out.initial) out.add("transcript.sequence", "the log has no initial record");
  return out;
}

}  // namespace potl::transcript
