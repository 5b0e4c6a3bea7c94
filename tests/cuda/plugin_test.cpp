// Loading the CUDA plugin, on machines without a GPU as well: what is missing or does not fit is refused by name.
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/format.h"
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

TEST(CudaPlugin, AttentionByCudnnIsRefusedWhereThereIsNone) {
  using spec::AttentionBackend;
  const std::string on_cpu = refusal([] { cuda::check_attention_backend(AttentionBackend::kCudnn, {}); });
  EXPECT_EQ(on_cpu, "--attention-backend cudnn: no GPU was found. Use --attention-backend flash.");
  cuda::Placement without;
  without.why_no_cudnn_attention = "the CUDA part of this build was made without the headers of cuDNN";
  const std::string said = refusal([&] { cuda::check_attention_backend(AttentionBackend::kCudnn, without); });
  EXPECT_NE(said.find("made without the headers of cuDNN. Use --attention-backend flash."), std::string::npos) << said;
  EXPECT_NO_THROW(cuda::check_attention_backend(AttentionBackend::kFlash, {}));
  cuda::Placement with;
  with.why_no_cudnn_attention = nullptr;
  EXPECT_NO_THROW(cuda::check_attention_backend(AttentionBackend::kCudnn, with));
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
  const std::string said =
      cuda::out_of_memory("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore", cuda::Purpose::kTraining).what();
  EXPECT_NE(said.find("the memory of the GPU is full: CUDA out of memory. Tried to allocate 2.00 GiB.\nWhat makes"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("--recompute-activations"), std::string::npos) << said;
  const std::string of_use = cuda::out_of_memory("CUDA out of memory.", cuda::Purpose::kUse).what();
  EXPECT_NE(of_use.find("full: CUDA out of memory.\nWhat takes less"), std::string::npos) << of_use;
  EXPECT_EQ(of_use.find("--recompute-activations"), std::string::npos) << of_use;
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

// What is in the file for GPUs, by NVIDIA's reader of it.
class BuiltKernels : public BuiltPlugin {
 protected:
  void SetUp() override {
    BuiltPlugin::SetUp();
    if (!IsSkipped() && output_of(in_path_ + "command -v cuobjdump").empty())
      GTEST_SKIP() << "there is no cuobjdump in the CUDA toolkit, in the path or in " ESPALIER_CUOBJDUMP
                      " (scripts/setup --tests installs it there on x86-64)";
    if (!IsSkipped() && dump("list-elf").find("fatal") != std::string::npos)
      GTEST_SKIP() << "this cuobjdump cannot read the kernels: " << dump("list-elf");
  }
  std::string dump(const std::string& what) const {
    return output_of(concat(in_path_, "cuobjdump --", what, " '", path_.string(), "'"));
  }

 private:
  const std::string in_path_ = "PATH=" ESPALIER_CUOBJDUMP ":/usr/local/cuda/bin:$PATH; ";
};

TEST_F(BuiltKernels, AreForEachGenerationAndThoseToCome) {
  const std::string kernels = dump("list-elf");
  for (const std::string& generation : split(ESPALIER_CUDA_ARCHITECTURES, ' '))
    EXPECT_NE(kernels.find(concat(".sm_", generation, ".cubin")), std::string::npos) << generation << " is not in\n"
                                                                                     << kernels;
  const std::string code = dump("list-ptx");
  EXPECT_NE(code.find(".sm_90.ptx"), std::string::npos) << code;
}

// A spill or a stack makes a kernel many times slower, and more than 255 registers or 48 KiB of shared memory that is
// laid out beforehand cannot be started.
TEST_F(BuiltKernels, SpillNothingAndFitEveryGeneration) {
  constexpr int kMostStack = 16, kMostRegisters = 255, kMostShared = 48 << 10;
  int num_kernels = 0;
  std::istringstream lines(dump("dump-resource-usage"));
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
  EXPECT_GE(num_kernels, 20 * std::ssize(split(ESPALIER_CUDA_ARCHITECTURES, ' ')));
}

// The instructions of each kernel, as PTX has them.
struct KernelCode {
  std::string name;  // as C++ has it
  std::set<std::string> instructions;

  bool has(const std::string& beginning) const {
    const auto first = instructions.lower_bound(beginning);
    return first != instructions.end() && first->starts_with(beginning);
  }
};

std::string demangled(const std::string& name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr),
                                                         &std::free);
  return text == nullptr ? name : text.get();
}

std::vector<KernelCode> kernels_of(const std::string& ptx) {
  constexpr std::string_view kEntry = ".entry ";
  std::vector<KernelCode> kernels;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find(kEntry); at != std::string::npos) {
      const size_t begin = at + kEntry.size();
      kernels.push_back({demangled(line.substr(begin, line.find('(') - begin)), {}});
      continue;
    }
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || kernels.empty()) continue;
    if (word.starts_with('@') && !(words >> word)) continue;  // a condition
    if (word.find('.') != std::string::npos) kernels.back().instructions.insert(word.substr(0, word.find(';')));
  }
  return kernels;
}

class KernelsAsPtx : public BuiltKernels {
 protected:
  void SetUp() override {
    BuiltKernels::SetUp();
    if (IsSkipped()) return;
    if (dump("list-ptx").find(".ptx") == std::string::npos)
      GTEST_SKIP() << "built for some generations alone, without code for those to come";
    kernels_ = kernels_of(dump("dump-ptx"));
    ASSERT_GE(kernels_.size(), 100u);
  }
  template <class Check>
  void for_each_that_is(const std::regex& kind, const Check& check) const {
    int count = 0;
    for (const KernelCode& kernel : kernels_) {
      if (!std::regex_search(kernel.name, kind)) continue;
      ++count;
      check(kernel);
    }
    EXPECT_GE(count, 6) << "kernels of that name are another's, or gone";
  }
  static void expect_none(const KernelCode& kernel, std::initializer_list<const char*> beginnings) {
    for (const char* beginning : beginnings) EXPECT_FALSE(kernel.has(beginning)) << beginning << " in " << kernel.name;
  }

 private:
  std::vector<KernelCode> kernels_;
};

// Of rows that allow accesses of 16 bytes: all by packs (vectors.cuh), and those that walk over rows by themselves.
const std::regex kPacks("(for_each_pack|sum_packs_of_part)<.*, true> ?>\\(");
const std::regex kHeads("heads_(forward|backward)_kernel<");
const std::regex kWholeRows(
    "(heads_forward|heads_backward|sum_runs|accumulate)_kernel<\\w+, true>\\(|finish_runs_kernel<true>\\(|"
    "norm_(forward|backward)_kernel<\\w+, \\w+, true, \\d>\\(|::(update_kernel|measure_kernel|row_dots_kernel<)");
const std::regex kOnTensorCores("::tensor_\\w+_kernel<");
const std::regex kAny("");

// Whatever the order of blocks: sums of atomic additions would differ from run to run.
TEST_F(KernelsAsPtx, AddInAnOrderOfTheirOwn) {
  for_each_that_is(kAny, [](const KernelCode& kernel) { expect_none(kernel, {"atom.", "red."}); });
}

// Of 64 bits it is a hundred instructions; divisor.h has the quotients of elements.
TEST_F(KernelsAsPtx, OfElementsDivideNoNumbersOf64Bits) {
  for (const std::regex* kind : {&kPacks, &kHeads})
    for_each_that_is(*kind, [](const KernelCode& kernel) {
      expect_none(kernel, {"div.s64", "div.u64", "rem.s64", "rem.u64"});
    });
}

// Arrays whose indices the compiler does not know are in memory. Elsewhere up to 16 bytes may be.
TEST_F(KernelsAsPtx, KeepWhatTheyComputeInRegisters) {
  for (const std::regex* kind : {&kPacks, &kHeads, &kWholeRows, &kOnTensorCores})
    for_each_that_is(*kind, [](const KernelCode& kernel) { expect_none(kernel, {"ld.local", "st.local"}); });
}

TEST_F(KernelsAsPtx, OfWholeRowsReadAndWrite16BytesAtATime) {
  const std::regex sums("NormTerms<|::Values<|::(accumulate|measure|row_dots)_kernel");
  for (const std::regex* kind : {&kPacks, &kWholeRows})
    for_each_that_is(*kind, [&](const KernelCode& kernel) {
      EXPECT_TRUE(kernel.has("ld.global.v4")) << kernel.name;
      EXPECT_TRUE(kernel.has("st.global.wb.v4") || std::regex_search(kernel.name, sums)) << kernel.name;
      if (kernel.name.find("accumulate_kernel") != std::string::npos) return;  // reads a label's logit
      expect_none(kernel, {"ld.global.u16", "st.global.u16"});
    });
  for_each_that_is(kOnTensorCores, [](const KernelCode& kernel) {
    EXPECT_TRUE(kernel.has("cp.async.cg.shared.global")) << kernel.name;
    EXPECT_TRUE(kernel.has("st.global.wb.v4")) << kernel.name;
    expect_none(kernel, {"ld.global.u16", "st.global.u16"});
  });
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
  EXPECT_NE(table.why_no_cudnn_attention, nullptr);
}

}  // namespace plugin_test
}  // namespace espalier::cuda_test
