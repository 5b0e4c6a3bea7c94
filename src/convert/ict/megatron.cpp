// Biencoders in Megatron's checkpoints: a BERT without heads for each of the keys query_model and context_model, or one
// of the key shared_model, each with a projection where vectors have one.
#include "base/format.h"
#include "convert/bert/internal/bert_codecs.h"
#include "convert/ict/formats.h"
#include "convert/megatron/internal/model_arguments.h"
#include "convert/megatron/internal/read.h"
#include "families/ict/config.h"
#include "families/ict_task/config.h"

namespace espalier::convert {
namespace {

using families::BiencoderConfig;
using families::BiencoderSettings;
using store::TorchValue;

constexpr const char* kTowers[] = {"query_model.", "context_model.", "shared_model."};

const BiencoderSettings& ict_settings(const config::FamilyConfig& model) {
  return model.as<families::IctSettings>().biencoder;
}
const BiencoderSettings& ict_task_settings(const config::FamilyConfig& model) {
  return model.as<families::IctTaskSettings>().biencoder;
}
const BiencoderSettings& settings_of(const config::RunConfig& run) {
  return run.family == &families::ict_family() ? ict_settings(run.model) : ict_task_settings(run.model);
}

bool same_biencoder(const BiencoderSettings& a, const BiencoderSettings& b) {
  return a.projection_dim == b.projection_dim && a.shared == b.shared && a.bert.shape == b.bert.shape;
}

bool is_megatron_ict(const std::set<std::string>& names) {
  for (const std::string& name : names)
    for (const char* tower : kTowers)
      if (without_prefix(name, "module.").starts_with(tower)) return true;
  return false;
}
// A checkpoint does not say which task its biencoder was trained on: it is read as that of the first.
bool is_no_model(const std::set<std::string>&) { return false; }

ModuleName ict_module_name(const std::string& path) {
  for (const std::string tower : kTowers) {
    if (!path.starts_with(tower)) continue;
    ModuleName inner = bert_module_name(without_prefix(path.substr(tower.size()), "language_model."));
    if (inner.layer >= 0)
      inner.stack = tower + inner.stack;
    else if (!inner.name.empty())
      inner.name = tower + inner.name;
    return inner;
  }
  return {.name = path};
}

std::vector<ModuleSection> sections_of_towers() {
  std::vector<ModuleSection> sections;
  for (const std::string tower : kTowers) {
    const std::string key = tower.substr(0, tower.size() - 1);
    const auto add = [&](const std::string& ours, bool is_module, const std::vector<std::string>& path) {
      std::vector<std::string> whole = {key};
      whole.insert(whole.end(), path.begin(), path.end());
      sections.push_back({tower + ours, tower + (is_module ? ours : ""), whole});
    };
    for (const char* embedding : {"word_embeddings", "position_embeddings", "tokentype_embeddings"})
      add(concat(embedding, "."), true, {"language_model", "embedding", embedding});
    add("layers.", false, {"language_model", "encoder"});
    add("final_layernorm.", false, {"language_model", "encoder"});
    add("projection_enc.", true, {"projection_enc"});
  }
  return sections;
}

const std::vector<const char*>& arguments_of_ict() {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> all;
    for (const char* name : arguments_of_bert())
      if (name != std::string("mask_prob") && name != std::string("short_seq_prob")) all.push_back(name);
    for (const char* name :
         {"biencoder_projection_dim", "biencoder_shared_query_context_model", "retriever_score_scaling",
          "retriever_report_topk_accuracies", "titles_data_path", "query_in_block_prob", "use_one_sent_docs"})
      all.push_back(name);
    return all;
  }();
  return names;
}

void add_ict_lines(const TorchValue& args, ArgumentLines& lines) {
  add_lines_of_bert_model(args, arguments_of_ict(), lines);
}

void put_ict_arguments(const config::RunConfig& run, store::TorchPairs& pairs) {
  put_arguments_of_bert_model(settings_of(run).bert.shape, pairs);
}

MegatronShape shape_of_ict(const config::RunConfig& run) {
  const families::BertConfig& bert = settings_of(run).bert.shape;
  return {
      .num_groups = bert.num_attention_heads, .head_size = bert.kv_channels, .ffn_hidden_size = bert.ffn_hidden_size};
}

std::vector<std::string> unsaid_of_ict(const config::RunConfig& run) {
  const families::BertConfig& bert = settings_of(run).bert.shape;
  if (bert.num_tokentypes == 2) return {};
  return {concat("--bert-num-tokentypes ", bert.num_tokentypes,
                 ": the towers of Megatron's biencoder have 2 token types: it cannot be exported")};
}

MegatronCodec megatron_ict(bool (*recognizes)(const std::set<std::string>&)) {
  return {.recognizes = recognizes,
          .module_name = ict_module_name,
          .sections = sections_of_towers(),
          .shape = shape_of_ict,
          .arguments = arguments_of_ict(),
          .add_lines = add_ict_lines,
          .spelled_apart = {"normalization", "openai_gelu"},
          .put_arguments = put_ict_arguments,
          .obstacles = unsaid_of_ict,
          .on_one_rank = true};
}

}  // namespace

const FamilyFormats& ict_formats() {
  static const FamilyFormats formats{
      .family = &families::ict_family(),
      .is_same_model = [](const config::FamilyConfig& a,
                          const config::FamilyConfig& b) { return same_biencoder(ict_settings(a), ict_settings(b)); },
      .hugging_face = {},
      .megatron = megatron_ict(is_megatron_ict)};
  return formats;
}

const FamilyFormats& ict_task_formats() {
  static const FamilyFormats formats{.family = &families::ict_task_family(),
                                     .is_same_model =
                                         [](const config::FamilyConfig& a, const config::FamilyConfig& b) {
                                           return same_biencoder(ict_task_settings(a), ict_task_settings(b));
                                         },
                                     .hugging_face = {},
                                     .megatron = megatron_ict(is_no_model)};
  return formats;
}

}  // namespace espalier::convert
