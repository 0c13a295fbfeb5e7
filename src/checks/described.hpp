// SPDX-License-Identifier: Apache-2.0
// How a struct of options with plan and judge becomes a check.
#pragma once

#include <memory>
#include <utility>

#include <potl/checks/check.hpp>

namespace potl::checks::detail {

/// A check whose options are an Options with a field table.
template <class Options>
class check_of : public check {
 public:
  explicit check_of(Options options) : options_(std::move(options)) {}
  const std::string& name() const noexcept override { return name_; }
  json_value options() const override { return options_json(options_); }

 protected:
  const Options options_;

 private:
  const std::string name_{Options::check};
};

/// `make` of a check whose class Check is a check_of<Options>.
template <class Check, class Options>
auto maker() {
  return [](const json_value& from) -> result<check_pointer> {
    auto options = Options::parse(from);
    if (!options) return options.why();
    return check_pointer(std::make_shared<const Check>(std::move(options).value()));
  };
}

}  // namespace potl::checks::detail
