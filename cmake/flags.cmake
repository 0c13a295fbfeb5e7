# SPDX-License-Identifier: Apache-2.0
# potl_flags: what every source of potl is compiled with. potl_optimize_little(target): the same with -O1.
find_program(POTL_CCACHE ccache)
if(POTL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_CURRENT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 ${POTL_CCACHE})
endif()

add_library(potl_flags INTERFACE)
# Contraction would change the bits of what both sides must compute alike.
target_compile_options(potl_flags INTERFACE -ffp-contract=off)
if(POTL_DEVELOPER_MODE)
  target_compile_options(potl_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror)
  # Headers fill more memory than g++ takes before it looks for what it could free: a tenth of its time.
  target_compile_options(potl_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)
  # g++ 12 sees overlapping copies in every `"x" + std::string` (GCC bug 105651).
  target_compile_options(potl_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endif()
if(POTL_SANITIZE OR POTL_BUILD_FUZZERS)
  target_compile_options(potl_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -O1 -g1)
  target_link_options(potl_flags INTERFACE -fsanitize=address,undefined)
  # The instrumentation hides initialisations from g++ 12 (in std::function of its own headers).
  target_compile_options(potl_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(POTL_BUILD_FUZZERS)
  target_compile_options(potl_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# For what a compiler spends its time on and a computer does not.
function(potl_optimize_little target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
