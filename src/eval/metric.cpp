#include "eval/metric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "base/error.h"

namespace espalier::eval {
namespace {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::optional<double> mean_error(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1)) / std::sqrt(static_cast<double>(values.size()));
}

std::vector<double> values_of(const Items& items) {
  std::vector<double> values;
  values.reserve(items.size());
  for (const Item& item : items) values.push_back(item.value);
  return values;
}

// numpy's sum: blocks of up to 128 in eight strands, halves added in pairs. A plain loop differs in the last bit.
double numpy_sum(std::span<const double> values) {
  const size_t size = values.size();
  if (size < 8) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (size <= 128) {
    double strands[8];
    std::copy_n(values.begin(), 8, strands);
    size_t at = 8;
    for (; at + 8 <= size; at += 8)
      for (size_t k = 0; k < 8; ++k) strands[k] += values[at + k];
    double sum = ((strands[0] + strands[1]) + (strands[2] + strands[3])) +
                 ((strands[4] + strands[5]) + (strands[6] + strands[7]));
    for (; at < size; ++at) sum += values[at];
    return sum;
  }
  const size_t half = size / 2 - size / 2 % 8;
  return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
}

// True and false positives and negatives of class 1.
struct Confusion {
  double hits = 0, false_alarms = 0, misses = 0, rest = 0;
  void count(bool said, bool right) { ++(said ? right ? hits : false_alarms : right ? misses : rest); }
};

double f1_of(const Confusion& c) {
  const double either = 2 * c.hits + c.false_alarms + c.misses;
  return either == 0 ? 0 : 2 * c.hits / either;
}

double matthews_of(const Confusion& c) {
  const double said = c.hits + c.false_alarms, right = c.hits + c.misses;
  const double all = said + c.misses + c.rest;
  const double correct = c.hits + c.rest;
  const double not_said = all - said, not_right = all - right;
  const double covariance = correct * all - (said * right + not_said * not_right);
  const double spread =
      (all * all - (said * said + not_said * not_said)) * (all * all - (right * right + not_right * not_right));
  return spread == 0 ? 0 : covariance / std::sqrt(spread);
}

// Aggregations of what was answered against what is right.
Aggregation of_confusion(const std::string& name, double (*value)(const Confusion&)) {
  const auto all = [value](const Items& items) {
    Confusion confusion;
    for (const Item& item : items) confusion.count(item.value == 1, item.reference == 1);
    return value(confusion);
  };
  const auto error = [value](const Items& items, int64_t bootstrap_iters) {
    std::vector<uint8_t> said, right;
    for (const Item& item : items) {
      said.push_back(item.value == 1);
      right.push_back(item.reference == 1);
    }
    return bootstrap_error(items.size(), bootstrap_iters, [&](const std::vector<uint32_t>& drawn) {
      Confusion confusion;
      for (const uint32_t i : drawn) confusion.count(said[i], right[i]);
      return value(confusion);
    });
  };
  return {name, all, error, ItemForm::kRightAndSaid};
}

double perplexity_of(const Items& items) { return std::exp(-mean_of(values_of(items))); }

std::optional<double> perplexity_error(const Items& items, int64_t bootstrap_iters) {
  const std::vector<double> values = values_of(items);
  return bootstrap_error(values.size(), bootstrap_iters, [&](const std::vector<uint32_t>& drawn) {
    double sum = 0;
    for (const uint32_t i : drawn) sum += values[i];
    return std::exp(-(sum / static_cast<double>(drawn.size())));
  });
}

double weighted_mean(const Items& items) {
  double sum = 0, weight = 0;
  for (const Item& item : items) {
    sum += item.value;
    weight += item.reference;
  }
  return sum / weight;
}

// For each question, in the order of first sight, whether all of its answers were predicted right.
template <class Key>
std::vector<double> wholly_right(const Items& items, Key key) {
  std::map<decltype(key(items[0])), size_t> places;
  std::vector<double> right;
  for (const Item& item : items) {
    const auto [entry, is_new] = places.try_emplace(key(item), right.size());
    if (is_new) right.push_back(1);
    if (item.value != item.reference) right[entry->second] = 0;
  }
  return right;
}

double question_f1_of(const Items& items) {
  std::map<std::string, size_t> places;
  std::vector<Confusion> questions;
  for (const Item& item : items) {
    const auto [entry, is_new] = places.try_emplace(item.group, questions.size());
    if (is_new) questions.emplace_back();
    questions[entry->second].count(item.value == 1, item.reference == 1);
  }
  std::vector<double> scores;
  for (const Confusion& c : questions) {
    const double said = c.hits + c.false_alarms, right = c.hits + c.misses;
    const double precision = said > 0 ? c.hits / said : 1, recall = right > 0 ? c.hits / right : 1;
    if (precision + recall > 0) scores.push_back(2 * (precision * recall) / (precision + recall));
  }
  return numpy_sum(scores) / static_cast<double>(scores.size());
}

}  // namespace

const Aggregation& mean() {
  static const Aggregation aggregation = {"mean", [](const Items& items) { return mean_of(values_of(items)); },
                                          [](const Items& items, int64_t) { return mean_error(values_of(items)); }};
  return aggregation;
}

const Aggregation& perplexity() {
  static const Aggregation aggregation = {"perplexity", perplexity_of, perplexity_error};
  return aggregation;
}

const Aggregation& f1() {
  static const Aggregation aggregation = of_confusion("f1", f1_of);
  return aggregation;
}

const Aggregation& matthews_correlation() {
  static const Aggregation aggregation = of_confusion("matthews_corrcoef", matthews_of);
  return aggregation;
}

const Aggregation& weighted_perplexity() {
  static const Aggregation aggregation = {"weighted_perplexity",
                                          [](const Items& items) { return std::exp(-weighted_mean(items)); }, nullptr,
                                          ItemForm::kValueAndWeight};
  return aggregation;
}

const Aggregation& bits_per_byte() {
  static const Aggregation aggregation = {"bits_per_byte",
                                          [](const Items& items) { return -weighted_mean(items) / std::log(2.0); },
                                          nullptr, ItemForm::kValueAndWeight};
  return aggregation;
}

const Aggregation& all_answers() {
  const auto by_question = [](const Item& item) { return std::pair(item.group, item.member); };
  static const Aggregation aggregation = {
      "acc_all", [=](const Items& items) { return mean_of(wholly_right(items, by_question)); },
      [](const Items& items, int64_t) {
        return mean_error(wholly_right(items, [](const Item& item) { return item.member; }));
      },
      ItemForm::kRightAndSaid};
  return aggregation;
}

const Aggregation& question_exact_match() {
  static const Aggregation aggregation = {
      "exact_match",
      [](const Items& items) { return mean_of(wholly_right(items, [](const Item& item) { return item.group; })); },
      nullptr, ItemForm::kRightAndSaid};
  return aggregation;
}

const Aggregation& question_f1() {
  static const Aggregation aggregation = {"f1", question_f1_of, nullptr, ItemForm::kRightAndSaid};
  return aggregation;
}

size_t arg_max(const std::vector<double>& values) {
  ESPALIER_CHECK(!values.empty());
  size_t best = 0;
  for (size_t i = 1; i < values.size() && !std::isnan(values[best]); ++i)
    if (std::isnan(values[i]) || values[i] > values[best]) best = i;
  return best;
}

}  // namespace espalier::eval
