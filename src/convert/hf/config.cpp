#include "convert/hf/config.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "convert/formats.h"
#include "convert/hf/internal/config_reader.h"

namespace espalier::convert {
namespace {

using Json = ConfigReader::Json;

constexpr int kDeepest = 16;  // what is nested without end would overrun the stack where it is shown

// Keys of other families, or of all, that would change the model.
void refuse_what_changes_the_model(ConfigReader& reader) {
  for (const char* key :
       {"quantization_config", "num_experts", "num_local_experts", "attn_logit_softcapping", "final_logit_softcapping",
        "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling", "clip_qkv"})
    if (reader.has(key)) reader.problem(key, "is not supported");
  for (const char* key : {"pruned_heads"})
    if (const Json* heads = reader.object(key); heads != nullptr && !heads->empty())
      reader.problem(key, "is not supported; all heads of a layer must be present");
}

void read_common(ConfigReader& reader, HfModel& model) {
  const int64_t rows = reader.required_size({"vocab_size"}, kMostRows);
  model.config.vocabulary = {.size = rows, .padded_size = rows};
  const std::string old_name = reader.text("torch_dtype", "");
  const std::string dtype = reader.text("dtype", old_name);
  if (dtype == "float32") model.dtype = store::DType::kFloat32;
  if (dtype == "float16") model.dtype = store::DType::kFloat16;
  if (dtype == "bfloat16") model.dtype = store::DType::kBFloat16;
  refuse_what_changes_the_model(reader);
  reader.ignore({"model_type",
                 "transformers_version",
                 "use_cache",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "_name_or_path",
                 "return_dict",
                 "return_dict_in_generate",
                 "output_attentions",
                 "output_hidden_states",
                 "id2label",
                 "label2id",
                 "problem_type",
                 "chunk_size_feed_forward",
                 "task_specific_params",
                 "cross_attention_hidden_size",
                 "gradient_checkpointing",
                 "_attn_implementation",
                 "_attn_implementation_autoset",
                 "attn_implementation",
                 "auto_map",
                 "tokenizer_class",
                 "prefix",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "tf_legacy_loss",
                 "use_bfloat16",
                 "torchscript",
                 "finetuning_task",
                 "num_labels",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "no_repeat_ngram_size"});
}

Json parse(const std::string& text, const std::string& origin) {
  const auto watch = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDeepest) throw UserError(concat(origin, ": nested more than ", kDeepest, " deep"), ExitCode::kBadData);
    return true;
  };
  try {
    Json json = Json::parse(text, watch);
    if (json.is_object()) return json;
    throw UserError(concat(origin, ": expected a JSON object, found ", json.type_name()), ExitCode::kBadData);
  } catch (const Json::parse_error& error) {
    throw UserError(error.byte > text.size()
                        ? concat(origin, ": expected JSON; it ends in the middle, after ", text.size(), " bytes")
                        : concat(origin, ": expected JSON; at byte ", error.byte, " of ", text.size(), " it is none"),
                    ExitCode::kBadData);
  } catch (const Json::exception&) {
    throw UserError(concat(origin, ": expected JSON; it has a number that is too large"), ExitCode::kBadData);
  }
}

const HfCodec& codec_of(const Json& json, const std::string& origin) {
  const auto type = json.find("model_type");
  const HfCodec* codec = type == json.end() || !type->is_string() ? nullptr : find_hf_codec(type->get<std::string>());
  if (codec != nullptr) return *codec;
  throw UserError(concat(origin, ": model_type: expected ", join(hf_model_types(), ", "), ", found ",
                         type == json.end() ? "nothing" : type->dump(-1, ' ', true, Json::error_handler_t::replace)),
                  ExitCode::kBadData);
}

[[noreturn]] void raise(const Problems& problems, const std::string& origin) {
  throw UserError(concat(origin, ": ", join(problems.messages(), "\n" + origin + ": ")), ExitCode::kBadData);
}

const char* dtype_name(store::DType dtype) {
  if (dtype == store::DType::kBFloat16) return "bfloat16";
  return dtype == store::DType::kFloat16 ? "float16" : "float32";
}

Json start_from(const std::string& base, const HfCodec& codec) {
  if (base.empty()) return Json::object();
  Json json = Json::parse(base);
  return json.value("model_type", "") == codec.model_type ? json : Json::object();
}

}  // namespace

HfModel read_hf_config(const std::string& text, const std::string& origin, const HfTensors& stored) {
  const Json json = parse(text, origin);
  HfModel model;
  model.codec = &codec_of(json, origin);
  model.config.family = model.codec->family;
  Problems problems;
  ConfigReader reader(json, problems);
  read_common(reader, model);
  model.codec->read(reader, stored, model);
  const std::vector<std::string> unknown = reader.unread_keys();
  if (!unknown.empty())
    model.notes.push_back("keys that are not known and are assumed to change nothing: " + join(unknown, ", "));
  if (!problems.empty()) raise(problems, origin);
  return model;
}

HfOrigin origin_of(const std::string& text, const std::string& origin) {
  const Json json = parse(text, origin);
  Problems problems;
  ConfigReader reader(json, problems);
  HfOrigin found{&codec_of(json, origin), reader.required_size({"vocab_size"}, kMostRows)};
  if (!problems.empty()) raise(problems, origin);
  return found;
}

const HfCodec& choose_hf_codec(const ModelConfig& config, const HfCodec* preferred) {
  const std::vector<HfCodec>& codecs = formats_of(*config.family).hugging_face;
  const bool is_own = preferred != nullptr && preferred->family == config.family;
  if (is_own && preferred->obstacles(config).empty()) return *preferred;
  if (codecs.empty())
    throw UserError(concat("no family of transformers that this program writes can hold ", config.family->kin),
                    ExitCode::kUsage);
  size_t fewest = SIZE_MAX;
  for (const HfCodec& codec : codecs) {
    const size_t count = codec.obstacles(config).size();
    if (count == 0) return codec;
    fewest = std::min(fewest, count);
  }
  std::string text = "no family of transformers that this program writes can hold this model. Nearest:";
  for (const HfCodec& codec : codecs)
    if (const auto reasons = codec.obstacles(config); reasons.size() == fewest)
      text += concat("\n  ", codec.model_type, ", where ", join(reasons, ", and "));
  throw UserError(text, ExitCode::kUsage);
}

std::string hf_config_json(const HfModel& model, const std::string& base) {
  ESPALIER_CHECK(model.codec->obstacles(model.config).empty(), model.codec->model_type);
  Json json = start_from(base, *model.codec);
  json["architectures"] = Json::array({model.codec->architecture(model.config)});
  json["model_type"] = model.codec->model_type;
  json["vocab_size"] = model.config.vocabulary.padded_size;
  model.codec->write(model.config, json);
  if (model.dtype)  // transformers 5's name and transformers 4's
    json["dtype"] = json["torch_dtype"] = dtype_name(*model.dtype);
  return json.dump(2) + "\n";
}

}  // namespace espalier::convert
