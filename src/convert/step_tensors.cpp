#include <algorithm>

#include "base/error.h"
#include "convert/internal/step_tensors.h"
#include "spec/state_storage.h"
#include "spec/stored_state.h"

namespace espalier::convert {
namespace {

size_t block_at(const store::StoredTensor& tensor, int64_t byte) {
  const auto next = std::upper_bound(tensor.blocks.begin(), tensor.blocks.end(), byte,
                                     [](int64_t at, const store::Block& block) { return at < block.offset; });
  return static_cast<size_t>(next - tensor.blocks.begin()) - 1;
}

}  // namespace

store::TensorSource StepTensors::source(std::vector<int64_t> shape, std::vector<StoredRun> runs, int64_t num_zeros) {
  store::DType dtype = store::DType::kFloat32;
  if (!runs.empty()) {
    const store::StoredTensor* first = manifest().find(runs[0].name);
    ESPALIER_CHECK(first != nullptr, runs[0].name);
    dtype = first->dtype;
  }
  return {dtype, std::move(shape), [this, dtype, runs = std::move(runs), num_zeros](const store::ByteSink& sink) {
            for (const StoredRun& run : runs) produce(run, sink);
            const std::vector<uint8_t> zeros(static_cast<size_t>(num_zeros * store::size_bytes(dtype)));
            if (num_zeros > 0) sink(zeros.data(), zeros.size());
          }};
}

// The whole tensor: runs may begin within a block of moments.
void StepTensors::widen(const store::StoredTensor& tensor, spec::StateTensor::Moment moment) {
  if (widened_ == &tensor) return;
  const bool is_bf16 = tensor.dtype == store::DType::kBFloat16;
  const int64_t stored = store::num_elements(tensor.shape);
  const int64_t count = is_bf16 ? stored : stored / spec::kMomentBlockBytes * spec::kMomentBlock;
  std::vector<uint8_t> bytes;
  produce({tensor.name, {{0, 0, stored}}}, [&](const void* data, size_t size) {
    const auto* const begin = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  });
  moments_.resize(static_cast<size_t>(count));
  spec::widen_state(is_bf16 ? spec::StateType::kBf16 : spec::StateType::kFp8, moment, bytes.data(), count,
                    moments_.data());
  widened_ = &tensor;
}

store::TensorSource StepTensors::moments(std::vector<int64_t> shape, std::vector<StoredRun> runs,
                                         spec::StateTensor::Moment moment, int64_t num_zeros) {
  return {store::DType::kFloat32, std::move(shape),
          [this, runs = std::move(runs), moment, num_zeros](const store::ByteSink& sink) {
            for (const StoredRun& run : runs) {
              const store::StoredTensor* tensor = manifest().find(run.name);
              ESPALIER_CHECK(tensor != nullptr, run.name);
              if (tensor->dtype == store::DType::kFloat32) {
                produce(run, sink);
                continue;
              }
              widen(*tensor, moment);
              for (const spec::Extent& extent : run.extents)
                sink(moments_.data() + extent.global_begin, static_cast<size_t>(extent.count) * sizeof(float));
            }
            const std::vector<float> zeros(static_cast<size_t>(num_zeros));
            if (num_zeros > 0) sink(zeros.data(), zeros.size() * sizeof(float));
          }};
}

void StepTensors::produce(const StoredRun& run, const store::ByteSink& sink) {
  const store::StoredTensor* tensor = manifest().find(run.name);
  ESPALIER_CHECK(tensor != nullptr, run.name);
  const int64_t size = store::size_bytes(tensor->dtype);
  for (const spec::Extent& extent : run.extents)
    for (int64_t at = extent.global_begin * size, end = at + extent.count * size; at < end;) {
      const size_t number = block_at(*tensor, at);
      const store::Block& block = tensor->blocks[number];
      if (cached_ != tensor || cached_block_ != number) {
        cached_ = nullptr;
        block_.resize(static_cast<size_t>(block.bytes));
        reader_.read_block(*tensor, number, block_.data());
        cached_ = tensor, cached_block_ = number;
      }
      const int64_t count = std::min(end, block.offset + block.bytes) - at;
      sink(block_.data() + (at - block.offset), static_cast<size_t>(count));
      at += count;
    }
}

}  // namespace espalier::convert
