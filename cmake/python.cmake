# SPDX-License-Identifier: Apache-2.0
# Python, pybind11, and potl_python_module(name): where a module of the package potl goes.
if(NOT POTL_BUILD_PYTHON)
  return()
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
# Not `-m pybind11 --cmakedir`, which quotes a path with a space for a shell.
execute_process(COMMAND ${Python_EXECUTABLE} -c "import pybind11; print(pybind11.get_cmake_dir())"
                OUTPUT_VARIABLE POTL_PYBIND11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
find_package(pybind11 CONFIG REQUIRED HINTS ${POTL_PYBIND11_DIR})
add_custom_target(potl_python_modules)

# potl_python_module(name source...): without link-time optimization, which costs more here than it gives.
function(potl_python_module name)
  pybind11_add_module(${name} MODULE NO_EXTRAS ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE potl_flags)
  potl_optimize_little(${name})
  # In a source tree the module lies beside the package, so that PYTHONPATH=python is enough.
  if(NOT SKBUILD)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${POTL_PYTHON_OUTPUT})
  endif()
endfunction()

# potl_installed_module(name): the same for one that a wheel has.
function(potl_installed_module name)
  add_dependencies(potl_python_modules ${name})
  if(SKBUILD)
    install(TARGETS ${name} DESTINATION potl COMPONENT python)
  endif()
endfunction()
