// SPDX-License-Identifier: Apache-2.0
// What the trusted side and a worker of a spot-checked training say to each other.
//
// Claims: a frame that `spot_check_chain::open` gives was made by who has the session key, for this
// job and session, as the answer to the frame before it: HMAC-SHA-256 over the frame and the codes
// of the one before. Frames of other sessions, repeated, reordered or reflected ones are refused,
// and so is a size that the receiver did not ask for, before memory is taken for it. Tensors follow
// with a code of their own, whose key is of their frame alone.
// Assumes: the key is known to the two sides alone. The frames are not secret.
// Cost: 184 bytes, and one HMAC over them and the body; Poly1305 over tensors.
// Cannot detect: a peer that is silent or slow; whoever reads from the network sets the time. The
// codes bind nobody who has the key to what he sent.
// Source: Asvadishirehjini, Kantarcioglu and Malin, GINN (CODASPY 2022); docs/format/spot_check.md
// has the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/detail/one_time_code.hpp>
#include <potl/crypto/hasher.hpp>

namespace potl::checks {

/// Who sends a frame.
enum class spot_check_side : std::uint8_t { trusted = 0, worker = 1 };

/// The trusted side asks, the worker answers with the kind after it.
enum class spot_check_kind : std::uint8_t {
  hello = 1,  ///< opens a session, at a step
  ready = 2,
  step = 3,    ///< asks for the gradients of a step
  report = 4,  ///< which follow as the payload
  stop = 5,    ///< ends the session
  stopped = 6,
};

const char* to_string(spot_check_kind kind) noexcept;

/// One message. The payload (tensors) follows a frame as it is, and its code after it.
struct spot_check_frame {
  spot_check_kind kind = spot_check_kind::hello;
  std::uint64_t step = 0;
  std::string body;  ///< at most spot_check_body_limit bytes
  std::uint64_t payload_bytes = 0;

  friend bool operator==(const spot_check_frame&, const spot_check_frame&) = default;
};

inline constexpr std::size_t spot_check_header_bytes = 184;
inline constexpr std::size_t spot_check_body_limit = 64 * 1024;

/// The first bytes of a frame, read but not believed.
struct spot_check_header {
  spot_check_frame frame;  ///< without its body
  spot_check_side side = spot_check_side::trusted;
  std::uint32_t body_bytes = 0;
  std::uint64_t sequence = 0;
  digest job, session, previous;
  one_time_code::value previous_payload{};
  digest code;
};

/// Reads a header: malformed unless every byte is as the format says, limit for a body that is too
/// long.
result<spot_check_header> parse_spot_check_header(bytes_view bytes);

/// What the receiver waits for.
struct spot_check_expected {
  spot_check_kind kind = spot_check_kind::hello;
  std::uint64_t step = 0;
  std::uint64_t payload_bytes = 0;  ///< as its own build has it
};

/// One side of a session. Both sides take turns: the trusted side sends the first frame, and each
/// frame answers the one before.
class spot_check_chain {
 public:
  /// `session`: 32 bytes that the trusted side draws for each session.
  spot_check_chain(bytes_view key, const digest& job, const digest& session, spot_check_side side);

  /// The bytes of the next frame of this side. Throws potl::exception (usage) when it is the
  /// other's turn, or the body is too long.
  std::vector<std::uint8_t> seal(const spot_check_frame& frame);

  /// The next frame of the other side. mismatch when the code is not that of the key, when it
  /// belongs to another job, session or place in the order, and when it is not what was expected.
  /// The chain goes on only after a frame that was given.
  result<spot_check_frame> open(const spot_check_header& header, bytes_view header_bytes,
                                bytes_view body, const spot_check_expected& expected);

  /// Computes the code of the payload of the frame that was sealed or opened last. Its key follows
  /// from the session's key and the code of that frame, which no other frame has.
  one_time_code payload_code();
  /// The code of that payload, once it was sent or found right: the next frame names it.
  void payload_passed(const one_time_code::value& code) noexcept { previous_payload_ = code; }

  /// How many frames have passed, in both directions.
  std::uint64_t sequence() const noexcept { return sequence_; }

 private:
  bool is_my_turn() const noexcept {
    return (sequence_ % 2 == 0) == (side_ == spot_check_side::trusted);
  }
  digest code_of(bytes_view header, bytes_view body);

  hmac_sha256_key key_;
  digest job_, session_, previous_;
  one_time_code::value previous_payload_{};  ///< zeros after a frame without one
  std::uint64_t sequence_ = 0;
  spot_check_side side_;
};

}  // namespace potl::checks
