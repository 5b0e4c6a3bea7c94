// NCCL with one rank: a group of one needs no exchange, so its backend is called directly.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "cuda/cuda.h"
#include "tests/cuda/device_under_test.h"

namespace espalier::cuda_test {
namespace nccl_test {

TEST(Nccl, OneRankReducesAndGathersItsOwn) {
  const auto make_nccl = cuda::load_plugin(cuda::plugin_path()).make_nccl;
  const auto backend = make_nccl(c10::make_intrusive<c10d::HashStore>(), 0, 1, std::chrono::minutes(1));
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor values = at::arange(33, at::TensorOptions().dtype(type).device(device_under_test()));
    std::vector<at::Tensor> tensors = {values.clone()};
    backend->allreduce(tensors)->wait();
    EXPECT_TRUE(at::equal(tensors[0], values)) << type;
    at::Tensor gathered = at::empty_like(values), part = values.clone();
    backend->_allgather_base(gathered, part)->wait();
    EXPECT_TRUE(at::equal(gathered, values)) << type;
  }
}

}  // namespace nccl_test
}  // namespace espalier::cuda_test
