// SPDX-License-Identifier: Apache-2.0
// Between Python dicts and the value types of checks.
#pragma once

#include <vector>

#include <potl/checks/request.hpp>
#include <potl/core/finding.hpp>
#include <potl/transcript/json.hpp>

#include "bindings.hpp"
#include "finding.hpp"

namespace potl::python {

finding finding_of(const py::dict& from);
std::vector<finding> findings_of(const py::iterable& list);

py::dict dict_of(const checks::segment_request& request);
py::dict dict_of(const checks::loss_request& request);
py::dict dict_of(const checks::subset_loss_request& request);
py::dict dict_of(const checks::group_distance& distance);

/// Measurements of all three kinds, sorted by the "kind" of their request.
struct measurements {
  std::vector<checks::segment_measurement> segments;
  std::vector<checks::loss_measurement> losses;
  std::vector<checks::subset_loss_measurement> subsets;
};
measurements measurements_of(const py::iterable& list);

}  // namespace potl::python
