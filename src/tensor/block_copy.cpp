#include "tensor/block_copy.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"

namespace espalier::tensor {
namespace {
constexpr int64_t kBlockAlignment = 256;  // of each tensor in the block, as of memory of its own
}

std::vector<at::Tensor> copy_as_block(const std::vector<at::Tensor>& on_host, at::Device device) {
  std::vector<int64_t> begins;
  int64_t size = 0;
  for (const at::Tensor& tensor : on_host) {
    ESPALIER_CHECK(tensor.is_cpu(), "a tensor on ", tensor.device());
    begins.push_back(size);
    size += (static_cast<int64_t>(tensor.nbytes()) + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  }
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor sent = at::empty({size}, bytes.pinned_memory(device.is_cuda()));
  for (size_t i = 0; i < on_host.size(); ++i) {
    const at::Tensor values = on_host[i].contiguous();
    if (values.nbytes() > 0)
      std::memcpy(sent.mutable_data_ptr<uint8_t>() + begins[i], values.const_data_ptr(), values.nbytes());
  }
  const at::Tensor block = at::empty({size}, bytes.device(device));
  block.copy_(sent, /*non_blocking=*/true);
  std::vector<at::Tensor> on_device;
  for (size_t i = 0; i < on_host.size(); ++i)
    on_device.push_back(block.narrow(0, begins[i], static_cast<int64_t>(on_host[i].nbytes()))
                            .view(on_host[i].scalar_type())
                            .view(on_host[i].sizes()));
  return on_device;
}

}  // namespace espalier::tensor
