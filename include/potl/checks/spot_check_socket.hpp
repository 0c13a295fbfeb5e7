// SPDX-License-Identifier: Apache-2.0
// Sockets of a spot-checked training: every read and write has a deadline.
//
// Claims: a call returns by its deadline, whatever the peer does: nothing, one byte a second, or an
// end in the middle. Assumes nothing of the peer. Cost: one system call for what arrives at once.
// Cannot detect: who the peer is; spot_check.hpp's frames do.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/file.hpp>
#include <potl/core/result.hpp>

namespace potl::checks {

/// A connected stream socket; closed at the end.
class spot_check_socket {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Takes an open descriptor.
  explicit spot_check_socket(int descriptor) noexcept : descriptor_(descriptor) {}

  /// Connects to "unix:/path" or "tcp://host:port", trying again until the deadline. usage: no such
  /// address; io: nobody listens there.
  static result<spot_check_socket> connect(const std::string& address, time_point until,
                                           const std::function<void()>& idle = {});
  /// Two ends of one connection within this process.
  static std::pair<spot_check_socket, spot_check_socket> pair();

  /// Fills `out`. io: the peer closed, or the deadline passed. `passed` gets the open file that
  /// came with it, if one did; without it the system drops what the peer passes.
  status read(std::span<std::uint8_t> out, time_point until, file_handle* passed = nullptr);
  /// Sends all of `bytes`. io: as above.
  status write(bytes_view bytes, time_point until);
  /// Whether the other side is on this machine, or something here that stands for it: such a socket
  /// can pass an open file.
  bool is_local() const noexcept;
  /// Passes an open file with the first byte that is written next; who calls keeps it open until
  /// then.
  void pass(int descriptor) noexcept { passing_ = descriptor; }
  /// The next reads get these bytes first, which came from the peer, and the open file with them.
  void put_back(std::vector<std::uint8_t> bytes, file_handle passed) noexcept {
    ahead_ = std::move(bytes);
    passed_ahead_ = std::move(passed);
  }
  /// Ends both directions; a peer that waits hears of it.
  void shut() noexcept;

  /// Called about five times a second while waiting; what it throws ends the wait.
  std::function<void()> idle;

 private:
  friend class spot_check_door;
  friend class spot_check_listener;
  void configure() noexcept;
  status wait(short events, time_point until);
  std::ptrdiff_t receive(std::span<std::uint8_t> out, file_handle* passed);
  std::ptrdiff_t transmit(bytes_view bytes);
  file_handle descriptor_;
  int passing_ = -1;
  std::vector<std::uint8_t> ahead_;
  file_handle passed_ahead_;
};

/// Waits for connections, of whomever: spot_check_door lets in who has the key.
class spot_check_listener {
 public:
  /// Listens at "unix:/path" (which only its owner may open) or "tcp://host:port"; port 0 takes a
  /// free one. Throws potl::exception: usage, io.
  explicit spot_check_listener(const std::string& address);
  ~spot_check_listener();
  spot_check_listener(const spot_check_listener&) = delete;
  spot_check_listener& operator=(const spot_check_listener&) = delete;

  /// The next connection. io: nobody came before the deadline.
  result<spot_check_socket> accept(spot_check_socket::time_point until,
                                   const std::function<void()>& idle = {});
  /// Where it listens, with the port that was taken.
  const std::string& address() const noexcept { return address_; }

 private:
  friend class spot_check_door;
  int descriptor_ = -1;
  std::string address_, path_;
};

}  // namespace potl::checks
