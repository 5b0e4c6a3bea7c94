#include <filesystem>

#include "apps/become_engine.h"
#include "apps/detoxify/recipe.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "store/run_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using launch::CommandStep;

std::string content_hash(const fs::path& file) {
  const MappedFile content(file);
  return concat(file.string(), " ", hex64(hash64(content.data(), content.size())), "\n");
}

// The files among the words of a shell's command: a scorer that was edited scores otherwise.
std::string hashes_of_files_in(const std::string& command) {
  std::string hashes;
  for (const std::string& word : split_blanks(command))
    if (std::error_code error; fs::is_regular_file(word, error)) hashes += content_hash(word);
  return hashes;
}

// The newest complete checkpoint's; 0 where there is none.
int64_t newest_step(const std::string& run_folder) {
  const auto steps = store::list_steps(run_folder).complete;
  return steps.empty() ? 0 : steps.back().step;
}

Words training_from(const DetoxifyRecipe& recipe, const Words& load) {
  return recipe.train_words + load +
         Words{"--save", recipe.path("model"), "--train-weighted-split-paths",
               concat("train: 1 0:1 ", recipe.path("kept_text_document"))};
}
Words training_from_the_model(const DetoxifyRecipe& recipe) {
  return training_from(recipe, {"--load", recipe.step_folder, "--finetune"});
}
Words training_from_its_own(const DetoxifyRecipe& recipe) {
  return training_from(recipe, {"--load", recipe.path("model")});
}

CommandStep step_of(const std::string& name, const Words& words) {
  CommandStep step;
  step.name = name;
  step.command = Words{"espalier"} + words;
  step.program = path_beside_this_program("espalier");
  return step;
}

// One whose output is FOLDER/NAME.jsonl, a growing file.
CommandStep growing_step(const DetoxifyRecipe& recipe, const std::string& name, const Words& words) {
  CommandStep step = step_of(name, words);
  const std::string file = recipe.path(name + ".jsonl");
  step.outputs = {file};
  step.leftovers = {file + ".partial", file + ".partial.json"};
  return step;
}

CommandStep scoring(const DetoxifyRecipe& recipe, const std::string& name, const std::string& texts, double amount) {
  CommandStep step = growing_step(
      recipe, name,
      Words{"detoxify", "score", "--input", recipe.path(texts + ".jsonl"), "--output", recipe.path(name + ".jsonl")} +
          recipe.scorer_words);
  step.after = {texts};
  step.inputs = hashes_of_files_in(recipe.scorer);
  step.kind = "scoring", step.amount = amount;
  return step;
}

// Answers to the prompts and their scores, and perplexity: "before" of the model in `load`, "after" of the detoxified.
class Measurement {
 public:
  Measurement(const DetoxifyRecipe& recipe, std::string when, std::string load)
      : recipe_(recipe), when_(std::move(when)), load_(std::move(load)) {}

  void add_to(std::vector<CommandStep>& steps, const Words& after, const std::string& inputs) const {
    if (!recipe_.prompts.empty()) {
      const double num_texts = static_cast<double>(recipe_.num_prompts * recipe_.answers.samples_per_prompt);
      CommandStep answers = growing_step(
          recipe_, name("texts"),
          Words{"generate", "--load", load_, "--sample-output-file", recipe_.path(name("texts") + ".jsonl")} +
              recipe_.answers_words);
      answers.after = after;
      answers.inputs = inputs + content_hash(recipe_.prompts);
      answers.kind = "writing", answers.amount = num_texts * static_cast<double>(recipe_.answers.tokens_to_generate);
      steps.push_back(answers);
      steps.push_back(scoring(recipe_, name("scores"), name("texts"), num_texts));
      steps.push_back(metrics());
    }
    if (recipe_.held_out.empty()) return;
    const std::string file = recipe_.result_file(name("perplexity"));
    CommandStep perplexity =
        step_of(name("perplexity"), Words{"eval", "--load", load_, "--results-path", file} + recipe_.perplexity_words);
    perplexity.outputs = {file};
    perplexity.after = after;
    perplexity.inputs = inputs + content_hash(recipe_.held_out);
    perplexity.kind = "perplexity", perplexity.amount = 1;
    steps.push_back(perplexity);
  }

 private:
  std::string name(const char* what) const { return concat(when_, "-", what); }

  CommandStep metrics() const {
    CommandStep step = step_of(
        name("metrics"), {"detoxify", "metrics", "--input", recipe_.path(name("scores") + ".jsonl"), "--prompts",
                          recipe_.prompts, "--samples-per-prompt", std::to_string(recipe_.answers.samples_per_prompt),
                          "--attribute", recipe_.attribute, "--json"});
    step.after = {name("scores")};
    step.standard_output = recipe_.result_file(step.name);
    step.outputs = {step.standard_output};
    return step;
  }

  const DetoxifyRecipe& recipe_;
  std::string when_, load_;
};

CommandStep filtering(const DetoxifyRecipe& recipe) {
  const std::string file = recipe.path("kept.jsonl");
  CommandStep step = step_of("kept", Words{"detoxify", "filter", "--input", recipe.path("scores.jsonl"), "--output",
                                           file, "--overwrite", "--json"} +
                                         recipe.filter_words);
  step.after = {"scores"};
  step.standard_output = recipe.result_file("kept");
  step.outputs = {file, step.standard_output};
  return step;
}

CommandStep tokenizing(const DetoxifyRecipe& recipe) {
  CommandStep step = step_of("tokens", Words{"preprocess", "--input", recipe.path("kept.jsonl"), "--output-prefix",
                                             recipe.path("kept"), "--append-eod", "--overwrite"} +
                                           recipe.tokenizer_words);
  step.after = {"kept"};
  for (const char* end : {".bin", ".idx"}) step.outputs.push_back(recipe.path("kept_text_document") + end);
  return step;
}

CommandStep training(const DetoxifyRecipe& recipe) {
  Words start = {"train", "gpt"};
  if (recipe.num_ranks > 1) start = Words{"launch", "--nproc-per-node", std::to_string(recipe.num_ranks)} + start;
  CommandStep step = step_of("model", start + training_from_the_model(recipe));
  step.after = {"tokens"};
  step.outputs = {recipe.path("model")};
  step.resume = [folder = recipe.path("model"), words = Words{"espalier"} + start + training_from_its_own(recipe)] {
    return newest_step(folder) > 0 ? words : Words();
  };
  step.unfinished = [folder = recipe.path("model"), all = recipe.num_steps] {
    const int64_t done = newest_step(folder);
    return done < all ? concat("training has saved step ", done, " of ", all) : "";
  };
  step.kind = "training", step.amount = 1;
  return step;
}

}  // namespace

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::vector<std::string> words_of_training(const DetoxifyRecipe& recipe) {
  return newest_step(recipe.path("model")) > 0 ? training_from_its_own(recipe) : training_from_the_model(recipe);
}

std::vector<CommandStep> detoxify_steps(const DetoxifyRecipe& recipe) {
  std::vector<CommandStep> steps;
  const std::string model = content_hash(fs::path(recipe.step_folder) / "manifest.json");
  Measurement(recipe, "before", recipe.step_folder).add_to(steps, {}, model);
  const double num_texts = static_cast<double>(recipe.texts.num_samples.value_or(0));
  CommandStep texts = growing_step(
      recipe, "texts",
      Words{"generate", "--load", recipe.step_folder, "--genfile", recipe.path("texts.jsonl")} + recipe.texts_words);
  texts.inputs = model;
  texts.kind = "writing", texts.amount = num_texts * static_cast<double>(recipe.texts.tokens_to_generate);
  steps.push_back(texts);
  steps.push_back(scoring(recipe, "scores", "texts", num_texts));
  steps.push_back(filtering(recipe));
  steps.push_back(tokenizing(recipe));
  steps.push_back(training(recipe));
  Measurement(recipe, "after", recipe.path("model")).add_to(steps, {"model"}, "");
  return steps;
}

}  // namespace espalier
