// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/rounding_referee.hpp>

#include <algorithm>
#include <cstring>
#include <string>

#include <potl/crypto/detail/tensor_digest.hpp>

namespace potl::numeric {
namespace {

error not_shown(const std::string& why) {
  return {errc::mismatch, "the proof does not show the fraud: " + why, ""};
}

std::optional<bool> direction_at(const rounding_log& log, std::uint64_t position) {
  const auto found = std::lower_bound(
      log.entries.begin(), log.entries.end(), position,
      [](const log_entry& entry, std::uint64_t where) { return entry.position < where; });
  if (found == log.entries.end() || found->position != position) return std::nullopt;
  return found->up;
}

status bound(const fraud_element& element, const referee_facts& facts) {
  if (!facts.bind) return not_shown("nothing binds the operands");
  if (element.a.size() != element.b.size()) return not_shown("rows of different length");
  return facts.bind(element);
}

status judge_element(const fraud_proof& proof, const rounding_log& log,
                     const referee_facts& facts) {
  if (proof.elements.size() != 1) return not_shown("it takes one element");
  const fraud_element& element = proof.elements.front();
  if (element.position >= log.values) return not_shown("no such element");
  const status binding = bound(element, facts);
  if (!binding) return binding;
  const std::optional<bool> logged = direction_at(log, element.position);
  const element_ruling ruling = rule_on(element.operands(), facts.bits, logged);
  if (ruling.fault != proof.fault) return not_shown("the element is not at fault, or otherwise");
  return unit{};
}

}  // namespace

status referee(const fraud_proof& proof, const referee_facts& facts) {
  if (proof.fault == log_fault::not_committed) {
    if (facts.committed) return not_shown("the step's leaf binds a log");
    return unit{};
  }
  if (!facts.committed) return not_shown("the step's leaf binds no log");
  if (rounding_log_digest(proof.log) != *facts.committed) {
    return not_shown("the log is not the one that the step's leaf binds");
  }
  const result<rounding_log> log = decode_rounding_log(proof.log);
  if (proof.fault == log_fault::malformed) {
    if (log) return not_shown("the log is well-formed");
    return unit{};
  }
  if (!log) return not_shown("the log is malformed");
  const bool fits = log->bits == facts.bits && log->values == facts.values;
  if (proof.fault == log_fault::wrong_size) {
    if (fits) return not_shown("the log has the step's size");
    return unit{};
  }
  if (!fits) return not_shown("the log has another size than the step");
  switch (proof.fault) {
    case log_fault::outside_window:
    case log_fault::wrong_direction:
    case log_fault::missing_entry: return judge_element(proof, *log, facts);
    default: return not_shown("this fault has no proof");
  }
}

result<std::vector<float>> open_operand(const digest& root, std::uint64_t bytes,
                                        const std::vector<opened_chunk>& chunks,
                                        const std::vector<std::int64_t>& offsets) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (i > 0 && chunks[i].index <= chunks[i - 1].index) {
      return error{errc::malformed, "opened chunks do not ascend", ""};
    }
    const status shown =
        verify_chunk(root, bytes, chunks[i].index, chunks[i].bytes, chunks[i].proof);
    if (!shown) return shown.why();
  }
  std::vector<float> out;
  out.reserve(offsets.size());
  for (const std::int64_t offset : offsets) {
    if (offset == -1) {
      out.push_back(0);
      continue;
    }
    if (offset < 0 || static_cast<std::uint64_t>(offset) >= bytes / sizeof(float)) {
      return error{errc::malformed, "an operand beyond its tensor", ""};
    }
    const std::uint64_t at = static_cast<std::uint64_t>(offset) * sizeof(float);
    const std::uint64_t index = at / content_chunk_bytes;
    const auto chunk =
        std::lower_bound(chunks.begin(), chunks.end(), index,
                         [](const opened_chunk& c, std::uint64_t i) { return c.index < i; });
    if (chunk == chunks.end() || chunk->index != index) {
      return error{errc::missing, "chunk " + std::to_string(index) + " is not opened", ""};
    }
    float value = 0;
    std::memcpy(&value, chunk->bytes.data() + at % content_chunk_bytes, sizeof value);
    out.push_back(value);
  }
  return out;
}

}  // namespace potl::numeric
