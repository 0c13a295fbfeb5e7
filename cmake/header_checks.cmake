# SPDX-License-Identifier: Apache-2.0
# Each public header compiles on its own, under the library's warnings. Built by the test `headers`, not by default.
# potl/potl.hpp names all of them (scripts/umbrella.py).
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/potl/potl.hpp)
file(STRINGS include/potl/potl.hpp POTL_HEADERS REGEX "^#include <")
list(TRANSFORM POTL_HEADERS REPLACE "^#include <(.*)>$" "\\1")
set(POTL_HEADER_SOURCES)
foreach(header potl/potl.hpp ${POTL_HEADERS})
  string(REPLACE "/" "." name ${header})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n#include <${header}>\n")
  list(APPEND POTL_HEADER_SOURCES ${source})
endforeach()
add_library(potl_header_checks OBJECT EXCLUDE_FROM_ALL ${POTL_HEADER_SOURCES})
target_include_directories(potl_header_checks PRIVATE include)
target_link_libraries(potl_header_checks PRIVATE potl_flags)
add_test(NAME headers COMMAND ${CMAKE_COMMAND} --build ${CMAKE_CURRENT_BINARY_DIR} --target potl_header_checks)
