# SPDX-License-Identifier: Apache-2.0
# cmake -DNM=... -DOBJECTS=a.o,b.o -P kernel_symbols.cmake: no object compiled for one instruction set defines a weak or
# unique symbol. The linker keeps one copy of such a symbol for the whole program, and might keep the one that only some
# processors can run.
string(REPLACE "," ";" objects "${OBJECTS}")
if(NOT objects)
  message(FATAL_ERROR "no objects to look at")
endif()
foreach(object ${objects})
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  string(REGEX MATCHALL "[^\n]* [uvVwW] [^\n]*" weak "${symbols}")
  list(FILTER weak EXCLUDE REGEX "DW\\.ref\\.__gxx_personality") # data, the same on every processor
  if(weak)
    string(REPLACE ";" "\n" weak "${weak}")
    message(SEND_ERROR "${object} defines\n${weak}")
  endif()
endforeach()
