// cuDNN itself on a machine without a GPU: it makes the plans of our graphs, for GPUs that are only described, and
// compiles their kernels. Nothing is run.
#include "kernels/cuda/sdpa_plan.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "kernels/cuda/attention_cudnn.h"

namespace espalier::cuda {

struct PaperGpu {
  const char* name;
  int capability, processors;
  int64_t shared_bytes_of_block, shared_bytes_of_processor;
};

namespace {

// From the tables of CUDA's programming guide.
constexpr PaperGpu kGpus[] = {{"A100", 80, 108, 166912, 167936}, {"H100", 90, 132, 232448, 233472}};
const PaperGpu* present = nullptr;  // the one that the test is about

// As cuDNN 9.19 reads it.
std::string properties_of(const PaperGpu& gpu) {
  return concat(R"({"name":"device","deviceName":")", gpu.name, R"(","deviceVer":)", 10 * gpu.capability,
                R"(,"driverVer":13000,"regsPerBlock":65536,"multiProcessorCount":)", gpu.processors,
                R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)",
                gpu.shared_bytes_of_block, R"(,"reservedSharedMemoryPerBlock":1024,"maxSharedMemoryPerSM":)",
                gpu.shared_bytes_of_processor,
                R"(,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048)",
                R"(,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":85000000000)",
                R"(,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0)",
                R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64]})");
}

SdpaDevice device() { return {.capability = present->capability, .properties = properties_of(*present)}; }

struct Made {
  int64_t plans = 0, workspace_bytes = 0;  // of the last one
};
Made made;

}  // namespace

// What attention_cudnn.cpp asks for is planned.
void sdpa_forward(const Sdpa& sdpa) { made = {made.plans + 1, SdpaPlan(sdpa, nullptr, device()).workspace_bytes()}; }
void sdpa_backward(const Sdpa& sdpa, const SdpaGradients& gradients) {
  made = {made.plans + 1, SdpaPlan(sdpa, &gradients, device()).workspace_bytes()};
}

namespace sdpa_plan_test {

using kernels::AttentionGradients;
using kernels::AttentionOperand;
using kernels::AttentionProblem;
using kernels::AttentionType;

struct Shape {
  int64_t length, batch, groups, members, head_size;
};

float log_sum_exp;  // only that it is wanted matters

AttentionOperand operand(const Shape& shape, int64_t parts, bool of_queries) {
  const int64_t row = shape.groups * parts * shape.head_size;
  return {nullptr, row, parts * shape.head_size, of_queries ? shape.head_size : 0, shape.batch * row};
}

// As kernels/attention.cpp lays out a fused projection.
AttentionProblem problem_of(const Shape& shape, AttentionType type, bool causal) {
  AttentionProblem problem;
  problem.type = type;
  problem.batch = shape.batch;
  problem.groups = shape.groups;
  problem.members = shape.members;
  problem.head_size = shape.head_size;
  problem.num_queries = problem.num_keys = shape.length;
  problem.query = operand(shape, shape.members + 2, true);
  problem.key = problem.value = operand(shape, shape.members + 2, false);
  problem.result = operand(shape, shape.members, true);
  problem.causal = causal;
  problem.scale = 0.125;
  problem.log_sum_exp = &log_sum_exp;
  return problem;
}

AttentionGradients gradients_of(const Shape& shape) {
  AttentionGradients gradients;
  gradients.result = operand(shape, shape.members, true);
  gradients.query = operand(shape, shape.members + 2, true);
  gradients.key = gradients.value = operand(shape, shape.members + 2, false);
  return gradients;
}

class Plans : public ::testing::TestWithParam<PaperGpu> {
 protected:
  void SetUp() override { present = &GetParam(); }
};

TEST_P(Plans, AreMadeForEveryShapeOfTraining) {
  const auto expect_plans = [](const Shape& shape, AttentionType type, bool causal) {
    const int64_t before = made.plans;
    const AttentionProblem problem = problem_of(shape, type, causal);
    EXPECT_NO_THROW(attention_forward_cudnn(problem)) << shape.length << " by " << shape.head_size;
    EXPECT_NO_THROW(attention_backward_cudnn(problem, gradients_of(shape)))
        << shape.length << " by " << shape.head_size;
    EXPECT_EQ(made.plans, before + 2);
  };
  for (const Shape& shape : {Shape{1024, 8, 12, 1, 64}, Shape{33, 2, 3, 1, 8}, Shape{1000, 2, 4, 3, 128},
                             Shape{33, 1, 1, 2, 40}, Shape{2, 1, 1, 1, 64}})
    expect_plans(shape, AttentionType::kBFloat16, true);
  expect_plans({1000, 2, 4, 3, 128}, AttentionType::kBFloat16, false);
  expect_plans({1024, 8, 12, 1, 64}, AttentionType::kHalf, true);
}

TEST_P(Plans, OfEvaluationKeepNothing) {
  AttentionProblem problem = problem_of({1024, 8, 12, 1, 64}, AttentionType::kBFloat16, true);
  problem.log_sum_exp = nullptr;
  EXPECT_NO_THROW(attention_forward_cudnn(problem));
  EXPECT_LE(made.workspace_bytes, 1 << 20);
}

// docs/gpu.md: what determinism costs before Blackwell.
TEST_P(Plans, OfBackwardPassesKeepTwoBytesForEachPairOfPositions) {
  const Shape shape{4096, 2, 32, 1, 128};
  attention_backward_cudnn(problem_of(shape, AttentionType::kBFloat16, true), gradients_of(shape));
  const double pairs = 2.0 * 32 * 4096 * 4096;
  EXPECT_NEAR(static_cast<double>(made.workspace_bytes) / pairs, 2, 0.1);
}

TEST_P(Plans, ThatCannotBeMadeSayWhyAndWhatToUse) {
  Sdpa sdpa{.batch = 1, .query_heads = 1, .key_heads = 1, .num_queries = 64, .num_keys = 64, .head_size = 12};
  sdpa.query = sdpa.key = sdpa.value = sdpa.result = {nullptr, 64 * 12, 12, 12};
  try {
    const SdpaPlan plan(sdpa, nullptr, device());
    FAIL() << "a plan for heads of 12 channels";
  } catch (const UserError& error) {
    const std::string said = error.what();
    for (const char* part : {"cuDNN 9.",
                             "does not compute the forward pass of causal attention in bf16, 64 queries and 64 "
                             "keys, heads of 12 channels",
                             "multiple of 8", "--attention-backend flash does."})
      EXPECT_NE(said.find(part), std::string::npos) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, Plans, ::testing::ValuesIn(kGpus), [](const auto& info) { return info.param.name; });

}  // namespace sdpa_plan_test
}  // namespace espalier::cuda

// The frontend asks CUDA which GPU it is on. The program's own functions come before the library's.
extern "C" {
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->major = espalier::cuda::present->capability / 10;
  properties->minor = espalier::cuda::present->capability % 10;
  properties->multiProcessorCount = espalier::cuda::present->processors;
  return cudaSuccess;
}
}
