// Values that come and go (ZeRO 3): a rank keeps its part of each transformer layer and gathers the whole layer before
// it is used, in the forward pass and again in the backward pass.
//
//   x = before_layer(gather, layer, x);
//   x = ... the layer ...
//   x = after_layer(gather, layer, x);
//
// Both are the identity. Their forwards gather and release; their backwards, which run in the opposite order, do so for
// the backward pass of the layer. A recomputed layer is gathered once more for its second run. While a layer is used,
// the next in the same direction is on its way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "dist/group.h"
#include "tensor/param_set.h"

namespace espalier::dist {

class LayerGather {
 public:
  // `params` and `group` (which shares them) outlive it.
  LayerGather(tensor::ParamSet& params, const Group& group);

  // False where all values stay: then nothing else needs to be called.
  bool is_active() const { return !section_of_.empty(); }
  // What this rank keeps of a section's values: compute type, [part]; undefined where the whole stays.
  const at::Tensor& own(size_t section) const { return own_[section]; }

  // `layer`: number in the model, from 0. Called by all ranks of the group, in the same order.
  void enter(int64_t layer);
  void leave(int64_t layer);
  // What was gathered ahead is out of date.
  void forget_ahead();

 private:
  struct Gathering {
    int64_t layer = 0;
    at::Tensor values;
    Pending pending;
  };
  Gathering start(int64_t layer) const;

  tensor::ParamSet& params_;
  const Group& group_;
  std::unordered_map<int64_t, size_t> section_of_;  // a layer's
  std::vector<at::Tensor> own_;                     // of every section
  std::optional<Gathering> ahead_;
  int64_t last_ = 0;  // layer that was entered last
};

// `gather` outlives the graph; null or not active: x itself.
at::Tensor before_layer(LayerGather* gather, int64_t layer, const at::Tensor& x);
at::Tensor after_layer(LayerGather* gather, int64_t layer, const at::Tensor& x);

}  // namespace espalier::dist
