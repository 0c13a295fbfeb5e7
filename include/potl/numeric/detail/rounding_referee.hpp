// SPDX-License-Identifier: Apache-2.0
// Who is right about one logged (or unlogged) element, and proofs that a log is fraudulent.
//
// With s the exact dot product, d(s) its distance to the nearest tie, W the window and E = W / 2
// (numeric/detail/rounding.hpp), a log is honest at an element iff
//   * not logged: the result is Rnd_b(s), and d(s) > E, unless the sum is exact or W reaches a
//     quarter of a step, where the exact value is rounded and nothing is logged;
//   * logged: the sum is not exact, W is below a quarter of a step, d(s) <= W + E, and the result
//     lies in Rnd_b([s - E, s + E]).
// Claims: everything that an honest trainer does under any order of summation passes, whatever the
// operands are; steps of different binades are taken in the trainer's favour where they meet. A
// proof is judged from the proof, the facts that the third party has itself, and one exact dot
// product. Nothing that a proof says is believed.
// Cost: 3 ns per term and element. Proofs have at most max_fraud_proof_bytes.
// Cannot: tell what lies inside the window apart from noise.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/numeric/detail/exact_sum.hpp>
#include <potl/numeric/rounding_log.hpp>

namespace potl::numeric {

enum class log_fault : std::uint8_t {
  none = 0,
  not_committed = 1,    ///< the step's leaf binds no log: whatever comes now is late
  other_log = 2,        ///< not the log whose digest the step's leaf binds
  malformed = 3,        ///< no log's one encoding
  wrong_size = 4,       ///< other bits or another number of values than the step rounds
  outside_window = 5,   ///< an entry where no honest sum is near a tie
  wrong_direction = 6,  ///< an entry whose direction no honest sum is rounded to
  missing_entry = 7,    ///< no entry although every honest sum is near a tie
};

const char* to_string(log_fault fault) noexcept;

struct element_ruling {
  log_fault fault = log_fault::none;
  float value = 0;       ///< the result that both sides go on with; Rnd_b(s) when there is a fault
  bool flipped = false;  ///< value is not Rnd_b(s)
  double exact = 0;      ///< s, truncated to 53 bits
  double distance = 0;   ///< d(s), rounded
  double window = 0;     ///< W, 0 when the sum is exact
  double step = 0;       ///< distance of the tie's two neighbours
};

/// The rule above for one element; `logged` is the entry's direction (up) if there is one.
element_ruling rule_on(const dot_operands& operands, int bits, std::optional<bool> logged);

/// The element whose operands a proof shows.
struct fraud_element {
  std::uint64_t position = 0;  ///< in the step's log
  std::vector<float> a, b;     ///< the two rows of operands, in the order of the terms

  dot_operands operands() const noexcept {
    return {static_cast<std::int64_t>(a.size()), a.data(), 1, b.data(), 1};
  }
  friend bool operator==(const fraud_element&, const fraud_element&) = default;
};

struct fraud_proof {
  log_fault fault = log_fault::none;
  std::uint64_t step = 0;
  std::vector<std::uint8_t> log;        ///< the encoded log of the step; empty for not_committed
  std::vector<fraud_element> elements;  ///< one, for the faults of elements

  friend bool operator==(const fraud_proof&, const fraud_proof&) = default;
};

inline constexpr std::size_t max_fraud_proof_bytes = std::size_t{64} * 1024 * 1024;

/// Throws potl::exception (limit) when it would be longer than max_fraud_proof_bytes.
std::vector<std::uint8_t> encode(const fraud_proof& proof);
result<fraud_proof> decode_fraud_proof(bytes_view bytes);

/// What the third party knows from the job, the trace that it derives itself, and the commitment.
struct referee_facts {
  std::optional<digest> committed;  ///< digest of the log in the step's leaf
  int bits = 32;
  std::uint64_t values = 0;  ///< elements that the step rounds
  /// ok: these are the operands at this position. See open_operand(); or compare with own tensors.
  std::function<status(const fraud_element&)> bind;
};

/// ok: the proof shows fraud. mismatch: it does not (or rows are not bound); malformed: it cannot
/// be judged. Never ok without facts.bind for the faults of elements.
status referee(const fraud_proof& proof, const referee_facts& facts);

/// Chunks of a committed tensor (crypto/detail/tensor_digest.hpp) that hold some of its elements.
struct opened_chunk {
  std::uint64_t index = 0;
  std::vector<std::uint8_t> bytes;
  merkle_proof proof;
};

/// The float32 elements at `offsets` (in elements; -1 reads a zero, as padding does) of the tensor
/// of `bytes` bytes under `root`, from chunks that are shown to belong to it.
result<std::vector<float>> open_operand(const digest& root, std::uint64_t bytes,
                                        const std::vector<opened_chunk>& chunks,
                                        const std::vector<std::int64_t>& offsets);

}  // namespace potl::numeric
