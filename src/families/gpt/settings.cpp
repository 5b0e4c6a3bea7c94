// From a model to the options that make it.
#include "base/format.h"
#include "families/gpt/config.h"
#include "families/transformer_options.h"

namespace espalier::families {
namespace {

std::vector<std::string> words_of(const std::vector<double>& numbers) {
  std::vector<std::string> words;
  for (const double number : numbers) words.push_back(format_shortest(number));
  return words;
}

}  // namespace

GptSettings gpt_settings(const GptConfig& model) {
  GptSettings settings{.shape = model, .options = {}};
  GptOptions& options = settings.options;
  if (model.num_groups() != model.num_attention_heads) options.num_key_value_heads = model.num_groups();
  if (model.window_size > 0) options.window_size = std::to_string(model.window_size);
  options.untie_output = !model.tie_output;
  options.gelu_is_fused = model.activation != spec::Activation::kGeluErf;
  const bool is_gelu =
      model.activation == spec::Activation::kGeluTanh || model.activation == spec::Activation::kGeluErf;
  for (const auto& [name, activation] : activation_names())
    if (activation == model.activation && !is_gelu) options.activation = name;
  options.short_factors = words_of(model.rope_scaling.short_factors);
  options.long_factors = words_of(model.rope_scaling.long_factors);
  return settings;
}

}  // namespace espalier::families
