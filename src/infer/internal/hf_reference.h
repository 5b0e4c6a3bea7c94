// The parts of hf_reference() that several model types have, and the model types.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/probe.h"
#include "store/tensor_view.h"

namespace espalier::infer {

// Weights by name, in fp32.
class HfWeights {
 public:
  // `rounding`: every weight is rounded to this type first.
  HfWeights(const std::filesystem::path& folder, std::optional<at::ScalarType> rounding);

  bool has(const std::string& name) const { return views_.contains(name); }
  at::Tensor whole(const std::string& name) const;
  // By its name within the base model, with or without "transformer." or "model." before it.
  bool has_base(const std::string& name) const { return has(prefix_ + name); }
  at::Tensor base(const std::string& name) const { return whole(prefix_ + name); }

 private:
  std::map<std::string, store::TensorView> views_;
  std::optional<at::ScalarType> rounding_;
  std::string prefix_;
};

// A key that is absent or null has the value `otherwise`.
template <class Value>
Value get(const nlohmann::json& config, const char* key, Value otherwise) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? otherwise : found->get<Value>();
}

at::Tensor activate(const at::Tensor& x, const std::string& name);
// Weight and bias by the whole name of the module.
at::Tensor layer_norm(const at::Tensor& x, const HfWeights& weights, const std::string& module, double epsilon);
at::Tensor linear(const at::Tensor& x, const HfWeights& weights, const std::string& module);
// [b, s, n * d] -> [b, n, s, d]
at::Tensor heads_of(const at::Tensor& x, int64_t heads);
// q: [b, n, s, d]; k, v: [b, g, s, d], each key for n / g queries. `bias` is added to the scores. -> [b, s, n * d]
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias);
// The same, of keys up to the query; `window` 0: all of them, else the last `window`.
at::Tensor attend_before(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                         int64_t window);
at::Tensor output_logits(const at::Tensor& x, const HfWeights& weights, const nlohmann::json& config, bool tied,
                         const char* embedding);

using HfFormulas = models::NamedTensors (*)(const nlohmann::json& config, const HfWeights& weights,
                                            const models::NamedTensors& inputs);
models::NamedTensors gpt2_formulas(const nlohmann::json&, const HfWeights&, const models::NamedTensors& inputs);
models::NamedTensors bert_formulas(const nlohmann::json&, const HfWeights&, const models::NamedTensors& inputs);
models::NamedTensors bloom_formulas(const nlohmann::json&, const HfWeights&, const models::NamedTensors& inputs);
models::NamedTensors llama_formulas(const nlohmann::json&, const HfWeights&, const models::NamedTensors& inputs);
models::NamedTensors t5_formulas(const nlohmann::json&, const HfWeights&, const models::NamedTensors& inputs);

}  // namespace espalier::infer
