#include "convert/model_config.h"

#include <set>

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

namespace {

std::set<std::string> names_of_family_rows() {
  config::FamilyConfig config = families::gpt_family().new_config();
  OptionTable rows("", "");
  for (const auto where : {config::FamilyRows::kSize, config::FamilyRows::kShape, config::FamilyRows::kRegularization,
                           config::FamilyRows::kInitialization, config::FamilyRows::kData})
    families::gpt_family().add_options(rows, config, where);
  std::set<std::string> names;
  for (const auto& option : rows.options()) names.insert(option->name());
  return names;
}

}  // namespace

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
  // All that the family's options say of the model, also where it is what they say anyway: a recipe that is read before
  // this one must not change the model. Of the other rows what differs.
  const std::set<std::string> of_family = names_of_family_rows();
  return options.table.to_toml([&](const Option& option) {
    return of_family.contains(option.name()) || option.values() != option.default_values() ||
           option.name() == "--tokenizer-type";
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
