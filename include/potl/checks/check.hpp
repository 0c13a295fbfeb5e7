// SPDX-License-Identifier: Apache-2.0
// A check is one registered thing: its name, options, requests and judge, how much its findings
// weigh, and what it cannot see. Whatever lists, plans, judges or describes checks goes through
// the registry here: the driver, the policy, the report, the bindings, Python, the command line
// and the tables in docs/. docs/guide/adding_a_check.md walks through one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <potl/checks/field.hpp>
#include <potl/checks/request.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/core/finding.hpp>
#include <potl/core/result.hpp>
#include <potl/encoding/json.hpp>

namespace potl::checks {

class check;
using check_pointer = std::shared_ptr<const check>;

/// What is known of a check before it has options. The verifier's own audits, which nobody
/// chooses, are described in the same way: "transcript", "model", "verifier".
struct check_info {
  std::string name;  ///< in options, flags, findings and reports: lower case and underscores
  /// For the report, e.g. "losses of drawn batches, computed again"; empty: speaks for itself.
  std::string looks_at;
  /// Whether its findings may reject; if not, what fails is a note that says "suspicious".
  bool may_reject = true;
  /// Whether what of it is inconclusive stands in the way of acceptance.
  bool is_needed = true;
  /// Whether it asks anything of a workload. What does not is judged for rejected runs, too.
  bool asks = true;
  /// Which of two rejections a reader should hear first: the smaller one.
  int rank = 5;
  std::vector<std::string> cannot_see;  ///< sentences for the report
  std::vector<field_info> options;      ///< with defaults
  std::string cost;                     ///< a sentence for docs and --help
  /// The check with these options; usage names what is wrong with them. Null: a driver in another
  /// language asks and judges it, or nobody chooses it.
  std::function<result<check_pointer>(const json_value& options)> make;
};

/// A check with its options.
class check {
 public:
  virtual ~check() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual json_value options() const = 0;

  /// What it asks of a workload, drawn by the nonce.
  virtual result<std::vector<request>> plan(const run_view& /*run*/,
                                            const digest& /*nonce*/) const {
    return std::vector<request>{};
  }
  /// What must be asked once more, in greater detail, before it judges. The answers replace those
  /// of the same place.
  virtual result<std::vector<request>> plan_again(const run_view& /*run*/,
                                                  std::span<const measurement> /*seen*/) const {
    return std::vector<request>{};
  }
  /// What the answers amount to. A request without an answer is inconclusive.
  virtual result<std::vector<finding>> judge(const run_view& run, const digest& nonce,
                                             std::span<const measurement> answers) const = 0;
  /// This check joined by what `earlier` drew under `nonce`, so that all is judged once; null: an
  /// earlier one is asked and judged beside it.
  virtual check_pointer joined_by(const check& /*earlier*/, const digest& /*nonce*/) const {
    return nullptr;
  }
};

/// What is registered of a check; it stays as it is while somebody holds it.
using info_pointer = std::shared_ptr<const check_info>;

/// Adds a check to those that can be named; one that is not the library's own replaces an earlier
/// one of its name. Throws usage when the name is none, or the library's own.
void register_check(check_info info);

/// Null: no check has this name.
info_pointer find_check(std::string_view name);

/// Of all checks, the library's own first.
std::vector<info_pointer> registered_checks();

/// The check of that name with these options. usage: there is none, or its options are wrong.
result<check_pointer> make_check(std::string_view name, const json_value& options);

/// The options of a struct with a field table as JSON, e.g. for check::options.
template <class Options>
json_value options_json(const Options& options) {
  json_value out = json_value::of({});
  for (const field_info& row : describe(Options::fields(), options)) out.set(row.name, row.value);
  return out;
}

/// The measurements of one kind among others, in order.
template <class Measurement>
std::vector<Measurement> of_kind(std::span<const measurement> all) {
  std::vector<Measurement> out;
  for (const measurement& one : all) {
    if (const auto* found = one.get_if<Measurement>()) out.push_back(*found);
  }
  return out;
}

}  // namespace potl::checks
