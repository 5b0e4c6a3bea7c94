// Llama and similar models, as transformers computes it.
#include <ATen/ATen.h>

#include <cmath>

#include "infer/internal/hf_reference.h"

namespace espalier::infer {
namespace {

using at::Tensor;
using nlohmann::json;

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
}

struct Rope {
  Tensor cosine, sine;  // [s, d / 2] of the channels that rotate
};

// Frequencies and the factor of rotated queries and keys, as the papers give them.
std::pair<std::vector<double>, double> frequencies_of(const json& config, const json& rope, int64_t channels,
                                                      int64_t length) {
  const double base = get(rope, "rope_theta", get(config, "rope_theta", 10000.0));
  std::vector<double> frequencies;
  for (int64_t i = 0; i < channels; i += 2)
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(channels)));
  std::string type = get<std::string>(rope, "rope_type", get<std::string>(rope, "type", "default"));
  const double longest = get(config, "max_position_embeddings", 2048.0);
  const double original =
      get(config, "original_max_position_embeddings", get(rope, "original_max_position_embeddings", longest));
  const double factor = get(rope, "factor", longest / original);
  if (type == "su" || (type == "yarn" && config.at("model_type") == "phi3")) type = "longrope";
  double scale = 1;
  if (type == "linear")
    for (double& frequency : frequencies) frequency /= factor;
  if (type == "llama3")
    for (double& frequency : frequencies) {
      const double low = get(rope, "low_freq_factor", 1.0), high = get(rope, "high_freq_factor", 4.0);
      const double turns = original * frequency / (2 * M_PI);  // of the original length
      const double share = std::min(1.0, std::max(0.0, (turns - low) / (high - low)));
      frequency = (1 - share) * frequency / factor + share * frequency;
    }
  if (type == "yarn") {
    const auto channel_of = [&](double turns) {
      return static_cast<double>(channels) * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(base));
    };
    const double last = static_cast<double>(channels) - 1;
    const double low = std::max(0.0, std::floor(channel_of(get(rope, "beta_fast", 32.0))));
    double high = std::min(last, std::ceil(channel_of(get(rope, "beta_slow", 1.0))));
    if (low == high) high += 0.001;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double share = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
      frequencies[i] = share * frequencies[i] / factor + (1 - share) * frequencies[i];
    }
    const auto log_scale = [&](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
    const double m = get(rope, "mscale", 0.0), all = get(rope, "mscale_all_dim", 0.0);
    scale = get(rope, "attention_factor", m != 0 && all != 0 ? log_scale(m) / log_scale(all) : log_scale(1));
  }
  if (type == "longrope") {
    const bool is_long = static_cast<double>(length) > original;
    const std::vector<double> divisors = rope.at(is_long ? "long_factor" : "short_factor");
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors.at(i);
    const double derived = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
    scale = get(rope, "attention_factor", derived);
  }
  return {frequencies, scale};
}

Rope rope_of(const json& config, int64_t head_size, int64_t length) {
  const json nothing = json::object();
  const json& rope = config.contains("rope_scaling") && config["rope_scaling"].is_object() ? config["rope_scaling"]
                     : config.contains("rope_parameters") && config["rope_parameters"].is_object()
                         ? config["rope_parameters"]
                         : nothing;
  const double share = get(rope, "partial_rotary_factor", get(config, "partial_rotary_factor", 1.0));
  const auto channels = static_cast<int64_t>(static_cast<double>(head_size) * share);
  const auto [frequencies, scale] = frequencies_of(config, rope, channels, length);
  const Tensor angles = at::arange(length, at::kDouble).unsqueeze(1) * at::tensor(frequencies, at::kDouble);
  return {(at::cos(angles) * scale).to(at::kFloat), (at::sin(angles) * scale).to(at::kFloat)};
}

// x: [b, n, s, d]; the first channels rotate, i with i + half.
Tensor rotate(const Tensor& x, const Rope& rope) {
  const int64_t half = rope.cosine.size(1);
  const Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
  return at::cat(
      {a * rope.cosine - b * rope.sine, b * rope.cosine + a * rope.sine, x.narrow(3, 2 * half, x.size(3) - 2 * half)},
      3);
}

int64_t window_of(const json& config, int64_t layer) {
  const std::string family = config.at("model_type");
  const int64_t window = get<int64_t>(config, "sliding_window", 0);
  if (family == "mistral" || family == "phi3") return window;
  if (family == "llama" || !get(config, "use_sliding_window", false)) return 0;
  const auto types = get<std::vector<std::string>>(config, "layer_types", {});
  const bool slides = types.empty() ? layer >= get<int64_t>(config, "max_window_layers", 28)
                                    : types.at(static_cast<size_t>(layer)) == "sliding_attention";
  return slides ? window : 0;
}

Tensor llama(const json& config, const HfWeights& weights, const Tensor& ids) {
  const double epsilon = get(config, "rms_norm_eps", config.at("model_type") == "phi3" ? 1e-5 : 1e-6);
  const int64_t heads = config.at("num_attention_heads"), groups = get(config, "num_key_value_heads", heads);
  const int64_t head_size = get(config, "head_dim", config.at("hidden_size").get<int64_t>() / heads);
  const auto linear = [&](const Tensor& x, const std::string& name) {
    const Tensor out = at::matmul(x, weights.base(name + ".weight").t());
    return weights.has_base(name + ".bias") ? out + weights.base(name + ".bias") : out;
  };
  const Rope rope = rope_of(config, head_size, ids.size(1));
  Tensor x = weights.base("embed_tokens.weight").index({ids});
  for (int64_t layer = 0; layer < config.at("num_hidden_layers").get<int64_t>(); ++layer) {
    const std::string l = "layers." + std::to_string(layer) + ".", self = l + "self_attn.", mlp = l + "mlp.";
    const Tensor in = rms_norm(x, weights.base(l + "input_layernorm.weight"), epsilon);
    std::vector<Tensor> qkv;
    if (weights.has_base(self + "qkv_proj.weight"))
      qkv = linear(in, self + "qkv_proj")
                .split_with_sizes({heads * head_size, groups * head_size, groups * head_size}, -1);
    else
      qkv = {linear(in, self + "q_proj"), linear(in, self + "k_proj"), linear(in, self + "v_proj")};
    Tensor q = heads_of(qkv[0].contiguous(), heads), k = heads_of(qkv[1].contiguous(), groups);
    if (weights.has_base(self + "q_norm.weight")) {
      q = rms_norm(q, weights.base(self + "q_norm.weight"), epsilon);
      k = rms_norm(k, weights.base(self + "k_norm.weight"), epsilon);
    }
    const Tensor v = heads_of(qkv[2].contiguous(), groups);
    const Tensor a = attend_before(rotate(q, rope), rotate(k, rope), v, {}, window_of(config, layer));
    x = x + linear(a, self + "o_proj");
    const Tensor mid = rms_norm(x, weights.base(l + "post_attention_layernorm.weight"), epsilon);
    std::vector<Tensor> halves;
    if (weights.has_base(mlp + "gate_up_proj.weight"))
      halves = linear(mid, mlp + "gate_up_proj").chunk(2, -1);
    else
      halves = {linear(mid, mlp + "gate_proj"), linear(mid, mlp + "up_proj")};
    x = x + linear(activate(halves[0], get<std::string>(config, "hidden_act", "silu")) * halves[1], mlp + "down_proj");
  }
  return output_logits(rms_norm(x, weights.base("norm.weight"), epsilon), weights, config, false,
                       "embed_tokens.weight");
}

}  // namespace

models::NamedTensors llama_formulas(const json& config, const HfWeights& weights, const models::NamedTensors& inputs) {
  return {{"logits", llama(config, weights, inputs.at("ids"))}};
}

}  // namespace espalier::infer
