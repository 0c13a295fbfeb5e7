# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=... -DSOURCES=a.cpp,b.cpp -DOUT=... -P apart.cmake: writes a source that includes others, each in a namespace of
# its own. What they include comes before, so that nothing but the sources themselves lands in those namespaces.
string(REPLACE "," ";" sources "${SOURCES}")
set(includes "")
set(bodies "")
foreach(source ${sources})
  file(STRINGS ${source} lines REGEX "^#include ")
  list(APPEND includes ${lines})
  file(RELATIVE_PATH path ${ROOT} ${source})
  get_filename_component(name ${source} NAME_WE)
  string(APPEND bodies "namespace in_${name} {\n#include \"${path}\"\n}  // namespace in_${name}\n")
endforeach()
list(REMOVE_DUPLICATES includes)
list(JOIN includes "\n" includes)
file(CONFIGURE OUTPUT ${OUT} CONTENT "${includes}\n${bodies}" @ONLY)
