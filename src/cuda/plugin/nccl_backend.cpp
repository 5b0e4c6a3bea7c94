#define USE_C10D_NCCL
#include <stdlib.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "cuda/plugin/nccl_backend.h"

namespace espalier::cuda {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                                            std::chrono::milliseconds timeout) {
  // dist::DeviceWatch ends a process whose peers are gone, with a message and an exit code; c10d would abort it. It has
  // this much longer, for a group whose exchanges nobody watches.
  constexpr auto kLonger = std::chrono::minutes(5);
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*replace=*/1);
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = timeout + kLonger;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank), static_cast<int>(size), nccl);
}

}  // namespace espalier::cuda
