// Loading the CUDA plugin, on machines without a GPU as well: what is missing or does not fit is refused by name.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cuda/cuda.h"

namespace espalier::cuda_test {
namespace plugin_test {

// The message of the UserError that `run` must throw.
template <class Run>
std::string refusal(const Run& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(CudaPlugin, AnotherVersionIsRefusedByName) {
  const std::string said = refusal([] { cuda::load_plugin(ESPALIER_OTHER_PLUGIN); });
  EXPECT_NE(said.find("is espalier 0.0.0 made elsewhere, this program is " ESPALIER_CUDA_INTERFACE), std::string::npos)
      << said;
}

TEST(CudaPlugin, AMissingFileIsNamed) {
  const std::string said = refusal([] { cuda::load_plugin("/nowhere/libespalier_cuda.so"); });
  EXPECT_NE(said.find("'/nowhere/libespalier_cuda.so' is not there"), std::string::npos) << said;
  EXPECT_NE(said.find("--device cpu"), std::string::npos) << said;
}

TEST(CudaPlugin, WithoutAGpuAutoIsTheCpuAndCudaIsRefused) {
  if (cuda::num_gpus() > 0) GTEST_SKIP() << "there is a GPU";
  const cuda::Placement placement = cuda::place_process(plan::Device::kAuto, 0);
  EXPECT_TRUE(placement.device.is_cpu());
  EXPECT_EQ(placement.description, "the CPU: no GPU was found");
  const std::string said = refusal([] { cuda::place_process(plan::Device::kCuda, 0); });
  EXPECT_NE(said.find("--device cuda: no GPU was found"), std::string::npos) << said;
}

// The plugin of this build carries this build's interface and both entry points, as text in the file: without a GPU's
// libraries it cannot be loaded to be asked.
TEST(CudaPlugin, TheBuiltPluginIsOfThisVersion) {
  if (!std::filesystem::exists(cuda::plugin_path())) GTEST_SKIP() << "built without nvcc";
  std::ifstream file(cuda::plugin_path(), std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  for (const char* text : {ESPALIER_CUDA_INTERFACE, "espalier_cuda_interface", "espalier_cuda_table"})
    EXPECT_NE(content.str().find(text), std::string::npos) << text;
}

}  // namespace plugin_test
}  // namespace espalier::cuda_test
