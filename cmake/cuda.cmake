# SPDX-License-Identifier: Apache-2.0
# potl's kernels for CUDA and the test that compares them with the CPU. AUTO builds them where nvcc is found, beside the tests
# and for a torch that has CUDA; nothing else needs them, and without nvcc nothing changes.
set(POTL_WITH_CUDA OFF)
set(POTL_CUDA AUTO CACHE STRING "Build potl's kernels for CUDA (potl::cuda): AUTO, ON or OFF")
if(POTL_CUDA STREQUAL "OFF")
  return()
endif()
# nvcc's host code carries no instrumentation, and its host compiler is g++.
if(POTL_CUDA STREQUAL "AUTO" AND (POTL_SANITIZE OR POTL_BUILD_FUZZERS OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
                                  OR NOT (POTL_BUILD_TESTS OR (POTL_WITH_TORCH AND POTL_TORCH_CUDA))))
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
  # The driver compiles the last one for newer devices.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100-real 100-virtual)
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
set(POTL_WITH_CUDA ON)
