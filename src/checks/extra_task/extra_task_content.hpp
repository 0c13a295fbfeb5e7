// SPDX-License-Identifier: Apache-2.0
// How one extra sample is drawn: private to extra_task_samples. The order of draws is part of the
// definition, because a sample is regenerated from the key after the training.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <potl/checks/extra_task_samples.hpp>
#include <potl/crypto/challenge.hpp>

namespace potl::checks {

/// Single bytes of a keyed stream, eight from each of its values, lowest first.
class keyed_bytes {
 public:
  explicit keyed_bytes(keyed_stream& stream) : stream_(stream) {}

  std::uint8_t next() {
    if (left_ == 0) {
      word_ = stream_.next();
      left_ = 8;
    }
    const auto out = static_cast<std::uint8_t>(word_);
    word_ >>= 8;
    --left_;
    return out;
  }

 private:
  keyed_stream& stream_;
  std::uint64_t word_ = 0;
  unsigned left_ = 0;
};

/// The streams of one sample: what all its copies share, and what each has of its own.
struct sample_streams {
  keyed_stream content, variation;
};

/// HMAC(key, "potl.extra_task.v1" 0x00 purpose 0x00 index copy): the seed of one stream.
digest extra_seed(hmac_sha256_key& key, std::string_view purpose, std::uint64_t index,
                  std::uint64_t copy);

/// Bound on an image's values, so that brightness and noise need no clamping.
struct level_range {
  unsigned low = 0, width = 256;
  std::uint8_t of(std::uint8_t byte) const noexcept {
    return static_cast<std::uint8_t>(low + (byte * width >> 8));
  }
};

struct image_pattern {
  extra_image shape;
  std::uint64_t cell = 1;  ///< side of a square of one colour; 1 in layout "paper"
  level_range levels;
  std::vector<std::uint8_t> bytes;
};

image_pattern make_image_pattern(const extra_image& shape, const extra_task_options& options,
                                 keyed_stream stream);
void draw_image(const image_pattern& pattern, const extra_task_options& options,
                const extra_grade& grade, sample_streams& streams, std::span<std::uint8_t> out);

std::vector<std::int64_t> make_token_pattern(const extra_tokens& shape, keyed_stream stream);
void draw_tokens(std::span<const std::int64_t> pattern, const extra_tokens& shape,
                 const extra_task_options& options, const extra_grade& grade,
                 sample_streams& streams, std::span<std::int64_t> out);

std::vector<double> make_table_pattern(const extra_table& shape, keyed_stream stream);
/// The columns that may be random: those with the most values, as many as can be so that any choice
/// among them tells samples apart; "paper": the first ones.
std::vector<std::size_t> random_columns(const extra_table& shape, const extra_task_options& options,
                                        const extra_grade& grade);
void draw_table(std::span<const double> pattern, std::span<const std::size_t> columns,
                const extra_table& shape, const extra_task_options& options,
                const extra_grade& grade, sample_streams& streams, std::span<double> out);

/// log2 of the number of random parts that a sample of this grade can have, at least.
double content_bits(const extra_content& content, const extra_task_options& options,
                    const extra_grade& grade);

}  // namespace potl::checks
