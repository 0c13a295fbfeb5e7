// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/schema.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <potl/core/rules.hpp>
#include <potl/numeric/detail/finite.hpp>
#include <potl/numeric/detail/squares.hpp>

#include "checks/state_walk.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

using transcript::state_alias;
using transcript::state_bytes;
using transcript::state_tensor;
using transcript::state_tuple;

using verdict = std::optional<violation>;

constexpr double relative_rounding = 1e-9;  // of mathematical libraries, added up over a run
constexpr std::string_view form = "agreed.schema", recipe = "agreed.recipe_state";

[[noreturn]] void no_law() { throw exception({errc::usage, "a law of a state is malformed", ""}); }

template <class Kind>
const Kind& part(const state_list& law, std::size_t i) {
  const Kind* out = as<Kind>(item(&law, i));
  if (out == nullptr) no_law();
  return *out;
}

double number(const state_value& value) {
  if (const auto* real = as<double>(&value)) return *real;
  if (const auto* whole = as<std::int64_t>(&value)) return static_cast<double>(*whole);
  no_law();
}

verdict against(std::string_view rule, const std::string& path, const std::string& why) {
  if (!rule_enabled(rule)) return std::nullopt;
  return violation{rule, path, why};
}

const char* kind_of(const state_value& value) {
  constexpr const char* names[] = {"none",  "bool",     "int",          "float",
                                   "str",   "bytes",    "a list",       "a tuple",
                                   "a map", "a tensor", "a tied tensor"};
  return names[value.content.index()];
}

std::string text_of(const state_value& value) {
  if (const auto* flag = as<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* whole = as<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = as<double>(&value)) return precise(*real);
  if (const auto* words = as<std::string>(&value)) return '"' + words->substr(0, 60) + '"';
  return kind_of(value);
}

std::string shape_of(std::string_view type, const std::vector<std::uint64_t>& dims) {
  std::string out(type);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    out += (i == 0 ? "[" : ", ") + std::to_string(dims[i]);
  }
  return out + (dims.empty() ? "[]" : "]");
}

bool same_float(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

bool same_value(const state_value& a, const state_value& b) {
  if (a.content.index() != b.content.index()) return false;
  const auto items = [](const state_list& x, const state_list& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_value);
  };
  if (const auto* flag = as<bool>(&a)) return *flag == *as<bool>(&b);
  if (const auto* whole = as<std::int64_t>(&a)) return *whole == *as<std::int64_t>(&b);
  if (const auto* real = as<double>(&a)) return same_float(*real, *as<double>(&b));
  if (const auto* words = as<std::string>(&a)) return *words == *as<std::string>(&b);
  if (const auto* raw = as<state_bytes>(&a)) return raw->bytes == as<state_bytes>(&b)->bytes;
  if (const auto* list = as<state_list>(&a)) return items(*list, *as<state_list>(&b));
  if (const auto* tuple = as<state_tuple>(&a)) {
    return items(tuple->items, as<state_tuple>(&b)->items);
  }
  if (const auto* map = as<state_map>(&a)) {
    const auto& other = *as<state_map>(&b);
    return std::equal(map->begin(), map->end(), other.begin(), other.end(),
                      [](const auto& x, const auto& y) {
                        return x.first == y.first && same_value(x.second, y.second);
                      });
  }
  return as<std::monostate>(&a) != nullptr;
}

// The value of a tensor with one element, or nothing.
std::optional<double> element_of(const state_value& value) {
  const auto* tensor = as<state_tensor>(&value);
  if (tensor == nullptr || tensor->bytes.size() != info(tensor->type).size) return std::nullopt;
  return numeric::first_element(tensor->type, tensor->bytes);
}

class reader {
 public:
  verdict look(const state_value& value, const state_value& law, const std::string& path) const {
    const auto* tuple = as<state_tuple>(&law);
    if (tuple == nullptr) no_law();
    const state_list& parts = tuple->items;
    const std::string& name = part<std::string>(parts, 0);
    if (name == "open") return std::nullopt;
    if (name == "is") return exactly(value, parts, path);
    if (name == "near") return near(value, parts, path);
    if (name == "finite") return finite(value, path);
    if (name == "count") return count(value, parts, path);
    if (name == "not negative") return not_negative(value, path);
    if (name == "tensor") return tensor(value, parts, path);
    if (name == "kind") return kind(value, part<std::string>(parts, 1), path);
    if (name == "alias") return alias(value, part<std::string>(parts, 1), path);
    if (name == "map") return map(value, parts, path);
    if (name == "items") return items(as<state_list>(&value), value, parts, path);
    if (name == "tuple") {
      const auto* own = as<state_tuple>(&value);
      return items(own == nullptr ? nullptr : &own->items, value, parts, path);
    }
    if (name == "each") return each(value, parts, path);
    if (name == "all") return all(value, part<state_list>(parts, 1), path);
    if (name == "any") return any(value, part<state_list>(parts, 1), path);
    no_law();
  }

 private:
  static verdict other_kind(const state_value& value, const std::string& wanted,
                            const std::string& path) {
    return against(form, path,
                   std::string("the state holds ") + kind_of(value) + ", the task " + wanted);
  }

  static verdict exactly(const state_value& value, const state_list& law, const std::string& path) {
    if (law.size() != 2) no_law();
    if (same_value(value, law[1])) return std::nullopt;
    return against(recipe, path, "is " + text_of(value) + ", agreed is " + text_of(law[1]));
  }

  static bool is_near(double value, double wanted, double slack) {
    if (same_float(value, wanted)) return true;
    return std::isfinite(wanted) &&
           std::fabs(value - wanted) <= slack + relative_rounding * std::fabs(wanted);
  }

  static verdict near(const state_value& value, const state_list& law, const std::string& path) {
    if (law.size() != 3) no_law();
    const auto* real = as<double>(&value);
    const auto own = real == nullptr ? element_of(value) : std::optional(*real);
    if (!own) return other_kind(value, "float", path);
    if (is_near(*own, number(law[1]), number(law[2]))) return std::nullopt;
    return against(recipe, path,
                   "is " + precise(*own) + ", the agreed steps make it " + precise(number(law[1])));
  }

  static verdict finite(const state_value& value, const std::string& path) {
    const auto* own = as<double>(&value);
    if (own == nullptr) return other_kind(value, "float", path);
    return std::isfinite(*own) ? std::nullopt : against(recipe, path, "is " + precise(*own));
  }

  static verdict count(const state_value& value, const state_list& law, const std::string& path) {
    if (law.size() != 3) no_law();
    double own = 0;
    if (const auto* whole = as<std::int64_t>(&value)) {
      own = static_cast<double>(*whole);
    } else if (const auto element = element_of(value)) {
      own = *element;
    } else {
      return other_kind(value, "a counter", path);
    }
    if (own >= number(law[1]) && own <= number(law[2]) && own == std::floor(own)) {
      return std::nullopt;
    }
    return against(recipe, path,
                   "counts " + precise(own) + ", the agreed steps between " +
                       precise(number(law[1])) + " and " + precise(number(law[2])));
  }

  static verdict tensor(const state_value& value, const state_list& law, const std::string& path) {
    const std::string& wanted = part<std::string>(law, 1);
    std::vector<std::uint64_t> dims;
    const auto* sizes = as<state_list>(item(&law, 2));
    if (sizes != nullptr) {
      for (const state_value& size : *sizes)
        dims.push_back(static_cast<std::uint64_t>(number(size)));
    }
    const auto* own = as<state_tensor>(&value);
    if (own == nullptr) {
      return other_kind(value, sizes == nullptr ? wanted : shape_of(wanted, dims), path);
    }
    const std::string_view type = info(own->type).torch_name;
    if (type != wanted || (sizes != nullptr && own->dims != dims)) {
      return against(form, path,
                     "the state holds " + shape_of(type, own->dims) + ", the task " +
                         (sizes == nullptr ? wanted : shape_of(wanted, dims)));
    }
    return std::nullopt;
  }

  static verdict not_negative(const state_value& value, const std::string& path) {
    const auto* own = as<state_tensor>(&value);
    if (own == nullptr) return std::nullopt;
    const char* why = numeric::why_no_squares(own->type, own->bytes);
    return why == nullptr ? std::nullopt : against(recipe, path, why);
  }

  static verdict kind(const state_value& value, const std::string& wanted,
                      const std::string& path) {
    const std::string_view own = kind_of(value);
    if (own == wanted || (wanted == "number" && (own == "int" || own == "float"))) {
      return std::nullopt;
    }
    return other_kind(value, wanted, path);
  }

  static verdict alias(const state_value& value, const std::string& wanted,
                       const std::string& path) {
    const auto* own = as<state_alias>(&value);
    if (own != nullptr && own->path == wanted) return std::nullopt;
    return against(form, path, "is not tied to " + wanted + " as in the task");
  }

  verdict map(const state_value& value, const state_list& law, const std::string& path) const {
    const auto* own = as<state_map>(&value);
    if (own == nullptr) return other_kind(value, "a map", path);
    const auto& wanted = part<state_map>(law, 1);
    const auto& optional = part<state_list>(law, 2);
    for (const auto& [key, member] : *own) {
      const state_value* of_key = item(&wanted, key);
      const std::string place = child(path, key_text(key));
      verdict bad = of_key == nullptr ? against(form, place, "the task has no such value")
                                      : look(member, *of_key, place);
      if (bad) return bad;
    }
    for (const auto& entry : wanted) {
      const state_key& key = entry.first;
      if (item(own, key) != nullptr) continue;
      const bool may_be_absent =
          std::any_of(optional.begin(), optional.end(), [&](const auto& one) {
            const auto* whole = as<std::int64_t>(&one);
            const auto* words = as<std::string>(&one);
            return (whole != nullptr && state_key(*whole) == key) ||
                   (words != nullptr && state_key(*words) == key);
          });
      if (may_be_absent) continue;
      verdict bad = against(form, child(path, key_text(key)), "the state does not have it");
      if (bad) return bad;
    }
    return std::nullopt;
  }

  verdict items(const state_list* own, const state_value& value, const state_list& law,
                const std::string& path) const {
    const auto& wanted = part<state_list>(law, 1);
    const std::string count = std::to_string(wanted.size()) + " values";
    if (own == nullptr) return other_kind(value, count, path);
    if (own->size() != wanted.size()) {
      return against(form, path,
                     "the state has " + std::to_string(own->size()) + " values, the task " +
                         std::to_string(wanted.size()));
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (verdict bad = look((*own)[i], wanted[i], child(path, std::to_string(i)))) return bad;
    }
    return std::nullopt;
  }

  verdict each(const state_value& value, const state_list& law, const std::string& path) const {
    const auto* own = as<state_list>(&value);
    if (own == nullptr) return other_kind(value, "a list", path);
    if (law.size() != 2) no_law();
    for (std::size_t i = 0; i < own->size(); ++i) {
      if (verdict bad = look((*own)[i], law[1], child(path, std::to_string(i)))) return bad;
    }
    return std::nullopt;
  }

  verdict all(const state_value& value, const state_list& laws, const std::string& path) const {
    for (const state_value& law : laws) {
      if (verdict bad = look(value, law, path)) return bad;
    }
    return std::nullopt;
  }

  // A value of the right form says best what is wrong with it.
  verdict any(const state_value& value, const state_list& laws, const std::string& path) const {
    verdict worst;
    for (const state_value& law : laws) {
      verdict bad = look(value, law, path);
      if (!bad) return std::nullopt;
      if (!worst || (worst->rule == form && bad->rule == recipe)) worst = std::move(bad);
    }
    if (!worst) no_law();
    return worst;
  }
};

}  // namespace

state_value form_of(const state_value& own) {
  const auto law = [](std::string name, state_list parts) {
    parts.insert(parts.begin(), state_value{std::move(name)});
    return state_value{state_tuple{std::move(parts)}};
  };
  const auto forms = [](const state_list& items) {
    state_list out;
    for (const state_value& one : items) out.push_back(form_of(one));
    return state_value{std::move(out)};
  };
  if (const auto* tensor = as<state_tensor>(&own)) {
    state_list dims;
    for (const std::uint64_t dim : tensor->dims) dims.push_back({static_cast<std::int64_t>(dim)});
    return law("tensor", {{std::string(info(tensor->type).torch_name)}, {std::move(dims)}});
  }
  if (const auto* alias = as<state_alias>(&own)) return law("alias", {{alias->path}});
  if (const auto* list = as<state_list>(&own)) return law("items", {forms(*list)});
  if (const auto* tuple = as<state_tuple>(&own)) return law("tuple", {forms(tuple->items)});
  if (const auto* map = as<state_map>(&own)) {
    state_map members;
    for (const auto& [key, value] : *map) members.push_back({key, form_of(value)});
    return law("map", {{std::move(members)}, {state_list()}});
  }
  if (as<std::monostate>(&own) != nullptr) return law("open", {});
  return law("kind", {{std::string(kind_of(own))}});
}

std::optional<violation> unlawful(const state_value& recorded, const state_value& law) {
  return reader().look(recorded, law, "");
}

}  // namespace potl::checks
