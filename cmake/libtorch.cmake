# Imported targets for libtorch, taken from the torch wheel (scripts/setup unpacks it).
# Not find_package(Torch): that one wants CUDA, and links libtorch.so with everything it pulls in.

find_library(ESPALIER_TORCH_CPU torch_cpu PATHS ${ESPALIER_LIBTORCH}/torch/lib NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
find_library(ESPALIER_C10 c10 PATHS ${ESPALIER_LIBTORCH}/torch/lib NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)

# Where programs find it as long as they are in the build folder; cmake/install.cmake says where after that.
set(CMAKE_BUILD_RPATH ${ESPALIER_LIBTORCH}/torch/lib ${ESPALIER_LIBTORCH}/nvidia/cu13/lib)

add_library(espalier_torch INTERFACE)
target_include_directories(espalier_torch SYSTEM INTERFACE
  ${ESPALIER_LIBTORCH}/torch/include ${ESPALIER_LIBTORCH}/torch/include/torch/csrc/api/include)
target_link_libraries(espalier_torch INTERFACE ${ESPALIER_TORCH_CPU} ${ESPALIER_C10})
# -fopenmp: at::parallel_for is a template; without it, it runs serially in our files, silently.
target_compile_options(espalier_torch INTERFACE -fopenmp)
target_link_options(espalier_torch INTERFACE -fopenmp
  -Wl,-rpath-link,${ESPALIER_LIBTORCH}/nvidia/cu13/lib)

# The one precompiled header of all sources that see tensors.
file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cpp "")
add_library(espalier_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(espalier_torch_pch PUBLIC espalier_torch)
target_include_directories(espalier_torch_pch PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_precompile_headers(espalier_torch_pch PRIVATE
  <ATen/ATen.h> <ATen/Parallel.h> <torch/csrc/autograd/custom_function.h> <torch/csrc/autograd/autograd.h>
  <string> <vector> <functional> <memory> <optional> <unordered_map>)
