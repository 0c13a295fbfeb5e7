// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bindings.hpp"

namespace potl::python {

/// The part of bind_checks that is about the extra task.
void bind_extra_task(py::module_& module);

}  // namespace potl::python
