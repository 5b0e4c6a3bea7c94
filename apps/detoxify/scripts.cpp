#include "apps/detoxify/scripts.h"

#include <optional>

#include "apps/tasks_main.h"
#include "base/error.h"
#include "base/format.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

// "valid: 0.3 0.98:1 a, 0.7 0.98:1 b" of the words of a blend: weights before prefixes, or one prefix.
std::string group_of(const std::string& name, const std::string& range, const std::string& option, const Words& blend) {
  if (blend.empty() || (blend.size() > 1 && blend.size() % 2 != 0))
    throw UserError(
        concat(option, " has ", blend.size(), " words", blend.empty() ? "" : ": ", join(blend, " "),
               ". Give one prefix of token files, or a weight before each (finetune_gpt_distributed-1.3b.sh "
               "takes them from the environment: DATA_BLEND)."),
        ExitCode::kUsage);
  Words sources;
  if (blend.size() == 1) sources = {concat("1 ", range, " ", blend[0])};
  for (size_t at = 0; at + 1 < blend.size(); at += 2)
    sources.push_back(concat(blend[at], " ", range, " ", blend[at + 1]));
  return concat(name, ": ", join(sources, ", "));
}

}  // namespace

std::vector<std::string> words_of_generate_samples(const Words& words) {
  Words result = without_options_of_the_checkpoint(words, {"--seed", "--micro-batch-size"});
  for (const char* option : {"--seq-length", "--max-tokens-to-oom"}) take_out(result, option);
  result.insert(result.begin(), "generate");
  return result;
}

std::vector<std::string> words_of_finetune_gpt(const Words& words) {
  Words result = words;
  take_out(result, "--eval-ppl");  // read by nothing there
  const std::optional<Words> valid = take_out(result, "--data-path2");
  if (valid) {
    const std::string split = join(take_out(result, "--split").value_or(Words{}), " ");
    if (split != "100,0,0")
      throw UserError(
          concat("--data-path2 goes with --split 100,0,0, and --split is ", split.empty() ? "not given" : split,
                 ". For other parts use --train-weighted-split-paths and --valid-weighted-split-paths."),
          ExitCode::kUsage);
    const std::string train_group =
        group_of("train", "0:1", "--data-path", take_out(result, "--data-path").value_or(Words{}));
    const std::string valid_group = group_of("valid", "0.98:1", "--data-path2", *valid);
    result.insert(result.end(),
                  {"--train-weighted-split-paths", train_group, "--valid-weighted-split-paths", valid_group});
  }
  result.insert(result.begin(), {"train", "gpt"});
  return result;
}

}  // namespace espalier
