// SPDX-License-Identifier: Apache-2.0
// What of a state reach compares: tensors of any type, single numbers that a module's extra state,
// an optimizer or an average holds, and settings.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <potl/numeric/detail/distance.hpp>
#include <potl/numeric/detail/squares.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// A tensor, a number, or nothing.
struct state_part {
  const transcript::state_tensor* tensor = nullptr;
  bool is_number = false;
  double number = 0;
  bool is_listed = false;  ///< in a list: it may come and go
};

/// Visits every part of a state that is screened. Not what schedulers and the scaler hold, nor
/// learning rates, which the schema computes, nor lists, which may grow. Of a list in an option,
/// the sum of its numbers' sizes, and these.
void for_each_part(const transcript::state& from,
                   const std::function<void(const std::string& path, const state_part&)>& visit);

/// The same for parts that play the same role: "parameters", "buffers/running_mean", ...
std::string kind_of(const std::string& path);

/// Whether it is one of an optimizer's options. Those that only a schedule changes stand still for
/// most of a run and then jump: they are the schema's.
bool is_option(std::string_view kind);

/// Whether an option has a name that the schema knows as a setting of the recipe.
bool is_of_recipe(std::string_view option);

/// Whether an optimizer's tensor adds up squares of gradients. It is measured by its root:
/// gradients that grow tenfold within a training are common, and their squares grow a hundredfold.
bool is_square(std::string_view kind);

double elements_of(const state_part& one);

/// How far a part moved; NaN where that cannot be said. One that is not there is zero.
numeric::moved movement_of(const state_part& before, const state_part& after);

/// Visits what steers steps and moves with none of them: options and rates of optimizers, flags of
/// modules, what schedulers, the scaler and objects of the user's own hold. A container comes
/// before what it holds: by its size, and where it takes the place of a value, it is a setting,
/// too.
void for_each_setting(const transcript::state& from,
                      const std::function<void(const std::string& path,
                                               const transcript::state_value& value)>& visit);

/// `betas` of an optimizer's groups, by the optimizer's path.
using decays = std::map<std::string, std::vector<std::pair<double, double>>>;

/// What optimizers keep of their averages in a step.
decays decays_of(const transcript::state& from);

/// What steps can make of the moments at this path, in any group of the optimizer. Without `betas`
/// the loosest usual ones count.
numeric::moment_law law_for(const std::string& path, const decays& kept, bool are_roots);

/// How much a setting changed, relative to its size: 0 to 2.
double change_of(const transcript::state_value& before, const transcript::state_value& after);

}  // namespace potl::checks
