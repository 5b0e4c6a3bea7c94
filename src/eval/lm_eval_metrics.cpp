#include "eval/lm_eval_metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/format.h"
#include "eval/edit_rate.h"
#include "eval/ignored_text.h"
#include "eval/text_metrics.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::num_characters;

using Score = std::function<Item(const Question&, std::span<const Answer>)>;

Item one_or_zero(bool right) { return {.value = right ? 1.0 : 0.0}; }

// Without those of acc_mutual_info after them.
std::vector<double> of_choices(const Question& question, std::span<const Answer> answers) {
  std::vector<double> values;
  for (size_t i = 0; i < question.choices.size(); ++i) values.push_back(answers[i].log_likelihood);
  return values;
}

bool is_gold(const Question& question, size_t said) {
  return std::find(question.golds.begin(), question.golds.end(), static_cast<int64_t>(said)) != question.golds.end();
}

Item likeliest(const Question& question, std::span<const Answer> answers) {
  return one_or_zero(is_gold(question, arg_max(of_choices(question, answers))));
}

template <class Length>
Item likeliest_by(const Question& question, std::span<const Answer> answers, Length length) {
  std::vector<double> values = of_choices(question, answers);
  for (size_t i = 0; i < values.size(); ++i) values[i] /= static_cast<double>(length(question.choices[i]));
  return one_or_zero(is_gold(question, arg_max(values)));
}

Item by_characters(const Question& question, std::span<const Answer> answers) {
  return likeliest_by(question, answers, [](const std::string& choice) { return num_characters(choice); });
}

Item by_bytes(const Question& question, std::span<const Answer> answers) {
  return likeliest_by(question, answers, [](const std::string& choice) { return choice.size(); });
}

Item by_mutual_information(const Question& question, std::span<const Answer> answers) {
  std::vector<double> values = of_choices(question, answers);
  for (size_t i = 0; i < values.size(); ++i) values[i] -= answers[values.size() + i].log_likelihood;
  return one_or_zero(is_gold(question, arg_max(values)));
}

Item said_and_right(const Question& question, std::span<const Answer> answers) {
  return {.value = static_cast<double>(arg_max(of_choices(question, answers))),
          .reference = static_cast<double>(question.golds.at(0))};
}

// A gold below 0 counts from the end, as a place in a Python list does; of one that is too large there is none.
Item greedy_gold(const Question& question, std::span<const Answer> answers) {
  const auto size = static_cast<int64_t>(question.choices.size());
  return one_or_zero(std::any_of(question.golds.begin(), question.golds.end(), [&](int64_t gold) {
    const int64_t place = gold < 0 ? gold + size : gold;
    return place >= 0 && place < size && answers[static_cast<size_t>(place)].is_greedy;
  }));
}

// The squared distance of the choices' probabilities from the right one's certainty.
Item brier(const Question& question, std::span<const Answer> answers) {
  std::vector<double> shares = of_choices(question, answers);
  const double largest = *std::max_element(shares.begin(), shares.end());
  double sum = 0, score = 0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  for (size_t i = 0; i < shares.size(); ++i) {
    const double distance = shares[i] / sum - (is_gold(question, i) ? 1 : 0);
    score += distance * distance;
  }
  return {.value = score};
}

Item greedy(const Question&, std::span<const Answer> answers) { return one_or_zero(answers[0].is_greedy); }
Item log_likelihood(const Question&, std::span<const Answer> answers) { return {.value = answers[0].log_likelihood}; }
Item over_words(const Question& question, std::span<const Answer> answers) {
  return {.value = answers[0].log_likelihood, .reference = question.reference};
}
Item over_bytes(const Question& question, std::span<const Answer> answers) {
  return {.value = answers[0].log_likelihood, .reference = question.bytes};
}

Aggregation brier_mean() { return {"brier_score", mean().value, nullptr, ItemForm::kValue}; }

struct KnownMetric {
  Score score;
  Aggregation aggregation;
  bool higher_is_better = true;
};

const std::map<std::string, KnownMetric>& known_metrics(OutputKind output) {
  static const std::map<OutputKind, std::map<std::string, KnownMetric>> all = {
      {OutputKind::kMultipleChoice,
       {{"acc", {likeliest, mean()}},
        {"acc_norm", {by_characters, mean()}},
        {"acc_bytes", {by_bytes, mean()}},
        {"acc_mutual_info", {by_mutual_information, mean()}},
        {"exact_match", {greedy_gold, mean()}},
        {"f1", {said_and_right, f1()}},
        {"mcc", {said_and_right, matthews_correlation()}},
        {"brier_score", {brier, brier_mean(), false}}}},
      {OutputKind::kLogLikelihood, {{"perplexity", {log_likelihood, perplexity(), false}}, {"acc", {greedy, mean()}}}},
      {OutputKind::kRolling,
       {{"word_perplexity", {over_words, weighted_perplexity(), false}},
        {"byte_perplexity", {over_bytes, weighted_perplexity(), false}},
        {"bits_per_byte", {over_bytes, bits_per_byte(), false}}}},
      {OutputKind::kGenerate,
       {{"exact_match", {exact_match({}), mean()}},
        {"bleu", {translation_score(bleu_counts), bleu()}},
        {"chrf", {translation_score(chrf_counts), chrf()}},
        {"chrf++", {translation_score(chrf_plus_counts), chrf_plus()}},
        {"ter", {translation_score(edit_counts), edit_rate(), false}}}},
  };
  return all.at(output);
}

Json usual_metrics(OutputKind output) {
  switch (output) {
    case OutputKind::kMultipleChoice: return {{{"metric", "acc"}}, {{"metric", "acc_norm"}}};
    case OutputKind::kLogLikelihood: return {{{"metric", "perplexity"}}, {{"metric", "acc"}}};
    case OutputKind::kRolling:
    case OutputKind::kGenerate: break;
  }
  if (output == OutputKind::kGenerate) return {{{"metric", "exact_match"}}};
  return {{{"metric", "word_perplexity"}}, {{"metric", "byte_perplexity"}}, {{"metric", "bits_per_byte"}}};
}

// What is left of a filter where an answer is a log-likelihood: its name.
std::vector<std::string> filter_names(const TaskFile& file, Problems& problems) {
  const Json filters = file.config.value("filter_list", Json());
  if (filters.is_null()) return {"none"};
  std::vector<std::string> names;
  for (const Json& filter : filters) {
    const bool is_named = filter.is_object() && filter.contains("name") && filter["name"].is_string() &&
                          filter.contains("filter") && filter["filter"].is_array();
    const Json steps = is_named ? filter["filter"] : Json::array();
    const bool takes_first = !steps.empty() && std::all_of(steps.begin(), steps.end(), [](const Json& step) {
      return step == Json{{"function", "take_first"}};
    });
    if (takes_first)
      names.push_back(filter["name"].get<std::string>());
    else
      problems.add(file.place("filter_list"), ": filter_list: log-likelihoods support only the filter take_first");
  }
  return names;
}

std::optional<Metric> read_metric(const TaskFile& file, const Json& entry, OutputKind output, Problems& problems) {
  static const std::set<std::string> kKeys = {
      "metric",      "aggregation",        "higher_is_better",  "hf_evaluate",
      "ignore_case", "ignore_punctuation", "regexes_to_ignore", "ignore_numbers"};
  const std::string place = file.place("metric_list") + ": metric_list: ";
  if (!entry.is_object() || !entry.contains("metric") || !entry["metric"].is_string()) {
    problems.add(place, "an entry has no name under 'metric'");
    return std::nullopt;
  }
  const std::string name = entry["metric"].get<std::string>();
  for (const auto& [key, value] : entry.items())
    if (!kKeys.contains(key)) problems.add(place, name, ": the key '", key, "' is not supported");
  const auto& known = known_metrics(output);
  const auto found = known.find(name);
  if (found == known.end()) {
    std::vector<std::string> names;
    for (const auto& [one, metric] : known) names.push_back(one);
    problems.add(place, "the metric '", name, "' is not supported; of such tasks these are: ", join(names, ", "));
    return std::nullopt;
  }
  KnownMetric metric = found->second;
  if (output == OutputKind::kGenerate && name == "exact_match")
    metric.score = exact_match(read_ignored_text(entry, IgnoredText::Punctuation::kAscii, place + name, problems));
  const Json aggregation = entry.value("aggregation", Json(metric.aggregation.name));
  const Json higher = entry.value("higher_is_better", Json(metric.higher_is_better));
  if (aggregation != Json(metric.aggregation.name))
    problems.add(place, name, ": the aggregation ", aggregation.dump(), " is not supported; its own is ",
                 metric.aggregation.name);
  if (entry.value("hf_evaluate", Json(false)) != Json(false))
    problems.add(place, name, ": metrics of Hugging Face's evaluate are not supported");
  if (!higher.is_boolean()) problems.add(place, name, ": higher_is_better must be true or false");
  return Metric{name, higher.is_boolean() ? higher.get<bool>() : true, metric.score, metric.aggregation};
}

}  // namespace

std::vector<Metric> lm_eval_metrics(const TaskFile& file, OutputKind output, const std::vector<AnswerFilter>& filters,
                                    Problems& problems) {
  Json list = file.config.value("metric_list", Json());
  if (list.is_null()) list = usual_metrics(output);
  if (!list.is_array()) problems.add(file.place("metric_list"), ": metric_list is not a list");
  std::vector<Metric> metrics, filtered;
  for (const Json& entry : list.is_array() ? list : Json::array())
    if (std::optional<Metric> metric = read_metric(file, entry, output, problems)) metrics.push_back(*metric);
  if (output == OutputKind::kGenerate) {
    for (const AnswerFilter& filter : filters)
      for (const Metric& metric : metrics) filtered.push_back(of_filtered(metric, filter));
    return filtered;
  }
  for (const std::string& filter : filter_names(file, problems))
    for (Metric metric : metrics) {
      metric.filter = filter;
      filtered.push_back(std::move(metric));
    }
  return filtered;
}

}  // namespace espalier::eval
