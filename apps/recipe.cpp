// espalier recipe: a recipe of a GPT from its depth.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/print_json.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "data/token_store.h"
#include "families/gpt/depth_recipe.h"
#include "text/tokenizer.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

void print(const families::DepthRecipe& recipe) {
  Json settings = Json::array();
  for (const families::DepthSetting& setting : recipe.settings)
    settings.push_back(
        {{"table", setting.table}, {"key", setting.key}, {"value", setting.value}, {"reason", setting.reason}});
  const Json object = {{"parameters", recipe.parameters}, {"tokens", recipe.tokens},
                       {"steps", recipe.steps},           {"batch_tokens", recipe.batch_tokens},
                       {"flops", recipe.flops},           {"epochs", recipe.epochs ? Json(*recipe.epochs) : Json()},
                       {"notes", recipe.notes},           {"settings", settings}};
  print_json(object);
}

}  // namespace

int recipe_main(const std::vector<std::string>& arguments) {
  families::DepthRequest request;
  std::vector<std::string> prefixes;
  std::optional<int64_t> vocabulary;
  std::string output;
  bool json = false, overwrite = false;
  OptionTable table("espalier recipe",
                    "Makes a recipe for a GPT from one number, its depth: every other setting by a rule, along with "
                    "the reason. espalier train gpt --recipe FILE trains it.");
  table.add("--depth", request.depth, "layers: 4 takes a few minutes on two cores, 12 is the size of GPT-2 small")
      .required()
      .common();
  table
      .add("--data-path", prefixes,
           "token files to train on: the recipe names them, and repeats them four times at most")
      .value_name("PREFIX")
      .common();
  table
      .add("--tokenizer-name-or-path", request.tokenizer,
           "tokenizer.json: the recipe names it, and uses the size of its vocabulary")
      .value_name("FILE")
      .common();
  table.known_elsewhere({"--params", "--parameters", "--num-params", "--size", "--model-size"},
                        "--depth; the number of parameters follows from it");
  table.add("--vocab-size", vocabulary, "without a tokenizer: its size, 50,257 if not given").minimum(1).common();
  table.add("--tokens", request.tokens, "tokens to train on, instead of 20 per parameter").minimum(1).common();
  table.add("--seq-length", request.seq_length, "tokens of a sample, instead of 256 to 2,048 by the depth")
      .minimum(1)
      .common();
  table.add("--output", output, "write the recipe to this file").value_name("FILE").common();
  table.add("--overwrite", overwrite, "replace an existing file").common();
  table.add("--json", json, "one JSON object instead: settings with their reasons, parameters, tokens, steps, FLOPs")
      .common();
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if (vocabulary && !request.tokenizer.empty())
    problems.add("--vocab-size is that of --tokenizer-name-or-path; give one of them");
  if (!output.empty() && !overwrite)
    if (const std::string existing = describe_existing({output}); !existing.empty())
      problems.add("--output: ", existing);
  if (json && !output.empty()) problems.add("--json prints, and --output writes the recipe itself; give one of them");
  problems.raise();
  if (vocabulary) request.vocabulary = *vocabulary;
  if (!request.tokenizer.empty())
    request.vocabulary =
        text::load_tokenizer({.type = "PretrainedFromHF", .name_or_path = request.tokenizer})->vocab_size();
  for (const std::string& prefix : prefixes) request.corpora.push_back({prefix, data::TokenStore(prefix).num_tokens()});
  const families::DepthRecipe recipe = families::make_depth_recipe(request);
  if (json) {
    print(recipe);
    return 0;
  }
  const std::string text = families::to_toml(recipe, request);
  if (output.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  write_file_atomically(output, text);
  log_info("wrote ", output, ": ", format_count(recipe.parameters), " parameters, ", format_count(recipe.tokens),
           " tokens in ", format_count(recipe.steps), " steps");
  for (const std::string& note : recipe.notes) log_info(note);
  return 0;
}

}  // namespace espalier
