// SPDX-License-Identifier: Apache-2.0
// A gather whose lanes are rows of weights (channels of the result), where the rows of a tile are
// neighbouring results of a line: short lines and strides waste no lanes, the window is read as it
// is, and the weights of some rows are copied just before they are used. In ord32.
#pragma once

#include "gather.hpp"

namespace potl::numeric::conv {

/// Whether run_lines() is the faster way.
bool has_lines(const gather& what, const kernels& with);
/// run() of gather.hpp.
void run_lines(const gather& what, const kernels& with, const executor& threads);

}  // namespace potl::numeric::conv
