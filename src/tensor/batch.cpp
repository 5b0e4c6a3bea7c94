#include "tensor/batch.h"

#include <ATen/ATen.h>

namespace espalier::tensor {

Batch Batch::to(at::Device device) const {
  Batch moved = *this;
  for (at::Tensor* tensor : {&moved.ids, &moved.labels, &moved.loss_mask, &moved.positions, &moved.document_starts})
    if (tensor->defined()) *tensor = tensor->to(device);
  for (auto& [name, tensor] : moved.extra) tensor = tensor.to(device);
  return moved;
}

}  // namespace espalier::tensor
