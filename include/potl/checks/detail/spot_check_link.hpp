// SPDX-License-Identifier: Apache-2.0
// Frames over a socket: one side of one session.
//
// Claims: what `receive` gives passed spot_check_chain::open, arrived within the time, and its
// payload has the code that only the session's key makes for this frame. Where both sides share
// memory it has none, and is what lay there when it was copied. Memory is the caller's: nothing is
// taken for a size that the peer chose, but for bodies of at most 64 KiB. Cost: one Poly1305 over a
// payload, part by part between two system calls; of shared memory a copy.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/detail/spot_check_frame.hpp>
#include <potl/checks/detail/spot_check_memory.hpp>
#include <potl/checks/spot_check_socket.hpp>

namespace potl::checks {

/// The key of one session: HMAC-SHA-256 with the shared key over a label, job and session. Who
/// learns it seals frames of this session only.
digest spot_check_session_key(bytes_view key, const digest& job, const digest& session);

/// A socket and the chain of its frames.
class spot_check_link {
 public:
  /// `seconds`: for one frame, with all that the peer does before it sends it.
  spot_check_link(spot_check_socket socket, spot_check_chain chain, double seconds)
      : socket_(std::move(socket)), chain_(std::move(chain)), seconds_(seconds) {}

  /// What a first frame of a trusted side opens.
  struct greeting {
    spot_check_frame hello;
    spot_check_chain chain;
  };
  /// mismatch: it was not sealed with the key, or is no first frame.
  static result<greeting> greeted(bytes_view key, const spot_check_header& header, bytes_view head,
                                  bytes_view body);
  /// The worker's side, as the first frame of a trusted side opens it. `payload` gets that frame's.
  /// The frame has to be there within spot_check_handshake_seconds, or `seconds` if they are fewer;
  /// only who has sealed it has `seconds` for the payload.
  static result<spot_check_link> accepted(spot_check_socket socket, bytes_view key, double seconds,
                                          std::uint64_t most_bytes, spot_check_frame& hello,
                                          std::vector<std::uint8_t>& payload, digest& job);

  /// Whether memory can be passed with a frame.
  bool is_local() const noexcept { return socket_.is_local(); }
  /// Passes memory with the next frame.
  void pass(const spot_check_memory& memory) noexcept { socket_.pass(memory.descriptor()); }
  /// What came with the first frame, or nothing. Gives it once; a trusted side takes none.
  file_handle passed() noexcept { return std::move(passed_); }
  /// From now on weights of steps and gradients of reports lie in memory that the other side maps,
  /// too, and are not sent.
  void share(spot_check_memory memory) noexcept { memory_ = std::move(memory); }

  /// Sends a frame with this payload, which may lie in shared memory already.
  status send(spot_check_kind kind, std::uint64_t step, std::string body = {},
              std::span<const bytes_view> payload = {});

  /// What a frame has to be, once its kind is known.
  using expectation = std::function<spot_check_expected(const spot_check_header&)>;
  /// Sees a payload part by part as it comes, while the part is in the cache; `at` bytes of the
  /// payload were before it. Nothing is authentic until the whole payload has come.
  using part_handler = std::function<void(std::size_t at, bytes_view part)>;
  /// The next frame. Its payload is read into `payload`, which has the expected size and may be the
  /// shared memory itself; then the other side may change it at any time. Returns the frame; its
  /// payload_bytes say whether there is one.
  result<spot_check_frame> receive(const expectation& expected, std::span<std::uint8_t> payload,
                                   const part_handler& seen = {});
  result<spot_check_frame> receive(const spot_check_expected& expected,
                                   std::span<std::uint8_t> payload) {
    return receive([&](const spot_check_header&) { return expected; }, payload);
  }

  /// Seconds for each frame from now on.
  void limit(double seconds) noexcept { seconds_ = seconds; }

 private:
  std::span<std::uint8_t> shared(spot_check_kind kind, std::uint64_t bytes) const;

  spot_check_socket socket_;
  file_handle passed_;
  std::optional<spot_check_memory> memory_;
  spot_check_chain chain_;
  double seconds_;
};

}  // namespace potl::checks
