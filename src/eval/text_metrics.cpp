#include "eval/text_metrics.h"

#include <algorithm>

#include "base/error.h"
#include "eval/edit_rate.h"

namespace espalier::eval {
namespace {

Aggregation of_counts(const std::string& name, double (*score)(const Counts&)) {
  constexpr int64_t kMostResamples = 100;
  const auto add = [](Counts& sum, const Counts& counts) {
    sum.resize(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) sum[i] += counts[i];
  };
  const auto value = [=](const Items& items) {
    Counts sum;
    for (const Item& item : items) add(sum, item.counts);
    return score(sum);
  };
  const auto error = [=](const Items& items, int64_t bootstrap_iters) {
    return bootstrap_error(items.size(), std::min(bootstrap_iters, kMostResamples),
                           [&](const std::vector<uint32_t>& drawn) {
                             Counts sum;
                             for (const uint32_t i : drawn) add(sum, items[i].counts);
                             return score(sum);
                           });
  };
  return {name, value, error, ItemForm::kTexts};
}

}  // namespace

AnswerScore exact_match(IgnoredText ignored) {
  return [ignored = std::move(ignored)](const Question& question, std::span<const Answer> answers) {
    const std::string text = ignored.remove(answers[0].text);
    const bool is_right = std::any_of(question.targets.begin(), question.targets.end(),
                                      [&](const std::string& target) { return ignored.remove(target) == text; });
    return Item{.value = is_right ? 1.0 : 0.0};
  };
}

AnswerScore translation_score(Counts (*counts)(const std::string& text, const std::string& reference)) {
  return [counts](const Question& question, std::span<const Answer> answers) {
    const std::string& reference = question.targets.at(0);
    return Item{.group = reference, .member = answers[0].text, .counts = counts(answers[0].text, reference)};
  };
}

const Aggregation& bleu() {
  static const Aggregation aggregation = of_counts("bleu", bleu_of);
  return aggregation;
}

const Aggregation& chrf() {
  static const Aggregation aggregation = of_counts("chrf", chrf_of);
  return aggregation;
}

const Aggregation& chrf_plus() {
  static const Aggregation aggregation = of_counts("chrf++", chrf_of);
  return aggregation;
}

const Aggregation& edit_rate() {
  static const Aggregation aggregation = of_counts("ter", edit_rate_of);
  return aggregation;
}

Metric of_filtered(const Metric& metric, const AnswerFilter& filter) {
  Metric filtered = metric;
  filtered.filter = filter.name;
  filtered.score = [score = metric.score, apply = filter.apply](const Question& question,
                                                                std::span<const Answer> answers) {
    std::vector<std::string> texts;
    for (const Answer& answer : answers) texts.push_back(answer.text);
    Answer chosen;
    chosen.text = apply(question, std::move(texts));
    return score(question, std::span(&chosen, 1));
  };
  return filtered;
}

}  // namespace espalier::eval
