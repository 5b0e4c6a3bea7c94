// A GPT as data: parameters, and what each depth costs.
#include <algorithm>

#include "base/format.h"
#include "config/resolving.h"
#include "config/unused_options.h"
#include "families/gpt/internal/gpt.h"

namespace espalier::families {
namespace {

constexpr double kInt64 = 8, kFp32 = 4, kInt32 = 4;

// Pairs of query and visible key of one sample. The first `window` queries see all before them, the others as many keys
// as the first ones' last. A prefix of p tokens adds p (p - 1) / 2; the mean of that over p = 1 to `tokens` is what a
// run comes to. Where texts in a sample end is not known: they count as one, and what inputs of packed pairs see of
// what comes after it does not count.
double visible_pairs(const GptConfig& model, double tokens, const data::RowRules& rows) {
  const double window = model.window_size == 0 ? tokens : std::min(tokens, static_cast<double>(model.window_size));
  const double causal = window * (window + 1) / 2 + (tokens - window) * window;
  const bool is_whole_prefix = rows.objective.kind == data::Objective::Kind::kPrefix && !rows.text.reset_attention_mask;
  return is_whole_prefix ? causal + (tokens * tokens - 1) / 6 : causal;
}

// Of the masks of one sample, as far as its batch holds them (models/gpt/batch.h).
double mask_bytes(const data::RowRules& rows, double tokens) {
  const bool is_causal = rows.objective.kind == data::Objective::Kind::kCausal;
  const bool has_first = rows.text.reset_attention_mask || !rows.lengths.empty() ||
                         rows.objective.kind == data::Objective::Kind::kMultitask;
  return kInt32 * tokens * (static_cast<double>(has_first) + static_cast<double>(!is_causal)) + (is_causal ? 0 : kFp32);
}

spec::GhostProgram embedding_ghost(const GptConfig& model) {
  const bool has_norm = model.embed_layernorm;
  const bool has_positions = model.position_embedding == PositionEmbedding::kLearned;
  const bool widens = model.fp32_residual;
  return [=](spec::GhostOps& ops, const spec::Ghost&) {
    spec::Ghost x = ops.look_up_words();
    if (has_norm) x = ops.norm(x, spec::Normalization::kLayerNorm, false);
    if (has_positions) x = ops.add_positions(std::move(x));
    x = ops.dropout(std::move(x));
    return widens ? ops.widen(std::move(x)) : x;
  };
}

spec::GhostProgram output_ghost(const GptConfig& model) {
  const spec::Normalization norm = model.normalization;
  return [=](spec::GhostOps& ops, const spec::Ghost& x) {
    ops.language_model_loss(ops.norm(x, norm, false));
    return spec::Ghost();
  };
}

std::vector<spec::Depth> depths_of(const GptConfig& model, int64_t sequence_length, const data::RowRules& rows) {
  const double s = static_cast<double>(sequence_length), h = static_cast<double>(model.hidden_size);
  const double vocabulary = static_cast<double>(model.padded_vocab_size);
  const spec::Depth layer = layer_depth(model.layers(), {.tokens = s, .pairs = visible_pairs(model, s, rows)});
  std::vector<spec::Depth> depths(static_cast<size_t>(model.num_layers + 2), layer);
  for (size_t number = 0; number < depths.size(); ++number)
    depths[number].name = spec::stack_depth_name(static_cast<int64_t>(number), model.num_layers);
  depths.front() = {
      .name = depths.front().name, .passed_on = s * h, .summed_forward = s * h, .ghost = embedding_ghost(model)};
  depths.back() = {.name = depths.back().name,
                   .forward_flops = 2 * s * h * vocabulary,
                   .megatron_flops = 1.5 * s * h * vocabulary,
                   .summed_backward = s * h,
                   .ghost = output_ghost(model)};
  return depths;
}

std::string describe(const GptConfig& model) {
  const bool grouped = model.num_groups() != model.num_attention_heads;
  return concat(model.num_layers, " layers, ", model.hidden_size, " wide, ", model.num_attention_heads, " heads",
                grouped ? concat(" in ", model.num_groups(), " groups") : std::string());
}

std::vector<std::string> gpt_token_file_endings(const config::RunConfig& run) {
  return run.model.as<GptSettings>().objective.token_file_endings();
}

void add_options_of_gpt(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  internal::add_gpt_options(table, config.as<GptSettings>(), where);
}
void resolve_options_of_gpt(const config::Resolving& resolving, config::FamilyConfig& config) {
  internal::resolve_gpt(resolving, config.as<GptSettings>());
}
void find_unused_of_gpt(const config::RunConfig& run, config::UnusedOptions& unused) {
  internal::find_unused_gpt(run, run.model.as<GptSettings>(), unused);
}

void check_data_of_gpt(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                       Problems& problems) {
  internal::check_gpt_data(row_rules(run), run.data.sequence_length, tokenizer, plan, problems);
}

config::FamilyConfig new_gpt() { return config::FamilyConfig(GptSettings{}); }
int64_t gpt_layers(const config::FamilyConfig& config) { return config.as<GptSettings>().shape.num_layers; }

}  // namespace

spec::ModelSpec gpt_model_spec(const GptConfig& model, int64_t sequence_length, const data::RowRules& rows) {
  const double tokens = static_cast<double>(sequence_length);
  return {.family = "gpt",
          .description = describe(model),
          .params = gpt_params(model),
          .depths = depths_of(model, sequence_length, rows),
          .vocabulary = {.size = model.vocab_size, .padded_size = model.padded_vocab_size},
          .hidden_size = model.hidden_size,
          .fp32_residual = model.fp32_residual,
          .has_dropout = model.hidden_dropout > 0,
          .keeps_positions = model.position_embedding == PositionEmbedding::kRotary,
          .batch_bytes = (3 * kInt64 + kFp32) * tokens + mask_bytes(rows, tokens)};
}

namespace internal {

spec::ModelSpec gpt_model(const config::RunConfig& run) {
  return gpt_model_spec(gpt_config(run), run.data.sequence_length, row_rules(run));
}

}  // namespace internal

GptConfig gpt_config(const config::FamilyConfig& settings, const spec::Vocabulary& vocabulary) {
  GptConfig model = settings.as<GptSettings>().shape;
  model.vocab_size = vocabulary.size;
  model.padded_vocab_size = vocabulary.padded_size;
  return model;
}

GptConfig gpt_config(const config::RunConfig& run) { return gpt_config(run.model, run.vocabulary); }

const config::Family& gpt_family() {
  static const config::Family family{
      .name = "gpt",
      .display = "GPT",
      .kin = "GPT-2, BLOOM, Llama and similar models",
      .summary = "Trains a GPT on token files of `espalier preprocess`. BLOOM and GPT-2 are settings of it.",
      .new_config = new_gpt,
      .add_options = add_options_of_gpt,
      .resolve = resolve_options_of_gpt,
      .find_unused = find_unused_of_gpt,
      .num_layers = gpt_layers,
      .reads_running_text = true,
      .predicts_tokens = true,
      .attends_plainly = true,
      .model = internal::gpt_model,
      .token_file_endings = gpt_token_file_endings,
      .check_data = check_data_of_gpt};
  return family;
}

}  // namespace espalier::families
