// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/spot_check_door.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <potl/checks/detail/spot_check_link.hpp>

namespace potl::checks {
namespace {

using clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds between_looks{200};

}  // namespace

spot_check_door::spot_check_door(const std::string& address, bytes_view key,
                                 double handshake_seconds)
    : listener_(address), key_(key.begin(), key.end()), seconds_(handshake_seconds) {}

result<spot_check_socket> spot_check_door::next(spot_check_socket::time_point until,
                                                const std::function<void()>& idle) {
  while (true) {
    // What has come counts, though the time is over: a session may have been served since. Heard
    // before others are let in, so that nobody gives way who has sent all.
    auto found = heard();
    if (!found) {
      accept_all();
      found = heard();
    }
    if (found) {
      found->idle = idle;
      return std::move(*found);
    }
    if (clock::now() >= until) return error{errc::io, "nobody came to " + address(), ""};
    wait(until);
    if (idle) idle();
  }
}

/// Who has the key, if anybody. Who has not shown it in time is dropped.
std::optional<spot_check_socket> spot_check_door::heard() {
  for (auto who = callers_.begin(); who != callers_.end();) {
    const state found = hear(*who);
    if (found == state::waits && clock::now() < who->until) {
      ++who;
      continue;
    }
    caller done = std::move(*who);
    who = callers_.erase(who);
    if (found != state::has_key) continue;
    spot_check_socket out = std::move(done.socket);
    out.put_back(std::move(done.came), std::move(done.passed));
    return out;
  }
  return std::nullopt;
}

/// Until somebody comes or sends something, or there is something else to look at.
void spot_check_door::wait(spot_check_socket::time_point until) {
  std::vector<pollfd> all{{listener_.descriptor_, POLLIN, 0}};
  for (const caller& who : callers_) {
    all.push_back({who.socket.descriptor_.get(), POLLIN, 0});
    until = std::min(until, who.until);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
  const auto time = std::clamp(left, std::chrono::milliseconds(0), between_looks);
  static_cast<void>(::poll(all.data(), all.size(), static_cast<int>(time.count())));
}

/// As many as may wait, so that those who come one after the other do not keep others unheard.
void spot_check_door::accept_all() {
  for (std::size_t i = 0; i < most_waiting; ++i) {
    const int taken =
        ::accept4(listener_.descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (taken < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Out of descriptors or memory: room is made, and without any the next look is later.
      if (callers_.empty()) {
        static_cast<void>(::poll(nullptr, 0, static_cast<int>(between_looks.count())));
      } else {
        callers_.pop_front();
      }
      return;
    }
    spot_check_socket socket(taken);
    socket.configure();
    const auto time =
        std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds_));
    caller next{std::move(socket), clock::now() + time, {}, {}};
    if (callers_.size() >= most_waiting) callers_.pop_front();
    callers_.push_back(std::move(next));
  }
}

/// Reads what has come, at most one frame.
spot_check_door::state spot_check_door::hear(caller& who) {
  while (true) {
    std::size_t wanted = spot_check_header_bytes;
    if (who.came.size() >= wanted) {
      const auto header = parse_spot_check_header(bytes_view(who.came).first(wanted));
      if (!header) return state::is_dropped;
      wanted += header->body_bytes;
      if (who.came.size() == wanted) {
        return is_first_of_session(who) ? state::has_key : state::is_dropped;
      }
    }
    const std::size_t had = who.came.size();
    who.came.resize(wanted);
    const auto got = who.socket.receive(std::span(who.came).subspan(had), &who.passed);
    const int code = errno;
    who.came.resize(had + static_cast<std::size_t>(std::max<std::ptrdiff_t>(got, 0)));
    if (got > 0 || (got < 0 && code == EINTR)) continue;
    const bool is_later = got < 0 && (code == EAGAIN || code == EWOULDBLOCK);
    return is_later ? state::waits : state::is_dropped;
  }
}

bool spot_check_door::is_first_of_session(const caller& who) {
  const auto head = bytes_view(who.came).first(spot_check_header_bytes);
  const auto header = parse_spot_check_header(head);
  if (!header) return false;
  if (!spot_check_link::greeted(key_, *header, head, bytes_view(who.came).subspan(head.size()))) {
    return false;
  }
  if (std::find(sessions_.begin(), sessions_.end(), header->session) != sessions_.end()) {
    return false;
  }
  if (sessions_.size() >= most_sessions) sessions_.pop_front();
  sessions_.push_back(header->session);
  return true;
}

}  // namespace potl::checks
