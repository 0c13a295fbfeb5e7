# SPDX-License-Identifier: Apache-2.0
# The names that find_package(potl) gives to targets, for who has potl within the build of a project of its own: by
# add_subdirectory or FetchContent, after find_package(Torch) where the adapter for LibTorch is wanted.
add_library(potl::core ALIAS potl)
if(NOT TARGET torch)
  return()
endif()
add_library(potl_libtorch INTERFACE)
target_link_libraries(potl_libtorch INTERFACE potl ${TORCH_LIBRARIES})
add_library(potl::libtorch ALIAS potl_libtorch)
# The operators need the headers of the same minor version.
if(POTL_WITH_TORCH AND "${Torch_VERSION}." MATCHES "^${POTL_TORCH_MINOR}\\.")
  target_link_libraries(potl_libtorch_arithmetic INTERFACE $<BUILD_INTERFACE:potl_libtorch>)
  add_library(potl::libtorch_arithmetic ALIAS potl_libtorch_arithmetic)
endif()
