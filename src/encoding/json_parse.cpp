// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/encoding/json.hpp>

#include "encoding/json_events.hpp"
#include "encoding/json_number.hpp"

namespace potl {
namespace {

// Builds the value from events. The open containers are a stack here, not on the call stack.
class builder final : public detail::json_events {
 public:
  json_value take() { return std::move(root_); }

  bool null() override { return add(json_value()); }
  bool boolean(bool value) override { return add(json_value(value)); }
  bool integer(bool negative, std::uint64_t magnitude) override {
    if (magnitude > static_cast<std::uint64_t>(json_max_integer)) {
      std::string literal(negative ? 1 : 0, '-');
      literal += std::to_string(magnitude);
      return number(literal);
    }
    const auto value = static_cast<std::int64_t>(magnitude);
    return add(json_value(negative ? -value : value));
  }
  bool number(std::string_view literal) override {
    result<json_value> value = detail::json_number_from(literal);
    return value ? add(*std::move(value)) : refuse(value.why());
  }
  bool string(std::string& value) override { return add(json_value(std::move(value))); }
  bool start_object() override { return open(true); }
  bool name(std::string& value) override {
    open_.back().members.push_back({std::move(value), json_value()});
    return true;
  }
  bool end_object() override {
    result<json_value> value = json_value::from_members(std::move(open_.back().members));
    open_.pop_back();
    return value ? add(*std::move(value)) : refuse(value.why());
  }
  bool start_array() override { return open(false); }
  bool end_array() override {
    json_value value(std::move(open_.back().elements));
    open_.pop_back();
    return add(std::move(value));
  }

 private:
  struct container {
    bool is_object;
    json_value::array elements;
    json_value::object members;
  };

  bool open(bool is_object) {
    open_.push_back({is_object, {}, {}});
    return true;
  }
  bool add(json_value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.back().value = std::move(value);
    } else {
      open_.back().elements.push_back(std::move(value));
    }
    return true;
  }
  bool refuse(const error& why) {
    reason = why;
    return false;
  }

  std::vector<container> open_;
  json_value root_;
};

}  // namespace

result<json_value> parse_json(bytes_view text, const json_limits& limits) {
  builder events;
  const status read = detail::read_json_events(text, limits, events);
  if (!read) return read.why();
  return events.take();
}

result<json_value> parse_canonical_json(bytes_view text, const json_limits& limits) {
  result<json_value> value = parse_json(text, limits);
  if (!value) return value;
  const std::string spelled = canonical_json(*value);
  const bytes_view canonical = as_bytes_view(spelled);
  if (!std::equal(text.begin(), text.end(), canonical.begin(), canonical.end()))
    return error{errc::malformed, "JSON that is not in its canonical form (RFC 8785)", ""};
  return value;
}

bool is_canonical(bytes_view text, const json_limits& limits) {
  return parse_canonical_json(text, limits).has_value();
}

}  // namespace potl
