// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <potl/numeric/arithmetic.hpp>

#include "evidence/audit.hpp"

namespace potl::transcript {
namespace {

constexpr std::string_view rule = "transcript.rounding";
constexpr std::string_view withheld = "transcript.withheld";

// A step that binds no log before the challenge could bring any log after it.
void check_bound(const audit_input& in, bool wanted, audit_log& log) {
  for (const auto* list : {&in.run.steps, &in.run.superseded}) {
    for (const step_record& one : *list) {
      if (one.rounding.has_value() == wanted) continue;
      const std::string step = "step " + std::to_string(one.step);
      log.reject(rule,
                 wanted ? step + " binds no rounding log: one that comes now is late"
                        : step + " binds a rounding log, which the job's arithmetic has not",
                 one.step);
    }
  }
}

enum class fullness { enough, short_of, unknown };

result<fullness> look_for(const std::string& path, std::uint64_t wanted) {
  std::error_code failed;
  const std::filesystem::file_status about = std::filesystem::symlink_status(path, failed);
  if (std::filesystem::is_symlink(about)) {
    return error{errc::malformed, path + " is a symbolic link", "put the file itself there"};
  }
  if (about.type() == std::filesystem::file_type::not_found) return fullness::short_of;
  if (failed) return fullness::unknown;
  if (wanted == 0 || about.type() != std::filesystem::file_type::regular) {
    return wanted == 0 ? fullness::enough : fullness::short_of;
  }
  const std::uint64_t there = std::filesystem::file_size(path, failed);
  if (failed) return fullness::unknown;
  return there < wanted ? fullness::short_of : fullness::enough;
}

status check_kept(const std::string& directory, const history& run, audit_log& log) {
  const auto folder = look_for(directory + "/" + std::string(rounding_folder), 0);
  if (!folder) return folder.why();
  for (std::uint64_t branch = 0; branch < run.rounding_bytes.size(); ++branch) {
    const std::uint64_t wanted = run.rounding_bytes[branch];
    if (wanted == 0) continue;
    const std::string name = rounding_entry(branch);
    const auto found = look_for(directory + "/" + name, wanted);
    if (!found) return found.why();
    if (*found == fullness::unknown) {
      log.inconclusive(withheld, name + " cannot be looked up: the system refuses it");
    } else if (*found == fullness::short_of) {
      log.reject(withheld, name + " ends before the rounding logs that its steps bind");
    }
  }
  return unit{};
}

}  // namespace

status audit_rounding(const std::string& directory, const audit_input& in, audit_log& log) {
  const bool wanted = in.agreed.arithmetic == to_string(numeric::arithmetic::log64);
  check_bound(in, wanted, log);
  if (!wanted) return unit{};
  if (status kept = check_kept(directory, in.run, log); !kept) return kept;
  log.pass(rule, "every step binds its rounding log");
  return unit{};
}

}  // namespace potl::transcript
