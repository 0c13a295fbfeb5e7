// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/state_distance.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include <potl/numeric/detail/distance.hpp>

#include "checks/state_walk.hpp"

namespace potl::checks {
namespace {

using numeric::norms;
using transcript::state_alias;
using transcript::state_bytes;
using transcript::state_tensor;
using transcript::state_tuple;

enum group : std::size_t { parameters, buffers, optimizer, other, group_count };
constexpr std::array<const char*, group_count> group_names{"parameters", "buffers", "optimizer",
                                                           "other"};

bool begins(std::string_view path, std::string_view with) {
  return path.substr(0, with.size()) == with;
}

group group_of(std::string_view path) {
  if (begins(path, "model/parameters")) return parameters;
  if (begins(path, "model/buffers")) return buffers;
  for (const char* name : {"optimizers", "schedulers", "scaler", "ema"}) {
    if (begins(path, name)) return optimizer;
  }
  return other;
}

// Where rounding may move a tensor that a replay leaves where it was: not in a buffer, and not in a
// parameter that is frozen. They have the same bits on every machine.
bool may_round(const state_value& root, std::string_view path) {
  for (const std::string module : {"model", "ema"}) {
    if (begins(path, module + "/buffers/")) return false;
    const std::string parameters_of = module + "/parameters/";
    if (!begins(path, parameters_of)) continue;
    const auto* part = as<state_map>(item(as<state_map>(&root), state_key(module)));
    const auto* flags = as<state_map>(item(part, state_key(std::string("requires_grad"))));
    const state_key name(std::string(path.substr(parameters_of.size())));
    const auto* trained = as<bool>(item(flags, name));
    return trained == nullptr || *trained;
  }
  return true;
}

// What follows outputs: the lists of samples that were hard and the best step so far, which the
// client's code keeps as it likes; LBFGS's history, which is shorter where it converged a step
// before; what an optimizer has of a parameter from its first gradient on. What no build can make
// is rejected without any replay (schema.hpp).
bool is_free_form(std::string_view path) {
  for (const char* name : {"state/", "model/extra/", "ema/extra/", "optimizers/", "schedulers/"}) {
    if (begins(path, name)) return true;
  }
  return false;
}

struct tensor_sums {
  std::string path;
  norms of;
  double count = 0;
  judged_as judged = judged_as::floats;
};

struct group_sums {
  std::vector<tensor_sums> tensors;
  bool structure_equal = true;
};

constexpr std::string_view where_infinite = " where it is infinite";
constexpr std::string_view how_many = " (how many)";

// Rounding to fewer bits than this is no small matter: within it, a tensor may double in a few
// hundred segments.
bool is_coarse(dtype type) { return numeric::unit_roundoff(type) > 0x1p-12; }

// Without a gradient every machine computes the same of an element, apart from the last bit of one
// in a million where a multiplication and an addition are fused: the root of that share, or so.
constexpr double still_rounding = 0x1p-10;

class walker {
 public:
  walker(std::span<const still_elements> still, std::span<const still_elements> steady) {
    for (const still_elements& one : still) {
      for (const std::string& path : one.paths) still_[path] = &one;
    }
    for (const still_elements& one : steady) steady_[one.paths.front()] = &one;
  }

  void walk(const state_value* start, const state_value& recorded, const state_value& replayed,
            const std::string& path) {
    if (recorded.content.index() != replayed.content.index()) {
      // What torch keeps as a float is judged as one where a prover writes an integer. Client code
      // may begin with an integer.
      const auto there = number_of(recorded), here = number_of(replayed);
      const bool judged = there && here && *there != *here && group_of(path) == optimizer;
      if (!judged) return differ(path);
      const auto before = start == nullptr ? std::nullopt : number_of(*start);
      return compare_floats(path, true, dtype::f64, bytes_of(before ? &*before : nullptr),
                            bytes_of(&*there), bytes_of(&*here));
    }
    if (const auto* map = as<state_map>(&recorded)) {
      const auto& again = *as<state_map>(&replayed);
      compare_maps(as<state_map>(start), *map, again, path);
    } else if (const auto* list = as<state_list>(&recorded)) {
      compare_lists(as<state_list>(start), *list, *as<state_list>(&replayed), path);
    } else if (const auto* tuple = as<state_tuple>(&recorded)) {
      const auto* before = as<state_tuple>(start);
      compare_lists(before == nullptr ? nullptr : &before->items, tuple->items,
                    as<state_tuple>(&replayed)->items, path);
    } else if (const auto* tensor = as<state_tensor>(&recorded)) {
      compare_tensors(as<state_tensor>(start), *tensor, *as<state_tensor>(&replayed), path);
    } else if (const auto* number = as<double>(&recorded)) {
      compare_floats(path, true, dtype::f64, bytes_of(as<double>(start)), bytes_of(number),
                     bytes_of(as<double>(&replayed)));
    } else if (const auto* whole = as<std::int64_t>(&recorded)) {
      turn(path, dtype::i64, bytes_of(as<std::int64_t>(start)), bytes_of(whole),
           bytes_of(as<std::int64_t>(&replayed)));
    } else if (const auto* flag = as<bool>(&recorded)) {
      turn(path, dtype::boolean, bytes_of(as<bool>(start)), bytes_of(flag),
           bytes_of(as<bool>(&replayed)));
    } else if (const auto* bytes = as<state_bytes>(&recorded)) {
      if (bytes->bytes != as<state_bytes>(&replayed)->bytes) differ(path);
    } else if (const auto* alias = as<state_alias>(&recorded)) {
      if (alias->path != as<state_alias>(&replayed)->path) differ(path);
    } else if (!equal_plain(recorded, replayed)) {
      differ(path);
    }
  }

  std::array<group_sums, group_count> groups;

 private:
  void differ(const std::string& path) {
    // A difference above the groups belongs to all of them.
    if (path.empty() || path == "model") {
      for (group_sums& one : groups) one.structure_equal = false;
    } else if (is_free_form(path)) {
      // Such a form follows outputs, as what is no float does, and accuses nobody. Never noise:
      // what another form holds is not compared.
      norms of;
      of.l1 = of.l2 = of.linf = of.excess_l2 = 1;
      of.rounding_only = false;
      groups[group_of(path)].tensors.push_back(
          {path + std::string(its_form), of, 1, judged_as::codes});
    } else {
      groups[group_of(path)].structure_equal = false;
    }
  }

  static bool equal_plain(const state_value& a, const state_value& b) {
    if (const auto* text = as<std::string>(&a)) return *text == *as<std::string>(&b);
    return true;
  }

  void compare_lists(const state_list* start, const state_list& recorded,
                     const state_list& replayed, const std::string& path) {
    if (recorded.size() != replayed.size()) return differ(path);
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      walk(item(start, i), recorded[i], replayed[i], child(path, std::to_string(i)));
    }
  }

  void compare_maps(const state_map* start, const state_map& recorded, const state_map& replayed,
                    const std::string& path) {
    // Keys are sorted: walk both, and charge what only one side has to that key's own group.
    std::size_t i = 0, k = 0;
    while (i < recorded.size() || k < replayed.size()) {
      const bool left =
          k == replayed.size() || (i < recorded.size() && recorded[i].first < replayed[k].first);
      const bool right =
          i == recorded.size() || (k < replayed.size() && replayed[k].first < recorded[i].first);
      if (left) {
        differ(child(path, key_text(recorded[i++].first)));
      } else if (right) {
        differ(child(path, key_text(replayed[k++].first)));
      } else {
        const state_key& key = recorded[i].first;
        walk(item(start, key), recorded[i].second, replayed[k].second, child(path, key_text(key)));
        ++i;
        ++k;
      }
    }
  }

  void compare_tensors(const state_tensor* start, const state_tensor& recorded,
                       const state_tensor& replayed, const std::string& path) {
    if (recorded.type != replayed.type || recorded.dims != replayed.dims ||
        recorded.bytes.size() != replayed.bytes.size()) {
      return differ(path);
    }
    bytes_view before;
    if (start != nullptr && start->type == recorded.type &&
        start->bytes.size() == recorded.bytes.size()) {
      before = start->bytes;
    }
    if (!info(recorded.type).floating) {
      return turn(path, recorded.type, before, recorded.bytes, replayed.bytes);
    }
    compare_floats(path, recorded.dims.empty(), recorded.type, before, recorded.bytes,
                   replayed.bytes);
    if (groups[group_of(path)].tensors.back().of.l2 <= 0) return;
    if (!still_.empty()) compare_still(before, recorded, replayed, path);
    const auto steady = steady_.find(path);
    if (steady == steady_.end()) return;
    const auto parts = masked(*steady->second, before, recorded, replayed);
    if (!parts) return;
    norms off = numeric::tensor_norms(recorded.type, parts->before, parts->there, parts->here);
    if (is_coarse(recorded.type)) off.rounding_only = off.l2 <= 0;
    groups[group_of(path)].tensors.push_back(
        {path + std::string(where_steady), off, parts->count, judged_as::steady});
  }

  struct chosen {
    std::vector<std::uint8_t> before, there, here;
    double count = 0;
  };

  /// The elements that a mask has; nothing: it has none, or is of another shape.
  static std::optional<chosen> masked(const still_elements& of, bytes_view start,
                                      const state_tensor& recorded, const state_tensor& replayed) {
    const std::size_t size = info(recorded.type).size;
    if (of.mask.size() * size != recorded.bytes.size()) return std::nullopt;
    const std::int64_t count = std::count(of.mask.begin(), of.mask.end(), 1);
    if (count == 0) return std::nullopt;
    chosen out;
    out.count = static_cast<double>(count);
    for (auto* part : {&out.before, &out.there, &out.here})
      part->reserve(static_cast<std::size_t>(count) * size);
    for (std::size_t i = 0; i < of.mask.size(); ++i) {
      if (of.mask[i] != 1) continue;
      const auto take = [&](bytes_view from, std::vector<std::uint8_t>& to) {
        const bytes_view one = from.subspan(i * size, size);
        to.insert(to.end(), one.begin(), one.end());
      };
      if (!start.empty()) take(start, out.before);
      take(recorded.bytes, out.there);
      take(replayed.bytes, out.here);
    }
    return out;
  }

  // What no gradient moved has the same bits everywhere, or nearly, and must not share what other
  // elements of its tensor are allowed.
  void compare_still(bytes_view start, const state_tensor& recorded, const state_tensor& replayed,
                     const std::string& path) {
    const still_elements* of = still_of(path);
    const auto parts = of == nullptr ? std::nullopt : masked(*of, start, recorded, replayed);
    if (!parts) return;
    const auto& [before, there, here, count] = *parts;
    norms off = numeric::tensor_norms(recorded.type, before, there, here);
    off.rounding_only = off.excess_l2 <= still_rounding * off.rounding_l2;
    // A machine that fuses a product and a sum rounds an average otherwise in every element and
    // step, and one in half precision hardly ever: there the sum is rounded once more.
    const bool whole = info(recorded.type).size >= sizeof(float);
    if (of->roundings > 0 && whole && !off.rounding_only) {
      const auto times = static_cast<double>(of->roundings);
      off.rounding_only =
          numeric::tensor_norms(recorded.type, before, there, here, times).rounding_only;
    }
    groups[group_of(path)].tensors.push_back(
        {path + std::string(where_still), off, count, judged_as::unmoved});
  }

  const still_elements* still_of(const std::string& path) const {
    const auto whole = still_.find(path);
    if (whole != still_.end()) return whole->second;
    const auto parent = still_.find(path.substr(0, path.rfind('/')));
    return parent == still_.end() ? nullptr : parent->second;
  }

  static std::optional<double> number_of(const state_value& value) {
    if (const auto* real = as<double>(&value)) return *real;
    const auto* whole = as<std::int64_t>(&value);
    return whole == nullptr ? std::nullopt : std::optional(static_cast<double>(*whole));
  }

  template <class Number>
  static bytes_view bytes_of(const Number* value) {
    if (value == nullptr) return {};
    return {reinterpret_cast<const std::uint8_t*>(value), sizeof *value};
  }

  // An infinity comes or goes with the last bit of an output, too, and so do the two numbers of
  // another mask. They are judged like what is no float, and the numbers beside an infinity by
  // themselves.
  void compare_floats(const std::string& path, bool scalar, dtype type, bytes_view start,
                      bytes_view recorded, bytes_view replayed) {
    const std::size_t count = recorded.size() / info(type).size;
    norms of = numeric::tensor_norms(type, start, recorded, replayed);
    if (!of.finite) {
      const auto signs = [type](bytes_view from) {
        return numeric::signs_of_infinities(type, from);
      };
      turn(path + std::string(where_infinite), dtype::i8, signs(start), signs(recorded),
           signs(replayed));
      of = numeric::tensor_norms(type, start, recorded, replayed, 1, true);
    } else if (!of.rounding_only && numeric::is_mask(info(type).size, recorded, replayed)) {
      return turn(path, type, start, recorded, replayed);
    }
    if (is_coarse(type) && of.l2 > 0) of.rounding_only = false;
    const group which = group_of(path);
    const bool alone = scalar && which != parameters;
    groups[which].tensors.push_back(
        {path, of, static_cast<double>(count), alone ? judged_as::alone : judged_as::floats});
  }

  // What is no float turns with an activation next to zero, as where hits or codes are counted,
  // also where the replay leaves it: the best step so far may be a later one elsewhere. How far
  // says nothing of codes, and how many says nothing of a count.
  void turn(const std::string& path, dtype type, bytes_view start, bytes_view recorded,
            bytes_view replayed) {
    if (std::equal(recorded.begin(), recorded.end(), replayed.begin())) return;
    const std::size_t size = info(type).size;
    const norms places = numeric::places(size, start, recorded, replayed);
    const std::size_t elements = recorded.size() / size;
    const auto count = static_cast<double>(elements);
    std::vector<tensor_sums>& tensors = groups[group_of(path)].tensors;
    const norms of = numeric::tensor_norms(type, start, recorded, replayed);
    tensors.push_back({path, of, count, judged_as::codes});
    tensors.push_back({path + std::string(how_many), places, count, judged_as::code_places});
  }

  std::map<std::string, const still_elements*> still_, steady_;
};

group_distance gather(group which, const group_sums& sums, const state_value& replayed_root) {
  group_distance out;
  out.group = group_names[which];
  out.structure_equal = sums.structure_equal;
  const auto square = [](double value) { return value * value; };
  double squares = 0, update = 0, replayed = 0, weight = 0, rounding = 0, excess = 0, dot = 0;
  for (const tensor_sums& tensor : sums.tensors) {
    const norms& of = tensor.of;
    const bool unmoved = tensor.judged == judged_as::unmoved;
    const bool again = unmoved || tensor.judged == judged_as::steady;
    if (!(of.l2 <= 0) || !of.finite || unmoved) {
      const bool moves = !(of.replayed_update_l2 <= 0);
      const bool rounding_only =
          of.rounding_only && (unmoved || moves || may_round(replayed_root, tensor.path));
      out.tensors.push_back({tensor.path, tensor.count, of.l2, of.excess_l2, of.rounding_l2,
                             of.update_l2, of.replayed_update_l2, rounding_only, tensor.judged});
      if (again) continue;  // its elements are among the others
      const double travelled = std::min(of.update_l2, of.replayed_update_l2);
      const double relative = !of.finite          ? std::numeric_limits<double>::quiet_NaN()
                              : of.excess_l2 <= 0 ? 0
                                                  : of.excess_l2 / travelled;
      if (!(relative <= out.worst_relative) && !std::isnan(out.worst_relative)) {
        out.worst_relative = relative;
        out.worst_tensor = tensor.path;
      }
    }
    if (!of.finite) {
      out.finite = false;
    } else if (tensor.judged != judged_as::floats) {
      continue;
    }
    out.l1 += of.l1;
    out.linf = std::isnan(of.linf) || of.linf > out.linf ? of.linf : out.linf;
    squares += square(of.l2);
    update += square(of.update_l2);
    replayed += square(of.replayed_update_l2);
    weight += square(of.weight_l2);
    rounding += square(of.rounding_l2);
    excess += square(of.excess_l2);
    dot += of.dot;
    out.count += tensor.count;
  }
  out.l2 = std::sqrt(squares);
  out.update_l2 = std::sqrt(update);
  out.replayed_update_l2 = std::sqrt(replayed);
  out.weight_l2 = std::sqrt(weight);
  out.rounding_l2 = std::sqrt(rounding);
  out.excess_l2 = std::sqrt(excess);
  const double scale = out.update_l2 * out.replayed_update_l2;
  if (std::isnan(scale)) {
    out.cosine = scale;
  } else if (scale > 0) {
    out.cosine = std::clamp(dot / scale, -1.0, 1.0);
  } else {
    out.cosine = update == replayed ? 1 : 0;
  }
  return out;
}

}  // namespace

std::vector<group_distance> compare_states(const state_value& start, const state_value& recorded,
                                           const state_value& replayed,
                                           std::span<const still_elements> still,
                                           std::span<const still_elements> steady) {
  walker all(still, steady);
  all.walk(&start, recorded, replayed, "");
  std::vector<group_distance> out;
  for (std::size_t i = 0; i < group_count; ++i) {
    out.push_back(gather(static_cast<group>(i), all.groups[i], replayed));
  }
  return out;
}

std::vector<group_distance> compare_next(const state_value& start, const state_value& recorded,
                                         const state_value& replayed) {
  walker all({}, {});
  all.walk(&start, recorded, replayed, "");
  std::vector<group_distance> out;
  for (const group which : {parameters, buffers}) {
    // Of what is counted, the segment alone is judged.
    std::erase_if(all.groups[which].tensors, [](const tensor_sums& one) {
      return is_code(one.judged) && one.path.find(where_infinite) == std::string::npos;
    });
    out.push_back(gather(which, all.groups[which], replayed));
    out.back().group = which == parameters ? "next" : "next_buffers";
    out.back().structure_equal = true;
    for (tensor_distance& one : out.back().tensors) one.path += " a step later";
  }
  return out;
}

}  // namespace potl::checks
