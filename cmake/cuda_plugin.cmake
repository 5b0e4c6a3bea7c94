# libespalier_cuda.so, wherever nvcc is found: the CUDA kernels, NCCL, and the table that src/cuda/cuda.cpp loads.
#
# The rest of the build does not depend on it. Libtorch's CUDA part is linked where it is installed (scripts/setup
# --cuda); where it is not, its symbols are left to be found when the plugin is loaded.

# What program and plugin must agree on: the headers whose types cross the border.
set(interface_headers
  src/cuda/plugin_table.h src/dist/device_backend.h src/kernels/device_ops.h src/kernels/adam.h src/kernels/dropout.h
  src/kernels/cross_entropy_blocks.h src/kernels/internal/attention_problem.h src/kernels/internal/row_kernels.h src/tensor/rng.h)
set(interface_text "")
foreach(header ${interface_headers})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
  file(SHA256 ${CMAKE_SOURCE_DIR}/${header} header_hash)
  string(APPEND interface_text ${header_hash})
endforeach()
string(SHA256 interface_hash "${interface_text}")
string(SUBSTRING ${interface_hash} 0 12 interface_hash)
set(ESPALIER_CUDA_INTERFACE "espalier ${PROJECT_VERSION} ${interface_hash}")

find_program(ESPALIER_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
if(NOT ESPALIER_NVCC)
  message(STATUS "CUDA plugin: left out, there is no nvcc in the path or in /usr/local/cuda/bin")
endif()

# Called once the libraries are there.
function(espalier_cuda_plugin)
  get_filename_component(toolkit ${ESPALIER_NVCC} REALPATH)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  find_program(ESPALIER_CCACHE ccache)
  # --fmad=false: fused multiply-adds are asked for by name, as on the CPU.
  set(nvcc ${ESPALIER_CCACHE} ${ESPALIER_NVCC} -std=c++20 -O3 --fmad=false -Xcompiler=-fPIC,-fvisibility=hidden
    -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -I${CMAKE_SOURCE_DIR}/src)
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
  add_library(espalier_cuda_plugin SHARED ${sources} ${objects})
  set_target_properties(espalier_cuda_plugin PROPERTIES OUTPUT_NAME espalier_cuda LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(espalier_cuda_plugin PRIVATE ESPALIER_CUDA_INTERFACE="${ESPALIER_CUDA_INTERFACE}")
  target_include_directories(espalier_cuda_plugin PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(espalier_cuda_plugin SYSTEM PRIVATE ${toolkit}/include)
  target_link_libraries(espalier_cuda_plugin PRIVATE espalier_base espalier_torch)
  set(torch_lib ${ESPALIER_LIBTORCH}/torch/lib)
  if(EXISTS ${torch_lib}/libtorch_cuda.so)
    target_link_libraries(espalier_cuda_plugin PRIVATE ${torch_lib}/libtorch_cuda.so ${torch_lib}/libc10_cuda.so)
    # The rest of NVIDIA's libraries comes with the driver and the toolkit, and need not be there to build.
    target_link_options(espalier_cuda_plugin PRIVATE -Wl,--unresolved-symbols=ignore-in-shared-libs)
  else()
    # Its own symbols are left to be found as well.
    target_link_options(espalier_cuda_plugin PRIVATE -Wl,--unresolved-symbols=ignore-all)
    message(STATUS "CUDA plugin: built without libtorch's CUDA part, which it needs to run (scripts/setup --cuda)")
  endif()
  target_link_libraries(espalier_cuda_plugin PRIVATE ${ESPALIER_LIBTORCH}/nvidia/cu13/lib/libcudart.so.13)
endfunction()
