# SPDX-License-Identifier: Apache-2.0
# The self-test of the floating-point environment, compiled with flags that break it: each has to be named. (What a foreign
# library does to the control register of threads is in tests/unit/fp_environment_test.cpp.)
function(potl_broken_arithmetic name cause)
  add_executable(fp_${name} tests/fp/probe.cpp src/numeric/fp_environment.cpp)
  target_include_directories(fp_${name} PRIVATE include)
  target_compile_options(fp_${name} PRIVATE ${ARGN})
  target_link_libraries(fp_${name} PRIVATE Threads::Threads)
  add_test(NAME fp_${name} COMMAND fp_${name})
  set_tests_properties(fp_${name} PROPERTIES PASS_REGULAR_EXPRESSION "${cause}[^\n]*on 2 of 2 threads")
endfunction()

potl_broken_arithmetic(fast_math "nan: comparisons treat NaN like a number: [^\n]*-ffast-math" -O2 -ffast-math)
potl_broken_arithmetic(reassociated "association: sums are reordered" -O2 -fassociative-math -fno-signed-zeros
                       -fno-trapping-math)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  potl_broken_arithmetic(contracted "contraction: a.b.c is computed with one rounding" -O2 -mfma -ffp-contract=fast)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    potl_broken_arithmetic(x87 "precision: intermediate results are wider than their type, as on the x87" -O2 -mfpmath=387)
  endif()
endif()
