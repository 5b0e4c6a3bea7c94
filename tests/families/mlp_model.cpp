// The family with torch: its layers and their order. Which rows a rank has, recompute, the gathering of weights and the
// loss are shared pieces.
#include <ATen/ATen.h>

#include "data/gpt_dataset.h"
#include "dist/layer_gather.h"
#include "models/gpt/batch.h"
#include "models/lm_loss.h"
#include "models/transformer_stack.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/output_layer.h"
#include "pipeline/recompute.h"
#include "tests/families/mlp.h"
#include "tests/families/mlp_shape.h"

namespace espalier::test {
namespace {

constexpr double kEpsilon = 1e-5;

struct MlpLayer {
  MlpLayer(const nn::LayerBuilder& builder, int64_t layer)
      : name(concat("layers.", layer)),
        norm(builder, name + ".norm", spec::Normalization::kLayerNorm, kEpsilon),
        mlp(builder, name + ".mlp", spec::Activation::kGeluTanh, /*has_bias=*/true) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    return mlp.forward(norm.forward(x), x, context);
  }
  void visit(tensor::ParamVisitor& visitor) {
    visitor.child("norm", norm);
    visitor.child("mlp", mlp);
  }

  std::string name;
  nn::Norm norm;
  nn::Mlp mlp;
};

class MlpModel : public pipeline::Stage {
 public:
  MlpModel(const nn::LayerBuilder& builder, const MlpShape& shape, const plan::DepthRange& depths,
           const models::StageOptions& options)
      : shape_(shape), grid_(builder.grid), builder_(builder), options_(options) {
    if (depths.contains(0)) words_.emplace(builder, "word_embeddings");
    first_layer_ = std::max<int64_t>(depths.begin, 1) - 1;
    for (int64_t layer = first_layer_; layer < std::min(depths.end - 1, shape.num_layers); ++layer)
      layers_.emplace_back(builder, layer);
    if (!depths.contains(shape.num_layers + 1)) return;
    final_norm_.emplace(builder, "final_norm", spec::Normalization::kLayerNorm, kEpsilon);
    output_.emplace(builder, "word_embeddings");
  }

  pipeline::StageOutput forward(const pipeline::StageInput& input) override {
    const tensor::Batch& batch = *input.batch;
    // Shared: a recomputed range runs its layers again when this function has long returned.
    const auto context = std::make_shared<nn::ForwardContext>();
    context->hidden_dropout = input.training ? shape_.hidden_dropout : 0;
    context->seed = options_.seed;
    context->first_position = local_rows(batch).first;
    context->sample_numbers = &batch.sample_numbers;
    at::Tensor x = words_
                       ? kernels::dropout(words_->forward(models::context_rows(grid_, batch.ids.size(1)).of(batch.ids)),
                                          context->dropout_site("embedding"))
                       : input.tensors.at(0).tensor;
    const auto layer = [this, context](int64_t number, const at::Tensor& in, const auto&) {
      const int64_t global = first_layer_ + number;
      const at::Tensor out =
          layers_[static_cast<size_t>(number)].forward(dist::before_layer(builder_.gather, global, in), *context);
      return dist::after_layer(builder_.gather, global, out);
    };
    for (const plan::LayerRange& range : options_.recompute.ranges(static_cast<int64_t>(layers_.size())))
      x = pipeline::run_layers(range, x, layer, options_.divide_kept_inputs ? grid_.tensor : alone_);
    if (!output_) return {.tensors = {{"hidden", x}}, .loss = {}};
    return {.tensors = {}, .loss = models::lm_loss(*output_, grid_, final_norm_->forward(x), batch)};
  }
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const override {
    return words_ ? std::vector<pipeline::TensorShape>() : hidden_shape(batch);
  }
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const override {
    return output_ ? std::vector<pipeline::TensorShape>() : hidden_shape(batch);
  }
  void visit(tensor::ParamVisitor& visitor) override {
    if (words_) visitor.child("word_embeddings", *words_);
    for (MlpLayer& layer : layers_) visitor.child(layer.name, layer);
    if (final_norm_) visitor.child("final_norm", *final_norm_);
    if (output_ && !words_) visitor.child("word_embeddings", *output_);  // its copy of the shared table
  }

 private:
  models::SequenceRows local_rows(const tensor::Batch& batch) const {
    models::SequenceRows rows = models::context_rows(grid_, batch.ids.size(1));
    if (!builder_.sequence_parallel) return rows;
    rows.count /= grid_.shape.tensor;
    return {rows.first + grid_.position.tensor * rows.count, rows.count};
  }
  std::vector<pipeline::TensorShape> hidden_shape(const tensor::Batch& batch) const {
    return {
        {"hidden", {local_rows(batch).count, batch.ids.size(0), shape_.hidden_size}, builder_.params.compute_type()}};
  }

  MlpShape shape_;
  const dist::Grid& grid_;
  nn::LayerBuilder builder_;
  models::StageOptions options_;
  dist::Group alone_;
  std::optional<nn::VocabularyEmbedding> words_;
  int64_t first_layer_ = 0;
  std::vector<MlpLayer> layers_;
  std::optional<nn::Norm> final_norm_;
  std::optional<nn::OutputLayer> output_;
};

}  // namespace

const models::FamilyRuntime& mlp_runtime() {
  static const models::FamilyRuntime runtime{
      .family = &mlp_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange& depths,
                  const models::StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return std::make_unique<MlpModel>(builder, run.model.as<MlpShape>(), depths, options);
      },
      .open_data = [](const data::DataSetOptions& options, const config::RunConfig&,
                      const text::Tokenizer&) { return models::as_sources(data::GptDataSets::open(options)); },
      .collate = [](const config::RunConfig&, const text::Tokenizer&) -> models::Collate {
        return [](const std::vector<models::SampleRow>& rows) { return models::make_gpt_batch(rows, {}); };
      }};
  return runtime;
}

}  // namespace espalier::test
