// SPDX-License-Identifier: Apache-2.0
// Texts and rows of tables.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "checks/extra_task/extra_task_content.hpp"

namespace potl::checks {
namespace {

// Draws `count` of these places; "paper": the first ones.
void choose(std::vector<std::size_t>& places, std::size_t count, const extra_task_options& options,
            keyed_stream& stream) {
  if (options.layout != "paper") {
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(places[i], places[i + stream.below(places.size() - i)]);
    }
  }
  places.resize(count);
}

// log2 of the values that a column can have, as far as they can be relied on.
double column_bits(const extra_table& shape, std::size_t column) {
  const std::uint64_t categories = shape.categories[column];
  const std::uint64_t values = shape.values.empty() ? 0 : shape.values[column];
  if (categories == 0 && values == 0) return 40;
  return std::log2(static_cast<double>(categories == 0 ? values : categories));
}

double draw_column(std::uint64_t categories, keyed_stream& stream) {
  return categories == 0 ? stream.unit_interval() : static_cast<double>(stream.below(categories));
}

}  // namespace

std::vector<std::int64_t> make_token_pattern(const extra_tokens& shape, keyed_stream stream) {
  std::vector<std::int64_t> out(shape.length);
  for (auto& one : out) one = static_cast<std::int64_t>(stream.below(shape.vocabulary));
  return out;
}

void draw_tokens(std::span<const std::int64_t> pattern, const extra_tokens& shape,
                 const extra_task_options& options, const extra_grade& grade,
                 sample_streams& streams, std::span<std::int64_t> out) {
  const std::size_t random = extra_words(shape.length, grade.fixed);
  const std::size_t shift = options.layout == "paper"
                                ? 0
                                : streams.variation.below(1 + millionths(options.jitter) *
                                                                  (shape.length - 1) / 1'000'000);
  const auto middle = pattern.begin() + static_cast<std::ptrdiff_t>(shift);  // shift < length
  std::rotate_copy(pattern.begin(), middle, pattern.end(), out.begin());
  std::vector<std::size_t> places(out.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  choose(places, random, options, streams.content);
  for (const std::size_t at : places) {
    out[at] = static_cast<std::int64_t>(streams.content.below(shape.vocabulary));
  }
}

std::vector<double> make_table_pattern(const extra_table& shape, keyed_stream stream) {
  std::vector<double> out;
  for (const std::uint64_t categories : shape.categories)
    out.push_back(draw_column(categories, stream));
  return out;
}

std::vector<std::size_t> random_columns(const extra_table& shape, const extra_task_options& options,
                                        const extra_grade& grade) {
  constexpr double enough = 40;  // what extra_drawn_grades asks of all but vast sets
  const std::size_t random = extra_words(shape.categories.size(), grade.fixed);
  std::vector<std::size_t> columns(shape.categories.size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  const auto bits = [&](std::size_t column) { return column_bits(shape, column); };
  if (options.layout == "paper") {
    columns.resize(random);
    return columns;
  }
  std::stable_sort(columns.begin(), columns.end(),
                   [&](std::size_t a, std::size_t b) { return bits(a) > bits(b); });
  // Of more columns, the poorest that a sample may get are poorer.
  double poorest = 0;
  for (std::size_t i = 0; i < random; ++i) poorest += bits(columns[i]);
  std::size_t pool = random;
  while (random > 0 && pool < columns.size()) {
    poorest += bits(columns[pool]) - bits(columns[pool - random]);
    if (poorest < enough) break;
    ++pool;
  }
  columns.resize(pool);
  std::sort(columns.begin(), columns.end());
  return columns;
}

void draw_table(std::span<const double> pattern, std::span<const std::size_t> columns,
                const extra_table& shape, const extra_task_options& options,
                const extra_grade& grade, sample_streams& streams, std::span<double> out) {
  std::copy(pattern.begin(), pattern.end(), out.begin());
  std::vector<std::size_t> places(columns.begin(), columns.end());
  choose(places, extra_words(out.size(), grade.fixed), options, streams.content);
  for (const std::size_t at : places) {
    out[at] = draw_column(shape.categories[at], streams.content);
  }
  if (options.layout == "paper" || options.noise == 0) return;
  const double reach = static_cast<double>(options.noise) / 255;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (shape.categories[i] != 0) continue;
    const double moved = std::fabs(out[i] + reach * (2 * streams.variation.unit_interval() - 1));
    out[i] = moved <= 1 ? moved : 2 - moved;  // reflected at both ends
  }
}

double content_bits(const extra_content& content, const extra_task_options& options,
                    const extra_grade& grade) {
  if (const auto* image = std::get_if<extra_image>(&content)) {
    const bool paper = options.layout == "paper";
    const std::uint64_t cell =
        paper ? 1 : std::max<std::uint64_t>(1, std::min(image->height, image->width) / 16);
    const auto cells = [&](std::uint64_t side) {
      const std::uint64_t whole = (extra_region(side, grade.fixed) + cell - 1) / cell;
      return static_cast<double>(whole);
    };
    // Even with the most noise and brightness 64 levels are left.
    return (paper ? 8 : 6) * cells(image->height) * cells(image->width) *
           static_cast<double>(image->channels);
  }
  if (const auto* tokens = std::get_if<extra_tokens>(&content)) {
    return static_cast<double>(extra_words(tokens->length, grade.fixed)) *
           std::log2(static_cast<double>(tokens->vocabulary));
  }
  const auto& table = std::get<extra_table>(content);
  std::vector<double> bits;
  for (const std::size_t column : random_columns(table, options, grade)) {
    bits.push_back(column_bits(table, column));
  }
  std::sort(bits.begin(), bits.end());
  const std::size_t random = extra_words(table.categories.size(), grade.fixed);
  return std::accumulate(bits.begin(), bits.begin() + static_cast<std::ptrdiff_t>(random), 0.0);
}

}  // namespace potl::checks
