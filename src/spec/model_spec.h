// A model as data: all that plans, checkpoints, reduction and logs know of it. A family makes it from its options
// (config/family.h); nothing here knows which family.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/ghost.h"
#include "spec/param_spec.h"
#include "spec/vocabulary.h"

namespace espalier::spec {

// One place in the order in which activations pass. The first one begins with data, the last one ends in losses, those
// between are layers, which pipeline stages divide and recompute may run again. Counts are those of one sample.
struct Depth {
  std::string name;           // of its files in a checkpoint: "embedding", "00000", "final"
  std::string stack;          // "encoder", of a layer of a model that has several stacks of them
  double forward_flops = 0;   // two for each multiply-add that the mathematics needs
  double megatron_flops = 0;  // the same as Megatron's formula counts it (plan/flops.h)
  // Elements of activations that leave every rank: to the depth after; in sums over tensor ranks, on the way forward
  // and back; between context ranks on either way, of all tensor ranks together.
  double passed_on = 0, summed_forward = 0, summed_backward = 0, exchanged = 0;
  double summed_once = 0;  // on the way forward as well, by `before` and `after`
  // Of its residual stream; 0: the sequence length of the run. `other_tokens`: of another sequence that the layer
  // attends to, and passes on along with the stream.
  double tokens = 0, other_tokens = 0;
  GhostProgram ghost;
  // What runs before and after a layer and never again with it; may be null. A recomputed range of layers does not
  // reach beyond them.
  GhostProgram before, after;
};

struct ModelSpec {
  std::string family;             // "gpt"
  std::string description;        // for people: "2 layers, 48 wide, 4 heads"
  std::vector<ParamSpec> params;  // each lists the depths that use it
  std::vector<Depth> depths;
  Vocabulary vocabulary;
  int64_t hidden_size = 0;       // width of the residual stream
  bool fp32_residual = false;    // that stream is fp32 between layers, whatever the compute type
  bool has_dropout = false;      // of the residual stream
  bool keeps_positions = false;  // layers keep the positions of whole sequences (rotary)
  double batch_bytes = 0;        // of one sample as it waits for its step

  int64_t num_layers() const { return static_cast<int64_t>(depths.size()) - 2; }
  int64_t num_parameters() const { return num_elements(params); }
  // Without the tables of words and positions; an output layer of its own counts.
  int64_t num_parameters_without_embeddings() const;
};

}  // namespace espalier::spec
