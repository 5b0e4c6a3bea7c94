#include "infer/load_weight.h"

#include <ATen/ATen.h>

#include "store/manifest.h"

namespace espalier::infer {

void load_weights_of(ckpt::LoadedCheckpoint& checkpoint, const std::vector<ckpt::TensorRequest>& requests,
                     WeightSet set) {
  using Part = ckpt::LoadedCheckpoint::Part;
  std::vector<ckpt::TensorRequest> read_in_place;
  for (const ckpt::TensorRequest& request : requests) {
    const bool is_average = set == WeightSet::kEma;
    if (!is_average && request.destination.is_cpu()) {
      read_in_place.push_back(request);
      continue;
    }
    const at::Tensor read =
        at::empty(request.destination.sizes(), is_average ? at::kFloat : request.destination.scalar_type());
    checkpoint.load({{is_average ? store::ema_of(request.name) : request.name, read, request.part}}, Part::kSome);
    at::Tensor(request.destination).copy_(read);
  }
  if (!read_in_place.empty()) checkpoint.load(read_in_place, Part::kSome);
}

}  // namespace espalier::infer
