// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include <potl/numeric/detail/rounding_referee.hpp>

namespace potl::numeric {
namespace {

constexpr std::uint8_t version = 1;

void put_u64(std::vector<std::uint8_t>& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

void put_floats(std::vector<std::uint8_t>& out, const std::vector<float>& values) {
  const std::size_t at = out.size();
  out.resize(at + values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(out.data() + at, values.data(), values.size() * sizeof(float));
}

class reader {
 public:
  explicit reader(bytes_view bytes) : bytes_(bytes) {}

  std::uint8_t u8() { return take(1) ? bytes_[at_++] : std::uint8_t{0}; }
  std::uint64_t u64() {
    std::uint64_t value = 0;
    if (!take(8)) return 0;
    for (int i = 0; i < 8; ++i) value |= std::uint64_t{bytes_[at_++]} << (8 * i);
    return value;
  }
  std::vector<std::uint8_t> raw(std::uint64_t count) {
    if (!take(count)) return {};
    const auto* from = bytes_.data() + at_;
    at_ += count;
    return {from, from + count};
  }
  std::vector<float> floats(std::uint64_t count) {
    if (count > left() / sizeof(float) || !take(count * sizeof(float))) {
      failed_ = true;
      return {};
    }
    std::vector<float> out(count);
    if (count > 0) std::memcpy(out.data(), bytes_.data() + at_, count * sizeof(float));
    at_ += count * sizeof(float);
    return out;
  }
  std::uint64_t left() const noexcept { return bytes_.size() - at_; }
  bool failed() const noexcept { return failed_; }

 private:
  bool take(std::uint64_t count) {
    failed_ = failed_ || count > left();
    return !failed_;
  }
  bytes_view bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

error malformed(const char* what) {
  return {errc::malformed, std::string("fraud proof: ") + what, ""};
}

}  // namespace

std::vector<std::uint8_t> encode(const fraud_proof& proof) {
  std::vector<std::uint8_t> out{version, static_cast<std::uint8_t>(proof.fault)};
  put_u64(out, proof.step);
  put_u64(out, proof.log.size());
  out.insert(out.end(), proof.log.begin(), proof.log.end());
  put_u64(out, proof.elements.size());
  for (const fraud_element& element : proof.elements) {
    if (element.a.size() != element.b.size()) {
      throw exception({errc::usage, "fraud proof: rows of different length", ""});
    }
    put_u64(out, element.position);
    put_u64(out, element.a.size());
    put_floats(out, element.a);
    put_floats(out, element.b);
  }
  if (out.size() > max_fraud_proof_bytes) {
    throw exception({errc::limit, "fraud proof: longer than 64 MiB", ""});
  }
  return out;
}

result<fraud_proof> decode_fraud_proof(bytes_view bytes) {
  if (bytes.size() > max_fraud_proof_bytes) {
    return error{errc::limit, "fraud proof: longer than 64 MiB", ""};
  }
  reader in(bytes);
  if (in.u8() != version) {
    return error{errc::unsupported, "fraud proof: unknown version", "a newer potl may read it"};
  }
  fraud_proof out;
  const std::uint8_t fault = in.u8();
  if (fault == 0 || fault > static_cast<std::uint8_t>(log_fault::missing_entry)) {
    return malformed("unknown fault");
  }
  out.fault = static_cast<log_fault>(fault);
  out.step = in.u64();
  out.log = in.raw(in.u64());
  const std::uint64_t elements = in.u64();
  if (in.failed() || elements > 1) {
    return malformed("wrong length");
  }
  for (std::uint64_t i = 0; i < elements && !in.failed(); ++i) {
    fraud_element element;
    element.position = in.u64();
    const std::uint64_t terms = in.u64();
    element.a = in.floats(terms);
    element.b = in.floats(terms);
    out.elements.push_back(std::move(element));
  }
  if (in.failed() || in.left() != 0) return malformed("wrong length");
  return out;
}

}  // namespace potl::numeric
