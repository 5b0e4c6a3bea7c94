# libespalier_cuda.so, wherever nvcc is found: the CUDA kernels, NCCL, and the table that src/cuda/cuda.cpp loads.
#
# The rest of the build does not depend on it, nor it on a GPU. Libtorch's CUDA part is linked where it is installed
# (scripts/setup --cuda); where it is not, its symbols are left to be found when the plugin is loaded.

# What program and plugin must agree on: every header of the program that the plugin's sources include, one by way of
# another, and libtorch. Those that are the plugin's alone are followed, not counted.
function(espalier_cuda_interface_headers result)
  file(GLOB left CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/cuda/plugin/*.cpp)
  set(seen "")
  while(left)
    list(POP_FRONT left file)
    file(STRINGS ${file} includes REGEX "^#include \"")
    foreach(line ${includes})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "${CMAKE_SOURCE_DIR}/src/\\1" header "${line}")
      if(EXISTS ${header} AND NOT header IN_LIST seen)
        list(APPEND seen ${header})
        list(APPEND left ${header})
      endif()
    endforeach()
  endwhile()
  list(FILTER seen EXCLUDE REGEX "/src/(kernels/cuda|cuda/plugin)/")
  list(SORT seen)
  set(${result} ${seen} PARENT_SCOPE)
endfunction()

espalier_cuda_interface_headers(interface_headers)
set(interface_text "")
foreach(header ${interface_headers} ${ESPALIER_LIBTORCH}/torch/include/torch/csrc/api/include/torch/version.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(SHA256 ${header} header_hash)
  string(APPEND interface_text ${header_hash})
endforeach()
string(SHA256 interface_hash "${interface_text}")
string(SUBSTRING ${interface_hash} 0 12 interface_hash)
set(ESPALIER_CUDA_INTERFACE "espalier ${PROJECT_VERSION} ${interface_hash}")

# A100 and its kin, H100, B200, RTX 50. Fewer compile faster; scripts/setup takes those of the environment variable of
# this name, else all. Tests want 90 among them, whose PTX newer ones compile.
set(ESPALIER_CUDA_ARCHITECTURES 80 90 100 120 CACHE STRING "compute capabilities that the CUDA kernels are compiled for")

find_program(ESPALIER_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)

# Why there is no plugin; empty where there is one. Structures of the toolkit and of NCCL cross into libtorch, so their
# versions are those that libtorch was made with.
function(espalier_find_cuda why)
  set(${why} "" PARENT_SCOPE)
  if(NOT ESPALIER_NVCC)
    set(${why} "there is no nvcc in the path or in /usr/local/cuda/bin" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${ESPALIER_NVCC} --version OUTPUT_VARIABLE said ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.[0-9]+" release "${said}")
  if(NOT CMAKE_MATCH_1 EQUAL 13)
    set(${why} "${ESPALIER_NVCC} is of '${release}', and libtorch was made with CUDA 13" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(toolkit ${ESPALIER_NVCC} REALPATH)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  set(ESPALIER_CUDA_TOOLKIT ${toolkit} PARENT_SCOPE)
  # scripts/setup --cuda unpacks that of the pinned wheel.
  set(nccl ${ESPALIER_LIBTORCH}/nvidia/nccl/include)
  if(NOT EXISTS ${nccl}/nccl.h)
    set(nccl ${toolkit}/include)
  endif()
  if(NOT EXISTS ${nccl}/nccl.h)
    set(${why} "nccl.h is neither in ${ESPALIER_LIBTORCH}/nvidia/nccl/include nor in ${toolkit}/include" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${nccl}/nccl.h version REGEX "define NCCL_(MAJOR|MINOR) ")
  if(NOT "${version}" MATCHES "NCCL_MAJOR 2;.*NCCL_MINOR 28$")
    set(${why} "${nccl}/nccl.h is not of NCCL 2.28, which libtorch was made with (${version})" PARENT_SCOPE)
    return()
  endif()
  set(ESPALIER_NCCL_INCLUDE ${nccl} PARENT_SCOPE)
endfunction()

# Where cuDNN's headers and those of its frontend are; empty unless both are there: then the plugin has no attention by
# cuDNN (src/kernels/cuda/sdpa_missing.cpp) and says so when it is asked for.
set(ESPALIER_CUDNN_FRONTEND "$ENV{HOME}/.cache/espalier/cudnn-frontend-1.18.0" CACHE PATH
  "folder of the headers of cuDNN's frontend, which scripts/setup --cuda installs; may be missing")
function(espalier_find_cudnn includes)
  set(${includes} "" PARENT_SCOPE)
  foreach(folder ${ESPALIER_LIBTORCH}/nvidia/cudnn/include ${ESPALIER_CUDA_TOOLKIT}/include)
    if(EXISTS ${folder}/cudnn.h AND EXISTS ${ESPALIER_CUDNN_FRONTEND}/include/cudnn_frontend.h)
      # What libtorch was made with; others may lack what the frontend asks for.
      file(STRINGS ${folder}/cudnn_version.h version REGEX "define CUDNN_(MAJOR|MINOR) ")
      if(NOT "${version}" MATCHES "CUDNN_MAJOR 9;.*CUDNN_MINOR 19$")
        message(STATUS "CUDA plugin: ${folder}/cudnn.h is not of cuDNN 9.19 (${version})")
        continue()
      endif()
      set(${includes} ${ESPALIER_CUDNN_FRONTEND}/include ${folder} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

espalier_find_cuda(ESPALIER_NO_CUDA)
if(ESPALIER_NO_CUDA)
  message(STATUS "CUDA plugin: left out, ${ESPALIER_NO_CUDA}")
  set(ESPALIER_NVCC "")
else()
  espalier_find_cudnn(ESPALIER_CUDNN_INCLUDES)
  if(NOT ESPALIER_CUDNN_INCLUDES)
    message(STATUS "CUDA plugin: without attention by cuDNN, whose headers are not in ${ESPALIER_LIBTORCH}/nvidia/cudnn/include "
      "or ${ESPALIER_CUDA_TOOLKIT}/include, or those of its frontend not in ${ESPALIER_CUDNN_FRONTEND}")
  endif()
endif()

# What the plugin needs at run time is in it by name (DT_NEEDED), also where it is built without these libraries:
# then empty ones of the same names take their place. The program opens the real ones before the plugin (cuda.cpp).
function(espalier_link_cuda_libraries target)
  set(torch_lib ${ESPALIER_LIBTORCH}/torch/lib)
  set(nvidia_lib ${ESPALIER_LIBTORCH}/nvidia/cu13/lib)
  set(libraries ${torch_lib}/libtorch_cuda.so ${torch_lib}/libc10_cuda.so ${nvidia_lib}/libcublas.so.13
    ${nvidia_lib}/libcublasLt.so.13)
  if(ESPALIER_CUDNN_INCLUDES)
    list(APPEND libraries ${ESPALIER_LIBTORCH}/nvidia/cudnn/lib/libcudnn.so.9)
  endif()
  set(stub_folder ${CMAKE_BINARY_DIR}/cuda_plugin/stubs)
  file(WRITE ${CMAKE_BINARY_DIR}/cuda_plugin/stub.cpp "")
  foreach(library ${libraries})
    if(EXISTS ${library})
      target_link_libraries(${target} PRIVATE ${library})
      set(unresolved ignore-in-shared-libs)  # the rest of NVIDIA's libraries need not exist to build
      continue()
    endif()
    set(unresolved ignore-all)
    get_filename_component(name ${library} NAME)
    add_custom_command(OUTPUT ${stub_folder}/${name}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${stub_folder}
      COMMAND ${CMAKE_CXX_COMPILER} -shared -fPIC -nostdlib -Wl,-soname,${name} ${CMAKE_BINARY_DIR}/cuda_plugin/stub.cpp -o ${stub_folder}/${name}
      VERBATIM)
    target_sources(${target} PRIVATE ${stub_folder}/${name})
    set_source_files_properties(${stub_folder}/${name} PROPERTIES GENERATED ON EXTERNAL_OBJECT OFF HEADER_FILE_ONLY ON)
    target_link_options(${target} PRIVATE -Wl,--no-as-needed ${stub_folder}/${name})
  endforeach()
  target_link_options(${target} PRIVATE -Wl,--unresolved-symbols=${unresolved})
  target_link_libraries(${target} PRIVATE ${nvidia_lib}/libcudart.so.13)
  # It is found by its names alone: an empty library must never be the one that is loaded.
  set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
endfunction()

# Called once the libraries are defined.
function(espalier_cuda_plugin)
  find_program(ESPALIER_CCACHE ccache)
  # --fmad=false: fused multiply-adds are asked for by name, as on the CPU. A kernel that keeps registers in memory does
  # not compile. What is newer than the architectures, or none of them, compiles compute_90 when it is first used.
  set(nvcc ${ESPALIER_CCACHE} ${ESPALIER_NVCC} -std=c++20 -O3 --fmad=false -Xcompiler=-fPIC,-fvisibility=hidden
    -Werror=all-warnings -Xptxas=--warn-on-spills,--warning-as-error -I${CMAKE_SOURCE_DIR}/src)
  foreach(architecture ${ESPALIER_CUDA_ARCHITECTURES})
    list(APPEND nvcc -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  if(90 IN_LIST ESPALIER_CUDA_ARCHITECTURES)
    list(APPEND nvcc -gencode=arch=compute_90,code=compute_90)
  endif()
  file(GLOB kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  set(objects "")
  foreach(kernel ${kernels})
    set(object ${CMAKE_BINARY_DIR}/cuda_plugin/${kernel}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${CMAKE_SOURCE_DIR}/src/${kernel}
      COMMAND ${nvcc} -MD -MF ${object}.d -c ${CMAKE_SOURCE_DIR}/src/${kernel} -o ${object}
      COMMENT "Building CUDA object ${kernel}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()

  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/cuda/plugin/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/sdpa_plan\\.cpp$")
  if(ESPALIER_CUDNN_INCLUDES)
    list(FILTER sources EXCLUDE REGEX "/sdpa_missing\\.cpp$")
    # Compiled once for the plugin and for its test, and not for speed: the frontend's headers take over a minute.
    add_library(espalier_cudnn_graphs OBJECT ${CMAKE_SOURCE_DIR}/src/kernels/cuda/sdpa_plan.cpp)
    set_target_properties(espalier_cudnn_graphs PROPERTIES CXX_VISIBILITY_PRESET hidden)
    target_compile_definitions(espalier_cudnn_graphs PRIVATE CUDNN_FRONTEND_SKIP_JSON_LIB)
    target_compile_options(espalier_cudnn_graphs PRIVATE -O1)
    target_include_directories(espalier_cudnn_graphs PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_include_directories(espalier_cudnn_graphs SYSTEM PRIVATE ${ESPALIER_CUDNN_INCLUDES} ${ESPALIER_CUDA_TOOLKIT}/include)
    list(APPEND objects $<TARGET_OBJECTS:espalier_cudnn_graphs>)
  else()
    list(FILTER sources EXCLUDE REGEX "/sdpa\\.cpp$")
  endif()
  add_library(espalier_cuda_plugin SHARED ${sources} ${objects})
  set_target_properties(espalier_cuda_plugin PROPERTIES OUTPUT_NAME espalier_cuda LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(espalier_cuda_plugin PRIVATE ESPALIER_CUDA_INTERFACE="${ESPALIER_CUDA_INTERFACE}")
  target_include_directories(espalier_cuda_plugin PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(espalier_cuda_plugin SYSTEM PRIVATE ${ESPALIER_NCCL_INCLUDE} ${ESPALIER_CUDNN_INCLUDES}
    ${ESPALIER_CUDA_TOOLKIT}/include)
  target_link_libraries(espalier_cuda_plugin PRIVATE espalier_base espalier_torch)
  espalier_link_cuda_libraries(espalier_cuda_plugin)
endfunction()
