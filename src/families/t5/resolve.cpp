// Cross-checks of the options of a T5, and the fields that they leave to be derived.
#include "base/format.h"
#include "config/resolving.h"
#include "config/unused_options.h"
#include "families/t5/internal/t5.h"
#include "families/transformer_options.h"

namespace espalier::families::internal {
namespace {

void check_t5_lengths(const config::Resolving& resolving, const T5Settings& settings) {
  const spec::GridShape& grid = resolving.run.grid;
  const int64_t encoder = resolving.run.data.sequence_length, decoder = settings.decoder_seq_length;
  const int64_t longest = std::max(encoder, decoder), positions = settings.shape.max_position_embeddings;
  check_no_document_options(resolving, "T5");
  if (settings.shape.positions == T5Positions::kLearned && positions == 0)
    resolving.problems.add("--max-position-embeddings is required with learned positions: the longer of the ",
                           "encoder's and the decoder's sequence, or more");
  if (positions > 0 && positions < longest)
    resolving.problems.add(resolving.origin("--max-position-embeddings"), " is below the length of the ",
                           encoder == longest ? "encoder's" : "decoder's", " sequence, ", longest, "; use ", longest,
                           " or more");
  if (resolving.run.parallel.sequence_parallel && decoder % grid.tensor != 0)
    resolving.problems.add("--sequence-parallel: ", resolving.origin("--tensor-model-parallel-size"),
                           " does not divide ", resolving.origin("--decoder-seq-length"), "; use a length of ",
                           plan::multiples_near(decoder, grid.tensor), ", or leave --sequence-parallel out");
}

void check_t5_buckets(const config::Resolving& resolving, const T5Config& model) {
  if (model.positions != T5Positions::kRelative) return;
  const int64_t buckets = model.relative_attention_num_buckets;
  if (buckets % 2 != 0)
    resolving.problems.add(resolving.origin("--relative-attention-num-buckets"),
                           ": half of the encoder's are for what comes before and half for what comes after; use ",
                           plan::multiples_near(buckets, 2));
  else if (model.relative_attention_max_distance <= buckets / 2)
    resolving.problems.add(resolving.origin("--relative-attention-max-distance"), " is no more than half of the ",
                           buckets, " buckets, which have one distance each; use ", buckets / 2 + 1, " or more");
}

void resolve_t5_sizes(const config::Resolving& resolving, T5Config& model) {
  if (model.decoder_num_layers == 0) model.decoder_num_layers = model.num_layers;
  if (model.hidden_size > 0 && model.ffn_hidden_size == 0) model.ffn_hidden_size = 4 * model.hidden_size;
  resolve_head_size(resolving, model.hidden_size, model.num_attention_heads, model.kv_channels);
}

void resolve_t5_activation(T5Settings& settings) {
  const bool is_tanh = settings.gelu_is_fused || settings.openai_gelu;
  T5Config& model = settings.shape;
  model.activation = is_tanh ? spec::Activation::kGeluTanh : spec::Activation::kGeluErf;
  for (const auto& [name, activation] : activation_names())
    if (name == settings.activation) model.activation = activation;
}

int64_t encoder_stages(const T5Settings& settings, int64_t stages) { return settings.split_rank.value_or(stages / 2); }

void check_t5_stages(const config::Resolving& resolving, const T5Settings& settings) {
  const config::ParallelConfig& parallel = resolving.run.parallel;
  const T5Config& model = settings.shape;
  const int64_t stages = resolving.run.grid.pipeline;
  if (parallel.num_layers_per_virtual_pipeline_stage)
    resolving.problems.add(
        resolving.origin("--num-layers-per-virtual-pipeline-stage"),
        ": a stage of a T5 belongs to the encoder or the decoder, not alternately to both; leave it out");
  if (!parallel.pp_partition_method.empty() && parallel.pp_partition_method != "type:transformer")
    resolving.problems.add(resolving.origin("--pp-partition-method"),
                           ": the stages of a T5 are divided by --pipeline-model-parallel-split-rank; leave it out");
  if (stages == 1 || model.num_layers == 0 || model.decoder_num_layers == 0) return;
  const int64_t of_encoder = encoder_stages(settings, stages);
  if (of_encoder >= stages) {
    resolving.problems.add(resolving.origin("--pipeline-model-parallel-split-rank"), " leaves no stage of the ", stages,
                           " for the decoder; use 1", stages == 2 ? "" : concat(" to ", stages - 1));
    return;
  }
  const auto check_side = [&](const char* side, const char* row, int64_t layers, int64_t of_side) {
    if (layers < of_side)
      resolving.problems.add("the ", side, "'s ", of_side, " of ", stages, " pipeline stages have ", layers,
                             layers == 1 ? " layer" : " layers", " to divide (", resolving.origin(row),
                             "); each needs one: choose another --pipeline-model-parallel-split-rank, or fewer stages");
  };
  check_side("encoder", "--num-layers", model.num_layers, of_encoder);
  check_side("decoder", resolving.given("--decoder-num-layers") ? "--decoder-num-layers" : "--num-layers",
             model.decoder_num_layers, stages - of_encoder);
}

}  // namespace

void resolve_t5(const config::Resolving& resolving, config::FamilyConfig& config) {
  T5Settings& settings = config.as<T5Settings>();
  T5Config& model = settings.shape;
  resolve_t5_sizes(resolving, model);
  resolve_t5_activation(settings);
  check_t5_lengths(resolving, settings);
  if (model.positions == T5Positions::kRelative && model.max_position_embeddings == 0)
    model.max_position_embeddings = std::max(resolving.run.data.sequence_length, settings.decoder_seq_length);
  check_t5_buckets(resolving, model);
  if (model.scale_tied_output && !model.tie_output)
    resolving.problems.add("--scale-tied-logits is for a tied output layer; leave it out, or ",
                           resolving.origin("--untie-embeddings-and-output-weights"));
  check_dropout(resolving, model.attention_dropout, model.hidden_dropout);
  // A missing length is already reported.
  if (resolving.run.data.sequence_length > 0) t5_samples(resolving.run).check(resolving.problems);
  if (resolving.run.grid.context > 1)
    resolving.problems.add(resolving.origin("--context-parallel-size"),
                           ": a T5's decoder attends to a sequence of another length, which is not divided over "
                           "processes; leave it out, and use --tensor-model-parallel-size with --sequence-parallel");
  else
    check_tensor_division(resolving, model.num_attention_heads, model.ffn_hidden_size);
  check_t5_stages(resolving, settings);
}

std::string t5_partition(const config::RunConfig& run) {
  const T5Settings& settings = run.model.as<T5Settings>();
  const T5Config& model = settings.shape;
  const int64_t stages = run.grid.pipeline, of_encoder = encoder_stages(settings, stages);
  const int64_t of_decoder = stages - of_encoder;
  // One stage; or what cannot be divided, which has been reported.
  if (stages == 1 || of_encoder < 1 || of_decoder < 1 || model.num_layers < of_encoder ||
      model.decoder_num_layers < of_decoder)
    return "type:transformer";
  std::string text = "list:";
  const auto add_side = [&](int64_t layers, int64_t of_side) {
    for (int64_t stage = 0; stage < of_side; ++stage)
      text += concat(text.back() == ':' ? "" : ",", layers / of_side + (stage < layers % of_side ? 1 : 0));
  };
  add_side(model.num_layers, of_encoder);
  add_side(model.decoder_num_layers, of_decoder);
  return text;
}

void find_unused_t5(const config::RunConfig& run, config::UnusedOptions& unused) {
  const T5Settings& settings = run.model.as<T5Settings>();
  const bool is_relative = settings.shape.positions == T5Positions::kRelative;
  unused.add_if(!is_relative, {"--relative-attention-num-buckets", "--relative-attention-max-distance"},
                "only --position-embedding-type relative reads it");
  unused.add_if(!settings.activation.empty(), {"--no-bias-gelu-fusion", "--openai-gelu"},
                concat("the activation is ", settings.activation));
  unused.add_if(settings.activation.empty() && settings.gelu_is_fused, {"--openai-gelu"},
                "gelu has the tanh form unless --no-bias-gelu-fusion is given");
  unused.add_typed_if(run.grid.pipeline == 1, {"--pipeline-model-parallel-split-rank"},
                      "there is one pipeline stage, of encoder and decoder");
}

}  // namespace espalier::families::internal
