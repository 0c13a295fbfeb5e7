# SPDX-License-Identifier: Apache-2.0
# potl_kernel_tests: the tests of products and convolutions over the kernels alone. scripts/kernel_matrix builds it with
# several compilers and levels of optimization, which the kernels get from CMAKE_CXX_FLAGS; tests are always optimized.
set(POTL_KERNEL_SOURCES ${POTL_SOURCES})
list(FILTER POTL_KERNEL_SOURCES INCLUDE REGEX
     "/src/(core/|crypto/|numeric/[^/]*\\.cpp$|numeric/(gemm|convolution|random|rounding|rounding_log|ieee)/)")
add_library(potl_kernel_objects OBJECT EXCLUDE_FROM_ALL ${POTL_KERNEL_SOURCES} src/core/rule_switch.cpp)
target_include_directories(potl_kernel_objects PUBLIC include PRIVATE src)
target_link_libraries(potl_kernel_objects PRIVATE potl_flags nlohmann_json::nlohmann_json
                      PUBLIC OpenSSL::Crypto Threads::Threads)
target_compile_definitions(potl_kernel_objects PRIVATE POTL_VERSION="${POTL_VERSION}")
file(GLOB POTL_KERNEL_TESTS CONFIGURE_DEPENDS tests/unit/gemm_*test.cpp tests/unit/summation_tree_test.cpp
     tests/unit/convolution_*test.cpp tests/unit/main.cpp)
# That one is about logs, not kernels.
list(FILTER POTL_KERNEL_TESTS EXCLUDE REGEX "/convolution_operands_test\\.cpp$")
add_executable(potl_kernel_tests EXCLUDE_FROM_ALL ${POTL_KERNEL_TESTS})
target_include_directories(potl_kernel_tests PRIVATE tests/unit src)
target_compile_options(potl_kernel_tests PRIVATE -O2 -Wno-conversion -Wno-sign-conversion -Wno-shadow)
target_link_libraries(potl_kernel_tests PRIVATE potl_kernel_objects potl_flags Catch2::Catch2)
