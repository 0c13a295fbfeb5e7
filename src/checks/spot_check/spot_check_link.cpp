// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/spot_check_link.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>

#include <potl/checks/spot_check_door.hpp>

namespace potl::checks {
namespace {

spot_check_socket::time_point in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

/// The first bytes of a frame, and its body.
struct received {
  std::array<std::uint8_t, spot_check_header_bytes> bytes{};
  spot_check_header header;
  std::vector<std::uint8_t> body;
};

status read_frame(spot_check_socket& from, spot_check_socket::time_point until, received& out,
                  file_handle* passed = nullptr) {
  if (status read = from.read(out.bytes, until, passed); !read) return read;
  auto header = parse_spot_check_header(out.bytes);
  if (!header) return header.why();
  out.header = std::move(header).value();
  out.body.resize(out.header.body_bytes);
  return from.read(out.body, until);
}

// Parts of a payload whose code is computed while they are in the cache. Several of them have room
// in a socket, so that the sides need not wait for each other after each.
constexpr std::size_t part_bytes = 64 * 1024;

status read_payload(spot_check_socket& from, spot_check_socket::time_point until,
                    spot_check_chain& chain, std::span<std::uint8_t> out,
                    const spot_check_link::part_handler& seen = {}) {
  if (out.empty()) return unit{};
  one_time_code code = chain.payload_code();
  for (std::size_t at = 0; at < out.size(); at += part_bytes) {
    const auto next = out.subspan(at, std::min(part_bytes, out.size() - at));
    if (status read = from.read(next, until); !read) return read;
    code.update(next);
    if (seen) seen(at, next);
  }
  one_time_code::value given{};
  if (status read = from.read(given, until); !read) return read;
  const one_time_code::value own = code.finish();
  if (!equal_constant_time(own, given)) {
    return error{errc::mismatch, "the tensors were not sealed for their frame", ""};
  }
  chain.payload_passed(own);
  return unit{};
}

status write_payload(spot_check_socket& to, spot_check_socket::time_point until,
                     spot_check_chain& chain, std::span<const bytes_view> payload) {
  one_time_code code = chain.payload_code();
  for (const bytes_view all : payload) {
    for (std::size_t at = 0; at < all.size(); at += part_bytes) {
      const bytes_view next = all.subspan(at, std::min(part_bytes, all.size() - at));
      code.update(next);
      if (status sent = to.write(next, until); !sent) return sent;
    }
  }
  const one_time_code::value own = code.finish();
  chain.payload_passed(own);
  return to.write(own, until);
}

/// Copies to or from memory that the other side sees; what lies there already is not moved.
void move_bytes(std::span<std::uint8_t> to, bytes_view from) {
  if (to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

digest spot_check_session_key(bytes_view key, const digest& job, const digest& session) {
  std::vector<std::uint8_t> message;
  for (const bytes_view part :
       {as_bytes_view("potl spot-check session key v1"), bytes_view(job), bytes_view(session)}) {
    message.insert(message.end(), part.begin(), part.end());
  }
  return hmac_sha256(key, message);
}

result<spot_check_link::greeting> spot_check_link::greeted(bytes_view key,
                                                           const spot_check_header& header,
                                                           bytes_view head, bytes_view body) {
  spot_check_chain chain(spot_check_session_key(key, header.job, header.session), header.job,
                         header.session, spot_check_side::worker);
  const spot_check_expected expected{spot_check_kind::hello, header.frame.step,
                                     header.frame.payload_bytes};
  auto hello = chain.open(header, head, body, expected);
  if (!hello) return hello.why();
  return greeting{std::move(hello).value(), std::move(chain)};
}

result<spot_check_link> spot_check_link::accepted(spot_check_socket socket, bytes_view key,
                                                  double seconds, std::uint64_t most_bytes,
                                                  spot_check_frame& hello,
                                                  std::vector<std::uint8_t>& payload, digest& job) {
  received got;
  file_handle passed;
  const auto first = in(std::min(seconds, spot_check_handshake_seconds));
  if (status read = read_frame(socket, first, got, &passed); !read) return read.why();
  auto opened = greeted(key, got.header, got.bytes, got.body);
  if (!opened) return opened.why();
  hello = std::move(opened->hello);
  spot_check_chain chain = std::move(opened->chain);
  if (hello.payload_bytes > most_bytes) {
    return error{errc::limit, "the job is too long: " + std::to_string(hello.payload_bytes), ""};
  }
  payload.resize(hello.payload_bytes);
  if (status read = read_payload(socket, in(seconds), chain, payload); !read) return read.why();
  job = got.header.job;
  spot_check_link out(std::move(socket), std::move(chain), seconds);
  out.passed_ = std::move(passed);
  return out;
}

status spot_check_link::send(spot_check_kind kind, std::uint64_t step, std::string body,
                             std::span<const bytes_view> payload) {
  const auto until = in(seconds_);
  spot_check_frame frame{kind, step, std::move(body), 0};
  for (const bytes_view part : payload) frame.payload_bytes += part.size();
  const auto memory = shared(kind, frame.payload_bytes);
  for (std::size_t at = 0; const bytes_view part : payload) {
    if (memory.empty()) break;
    move_bytes(memory.subspan(at, part.size()), part);
    at += part.size();
  }
  if (status sent = socket_.write(chain_.seal(frame), until); !sent) return sent;
  if (frame.payload_bytes == 0 || !memory.empty()) return unit{};
  return write_payload(socket_, until, chain_, payload);
}

result<spot_check_frame> spot_check_link::receive(const expectation& expected,
                                                  std::span<std::uint8_t> payload,
                                                  const part_handler& seen) {
  const auto until = in(seconds_);
  received got;
  if (status read = read_frame(socket_, until, got); !read) return read.why();
  auto opened = chain_.open(got.header, got.bytes, got.body, expected(got.header));
  if (!opened) return opened;
  if (opened->payload_bytes > payload.size()) {
    throw exception({errc::usage, "there is no room for the payload that was expected", ""});
  }
  payload = payload.first(opened->payload_bytes);
  if (const auto memory = shared(opened->kind, payload.size()); !memory.empty()) {
    for (std::size_t at = 0; at < payload.size(); at += part_bytes) {
      const auto next = payload.subspan(at, std::min(part_bytes, payload.size() - at));
      move_bytes(next, memory.subspan(at, next.size()));
      if (seen) seen(at, next);
    }
    return opened;
  }
  if (status read = read_payload(socket_, until, chain_, payload, seen); !read) return read.why();
  return opened;
}

std::span<std::uint8_t> spot_check_link::shared(spot_check_kind kind, std::uint64_t bytes) const {
  if (!memory_ || bytes == 0) return {};
  const bool is_step = kind == spot_check_kind::step;
  if (!is_step && kind != spot_check_kind::report) return {};
  const auto out = is_step ? memory_->weights() : memory_->gradient();
  if (out.size() != bytes) {
    throw exception({errc::usage, "shared memory has no room for this payload", ""});
  }
  return out;
}

}  // namespace potl::checks
