// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/reach.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <potl/core/rules.hpp>
#include <potl/numeric/detail/distance.hpp>
#include <potl/numeric/detail/finite.hpp>
#include <potl/numeric/detail/squares.hpp>
#include <potl/statistics/displacement.hpp>

#include "checks/judging.hpp"
#include "checks/reach_parts.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

// A rate below this share of the largest lowers no limit further: not every optimizer heeds it.
constexpr double least_rate = 0.01;
// States may gain tensors (optimizers make theirs in the first step, and LBFGS three for each entry
// of its history, of which it keeps 100), but not without end.
constexpr std::size_t tensor_growth = 8, tensor_slack = 512;

using transcript::state;

// What moves, by number, so that paths are kept once.
class part_table {
 public:
  // The parts of a state in the table's order; nothing if there are too many.
  std::optional<std::vector<state_part>> of(const state& from, movements& out) {
    std::vector<state_part> found(out.tensors.size());
    bool too_many = false;
    for_each_part(from, [&](const std::string& path, const state_part& one) {
      const auto known = numbers_.find(path);
      if (known != numbers_.end()) {
        found[known->second] = one;
        return;
      }
      if (one.is_listed && limit_ != 0 && listed_ >= tensor_slack) return;
      listed_ += one.is_listed ? 1 : 0;
      too_many = too_many || (limit_ != 0 && out.tensors.size() >= limit_ + listed_);
      if (too_many) return;
      numbers_[path] = out.tensors.size();
      out.tensors.push_back({path, kind_of(path), elements_of(one)});
      found.push_back(one);
    });
    if (too_many) return std::nullopt;
    if (limit_ == 0) limit_ = tensor_growth * out.tensors.size() + tensor_slack;
    return found;
  }

 private:
  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::size_t limit_ = 0;   // set by the first state, which the job pins
  std::size_t listed_ = 0;  // of them, numbers in lists
};

// What steers steps, by number. What the first state does not have is left out if it is too much:
// lists may grow.
class setting_table {
 public:
  explicit setting_table(movements& out) : out_(out) {}

  /// What changed from the state before, which must still be there.
  std::vector<std::pair<std::size_t, double>> next(const state& now) {
    std::vector<const transcript::state_value*> found(out_.settings.size());
    for_each_setting(now, [&](const std::string& path, const transcript::state_value& value) {
      const auto known = numbers_.find(path);
      if (known != numbers_.end()) {
        found[known->second] = &value;
      } else if (limit_ == 0 || out_.settings.size() < limit_) {
        numbers_[path] = out_.settings.size();
        out_.settings.push_back(path);
        found.push_back(&value);
      }
    });
    if (limit_ == 0) limit_ = tensor_growth * out_.settings.size() + tensor_slack;
    std::vector<std::pair<std::size_t, double>> changed;
    for (std::size_t i = 0; i < old_.size(); ++i) {
      if (old_[i] == nullptr || found[i] == nullptr) continue;
      const double by = change_of(*old_[i], *found[i]);
      if (by > 0) changed.emplace_back(i, by);
    }
    old_ = std::move(found);
    return changed;
  }

  void forget() { old_.clear(); }

 private:
  movements& out_;
  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::vector<const transcript::state_value*> old_;
  std::size_t limit_ = 0;
};

// Sizes of the rates of each stretch, summed over its steps, relative to the largest such sum.
// Rates that follow a metric are the prover's until they are replayed: they only ever tighten,
// against those of the first step.
std::vector<double> relative_rates(const run_view& run, const std::vector<segment>& all) {
  const bool agreed = !run.agreed.rates.empty();
  const transcript::step_record* first = run.step(1);
  const std::size_t groups = agreed             ? run.agreed.rates.front().rates.size()
                             : first != nullptr ? first->rates.size()
                                                : 0;
  std::vector<std::vector<double>> sums(all.size(), std::vector<double>(groups));
  std::vector<double> most(groups);
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (std::uint64_t step = all[s].start + 1; step <= all[s].end; ++step) {
      const transcript::step_record* record = agreed ? nullptr : run.step(step);
      const std::vector<double>* rates = agreed              ? run.agreed.rates_at(step)
                                         : record != nullptr ? &record->rates
                                                             : nullptr;
      for (std::size_t g = 0; g < groups && rates != nullptr && g < rates->size(); ++g) {
        sums[s][g] += std::fabs((*rates)[g]);
      }
    }
    const double steps = static_cast<double>(all[s].end - all[s].start);
    for (std::size_t g = 0; g < groups; ++g) {
      most[g] = std::max(most[g], agreed ? sums[s][g] : std::fabs(first->rates[g]) * steps);
    }
  }
  std::vector<double> out(all.size(), groups == 0 ? 1 : least_rate);
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (std::size_t g = 0; g < groups; ++g) {
      if (!(most[g] > 0)) continue;
      out[s] = std::min(std::max(out[s], sums[s][g] / most[g]), 1.0);
    }
  }
  return out;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Numbers or infinities: who lets one of these move must not hide the others of its tensor.
using what_moved = std::vector<double> movements::stretch::*;

double moved_at(const movements::stretch& one, what_moved of, std::size_t tensor) {
  return tensor < (one.*of).size() ? (one.*of)[tensor] : 0;
}

bool moves(const movements::stretch& one, std::size_t tensor) {
  return moved_at(one, &movements::stretch::moved, tensor) != 0 ||
         moved_at(one, &movements::stretch::came, tensor) != 0 ||
         moved_at(one, &movements::stretch::went, tensor) != 0;
}

// What each tensor usually moves, parameters at the largest rates.
std::vector<double> usual_movements(const movements& from, const std::vector<double>& rates,
                                    usual_of whose, what_moved of) {
  std::vector<double> usual(from.tensors.size());
  std::map<std::string, std::vector<double>> kinds;
  for (std::size_t t = 0; t < from.tensors.size(); ++t) {
    const bool rated = from.tensors[t].kind == "parameters" && of == &movements::stretch::moved;
    std::vector<double> all;
    for (std::size_t s = 0; s < from.stretches.size(); ++s) {
      if (!from.stretches[s].read) continue;
      const bool copied = s == 0 && from.tensors[t].copy_of;
      const double moved = moved_at(from.stretches[s], of, t) / (rated || copied ? rates[s] : 1);
      if (!std::isfinite(moved)) continue;
      all.push_back(moved);
      if (s == 0) usual[t] = moved;
    }
    if (whose == usual_of::all_stretches) usual[t] = std::max(usual[t], median(std::move(all)));
    if (usual[t] > 0) {
      kinds[from.tensors[t].kind].push_back(usual[t] / std::sqrt(from.tensors[t].elements));
    }
  }
  // What seldom moves (layers that thaw, rows of an embedding, a bias in front of a norm) has no
  // measure of its own; others of its kind lend theirs.
  std::map<std::string, double> lent;
  for (auto& [kind, list] : kinds) lent[kind] = median(std::move(list));
  for (std::size_t t = 0; t < from.tensors.size(); ++t) {
    const auto at = lent.find(from.tensors[t].kind);
    if (at == lent.end()) continue;
    usual[t] = std::max(usual[t], at->second * std::sqrt(from.tensors[t].elements));
  }
  // A copy may follow its parameter every few steps alone.
  for (std::size_t t = 0; t < from.tensors.size(); ++t) {
    if (const auto of_parameter = from.tensors[t].copy_of)
      usual[t] = std::max(usual[t], usual[*of_parameter]);
  }
  return usual;
}

bytes_view bytes_of(const state_part& one) {
  return one.tensor == nullptr ? bytes_view() : one.tensor->bytes;
}

// Which tensors of a state are copies of parameters of the one before.
class copied_parameters {
 public:
  copied_parameters(const std::vector<movements::tensor>& tensors,
                    const std::vector<state_part>& old) {
    for (std::size_t p = 0; p < tensors.size(); ++p) {
      if (tensors[p].kind != "parameters" || bytes_of(old[p]).empty()) continue;
      alike_[kind_of(old[p])].push_back({p, &old[p], some_of(old[p])});
    }
  }

  // The parameter that a tensor was copied from, which was not there before, and how far the copy
  // has moved. Its length says nothing of how far it moves, as that of moments does. A copy that
  // has not moved yet says nothing, either.
  std::optional<std::pair<std::size_t, double>> source_of(const state_part& now) const {
    if (bytes_of(now).empty()) return std::nullopt;
    const auto alike = alike_.find(kind_of(now));
    if (alike == alike_.end()) return std::nullopt;
    const dtype type = now.tensor->type;
    const std::vector<std::uint8_t> some = some_of(now);
    double least = numeric::movement(type, {}, some).numbers;
    const parameter* nearest = nullptr;
    for (const parameter& one : alike->second) {
      const double apart = numeric::movement(type, one.some, some).numbers;
      if (!(apart < least)) continue;
      least = apart;
      nearest = &one;
    }
    if (nearest == nullptr) return std::nullopt;
    const bytes_view to = bytes_of(now);
    const double moved = numeric::movement(type, bytes_of(*nearest->part), to).numbers;
    if (!(moved > 0 && moved < numeric::movement(type, {}, to).numbers)) return std::nullopt;
    return std::pair(nearest->tensor, moved);
  }

 private:
  struct parameter {
    std::size_t tensor;
    const state_part* part;
    std::vector<std::uint8_t> some;
  };

  static std::pair<dtype, std::size_t> kind_of(const state_part& one) {
    return {one.tensor->type, bytes_of(one).size()};
  }
  // A few elements from all of a tensor: each copy is compared with each parameter of its size.
  static std::vector<std::uint8_t> some_of(const state_part& one) {
    constexpr std::size_t few = 64;
    const std::size_t size = info(one.tensor->type).size;
    const std::size_t elements = bytes_of(one).size() / size, taken = std::min(few, elements);
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < taken; ++i) {
      const bytes_view element = bytes_of(one).subspan(elements * i / taken * size, size);
      out.insert(out.end(), element.begin(), element.end());
    }
    return out;
  }

  std::map<std::pair<dtype, std::size_t>, std::vector<parameter>> alike_;
};

// Whether a product became larger, which begins at 1. Each step of NAdam makes it smaller, and
// divides by what it lacks to 1.
bool has_grown(const state_part& old, const state_part& now) {
  const auto value = [](const state_part& one) {
    if (one.is_number) return one.number;
    const bool is_there = one.tensor != nullptr && !one.tensor->bytes.empty();
    return is_there ? numeric::first_element(one.tensor->type, one.tensor->bytes) : 1;
  };
  return !(value(now) <= value(old));
}

// First moments beside second ones that no steps made, and products. The next steps would divide by
// these.
std::vector<std::size_t> unmade_in(const movements& out, const std::vector<state_part>& old,
                                   const std::vector<state_part>& now, const decays& kept,
                                   std::uint64_t steps) {
  constexpr std::string_view mean = "exp_avg", mean_kind = "optimizers/exp_avg";
  constexpr std::string_view product_kind = "optimizers/mu_product";
  constexpr std::string_view square = "exp_avg_sq", root = "exp_inf";  // Adam's, Adamax's
  std::map<std::string, std::size_t> divisors;
  for (std::size_t t = 0; t < now.size(); ++t) {
    const std::string& path = out.tensors[t].path;
    for (const std::string_view name : {square, root}) {
      if (!path.ends_with(name)) continue;
      divisors[path.substr(0, path.size() - name.size()) + std::string(mean)] = t;
    }
  }
  std::vector<std::size_t> found;
  for (std::size_t t = 0; t < now.size(); ++t) {
    const auto at = divisors.find(out.tensors[t].path);
    if (out.tensors[t].kind == product_kind && has_grown(old[t], now[t])) found.push_back(t);
    if (out.tensors[t].kind != mean_kind || at == divisors.end()) continue;
    const auto *m = now[t].tensor, *v = now[at->second].tensor;
    if (m == nullptr || v == nullptr || m->type != v->type) continue;
    const std::size_t size = m->bytes.size();
    if (v->bytes.size() != size) continue;
    numeric::moments before{bytes_of(old[t]), bytes_of(old[at->second])};
    if (before.means.size() != size || before.squares.size() != size) before = {};
    const bool are_roots = out.tensors[at->second].path.ends_with(root);
    const numeric::moment_law law = law_for(out.tensors[t].path, kept, are_roots);
    if (numeric::are_no_steps(m->type, before, {m->bytes, v->bytes}, law, steps)) {
      found.push_back(t);
    }
  }
  return found;
}

}  // namespace

std::vector<segment> stretches_of(const run_view& run) {
  std::vector<segment> out;
  std::uint64_t from = 0;
  const std::vector<segment> all = segments_of(run);
  for (std::size_t i = 0; i < all.size() && was_recorded(run, all[i]); ++i) {
    if (!run.agreed.is_checkpoint(all[i].end) && i + 1 != all.size()) continue;
    out.push_back({from, all[i].end});
    from = all[i].end;
  }
  return out;
}

movements measure_movements(std::span<const segment> stretches, const state_loader& load) {
  movements out;
  part_table table;
  setting_table settings(out);
  std::optional<state> before;
  std::vector<state_part> old;
  decays kept;
  const auto open = [&](std::uint64_t step, std::vector<state_part>& tensors) {
    std::optional<state> found;
    if (auto loaded = load(step)) {
      if (auto listed = table.of(loaded.value(), out)) {
        tensors = std::move(*listed);
        found = std::move(loaded).value();
      }
    }
    return found;
  };
  for (const segment& one : stretches) {
    if (out.stretches.empty()) {
      before = open(one.start, old);
      if (before) {
        settings.next(*before);
        kept = decays_of(*before);
      }
    }
    std::vector<state_part> now;
    std::optional<state> after = open(one.end, now);
    movements::stretch next;
    next.where = one;
    next.read = before && after;
    if (!after) settings.forget();
    if (after) next.turned = settings.next(*after);
    if (next.read) {
      old.resize(out.tensors.size());
      now.resize(out.tensors.size());
      std::optional<copied_parameters> made_of;
      if (out.stretches.empty()) made_of.emplace(out.tensors, old);
      for (std::size_t t = 0; t < now.size(); ++t) {
        numeric::moved by = movement_of(old[t], now[t]);
        if (made_of && bytes_of(old[t]).empty()) {
          if (const auto copy = made_of->source_of(now[t])) {
            out.tensors[t].copy_of = copy->first;
            by.numbers = copy->second;
          }
        }
        next.moved.push_back(by.numbers);
        next.came.push_back(by.came);
        next.went.push_back(by.went);
      }
      next.unmade = unmade_in(out, old, now, kept, one.end - one.start);
    }
    out.stretches.push_back(std::move(next));
    before = std::move(after);
    old = std::move(now);
  }
  return out;
}

usual_of usual_by(std::size_t stretches, std::uint64_t pool, std::uint64_t sampled) {
  const auto missed = statistics::unseen(pool, sampled, 0, reach_probability);
  const bool few = missed.units == 0 || 2 * missed.units < stretches;
  return few ? usual_of::all_stretches : usual_of::first_stretch;
}

screening screen(const run_view& run, const movements& moved, usual_of whose) {
  std::vector<segment> all;
  for (const movements::stretch& one : moved.stretches) all.push_back(one.where);
  const std::vector<double> rates = relative_rates(run, all);
  const what_moved numbers = &movements::stretch::moved;
  const std::vector<double> usual = usual_movements(moved, rates, whose, numbers);
  // A mask that closed may open, but an infinity that went, as where no best value was known, may
  // not come again.
  const what_moved came = &movements::stretch::came, went = &movements::stretch::went;
  const std::vector<double> closed = usual_movements(moved, rates, whose, came);
  const std::vector<double> opened = usual_movements(moved, rates, whose, went);
  screening out;
  for (std::size_t s = 0; s < all.size(); ++s) {
    screened next;
    next.where = all[s];
    if (!moved.stretches[s].read) next.ratio = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t t = 0; t < moved.tensors.size() && !std::isnan(next.ratio); ++t) {
      if (usual[t] == 0 && is_option(moved.tensors[t].kind)) continue;
      const double limit = usual[t] * (moved.tensors[t].kind == "parameters" ? rates[s] : 1);
      const double by = moved_at(moved.stretches[s], numbers, t);
      double ratio = by == 0 ? 0 : by / limit;
      if (is_square(moved.tensors[t].kind)) ratio = std::sqrt(ratio);
      const auto look = [&](double some, double most) {
        if (some > 0 && !std::isnan(ratio)) ratio = std::max(ratio, some / most);
      };
      look(moved_at(moved.stretches[s], came, t), closed[t]);
      look(moved_at(moved.stretches[s], went, t), std::max(closed[t], opened[t]));
      if (ratio <= next.ratio) continue;
      next.ratio = ratio;
      next.tensor = moved.tensors[t].path;
    }
    out.stretches.push_back(std::move(next));
  }
  double squares = 0;
  for (std::size_t t = 0; t < usual.size(); ++t) {
    if (moved.tensors[t].kind == "parameters") squares += usual[t] * usual[t];
  }
  out.usual = std::sqrt(squares);
  return out;
}

namespace {

// Whether the schema knows a setting for each step, where the job lists the rates.
bool is_computed(std::string_view path) {
  constexpr std::string_view groups = "/param_groups/", users_own = "state/";
  if (path.starts_with(users_own)) return false;
  const std::size_t at = path.find(groups);
  if (at == path.npos) return true;
  const std::size_t name = path.find('/', at + groups.size()) + 1;
  const std::string_view option = path.substr(name, path.find('/', name) - name);
  return is_of_recipe(option);
}

// Stretches in which something happened that few honest trainings do at all.
void add_seldom(const std::vector<std::size_t>& where, const std::string& path,
                std::vector<screened>& out) {
  const double ratio = 1 / static_cast<double>(where.size());
  for (const std::size_t s : where) {
    if (ratio > out[s].ratio) out[s] = {out[s].where, ratio, path};
  }
}

}  // namespace

std::vector<screened> screen_settings(const run_view& run, const movements& moved) {
  std::vector<screened> out;
  std::vector<std::vector<std::pair<std::size_t, double>>> changes(moved.settings.size());
  for (const movements::stretch& one : moved.stretches) {
    for (const auto& [setting, by] : one.turned) changes[setting].emplace_back(out.size(), by);
    out.push_back({one.where, 0, ""});
  }
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::string& path = moved.settings[i];
    if (!run.agreed.rates.empty() && is_computed(path)) continue;
    std::vector<double> sorted;
    for (const auto& [stretch, by] : changes[i]) sorted.push_back(by);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [stretch, by] : changes[i]) {
      const auto alike = sorted.end() - std::lower_bound(sorted.begin(), sorted.end(), by / 2);
      const double ratio = by / static_cast<double>(alike);
      if (ratio > out[stretch].ratio) out[stretch] = {out[stretch].where, ratio, path};
    }
  }
  // What others of its kind lend a measure to, and nobody trains: frozen weights.
  for (std::size_t t = 0; t < moved.tensors.size(); ++t) {
    if (is_option(moved.tensors[t].kind)) continue;
    std::vector<std::size_t> where, unmade;
    for (std::size_t s = 0; s < out.size(); ++s) {
      const movements::stretch& one = moved.stretches[s];
      if (moves(one, t) && s > 0) where.push_back(s);  // the first one is true
      if (std::binary_search(one.unmade.begin(), one.unmade.end(), t)) unmade.push_back(s);
    }
    add_seldom(unmade, moved.tensors[t].path, out);
    if (where.empty() || 2 * where.size() > out.size()) continue;
    add_seldom(where, moved.tensors[t].path, out);
  }
  return out;
}

namespace {

bool is_covered(const segment& one, std::span<const segment_measurement> measurements) {
  std::uint64_t at = one.start;
  while (at < one.end) {
    std::uint64_t next = at;
    for (const segment_measurement& measured : measurements) {
      const segment_request& asked = measured.request;
      if (asked.superseded || asked.start > at || !looked_at(measured.status)) continue;
      next = std::max(next, asked.end);
    }
    if (next == at) return false;
    at = next;
  }
  return true;
}

}  // namespace

std::vector<segment> what_led_to(const movements& moved, const segment& far) {
  const auto& all = moved.stretches;
  const auto found = std::partition_point(
      all.begin(), all.end(), [&](const auto& one) { return one.where.start < far.start; });
  const auto at = static_cast<std::size_t>(found - all.begin());
  std::set<std::size_t, std::greater<>> led;
  if (at > 0) led.insert(at - 1);
  for (std::size_t t = 0; t < moved.tensors.size() && at < all.size(); ++t) {
    if (!moves(all[at], t)) continue;
    std::size_t last = at;
    while (last > 0 && all[last - 1].read && !moves(all[last - 1], t)) --last;
    if (last > 0) led.insert(last - 1);
  }
  std::vector<segment> out;
  for (const std::size_t s : led) out.push_back(all[s].where);
  return out;
}

finding judge_reach(const run_view& run, double reach, std::uint64_t pool, std::uint64_t sampled,
                    std::span<const segment_measurement> measurements) {
  finding out = make_finding("replay", "replay.reach", outcome::inconclusive, "");
  if (!run.moved) {
    out.reason = "nothing measures how far the stored states lie apart";
    return out;
  }
  const std::vector<segment> stretches = stretches_of(run);
  if (stretches.empty() || !is_covered(stretches.front(), measurements)) {
    out.reason =
        "the way to the first stored state was not replayed, so that nothing says what is "
        "usual in this run";
    return out;
  }
  const auto moved = run.moved();
  const screening seen = screen(run, *moved, usual_by(stretches.size(), pool, sampled));
  const std::vector<segment> all = segments_of(run);
  const auto starting_before = [&](std::uint64_t step) {
    return static_cast<std::uint64_t>(
        std::partition_point(all.begin(), all.end(),
                             [&](const segment& part) { return part.start < step; }) -
        all.begin());
  };
  std::uint64_t beyond = 0, left = 0, room = 0, counted_to = 0;
  double largest = 0;
  const screened* worst = nullptr;
  std::uint64_t last = 0;
  for (const screened& one : seen.stretches) {
    const std::uint64_t before = std::exchange(last, one.where.start);
    if (!is_beyond(one, reach)) {
      largest = std::max(largest, one.ratio);
      continue;
    }
    ++beyond;
    const segment both{before, one.where.end};
    room += starting_before(both.end) - starting_before(std::max(both.start, counted_to));
    counted_to = both.end;
    if (is_covered(both, measurements)) continue;
    ++left;
    if (worst == nullptr || !(one.ratio <= worst->ratio)) worst = &one;
  }
  const std::string times = text(reach) + " times what is usual in this run";
  out.statistic = left == 0 ? largest : worst->ratio;
  out.threshold = reach;
  if (left == 0) {
    out.result = outcome::pass;
    out.reason = text(std::uint64_t{seen.stretches.size()}) +
                 " stored states moved no tensor by more than " + times;
    if (beyond > 0) out.reason += ", or were replayed with what led to them (" + text(beyond) + ")";
  } else {
    out.first_step = worst->where.start + 1;
    out.last_step = worst->where.end;
    out.reason =
        text(left) + " of " + text(std::uint64_t{seen.stretches.size()}) +
        " stored states lie further from the one before than " + times +
        " and were not replayed with what led to them, " +
        (worst->tensor.empty()
             ? std::string("one of them because it cannot be read")
             : "above all " + worst->tensor + " at step " + text(worst->where.end) + " (" +
                   (std::isfinite(worst->ratio) ? text(worst->ratio) + " times"
                                                : "beyond any reach") +
                   ")") +
        ": replay more (samples=" + text(room) + " makes room for all" +
        (std::isfinite(worst->ratio) ? "), or allow more (reach=) where honest trainings move so"
                                     : "; no reach= does)");
  }
  out.details = {{"stretches", std::uint64_t{seen.stretches.size()}},
                 {"beyond", beyond},
                 {"limit", reach * seen.usual}};
  const auto travelled = run.parameter_distance(0, run.last_step());
  if (travelled) out.details.emplace_back("travelled", travelled.value());
  return out;
}

}  // namespace potl::checks
