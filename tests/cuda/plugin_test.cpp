// Loading the CUDA plugin, on machines without a GPU as well: what is missing or does not fit is refused by name.
#include <gtest/gtest.h>

#include <cstdio>
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
  EXPECT_NE(said.find("'/nowhere/libespalier_cuda.so' does not exist"), std::string::npos) << said;
  EXPECT_NE(said.find("--device cpu"), std::string::npos) << said;
}

TEST(CudaPlugin, WithoutAGpuAutoIsTheCpuAndCudaIsRefused) {
  if (cuda::num_gpus() > 0) GTEST_SKIP() << "there is a GPU";
  const cuda::Placement placement = cuda::place_process(config::Device::kAuto, 0);
  EXPECT_TRUE(placement.device.is_cpu());
  EXPECT_EQ(placement.description, "the CPU: no GPU was found");
  const std::string said = refusal([] { cuda::place_process(config::Device::kCuda, 0); });
  EXPECT_NE(said.find("--device cuda: no GPU was found"), std::string::npos) << said;
}

TEST(CudaPlugin, EachProcessTakesTheGpuOfItsNumberOrTheOneThatItWasGiven) {
  EXPECT_EQ(cuda::gpu_of_process(0, 1, nullptr), 0);
  EXPECT_EQ(cuda::gpu_of_process(3, 4, nullptr), 3);
  EXPECT_EQ(cuda::gpu_of_process(3, 4, "4,5,6,7"), 3);
  EXPECT_EQ(cuda::gpu_of_process(3, 1, "0"), 0);  // Slurm's --gpus-per-task=1
  for (const auto& [count, visible] : {std::pair<int64_t, const char*>{1, nullptr}, {2, "0,1"}}) {
    const std::string said = refusal([&] { cuda::gpu_of_process(3, count, visible); });
    EXPECT_NE(said.find("process 3 of this machine needs a GPU of its own"), std::string::npos) << said;
  }
}

TEST(CudaPlugin, AFullGpuIsToldWhatMakesARunSmaller) {
  const std::string said = cuda::out_of_memory("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore").what();
  EXPECT_NE(said.find("the memory of the GPU is full: CUDA out of memory. Tried to allocate 2.00 GiB.\nWhat makes"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("--recompute-activations"), std::string::npos) << said;
}

// What a command prints.
std::string output_of(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string text;
  for (char buffer[4096]; const size_t size = ::fread(buffer, 1, sizeof buffer, pipe);) text.append(buffer, size);
  ::pclose(pipe);
  return text;
}

class BuiltPlugin : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "built without nvcc";
  }
  const std::filesystem::path path_ = cuda::plugin_path();
};

// Carries this build's interface and both entry points, as text in the file.
TEST_F(BuiltPlugin, IsOfThisVersion) {
  std::ifstream file(path_, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  for (const char* text : {ESPALIER_CUDA_INTERFACE, "espalier_cuda_interface", "espalier_cuda_table"})
    EXPECT_NE(content.str().find(text), std::string::npos) << text;
}

// Whatever was installed where it was built; and no folder of that machine.
TEST_F(BuiltPlugin, NamesTheLibrariesThatItNeeds) {
  const std::string dynamic = output_of("readelf -d " + path_.string());
  for (const char* library :
       {"libtorch_cuda.so", "libc10_cuda.so", "libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13"})
    EXPECT_NE(dynamic.find(concat("Shared library: [", library, "]")), std::string::npos) << dynamic;
  EXPECT_EQ(dynamic.find("RUNPATH"), std::string::npos) << dynamic;
  EXPECT_EQ(dynamic.find("RPATH"), std::string::npos) << dynamic;
}

TEST_F(BuiltPlugin, HasKernelsForEachGenerationAndCodeForThoseToCome) {
  const std::string tool = "PATH=$PATH:/usr/local/cuda/bin cuobjdump ";
  const std::string kernels = output_of(tool + "--list-elf " + path_.string());
  if (kernels.find("not found") != std::string::npos) GTEST_SKIP() << "no cuobjdump";
  for (const char* generation : {".sm_80.cubin", ".sm_90.cubin", ".sm_100.cubin", ".sm_120.cubin"})
    EXPECT_NE(kernels.find(generation), std::string::npos) << generation << " is not in\n" << kernels;
  const std::string code = output_of(tool + "--list-ptx " + path_.string());
  EXPECT_NE(code.find(".sm_90.ptx"), std::string::npos) << code;
}

// A spill or a stack makes a kernel many times slower, and more than 255 registers or 99 KiB of shared memory that is
// laid out beforehand cannot be started everywhere.
TEST_F(BuiltPlugin, ItsKernelsSpillNothingAndFitEveryGeneration) {
  const std::string tool = "PATH=$PATH:/usr/local/cuda/bin cuobjdump ";
  const std::string usage = output_of(tool + "--dump-resource-usage " + path_.string());
  if (usage.find("not found") != std::string::npos) GTEST_SKIP() << "no cuobjdump";
  constexpr int kMostStack = 16, kMostRegisters = 255, kMostShared = 48 << 10;
  int num_kernels = 0;
  std::istringstream lines(usage);
  std::string function;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Function ") != std::string::npos) function = line;
    int registers = 0, stack = 0, shared = 0, local = 0;
    const size_t at = line.find("REG:");
    if (at == std::string::npos) continue;
    ASSERT_EQ(std::sscanf(line.c_str() + at, "REG:%d STACK:%d SHARED:%d LOCAL:%d", &registers, &stack, &shared, &local),
              4)
        << line;
    ++num_kernels;
    EXPECT_LE(registers, kMostRegisters) << function;
    EXPECT_LE(stack, kMostStack) << function;
    EXPECT_LE(shared, kMostShared) << function;
    EXPECT_EQ(local, 0) << function;
  }
  EXPECT_GE(num_kernels, 4 * 20);
}

// Also without a driver: everything that the plugin and libtorch's CUDA part name is found.
TEST_F(BuiltPlugin, LoadsWhereLibtorchsCudaPartIsInstalled) {
  if (!std::filesystem::exists(ESPALIER_LIBTORCH "/torch/lib/libtorch_cuda.so"))
    GTEST_SKIP() << "libtorch's CUDA part is not installed (scripts/setup --cuda)";
  const cuda::PluginTable& table = cuda::load_plugin(path_);
  EXPECT_NE(table.ops, nullptr);
  EXPECT_NE(table.select_device, nullptr);
  EXPECT_NE(table.identity, nullptr);
  EXPECT_NE(table.make_nccl, nullptr);
}

}  // namespace plugin_test
}  // namespace espalier::cuda_test
