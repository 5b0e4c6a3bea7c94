#include "tensor/batch.h"

#include <ATen/ATen.h>

#include "tensor/block_copy.h"

namespace espalier::tensor {

Batch Batch::to(at::Device device) const {
  Batch moved = *this;
  std::vector<at::Tensor*> travelling;
  const auto see = [&](at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device) travelling.push_back(&tensor);
  };
  for (at::Tensor* tensor : {&moved.ids, &moved.labels, &moved.loss_mask, &moved.positions, &moved.document_starts})
    see(*tensor);
  for (auto& [name, tensor] : moved.extra) see(tensor);
  if (travelling.empty()) return moved;
  std::vector<at::Tensor> on_host;
  for (const at::Tensor* tensor : travelling) on_host.push_back(*tensor);
  const std::vector<at::Tensor> on_device = copy_as_block(on_host, device);
  for (size_t i = 0; i < travelling.size(); ++i) *travelling[i] = on_device[i];
  return moved;
}

}  // namespace espalier::tensor
