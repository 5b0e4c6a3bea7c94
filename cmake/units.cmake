# Most of the time of a compilation goes into headers and into the templates that each source makes anew, so several
# sources are compiled as one unit.
#
# espalier_units(OUT NAME SIZE sources...): sets OUT to files that include about SIZE of the sources each. Names are
# therefore unique in a library, those of anonymous namespaces too.
#
# The units are made here and not by CMake's UNITY_BUILD, because its units name sources by absolute paths, so that ccache
# cannot share them between two folders of the project.
set(ESPALIER_UNITS ON CACHE BOOL "compile several sources as one; OFF: each alone, after a compiler's crash")
# Units of four times as many sources take about 0.6 of the processor time, and up to 2 GB each; fewer can be compiled side
# by side, and more is compiled again after a change: who edits sources on a machine of few cores sets 1.
cmake_host_system_information(RESULT num_cores QUERY NUMBER_OF_LOGICAL_CORES)
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR num_compilers "${num_cores} + 1")  # as ninja has it for one core or two, and one more for more
math(EXPR mib_per_compiler "${memory_mib} / ${num_compilers}")
if(num_cores LESS_EQUAL 4 AND mib_per_compiler GREATER 2500)
  set(unit_factor 4)
else()
  set(unit_factor 1)
endif()
set(ESPALIER_UNIT_FACTOR ${unit_factor} CACHE STRING "how many times as many sources a unit has: scripts/check tidy reads a library as one")

function(espalier_units out name size)
  list(LENGTH ARGN count)
  if(NOT ESPALIER_UNITS OR count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(kept "")  # compiled alone: they have options of their own, or are no C++ by their name
  set(grouped "")
  foreach(source ${ARGN})
    if(source MATCHES "\\.cpp$" AND NOT source MATCHES "_(neon|neonbf16|avx2|avx512|avx512bf16|amx)\\.cpp$")
      list(APPEND grouped ${source})
    else()
      list(APPEND kept ${source})
    endif()
  endforeach()
  list(LENGTH grouped count)
  if(count EQUAL 0)
    set(${out} ${kept} PARENT_SCOPE)
    return()
  endif()
  math(EXPR size "${size} * ${ESPALIER_UNIT_FACTOR}")
  math(EXPR num_units "(${count} + ${size} - 1) / ${size}")
  math(EXPR per_unit "(${count} + ${num_units} - 1) / ${num_units}")
  math(EXPR last_unit "(${count} + ${per_unit} - 1) / ${per_unit} - 1")
  set(units "")
  foreach(index RANGE ${last_unit})
    math(EXPR begin "${index} * ${per_unit}")
    list(SUBLIST grouped ${begin} ${per_unit} members)
    set(text "")
    foreach(member ${members})
      cmake_path(ABSOLUTE_PATH member BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
      cmake_path(RELATIVE_PATH member BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      string(APPEND text "#include \"${member}\"\n")
    endforeach()
    set(unit ${CMAKE_BINARY_DIR}/units/${name}_${index}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)  # written only if it differs
    list(APPEND units ${unit})
  endforeach()
  # Sources are found from the project's folder. A class may hold what an anonymous namespace of its own file holds.
  set_source_files_properties(${units} PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR} COMPILE_OPTIONS
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
  set(${out} ${units} ${kept} PARENT_SCOPE)
endfunction()
