// SPDX-License-Identifier: Apache-2.0
#include "transcript/log.hpp"

#include <algorithm>

#include <potl/crypto/hasher.hpp>

#include "transcript/little_endian.hpp"

namespace potl::transcript {
namespace {

constexpr std::string_view magic = "potl-log";
constexpr std::size_t length_bytes = 4;
constexpr std::size_t frame_overhead = length_bytes + digest::size;

digest job_id_of(const record& what) {
  return std::visit([](const auto& one) { return one.job_id; }, what);
}

std::uint32_t length_at(bytes_view file, std::size_t at) {
  return field_reader(file.subspan(at, length_bytes)).u32();
}

// Whether a whole frame begins at `at` whose chain value follows from `before`. Adds the bytes that
// it hashed to `work`.
bool is_frame(bytes_view file, std::size_t at, bytes_view before,
              const std::optional<digest>& job_id, std::uint64_t& work) {
  if (file.size() - at < frame_overhead) return false;
  const std::uint32_t length = length_at(file, at);
  if (length > max_record_bytes || length + frame_overhead > file.size() - at) return false;
  const bytes_view payload = file.subspan(at + length_bytes, length);
  // Cheap tests first: random bytes never pass them.
  if (payload.size() < 2 + digest::size || payload[1] != format_version) return false;
  if (job_id && !std::equal(job_id->bytes.begin(), job_id->bytes.end(), payload.begin() + 2)) {
    return false;
  }
  work += length;
  const digest chain = sha256_of(before, payload);
  const bytes_view stored = file.subspan(at + length_bytes + length, digest::size);
  return std::equal(stored.begin(), stored.end(), chain.bytes.begin());
}

}  // namespace

std::string rounding_entry(std::uint64_t branch) {
  return std::string(rounding_folder) + "/branch-" + std::to_string(branch) + ".log";
}

std::string checkpoint_entry(std::uint64_t step, std::uint64_t branch) {
  std::string out = std::string(checkpoint_folder) + "/step-" + std::to_string(step);
  if (branch != 0) out += ".b" + std::to_string(branch);
  return out + ".safetensors";
}

error unread_without_job(error why) {
  if (why.code == errc::limit) {
    why.remedy =
        "give the job that you agreed on (`potl verify --job`, or evidence_options::client_job): "
        "then as much is read as its steps need";
  }
  return why;
}

std::vector<std::uint8_t> log_header() {
  std::vector<std::uint8_t> out;
  field_writer fields(out);
  fields.raw(as_bytes_view(magic));
  fields.u32(format_version);
  fields.u32(0);
  return out;
}

digest log_chain_start() { return sha256_of(log_header()); }

void append_frame(const record& what, digest& chain, std::vector<std::uint8_t>& out) {
  const std::size_t start = out.size();
  field_writer fields(out);
  fields.u32(0);
  encode_into(what, out);
  const std::size_t length = out.size() - start - length_bytes;
  for (unsigned i = 0; i < length_bytes; ++i) {
    out[start + i] = static_cast<std::uint8_t>(length >> (8 * i));
  }
  chain = sha256_of(chain, bytes_view(out).subspan(start + length_bytes));
  fields.raw(chain);
}

log_reader::log_reader(bytes_view file, chain_rule rule)
    : file_(file), rule_(rule), chain_(log_chain_start()) {}

result<log_reader> log_reader::open(bytes_view file, chain_rule rule) {
  const std::vector<std::uint8_t> expected = log_header();
  if (file.size() < log_header_bytes ||
      !std::equal(magic.begin(), magic.end(), as_text(file).begin())) {
    return error{errc::malformed, "transcript.log does not begin like a log", ""};
  }
  if (!std::equal(expected.begin(), expected.end(), file.begin())) {
    return error{errc::unsupported, "transcript.log has another format version",
                 "a newer potl may read it"};
  }
  return log_reader(file, rule);
}

frame_view frame_at(bytes_view rest, const digest& before) {
  frame_view out;
  const auto stop = [&](const char* why, bool cut_short) {
    out.problem = why;
    out.is_cut_short = cut_short;
    return out;
  };
  if (rest.size() < length_bytes) return stop("the frame is cut short", true);
  const std::uint32_t length = length_at(rest, 0);
  if (length > max_record_bytes) return stop("the frame is longer than a record can be", false);
  if (length + frame_overhead > rest.size()) return stop("the frame is cut short", true);
  out.payload = rest.subspan(length_bytes, length);
  out.stored = rest.subspan(length_bytes + length, digest::size);
  out.chain = sha256_of(before, out.payload);
  out.bytes = length + frame_overhead;
  if (!std::equal(out.stored.begin(), out.stored.end(), out.chain.bytes.begin())) {
    return stop("the frame does not follow from what precedes", false);
  }
  return out;
}

std::optional<record> log_reader::next() {
  if (at_ == file_.size()) return std::nullopt;
  const auto stop = [&](const char* why) {
    problem_ = why;
    return std::nullopt;
  };
  const frame_view frame = frame_at(file_.subspan(at_), chain_);
  const bool is_whole = frame.bytes > 0;
  if (frame.problem != nullptr && (rule_ == chain_rule::required || !is_whole)) {
    return stop(frame.problem);
  }
  result<record> out = decode(frame.payload);
  if (!out) return stop("the frame does not hold a record");
  if (at_ == log_header_bytes) job_id_ = job_id_of(*out);
  std::copy(frame.stored.begin(), frame.stored.end(), chain_.bytes.begin());
  payload_ = frame.payload;
  at_ += frame.bytes;
  return std::move(*out);
}

log_tail log_reader::tail() const {
  if (at_ == file_.size()) return log_tail::clean;
  // A crash leaves at most what was appended since the last sync, and a prefix of that.
  std::uint64_t work = 0;
  const std::uint64_t budget = std::uint64_t{4} * file_.size() + max_record_bytes;
  for (std::size_t at = at_; at + frame_overhead <= file_.size(); ++at) {
    if (at != at_ && at < log_header_bytes + digest::size) continue;  // no chain value before it
    const bytes_view before = at == at_ ? chain_ : file_.subspan(at - digest::size, digest::size);
    if (is_frame(file_, at, before, job_id_, work)) return log_tail::damage;
    if (work > budget) return log_tail::damage;
  }
  return follows_wrong_chain() ? log_tail::damage : log_tail::torn;
}

// The bad frame is whole but for its chain value, and the frame after it fits the right one.
bool log_reader::follows_wrong_chain() const {
  if (file_.size() - at_ < frame_overhead) return false;
  const std::uint32_t length = length_at(file_, at_);
  const std::size_t left = file_.size() - at_;
  if (length > max_record_bytes || left - frame_overhead < length) return false;
  const digest chain = sha256_of(chain_, file_.subspan(at_ + length_bytes, length));
  std::uint64_t work = 0;
  return is_frame(file_, at_ + length + frame_overhead, chain, job_id_, work);
}

}  // namespace potl::transcript
