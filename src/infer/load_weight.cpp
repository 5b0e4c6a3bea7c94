#include "infer/load_weight.h"

#include <ATen/ATen.h>

#include "store/manifest.h"

namespace espalier::infer {

void load_weights_of(ckpt::LoadedCheckpoint& checkpoint, const std::vector<ckpt::TensorRequest>& requests,
                     WeightSet set) {
  using Part = ckpt::LoadedCheckpoint::Part;
  if (set == WeightSet::kWeights) return checkpoint.load(requests, Part::kSome);
  for (const ckpt::TensorRequest& request : requests) {
    const at::Tensor fp32 = at::empty(request.destination.sizes(), at::kFloat);
    checkpoint.load({{store::ema_of(request.name), fp32, request.part}}, Part::kSome);
    at::Tensor(request.destination).copy_(fp32);
  }
}

}  // namespace espalier::infer
