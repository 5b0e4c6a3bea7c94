#include "apps/engine/probe.h"

#include <torch/headeronly/version.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "cuda/cuda.h"

namespace espalier {
namespace {

std::string plugin_state() {
  if (!std::filesystem::exists(cuda::plugin_path())) return "none: this build has no CUDA part";
  try {
    cuda::load_plugin(cuda::plugin_path());
    return "loads";
  } catch (const UserError& error) {
    return error.what();
  }
}

}  // namespace

int probe(const std::vector<std::string>&) {
  const int64_t gpus = cuda::num_gpus();
  const nlohmann::ordered_json object = {{"libtorch", TORCH_VERSION},
                                         {"kernels", cpu_isa_name(cpu_isa())},
                                         {"best_kernels", cpu_isa_name(best_cpu_isa())},
                                         {"gpus", gpus},
                                         {"cuda_plugin", gpus > 0 ? plugin_state() : ""}};
  std::printf("%s\n", object.dump().c_str());
  return 0;
}

}  // namespace espalier
