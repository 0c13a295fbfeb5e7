# SPDX-License-Identifier: Apache-2.0
# Each folder lists its sources in its CMakeLists.txt; tests/python/repository/test_source_lists.py says which one is
# listed nowhere.

# potl_joined(out name file...): what to compile for these sources of this folder. It is one file that includes them, because
# most of the time of each goes into the same headers and what the compiler makes of their inline functions. Names of one
# file's anonymous namespace are seen in the next ones. What is joined is the same text in every checkout, for ccache.
function(potl_joined out name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(NOT POTL_JOIN_SOURCES)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(text "")
  foreach(source ${ARGN})
    if(NOT EXISTS ${source})
      message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt lists ${source}, which does not exist")
    endif()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    string(APPEND text "#include \"${path}\"\n")
  endforeach()
  list(GET ARGN 0 first)
  get_filename_component(extension ${first} LAST_EXT)
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/${name}${extension})
  file(CONFIGURE OUTPUT ${joined} CONTENT "${text}" @ONLY)
  set(${out} ${joined} PARENT_SCOPE)
endfunction()

# potl_sources(file...): sources of the library, each compiled by itself. potl_source_group(name file...): in one go.
function(potl_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY POTL_SOURCES ${ARGN})
endfunction()
function(potl_source_group name)
  potl_joined(sources potl.${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY POTL_SOURCES ${sources})
endfunction()

# potl_group(target name file...): sources of a target that are compiled in one go.
function(potl_group target name)
  potl_joined(sources ${target}.${name} ${ARGN})
  target_sources(${target} PRIVATE ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# potl_test_group(target name file...): the same for tests, each of which keeps its names to itself: cmake/apart.cmake.
function(potl_test_group target name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(NOT POTL_JOIN_SOURCES)
    target_sources(${target} PRIVATE ${ARGN})
    return()
  endif()
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/${target}.${name}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/apart.cmake)
  list(JOIN ARGN "," sources)
  add_custom_command(OUTPUT ${joined} DEPENDS ${ARGN} ${script} VERBATIM COMMENT "Joining ${target}.${name}.cpp"
                     COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DSOURCES=${sources} -DOUT=${joined} -P ${script})
  target_sources(${target} PRIVATE ${joined})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()
