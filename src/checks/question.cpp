// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/question.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "checks/judging.hpp"

namespace potl::checks {
namespace {

bool same(const question& one, const question& other) {
  return one.check->name() == other.check->name() && one.nonce == other.nonce &&
         one.check->options() == other.check->options();
}

}  // namespace

std::vector<question> with_earlier(std::vector<question> asked,
                                   const transcript::ledger_memory& known,
                                   std::vector<std::string>* unknown) {
  std::vector<question> out = asked;
  for (const transcript::ledger_challenge& old : known.challenges) {
    for (const auto& [name, options] : old.checks) {
      const info_pointer info = find_check(name);
      if (info == nullptr || !info->make) {
        if (unknown != nullptr) unknown->push_back(name);
        continue;
      }
      const question then{info->make(options).value(), old.nonce, true, {}};
      const bool repeated = std::any_of(asked.begin(), asked.end(),
                                        [&](const question& one) { return same(one, then); });
      if (repeated) continue;
      check_pointer joined;
      for (question& one : out) {
        if (one.check->name() != name) continue;
        joined = one.check->joined_by(*then.check, then.nonce);
        if (joined) one.check = joined;
        break;
      }
      if (!joined) out.push_back(then);
    }
  }
  return out;
}

std::vector<question> planned(std::vector<question> asked, const run_view& run, bool rejected) {
  std::vector<question> out;
  std::set<std::string> keys;
  for (question& one : asked) {
    const info_pointer info = find_check(one.check->name());
    if (rejected && (info == nullptr || info->asks)) continue;
    one.plan = one.check->plan(run, one.nonce).value();
    bool more = !one.earlier;
    for (const request& each : one.plan) more = keys.insert(each.key()).second || more;
    if (more) out.push_back(std::move(one));
  }
  return out;
}

std::vector<request> distinct_requests(std::span<const question> questions) {
  std::vector<request> out;
  std::set<std::string> keys;
  for (const question& one : questions) {
    for (const request& each : one.plan) {
      if (keys.insert(each.key()).second) out.push_back(each);
    }
  }
  // A state that is derived comes of the one before it, so that the end decides: what is trained
  // towards a state, short ways first, then what only looks at it.
  std::stable_sort(out.begin(), out.end(), [](const request& a, const request& b) {
    const auto place = [](const request& one) {
      return std::tuple(one.from_step() + one.steps(), one.steps() == 0, one.steps());
    };
    return place(a) < place(b);
  });
  return out;
}

bool settles(std::span<const question> questions, const run_view& run, const measurement& one) {
  if (one.status() == measured::verifier_error || one.status() == measured::unrepeatable) {
    return false;
  }
  const bool differs = run.agreed.is_exact() && one.differs();
  if (one.status() == measured::ok && one.not_finite().empty() && !differs) return false;
  const std::string key = one.request().key();
  for (const question& each : questions) {
    for (const request& own : each.plan) {
      if (own.key() != key) continue;
      const measurement answer = one.answering(own);
      const auto found = each.check->judge(run, each.nonce, {&answer, 1}).value();
      const bool rejects = std::any_of(found.begin(), found.end(), [](const finding& what) {
        return what.result == outcome::reject;
      });
      if (rejects) return true;
    }
  }
  return false;
}

std::vector<measurement> answers_to(const question& one, const run_view& run,
                                    std::span<const measurement> all, const answering& more) {
  std::map<std::string, const measurement*> known;
  for (const measurement& each : all) known.emplace(each.request().key(), &each);
  std::vector<measurement> out;
  for (const request& each : one.plan) {
    const auto at = known.find(each.key());
    if (at != known.end()) out.push_back(at->second->answering(each));
  }
  if (out.size() < one.plan.size()) return out;  // what was seen rejects the run already
  const std::vector<request> again = one.check->plan_again(run, out).value();
  if (again.empty()) return out;
  for (const measurement& better : more(again)) {
    const std::string place = better.request().place();
    for (measurement& each : out) {
      if (each.request().place() == place) each = better;
    }
  }
  return out;
}

std::vector<finding> judged(const question& one, const run_view& run,
                            std::span<const measurement> answers) {
  std::vector<finding> out = one.check->judge(run, one.nonce, answers).value();
  if (out.empty()) {
    const std::string name = one.check->name();
    out.push_back(make_finding(name, name + ".judged", outcome::inconclusive,
                               "the check " + name + " says nothing about what it looked at"));
  }
  return out;
}

}  // namespace potl::checks
