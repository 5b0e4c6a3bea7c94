#include "convert/model_config.h"

#include "base/error.h"
#include "base/format.h"
#include "config/run_options.h"

namespace espalier::convert {

using families::GptConfig;

GptConfig gpt_to_convert(const config::RunConfig& run, const std::string& where, const std::string& format) {
  if (run.family != &families::gpt_family())
    throw UserError(concat(where, " holds a ", run.family->display, "; of ", format, " only those of ",
                           families::gpt_family().display, " are written"),
                    ExitCode::kUsage);
  return families::gpt_config(run);
}

bool is_same_model(GptConfig a, const GptConfig& b) {
  a.vocab_size = b.vocab_size, a.padded_vocab_size = b.padded_vocab_size;
  a.num_query_groups = a.num_groups() == b.num_groups() ? b.num_query_groups : a.num_query_groups;
  return a == b;
}

std::string model_recipe(const GptConfig& model, plan::Precision precision, const text::TokenizerOptions& tokenizer) {
  config::RunOptions options(families::gpt_family());
  options.config.model.as<families::GptSettings>() = families::gpt_settings(model);
  config::TokenizerConfig& of_run = options.config.tokenizer;
  of_run.make_vocab_size_divisible_by = 1;
  of_run.pad_vocab_size_to = model.padded_vocab_size;
  static_cast<text::TokenizerOptions&>(of_run) = tokenizer;
  options.config.training.bf16 = precision == plan::Precision::kBf16;
  options.config.training.fp16 = precision == plan::Precision::kFp16;
  return options.table.to_toml([](const Option& option) {
    return option.values() != option.default_values() || option.name() == "--tokenizer-type";
  });
}

std::string imported_config(const GptConfig& model, const std::string& recipe) {
  config::RunOptions options(families::gpt_family());
  options.config.data.seq_length = model.max_position_embeddings;
  options.config.training.micro_batch_size = 1;
  options.config.data.eval_only = true;
  Problems problems;
  const std::string of_run =
      options.table.to_toml([](const Option& option) { return option.values() != option.default_values(); });
  options.table.parse_toml(of_run, "the imported model", problems);
  options.table.parse_toml(recipe, "the imported model", problems);
  config::resolve(options.config, options.table, problems);
  problems.raise(ExitCode::kBadData);
  ESPALIER_CHECK(is_same_model(families::gpt_config(options.config), model), "the options do not make the model:\n",
                 recipe);
  return options.table.to_toml();
}

}  // namespace espalier::convert
