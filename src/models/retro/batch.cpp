#include "models/retro/batch.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "models/gpt/batch.h"
#include "retrieval/retro_dataset.h"

namespace espalier::models {

tensor::Batch make_retro_batch(const std::vector<SampleRow>& rows, const data::RowRules& rules, int64_t num_neighbors) {
  using Field = retrieval::RetroDataset::Field;
  tensor::Batch batch = make_gpt_batch(rows, rules);
  const auto stack = [&](Field field, std::vector<int64_t> shape) {
    std::vector<at::Tensor> all;
    for (const SampleRow& row : rows) all.push_back(at::tensor(row.sample.arrays.at(field), at::kLong).view(shape));
    return at::stack(all);
  };
  const auto chunks = static_cast<int64_t>(rows[0].sample.arrays.at(Field::kNeighborCounts).size());
  batch.extra[kNeighborTokens] = stack(Field::kNeighborTokens, {chunks, num_neighbors, -1});
  batch.extra[kNeighborCounts] = stack(Field::kNeighborCounts, {chunks});
  return batch;
}

}  // namespace espalier::models
