# SPDX-License-Identifier: Apache-2.0
# Sourced: the C++ sources of the checkout, tests included.
cpp_sources() {
  find include src python/bindings python/bindings_torch python/bindings_cuda tests benchmarks examples kernels -type f \
    \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -not -path '*/corpus/*' 2>/dev/null | sort
}
python_sources=(python scripts tests benchmarks experiments examples)
