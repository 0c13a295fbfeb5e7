// SPDX-License-Identifier: Apache-2.0
#include "checks/reach_parts.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <potl/checks/detail/reach.hpp>
#include <potl/numeric/detail/distance.hpp>

#include "checks/state_walk.hpp"

namespace potl::checks {
namespace {

using transcript::state_tuple;
using visitor = std::function<void(const std::string& path, const state_part&)>;

constexpr std::string_view options_kind = "options/";

const state_value* member(const state_value* of, const char* name) {
  return item(as<state_map>(of), std::string(name));
}

bool visit_number(const state_value& value, const std::string& path, const visitor& visit) {
  state_part out;
  out.is_number = true;
  if (const auto* flag = as<bool>(&value)) {
    out.number = *flag ? 1 : 0;
  } else if (const auto* whole = as<std::int64_t>(&value)) {
    out.number = static_cast<double>(*whole);
  } else if (const auto* real = as<double>(&value)) {
    out.number = *real;
  } else {
    return false;
  }
  visit(path, out);
  return true;
}

void visit_numbers(const state_value* value, const std::string& path, const visitor& visit) {
  if (value == nullptr || visit_number(*value, path, visit)) return;
  if (const auto* map = as<state_map>(value)) {
    for (const auto& [key, inner] : *map) {
      const bool whole = std::holds_alternative<std::int64_t>(key);  // as in a tensor's path
      visit_numbers(&inner, child(path, (whole ? "#" : "") + key_text(key)), visit);
    }
  } else if (const auto* tuple = as<state_tuple>(value)) {
    for (std::size_t i = 0; i < tuple->items.size(); ++i) {
      visit_numbers(&tuple->items[i], child(path, std::to_string(i)), visit);
    }
  }
}

std::optional<double> number_of(const state_value& value) {
  std::optional<double> out;
  visit_number(value, "", [&](const std::string&, const state_part& one) { out = one.number; });
  return out;
}

// Of all numbers in a value. Squares would hide a small one behind a counter.
double sum_of_sizes(const state_value& value) {
  double out = 0;
  const auto add = [&](const state_value& inner) { out += sum_of_sizes(inner); };
  if (const auto* map = as<state_map>(&value)) {
    for (const auto& entry : *map) add(entry.second);
  } else if (const auto* list = as<state_list>(&value)) {
    std::for_each(list->begin(), list->end(), add);
  } else if (const auto* tuple = as<state_tuple>(&value)) {
    std::for_each(tuple->items.begin(), tuple->items.end(), add);
  } else {
    return std::fabs(number_of(value).value_or(0));
  }
  return out;
}

// Lists may grow and shift: the sum tells of what comes and goes, and what stays is looked at one
// by one, because in a sum numbers may change places, and hide behind an infinity.
void visit_option(const state_value& value, const std::string& path, bool is_listed,
                  const visitor& visit) {
  const auto each = [&](const state_value& inner, const std::string& name, bool listed) {
    visit_option(inner, name, is_listed || listed, visit);
  };
  if (const auto* map = as<state_map>(&value)) {
    for (const auto& [key, inner] : *map) {
      const bool whole = std::holds_alternative<std::int64_t>(key);  // as in a tensor's path
      each(inner, child(path, (whole ? "#" : "") + key_text(key)), false);
    }
  } else if (const auto* tuple = as<state_tuple>(&value)) {
    for (std::size_t i = 0; i < tuple->items.size(); ++i)
      each(tuple->items[i], child(path, std::to_string(i)), false);
  } else if (const auto* list = as<state_list>(&value)) {
    visit(path, {nullptr, true, sum_of_sizes(value), is_listed});
    for (std::size_t i = 0; i < list->size(); ++i)  // others of that place lend no measure
      each((*list)[i], path + "#" + std::to_string(i), true);
  } else {
    visit_number(value, path, [&](const std::string& where, state_part one) {
      one.is_listed = is_listed;
      visit(where, one);
    });
  }
}

void visit_optimizer(const state_value& of, const std::string& path, const visitor& visit) {
  visit_numbers(member(&of, "state"), path + "/state", visit);
  const auto* groups = as<state_list>(member(&of, "param_groups"));
  for (std::size_t i = 0; groups != nullptr && i < groups->size(); ++i) {
    const auto* options = as<state_map>(&(*groups)[i]);
    if (options == nullptr) continue;
    const std::string group = path + "/param_groups/" + std::to_string(i);
    for (const auto& [key, value] : *options) {
      const std::string name = key_text(key);
      if (name == "lr" || visit_number(value, child(group, name), visit)) continue;
      // What is the recipe's is computed for each step.
      if (is_of_recipe(name)) continue;
      visit_option(value, child(group, name), false, visit);
    }
  }
}

using setting_visitor = std::function<void(const std::string& path, const state_value&)>;

void visit_settings(const state_value* value, const std::string& path,
                    const setting_visitor& visit) {
  if (value == nullptr) return;
  visit(path, *value);
  const auto each = [&](const state_list& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      visit_settings(&items[i], child(path, std::to_string(i)), visit);
    }
  };
  if (const auto* map = as<state_map>(value)) {
    for (const auto& [key, inner] : *map) visit_settings(&inner, child(path, key_text(key)), visit);
  } else if (const auto* list = as<state_list>(value)) {
    each(*list);
  } else if (const auto* tuple = as<state_tuple>(value)) {
    each(tuple->items);
  }
}

// How many values a container holds.
std::optional<double> size_of(const state_value& value) {
  const auto of = [](const auto& all) { return static_cast<double>(all.size()); };
  if (const auto* map = as<state_map>(&value)) return of(*map);
  if (const auto* list = as<state_list>(&value)) return of(*list);
  if (const auto* tuple = as<state_tuple>(&value)) return of(tuple->items);
  return std::nullopt;
}

}  // namespace

void for_each_part(const transcript::state& from, const visitor& visit) {
  for (const transcript::state_tensor* one : from.tensors()) {
    if (!kind_of(one->path).empty()) visit(one->path, {one, false, 0});
  }
  const state_value& root = from.root();
  visit_numbers(member(member(&root, "model"), "extra"), "model/extra", visit);
  const state_value* average = member(&root, "ema");
  const bool is_module = member(average, "parameters") != nullptr;
  visit_numbers(is_module ? member(average, "extra") : average, is_module ? "ema/extra" : "ema",
                visit);
  const auto* optimizers = as<state_list>(member(&root, "optimizers"));
  for (std::size_t i = 0; optimizers != nullptr && i < optimizers->size(); ++i) {
    visit_optimizer((*optimizers)[i], "optimizers/" + std::to_string(i), visit);
  }
}

void for_each_setting(const transcript::state& from, const setting_visitor& visit) {
  const state_value& root = from.root();
  for (const char* module : {"model", "ema"}) {
    for (const char* flags : {"requires_grad", "training"}) {
      const std::string path = child(module, flags);
      visit_settings(member(member(&root, module), flags), path, visit);
    }
  }
  const auto* optimizers = as<state_list>(member(&root, "optimizers"));
  for (std::size_t i = 0; optimizers != nullptr && i < optimizers->size(); ++i) {
    const std::string path = "optimizers/" + std::to_string(i) + "/param_groups";
    visit_settings(member(&(*optimizers)[i], "param_groups"), path, visit);
  }
  for (const char* part : {"schedulers", "scaler", "state"}) {
    visit_settings(member(&root, part), part, visit);
  }
}

decays decays_of(const transcript::state& from) {
  decays out;
  const auto* optimizers = as<state_list>(member(&from.root(), "optimizers"));
  for (std::size_t i = 0; optimizers != nullptr && i < optimizers->size(); ++i) {
    const auto* groups = as<state_list>(member(&(*optimizers)[i], "param_groups"));
    for (std::size_t g = 0; groups != nullptr && g < groups->size(); ++g) {
      std::vector<double> pair;
      visit_settings(member(&(*groups)[g], "betas"), "",
                     [&](const std::string&, const state_value& value) {
                       if (size_of(value)) return;
                       pair.push_back(number_of(value).value_or(std::nan("")));
                     });
      if (pair.size() < 2) continue;
      out["optimizers/" + std::to_string(i)].emplace_back(pair[0], pair[1]);
    }
  }
  return out;
}

numeric::moment_law law_for(const std::string& path, const decays& kept, bool are_roots) {
  constexpr double one_gradient = 0, ten_thousand = 1 - 1e-4;
  const auto at = kept.find(path.substr(0, path.find("/state/")));
  if (at == kept.end()) {
    numeric::moment_law usual = numeric::law_of_moments(one_gradient, ten_thousand, are_roots);
    usual.kept = 0;
    return usual;
  }
  numeric::moment_law out{0, 1, 1, are_roots};
  for (const auto& [mean_share, square_share] : at->second) {
    const numeric::moment_law one = numeric::law_of_moments(mean_share, square_share, are_roots);
    out.most = std::max(out.most, one.most);
    out.kept = std::min(out.kept, one.kept);
    out.added = std::min(out.added, one.added);
  }
  return out;
}

double change_of(const state_value& before, const state_value& after) {
  const auto relative = [](double by, double a, double b) {
    const double out = by == 0 ? 0 : by / std::max(std::fabs(a), std::fabs(b));
    return std::isfinite(out) ? out : 1;
  };
  const auto a = number_of(before), b = number_of(after);
  if (a && b) {
    const bool equal = *a == *b || (std::isnan(*a) && std::isnan(*b));
    return equal ? 0 : relative(std::fabs(*a - *b), *a, *b);
  }
  if (before.content.index() != after.content.index()) return 1;
  if (const auto held = size_of(before)) {
    const double holds = *size_of(after);
    return relative(std::fabs(*held - holds), *held, holds);
  }
  if (const auto* text = as<std::string>(&before)) return *text == *as<std::string>(&after) ? 0 : 1;
  const auto *old = as<transcript::state_tensor>(&before),
             *now = as<transcript::state_tensor>(&after);
  if (old == nullptr) return 0;
  const numeric::moved by = movement_of({old, false, 0}, {now, false, 0});
  if (by.came > 0 || by.went > 0) return 1;
  return relative(by.numbers, numeric::movement(old->type, {}, old->bytes).numbers,
                  numeric::movement(now->type, {}, now->bytes).numbers);
}

std::string kind_of(const std::string& path) {
  const auto begins = [&](std::string_view with) {
    return std::string_view(path).substr(0, with.size()) == with;
  };
  const std::string last = path.substr(path.find_last_of("/.") + 1);
  if (begins("model/parameters/")) return "parameters";
  if (begins("model/buffers/")) return "buffers/" + last;
  if (begins("model/extra/")) return "extra/" + last;
  if (begins("optimizers/")) {
    const bool option = path.find("/param_groups/") != std::string::npos;
    if (option && last == "lr") return {};
    return (option ? std::string(options_kind) : "optimizers/") + last;
  }
  if (begins("ema/")) return "ema";
  return {};
}

bool is_option(std::string_view kind) {
  return kind.substr(0, options_kind.size()) == options_kind;
}

bool is_of_recipe(std::string_view option) {
  return std::find(options_of_recipes.begin(), options_of_recipes.end(), option) !=
         options_of_recipes.end();
}

bool is_square(std::string_view kind) {
  constexpr std::string_view of_optimizers = "optimizers/";
  return kind.starts_with(of_optimizers) &&
         std::find(sums_of_squares.begin(), sums_of_squares.end(),
                   kind.substr(of_optimizers.size())) != sums_of_squares.end();
}

double elements_of(const state_part& one) {
  if (one.tensor == nullptr) return 1;
  const std::size_t count = one.tensor->bytes.size() / info(one.tensor->type).size;
  return static_cast<double>(count);
}

numeric::moved movement_of(const state_part& before, const state_part& after) {
  const numeric::moved unknown{std::nan("")};
  if (before.is_listed != after.is_listed) return {};  // it came or went
  if (before.is_number || after.is_number) {
    // A number that has become a tensor is another thing.
    if (before.tensor != nullptr || after.tensor != nullptr) return unknown;
    const bool equal =
        after.number == before.number || (std::isnan(after.number) && std::isnan(before.number));
    const double by = equal ? 0 : std::fabs(after.number - before.number);
    return by < numeric::furthest ? numeric::moved{by} : unknown;
  }
  const auto *old = before.tensor, *now = after.tensor;
  if (old == nullptr && now == nullptr) return {};
  if (old == nullptr) return numeric::movement(now->type, {}, now->bytes);
  if (now == nullptr) return numeric::movement(old->type, old->bytes, {});
  if (old->type != now->type || old->bytes.size() != now->bytes.size()) return unknown;
  return numeric::movement(old->type, old->bytes, now->bytes);
}

}  // namespace potl::checks
