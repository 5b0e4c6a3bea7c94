// Which part of a model's depth each pipeline stage holds. Pure functions.
//
// Depths are those of spec::ParamSpec::depth: 0 embedding, 1 .. L transformer layers, L + 1 final norm and output.
// With virtual stages (chunks) stage p holds one range in each round over the stages:
// round (chunk) c of stage p is part c * num_stages + p of the model, in order of depth.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/run_shape.h"

namespace espalier::plan {

// Depths [begin, end).
struct DepthRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool contains(int64_t depth) const { return begin <= depth && depth < end; }
  bool operator==(const DepthRange&) const = default;
};

struct Partition {
  int64_t num_stages = 1, num_chunks = 1;
  int64_t num_layers = 0;
  std::vector<DepthRange> parts;  // num_stages * num_chunks, in order of depth; they cover 0 .. num_layers + 1

  const DepthRange& part(int64_t stage, int64_t chunk) const {
    return parts.at(static_cast<size_t>(chunk * num_stages + stage));
  }
  // Transformer layers of a part, as numbers from 0.
  DepthRange layers(int64_t stage, int64_t chunk) const;
  // Stage that holds a depth.
  int64_t stage_of(int64_t depth) const;
};

// The same number of layers for every part; CHECKs that they divide.
Partition partition_evenly(int64_t num_layers, int64_t num_stages, int64_t num_chunks);

// The number of layers of each stage, in order; CHECKs that each has at least one.
Partition partition_by_counts(const std::vector<int64_t>& layers_of_stages);

// Elements of what --pp-partition-method parameters weighs.
struct PartWeights {
  int64_t embedding = 0, layer = 0, final_norm = 0, output = 0;  // output: also when it is the tied embedding
};
PartWeights part_weights(const spec::ModelSpec& model);

struct PartitionRequest {
  // Of --pp-partition-method:
  //   ""                even where the layers divide; type:transformer, DeepSpeed's default
  //   "type:PATTERN"    the same number for every stage of items whose class name matches the regular expression, in
  //   any
  //                     case: EmbeddingPipe (twice: input and output), ParallelTransformerLayerPipe, LayerNorm
  //   "uniform"         the same number of items of DeepSpeed's list: 3 before the layers, 4 after them
  //   "parameters"      the same number of parameters, as near as can be
  //   "list:5,6,6,5"    the number of layers of each stage
  std::string method;
  int64_t num_layers = 0, num_stages = 1, num_chunks = 1;
  PartWeights weights;  // read by "parameters" only
  // How messages name the option, with where it comes from.
  std::string method_origin = "--pp-partition-method";
};

// The boundaries that DeepSpeed 0.19 finds, as layers; nothing, with problems that name the nearest legal choice, where
// a stage would hold no transformer layer. With several chunks all parts have the same number of layers.
std::optional<Partition> make_partition(const PartitionRequest& request, Problems& problems);

// Of a run whose vocabulary is known (`parameters` weighs it). UserError as above.
Partition make_partition(const RunShape& run);

// DeepSpeed 0.19's partition_balanced and partition_uniform: boundaries of num_parts runs of items.
std::vector<int64_t> balanced_boundaries(const std::vector<double>& weights, int64_t num_parts);
std::vector<int64_t> uniform_boundaries(int64_t num_items, int64_t num_parts);

}  // namespace espalier::plan
