// The output layer: logits over the vocabulary, which is split over the tensor ranks, and their loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kernels/draw_labels.h"
#include "nn/layer_builder.h"

namespace espalier::nn {

class OutputLayer {
 public:
  // `name`: parameter "<name>.weight" [V, h], the word embedding's or its own. `bias`: name of a parameter [V] that is
  // added to the logits; empty: none is. `soft_cap`: kernels::OutputTerms'.
  OutputLayer(const LayerBuilder& builder, const std::string& name, const std::string& bias = "", double soft_cap = 0);

  struct Losses {
    at::Tensor sum;                 // scalar fp32, sum of loss * mask; carries the graph; the same on every tensor rank
    at::Tensor per_token;           // [s, b] fp32, without graph
    at::Tensor z_sum, z_per_token;  // of the z-loss; undefined without one
  };
  // x: [S, b, h]; labels: [s, b] int64; mask: [s, b] fp32.
  Losses loss(const at::Tensor& x, const at::Tensor& labels, const at::Tensor& mask) const;
  // Of labels drawn from the logits, without the z-loss. `site`: that of the logits' positions.
  Losses loss_of_drawn_labels(const at::Tensor& x, const kernels::DrawSite& site, const at::Tensor& mask) const;
  at::Tensor logits(const at::Tensor& x) const;  // [..., h] -> [..., V/tp] fp32, no graph
  void visit(tensor::ParamVisitor& visitor);     // the weight
  tensor::Param& weight() const { return weight_; }
  tensor::Param* bias() const { return bias_; }  // nullptr without
  bool has_z_loss() const { return z_loss_ > 0; }

 private:
  at::Tensor whole_sequence(const at::Tensor& x) const;
  Losses loss_of_whole(const at::Tensor& whole, const at::Tensor& labels, const at::Tensor& mask, double z_loss) const;
  at::Tensor drawn_labels(const at::Tensor& whole, const kernels::DrawSite& site) const;  // [s, b]
  at::Tensor plain_logits(const at::Tensor& x) const;

  tensor::Param& weight_;
  tensor::Param* bias_;
  tensor::GradQueue& queue_;
  const dist::Group& ranks_;
  int64_t first_row_;
  bool sequence_parallel_;
  double z_loss_, soft_cap_;
};

}  // namespace espalier::nn
