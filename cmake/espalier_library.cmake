# espalier_library(NAME [TORCH|LINKS_TORCH] [FOLDERS ...] DEPS ...): the sources of the current folder, and of the named folders below
# it, as a static library, and the *_test.cpp next to them as one test program. tests/layering_test.cpp holds the table of
# who may include whom.
#
# Sources and tests are compiled in units (cmake/units.cmake); with TORCH they share the precompiled header. LINKS_TORCH is
# for a library that names no tensor and uses one that does: its tests are none of the fast tier.
function(espalier_library name)
  cmake_parse_arguments(ARG "TORCH;LINKS_TORCH" "" "FOLDERS;DEPS;LIBS" ${ARGN})
  set(patterns *.cpp internal/*.cpp)
  foreach(folder ${ARG_FOLDERS})
    list(APPEND patterns ${folder}/*.cpp ${folder}/internal/*.cpp)
  endforeach()
  list(TRANSFORM patterns PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  # Units for an instruction set of other processors are left out.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
    list(FILTER sources EXCLUDE REGEX "_(avx2|avx512|avx512bf16|amx)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_(neon|neonbf16)\\.cpp$")
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  set(target espalier_${name})
  if(sources)
    espalier_units(units ${target} 8 ${sources})
    add_library(${target} STATIC ${units})
    set(visibility PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(visibility INTERFACE)
  endif()
  target_include_directories(${target} ${visibility} ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${target} ${visibility} espalier_${dep})
  endforeach()
  target_link_libraries(${target} ${visibility} ${ARG_LIBS})
  if(ARG_TORCH)
    target_link_libraries(${target} ${visibility} espalier_torch)
    if(sources)
      target_precompile_headers(${target} REUSE_FROM espalier_torch_pch)
    endif()
  endif()
  if(sources)
    espalier_isa_sources(${target} "${sources}")
  endif()
  if(tests)
    espalier_units(units ${target}_test 12 ${tests})
    add_executable(${target}_test ${units})
    target_link_libraries(${target}_test PRIVATE ${target} espalier_gtest)
    espalier_compile_as_test(${target}_test)
    if(ARG_TORCH)
      target_precompile_headers(${target}_test REUSE_FROM espalier_torch_pch)
    endif()
    add_test(NAME ${name} COMMAND ${target}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    if(NOT ARG_TORCH AND NOT ARG_LINKS_TORCH)  # the fast tier: scripts/test --fast
      set_tests_properties(${name} PROPERTIES LABELS fast)
      add_dependencies(espalier_fast_tests ${target}_test)
    endif()
  endif()
endfunction()

# Tests spend their time in the libraries: -O1 compiles in two thirds of the time.
function(espalier_compile_as_test target)
  target_compile_options(${target} PRIVATE -O1)
endfunction()

# A kernel unit names its instruction set in its file name and is the only kind of file compiled for one.
# (GCC 12 calls the undefined operands inside its own AVX-512 headers uninitialized: those warnings are off.)
function(espalier_isa_sources target sources)
  foreach(source ${sources})
    if(source MATCHES "_(neon|neonbf16|avx2|avx512|avx512bf16|amx)\\.cpp$")
      set(isa_neon "")
      set(isa_neonbf16 -march=armv8.2-a+bf16)
      set(isa_avx2 -mavx2 -mfma -mf16c)
      # GCC 12 warns of the undefined lanes that its own headers start from.
      set(isa_avx512 ${isa_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -Wno-uninitialized -Wno-maybe-uninitialized)
      set(isa_avx512bf16 ${isa_avx512} -mavx512bf16)
      set(isa_amx ${isa_avx512bf16} -mamx-tile -mamx-bf16)
      set_source_files_properties(${source} PROPERTIES
        COMPILE_OPTIONS "${isa_${CMAKE_MATCH_1}};-O3;-Wno-uninitialized;-Wno-maybe-uninitialized" SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

add_custom_target(espalier_fast_tests)
find_package(GTest REQUIRED)
add_library(espalier_gtest INTERFACE)
target_link_libraries(espalier_gtest INTERFACE GTest::gtest GTest::gtest_main)
target_include_directories(espalier_gtest INTERFACE ${CMAKE_SOURCE_DIR})  # tests/support

# espalier_embed(LIBRARY FOLDER HEADER NAMESPACE FUNCTION): the files of a page, in FOLDER next to the CMakeLists.txt, become
# part of the library, so that the program needs no separate ones; FUNCTION, which HEADER declares, gives them by name.
function(espalier_embed library folder header namespace function)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed_page.cmake)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -D "FOLDER=${CMAKE_CURRENT_SOURCE_DIR}/${folder}" -D "OUTPUT=${source}" -D "HEADER=${header}"
      -D "NAMESPACE=${namespace}" -D "FUNCTION=${function}" -P ${script}
    DEPENDS ${files} ${script})
  target_sources(espalier_${library} PRIVATE ${source})
endfunction()
