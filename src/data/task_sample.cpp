#include "data/task_sample.h"

namespace espalier::data {

TaskRow build_task_row(std::span<const int32_t> first, const std::optional<std::span<const int32_t>>& second,
                       int64_t length, const TaskTokens& tokens) {
  TaskRow row;
  const auto size = static_cast<size_t>(length);
  row.text.push_back(tokens.cls);
  row.text.insert(row.text.end(), first.begin(), first.end());
  row.text.push_back(tokens.sep);
  row.types.assign(row.text.size(), 0);
  if (second) row.text.insert(row.text.end(), second->begin(), second->end());
  row.types.resize(row.text.size(), 1);
  const bool is_cut = row.text.size() >= size;
  if (is_cut) {
    row.text.resize(size - 1);
    row.types.resize(size - 1);
  }
  if (is_cut || second) {
    row.text.push_back(tokens.sep);
    row.types.push_back(second ? 1 : 0);
  }
  row.padding_mask.assign(row.text.size(), 1);
  row.text.resize(size, tokens.pad);
  row.types.resize(size, tokens.pad);
  row.padding_mask.resize(size, 0);
  return row;
}

std::vector<SampleField> task_fields(FinetuningTask task, int64_t length) {
  const int64_t rows = facts_of(task).num_rows;
  const std::vector<int64_t> shape = rows == 1 ? std::vector{length} : std::vector{rows, length};
  return {{"text", shape, true}, {"types", shape}, {"padding_mask", shape}, {"label", {}}, {"uid", {}}, {"counts", {}}};
}

void make_task_sample(FinetuningTask task, const TaskExample& example, const text::Tokenizer& tokenizer,
                      const TaskTokens& tokens, int64_t length, Sample& sample) {
  const std::vector<int32_t> second = tokenizer.encode(*example.second);
  const auto bound = static_cast<size_t>(facts_of(task).first_text_ids);
  sample.arrays.assign(kTaskCounts + 1, {});
  for (const std::string& text : example.first) {
    std::vector<int32_t> first = tokenizer.encode(text);
    if (bound > 0 && first.size() > bound) first.resize(bound);
    const TaskRow row = build_task_row(first, second, length, tokens);
    const auto append = [&](TaskField field, const std::vector<int64_t>& values) {
      sample.arrays[field].insert(sample.arrays[field].end(), values.begin(), values.end());
    };
    append(kTaskText, row.text);
    append(kTaskTypes, row.types);
    append(kTaskPaddingMask, row.padding_mask);
  }
  sample.arrays[kTaskLabel] = {example.label};
  sample.arrays[kTaskUid] = {example.uid};
  sample.arrays[kTaskCounts] = {1};
  sample.source = 0;
}

}  // namespace espalier::data
