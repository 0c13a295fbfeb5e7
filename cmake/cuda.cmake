# SPDX-License-Identifier: Apache-2.0
# potl's kernels for CUDA and the test that compares them with the CPU. AUTO builds them beside the tests where nvcc is found;
# nothing else needs them, and without nvcc nothing changes.
set(POTL_CUDA AUTO CACHE STRING "Build potl's kernels for CUDA (potl_gpu): AUTO, ON or OFF")
if(POTL_CUDA STREQUAL "OFF")
  return()
endif()
# nvcc's host code carries no instrumentation, and its host compiler is g++.
if(POTL_CUDA STREQUAL "AUTO" AND (NOT POTL_BUILD_TESTS OR POTL_SANITIZE OR POTL_BUILD_FUZZERS
                                  OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
  return()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(POTL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "POTL_CUDA is ON, but there is no working nvcc")
  endif()
  message(STATUS "No nvcc: potl's kernels for CUDA are not built")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual)  # the driver compiles it for newer devices
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()

file(GLOB POTL_GPU_SOURCES CONFIGURE_DEPENDS src/gpu/*.cu)
add_library(potl_gpu STATIC ${POTL_GPU_SOURCES})
target_include_directories(potl_gpu PUBLIC include PRIVATE src)
set_target_properties(potl_gpu PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
# Every operation rounds once, as on the CPU.
target_compile_options(potl_gpu PRIVATE -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
                       -Xcompiler=-ffp-contract=off -Werror=all-warnings)

if(POTL_BUILD_TESTS)
  add_executable(potl_gpu_tests tests/gpu/elementwise_test.cpp)
  target_include_directories(potl_gpu_tests PRIVATE tests/unit)
  target_link_libraries(potl_gpu_tests PRIVATE potl_gpu potl_hooks potl_flags)
  add_test(NAME gpu COMMAND potl_gpu_tests)
  set_tests_properties(gpu PROPERTIES SKIP_RETURN_CODE 77)
endif()
