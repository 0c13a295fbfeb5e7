// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/extra_task_samples.hpp>

namespace potl::checks {
namespace {

constexpr std::uint64_t most_elements = std::uint64_t{1} << 28;

error wrong_content(std::string_view problem) {
  return {errc::usage, "extra_task: " + std::string(problem),
          "content is {\"family\": \"image\", \"height\", \"width\", \"channels\"}, {\"family\": "
          "\"tokens\", \"length\", \"vocabulary\"} or {\"family\": \"table\", \"categories\": "
          "[...]}, with "
          "\"values\": [...] if known"};
}

result<std::uint64_t> size_of(const json_value& from, std::string_view name, std::uint64_t most) {
  const auto number = from.at(name).count();
  if (!number || number.value() == 0 || number.value() > most) {
    return wrong_content("\"" + std::string(name) + "\" of the samples is not from 1 to " +
                         std::to_string(most));
  }
  return number;
}

result<extra_content> image_of(const json_value& from) {
  if (!from.root().only({"family", "height", "width", "channels"}))
    return wrong_content("unknown member");
  const auto height = size_of(from, "height", 1 << 14), width = size_of(from, "width", 1 << 14),
             channels = size_of(from, "channels", 1 << 10);
  for (const auto* one : {&height, &width, &channels}) {
    if (!*one) return one->why();
  }
  if (height.value() * width.value() * channels.value() > most_elements) {
    return wrong_content("an image is too large");
  }
  return extra_content(extra_image{height.value(), width.value(), channels.value()});
}

result<extra_content> tokens_of(const json_value& from) {
  if (!from.root().only({"family", "length", "vocabulary"})) return wrong_content("unknown member");
  const auto length = size_of(from, "length", 1 << 20);
  const auto vocabulary = size_of(from, "vocabulary", std::uint64_t{1} << 40);
  if (!length) return length.why();
  if (!vocabulary) return vocabulary.why();
  if (vocabulary.value() < 2) return wrong_content("a vocabulary has two words at least");
  return extra_content(extra_tokens{length.value(), vocabulary.value()});
}

result<std::vector<std::uint64_t>> counts_of(const json_value& from, const char* name) {
  const json_value* list = from.find(name);
  if (list == nullptr || list->if_array() == nullptr || list->if_array()->empty() ||
      list->if_array()->size() > std::size_t{1} << 20) {
    return wrong_content("\"" + std::string(name) + "\" is not a list of columns");
  }
  std::vector<std::uint64_t> out;
  for (const json_value& one : *list->if_array()) {
    const auto* number = one.if_integer();
    if (number == nullptr || *number < 0) {
      return wrong_content("a column has 0 or more " + std::string(name));
    }
    out.push_back(static_cast<std::uint64_t>(*number));
  }
  return out;
}

result<extra_content> table_of(const json_value& from) {
  if (!from.root().only({"family", "categories", "values"})) return wrong_content("unknown member");
  auto categories = counts_of(from, "categories");
  if (!categories) return categories.why();
  extra_table out{std::move(*categories)};
  if (from.find("values") != nullptr) {
    auto values = counts_of(from, "values");
    if (!values) return values.why();
    out.values = std::move(*values);
    if (out.values.size() != out.categories.size()) {
      return wrong_content("\"values\" and \"categories\" are of different columns");
    }
  }
  return extra_content(std::move(out));
}

}  // namespace

result<extra_content> parse_extra_content(const json_value& from) {
  const json_value* family = from.find("family");
  const std::string* name = family == nullptr ? nullptr : family->if_string();
  if (name != nullptr && *name == "image") return image_of(from);
  if (name != nullptr && *name == "tokens") return tokens_of(from);
  if (name != nullptr && *name == "table") return table_of(from);
  return wrong_content("the samples are of no known family");
}

}  // namespace potl::checks
