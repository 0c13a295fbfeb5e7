// SPDX-License-Identifier: Apache-2.0
// Which tensors of a state are copies or averages of a parameter: where it had no gradient, every
// machine computes the same of them, too. The verifier's own first states tell, whoever keeps the
// copy and wherever: `ema=`, a second module, buffers, objects of `state=`.
//
// Claims and what cannot be seen: see numeric/detail/averages.hpp. What starts with one number
// everywhere may be a copy of several parameters. What a step after the second makes is not seen.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// The path of each copy, with those of the parameters that it may be of.
using copies = std::map<std::string, std::vector<std::string>>;

/// `states`: the initial one, and those after each of the first steps. `places`: of each parameter
/// that an optimizer steps, the paths of what belongs to it, as in still_elements; the first is
/// what the optimizer keeps.
copies copies_of(std::span<const transcript::state> states,
                 std::span<const std::vector<std::string>> places);

/// `still`, with the copies of its parameters. An element of a copy that may be of several counts
/// if none of these had a gradient there. `roundings`: how often an average was taken.
std::vector<still_elements> with_copies(std::vector<still_elements> still, const copies& all,
                                        std::uint64_t roundings);

}  // namespace potl::checks
