// Tensors of one of our checkpoints as sources for files of torch.save.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spec/optimizer_element.h"
#include "spec/shard.h"
#include "store/step_reader.h"
#include "store/tensor_view.h"

namespace espalier::convert {

// Elements of a stored tensor, in the order of their local offsets, which follow one another from 0 on.
struct StoredRun {
  std::string name;
  std::vector<spec::Extent> extents;
};

class StepTensors {
 public:
  explicit StepTensors(const std::filesystem::path& step_folder) : reader_(step_folder) {}

  const store::Manifest& manifest() const { return reader_.manifest(); }
  bool has(const std::string& name) const { return manifest().find(name) != nullptr; }

  // The runs one after the other, then `num_zeros` zeros. All have the type of the first; this must outlive the
  // source.
  store::TensorSource source(std::vector<int64_t> shape, std::vector<StoredRun> runs, int64_t num_zeros = 0);

  // The same of moments of an optimizer, in fp32 whatever they are stored in.
  store::TensorSource moments(std::vector<int64_t> shape, std::vector<StoredRun> runs, spec::StateTensor::Moment moment,
                              int64_t num_zeros = 0);

 private:
  void widen(const store::StoredTensor& tensor, spec::StateTensor::Moment moment);
  void produce(const StoredRun& run, const store::ByteSink& sink);

  store::StepReader reader_;
  // The block that was read last: runs mostly go through a tensor from its beginning to its end.
  const store::StoredTensor* cached_ = nullptr;
  size_t cached_block_ = 0;
  std::vector<uint8_t> block_;
  // The moments that were widened last.
  const store::StoredTensor* widened_ = nullptr;
  std::vector<float> moments_;
};

}  // namespace espalier::convert
