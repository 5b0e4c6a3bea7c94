// A T5 as data: what each depth costs, and what the family answers.
#include "base/format.h"
#include "config/unused_options.h"
#include "data/sentence_dataset.h"
#include "families/t5/internal/t5.h"
#include "families/transformer_options.h"

namespace espalier::families {
namespace {

constexpr double kT5Int64 = 8, kT5Fp32 = 4, kT5Int32 = 4;

const char* stack_of(const T5Config& model, int64_t depth) {
  return depth >= model.decoder_depth() ? "decoder" : "encoder";
}

// "encoder-00003": of the files of a checkpoint.
std::string t5_depth_name(const T5Config& model, int64_t depth) {
  if (depth == 0) return "embedding";
  if (depth == model.last_depth()) return "final";
  const std::string number = std::to_string(depth >= model.decoder_depth() ? depth - model.decoder_depth() : depth - 1);
  return concat(stack_of(model, depth), "-", std::string(5 - std::min<size_t>(5, number.size()), '0'), number);
}

spec::Ghost embed_ghost(spec::GhostOps& ops, bool learned_positions) {
  spec::Ghost x = ops.look_up_words();
  if (learned_positions) x = ops.add_positions(std::move(x));
  return ops.dropout(std::move(x));
}

std::vector<spec::Depth> t5_depths(const T5Config& model, double encoder_length, double decoder_length) {
  const double h = static_cast<double>(model.hidden_size), vocabulary = static_cast<double>(model.padded_vocab_size);
  const spec::Normalization norm = model.normalization;
  const bool learned = model.positions == T5Positions::kLearned;
  // Every position of the encoder sees every other; padding is not known before the samples are.
  const spec::Depth encodes =
      layer_depth(model.encoder(), {.tokens = encoder_length, .pairs = encoder_length * encoder_length});
  const spec::Depth decodes = layer_depth(
      model.decoder(),
      {.tokens = decoder_length, .pairs = decoder_length * (decoder_length + 1) / 2, .other_tokens = encoder_length});
  std::vector<spec::Depth> depths(static_cast<size_t>(model.decoder_depth()), encodes);
  depths.insert(depths.end(), static_cast<size_t>(model.decoder_num_layers), decodes);
  depths.emplace_back();
  for (int64_t depth = 0; depth <= model.last_depth(); ++depth) {
    spec::Depth& of = depths[static_cast<size_t>(depth)];
    of.name = t5_depth_name(model, depth);
    of.stack = stack_of(model, depth);
  }

  depths.front() = {.name = depths.front().name,
                    .passed_on = encoder_length * h,
                    .summed_forward = encoder_length * h,
                    .tokens = encoder_length,
                    .ghost = [learned](spec::GhostOps& ops, const spec::Ghost&) { return embed_ghost(ops, learned); }};
  depths[static_cast<size_t>(model.num_layers)].after = [norm](spec::GhostOps& ops, const spec::Ghost& x) {
    return ops.norm(x, norm, false);
  };
  spec::Depth& first = depths[static_cast<size_t>(model.decoder_depth())];
  first.summed_once = decoder_length * h;
  first.before = [learned](spec::GhostOps& ops, const spec::Ghost& encoded) {
    ops.keep_other(encoded);
    return embed_ghost(ops, learned);
  };
  depths.back() = {.name = depths.back().name,
                   .forward_flops = 2 * decoder_length * h * vocabulary,
                   .megatron_flops = 1.5 * decoder_length * h * vocabulary,
                   .summed_backward = decoder_length * h,
                   .tokens = decoder_length,
                   .ghost = [norm](spec::GhostOps& ops, const spec::Ghost& x) {
                     ops.language_model_loss(ops.norm(x, norm, false));
                     return spec::Ghost();
                   }};
  return depths;
}

config::FamilyConfig new_t5() { return config::FamilyConfig(T5Settings{}); }

int64_t t5_layers_of(const config::FamilyConfig& config) {
  const T5Config& model = config.as<T5Settings>().shape;
  if (model.num_layers == 0) return 0;
  return model.num_layers + (model.decoder_num_layers > 0 ? model.decoder_num_layers : model.num_layers);
}

spec::ModelSpec t5_model(const config::RunConfig& run) {
  return t5_model_spec(t5_config(run), run.data.sequence_length, run.model.as<T5Settings>().decoder_seq_length);
}

void check_t5_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                   Problems& problems) {
  if (tokenizer != nullptr) data::SentenceVocabulary::make(*tokenizer, data::SentenceModel::kT5, problems);
  if (run.data.sequence_length > 0) data::check_sentences(plan, t5_samples(run), problems);
}

}  // namespace

spec::ModelSpec t5_model_spec(const T5Config& model, int64_t encoder_length, int64_t decoder_length) {
  const double encoder = static_cast<double>(encoder_length), decoder = static_cast<double>(decoder_length);
  return {.family = "t5",
          .description = concat(model.num_layers, " + ", model.decoder_num_layers, " layers, ", model.hidden_size,
                                " wide, ", model.num_attention_heads, " heads"),
          .params = t5_params(model),
          .depths = t5_depths(model, encoder, decoder),
          .vocabulary = {.size = model.vocab_size, .padded_size = model.padded_vocab_size},
          .hidden_size = model.hidden_size,
          .has_dropout = model.hidden_dropout > 0,
          // ids, positions and last keys of both; labels and the loss mask of the decoder
          .batch_bytes = (2 * kT5Int64 + kT5Int32) * (encoder + decoder) + (kT5Int64 + kT5Fp32) * decoder};
}

T5Config t5_config(const config::FamilyConfig& settings, const spec::Vocabulary& vocabulary) {
  T5Config model = settings.as<T5Settings>().shape;
  model.vocab_size = vocabulary.size;
  model.padded_vocab_size = vocabulary.padded_size;
  return model;
}

T5Config t5_config(const config::RunConfig& run) { return t5_config(run.model, run.vocabulary); }

T5Settings t5_settings(const T5Config& model, int64_t decoder_length) {
  T5Settings settings{.shape = model};
  settings.decoder_seq_length = decoder_length;
  for (const auto& [name, activation] : activation_names())
    if (activation == model.activation) settings.activation = name;
  return settings;
}

data::SentenceSampleOptions t5_samples(const config::RunConfig& run) {
  const T5Settings& settings = run.model.as<T5Settings>();
  data::SentenceSampleOptions samples;
  samples.model = data::SentenceModel::kT5;
  samples.sequence_length = run.data.sequence_length;
  samples.decoder_sequence_length = settings.decoder_seq_length;
  samples.mask_probability = settings.mask_probability;
  samples.short_probability = settings.short_probability;
  return samples;
}

const config::Family& t5_family() {
  static const config::Family family{
      .name = "t5",
      .display = "T5",
      .kin = "Megatron's T5: an encoder, and a decoder that fills in what was left out",
      .summary = "Trains a T5 on token files of `espalier preprocess --split-sentences`.",
      .tokenizer_type = "BertWordPieceLowerCase",
      .new_config = new_t5,
      .add_options = internal::add_t5_options,
      .resolve = internal::resolve_t5,
      .find_unused = internal::find_unused_t5,
      .num_layers = t5_layers_of,
      .predicts_tokens = true,
      .partition_method = internal::t5_partition,
      .model = t5_model,
      .check_data = check_t5_data};
  return family;
}

}  // namespace espalier::families
