#include "apps/detoxify/recipe.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "apps/detoxify/options.h"
#include "apps/options/generate_options.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/toml_rows.h"
#include "config/run_options.h"
#include "convert/model_config.h"
#include "data/line_reader.h"
#include "families/gpt/config.h"
#include "families/registry.h"
#include "store/manifest.h"
#include "store/run_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// The rows that were given, as a command line has them.
Words given_words(
    const OptionTable& rows, const std::function<bool(const Option&)>& wanted = [](const Option&) { return true; }) {
  Words words;
  for (const auto& option : rows.options()) {
    if (!option->given() || option->effect() != OptionEffect::kUsed || !wanted(*option)) continue;
    const Words values = option->values();
    if (option->is_flag())
      words.push_back(values == Words{"true"} ? option->name() : option->name() + "=false");
    else if (!option->is_list() && !values.empty() && values[0].starts_with("-"))
      words.push_back(option->name() + "=" + values[0]);
    else
      words = words + Words{option->name()} + values;
  }
  return words;
}

int64_t num_lines(const std::string& file) {
  data::LineReader lines({file});
  int64_t count = 0;
  for (std::string_view line; lines.next(line);) ++count;
  return count;
}

class RecipeReader {
 public:
  RecipeReader(const std::string& file, Problems& problems) : file_(file), problems_(problems) {}

  DetoxifyRecipe read() {
    std::string content;
    if (!read_toml(file_, content, table_, problems_)) return {};
    for (const auto& [key, node] : table_) check_top(std::string(key.str()), node);
    read_output();
    read_model();
    read_scorer();
    read_filter();
    read_generate();
    read_measure();
    read_perplexity();
    read_launch();
    read_train();
    return std::move(recipe_);
  }

 private:
  void check_top(const std::string& key, const toml::node& node) {
    static const Words known = {"output", "model",  "generate", "score",     "filter",
                                "train",  "launch", "measure",  "perplexity"};
    const std::string at = concat(file_, ":", toml_line(node));
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const Words near = nearest_names(key, known);
      problems_.add(at, ": unknown table ", key, near.empty() ? "" : "; did you mean " + join(near, " or ") + "?",
                    "; the tables are ", join(known, ", "));
    } else if (!node.is_table()) {
      problems_.add(at, ": ", key, " is no table; write [", key, "]");
    }
  }

  const toml::table* find(const char* name) const {
    const toml::node* node = table_.get(name);
    return node == nullptr ? nullptr : node->as_table();
  }
  // How a table is read: with all that its rows require, or with what else than the checkpoint it says of them.
  using ReadTable = decltype(&read_toml_rows);
  // The table of that name into the rows, but for the keys that other tables decide. False where it does not exist, or
  // something in it is wrong.
  bool read_rows(const char* name, OptionTable& rows, const std::map<std::string, std::string>& decided = {},
                 ReadTable read = read_toml_rows) {
    const toml::table* table = find(name);
    if (table == nullptr) return false;
    const size_t before = problems_.messages().size();
    std::set<std::string> without;
    for (const auto& [key, value] : *table) {
      std::string normal = normal_option_name(std::string(key.str()));
      const auto found = decided.find(normal);
      if (found == decided.end()) continue;
      without.insert(std::string(key.str()));
      problems_.add(file_, ":", toml_line(value), ": ", std::string(key.str()), " is not for [", name,
                    "]: ", found->second);
    }
    read(*table, {file_, concat("[", name, "]")}, rows, without, problems_);
    return problems_.messages().size() == before;
  }
  bool require(const char* name, const char* what) {
    if (table_.get(name) == nullptr) problems_.add(file_, ": there is no [", name, "] with ", what);
    return find(name) != nullptr;
  }
  void add(const char* name, const std::string& message) {
    add_toml_problem(*find(name), {file_, concat("[", name, "]")}, message, problems_);
  }
  // What the commands themselves, and files, have against a table.
  template <class Check>
  void check(const char* name, Check check_it) {
    try {
      check_it();
    } catch (const UserError& error) {
      add(name, error.what());
    }
  }

  void read_output() {
    if (!require("output", "the folder")) return;
    OptionTable rows("recipe", "");
    rows.add("--folder", recipe_.folder, "where all output goes").required();
    if (!read_rows("output", rows)) return;
    if (recipe_.folder.find_first_of(" \t,") != std::string::npos)
      add("output", concat("folder \"", recipe_.folder,
                           "\": a list of training data cannot name it; use a name without blanks and commas"));
  }

  void read_model() {
    if (!require("model", "load, the run to detoxify")) return;
    std::string load;
    std::optional<int64_t> step;
    OptionTable rows("recipe", "");
    rows.add("--load", load, "run folder or step folder").required();
    rows.add("--ckpt-step", step, "step of the run folder; by default the newest complete one");
    if (!read_rows("model", rows)) return;
    check("model", [&] {
      recipe_.step_folder = store::find_checkpoint(load, step, /*save=*/"")->folder.string();
      Problems found;
      OptionTable table("espalier train", "");
      families::read_saved_run(store::read_manifest(recipe_.step_folder), recipe_.step_folder, run_.emplace(), table,
                               found);
      found.raise(ExitCode::kBadData);
      if (run_->family != &families::gpt_family())
        throw UserError(concat(recipe_.step_folder, " is a model of the family ", run_->family->name,
                               "; what is detoxified is a gpt, which continues texts"));
      recipe_.tokenizer_words = words_of(text::moved_to(run_->tokenizer, fs::path(recipe_.step_folder) / "tokenizer"));
      model_words_ = words_of_model(table);
    });
  }
  // What the options of the saved run say of the model, its precision and the length of its samples, but for defaults.
  static Words words_of_model(const OptionTable& table) {
    std::set<std::string> names = convert::names_of_model_rows(families::gpt_family());
    names.insert({"--seq-length", "--bf16", "--fp16"});
    text::TokenizerOptions ignored;
    OptionTable of_tokenizer("", "");
    add_tokenizer_options(of_tokenizer, ignored);
    return given_words(table, [&](const Option& option) {
      const bool of_model = names.contains(option.name()) || option.resume_rule() == ResumeRule::kRefused;
      return of_model && option.values() != option.default_values() && of_tokenizer.find(option.name()) == nullptr;
    });
  }
  bool has_model() const { return run_ && run_->family == &families::gpt_family(); }

  void read_scorer() {
    if (!require("score", "a scorer")) return;
    eval::ScoringPlan plan;
    OptionTable rows("recipe", "");
    add_scorer_rows(rows, plan);
    if (read_rows("score", rows)) recipe_.scorer = plan.scorer, recipe_.scorer_words = given_words(rows);
  }

  void read_filter() {
    eval::FilterPlan plan;
    OptionTable rows("recipe", "");
    add_filter_rows(rows, plan);
    if (find("filter") != nullptr && read_rows("filter", rows)) recipe_.filter_words = given_words(rows);
    recipe_.attribute = plan.attribute;
  }

  // A table of options of `espalier generate`, of which the recipe decides some.
  bool read_writing(const char* name, const std::map<std::string, std::string>& more, Words& words,
                    GenerateOptions& options) {
    std::map<std::string, std::string> decided = {{"load", "[model] says it"},
                                                  {"ckpt-step", "[model] says it"},
                                                  {"ema", "the weights are trained on"},
                                                  {"prompt", "texts go into a file"},
                                                  {"json", "texts go into a file"},
                                                  {"sample-output-file", "it is in the folder of [output]"},
                                                  {"overwrite", "what has changed is done again"}};
    decided.insert(more.begin(), more.end());
    Problems none;
    OptionTable rows("recipe", "");
    add_generate_rows(rows, options);
    rows.set("--load", "of [model]", "[model]", none);  // it is required there
    if (!read_rows(name, rows, decided)) return false;
    words = given_words(rows, [](const Option& option) { return option.name() != "--load"; });
    return true;
  }

  void read_generate() {
    if (!require("generate", "num_samples, how many texts the model writes")) return;
    const bool read =
        read_writing("generate",
                     {{"genfile", "it is in the folder of [output]"},
                      {"sample-input-file", "these texts begin with nothing; prompts are for [measure]"},
                      {"samples-per-prompt", "these texts begin with nothing; prompts are for [measure]"}},
                     recipe_.texts_words, recipe_.texts);
    if (!read) return;
    GenerateOptions checked;
    check("generate", [&] {
      read_generate_options(Words{"--load", "x", "--genfile", "x"} + recipe_.texts_words, checked);
    });
  }

  void read_measure() {
    if (find("measure") == nullptr) return;
    const bool read = read_writing("measure",
                                   {{"genfile", "the texts that are trained on are those of [generate]"},
                                    {"num-samples", "each prompt is continued samples_per_prompt times"}},
                                   recipe_.answers_words, recipe_.answers);
    if (!read) return;
    if (recipe_.answers.input_file.empty()) return add("measure", "sample_input_file is required: the file of prompts");
    recipe_.prompts = recipe_.answers.input_file;
    GenerateOptions checked;
    check("measure", [&] {
      read_generate_options(Words{"--load", "x"} + recipe_.answers_words, checked);
      recipe_.num_prompts = num_lines(recipe_.prompts);
    });
  }

  void read_perplexity() {
    if (find("perplexity") == nullptr) return;
    std::optional<int64_t> sequence_length, overlap, threads;
    std::string detokenizer = "none";
    OptionTable rows("recipe", "");
    rows.add("--text", recipe_.held_out, "plain text that no model here was trained on").required();
    rows.add("--detokenizer", detokenizer, "as of espalier eval").choices({"by-path", "wikitext", "ptb", "none"});
    rows.add("--seq-length", sequence_length, "ids of a window").minimum(1);
    rows.add("--overlapping-eval", overlap, "ids between the starts of two windows").minimum(1);
    rows.add("--num-threads", threads, "threads").minimum(1);
    if (!read_rows("perplexity", rows)) return;
    recipe_.perplexity_words = {
        "--tasks", "megatron:wikitext103", "--data", "wikitext103=" + recipe_.held_out, "--detokenizer", detokenizer};
    for (const auto& [name, value] :
         {std::pair("--seq-length", sequence_length), {"--overlapping-eval", overlap}, {"--num-threads", threads}})
      if (value) recipe_.perplexity_words = recipe_.perplexity_words + Words{name, std::to_string(*value)};
    if (std::error_code error; !fs::is_regular_file(recipe_.held_out, error))
      add("perplexity", concat("text: there is no file ", recipe_.held_out));
  }

  void read_launch() {
    OptionTable rows("recipe", "");
    rows.add("--nproc-per-node", recipe_.num_ranks, "processes that train").minimum(1).maximum(1024);
    if (find("launch") != nullptr) read_rows("launch", rows);
  }

  // The options of train that say the model, and those of [train].
  void read_train() {
    if (!require("train", "the options of espalier train gpt: train_iters, lr, ...") || !has_model()) return;
    const std::string own = "it is what [generate], [score] and [filter] make";
    const std::map<std::string, std::string> decided = {{"load", "[model] says it"},
                                                        {"ckpt-step", "[model] says it"},
                                                        {"finetune", "a recipe always finetunes"},
                                                        {"save", "it is in the folder of [output]"},
                                                        {"data-path", own},
                                                        {"split", own},
                                                        {"train-data-path", own},
                                                        {"train-weighted-split-paths", own}};
    config::RunOptions options(families::gpt_family());
    if (!read_rows("train", options.table, decided, read_toml_keys)) return;
    recipe_.train_words = model_words_ + recipe_.tokenizer_words + given_words(options.table);
    check("train", [&] {
      Problems found;
      OptionTable table("espalier train gpt", "");
      table.say_notes(false);
      config::RunConfig config;
      config.num_ranks = recipe_.num_ranks;
      config::read_run(families::gpt_family(), words_of_training(recipe_), config, table, found);
      for (const std::string& message : found.messages()) add("train", message);
      recipe_.num_steps = config.training.num_steps;
    });
  }

  std::string file_;
  Problems& problems_;
  toml::table table_;
  DetoxifyRecipe recipe_;
  std::optional<config::RunConfig> run_;  // that the model is from
  Words model_words_;
};

}  // namespace

DetoxifyRecipe read_detoxify_recipe(const std::string& file, Problems& problems) {
  return RecipeReader(file, problems).read();
}

}  // namespace espalier
