// Which part of a model's depth each pipeline stage holds. Pure functions.
//
// Depths are those of spec::ParamSpec::depth: 0 embedding, 1 .. L transformer layers, L + 1 final norm and output.
// With virtual stages (chunks) stage p holds one range in each round over the stages:
// round (chunk) c of stage p is part c * num_stages + p of the model, in order of depth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::plan {

// Depths [begin, end).
struct DepthRange {
  int64_t begin = 0, end = 0;
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

}  // namespace espalier::plan
