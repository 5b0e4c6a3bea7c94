#include "eval/lm_eval_task.h"

#include <set>

#include "base/format.h"
#include "eval/answer_filters.h"
#include "eval/generation_rules.h"
#include "eval/internal/lm_eval_rules.h"
#include "eval/lm_eval_metrics.h"

namespace espalier::eval {
namespace {

using internal::DocumentRule;
using internal::RuleUse;

// Keys that say nothing about prompts and scores, or are read below.
const std::set<std::string> kTaskKeys = {"task",
                                         "task_alias",
                                         "tag",
                                         "dataset_path",
                                         "dataset_name",
                                         "dataset_kwargs",
                                         "training_split",
                                         "validation_split",
                                         "test_split",
                                         "fewshot_split",
                                         "process_docs",
                                         "doc_to_text",
                                         "doc_to_target",
                                         "doc_to_choice",
                                         "process_results",
                                         "description",
                                         "target_delimiter",
                                         "fewshot_delimiter",
                                         "fewshot_config",
                                         "num_fewshot",
                                         "metric_list",
                                         "output_type",
                                         "generation_kwargs",
                                         "repeats",
                                         "filter_list",
                                         "gen_prefix",
                                         "should_decontaminate",
                                         "doc_to_decontamination_query",
                                         "metadata",
                                         "unsafe_code"};
const std::set<std::string> kFewshotKeys = {"sampler",           "split",           "process_docs",  "samples",
                                            "doc_to_text",       "gen_prefix",      "doc_to_choice", "doc_to_target",
                                            "fewshot_delimiter", "target_delimiter"};

class LmEvalReader {
 public:
  LmEvalReader(const TaskFile& file, Problems& problems) : file_(file), problems_(problems) {}

  std::optional<LmEvalTask> read(const LmEvalOverrides& overrides) {
    const size_t before = problems_.messages().size();
    check_keys();
    LmEvalTask read;
    read.task.name = text("task").value_or("");
    read_output();
    read_turns();
    if (rules_.output == OutputKind::kGenerate) read_generation(read.task, overrides);
    read.task.metrics = lm_eval_metrics(file_, rules_.output, read.task.filters, problems_);
    for (const Metric& metric : read.task.metrics) rules_.has_mutual_info |= metric.name == "acc_mutual_info";
    read_data(read, overrides.num_fewshot);
    if (problems_.messages().size() != before) return std::nullopt;
    read.rules = std::make_shared<const LmEvalRules>(std::move(rules_));
    return read;
  }

 private:
  template <class... Parts>
  void refuse(const std::string& key, const Parts&... parts) {
    problems_.add(file_.place(key), ": ", key, ": ", parts...);
  }
  Json value(const std::string& key) const { return file_.config.value(key, Json()); }
  std::optional<std::string> text(const std::string& key) {
    const Json found = value(key);
    if (found.is_string()) return found.get<std::string>();
    if (!found.is_null()) refuse(key, found.dump().substr(0, 60), " is not a text");
    return std::nullopt;
  }

  void check_keys() {
    for (const auto& [key, value] : file_.config.items())
      if (!kTaskKeys.contains(key)) problems_.add(file_.place(key), ": the key '", key, "' is not supported");
    if (value("unsafe_code") == Json(true)) refuse("unsafe_code", "no code is run");
  }

  void read_generation(Task& task, const LmEvalOverrides& overrides) {
    task.repeats = num_repeats();
    task.filters = read_answer_filters(file_, task.repeats, problems_);
    for (const AnswerFilter& filter : task.filters) rules_.needs_choices |= filter.needs_choices;
    if (const auto generation = eval::read_generation(file_, overrides.max_gen_toks, problems_))
      task.generation = std::make_shared<const Generation>(*generation);
    if (task.generation && task.generation->temperature == 0) task.repeats = 1;  // all would be the same
  }
  int64_t num_repeats() {
    const Json repeats = value("repeats");
    if (repeats.is_null()) return 1;
    if (repeats.is_number_integer() && repeats >= 1 && repeats <= 1000) return repeats.get<int64_t>();
    refuse("repeats", repeats.dump(), " is not within 1 to 1,000");
    return 1;
  }

  void read_output() {
    const std::string output = text("output_type").value_or("generate_until");
    if (output == "generate_until")
      rules_.output = OutputKind::kGenerate;
    else if (output == "loglikelihood")
      rules_.output = OutputKind::kLogLikelihood;
    else if (output == "loglikelihood_rolling")
      rules_.output = OutputKind::kRolling;
    else if (output != "multiple_choice")
      refuse("output_type", "'", output,
             "' is not supported; multiple_choice, loglikelihood, loglikelihood_rolling and generate_until are");
    if (const Json repeats = value("repeats");
        rules_.output != OutputKind::kGenerate && !repeats.is_null() && repeats != Json(1))
      refuse("repeats", "a log-likelihood is asked for once");
    if (const Json results = value("process_results"); !results.is_null()) {
      rules_.weights = function("process_results", results);
      if (rules_.weights && rules_.output != OutputKind::kRolling)
        refuse("process_results", "only perplexities have one");
    }
  }

  DocumentFunction function(const std::string& key, const Json& named) {
    constexpr std::string_view kTag = "!function ";
    const std::string reference = named.is_string() ? named.get<std::string>() : named.dump();
    DocumentFunction found;
    if (reference.starts_with(kTag)) found = find_function(file_.path.parent_path(), reference.substr(kTag.size()));
    if (!found) refuse(key, "'", reference, "' is a Python function that has no equivalent here");
    return found;
  }

  std::optional<DocumentRule> rule(const std::string& key, const Json& config, RuleUse use) {
    if (config.is_null()) return std::nullopt;
    try {
      return DocumentRule(use, config, concat(file_.place(key), ": ", key), file_.path.parent_path(),
                          !value("doc_to_choice").is_null());
    } catch (const UserError& error) {
      problems_.add(error.what());
      return std::nullopt;
    }
  }

  TurnRules turn(const Json& config, const std::string& place_key) {
    const auto place = [&](const std::string& key) { return place_key.empty() ? key : place_key; };
    const auto get = [&](const char* key) { return config.contains(key) ? config.at(key) : value(key); };
    TurnRules turn;
    turn.text = rule(place("doc_to_text"), get("doc_to_text"), RuleUse::kText);
    turn.target = rule(place("doc_to_target"), get("doc_to_target"), RuleUse::kTarget);
    turn.choice = rule(place("doc_to_choice"), get("doc_to_choice"), RuleUse::kChoice);
    turn.prefix = rule(place("gen_prefix"), get("gen_prefix"), RuleUse::kPlain);
    if (const Json process = get("process_docs"); !process.is_null())
      turn.process = function(place("process_docs"), process);
    for (const auto& [key, member] : {std::pair{"target_delimiter", &TurnRules::target_delimiter},
                                      {"fewshot_delimiter", &TurnRules::fewshot_delimiter}})
      if (const Json delimiter = get(key); delimiter.is_string())
        turn.*member = delimiter.get<std::string>();
      else if (!delimiter.is_null())
        refuse(place(key), key, " is not a text");
    return turn;
  }

  void read_turns() {
    const Json fewshot = value("fewshot_config");
    rules_.tested = turn(Json::object(), "");
    if (fewshot.is_null()) {
      rules_.example = rules_.tested;
    } else if (!fewshot.is_object()) {
      refuse("fewshot_config", "expected keys with values");
    } else {
      for (const auto& [key, ignored] : fewshot.items())
        if (!kFewshotKeys.contains(key)) refuse("fewshot_config", "the key '", key, "' is not supported");
      rules_.example = turn(fewshot, "fewshot_config");
      read_sampler(fewshot);
    }
    if (const Json description = value("description"); description.is_string() && description != Json(""))
      rules_.description = rule("description", description, RuleUse::kPlain);
    if (!rules_.tested.target) missing("doc_to_target");
    if (!rules_.tested.text && rules_.output != OutputKind::kRolling) missing("doc_to_text");
    if (!rules_.tested.choice && rules_.output == OutputKind::kMultipleChoice) missing("doc_to_choice");
  }
  void missing(const std::string& key) {
    if (value(key).is_null()) refuse(key, "is missing");
  }

  void read_sampler(const Json& fewshot) {
    const Json sampler = fewshot.value("sampler", Json("default"));
    rules_.takes_first = sampler == Json("first_n");
    if (!rules_.takes_first && sampler != Json("default"))
      refuse("fewshot_config", "the sampler ", sampler.dump(), " is not supported; default and first_n are");
    const Json samples = fewshot.value("samples", Json());
    if (samples.is_null()) return;
    if (!samples.is_array() || samples.empty()) return refuse("fewshot_config", "samples is not a list of documents");
    for (const Json& sample : samples) rules_.samples.push_back(sample);
  }

  // Which split is tested, and which one examples are drawn from, as the harness chooses them.
  void read_data(LmEvalTask& read, std::optional<int64_t> num_fewshot) {
    const std::optional<std::string> test = text("test_split"), validation = text("validation_split"),
                                     training = text("training_split");
    std::optional<std::string> fewshot = text("fewshot_split");
    const Json config = value("fewshot_config");
    if (config.is_object() && config.contains("split") && config["split"].is_string())
      fewshot = config["split"].get<std::string>();
    if (!test && !validation) refuse("test_split", "is missing, and there is no validation_split");
    read.task.data.data_set =
        join_words(text("dataset_path").value_or("local files"), text("dataset_name").value_or(""));
    read.task.data.split = test ? *test : validation.value_or("");
    const Json metadata = value("metadata");
    read.task.version = metadata.is_object() ? metadata.value("version", Json("Yaml")) : Json("Yaml");
    read.task.alias = text("task_alias").value_or("");
    read.num_fewshot = shots(num_fewshot);
    read.task.num_fewshot = read.num_fewshot;
    if (read.num_fewshot == 0 || rules_.output == OutputKind::kRolling) return;
    rules_.removes_tested = fewshot == test;
    if (!fewshot && !rules_.samples.empty()) return;
    rules_.samples.clear();
    read.fewshot_split = fewshot ? *fewshot : training ? *training : validation ? *validation : *test;
    read.examples_are_tested = read.fewshot_split == read.task.data.split;
  }
  static std::string join_words(const std::string& first, const std::string& second) {
    return second.empty() ? first : first + " " + second;
  }

  int64_t shots(std::optional<int64_t> asked) {
    const Json own = value("num_fewshot");
    if (own.is_null()) return asked.value_or(0);
    if (!own.is_number_integer() || own.get<int64_t>() < 0) {
      refuse("num_fewshot", own.dump(), " is not a number of examples");
      return 0;
    }
    return own == Json(0) ? 0 : asked.value_or(own.get<int64_t>());
  }

  const TaskFile& file_;
  Problems& problems_;
  LmEvalRules rules_;
};

}  // namespace

std::optional<LmEvalTask> read_lm_eval_task(const TaskFile& file, const LmEvalOverrides& overrides,
                                            Problems& problems) {
  return LmEvalReader(file, problems).read(overrides);
}

}  // namespace espalier::eval
