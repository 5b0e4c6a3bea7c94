#include <ATen/ATen.h>

#include <numeric>

#include "base/error.h"
#include "data/task_sample.h"
#include "models/bert/batch.h"
#include "models/bert_task/model.h"

namespace espalier::models {
namespace {

struct TaskRowTensors {
  int64_t *ids, *positions, *types;
  int32_t* last_keys;
};

void fill_task_row(const data::Sample& sample, size_t begin, int64_t length, const TaskRowTensors& out) {
  const auto first = sample.arrays[data::kTaskPaddingMask].begin() + static_cast<std::ptrdiff_t>(begin);
  const int64_t used = std::accumulate(first, first + length, int64_t{0});
  for (int64_t at = 0; at < length; ++at) {
    const size_t place = begin + static_cast<size_t>(at);
    out.ids[at] = sample.arrays[data::kTaskText][place];
    out.positions[at] = at;
    // Padding has PAD as its type, which may be no type; what is there changes nothing.
    out.types[at] = at < used ? sample.arrays[data::kTaskTypes][place] : 0;
    out.last_keys[at] = static_cast<int32_t>(at < used ? used - 1 : -1);
  }
}

}  // namespace

tensor::Batch make_task_batch(const std::vector<SampleRow>& rows, data::FinetuningTask task) {
  ESPALIER_CHECK(!rows.empty() && rows[0].sample.arrays.size() > data::kTaskCounts, "a batch needs a task's samples");
  const auto samples = static_cast<int64_t>(rows.size()), each = data::facts_of(task).num_rows, b = samples * each;
  const int64_t s = static_cast<int64_t>(rows[0].sample.arrays[data::kTaskText].size()) / each;
  tensor::Batch batch;
  batch.ids = at::empty({b, s}, at::kLong);
  batch.positions = at::empty({b, s}, at::kLong);
  batch.loss_mask = at::ones({b, s}, at::kFloat);
  const at::Tensor types = at::empty({b, s}, at::kLong), last_keys = at::empty({b, s}, at::kInt);
  const at::Tensor labels = at::empty({samples}, at::kLong), weights = at::empty({samples}, at::kFloat);
  const at::Tensor uids = at::empty({samples}, at::kLong);
  for (int64_t at = 0; at < samples; ++at) {
    const SampleRow& row = rows[static_cast<size_t>(at)];
    for (int64_t option = 0; option < each; ++option) {
      const int64_t begin = (at * each + option) * s;
      fill_task_row(row.sample, static_cast<size_t>(option * s), s,
                    {batch.ids.data_ptr<int64_t>() + begin, batch.positions.data_ptr<int64_t>() + begin,
                     types.data_ptr<int64_t>() + begin, last_keys.data_ptr<int32_t>() + begin});
      batch.sample_numbers.push_back(row.sample_number * each + option);
    }
    labels.data_ptr<int64_t>()[at] = row.sample.arrays[data::kTaskLabel].at(0);
    uids.data_ptr<int64_t>()[at] = row.sample.arrays[data::kTaskUid].at(0);
    weights.data_ptr<float>()[at] = static_cast<float>(row.sample.arrays[data::kTaskCounts].at(0));
  }
  batch.labels = labels.repeat_interleave(each).unsqueeze(1);  // of each row, for the hash of samples
  batch.extra = {{kLastKeys, last_keys}, {kTokenTypes, types}};
  batch.extra.insert({{kClassLabels, labels}, {kSampleWeights, weights}, {kSampleUids, uids}});
  batch.targets = {{"lm loss", weights.sum().item<double>()}};
  return batch;
}

}  // namespace espalier::models
