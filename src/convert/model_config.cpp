#include "convert/model_config.h"

#include "base/error.h"
#include "base/format.h"
#include "config/run_options.h"
#include "convert/formats.h"

namespace espalier::convert {

std::set<std::string> names_of_model_rows(const config::Family& family) {
  config::FamilyConfig config = family.new_config();
  OptionTable rows("", "");
  for (const auto where : {config::FamilyRows::kSize, config::FamilyRows::kShape, config::FamilyRows::kRegularization,
                           config::FamilyRows::kInitialization})
    family.add_options(rows, config, where);
  std::set<std::string> names;
  for (const auto& option : rows.options()) names.insert(option->name());
  return names;
}

ModelConfig model_of(const config::RunConfig& run) {
  return {.family = run.family,
          .settings = run.model,
          .vocabulary = run.vocabulary,
          .longest_sequence = run.data.sequence_length};
}

spec::ModelSpec spec_of(const ModelConfig& model) {
  config::RunConfig run;
  run.family = model.family;
  run.model = model.settings;
  run.vocabulary = model.vocabulary;
  run.data.sequence_length = model.longest_sequence;
  return model.family->model(run);
}

bool is_same_model(const ModelConfig& a, const ModelConfig& b) {
  return a.family == b.family && formats_of(*a.family).is_same_model(a.settings, b.settings);
}

std::string model_recipe(const ModelConfig& model, plan::Precision precision, const text::TokenizerOptions& tokenizer) {
  config::RunOptions options(*model.family);
  options.config.model.set(model.settings);
  config::TokenizerConfig& of_run = options.config.tokenizer;
  of_run.make_vocab_size_divisible_by = 1;
  of_run.pad_vocab_size_to = model.vocabulary.padded_size;
  static_cast<text::TokenizerOptions&>(of_run) = tokenizer;
  options.config.training.bf16 = precision == plan::Precision::kBf16;
  options.config.training.fp16 = precision == plan::Precision::kFp16;
  // All that the family's options say of the model, also where it is what they say anyway: a recipe that is read before
  // this one must not change the model. Of the other rows what differs.
  const std::set<std::string> of_model = names_of_model_rows(*model.family);
  return options.table.to_toml([&](const Option& option) {
    return of_model.contains(option.name()) || option.values() != option.default_values() ||
           option.name() == "--tokenizer-type";
  });
}

std::string imported_config(const ModelConfig& model, const std::string& recipe) {
  config::RunOptions options(*model.family);
  options.config.data.seq_length = model.longest_sequence;
  options.config.training.micro_batch_size = 1;
  options.config.data.eval_only = true;
  Problems problems;
  const std::string of_run =
      options.table.to_toml([](const Option& option) { return option.values() != option.default_values(); });
  options.table.parse_toml(of_run, "the imported model", problems);
  options.table.parse_toml(recipe, "the imported model", problems);
  config::resolve(options.config, options.table, problems);
  problems.raise(ExitCode::kBadData);
  ESPALIER_CHECK(is_same_model(model_of(options.config), model), "the options do not make the model:\n", recipe);
  return options.table.to_toml();
}

}  // namespace espalier::convert
