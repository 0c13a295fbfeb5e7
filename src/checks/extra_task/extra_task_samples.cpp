// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/extra_task_samples.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <potl/crypto/hasher.hpp>

#include "checks/extra_task/extra_task_content.hpp"
#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

const char* name_of(extra_set set) { return set == extra_set::extra ? "extra" : "control"; }

template <class Out>
std::size_t stride_of(std::span<Out> out, std::uint64_t elements) {
  if (elements == 0 || out.size() % elements != 0) {
    throw exception(
        wrong("the buffer holds no whole samples", "a sample has " + text(elements) + " elements"));
  }
  return static_cast<std::size_t>(elements);
}

}  // namespace

struct extra_samples::pattern {
  image_pattern image;
  std::vector<std::int64_t> tokens;
  std::vector<double> table;
  std::vector<std::vector<std::size_t>> columns;  ///< of a table, that may be random, by grade
};

digest extra_seed(hmac_sha256_key& key, std::string_view purpose, std::uint64_t index,
                  std::uint64_t copy) {
  std::string message("potl.extra_task.v1\0", 19);
  message.append(purpose);
  message.push_back('\0');
  for (const std::uint64_t number : {index, copy}) {
    for (unsigned byte = 0; byte < 8; ++byte) {
      message.push_back(static_cast<char>(number >> (8 * byte) & 0xff));
    }
  }
  return key.of(as_bytes_view(message));
}

result<std::vector<extra_grade>> extra_drawn_grades(const extra_content& content,
                                                    std::uint64_t samples, std::uint64_t classes,
                                                    const extra_task_options& options) {
  constexpr std::uint64_t percent_point = 10'000;
  auto grades = extra_grades(options, samples / std::max<std::uint64_t>(classes, 1));
  if (!grades) return grades;
  const double most = static_cast<double>(samples) * static_cast<double>(1 + options.control);
  // Of two equal samples with different labels a model can hit one; below 2^-10 they do not occur.
  const double needed = 2 * std::log2(most) + 10;
  for (extra_grade& grade : *grades) {
    if (grade.noisy && classes == 0) {
      return wrong("a noisy grade needs labels", "leave \"noisy:\" out");
    }
    double bits = content_bits(content, options, grade);
    while (bits < needed && grade.fixed > percent_point) {
      grade.fixed -= std::min(percent_point, grade.fixed - percent_point);
      bits = content_bits(content, options, grade);
    }
    if (bits < needed) {
      return wrong(
          "the data leave too few different samples: " + text(std::floor(bits)) +
              " bits, and telling " + text(most) + " samples apart takes " +
              text(std::ceil(needed)),
          "use longer texts, more columns or larger images; a smaller `control` needs less");
    }
  }
  return grades;
}

result<extra_samples> extra_samples::make(bytes_view key, const extra_content& content,
                                          std::uint64_t samples, std::uint64_t classes,
                                          const extra_task_options& options) {
  const status valid = options.validate();
  if (!valid) return valid.why();
  if (key.size() != digest::size) {
    return wrong("a key has 32 bytes, not " + text(std::uint64_t{key.size()}), "make one");
  }
  if (classes == 1) return wrong("one class cannot be guessed wrong", "give two classes or none");
  const std::uint64_t per_block = std::max<std::uint64_t>(classes, 1);
  if (samples < extra_minimum || samples > std::uint64_t{1} << 24 || samples % per_block != 0) {
    return wrong(text(samples) + " samples of " + text(classes) + " classes",
                 "take at least " + text(extra_minimum) + ", a multiple of the classes");
  }
  const auto grades = extra_grades(options, samples / per_block);
  if (!grades) return grades.why();
  const auto drawn = extra_drawn_grades(content, samples, classes, options);
  if (!drawn) return drawn.why();
  extra_samples out;
  std::copy(key.begin(), key.end(), out.key_.bytes.begin());
  out.content_ = content;
  out.samples_ = samples;
  out.classes_ = classes;
  out.options_ = options;
  out.grades_ = grades.value();
  out.drawn_ = drawn.value();
  auto made = std::make_shared<pattern>();
  hmac_sha256_key master(out.key_);
  keyed_stream stream(extra_seed(master, "pattern", 0, 0));
  if (const auto* image = std::get_if<extra_image>(&content)) {
    made->image = make_image_pattern(*image, options, std::move(stream));
  } else if (const auto* tokens = std::get_if<extra_tokens>(&content)) {
    made->tokens = make_token_pattern(*tokens, std::move(stream));
  } else {
    const auto& table = std::get<extra_table>(content);
    made->table = make_table_pattern(table, std::move(stream));
    for (const extra_grade& grade : out.drawn_) {
      made->columns.push_back(random_columns(table, options, grade));
    }
  }
  out.pattern_ = std::move(made);
  return out;
}

std::uint64_t extra_samples::count(extra_set set) const noexcept {
  return set == extra_set::extra ? samples_ : samples_ * options_.control;
}

std::uint64_t extra_samples::elements() const noexcept {
  if (const auto* image = std::get_if<extra_image>(&content_)) {
    return image->height * image->width * image->channels;
  }
  if (const auto* tokens = std::get_if<extra_tokens>(&content_)) return tokens->length;
  return std::get_if<extra_table>(&content_)->categories.size();
}

std::int64_t extra_samples::label(std::uint64_t index) const noexcept {
  return classes_ == 0 ? -1 : static_cast<std::int64_t>(index % classes_);
}

std::size_t extra_samples::grade(std::uint64_t index) const noexcept {
  return extra_grade_of(index, samples_, classes_, grades_.size());
}

template <class Value>
std::vector<extra_place> extra_samples::places(extra_set set, std::uint64_t first,
                                               std::uint64_t copy, std::span<Value> out) const {
  std::vector<extra_place> all(out.size() / stride_of(out, elements()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = {set, first + i, copy};
  return all;
}

template <class Value, class Draw>
void extra_samples::fill_each(std::span<const extra_place> places, std::span<Value> out,
                              Draw draw) const {
  for (const extra_place& one : places) {
    if (one.index >= count(one.set)) {
      throw exception(wrong(
          "there are " + text(count(one.set)) + " samples in the set \"" + name_of(one.set) + "\"",
          "ask for these"));
    }
  }
  const std::size_t stride = stride_of(out, elements());
  if (out.size() / stride != places.size()) {
    throw exception(wrong("the buffer holds no " + text(std::uint64_t{places.size()}) + " samples",
                          "a sample has " + text(elements()) + " elements"));
  }
  hmac_sha256_key master(key_);
  sample_streams streams{keyed_stream(key_), keyed_stream(key_)};  // restarted for each sample
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [set, index, copy] = places[i];
    const std::string purpose = name_of(set);
    streams.content.restart(extra_seed(master, purpose, index, 0));
    streams.variation.restart(extra_seed(master, purpose + " variation", index, copy));
    draw(grade(index), streams, out.subspan(i * stride, stride));
  }
}

namespace {
template <class Family>
const Family& family_of(const extra_content& content, const char* type) {
  const auto* found = std::get_if<Family>(&content);
  if (found == nullptr) {
    throw exception(wrong(std::string("these samples are no ") + type,
                          "images are uint8, tokens int64, rows of a table float64"));
  }
  return *found;
}
}  // namespace

void extra_samples::fill(std::span<const extra_place> places, std::span<std::uint8_t> out) const {
  family_of<extra_image>(content_, "images");
  fill_each(places, out, [&](std::size_t at, auto& streams, auto to) {
    draw_image(pattern_->image, options_, drawn_[at], streams, to);
  });
}

void extra_samples::fill(std::span<const extra_place> places, std::span<std::int64_t> out) const {
  const auto& shape = family_of<extra_tokens>(content_, "tokens");
  fill_each(places, out, [&](std::size_t at, auto& streams, auto to) {
    draw_tokens(pattern_->tokens, shape, options_, drawn_[at], streams, to);
  });
}

void extra_samples::fill(std::span<const extra_place> places, std::span<double> out) const {
  const auto& shape = family_of<extra_table>(content_, "rows of a table");
  fill_each(places, out, [&](std::size_t at, auto& streams, auto to) {
    draw_table(pattern_->table, pattern_->columns[at], shape, options_, drawn_[at], streams, to);
  });
}

void extra_samples::fill(extra_set set, std::uint64_t first, std::uint64_t copy,
                         std::span<std::uint8_t> out) const {
  fill(places(set, first, copy, out), out);
}

void extra_samples::fill(extra_set set, std::uint64_t first, std::uint64_t copy,
                         std::span<std::int64_t> out) const {
  fill(places(set, first, copy, out), out);
}

void extra_samples::fill(extra_set set, std::uint64_t first, std::uint64_t copy,
                         std::span<double> out) const {
  fill(places(set, first, copy, out), out);
}

std::vector<extra_upload> extra_samples::uploads() const {
  std::vector<extra_upload> out;
  hmac_sha256_key master(key_);
  std::uint64_t shift = 0;
  for (std::uint64_t index = 0; index < samples_; ++index) {
    const std::int64_t right = label(index);
    out.push_back({index, 0, right});
    if (!grades_[grade(index)].noisy) continue;
    // One shift for a whole block of classes keeps the wrong labels balanced.
    if (index % classes_ == 0) {
      shift =
          1 + keyed_stream(extra_seed(master, "labels", index / classes_, 0)).below(classes_ - 1);
    }
    const auto wrong_label =
        static_cast<std::int64_t>((static_cast<std::uint64_t>(right) + shift) % classes_);
    out.push_back({index, 1, right});
    out.push_back({index, 2, wrong_label});
  }
  return out;
}

std::vector<std::int64_t> extra_samples::order(std::uint64_t real) const {
  if (real > std::uint64_t{1} << 32) {
    throw exception(wrong(text(real) + " samples are too many to shuffle", "2^32 at most"));
  }
  std::vector<std::int64_t> out(static_cast<std::size_t>(real) + uploads().size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int64_t>(i);
  hmac_sha256_key master(key_);
  keyed_stream stream(extra_seed(master, "order", real, 0));
  for (std::size_t i = out.size(); i-- > 1;) {
    std::swap(out[i], out[static_cast<std::size_t>(stream.below(i + 1))]);
  }
  return out;
}

}  // namespace potl::checks
