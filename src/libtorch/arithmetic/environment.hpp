// SPDX-License-Identifier: Apache-2.0
// The floating-point environment of the threads that compute under a guard.
#pragma once

namespace potl::libtorch::dispatch {

/// Tests this thread and every worker of torch's pool (executor.cpp); refuses, with the cause, when
/// one of them is not IEEE's. Control registers belong to threads: a worker that was started while
/// a library had flush-to-zero set keeps it.
void require_ieee();

}  // namespace potl::libtorch::dispatch
