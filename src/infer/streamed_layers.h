// The layers of a model that does not fit into memory: each is read from the checkpoint when a pass comes to it, and
// its blocks are checked. While a layer is used the one that followed it last time is read, so that a pass takes as
// long as the slower of reading and computing. Memory holds two layers.
//
// Files are read past the page cache, not mapped: a bad disk gives an error with a name, what is held is bounded, and
// what others have in the cache stays there.
#pragma once

#include <ATen/core/Tensor.h>

#include <future>
#include <map>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "ckpt/loader.h"
#include "infer/load_weight.h"
#include "models/layer_source.h"
#include "tensor/param_set.h"

namespace espalier::infer {

class StreamedLayers final : public models::LayerSource {
 public:
  // `params`, whose layers' values come and go, outlive it.
  StreamedLayers(ckpt::LoadedCheckpoint checkpoint, tensor::ParamSet& params, WeightSet set);
  ~StreamedLayers() override;  // logs how fast it has read

  void enter(int64_t layer) override;
  void leave(int64_t layer) override;

 private:
  struct Reading {
    int64_t layer = 0;
    at::Tensor values;
    std::future<void> done;
  };
  Reading start(int64_t layer, const at::Tensor& buffer);
  void read(int64_t layer, const at::Tensor& values);  // on the thread of reader_
  int64_t next_of(int64_t layer) const;

  ckpt::LoadedCheckpoint checkpoint_;
  tensor::ParamSet& params_;
  WeightSet set_;
  std::map<int64_t, size_t> section_of_;  // a layer's
  std::map<int64_t, int64_t> followed_;   // the layer that came after it
  at::Tensor used_, spare_;               // buffers: of the layer in use, and of the next
  std::optional<Reading> ahead_;
  int64_t last_ = -1;  // that was entered
  double read_seconds_ = 0, waited_seconds_ = 0;
  ThreadPool reader_{1};  // the last: it ends before what it reads into
};

}  // namespace espalier::infer
