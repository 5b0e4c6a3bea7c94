#include "convert/folding.h"

namespace espalier::convert {

FoldedTensors::FoldedTensors(const TensorMap& map, const Folding& folding) {
  for (const FoldedRows& rows : folding.rows) {
    const size_t number = map.ours.number_of(rows.tensor);
    Tensor& tensor = tensors_[number];
    tensor.num_elements = map.ours[number].num_elements();
    tensor.row = tensor.num_elements / map.ours[number].shape[0];
    tensor.rows.push_back(rows);
  }
}

SourceTensor FoldedTensors::at(size_t number, const SourceTensor& source) {
  const auto found = tensors_.find(number);
  if (found == tensors_.end()) return source;
  const std::lock_guard lock(mutex_);
  Tensor& tensor = found->second;
  if (!tensor.values) {
    tensor.values = std::make_shared<std::vector<float>>(static_cast<size_t>(tensor.num_elements));
    copy_elements(source.dtype, source.data, 1, store::DType::kFloat32, tensor.values->data(), 1, tensor.num_elements);
    for (const auto& [name, rows, factor] : tensor.rows)
      for (int64_t time = 0; time < rows.times; ++time) {
        float* const begin = tensor.values->data() + (rows.first + time * rows.stride) * tensor.row;
        for (float* value = begin; value < begin + rows.count * tensor.row; ++value)
          *value = static_cast<float>(*value * factor);
      }
  }
  return {.dtype = store::DType::kFloat32, .data = tensor.values->data(), .owner = tensor.values};
}

void FoldedTensors::release(size_t number) {
  const auto found = tensors_.find(number);
  if (found == tensors_.end()) return;
  const std::lock_guard lock(mutex_);
  found->second.values.reset();
}

}  // namespace espalier::convert
