# SPDX-License-Identifier: Apache-2.0
# Torch is found by asking Python for its folder and not by find_package(Torch), which brings flags, CUDA and protobuf along.
if(NOT Python_EXECUTABLE)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
endif()
set(POTL_TORCH_MINIMUM 2.11)
set(POTL_TORCH_DIR "")
set(POTL_TORCH_VERSION "")
if(Python_EXECUTABLE AND NOT "${POTL_BUILD_TORCH}" STREQUAL "OFF")
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.metadata as m, importlib.util as u
print(u.find_spec('torch').submodule_search_locations[0], m.version('torch').split('+')[0], sep=';')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    list(GET found 0 POTL_TORCH_DIR)
    list(GET found 1 POTL_TORCH_VERSION)
  endif()
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" POTL_TORCH_MINOR "${POTL_TORCH_VERSION}")
set(POTL_TORCH_CUDA "")
if(EXISTS "${POTL_TORCH_DIR}/version.py")
  file(STRINGS "${POTL_TORCH_DIR}/version.py" found REGEX "^cuda.*= '")
  string(REGEX REPLACE ".*= '([0-9.]+)'.*" "\\1" POTL_TORCH_CUDA "${found}")
endif()
set(POTL_WITH_TORCH OFF)
if(POTL_TORCH_VERSION AND NOT POTL_TORCH_VERSION VERSION_LESS POTL_TORCH_MINIMUM
   AND EXISTS "${POTL_TORCH_DIR}/include/torch/library.h")
  set(POTL_WITH_TORCH ON)
  message(STATUS "potl's torch operators: built against torch ${POTL_TORCH_VERSION}")
elseif("${POTL_BUILD_TORCH}" STREQUAL "ON")
  message(FATAL_ERROR "POTL_BUILD_TORCH=ON, but ${Python_EXECUTABLE} has no torch ${POTL_TORCH_MINIMUM} or newer "
                      "(found: '${POTL_TORCH_VERSION}')")
else()
  message(STATUS "potl's torch operators: not built (no torch ${POTL_TORCH_MINIMUM} or newer in ${Python_EXECUTABLE})")
endif()
if(POTL_WITH_TORCH)
  add_library(potl_torch_headers INTERFACE)
  target_include_directories(potl_torch_headers SYSTEM INTERFACE ${POTL_TORCH_DIR}/include)
  # The first decides which classes have which members; the second keeps the list of all operators out.
  target_compile_definitions(potl_torch_headers INTERFACE USE_DISTRIBUTED AT_PER_OPERATOR_HEADERS)
endif()
