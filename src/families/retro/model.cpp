// A Retro as data: what each depth costs, and what the family answers.
#include <algorithm>

#include "base/format.h"
#include "families/retro/internal/retro.h"

namespace espalier::families {
namespace {

constexpr double kRetroInt64 = 8;

// Of one sample: tokens of its neighbours, and of the chunks once for each neighbour that reads them.
struct RetrievalSizes {
  double tokens = 0, neighbor_tokens = 0, chunk_copies = 0, keys_of_token = 0, keys_of_neighbor_token = 0;
};

RetrievalSizes sizes_of(const RetroConfig& model, double tokens) {
  const double chunk = static_cast<double>(model.chunk_length), neighbors = static_cast<double>(model.num_neighbors);
  const double keys = neighbors * static_cast<double>(model.retrieved_length());
  return {.tokens = tokens,
          .neighbor_tokens = tokens / chunk * keys,
          .chunk_copies = tokens * neighbors,
          .keys_of_token = keys,
          .keys_of_neighbor_token = chunk};
}

spec::GhostProgram encoder_ghost(const RetroConfig& model) {
  TransformerShape shape = model.encoder();
  const spec::GhostProgram below = layer_ghost(shape);
  shape.cross_attention = true;
  const spec::GhostProgram first = layer_ghost(shape);
  const bool has_norm = model.gpt.embed_layernorm;
  const bool has_positions = model.gpt.position_embedding == PositionEmbedding::kLearned;
  const int64_t layers = model.encoder_layers;
  return [=](spec::GhostOps& ops, const spec::Ghost&) {
    spec::Ghost x = ops.look_up_words();
    if (has_norm) x = ops.norm(x, spec::Normalization::kLayerNorm, false);
    if (has_positions) x = ops.add_positions(std::move(x));
    x = first(ops, ops.dropout(std::move(x)));
    for (int64_t layer = 1; layer < layers; ++layer) x = below(ops, x);
    return x;
  };
}

spec::Depth retrieval_depth(const RetroConfig& model, const RetrievalSizes& sizes, bool owns_encoder) {
  const TransformerShape shape = model.retrieval_layers(), encoder = model.encoder();
  spec::Depth depth =
      layer_depth(model.layers(), {.tokens = sizes.tokens, .pairs = sizes.tokens * (sizes.tokens + 1) / 2});
  const double h = static_cast<double>(model.gpt.hidden_size);
  const auto add_cross = [&](double queries, double keys, double keys_of_query) {
    depth.forward_flops +=
        cross_attention_flops(shape, {.queries = queries, .keys = keys, .pairs = queries * keys_of_query});
    depth.megatron_flops += 4 * (queries + keys) * h * h + 4 * queries * keys_of_query * h;
    depth.summed_forward += queries * h;
    depth.summed_backward += (queries + keys) * h;
  };
  depth.other_tokens = sizes.neighbor_tokens;
  depth.other_keys = sizes.keys_of_token;
  add_cross(sizes.tokens, sizes.neighbor_tokens, sizes.keys_of_token);
  if (owns_encoder) {
    const LayerTokens of_encoder{.tokens = sizes.neighbor_tokens,
                                 .pairs = sizes.neighbor_tokens * static_cast<double>(model.retrieved_length())};
    const spec::Depth below = layer_depth(encoder, of_encoder);
    const double layers = static_cast<double>(model.encoder_layers);
    depth.forward_flops += layers * below.forward_flops;
    depth.megatron_flops += layers * below.megatron_flops;
    depth.summed_forward += layers * below.summed_forward + sizes.neighbor_tokens * h;
    depth.summed_backward += layers * below.summed_backward;
    add_cross(sizes.neighbor_tokens, sizes.chunk_copies, sizes.keys_of_neighbor_token);
  }
  depth.ghost = layer_ghost(shape, owns_encoder ? [program = encoder_ghost(model), sizes](spec::GhostOps& ops) {
    ops.encode_beside({.tokens = sizes.neighbor_tokens,
                       .read_tokens = sizes.chunk_copies,
                       .read_keys = sizes.keys_of_neighbor_token},
                      program);
  } : GhostStep());
  return depth;
}

config::FamilyConfig new_retro() { return config::FamilyConfig(RetroSettings{}); }

int64_t retro_layers_of(const config::FamilyConfig& config) { return config.as<RetroSettings>().gpt.shape.num_layers; }

spec::ModelSpec retro_model(const config::RunConfig& run) {
  return retro_model_spec(retro_config(run), run.data.sequence_length, retro_row_rules(run));
}

}  // namespace

spec::ModelSpec retro_model_spec(const RetroConfig& model, int64_t sequence_length, const data::RowRules& rows) {
  spec::ModelSpec spec = gpt_model_spec(model.gpt, sequence_length, rows);
  spec.family = "retro";
  if (!model.retrieves) return spec;
  spec.params = retro_params(model);
  spec.description += concat(", ", model.num_retrieval_layers(), " of which attend to ", model.num_neighbors,
                             " neighbours of ", model.retrieved_length(), " tokens");
  const RetrievalSizes sizes = sizes_of(model, static_cast<double>(sequence_length));
  for (int64_t layer = 0; layer < model.gpt.num_layers; ++layer) {
    if (!model.retrieves_in(layer)) continue;
    spec::Depth& depth = spec.depths[static_cast<size_t>(layer + 1)];
    const std::string name = depth.name;
    depth = retrieval_depth(model, sizes, layer == model.first_retrieval_layer());
    depth.name = name;
  }
  spec.batch_bytes += kRetroInt64 * (sizes.neighbor_tokens + sizes.tokens / static_cast<double>(model.chunk_length));
  return spec;
}

RetroConfig retro_config(const config::RunConfig& run) {
  RetroConfig model = run.model.as<RetroSettings>().shape;
  model.gpt.vocab_size = run.vocabulary.size;
  model.gpt.padded_vocab_size = run.vocabulary.padded_size;
  return model;
}

bool reads_neighbors(const config::RunConfig& run) {
  const RetroSettings& settings = run.model.as<RetroSettings>();
  return settings.shape.retrieves && !settings.without_neighbors;
}

data::RowRules retro_row_rules(const config::RunConfig& run) {
  return row_rules(run, run.model.as<RetroSettings>().gpt.objective);
}

data::DataSetOptions retro_data_sets(data::DataSetOptions options, const config::RunConfig& run) {
  const int64_t steps = run.model.as<RetroSettings>().cyclic_train_iters;
  if (steps > 0) options.train_samples = steps * run.training.global_batch_size.value();
  return options;
}

const config::Family& retro_family() {
  static const config::Family family{
      .name = "retro",
      .display = "Retro",
      .kin = "a GPT that reads texts which resemble what it has read",
      .summary =
          "Trains a GPT whose layers attend to neighbours of what they have read, found by `espalier retro build`.",
      .new_config = new_retro,
      .add_options = internal::add_retro_options,
      .resolve = internal::resolve_retro,
      .find_unused = internal::find_unused_retro,
      .num_layers = retro_layers_of,
      .predicts_tokens = true,
      .model = retro_model,
      .check_data = internal::check_retro_data};
  return family;
}

}  // namespace espalier::families
