// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/rounding_log.hpp>

#include <bit>
#include <string>
#include <string_view>

#include <potl/crypto/hasher.hpp>
#include <potl/numeric/detail/rounding.hpp>

namespace potl::numeric {
namespace {

constexpr std::size_t header_bytes = 20;  // version, bits, parameter, 0, u64 values, u64 entries
constexpr std::uint8_t version = 1;

void put_u64(std::vector<std::uint8_t>& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

std::uint64_t get_u64(bytes_view bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return value;
}

// Bits fill bytes from the lowest one up.
class bit_writer {
 public:
  explicit bit_writer(std::vector<std::uint8_t>& out) : out_(out) {}

  void put(std::uint64_t value, int count) {  // count <= 56
    pending_ |= value << filled_;
    filled_ += count;
    while (filled_ >= 8) {
      out_.push_back(static_cast<std::uint8_t>(pending_));
      pending_ >>= 8;
      filled_ -= 8;
    }
  }
  void put_unary(std::uint64_t zeros) {
    for (; zeros >= 56; zeros -= 56) put(0, 56);
    put(std::uint64_t{1} << zeros, static_cast<int>(zeros) + 1);
  }
  void pad() {
    if (filled_ > 0) put(0, 8 - filled_);
  }

 private:
  std::vector<std::uint8_t>& out_;
  std::uint64_t pending_ = 0;
  int filled_ = 0;
};

// Reads zeros beyond the end; `overrun` tells.
class bit_reader {
 public:
  explicit bit_reader(bytes_view bytes) : bytes_(bytes) {}

  std::uint64_t get(int count) {  // count <= 56
    fill();
    const std::uint64_t value = pending_ & ((std::uint64_t{1} << count) - 1);
    drop(count);
    return value;
  }
  // Zeros before the next one; `limit` + 1 when there are more.
  std::uint64_t get_unary(std::uint64_t limit) {
    std::uint64_t zeros = 0;
    for (;;) {
      fill();
      const int here = std::countr_zero(pending_);
      if (here < available_) {
        drop(here + 1);
        return zeros + static_cast<std::uint64_t>(here);
      }
      zeros += static_cast<std::uint64_t>(available_);
      drop(available_);
      if (zeros > limit || at_ == bytes_.size()) return limit + 1;
    }
  }
  bool overrun() const noexcept { return overrun_; }
  /// Nothing is left but fewer than eight zeros.
  bool is_padded_end() {
    fill();
    return at_ == bytes_.size() && available_ < 8 && pending_ == 0;
  }

 private:
  void fill() {
    while (available_ <= 56 && at_ < bytes_.size()) {
      pending_ |= std::uint64_t{bytes_[at_++]} << available_;
      available_ += 8;
    }
  }
  void drop(int count) {
    if (count > available_) {
      overrun_ = true;
      count = available_;
    }
    pending_ = count == 64 ? 0 : pending_ >> count;
    available_ -= count;
  }

  bytes_view bytes_;
  std::size_t at_ = 0;
  std::uint64_t pending_ = 0;
  int available_ = 0;
  bool overrun_ = false;
};

error malformed(std::string_view what) {
  return {errc::malformed, "rounding log: " + std::string(what), ""};
}

}  // namespace

int rice_parameter(std::uint64_t values, std::uint64_t entries) noexcept {
  if (entries == 0) return 0;
  // 1 + floor(log2(0.4812 mean gap)), 0.4812 = ln of the golden ratio, in 16 bits.
  return static_cast<int>(std::bit_width(((values * 31537) >> 16) / entries));
}

std::vector<std::uint8_t> encode_rounding_log(const rounding_log& log) {
  const auto refuse = [](const char* why) {
    throw exception({errc::usage, std::string("rounding log: ") + why, ""});
  };
  if (log.bits < min_rounding_bits || log.bits > max_rounding_bits) refuse("bits are 23 to 32");
  if (log.values > max_logged_values) refuse("too many values");
  const int parameter = rice_parameter(log.values, log.entries.size());
  std::vector<std::uint8_t> out{version, static_cast<std::uint8_t>(log.bits),
                                static_cast<std::uint8_t>(parameter), 0};
  put_u64(out, log.values);
  put_u64(out, log.entries.size());
  bit_writer bits(out);
  std::uint64_t next = 0;  // the least position that may follow
  for (const log_entry& entry : log.entries) {
    if (entry.position < next || entry.position >= log.values) {
      refuse("positions must ascend and lie below the number of values");
    }
    const std::uint64_t gap = entry.position - next;
    bits.put_unary(gap >> parameter);
    bits.put((gap & ((std::uint64_t{1} << parameter) - 1)) | std::uint64_t{entry.up} << parameter,
             parameter + 1);
    next = entry.position + 1;
  }
  bits.pad();
  return out;
}

result<rounding_log> decode_rounding_log(bytes_view bytes, std::uint64_t max_entries) {
  if (bytes.size() < header_bytes) return malformed("too short");
  if (bytes[0] != version) {
    return error{errc::unsupported, "rounding log: version " + std::to_string(bytes[0]),
                 "a newer potl may read it"};
  }
  rounding_log log;
  log.bits = bytes[1];
  log.values = get_u64(bytes.subspan(4));
  const std::uint64_t entries = get_u64(bytes.subspan(12));
  if (log.bits < min_rounding_bits || log.bits > max_rounding_bits) {
    return malformed("bits are 23 to 32");
  }
  if (log.values > max_logged_values || entries > log.values) return malformed("impossible counts");
  const int parameter = rice_parameter(log.values, entries);
  if (bytes[2] != parameter || bytes[3] != 0)
    return malformed("another parameter than the counts give");
  if (entries > max_entries) {
    return error{errc::limit, "rounding log: " + std::to_string(entries) + " entries", ""};
  }
  const bytes_view body = bytes.subspan(header_bytes);
  // Before memory is taken: an entry has at least parameter + 2 bits.
  if (entries > body.size() * 8 / static_cast<std::uint64_t>(parameter + 2)) {
    return malformed("shorter than its entries");
  }
  log.entries.reserve(entries);
  bit_reader in(body);
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t left = log.values - next;
    const std::uint64_t high = in.get_unary(left >> parameter);
    const std::uint64_t rest = in.get(parameter + 1);
    const std::uint64_t gap = (high << parameter) | (rest & ((std::uint64_t{1} << parameter) - 1));
    if (in.overrun()) return malformed("cut short");
    if (high > left >> parameter || gap >= left) return malformed("a position beyond the values");
    log.entries.push_back({next + gap, (rest >> parameter) != 0});
    next += gap + 1;
  }
  if (!in.is_padded_end()) return malformed("bytes after the last entry");
  return log;
}

digest rounding_log_digest(bytes_view encoded) {
  constexpr std::string_view domain("potl.rounding_log.v1\0", 21);
  return sha256_of(as_bytes_view(domain), encoded);
}

}  // namespace potl::numeric
