// What layers are built from: the parameters of this process, and the processes that they are split over.
#pragma once

#include "dist/grid.h"
#include "dist/layer_gather.h"
#include "spec/attention_backend.h"
#include "spec/fp8.h"
#include "tensor/logit_maxima.h"
#include "tensor/param_set.h"

namespace espalier::nn {

struct LayerBuilder {
  tensor::ParamSet& params;  // with grid, outlives the layers
  const dist::Grid& grid;
  // Between the column- and row-parallel layers, activations are split along the sequence over the tensor ranks
  // (Korthikanti et al. 2022) instead of being the same on all of them.
  bool sequence_parallel = false;
  // Brings the values of transformer layers and takes them away (ZeRO 3); nullptr where they stay.
  dist::LayerGather* gather = nullptr;
  double z_loss = 0;  // coefficient of the z-loss beside the loss of an output layer
  // To which self-attention adds its heads; null: nobody wants their logits. Outlives the layers.
  tensor::LogitMaxima* logit_maxima = nullptr;
  // To which the linear layers of transformer layers round what they multiply; other layers do not.
  spec::Fp8 fp8 = spec::Fp8::kNone;
  // Whose kernels compute attention within a sequence, on a GPU.
  spec::AttentionBackend attention_backend = spec::AttentionBackend::kFlash;
};

}  // namespace espalier::nn
