#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "cuda/plugin/nccl_backend.h"

namespace espalier::cuda {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                                            std::chrono::milliseconds timeout) {
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank), static_cast<int>(size), nccl);
}

}  // namespace espalier::cuda
