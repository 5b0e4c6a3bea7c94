// A biencoder as data: parameters, and what each depth costs; and what the family of ICT answers.
#include "base/format.h"
#include "config/unused_options.h"
#include "families/bert/internal/bert.h"
#include "families/ict/internal/ict.h"

namespace espalier::families {
namespace {

constexpr double kIctInt64 = 8, kIctInt32 = 4;

BertConfig tower_of(const BiencoderConfig& config, const char* prefix, bool is_second) {
  BertConfig tower = config.bert;
  const int64_t other = config.shared ? 0 : tower.num_layers;
  tower.tower = {.prefix = config.shared ? "shared_model." : prefix,
                 .layers_before = is_second ? other : 0,
                 .layers_after = is_second ? 0 : other};
  return tower;
}

void add_tower_params(ParamList& params, const BertConfig& tower, int64_t projection_dim) {
  internal::add_bert_encoder_params(params, tower, false);
  if (projection_dim > 0)
    params.add_dense(tower.tower.prefix + "projection_enc", projection_dim, tower.hidden_size,
                     spec::Init::normal(tower.init_method_std));
}

// The first token's vector.
spec::GhostProgram pooling_ghost() {
  return [](spec::GhostOps& ops, const spec::Ghost& x) {
    ops.also_first_token(ops.norm(x, spec::Normalization::kLayerNorm, false));
    return spec::Ghost();
  };
}

std::string tower_depth_name(const char* tower, int64_t layer) {
  const std::string number = std::to_string(layer);
  return concat(tower, "-", std::string(5 - std::min<size_t>(5, number.size()), '0'), number);
}

// Multiply-adds of projections and of the scores within a sample, twice; the scores of others are as small.
double head_flops(const BiencoderConfig& config, double texts) {
  const double h = static_cast<double>(config.bert.hidden_size), d = static_cast<double>(config.embedding_size());
  return 2 * texts * ((config.projection_dim > 0 ? h * d : 0) + d);
}

// One tower after the other; a shared one has all texts of a sample as rows.
std::vector<spec::Depth> biencoder_depths(const BiencoderConfig& config, double s, double contexts) {
  const BertConfig& bert = config.bert;
  const double h = static_cast<double>(bert.hidden_size);
  const auto depths_of = [&](double rows) {
    std::vector<spec::Depth> depths = internal::bert_encoder_depths(bert, {.tokens = rows * s, .pairs = rows * s * s});
    for (spec::Depth& depth : depths) depth.tokens = rows * s;
    return depths;
  };
  const double of_last = config.shared ? 1 + contexts : contexts;
  std::vector<spec::Depth> depths = depths_of(of_last);
  if (!config.shared) {
    const std::vector<spec::Depth> queries = depths_of(1);
    spec::Depth embedding = std::exchange(depths.front(), queries.front());
    depths.insert(depths.begin() + 1, queries.begin() + 1, queries.end() - 1);
    for (int64_t layer = 0; layer < bert.num_layers; ++layer) {
      depths[static_cast<size_t>(layer + 1)].name = tower_depth_name("query", layer);
      depths[static_cast<size_t>(layer + 1)].stack = "query";
      depths[static_cast<size_t>(bert.num_layers + layer + 1)].name = tower_depth_name("context", layer);
      depths[static_cast<size_t>(bert.num_layers + layer + 1)].stack = "context";
    }
    depths[static_cast<size_t>(bert.num_layers)].after = pooling_ghost();
    spec::Depth& first = depths[static_cast<size_t>(bert.num_layers + 1)];
    first.summed_once = embedding.summed_forward;
    first.before = [embed = embedding.ghost](spec::GhostOps& ops, const spec::Ghost&) { return embed(ops, {}); };
  }
  depths.back() = {.name = depths.back().name,
                   .forward_flops = head_flops(config, 1 + contexts),
                   .summed_backward = of_last * s * h,
                   .tokens = of_last * s,
                   .ghost = pooling_ghost()};
  return depths;
}

config::FamilyConfig new_ict() { return config::FamilyConfig(IctSettings{}); }

int64_t ict_layers(const config::FamilyConfig& config) {
  const BiencoderSettings& settings = config.as<IctSettings>().biencoder;
  return settings.bert.shape.num_layers * (settings.shared ? 1 : 2);
}

spec::ModelSpec ict_model(const config::RunConfig& run) {
  return internal::biencoder_model_spec("ict", biencoder_config(run.model.as<IctSettings>().biencoder, run.vocabulary),
                                        run.data.sequence_length, 1);
}

// Every option of the family has its effect whatever the others are.
void find_unused_ict(const config::RunConfig&, config::UnusedOptions&) {}

void check_ict_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                    Problems& problems) {
  if (tokenizer != nullptr) data::SentenceVocabulary::make(*tokenizer, data::SentenceModel::kBert, problems);
  if (run.data.sequence_length > 0) data::check_ict(plan, config::data_sets(run), ict_samples(run), problems);
}

const std::string& ict_pretrained(const config::FamilyConfig& config) { return config.as<IctSettings>().bert_load; }

}  // namespace

BertConfig BiencoderConfig::query_tower() const { return tower_of(*this, "query_model.", false); }
BertConfig BiencoderConfig::context_tower() const { return tower_of(*this, "context_model.", true); }

std::vector<spec::ParamSpec> biencoder_params(const BiencoderConfig& config) {
  ParamList params;
  add_tower_params(params, config.query_tower(), config.projection_dim);
  if (!config.shared) add_tower_params(params, config.context_tower(), config.projection_dim);
  return params.take();
}

spec::ModelSpec internal::biencoder_model_spec(const char* family, const BiencoderConfig& config,
                                               int64_t sequence_length, int64_t contexts_of_sample) {
  const BertConfig& bert = config.bert;
  const double s = static_cast<double>(sequence_length), contexts = static_cast<double>(contexts_of_sample);
  return {.family = family,
          .description = concat(config.shared ? "a tower for both of " : "two towers of ", bert.num_layers, " layers, ",
                                bert.hidden_size, " wide, ", bert.num_attention_heads, " heads, vectors of ",
                                config.embedding_size()),
          .params = biencoder_params(config),
          .depths = biencoder_depths(config, s, contexts),
          .vocabulary = {.size = bert.vocab_size, .padded_size = bert.padded_vocab_size},
          .hidden_size = bert.hidden_size,
          .has_dropout = bert.hidden_dropout > 0,
          .batch_bytes = (1 + contexts) * ((3 * kIctInt64 + kIctInt32) * s + kIctInt64)};
}

BiencoderConfig biencoder_config(const BiencoderSettings& settings, const spec::Vocabulary& vocabulary) {
  BiencoderConfig config{
      .bert = settings.bert.shape, .projection_dim = settings.projection_dim, .shared = settings.shared};
  config.bert.vocab_size = vocabulary.size;
  config.bert.padded_vocab_size = vocabulary.padded_size;
  return config;
}

data::IctSampleOptions ict_samples(const config::RunConfig& run) {
  data::IctSampleOptions samples = run.model.as<IctSettings>().samples;
  samples.sequence_length = run.data.sequence_length;
  return samples;
}

// Of a biencoder its own, or those of a tower that both share; of a BERT without the tower's prefix.
std::vector<std::string> internal::biencoder_pretrained_names(const std::string& parameter) {
  const std::string in_tower = parameter.substr(parameter.find('.') + 1);
  return {parameter, "shared_model." + in_tower, in_tower};
}

const config::Family& ict_family() {
  static const config::Family family{
      .name = "ict",
      .display = "ICT",
      .kin = "two BERTs whose vectors find the passage that a query is from",
      .summary =
          "Trains a retriever by the inverse cloze task, on token files of `espalier preprocess "
          "--split-sentences` and their titles.",
      .tokenizer_type = "BertWordPieceLowerCase",
      .new_config = new_ict,
      .add_options = internal::add_ict_options,
      .resolve = internal::resolve_ict,
      .find_unused = find_unused_ict,
      .num_layers = ict_layers,
      .pretrained = {.option = "--bert-load", .folder = ict_pretrained, .names = internal::biencoder_pretrained_names},
      .competes_across_replicas = true,
      .model = ict_model,
      .check_data = check_ict_data};
  return family;
}

}  // namespace espalier::families
