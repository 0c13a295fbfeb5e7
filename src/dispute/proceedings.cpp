// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/proceedings.hpp>

#include <algorithm>
#include <utility>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/hasher.hpp>

namespace potl::dispute {
namespace {

// Of "{}", with which a party says that it has no answer: who could not even say that would lose.
constexpr std::size_t least_answer_bytes = 2;

error mismatch(std::string why) { return {errc::mismatch, "dispute: " + std::move(why), ""}; }

/// The commitment of one party.
result<transcript::run_note> commitment_of(const setting& known, const terms& agreed, party one) {
  result<transcript::run_note> note = transcript::parse_run_note(agreed.commitments.of(one));
  if (!note) return note;
  const std::string whose = std::string("the commitment of the ") + to_string(one);
  if (!verify_note(note->note, known.key_of(one))) return mismatch(whose + " has another key");
  if (note->job_id != known.job) return mismatch(whose + " is of another job");
  if (!note->final_state) return mismatch(whose + " is that of a run that goes on");
  return note;
}

result<effect> taken(const status& done) {
  if (!done) return mismatch(done.why().message);
  return effect::taken;
}

}  // namespace

setting::setting(const transcript::job& agreed, const public_key& trainer_key,
                 const public_key& auditor_key, const public_key& referee_key)
    : setting(agreed.id(), agreed.steps, agreed.initial_state, trainer_key, auditor_key,
              referee_key) {}

setting::setting(const digest& job_id, std::uint64_t job_steps, const digest& initial_state,
                 const public_key& trainer_key, const public_key& auditor_key,
                 const public_key& referee_key)
    : job(job_id),
      steps(job_steps),
      initial(initial_state),
      trainer(trainer_key),
      auditor(auditor_key),
      referee(referee_key) {}

proceedings::proceedings(const setting& known, run_names run, both<transcript::run_note> notes,
                         const game_rules& rules, std::uint64_t at)
    : known_(known), run_(run), notes_(std::move(notes)), game_(rules, at) {}

result<proceedings> proceedings::opened(const setting& known, const entry& first) {
  const auto* agreed = std::get_if<terms>(&first.what);
  if (agreed == nullptr || first.previous != digest{}) return mismatch("the beginning is missing");
  if (agreed->job != known.job) return mismatch("it is about another job");
  both<transcript::run_note> notes;
  for (const party one : {party::trainer, party::auditor}) {
    result<transcript::run_note> note = commitment_of(known, *agreed, one);
    if (!note) return note.why();
    notes.of(one) = std::move(*note);
  }
  const run_names run{known.job, sha256_of(as_bytes_view(agreed->commitments.trainer)),
                      sha256_of(as_bytes_view(agreed->commitments.auditor))};
  const both<digest> final_state{*notes.trainer.final_state, *notes.auditor.final_state};
  try {
    return proceedings(known, run, std::move(notes),
                       {run, known.steps, known.initial, final_state, agreed->turn_ms}, first.at);
  } catch (const exception& thrown) {
    return mismatch(thrown.details().message);
  }
}

result<proceedings> proceedings::begin(const setting& known, std::string_view line) {
  const result<entry> first = parse_entry(as_bytes_view(line));
  if (!first) return first.why();
  if (!first->is_from(known.referee)) return mismatch("another key than the referee's signed it");
  result<proceedings> out = opened(known, *first);
  if (out) out->follow(line, *first);
  return out;
}

status proceedings::append(std::string_view line) {
  const result<entry> one = parse_entry(as_bytes_view(line));
  if (!one) return one.why();
  if (one->previous != head_) return mismatch("the line does not continue the one before");
  if (!one->is_from(known_.referee)) return mismatch("another key than the referee's signed it");
  const result<effect> done = apply(*one);
  if (!done) return done.why();
  if (*done == effect::ignored) return mismatch("the line changes nothing");
  follow(line, *one);
  return unit{};
}

void proceedings::follow(std::string_view line, const entry& one) {
  head_ = sha256_of(as_bytes_view(line));
  if (!std::holds_alternative<restarted>(one.what)) parent_ = head_;
  last_at_ = one.at;
}

std::uint64_t proceedings::step() const noexcept {
  const bisection& steps = game_.bisections().front();
  return steps.is_narrow() ? steps.high : 0;
}

std::size_t proceedings::message_bytes() const noexcept { return message_limit(most_asked_); }

result<effect> proceedings::apply(const entry& one) {
  if (one.at < last_at_) return mismatch("time runs backwards");
  if (game_.decided()) return effect::ignored;
  if (game_.is_late(one.at) && !std::holds_alternative<silence>(one.what) &&
      !std::holds_alternative<restarted>(one.what) && !std::holds_alternative<ruling>(one.what)) {
    return mismatch("a message counts that came too late");
  }
  struct {
    proceedings& self;
    std::uint64_t at;
    result<effect> operator()(const terms&) { return mismatch("a second beginning"); }
    result<effect> operator()(const received& what) { return self.take(what, at); }
    result<effect> operator()(const oversized& what) { return self.take(what); }
    result<effect> operator()(const silence&) { return self.game_.tick(at); }
    result<effect> operator()(const restarted&) { return self.game_.restart(at); }
    result<effect> operator()(const inner_bisection& what) { return self.take(what, at); }
    result<effect> operator()(const question& what) { return self.take(what, at); }
    result<effect> operator()(const ruling& what) { return self.take(what); }
  } visitor{*this, one.at};
  return std::visit(visitor, one.what);
}

/// What is wrong with the content of the expected message.
std::optional<reason> proceedings::flaw_of(const message& one) const {
  const bisection& now = game_.bisections().back();
  if (const auto* claimed = std::get_if<claim>(&one.content)) {
    if (now.kind != level_kind::steps) {
      if (claimed->record) return reason::garbage;
    } else if (!verify_step_claim(*claimed, one.index, notes_.of(one.from))) {
      return reason::commitment;
    }
    return std::nullopt;
  }
  if (const auto* given = std::get_if<answer>(&one.content)) {
    if (given->bytes.size() > question_.max_bytes) return reason::garbage;
    return std::nullopt;
  }
  const auto& shown = std::get<opening>(one.content);
  // What is inside a step is not claimed before its operators are counted.
  if (now.kind == level_kind::steps) return std::nullopt;
  if (!verify_opening(now.low, shown, now.agreed, now.claimed.of(one.from))) {
    return reason::opening;
  }
  if (now.kind == level_kind::chunks) {
    const std::uint64_t from = now.low * content_chunk_bytes;
    const std::uint64_t length = std::min<std::uint64_t>(content_chunk_bytes, inner_->bytes - from);
    if (shown.leaf.size() != length) return reason::opening;
  }
  return std::nullopt;
}

result<effect> proceedings::take(const received& one, std::uint64_t at) {
  const std::size_t limit = message_bytes();
  if (one.text.size() > limit) {
    // Whoever is on turn may send no more; the others are not listened to.
    if (game_.expected().who == one.from) return mismatch("a message is longer than it can be");
    return effect::ignored;
  }
  result<message> read = parse_message(one.text, limit);
  if (!read || read->from != one.from || !read->is_from(known_.key_of(one.from))) {
    return game_.garbage(one.from);
  }
  const bool is_expected =
      game_.expected().who == one.from && read->where() == game_.expected().where;
  std::optional<reason> flaw;
  if (is_expected) flaw = flaw_of(*read);
  const effect done = game_.play(one.from, read->as_move(), parent_, at, flaw);
  if (done == effect::taken && !game_.decided()) {
    if (auto* shown = std::get_if<opening>(&read->content)) {
      openings_.of(one.from) = std::move(*shown);
    } else if (auto* given = std::get_if<answer>(&read->content)) {
      answers_.of(one.from) = std::move(*given);
    }
  }
  return done;
}

result<effect> proceedings::take(const oversized& one) {
  if (game_.expected().who == one.from && one.bytes <= message_bytes()) {
    return mismatch("a message that is not too long was not kept");
  }
  return game_.garbage(one.from);
}

result<effect> proceedings::take(const inner_bisection& one, std::uint64_t at) {
  if (!game_.is_referees_turn()) return mismatch("it is not the referee's turn");
  const bool of_chunks = one.kind == level_kind::chunks;
  if (of_chunks ? content_chunks(one.bytes) != one.size : one.subject != 0 || one.bytes != 0) {
    return mismatch("so many chunks do not hold so many bytes");
  }
  both<digest> claimed = one.claimed;
  if (game_.bisections().back().kind == level_kind::steps) {
    if (claimed != both<digest>{}) return mismatch("the openings give the roots inside a step");
    if (of_chunks || one.size == 0 || one.size > max_leaves) {
      return mismatch("a step has operators");
    }
    both<bool> wrong;
    for (const party side : {party::trainer, party::auditor}) {
      const result<digest> root = root_after(one.size - 1, openings_.of(side));
      wrong.of(side) = !root;
      if (root) claimed.of(side) = *root;
    }
    if (wrong.trainer || wrong.auditor) return taken(game_.rule(wrong, reason::opening));
  }
  const result<effect> done = taken(game_.next(one.kind, one.size, claimed, at));
  if (done) inner_ = one;
  return done;
}

result<effect> proceedings::take(const question& one, std::uint64_t at) {
  if (one.max_bytes < least_answer_bytes || one.max_bytes > max_answer_bytes ||
      one.text.size() > max_decision_bytes) {
    return mismatch("a question is too long, or leaves too much or no room for an answer");
  }
  const result<effect> done = taken(game_.ask(at));
  if (!done) return done;
  question_ = one;
  most_asked_ = std::max(most_asked_, one.max_bytes);
  return done;
}

result<effect> proceedings::take(const ruling& one) {
  if (one.evidence.size() > max_decision_bytes) return mismatch("a ruling's evidence is too long");
  return taken(game_.rule(one.wrong, one.why));
}

}  // namespace potl::dispute
