// A model that multiplies by constants where a foreign format has none, as one that does not: the constants go into its
// weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "convert/copy_pieces.h"
#include "convert/model_config.h"
#include "spec/param_spec.h"

namespace espalier::convert {

// These rows (dimension 0) of a tensor of ours are multiplied.
struct FoldedRows {
  std::string tensor;
  spec::MatrixRows rows;
  double factor = 1;
};

struct Folding {
  ModelConfig model;  // that computes the same with the tensors below
  std::vector<FoldedRows> rows;
  std::string note;  // for people, where there are any
};

// Sources of an export with the factors in them; others are passed on. Thread-safe.
class FoldedTensors {
 public:
  FoldedTensors(const TensorMap& map, const Folding& folding);
  // `source`: tensor `number` as stored. In fp32 where it is multiplied.
  SourceTensor at(size_t number, const SourceTensor& source);
  void release(size_t number);  // frees the memory of a tensor that is not asked for any more

 private:
  struct Tensor {
    int64_t num_elements = 0, row = 0;  // elements of a row
    std::vector<FoldedRows> rows;
    std::shared_ptr<std::vector<float>> values;
  };
  std::mutex mutex_;
  std::map<size_t, Tensor> tensors_;
};

}  // namespace espalier::convert
