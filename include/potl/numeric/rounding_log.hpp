// SPDX-License-Identifier: Apache-2.0
// The rounding log of one training step: which elements were near a tie, and how each was rounded.
//
// Positions count the elements of all rounded results of the step, operator call after operator
// call, in the order of the calls. An entry's direction is that of the number line: up is the upper
// neighbour of the tie.
//
// Claims: one valid byte string per log (gaps in a Golomb-Rice code whose parameter follows from
// the two counts, one direction bit, zero padding); a decoder that is given any bytes returns an
// error or the log, in time and memory that the bytes' length bounds. Within 1 % of the entropy
// for independent positions; at most about log2(values / entries) + 3.6 bits per entry.
// Cost: a few nanoseconds per entry.
// Cannot see: whether an entry is justified (numeric/detail/rounding_referee.hpp).
// Source: numerics.md, "The rounding log, soundly"; Golomb (1966), Rice (1979), and Kiely (2004)
// for the parameter. docs/format/rounding_log.md has the bytes.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::numeric {

inline constexpr std::uint64_t max_logged_values = std::uint64_t{1} << 48;
inline constexpr std::uint64_t default_max_log_entries = std::uint64_t{1} << 24;

/// How one value near a tie was rounded.
struct log_entry {
  std::uint64_t position = 0;
  bool up = false;

  friend bool operator==(const log_entry&, const log_entry&) = default;
};

struct rounding_log {
  int bits = 32;                   ///< of the rounding, 23 to 32
  std::uint64_t values = 0;        ///< elements rounded in the step
  std::vector<log_entry> entries;  ///< ascending positions below `values`

  friend bool operator==(const rounding_log&, const rounding_log&) = default;
};

/// Throws potl::exception (usage) when a field is out of range or positions do not ascend.
std::vector<std::uint8_t> encode_rounding_log(const rounding_log& log);

/// malformed: not the encoding of any log; limit: more entries than `max_entries`;
/// unsupported: another version.
result<rounding_log> decode_rounding_log(bytes_view bytes,
                                         std::uint64_t max_entries = default_max_log_entries);

/// What the step's leaf binds: SHA-256("potl.rounding_log.v1" 0x00 || bytes).
digest rounding_log_digest(bytes_view encoded);

/// Bits of a gap that are written as they are; the rest of it is in unary.
int rice_parameter(std::uint64_t values, std::uint64_t entries) noexcept;

}  // namespace potl::numeric
