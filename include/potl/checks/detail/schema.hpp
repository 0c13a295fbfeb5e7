// SPDX-License-Identifier: Apache-2.0
// Whether a recorded state is one that the agreed task can be in, without any replay.
//
// Claims: every key, type, dtype and shape of the state is one that the verifier's own build has;
// every value that the recipe fixes (flags, options, rates, counters, scales) is what the agreed
// steps make of it. What the build does not know is a violation like what is missing.
// Assumes: laws that come from the verifier's own build, its job and the audited log.
// Cost: a walk over the tree, and one pass over the tensors that must not be negative.
// Cannot detect: other values of what training changes freely (weights, gradients' averages): that
// is for replays; what `open` laws let through (objects of the user's own).
// Source: soundness.md rule 17, attacks A36 and A37.
//
// Laws are a tree of plain values, so that drivers in any language can write them. A law is a tuple
// that begins with its name:
//   ("is", v)                 exactly this value                                agreed.recipe_state
//   ("near", x, slack)        a float, or a tensor with one element, within slack + 1e-9 |x|
//                                                                               agreed.recipe_state
//   ("finite",)               a float that is finite                            agreed.recipe_state
//   ("count", low, high)      an integer, or a tensor with one whole element    agreed.recipe_state
//   ("not negative",)         no element of a tensor is below zero              agreed.recipe_state
//   ("tensor", dtype, dims)   dims None: any                                    agreed.schema
//   ("kind", name)            none, bool, int, float, number, str or bytes      agreed.schema
//   ("alias", path)           a tensor that is tied to that one                 agreed.schema
//   ("map", {key: law}, [keys that may be absent])                              agreed.schema
//   ("items", [laws]), ("tuple", [laws]), ("each", law)                         agreed.schema
//   ("any", [laws]), ("all", [laws]), ("open",)
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <potl/transcript/state.hpp>

namespace potl::checks {

struct violation {
  std::string_view rule;  ///< agreed.schema or agreed.recipe_state, whichever is in force
  std::string path;       ///< of the value, keys joined by "/"
  std::string reason;

  std::string text() const { return path + ": " + reason; }
};

/// The law of everything that has the form of `own`: its keys, kinds, dtypes, shapes and ties. What
/// is none may become anything.
transcript::state_value form_of(const transcript::state_value& own);

/// The first violation in the order of the tree, of the rules that are in force. Throws usage when
/// the laws are none. Maps within the laws are sorted like those of a state.
std::optional<violation> unlawful(const transcript::state_value& recorded,
                                  const transcript::state_value& law);

}  // namespace potl::checks
