#include "infer/hf_reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "infer/internal/hf_reference.h"
#include "store/weight_folder.h"

namespace espalier::infer {
namespace {

using at::Tensor;

at::ScalarType scalar_type(store::DType dtype) {
  switch (dtype) {
    case store::DType::kFloat32: return at::kFloat;
    case store::DType::kFloat64: return at::kDouble;
    case store::DType::kFloat16: return at::kHalf;
    case store::DType::kBFloat16: return at::kBFloat16;
    default: throw UserError("a weight is of type " + to_string(dtype), ExitCode::kBadData);
  }
}

const std::map<std::string, HfFormulas>& formulas_by_model_type() {
  static const std::map<std::string, HfFormulas> all = {
      {"gpt2", gpt2_formulas},     {"bloom", bloom_formulas}, {"llama", llama_formulas},
      {"mistral", llama_formulas}, {"qwen2", llama_formulas}, {"qwen3", llama_formulas},
      {"phi3", llama_formulas},    {"bert", bert_formulas},   {"megatron-bert", bert_formulas},
      {"phi3", llama_formulas},    {"t5", t5_formulas},       {"mt5", t5_formulas},
  };
  return all;
}

}  // namespace

HfWeights::HfWeights(const std::filesystem::path& folder, std::optional<at::ScalarType> rounding)
    : views_(store::open_weights(folder)), rounding_(rounding) {
  for (const char* prefix : {"transformer.", "model."})
    for (const auto& [name, view] : views_)
      if (name.starts_with(prefix)) prefix_ = prefix;
}

Tensor HfWeights::whole(const std::string& name) const {
  const auto found = views_.find(name);
  if (found == views_.end()) throw UserError("there is no tensor '" + name + "'", ExitCode::kBadData);
  const Tensor tensor = at::empty(found->second.shape, scalar_type(found->second.dtype));
  store::TensorReader(found->second).read(tensor.data_ptr());
  return (rounding_ ? tensor.to(at::kFloat).to(*rounding_) : tensor).to(at::kFloat);
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

Tensor layer_norm(const Tensor& x, const HfWeights& weights, const std::string& module, double epsilon) {
  const Tensor weight = weights.base(module + ".weight");
  return at::layer_norm(x, {x.size(-1)}, weight, weights.base(module + ".bias"), epsilon);
}

Tensor linear(const Tensor& x, const HfWeights& weights, const std::string& module) {
  const Tensor weight = weights.base(module + ".weight");
  return at::linear(x, weight, weights.base(module + ".bias"));
}

Tensor heads_of(const Tensor& x, int64_t heads) { return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2); }

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  const int64_t shared = q.size(1) / k.size(1);
  const Tensor keys = at::repeat_interleave(k, shared, 1), values = at::repeat_interleave(v, shared, 1);
  Tensor scores = at::matmul(q, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (bias.defined()) scores = scores + bias;
  return at::matmul(at::softmax(scores, -1), values).transpose(1, 2).reshape({q.size(0), q.size(2), -1});
}

Tensor attend_before(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, int64_t window) {
  const Tensor position = at::arange(q.size(2)), distance = position.unsqueeze(1) - position;  // query - key
  Tensor hidden = distance < 0;
  if (window > 0) hidden = hidden | (distance >= window);
  const Tensor none = at::zeros(hidden.sizes(), at::kFloat);
  const Tensor mask = none.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return attend(q, k, v, bias.defined() ? bias + mask : mask);
}

Tensor output_logits(const Tensor& x, const HfWeights& weights, const nlohmann::json& config, bool tied,
                     const char* embedding) {
  return at::matmul(
      x, (get(config, "tie_word_embeddings", tied) ? weights.base(embedding) : weights.whole("lm_head.weight")).t());
}

models::NamedTensors hf_reference(const std::filesystem::path& folder, const models::NamedTensors& inputs,
                                  std::optional<at::ScalarType> rounding) {
  const at::NoGradGuard no_grad;
  const auto config = nlohmann::json::parse(read_file(folder / "config.json"));
  const HfFormulas formulas = formulas_by_model_type().at(config.at("model_type"));
  return formulas(config, HfWeights(folder, rounding), inputs);
}

}  // namespace espalier::infer
