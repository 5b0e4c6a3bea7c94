#include "optim/qk_clip.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace espalier::optim {
namespace {

// Of one layer's groups, by the largest logits of its query heads.
void add_factors(const tensor::HeadLogits& layer, const at::Tensor& largest, const spec::OptimizerSettings& settings,
                 std::vector<RowFactor>& factors) {
  const int64_t rows_of_group = (layer.queries + 2) * layer.head_size, query_rows = layer.queries * layer.head_size;
  const at::Tensor of_groups = largest.view({-1, layer.queries}).amax(1);
  for (int64_t group = 0; group < of_groups.size(0); ++group) {
    const double ratio = settings.qk_clip_threshold / of_groups[group].item<double>();
    if (!(ratio > 0 && ratio < 1)) continue;  // also where nothing was seen
    const int64_t begin = group * rows_of_group, key = begin + query_rows;
    for (const tensor::Param* param : {layer.weight, layer.bias}) {
      if (param == nullptr) continue;
      factors.push_back({param, begin, key, std::pow(ratio, settings.qk_clip_alpha)});
      factors.push_back({param, key, key + layer.head_size, std::pow(ratio, 1 - settings.qk_clip_alpha)});
    }
  }
}

}  // namespace

QkClip qk_clip(tensor::LogitMaxima& maxima, const spec::OptimizerSettings& settings, const dist::Grid& grid) {
  std::vector<at::Tensor> parts;
  for (const tensor::HeadLogits& layer : maxima.entries()) parts.push_back(layer.largest);
  const double nothing = -std::numeric_limits<double>::infinity();
  at::Tensor largest = parts.empty() ? at::Tensor() : at::cat(parts);
  QkClip clip{.factors = {}, .largest = nothing};
  if (largest.defined()) {  // the ranks of a stage have the same layers
    grid.gradient.all_reduce_max(largest);
    largest = largest.cpu();
    clip.largest = largest.max().item<double>();
    int64_t at = 0;
    for (const tensor::HeadLogits& layer : maxima.entries()) {
      add_factors(layer, largest.narrow(0, at, layer.largest.numel()), settings, clip.factors);
      at += layer.largest.numel();
    }
  }
  const at::Tensor of_model = at::full({1}, clip.largest, at::TensorOptions().dtype(at::kFloat).device(grid.device));
  grid.model.all_reduce_max(of_model);
  clip.largest = of_model.item<double>();
  return clip;
}

}  // namespace espalier::optim
