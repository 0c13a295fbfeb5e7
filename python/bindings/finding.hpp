// SPDX-License-Identifier: Apache-2.0
// Findings as Python dictionaries: the fields of core/finding.hpp; "result" is the outcome by name.
#pragma once

#include <vector>

#include <potl/core/finding.hpp>

#include "bindings.hpp"

namespace potl::python {

py::dict to_python(const finding& one);
py::list to_python(const std::vector<finding>& findings);

}  // namespace potl::python
