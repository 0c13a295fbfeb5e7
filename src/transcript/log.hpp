// SPDX-License-Identifier: Apache-2.0
// transcript.log: a file header, then frames of length, payload and chain. The chain value of a
// frame is SHA-256(chain before it || payload), so a frame is valid only after exactly the frames
// before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/transcript/detail/record.hpp>
#include <potl/transcript/detail/run_files.hpp>

namespace potl::transcript {

inline constexpr std::size_t log_header_bytes = 16;
inline constexpr std::uint64_t max_log_bytes = std::uint64_t{16} << 30;
/// Of a log for which no job of the client's says how many steps there are; 7 million fit.
inline constexpr std::uint64_t max_unagreed_log_bytes = std::uint64_t{2} << 30;
inline constexpr std::uint64_t max_telemetry_bytes = std::uint64_t{1} << 30;

/// Why a log was not read without a job, with what to do about one that is too long.
error unread_without_job(error why);

/// The 16 bytes that open every log, and the chain value before its first frame.
std::vector<std::uint8_t> log_header();
digest log_chain_start();

/// Appends a frame to `out` and moves `chain` on.
void append_frame(const record& what, digest& chain, std::vector<std::uint8_t>& out);

/// What bytes begin with that go on with a log.
struct frame_view {
  bytes_view payload, stored;     ///< the record, and the chain value behind it
  digest chain;                   ///< that follows from the frames before
  std::size_t bytes = 0;          ///< of the frame
  bool is_cut_short = false;      ///< more bytes may make a frame
  const char* problem = nullptr;  ///< null: the frame is whole, and follows
};
frame_view frame_at(bytes_view rest, const digest& before);

/// What comes after the last valid frame.
enum class log_tail {
  clean,   ///< nothing
  torn,    ///< the beginning of a frame that a crash cut short: nothing valid follows
  damage,  ///< bytes that no crash of the writer leaves, or valid frames after invalid ones
};

enum class chain_rule { required, ignored };

/// Reads frames from a buffer. Work is linear in the buffer; memory is that of one record.
class log_reader {
 public:
  /// malformed or unsupported when the file header is not that of a log.
  static result<log_reader> open(bytes_view file, chain_rule rule = chain_rule::required);

  /// The next record, or nothing at the end of the valid prefix.
  std::optional<record> next();
  /// Encoding of the record that next() returned last.
  bytes_view payload() const { return payload_; }
  /// Bytes up to the end of the last valid frame.
  std::uint64_t position() const { return at_; }
  const digest& chain() const { return chain_; }

  /// After next() returned nothing. Looks for valid frames in what is left; bounded work.
  log_tail tail() const;
  /// What is wrong with the first frame that is not valid.
  const std::string& problem() const { return problem_; }

 private:
  log_reader(bytes_view file, chain_rule rule);
  bool follows_wrong_chain() const;
  bytes_view file_;
  chain_rule rule_;
  std::size_t at_ = log_header_bytes;
  digest chain_;
  bytes_view payload_;
  std::optional<digest> job_id_;  // of the first record
  std::string problem_;
};

}  // namespace potl::transcript
