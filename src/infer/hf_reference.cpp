#include "infer/hf_reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "store/weight_folder.h"

namespace espalier::infer {
namespace {

using at::Tensor;
using nlohmann::json;

at::ScalarType scalar_type(store::DType dtype) {
  switch (dtype) {
    case store::DType::kFloat32: return at::kFloat;
    case store::DType::kFloat64: return at::kDouble;
    case store::DType::kFloat16: return at::kHalf;
    case store::DType::kBFloat16: return at::kBFloat16;
    default: throw UserError("a weight is of type " + to_string(dtype), ExitCode::kBadData);
  }
}

// Weights by name, in fp32.
class Weights {
 public:
  Weights(const std::filesystem::path& folder, std::optional<at::ScalarType> rounding)
      : views_(store::open_weights(folder)), rounding_(rounding) {
    for (const char* prefix : {"transformer.", "model."})
      for (const auto& [name, view] : views_)
        if (name.starts_with(prefix)) prefix_ = prefix;
  }

  bool has(const std::string& name) const { return views_.contains(name); }
  // By its name within the base model.
  Tensor base(const std::string& name) const { return whole(prefix_ + name); }
  bool has_base(const std::string& name) const { return has(prefix_ + name); }
  Tensor whole(const std::string& name) const {
    const auto found = views_.find(name);
    if (found == views_.end()) throw UserError("there is no tensor '" + name + "'", ExitCode::kBadData);
    const Tensor tensor = at::empty(found->second.shape, scalar_type(found->second.dtype));
    store::TensorReader(found->second).read(tensor.data_ptr());
    return (rounding_ ? tensor.to(at::kFloat).to(*rounding_) : tensor).to(at::kFloat);
  }

 private:
  std::map<std::string, store::TensorView> views_;
  std::optional<at::ScalarType> rounding_;
  std::string prefix_;
};

// A key that is absent or null has the value `otherwise`.
template <class Value>
Value get(const json& config, const char* key, Value otherwise) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? otherwise : found->get<Value>();
}

Tensor activate(const Tensor& x, const std::string& name) {
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return at::gelu(x, "tanh");
  if (name == "relu") return at::relu(x);
  if (name == "relu2") return at::square(at::relu(x));
  if (name == "silu" || name == "swish") return at::silu(x);
  if (name == "linear") return x;
  throw UserError("activation '" + name + "' is not known", ExitCode::kBadData);
}

Tensor layer_norm(const Tensor& x, const Weights& weights, const std::string& name, double epsilon) {
  const Tensor weight = weights.base(name + ".weight");
  return at::layer_norm(x, {x.size(-1)}, weight, weights.base(name + ".bias"), epsilon);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
}

// q: [b, n, s, d]; k, v: [b, g, s, d], each key for n / g queries. `bias` is added to the scores; `window` 0: all keys
// up to the query, else the last `window_size`.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, int64_t window) {
  const int64_t length = q.size(2), shared = q.size(1) / k.size(1);
  Tensor scores =
      at::matmul(q, at::repeat_interleave(k, shared, 1).transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (bias.defined()) scores = scores + bias;
  const Tensor position = at::arange(length), distance = position.unsqueeze(1) - position;  // query - key
  Tensor hidden = distance < 0;
  if (window > 0) hidden = hidden | (distance >= window);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const Tensor out = at::matmul(at::softmax(scores, -1), at::repeat_interleave(v, shared, 1));
  return out.transpose(1, 2).reshape({q.size(0), length, -1});
}

// [b, s, n * d] -> [b, n, s, d]
Tensor heads_of(const Tensor& x, int64_t heads) { return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2); }

Tensor output(const Tensor& x, const Weights& weights, const json& config, bool tied, const char* embedding) {
  return at::matmul(
      x, (get(config, "tie_word_embeddings", tied) ? weights.base(embedding) : weights.whole("lm_head.weight")).t());
}

Tensor gpt2(const json& config, const Weights& weights, const Tensor& ids) {
  const double epsilon = get(config, "layer_norm_epsilon", 1e-5);
  const int64_t heads = config.at("n_head");
  const auto conv = [&](const Tensor& x, const std::string& name) {
    return at::matmul(x, weights.base(name + ".weight")) + weights.base(name + ".bias");
  };
  Tensor x = weights.base("wte.weight").index({ids}) + weights.base("wpe.weight").narrow(0, 0, ids.size(1));
  for (int64_t layer = 0; layer < config.at("n_layer").get<int64_t>(); ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    const auto qkv = conv(layer_norm(x, weights, h + "ln_1", epsilon), h + "attn.c_attn").chunk(3, -1);
    const Tensor a = attention(heads_of(qkv[0], heads), heads_of(qkv[1], heads), heads_of(qkv[2], heads), {}, 0);
    x = x + conv(a, h + "attn.c_proj");
    const Tensor m = activate(conv(layer_norm(x, weights, h + "ln_2", epsilon), h + "mlp.c_fc"),
                              get<std::string>(config, "activation_function", "gelu_new"));
    x = x + conv(m, h + "mlp.c_proj");
  }
  return output(layer_norm(x, weights, "ln_f", epsilon), weights, config, true, "wte.weight");
}

// Press et al. 2022: powers of 2^(-8/n) for the largest power of two n, then every second one of twice as many heads.
std::vector<double> slopes_of(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t head = 0; head < power; ++head)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(power)));
  for (int64_t head = 0; head < heads - power; ++head)
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(2 * head + 1) / static_cast<double>(power)));
  return slopes;
}

Tensor bloom(const json& config, const Weights& weights, const Tensor& ids) {
  const double epsilon = get(config, "layer_norm_epsilon", 1e-5);
  const int64_t heads = config.contains("n_head") ? config.at("n_head") : config.at("num_attention_heads");
  const int64_t layers = config.contains("n_layer") ? config.at("n_layer") : config.at("num_hidden_layers");
  const bool from_norm = get(config, "apply_residual_connection_post_layernorm", false);
  const auto linear = [&](const Tensor& x, const std::string& name) {
    const Tensor weight = weights.base(name + ".weight");
    return at::linear(x, weight, weights.base(name + ".bias"));
  };
  const Tensor slopes = at::tensor(slopes_of(heads), at::kFloat).view({heads, 1, 1});
  const Tensor bias = slopes * at::arange(ids.size(1), at::kFloat);  // [n, 1, s]
  Tensor x =
      layer_norm(weights.base("word_embeddings.weight").index({ids}), weights, "word_embeddings_layernorm", epsilon);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    const Tensor in = layer_norm(x, weights, h + "input_layernorm", epsilon);
    const Tensor qkv = linear(in, h + "self_attention.query_key_value")
                           .view({ids.size(0), ids.size(1), heads, 3, -1})
                           .permute({3, 0, 2, 1, 4});  // [3, b, n, s, d]
    x = (from_norm ? in : x) + linear(attention(qkv[0], qkv[1], qkv[2], bias, 0), h + "self_attention.dense");
    const Tensor mid = layer_norm(x, weights, h + "post_attention_layernorm", epsilon);
    x = (from_norm ? mid : x) + linear(at::gelu(linear(mid, h + "mlp.dense_h_to_4h"), "tanh"), h + "mlp.dense_4h_to_h");
  }
  return output(layer_norm(x, weights, "ln_f", epsilon), weights, config, true, "word_embeddings.weight");
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

Tensor llama(const json& config, const Weights& weights, const Tensor& ids) {
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
    const Tensor a = attention(rotate(q, rope), rotate(k, rope), v, {}, window_of(config, layer));
    x = x + linear(a, self + "o_proj");
    const Tensor mid = rms_norm(x, weights.base(l + "post_attention_layernorm.weight"), epsilon);
    std::vector<Tensor> halves;
    if (weights.has_base(mlp + "gate_up_proj.weight"))
      halves = linear(mid, mlp + "gate_up_proj").chunk(2, -1);
    else
      halves = {linear(mid, mlp + "gate_proj"), linear(mid, mlp + "up_proj")};
    x = x + linear(activate(halves[0], get<std::string>(config, "hidden_act", "silu")) * halves[1], mlp + "down_proj");
  }
  return output(rms_norm(x, weights.base("norm.weight"), epsilon), weights, config, false, "embed_tokens.weight");
}

}  // namespace

at::Tensor hf_reference_logits(const std::filesystem::path& folder, const at::Tensor& ids,
                               std::optional<at::ScalarType> rounding) {
  const at::NoGradGuard no_grad;
  const json config = json::parse(read_file(folder / "config.json"));
  const Weights weights(folder, rounding);
  const std::string family = config.at("model_type");
  if (family == "gpt2") return gpt2(config, weights, ids);
  if (family == "bloom") return bloom(config, weights, ids);
  return llama(config, weights, ids);
}

}  // namespace espalier::infer
