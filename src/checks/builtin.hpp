// SPDX-License-Identifier: Apache-2.0
// What the registry holds from the start. Each is described beside its judge.
#pragma once

#include <potl/checks/check.hpp>

namespace potl::checks::builtin {

check_info transcript();
check_info telemetry();
check_info pev();
check_info replay();
check_info spot_check();
check_info extra_task();
check_info model();
check_info verifier();

}  // namespace potl::checks::builtin
