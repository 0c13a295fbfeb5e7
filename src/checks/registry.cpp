// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include <potl/checks/check.hpp>

#include "checks/builtin.hpp"

namespace potl::checks {
namespace {

struct registry {
  std::shared_mutex mutex;
  std::vector<info_pointer> checks;
  std::size_t own = 0;  ///< the first ones, which nobody replaces

  registry() {
    for (auto describe_one :
         {&builtin::transcript, &builtin::telemetry, &builtin::pev, &builtin::replay,
          &builtin::spot_check, &builtin::extra_task, &builtin::model, &builtin::verifier}) {
      checks.push_back(std::make_shared<const check_info>(describe_one()));
    }
    own = checks.size();
  }

  auto find(std::string_view name) {
    return std::find_if(checks.begin(), checks.end(),
                        [&](const info_pointer& one) { return one->name == name; });
  }
};

registry& all() {
  // Never destroyed: what it holds of other languages may outlive them.
  static registry& out = *new registry;
  return out;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.front() >= 'a' && text.front() <= 'z' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

}  // namespace

void register_check(check_info info) {
  if (!is_name(info.name)) {
    throw exception({errc::usage, "\"" + info.name + "\" is not a name of a check",
                     "use lower case letters, digits and underscores"});
  }
  registry& known = all();
  const std::unique_lock lock(known.mutex);
  const auto at = known.find(info.name);
  if (at < known.checks.begin() + static_cast<std::ptrdiff_t>(known.own)) {
    throw exception(
        {errc::usage, "potl has a check \"" + info.name + "\" of its own", "choose another name"});
  }
  auto added = std::make_shared<const check_info>(std::move(info));
  if (at == known.checks.end()) {
    known.checks.push_back(std::move(added));
  } else {
    *at = std::move(added);
  }
}

info_pointer find_check(std::string_view name) {
  registry& known = all();
  const std::shared_lock lock(known.mutex);
  const auto at = known.find(name);
  return at == known.checks.end() ? nullptr : *at;
}

std::vector<info_pointer> registered_checks() {
  registry& known = all();
  const std::shared_lock lock(known.mutex);
  return known.checks;
}

result<check_pointer> make_check(std::string_view name, const json_value& options) {
  const info_pointer info = find_check(name);
  if (info != nullptr && info->make) return info->make(options);
  std::string known;
  for (const info_pointer& one : registered_checks()) {
    if (one->make) known += (known.empty() ? "" : ", ") + one->name;
  }
  return error{errc::usage, "there is no check \"" + std::string(name) + "\"",
               "checks are " + known};
}

}  // namespace potl::checks
