// A biencoder (Lee et al. 2019; Karpukhin et al. 2020): two BERTs, or one, that make a vector of a text, and the loss
// by which queries find their own contexts among those of the whole micro-batch.
//
// Legend: s sequence, h hidden, d numbers of a vector; q queries of a micro-batch and c contexts of a replica, n
// replicas.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "families/ict/config.h"
#include "models/bert/encoder.h"
#include "models/build.h"
#include "models/text_encoder.h"
#include "nn/dense.h"

namespace espalier::models {

// One of the encoders.
class BiencoderTower {
 public:
  BiencoderTower(const nn::LayerBuilder& builder, const families::BertConfig& tower, bool projects,
                 const StageOptions& options);

  at::Tensor forward(const pipeline::StageInput& input) const;  // [rows, d] fp32
  at::Tensor forward_plain(const tensor::Batch& batch) const;   // the same without dropout and graph
  const BertEncoder& encoder() const { return encoder_; }
  void visit(tensor::ParamVisitor& visitor);

 private:
  at::Tensor vectors(const at::Tensor& hidden) const;

  std::string prefix_;
  BertEncoder encoder_;
  std::optional<nn::Dense> projection_;
};

class BiencoderModel : public pipeline::Stage, public TextEncoder {
 public:
  // A whole model. The builder's ParamSet holds the parameters, and with its grid outlives it.
  BiencoderModel(const nn::LayerBuilder& builder, const families::BiencoderSettings& settings,
                 const families::BiencoderConfig& config, const StageOptions& options);

  // Of make_retrieval_batch's batches: "loss", the negative log-probability of each query's own context among the
  // contexts of all replicas, and a measure "topK_acc" for each K.
  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch&) const override { return {}; }
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch&) const override { return {}; }
  void visit(tensor::ParamVisitor& visitor) override;

  // Of each query of the batch, how many of the batch's contexts have a greater score than its own: [q] int64. All
  // tensor and context ranks call it alike and have the same.
  at::Tensor own_places(const tensor::Batch& batch) const;

  int64_t embedding_size() const override { return embedding_size_; }
  int64_t max_positions() const override { return max_positions_; }
  at::Tensor embed(const at::Tensor& ids, Side side) const override;

 private:
  struct Vectors {
    at::Tensor queries, contexts;  // [q, d], [c, d]
  };
  struct Compared {
    at::Tensor scores, own;  // [q, n c]; [q], of each query the number of its own context
  };
  Compared compare(const Vectors& vectors, const tensor::Batch& batch, const dist::Group& replicas) const;
  Vectors vectors(const pipeline::StageInput& input, int64_t num_queries) const;
  const BiencoderTower& context_tower() const { return contexts_ ? *contexts_ : queries_; }

  const dist::Grid& grid_;
  bool sequence_parallel_;
  double scale_;  // of scores
  std::vector<int64_t> topk_;
  int64_t embedding_size_, max_positions_;
  BiencoderTower queries_;  // or both
  std::optional<BiencoderTower> contexts_;
};

const FamilyRuntime& ict_runtime();

}  // namespace espalier::models
