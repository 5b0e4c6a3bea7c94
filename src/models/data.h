// From the samples of a family's data sets to its micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/sample_source.h"
#include "tensor/batch.h"

namespace espalier::models {

struct DataSets {
  std::unique_ptr<const data::SampleSource> train;
  std::vector<std::unique_ptr<const data::SampleSource>> valid, test;  // one for each group
};

// A sample, and its place in the order of the run.
struct SampleRow {
  int64_t sample_number = 0;
  data::Sample sample;
};

// Names in Batch::extra that several families use.
inline constexpr const char* kLastKeys = "last_keys";  // [b, s] int32: tensor::AttentionContext::last_key
// Of models that choose between classes, one for each sample, which may be several rows.
inline constexpr const char* kClassLabels = "class_labels";  // int64
inline constexpr const char* kSampleUids = "uids";           // int64, of the file
inline constexpr const char* kSampleWeights = "weights";     // float32: 1, or 0 for what only fills up a step
inline constexpr const char* kRowTargets = "row_targets";    // [b] float32: lm_loss() divides each row's losses by it

// Scalar int64 in host memory: the labels of lm_loss() are drawn from the model's predictions, with this seed.
inline constexpr const char* kDrawnLabels = "drawn_labels";

// [b, s] int64, of evaluations alone: the bytes of text that each label represents. lm_loss() then gives
// LossTerm::text_sum.
inline constexpr const char* kLabelBytes = "label_bytes";

// Rows of one source to a micro-batch in host memory.
using Collate = std::function<tensor::Batch(const std::vector<SampleRow>& rows)>;

// The sets that a family opens, as the rest of the program knows them.
template <class Sets>
DataSets as_sources(Sets sets) {
  DataSets all;
  all.train = std::move(sets.train);
  for (auto& set : sets.valid) all.valid.push_back(std::move(set));
  for (auto& set : sets.test) all.test.push_back(std::move(set));
  return all;
}

}  // namespace espalier::models
