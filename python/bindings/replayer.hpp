// SPDX-License-Identifier: Apache-2.0
// A session of Python's as the workload of a replayer.
#pragma once

#include "values.hpp"

namespace potl::checks {
class replayer;
}

namespace potl::python {

/// What `measure` of a Python request gives when a replayer answers it.
shared_object answered(const shared_object& request, checks::replayer& with);

void bind_replayer(py::module_& module);

}  // namespace potl::python
