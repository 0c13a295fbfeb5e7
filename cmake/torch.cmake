# SPDX-License-Identifier: Apache-2.0
# The compiled part of the adapter for torch: reproducible operators. The static library potl_libtorch_arithmetic is for
# C++ trainers, the module potl._torch for Python. Torch is found by asking Python for its folder and not by
# find_package(Torch), which brings flags, CUDA and protobuf along.
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
if(NOT POTL_WITH_TORCH)
  return()
endif()

add_library(potl_torch_headers INTERFACE)
target_include_directories(potl_torch_headers SYSTEM INTERFACE ${POTL_TORCH_DIR}/include)
# The first decides which classes have which members; the second keeps the list of all operators out.
target_compile_definitions(potl_torch_headers INTERFACE USE_DISTRIBUTED AT_PER_OPERATOR_HEADERS)

file(GLOB POTL_TORCH_SOURCES CONFIGURE_DEPENDS src/libtorch/arithmetic/*.cpp)
add_library(potl_libtorch_arithmetic STATIC EXCLUDE_FROM_ALL ${POTL_TORCH_SOURCES})
target_include_directories(potl_libtorch_arithmetic PRIVATE src)
target_link_libraries(potl_libtorch_arithmetic PUBLIC potl PRIVATE $<BUILD_INTERFACE:potl_flags>
                      $<BUILD_INTERFACE:potl_torch_headers>)

# For C++ trainers: find_package(potl COMPONENTS libtorch_arithmetic). Only where it is built anyway or asked for.
if(NOT SKBUILD AND (POTL_BUILD_PYTHON OR "${POTL_BUILD_TORCH}" STREQUAL "ON"))
  set_target_properties(potl_libtorch_arithmetic PROPERTIES EXCLUDE_FROM_ALL OFF EXPORT_NAME libtorch_arithmetic)
  set(POTL_INSTALL_TORCH ON)
endif()

if(POTL_BUILD_PYTHON)
  pybind11_add_module(_torch MODULE python/bindings_torch/module.cpp python/bindings_torch/graph.cpp)
  target_include_directories(_torch PRIVATE include src)
  target_link_libraries(_torch PRIVATE potl_libtorch_arithmetic potl_flags potl_torch_headers
                        ${POTL_TORCH_DIR}/lib/libtorch_cpu.so ${POTL_TORCH_DIR}/lib/libc10.so)
  # torch has been imported before the module is: its libraries are found because they are loaded.
  set_target_properties(_torch PROPERTIES SKIP_BUILD_RPATH ON INSTALL_RPATH "")
  # Which torch this is for, readable without loading the module.
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/_torch.version CONTENT "${POTL_TORCH_VERSION}\n")
  if(SKBUILD)
    install(TARGETS _torch DESTINATION potl COMPONENT python)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_torch.version DESTINATION potl COMPONENT python)
  else()
    set_target_properties(_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${POTL_PYTHON_OUTPUT})
    file(COPY ${CMAKE_CURRENT_BINARY_DIR}/_torch.version DESTINATION ${POTL_PYTHON_OUTPUT})
  endif()
  add_dependencies(potl_python_modules _torch)
endif()
