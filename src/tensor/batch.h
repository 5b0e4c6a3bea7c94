// One micro-batch as the model sees it. Shapes: b micro-batch size, s sequence length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace espalier::tensor {

struct Batch {
  // Position of each row in the order of the run (0 = the first sample ever trained on): the counter of dropout and
  // the subject of the sample hash. Host memory, b entries.
  std::vector<int64_t> sample_numbers;
  // Which data set of the blend each row comes from; b entries, or empty when there is one.
  std::vector<int32_t> sources;
  at::Tensor ids;        // [b, s] int64
  at::Tensor labels;     // [b, s] int64, the next ids
  at::Tensor loss_mask;  // [b, s] float32, 0 or 1 (or a weight)
  at::Tensor positions;  // [b, s] int64, restart at document ends with --reset-position-ids
  // First position whose document a position may attend to: [b, s] int32; undefined when attention crosses document
  // ends (no --reset-attention-mask).
  at::Tensor document_starts;
  // What each term of the loss is a mean over, by its name: what the rows of this batch add to that; every term,
  // also one of which they have none. Models with one term, whose masks seldom differ, leave it empty.
  std::vector<std::pair<std::string, double>> targets;
  std::map<std::string, at::Tensor> extra;  // what only one family needs, by name

  // The same with all tensors on `device`: one copy from host memory, which nobody waits for (block_copy.h).
  Batch to(at::Device device) const;
};

}  // namespace espalier::tensor
