// SPDX-License-Identifier: Apache-2.0
// A small dispute from end to end: a job of a few steps, a step of a few operators, a result of a
// few chunks; two parties of which one or both are wrong from some place on; a referee.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/dispute/player.hpp>
#include <potl/dispute/proceedings.hpp>
#include <potl/dispute/referee.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/detail/record.hpp>

namespace potl::dispute {

using byte_vector = std::vector<std::uint8_t>;

inline digest digest_of(const std::string& text) { return sha256_of(as_bytes_view(text)); }

inline signing_key key_of(const std::string& name) {
  return signing_key::from_seed(digest_of("key of " + name)).value();
}

inline byte_vector bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

/// How large the dispute is, and where a party is wrong first: step from 1, the others from 0.
struct sizes {
  std::uint64_t steps = 5, operators = 3;
  std::uint64_t bytes = 2 * content_chunk_bytes + 100;  ///< of a result
};
struct fault {
  std::uint64_t step = 1, where = 0, chunk = 0;
};

inline const digest job_id = digest_of("job");
inline const digest initial_state = digest_of("state 0");
inline constexpr std::uint64_t opened_at = 1'000'000, turn_ms = 60'000;

/// One party's run: true, or wrong from a fault on.
class party_run {
 public:
  party_run(party self, const sizes& size, std::optional<fault> wrong)
      : self_(self), size_(size), wrong_(wrong) {
    for (std::uint64_t step = 1; step <= size.steps; ++step) {
      transcript::step_record record;
      record.job_id = job_id;
      record.step = step;
      record.state = state_after(step);
      records_.push_back(transcript::encode(record));
      log_.append(leaf_hash(records_.back()));
    }
    note_ = transcript::sign_run_note(job_id, log_.size(), log_.root(), state_after(size.steps),
                                      key_of(to_string(self)))
                .value();
  }

  const std::string& note() const { return note_; }

  digest state_after(std::uint64_t step) const {
    const bool is_wrong = wrong_ && step >= wrong_->step;
    return digest_of("state " + std::to_string(step) + (is_wrong ? to_string(self_) : ""));
  }

  byte_vector result_of(std::uint64_t step, std::uint64_t number) const {
    byte_vector out(size_.bytes, static_cast<std::uint8_t>(number));
    if (wrong_ && step >= wrong_->step && number >= wrong_->where) {
      const std::uint64_t from = number > wrong_->where ? 0 : wrong_->chunk * content_chunk_bytes;
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(from), out.end(),
                self_ == party::trainer ? 0xaa : 0xbb);
    }
    return out;
  }

  /// An operator's name and the root of its result; the last one has the state after the step.
  byte_vector leaf(std::uint64_t step, std::uint64_t number) const {
    const bool is_last = number + 1 == size_.operators;
    const digest root = is_last ? state_after(step) : content_root(result_of(step, number));
    return bytes_of("operator " + std::to_string(number) + " " + root.hex());
  }

  /// The leaves of the bisection that is being played.
  std::vector<byte_vector> leaves(const proceedings& now) const {
    std::vector<byte_vector> out;
    if (now.inner() && now.inner()->kind == level_kind::chunks) {
      const byte_vector all = result_of(now.step(), now.state().bisections()[1].low);
      for (std::size_t from = 0; from < all.size(); from += content_chunk_bytes) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
        out.emplace_back(begin,
                         begin + std::min<std::ptrdiff_t>(content_chunk_bytes, all.end() - begin));
      }
      return out;
    }
    for (std::uint64_t i = 0; i < size_.operators; ++i) out.push_back(leaf(now.step(), i));
    return out;
  }

  claim claim_at(const proceedings& now) const {
    const std::uint64_t index = now.state().expected().where.index;
    if (!now.inner()) {
      return {state_after(index),
              committed_record{index - 1, records_[index - 1],
                               log_.inclusion_proof(index - 1, log_.size()).value()}};
    }
    return {tree_of(leaves(now)).root_at(index).value(), {}};
  }

  opening opening_at(const proceedings& now) const {
    const auto all = leaves(now);
    const bool is_step = !now.inner();
    const std::uint64_t index = is_step ? size_.operators - 1 : now.state().expected().where.index;
    return {all[index], tree_of(all).inclusion_proof(index, index + 1).value()};
  }

  knowledge knows() const {
    return {[this](const proceedings& now) { return claim_at(now); },
            [this](const proceedings& now) { return opening_at(now); },
            [](const proceedings&) { return answer{bytes_of("operands")}; }};
  }

  static merkle_tree tree_of(const std::vector<byte_vector>& leaves) {
    merkle_tree out;
    for (const byte_vector& one : leaves) out.append(leaf_hash(one));
    return out;
  }

 private:
  party self_;
  sizes size_;
  std::optional<fault> wrong_;
  std::vector<byte_vector> records_;
  merkle_tree log_;
  std::string note_;
};

/// A dispute between two runs.
struct dispute_of {
  sizes size;
  party_run trainer, auditor;
  setting known;

  dispute_of(const sizes& how_large, std::optional<fault> trainers, std::optional<fault> auditors)
      : size(how_large),
        trainer(party::trainer, size, trainers),
        auditor(party::auditor, size, auditors),
        known(job_id, size.steps, initial_state, key_of("trainer").verifier(),
              key_of("auditor").verifier(), key_of("referee").verifier()) {}

  const party_run& run_of(party one) const { return one == party::trainer ? trainer : auditor; }

  terms agreed() const { return {job_id, {trainer.note(), auditor.note()}, turn_ms}; }

  referee open(std::uint64_t at = opened_at) const {
    return referee::open(known, agreed(), key_of("referee"), at).value();
  }

  player join(party one, const referee& at) const {
    const std::string& text = at.transcript();
    return player::join(known, one, key_of(to_string(one)), run_of(one).knows(),
                        text.substr(0, text.find('\n')))
        .value();
  }

  /// What the referee decides in its turn, from what was opened and the truth.
  decision decide(const proceedings& now) const {
    const party_run truth(party::trainer, size, {});
    const bisection& inner = now.state().bisections().back();
    const both<opening>& shown = now.openings();
    if (inner.kind == level_kind::steps) {
      return inner_bisection{level_kind::operators, size.operators, 0, 0, {}};
    }
    if (inner.kind == level_kind::operators) {
      both<digest> roots;
      for (const party one : {party::trainer, party::auditor}) {
        const byte_vector& leaf = shown.of(one).leaf;
        const std::string text(leaf.begin(), leaf.end());
        roots.of(one) = digest::from_hex(text.substr(text.size() - 64)).value();
      }
      return inner_bisection{level_kind::chunks, content_chunks(size.bytes), 0, size.bytes, roots};
    }
    if (!inner.asked) return question{bytes_of("operands?"), 100};
    const byte_vector result = truth.result_of(now.step(), now.state().bisections()[1].low);
    both<bool> wrong;
    for (const party one : {party::trainer, party::auditor}) {
      const byte_vector& leaf = shown.of(one).leaf;
      wrong.of(one) = !std::equal(
          leaf.begin(), leaf.end(),
          result.begin() + static_cast<std::ptrdiff_t>(inner.low * content_chunk_bytes));
    }
    return ruling{wrong, reason::value, bytes_of("recomputed")};
  }

  recomputation again() const {
    return [this](const proceedings& before, const decision& made) -> status {
      if (decide(before) == made) return unit{};
      return error{errc::mismatch, "the referee decided otherwise", ""};
    };
  }
};

/// Each line goes to both as it is written.
struct table {
  const dispute_of& about;
  referee judge;
  std::array<player, 2> players;
  std::size_t sent = 0;

  explicit table(const dispute_of& about_what, std::uint64_t at = opened_at)
      : about(about_what),
        judge(about.open(at)),
        players{about.join(party::trainer, judge), about.join(party::auditor, judge)} {}

  void spread() {
    const std::string& all = judge.transcript();
    while (sent < all.size()) {
      const std::size_t end = all.find('\n', sent);
      for (player& one : players)
        one.follow(std::string_view(all).substr(sent, end - sent)).value();
      sent = end + 1;
    }
  }

  const std::optional<verdict>& decided() const { return judge.now().state().decided(); }

  /// Plays one line further; what parties send goes through `deliver`.
  template <class Deliver>
  void step(std::uint64_t at, const Deliver& deliver) {
    spread();
    if (judge.now().state().is_referees_turn()) {
      judge.decide(about.decide(judge.now()), at).value();
      return;
    }
    const party one = judge.now().state().expected().who.value();
    deliver(one, players[static_cast<std::size_t>(one)].next_message().value());
  }

  void play() {
    std::uint64_t at = opened_at;
    while (!decided()) {
      ++at;
      step(at, [&](party from, const std::string& text) {
        judge.receive(from, as_bytes_view(text), at);
      });
    }
    spread();
  }
};

/// Without their newlines.
inline std::vector<std::string> lines_of(const std::string& transcript) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from < transcript.size();) {
    const std::size_t end = transcript.find('\n', from);
    out.push_back(transcript.substr(from, end - from));
    from = end + 1;
  }
  return out;
}

}  // namespace potl::dispute
