#include "convert/gpt/internal/rope.h"

#include <cmath>

#include "base/format.h"

namespace espalier::convert {
namespace {

using Json = ConfigReader::Json;
using Kind = spec::RopeScaling::Kind;

constexpr double kDefaultTheta = 10000;
constexpr int64_t kPhi3OriginalPositions = 4096;  // transformers' default

// "su" and "yarn" are what the first Phi-3 files called it.
std::string type_of(ConfigReader& reader, LlamaKind kind) {
  const std::string old_name = reader.text("type", "default");
  const std::string type = reader.text("rope_type", old_name);
  return kind == LlamaKind::kPhi3 && (type == "su" || type == "yarn") ? "longrope" : type;
}

int64_t original_positions(ConfigReader& top, ConfigReader& rope, LlamaKind kind, const families::GptConfig& config) {
  const std::optional<int64_t> outside = top.size({"original_max_position_embeddings"});
  const std::optional<int64_t> inside = rope.size({"original_max_position_embeddings"});
  if (outside) return *outside;
  if (kind == LlamaKind::kPhi3) return kPhi3OriginalPositions;
  return inside.value_or(config.max_position_embeddings);
}

void read_factor(ConfigReader& rope, const families::GptConfig& config, spec::RopeScaling& scaling) {
  const double derived = scaling.original_max_position_embeddings > 0
                             ? static_cast<double>(config.max_position_embeddings) /
                                   static_cast<double>(scaling.original_max_position_embeddings)
                             : 0;
  scaling.factor = rope.number("factor", derived, 1e-6, 1e6);
  if (scaling.factor == 0) rope.problem("factor", "expected a number, found nothing");
}

// What transformers derives from DeepSeek's two scales.
double yarn_attention(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_yarn(ConfigReader& rope, spec::RopeScaling& scaling) {
  scaling.kind = Kind::kYarn;
  scaling.beta_fast = rope.number("beta_fast", 32, 1e-6, 1e6);
  scaling.beta_slow = rope.number("beta_slow", 1, 1e-6, 1e6);
  scaling.attention_factor = rope.number("attention_factor", 0, 0, 1e6);
  const double scale = rope.number("mscale", 0, 0, 1e6), scale_all = rope.number("mscale_all_dim", 0, 0, 1e6);
  if (scaling.attention_factor == 0 && scale != 0 && scale_all != 0)
    scaling.attention_factor = yarn_attention(scaling.factor, scale) / yarn_attention(scaling.factor, scale_all);
  rope.ignore({"finetuned"});  // whether the model was trained with it; the positions are the same
  rope.require("truncate", true, "the range of corrected frequencies is always rounded to whole channels here");
}

void read_longrope(ConfigReader& rope, const families::GptConfig& config, spec::RopeScaling& scaling) {
  scaling.kind = Kind::kLongRope;
  scaling.short_factors = rope.numbers("short_factor");
  scaling.long_factors = rope.numbers("long_factor");
  scaling.attention_factor = rope.number("attention_factor", 0, 0, 1e6);
  const auto pairs = static_cast<size_t>(config.rotary_size() / 2);
  for (const auto& [key, factors] :
       {std::pair{"short_factor", &scaling.short_factors}, {"long_factor", &scaling.long_factors}})
    if (factors->size() != pairs)
      rope.problem(key, "expected ", pairs, " numbers, one for each pair of rotated channels, found ", factors->size());
}

void read_scaling(ConfigReader& top, ConfigReader& rope, LlamaKind kind, families::GptConfig& config) {
  spec::RopeScaling& scaling = config.rope_scaling;
  const std::string type = type_of(rope, kind);
  const bool has_original = type == "llama3" || type == "yarn" || type == "longrope";
  const int64_t original = original_positions(top, rope, kind, config);
  if (has_original) scaling.original_max_position_embeddings = original;
  if (type == "default") return;
  if (type == "linear") {
    scaling.kind = Kind::kLinear;
    read_factor(rope, config, scaling);
  } else if (type == "llama3") {
    scaling.kind = Kind::kLlama3;
    read_factor(rope, config, scaling);
    scaling.low_freq_factor = rope.number("low_freq_factor", 1, 1e-6, 1e6);
    scaling.high_freq_factor = rope.number("high_freq_factor", 4, 1e-6, 1e6);
    if (scaling.low_freq_factor >= scaling.high_freq_factor)
      rope.problem("high_freq_factor", format_shortest(scaling.high_freq_factor), " is not above low_freq_factor ",
                   format_shortest(scaling.low_freq_factor));
  } else if (type == "yarn") {
    read_factor(rope, config, scaling);
    read_yarn(rope, scaling);
  } else if (type == "longrope") {
    read_factor(rope, config, scaling);
    read_longrope(rope, config, scaling);
  } else {
    rope.problem("rope_type", "'", type, "' is not supported; default, linear, llama3, yarn and longrope are");
  }
}

bool is_one_for_each_layer_type(const Json& rope) {
  return !rope.empty() && std::all_of(rope.begin(), rope.end(), [](const Json& value) { return value.is_object(); });
}

}  // namespace

void read_rope(ConfigReader& reader, LlamaKind kind, families::GptConfig& config) {
  config.position_embedding = families::PositionEmbedding::kRotary;
  const Json nothing = Json::object();
  const Json *old_style = reader.object("rope_scaling"), *new_style = reader.object("rope_parameters");
  const bool is_old = old_style != nullptr && !old_style->empty();
  const Json& given = is_old ? *old_style : new_style != nullptr ? *new_style : nothing;
  const std::string name = is_old ? "rope_scaling" : "rope_parameters";
  if (is_one_for_each_layer_type(given)) {
    reader.problem(name, "a set for each type of layer is not supported; all layers have one here");
    return;
  }
  ConfigReader rope(given, reader.problems(), name + ".");
  double theta = reader.number("rope_theta", kDefaultTheta, 1, 1e12);
  if (is_old && new_style != nullptr)
    theta = ConfigReader(*new_style, reader.problems()).number("rope_theta", theta, 1, 1e12);
  config.rotary_base = rope.number("rope_theta", theta, 1, 1e12);
  const double outside = reader.number("partial_rotary_factor", 1, 0, 1);
  config.rotary_percent = rope.number("partial_rotary_factor", outside, 0, 1);
  if (config.rotary_percent != 1 && kind != LlamaKind::kPhi3)
    rope.problem("partial_rotary_factor", format_shortest(config.rotary_percent), " is only known for ",
                 model_type_of(LlamaKind::kPhi3));
  if (config.kv_channels > 0 && (config.rotary_size() < 2 || config.rotary_size() % 2 != 0))
    rope.problem("partial_rotary_factor", config.rotary_size(), " of the head's ", config.kv_channels,
                 " channels would rotate; the number must be even and at least 2");
  read_scaling(reader, rope, kind, config);
  for (const std::string& key : rope.unread_keys())
    rope.problem(key, "is not known for ", model_type_of(kind), "; it may change the positions");
}

void write_rope(LlamaKind kind, const families::GptConfig& config, Json& json) {
  const spec::RopeScaling& scaling = config.rope_scaling;
  Json rope = Json::object();
  const auto add_type = [&](const char* type) { rope["rope_type"] = type, rope["type"] = type; };
  if (scaling.kind == Kind::kLinear) add_type("linear");
  if (scaling.kind == Kind::kLlama3) {
    add_type("llama3");
    rope["low_freq_factor"] = scaling.low_freq_factor;
    rope["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.kind == Kind::kYarn) {
    add_type("yarn");
    rope["beta_fast"] = scaling.beta_fast;
    rope["beta_slow"] = scaling.beta_slow;
  }
  if (scaling.kind == Kind::kLongRope) {
    add_type("longrope");
    rope["short_factor"] = scaling.short_factors;
    rope["long_factor"] = scaling.long_factors;
  }
  const bool is_phi3 = kind == LlamaKind::kPhi3;
  // Phi-3 derives longrope's factor from its lengths; elsewhere transformers asks for it.
  const bool is_derived = scaling.factor * static_cast<double>(scaling.original_max_position_embeddings) ==
                          static_cast<double>(config.max_position_embeddings);
  if (scaling.kind != Kind::kNone && !(scaling.kind == Kind::kLongRope && is_phi3 && is_derived))
    rope["factor"] = scaling.factor;
  if (scaling.attention_factor != 0) rope["attention_factor"] = scaling.attention_factor;
  if (scaling.original_max_position_embeddings > 0 && !is_phi3)
    rope["original_max_position_embeddings"] = scaling.original_max_position_embeddings;

  json["rope_theta"] = config.rotary_base;
  json["rope_scaling"] = scaling.kind == Kind::kNone ? Json() : rope;
  if (is_phi3) {
    json["partial_rotary_factor"] = config.rotary_percent;
    // transformers reads it with every kind of positions; without scaling it changes nothing.
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings > 0
                                                   ? scaling.original_max_position_embeddings
                                                   : config.max_position_embeddings;
    rope["partial_rotary_factor"] = config.rotary_percent;
    if (scaling.kind != Kind::kNone)
      rope["original_max_position_embeddings"] = json["original_max_position_embeddings"];
  }
  rope.erase("type");
  if (!rope.contains("rope_type")) rope["rope_type"] = "default";
  rope["rope_theta"] = config.rotary_base;
  json["rope_parameters"] = rope;
}

}  // namespace espalier::convert
