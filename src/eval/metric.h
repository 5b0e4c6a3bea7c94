// What documents are worth, one by one (items), and together (aggregations), by the formulas of the harness (lm_eval
// 0.3 and 0.4), its errors included where published numbers rest on them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace espalier::eval {

// One document under one metric. What the members mean is the aggregation's to say.
struct Item {
  double value = 0;
  double reference = 0;
  std::string group, member;
  std::vector<int64_t> counts = {};
};
using Items = std::vector<Item>;

// What of an item the harness hands to the aggregation, and logs.
enum class ItemForm { kValue, kRightAndSaid, kValueAndWeight, kTexts };

struct Aggregation {
  std::string name;
  std::function<double(const Items&)> value;
  // The standard error; no function where the harness gives none. Nothing where it is not defined: of one item, or of
  // no resamples.
  std::function<std::optional<double>(const Items&, int64_t bootstrap_iters)> error;
  ItemForm form = ItemForm::kValue;
};

const Aggregation& mean();        // of value; sample deviation / sqrt(n)
const Aggregation& perplexity();  // exp(-mean of value); bootstrap
const Aggregation& f1();          // of the class 1: value is what was answered, reference what is right; bootstrap
const Aggregation& matthews_correlation();  // likewise; bootstrap
const Aggregation& weighted_perplexity();   // exp(-sum of value / sum of reference)
const Aggregation& bits_per_byte();         // the same in powers of two
// Share of the questions of which every answer was predicted right: value is 1 where the answer was called right,
// reference where it is; (group, member) is the question. The error takes members of different groups for one question.
const Aggregation& all_answers();
// MC-TACO: group is the question. Share of the questions that are wholly right; mean F1 over the questions.
const Aggregation& question_exact_match();
const Aggregation& question_f1();

// The standard error of `value` by resampling: `bootstrap_iters` resamples, in chunks of up to 1,000 that draw from
// Python's generator seeded with their number, as the harness does. In parallel; the number of threads changes nothing.
std::optional<double> bootstrap_error(size_t num_items, int64_t bootstrap_iters,
                                      const std::function<double(const std::vector<uint32_t>&)>& value_of_resample);

// numpy.argmax: the first of the largest; a NaN counts as larger than all.
size_t arg_max(const std::vector<double>& values);

}  // namespace espalier::eval
