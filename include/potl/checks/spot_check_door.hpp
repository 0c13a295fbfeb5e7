// SPDX-License-Identifier: Apache-2.0
// Who of those that connect to a worker has the key.
//
// Claims: whoever has the key comes in, though others are connected and whatever they do: all first
// frames are waited for together. Who has not sent a whole one, sealed with the key, within
// the seconds of the handshake is dropped, also where a byte comes now and then, and so is who
// sends anything else, or a first frame that came before. Where too many wait, the one that waited
// longest gives way, unless its first frame is there: who comes among a flood comes again.
// Assumes: whoever has the key sends its first frame as soon as it is connected.
// Cost: no threads; a connection and at most 65 KiB for each that waits, 32 bytes for each of the
// last sessions.
// Cannot detect: a first frame that somebody on the way held back and sends in its owner's place,
// or one older than the last sessions; who sent it cannot seal the next.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <potl/checks/spot_check_socket.hpp>
#include <potl/core/digest.hpp>
#include <potl/core/file.hpp>
#include <potl/core/result.hpp>

namespace potl::checks {

/// Within which the first frame of a connection has to be there, but for the job that follows it.
inline constexpr double spot_check_handshake_seconds = 10;

/// Listens, and lets in who has the key. One thread at a time may use it.
class spot_check_door {
 public:
  static constexpr std::size_t most_waiting = 64;     ///< connections without a whole first frame
  static constexpr std::size_t most_sessions = 4096;  ///< whose first frames are not taken again

  /// Listens as spot_check_listener does, and throws what it throws.
  spot_check_door(const std::string& address, bytes_view key,
                  double handshake_seconds = spot_check_handshake_seconds);

  /// A connection whose first frame was sealed with the key, for `serve`, which reads that frame
  /// again. io: nobody came with one before the deadline. `idle` is called while it waits, and is
  /// the connection's.
  result<spot_check_socket> next(spot_check_socket::time_point until,
                                 const std::function<void()>& idle = {});
  /// Where it listens, with the port that was taken.
  const std::string& address() const noexcept { return listener_.address(); }

 private:
  struct caller {
    spot_check_socket socket;
    spot_check_socket::time_point until;
    std::vector<std::uint8_t> came;
    file_handle passed;
  };
  enum class state { waits, has_key, is_dropped };

  std::optional<spot_check_socket> heard();
  void wait(spot_check_socket::time_point until);
  void accept_all();
  state hear(caller& who);
  bool is_first_of_session(const caller& who);

  spot_check_listener listener_;
  std::vector<std::uint8_t> key_;
  double seconds_;
  std::deque<caller> callers_;  ///< who waits longest comes first
  std::deque<digest> sessions_;
};

}  // namespace potl::checks
