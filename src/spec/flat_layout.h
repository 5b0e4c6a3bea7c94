// Where the parameters of one process are in its flat buffers of values and of gradients. A pure function.
//
// Parameters that are exchanged alike are adjacent, in sections: those that several depths share, then those replicated
// over the tensor axis (last, those of them whose use is split), then the split ones, depth by depth. Sections of all
// but the last kind have the same layout on every rank that holds the same parameters, so that a sum over ranks adds in
// the same order there, and equal things stay equal to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/param_spec.h"
#include "spec/shard.h"

namespace espalier::spec {

// Every parameter begins at a multiple of this many elements: 64 bytes of bf16, 128 of fp32.
inline constexpr int64_t kFlatAlignment = 32;

// `count` rounded up to a multiple of kFlatAlignment.
int64_t round_up_flat(int64_t count);

struct FlatSection {
  bool is_shared = false;       // by several depths
  std::vector<int64_t> stages;  // as the parameters'
  bool replicated = false;      // over the tensor axis
  bool use_is_split = false;    // as the parameters'
  int64_t depth = -1;           // of its parameters; -1: any
  bool is_layer = false;        // is after the first depth and before the last
  int64_t begin = 0, end = 0;   // elements of the flat buffer, padding included
  std::vector<size_t> params;   // numbers in the list
  int64_t count() const { return end - begin; }
};

struct FlatLayout {
  std::vector<int64_t> offsets, counts;  // of each parameter, in the order of the list, in elements
  std::vector<size_t> section_of;        // each parameter
  std::vector<FlatSection> sections;     // in order, without gaps between them
  int64_t size = 0;                      // of the whole buffer, padding included; the padding stays zero
};

// Sections are padded so that each can be cut into `num_sharers` equal parts of whole multiples of kFlatAlignment.
FlatLayout flat_layout(const std::vector<ParamSpec>& specs, const TensorShard& shard, int64_t num_sharers = 1);

// What data-parallel ranks divide among themselves; each stage includes the ones before.
enum class ZeroStage { kNone = 0, kOptimizer = 1, kGradients = 2, kParameters = 3 };

// Of the buffers of a process.
struct Sharing {
  ZeroStage stage = ZeroStage::kNone;
  int64_t num_ranks = 1;  // data * context
};

// Whether a section's whole gradients, or whole values, exist only while they are needed, and a rank keeps no more
// than its part. What is replicated over tensor ranks is small and stays; so do the values before and after the
// layers, which every step needs from its first to its last moment.
bool gradients_come_and_go(const FlatSection& section, const Sharing& sharing);
bool values_come_and_go(const FlatSection& section, const Sharing& sharing);

}  // namespace espalier::spec
