// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/spot_check_frame.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace potl::checks {
namespace {

constexpr std::string_view magic = "potlspt2";
// No frame begins so.
constexpr std::string_view payload_label = "potl spot-check payload key v1";
// Offsets; integers are little-endian.
constexpr std::size_t kind_at = 8, side_at = 9, zeros_at = 10, body_at = 12, sequence_at = 16,
                      step_at = 24, payload_at = 32, job_at = 40, session_at = 72,
                      previous_at = 104, previous_payload_at = 136, code_at = 152;
static_assert(code_at + digest::size == spot_check_header_bytes);

template <class Integer>
Integer read(bytes_view bytes, std::size_t at) noexcept {
  Integer out = 0;
  for (std::size_t i = sizeof(Integer); i-- > 0;) {
    out = static_cast<Integer>((std::uint64_t{out} << 8) | bytes[at + i]);
  }
  return out;
}

template <class Integer>
void write(std::vector<std::uint8_t>& to, std::size_t at, Integer value) noexcept {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    to[at + i] = static_cast<std::uint8_t>(std::uint64_t{value} >> (8 * i));
  }
}

template <std::size_t Size>
void read(bytes_view bytes, std::size_t at, std::array<std::uint8_t, Size>& out) noexcept {
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), Size, out.begin());
}

template <std::size_t Size>
void write(std::vector<std::uint8_t>& to, std::size_t at,
           const std::array<std::uint8_t, Size>& value) noexcept {
  std::copy(value.begin(), value.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
}

error refused(std::string what) { return {errc::mismatch, std::move(what), ""}; }

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

const char* to_string(spot_check_kind kind) noexcept {
  switch (kind) {
    case spot_check_kind::hello: return "hello";
    case spot_check_kind::ready: return "ready";
    case spot_check_kind::step: return "step";
    case spot_check_kind::report: return "report";
    case spot_check_kind::stop: return "stop";
    case spot_check_kind::stopped: return "stopped";
  }
  return "unknown";
}

result<spot_check_header> parse_spot_check_header(bytes_view bytes) {
  const auto malformed = [](const char* what) -> error { return {errc::malformed, what, ""}; };
  if (bytes.size() != spot_check_header_bytes) return malformed("a frame's header is cut off");
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) {
    return malformed("this is not a frame of a spot-checked training");
  }
  spot_check_header out;
  const std::uint8_t kind = bytes[kind_at], side = bytes[side_at];
  if (kind < 1 || kind > 6) return malformed("a frame is of no known kind");
  out.frame.kind = static_cast<spot_check_kind>(kind);
  // Asked are odd kinds, answered even ones.
  if (side > 1 || (kind % 2 == 0) != (side == 1)) {
    return malformed("a frame comes from the wrong side");
  }
  out.side = static_cast<spot_check_side>(side);
  if (bytes[zeros_at] != 0 || bytes[zeros_at + 1] != 0) {
    return malformed("a frame has a byte that means nothing");
  }
  out.body_bytes = read<std::uint32_t>(bytes, body_at);
  if (out.body_bytes > spot_check_body_limit) {
    return error{errc::limit,
                 "a frame's body would have " + number(out.body_bytes) + " bytes, allowed are " +
                     number(spot_check_body_limit),
                 ""};
  }
  out.sequence = read<std::uint64_t>(bytes, sequence_at);
  out.frame.step = read<std::uint64_t>(bytes, step_at);
  out.frame.payload_bytes = read<std::uint64_t>(bytes, payload_at);
  read(bytes, job_at, out.job.bytes);
  read(bytes, session_at, out.session.bytes);
  read(bytes, previous_at, out.previous.bytes);
  read(bytes, previous_payload_at, out.previous_payload);
  read(bytes, code_at, out.code.bytes);
  return out;
}

spot_check_chain::spot_check_chain(bytes_view key, const digest& job, const digest& session,
                                   spot_check_side side)
    : key_(key), job_(job), session_(session), side_(side) {}

digest spot_check_chain::code_of(bytes_view header, bytes_view body) {
  std::vector<std::uint8_t> message(header.begin(),
                                    header.begin() + static_cast<std::ptrdiff_t>(code_at));
  message.insert(message.end(), body.begin(), body.end());
  return key_.of(message);
}

std::vector<std::uint8_t> spot_check_chain::seal(const spot_check_frame& frame) {
  if (!is_my_turn()) {
    throw exception({errc::usage, "it is the other side's turn to send a frame", ""});
  }
  if (frame.body.size() > spot_check_body_limit) {
    throw exception({errc::usage, "the body of a frame is too long", "send tensors as payload"});
  }
  std::vector<std::uint8_t> out(spot_check_header_bytes);
  std::copy(magic.begin(), magic.end(), out.begin());
  out[kind_at] = static_cast<std::uint8_t>(frame.kind);
  out[side_at] = static_cast<std::uint8_t>(side_);
  write(out, body_at, static_cast<std::uint32_t>(frame.body.size()));
  write(out, sequence_at, sequence_);
  write(out, step_at, frame.step);
  write(out, payload_at, frame.payload_bytes);
  write(out, job_at, job_.bytes);
  write(out, session_at, session_.bytes);
  write(out, previous_at, previous_.bytes);
  write(out, previous_payload_at, previous_payload_);
  previous_ = code_of(out, as_bytes_view(frame.body));
  previous_payload_ = {};
  write(out, code_at, previous_.bytes);
  out.insert(out.end(), frame.body.begin(), frame.body.end());
  ++sequence_;
  return out;
}

result<spot_check_frame> spot_check_chain::open(const spot_check_header& header,
                                                bytes_view header_bytes, bytes_view body,
                                                const spot_check_expected& expected) {
  if (is_my_turn()) {
    throw exception({errc::usage, "it is this side's turn to send a frame", ""});
  }
  if (body.size() != header.body_bytes || header_bytes.size() != spot_check_header_bytes) {
    return error{errc::malformed, "a frame's body is cut off", ""};
  }
  // Who has no key learns only this.
  if (!equal_constant_time(code_of(header_bytes, body), header.code)) {
    return refused("a frame was not sealed with the key of this session");
  }
  if (header.side == side_) return refused("a frame came back to who sent it");
  if (header.job != job_) return refused("a frame belongs to another job");
  if (header.session != session_) return refused("a frame belongs to another session");
  if (header.sequence != sequence_) {
    return refused("frame " + number(header.sequence) + " came where frame " + number(sequence_) +
                   " was expected");
  }
  if (header.previous != previous_ || header.previous_payload != previous_payload_) {
    return refused("frame " + number(sequence_) + " answers another frame than the last");
  }
  const spot_check_frame& got = header.frame;
  if (got.kind != expected.kind || got.step != expected.step) {
    return refused(std::string("a frame is \"") + to_string(got.kind) + "\" of step " +
                   number(got.step) + ", expected was \"" + to_string(expected.kind) +
                   "\" of step " + number(expected.step));
  }
  if (got.payload_bytes != expected.payload_bytes) {
    return refused("step " + number(got.step) + " comes with " + number(got.payload_bytes) +
                   " bytes of tensors, this task has " + number(expected.payload_bytes));
  }
  spot_check_frame out = got;
  out.body.assign(body.begin(), body.end());
  previous_ = header.code;
  previous_payload_ = {};
  ++sequence_;
  return out;
}

one_time_code spot_check_chain::payload_code() {
  std::vector<std::uint8_t> message(payload_label.begin(), payload_label.end());
  message.insert(message.end(), previous_.bytes.begin(), previous_.bytes.end());
  return one_time_code(key_.of(message));
}

}  // namespace potl::checks
