// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/spot_check_socket.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

namespace potl::checks {
namespace {

using clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds slice{200};
constexpr auto remedy = "write unix:/path/of/a.sock or tcp://host:port";

error failed(const std::string& what) { return {errc::io, what + ": " + std::strerror(errno), ""}; }

error closed() { return {errc::io, "the other side closed the connection", ""}; }

error broken() {
  return errno == ECONNRESET || errno == EPIPE ? closed() : failed("no connection");
}

error slow() { return {errc::io, "the other side was silent or too slow", ""}; }

/// Where to bind or connect to.
struct place {
  sockaddr_storage address{};
  socklen_t size = 0;
  int family = AF_UNIX;
  std::string path;  ///< of a Unix socket
};

result<place> unix_place(const std::string& path) {
  place out;
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return error{errc::usage,
                 "the path of a Unix socket has 1 to " +
                     std::to_string(sizeof address.sun_path - 1) + " bytes",
                 "choose a shorter path"};
  }
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  std::memcpy(&out.address, &address, sizeof address);
  out.size = sizeof address;
  out.path = path;
  return out;
}

result<place> tcp_place(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() || colon == 0) {
    return error{errc::usage, "\"" + text + "\" is not a host with a port", remedy};
  }
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found);
  if (code != 0) {
    return error{errc::usage, "\"" + text + "\": " + gai_strerror(code), remedy};
  }
  place out;
  out.family = found->ai_family;
  out.size = found->ai_addrlen;
  std::memcpy(&out.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return out;
}

result<place> place_of(const std::string& address) {
  if (address.starts_with("unix:")) return unix_place(address.substr(5));
  if (address.starts_with("tcp://")) return tcp_place(address.substr(6));
  return error{errc::usage, "\"" + address + "\" is not an address of a worker", remedy};
}

const sockaddr* pointer(const place& to) { return reinterpret_cast<const sockaddr*>(&to.address); }

int open_socket(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/// Waits for `events`; false: the deadline passed.
bool ready(int descriptor, short events, clock::time_point until,
           const std::function<void()>& idle) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
    pollfd one{descriptor, events, 0};
    const auto time = std::clamp(left, std::chrono::milliseconds(0), slice);
    const int found = ::poll(&one, 1, static_cast<int>(time.count()));
    if (found > 0) return true;
    if (idle) idle();
    if (found == 0 && left <= std::chrono::milliseconds(0)) return false;
    if (found < 0 && errno != EINTR) return true;  // what comes next says what is wrong
  }
}

}  // namespace

result<spot_check_socket> spot_check_socket::connect(const std::string& address, time_point until,
                                                     const std::function<void()>& idle) {
  const auto to = place_of(address);
  if (!to) return to.why();
  while (true) {
    spot_check_socket out(open_socket(to->family));
    if (out.descriptor_.get() < 0) return failed("no socket");
    out.idle = idle;
    int code = ::connect(out.descriptor_.get(), pointer(*to), to->size) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
      socklen_t size = sizeof code;
      if (!ready(out.descriptor_.get(), POLLOUT, until, idle)) {
        code = ETIMEDOUT;
      } else if (::getsockopt(out.descriptor_.get(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) {
        code = errno;
      }
    }
    if (code == 0) {
      out.configure();
      return out;
    }
    if (clock::now() >= until) {
      return error{errc::io, "no worker at " + address + ": " + std::strerror(code),
                   "start the worker first, with potl spot-check worker"};
    }
    if (idle) idle();
    std::this_thread::sleep_for(std::min<clock::duration>(slice, until - clock::now()));
  }
}

std::pair<spot_check_socket, spot_check_socket> spot_check_socket::pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw exception(failed("no pair of sockets"));
  }
  return {spot_check_socket(ends[0]), spot_check_socket(ends[1])};
}

void spot_check_socket::configure() noexcept {
  const int on = 1;  // a Unix socket refuses, which changes nothing
  static_cast<void>(::setsockopt(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

status spot_check_socket::wait(short events, time_point until) {
  if (ready(descriptor_.get(), events, until, idle)) return unit{};
  return slow();
}

/// Bytes with room for one descriptor: the kernel closes others.
struct descriptor_message {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))]{};
  iovec where;
  msghdr header{};

  descriptor_message(std::uint8_t* data, std::size_t size) : where{data, size} {
    header.msg_iov = &where;
    header.msg_iovlen = 1;
    header.msg_control = room;
    header.msg_controllen = sizeof room;
  }
};

std::ptrdiff_t spot_check_socket::receive(std::span<std::uint8_t> out, file_handle* passed) {
  if (passed == nullptr) return ::recv(descriptor_.get(), out.data(), out.size(), 0);
  descriptor_message message(out.data(), out.size());
  message.header.msg_controllen = CMSG_LEN(sizeof(int));  // its padding would hold another one
  const auto got = ::recvmsg(descriptor_.get(), &message.header, MSG_CMSG_CLOEXEC);
  const cmsghdr* const found = got > 0 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (found != nullptr && found->cmsg_level == SOL_SOCKET && found->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(found), sizeof descriptor);
    *passed = file_handle(descriptor);
  }
  return got;
}

std::ptrdiff_t spot_check_socket::transmit(bytes_view bytes) {
  if (passing_ < 0) return ::send(descriptor_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  descriptor_message message(const_cast<std::uint8_t*>(bytes.data()), bytes.size());
  cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof passing_);
  std::memcpy(CMSG_DATA(header), &passing_, sizeof passing_);
  const auto sent = ::sendmsg(descriptor_.get(), &message.header, MSG_NOSIGNAL);
  if (sent > 0) passing_ = -1;
  return sent;
}

bool spot_check_socket::is_local() const noexcept {
  int family = 0;
  socklen_t size = sizeof family;
  return ::getsockopt(descriptor_.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 &&
         family == AF_UNIX;
}

status spot_check_socket::read(std::span<std::uint8_t> out, time_point until, file_handle* passed) {
  if (!ahead_.empty()) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(out.size(), ahead_.size()));
    std::copy_n(ahead_.begin(), count, out.begin());
    ahead_.erase(ahead_.begin(), ahead_.begin() + count);
    out = out.subspan(static_cast<std::size_t>(count));
    file_handle file = std::move(passed_ahead_);
    if (passed != nullptr && file) *passed = std::move(file);
  }
  while (!out.empty()) {
    const auto got = receive(out, passed);
    if (got == 0) return closed();
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
      // Bytes that drip in must not keep the clock from being looked at.
      if (!out.empty() && clock::now() >= until) return slow();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (status arrived = wait(POLLIN, until); !arrived) return arrived;
    } else if (errno != EINTR) {
      return broken();
    }
  }
  return unit{};
}

status spot_check_socket::write(bytes_view bytes, time_point until) {
  while (!bytes.empty()) {
    const auto sent = transmit(bytes);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      if (!bytes.empty() && clock::now() >= until) return slow();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (status room = wait(POLLOUT, until); !room) return room;
    } else if (errno != EINTR) {
      return broken();
    }
  }
  return unit{};
}

void spot_check_socket::shut() noexcept {
  static_cast<void>(::shutdown(descriptor_.get(), SHUT_RDWR));
}

spot_check_listener::spot_check_listener(const std::string& address) : address_(address) {
  const place at = place_of(address).value();
  const auto refuse = [&](const char* what) {
    const error why = failed(std::string(what) + " " + address);
    if (descriptor_ >= 0) ::close(descriptor_);
    throw exception(why);
  };
  descriptor_ = open_socket(at.family);
  if (descriptor_ < 0) refuse("no socket for");
  if (at.family == AF_UNIX) {
    struct stat found {};
    // What a killed worker left behind; anything else stays.
    if (::lstat(at.path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
      ::unlink(at.path.c_str());
    }
  } else {
    const int on = 1;
    static_cast<void>(::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  }
  if (::bind(descriptor_, pointer(at), at.size) != 0) refuse("cannot listen at");
  path_ = at.path;
  if (!path_.empty() && ::chmod(path_.c_str(), 0600) != 0) refuse("cannot protect");
  // Who does not speak must not keep others from connecting.
  if (::listen(descriptor_, 64) != 0) refuse("cannot listen at");
  if (at.family == AF_UNIX) return;
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    refuse("no port at");
  }
  const std::uint16_t port = bound.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                 : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  address_ = address.substr(0, address.rfind(':') + 1) + std::to_string(ntohs(port));
}

spot_check_listener::~spot_check_listener() {
  ::close(descriptor_);
  if (!path_.empty()) ::unlink(path_.c_str());
}

result<spot_check_socket> spot_check_listener::accept(spot_check_socket::time_point until,
                                                      const std::function<void()>& idle) {
  while (ready(descriptor_, POLLIN, until, idle)) {
    const int taken = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (taken >= 0) {
      spot_check_socket out(taken);
      out.configure();
      out.idle = idle;
      return out;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return failed("cannot accept at " + address_);
    }
  }
  return error{errc::io, "nobody came to " + address_, ""};
}

}  // namespace potl::checks
