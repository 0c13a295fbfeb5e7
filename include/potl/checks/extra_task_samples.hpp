// SPDX-License-Identifier: Apache-2.0
// The secret samples of an extra task, generated from its key.
//
// Claims: every sample is a function of the key, the set ("extra" is uploaded, "control" never is),
// its index and its copy: the same bytes on every machine, in any order, from any thread. Bytes
// come from HMAC-SHA-256 keyed streams, so whoever lacks the key predicts neither samples nor
// positions. Labels are balanced exactly, in each grade too, and do not depend on the content.
// Layout "paper": the first rows and columns (the first words, columns of a table) are random,
// uniform and independent, the rest is the same in all samples. Layout "jittered": the canvas of
// fixed pattern and random region, both made of cells of max(1, side / 16) pixels (they survive
// JPEG and crops), is shifted cyclically per sample, and brightness and every pixel move by a few
// levels, so that no region has equal bytes in two samples, but by chance where images are small or
// the caller reduces the bytes to few levels; texts have their random words at random positions and
// the fixed ones shifted; tables their random columns chosen per sample and the fixed numbers moved
// a little.
// Assumes a uniformly random key of 32 bytes that nobody else has, used for one model.
// Cost: an image of 32 x 32 x 3 takes some 20 microseconds.
// Cannot hide: that the samples are unlike real ones (an anomaly detector finds noise images). What
// a cloud gains by that is what the audit measures.
// Source: Li et al., section on sample generation; soundness.md "Extra task".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <potl/checks/extra_task_options.hpp>
#include <potl/core/digest.hpp>

namespace potl::checks {

/// uint8, height x width x channels.
struct extra_image {
  std::uint64_t height = 0, width = 0, channels = 0;
  friend bool operator==(const extra_image&, const extra_image&) = default;
};

/// `length` indices (int64) into the caller's vocabulary.
struct extra_tokens {
  std::uint64_t length = 0, vocabulary = 0;
  friend bool operator==(const extra_tokens&, const extra_tokens&) = default;
};

/// One double per column. 0 categories: a place in [0, 1] among the column's sorted training
/// values; else the index of a category.
struct extra_table {
  std::vector<std::uint64_t> categories;
  /// How many different values a place can become, by column, as far as they are equally likely;
  /// 0, or no list: as many as a double has. Of columns with categories it says nothing.
  std::vector<std::uint64_t> values = {};
  friend bool operator==(const extra_table&, const extra_table&) = default;
};

/// What samples are made of.
using extra_content = std::variant<extra_image, extra_tokens, extra_table>;

/// {"family": "image", "height", "width", "channels"}, {"family": "tokens", "length",
/// "vocabulary"}, {"family": "table", "categories": [0, 3, ...]} and, if known, "values": [22, 0,
/// ...]. usage: anything else, and sizes out of range.
result<extra_content> parse_extra_content(const json_value& from);

/// Uploaded samples, and those that never are.
enum class extra_set { extra, control };

/// One sample.
struct extra_place {
  extra_set set = extra_set::extra;
  std::uint64_t index = 0, copy = 0;
};

/// One line of the data that is uploaded.
struct extra_upload {
  std::uint64_t index = 0, copy = 0;
  std::int64_t label = -1;
  friend bool operator==(const extra_upload&, const extra_upload&) = default;
};

/// What is drawn for each grade: the grade itself where its random part can tell all samples apart
/// (two are equal with a probability below 2^-10), else the nearest smaller fixed share, in
/// percents, whose random part can. A short text or a narrow table therefore has more at random
/// than was asked for. usage: even at a fixed share of 0.01 there are too few different samples.
result<std::vector<extra_grade>> extra_drawn_grades(const extra_content& content,
                                                    std::uint64_t samples, std::uint64_t classes,
                                                    const extra_task_options& options);

/// All samples of one key: any of them, by its place, without the others.
class extra_samples {
 public:
  /// `classes` 0: no labels. usage: a key that has not 32 bytes, fewer than 200 samples or no
  /// multiple of the classes, one class, too few different samples.
  static result<extra_samples> make(bytes_view key, const extra_content& content,
                                    std::uint64_t samples, std::uint64_t classes,
                                    const extra_task_options& options);

  std::uint64_t count(extra_set set) const noexcept;
  std::uint64_t classes() const noexcept { return classes_; }
  std::uint64_t elements() const noexcept;  ///< of one sample
  const extra_content& content() const noexcept { return content_; }
  const std::vector<extra_grade>& grades() const noexcept { return grades_; }
  const std::vector<extra_grade>& drawn() const noexcept { return drawn_; }

  /// -1 without classes.
  std::int64_t label(std::uint64_t index) const noexcept;
  /// Index into grades().
  std::size_t grade(std::uint64_t index) const noexcept;

  /// Consecutive samples from `first` on, as many as `out` holds. Throws usage when `out` has the
  /// wrong type or size, or `first` lies outside of the set.
  void fill(extra_set set, std::uint64_t first, std::uint64_t copy,
            std::span<std::uint8_t> out) const;
  void fill(extra_set set, std::uint64_t first, std::uint64_t copy,
            std::span<std::int64_t> out) const;
  void fill(extra_set set, std::uint64_t first, std::uint64_t copy, std::span<double> out) const;
  /// The same of any samples.
  void fill(std::span<const extra_place> places, std::span<std::uint8_t> out) const;
  void fill(std::span<const extra_place> places, std::span<std::int64_t> out) const;
  void fill(std::span<const extra_place> places, std::span<double> out) const;

  /// What is mixed into the data, in order of indices: every extra sample, and two more copies of
  /// those of a noisy grade, the last with a wrong label (balanced too).
  std::vector<extra_upload> uploads() const;

  /// The secret order of `real` samples and all uploads: values below `real` are real samples,
  /// real + i is uploads()[i].
  std::vector<std::int64_t> order(std::uint64_t real) const;

 private:
  struct pattern;
  extra_samples() = default;
  template <class Value>
  std::vector<extra_place> places(extra_set set, std::uint64_t first, std::uint64_t copy,
                                  std::span<Value> out) const;
  template <class Value, class Draw>
  void fill_each(std::span<const extra_place> places, std::span<Value> out, Draw draw) const;

  digest key_;
  extra_content content_;
  std::uint64_t samples_ = 0, classes_ = 0;
  extra_task_options options_;
  std::vector<extra_grade> grades_, drawn_;
  std::shared_ptr<const pattern> pattern_;
};

}  // namespace potl::checks
