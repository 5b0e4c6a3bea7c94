// What generated texts are worth.
#pragma once

#include <functional>
#include <span>

#include "eval/ignored_text.h"
#include "eval/task.h"
#include "eval/translation_scores.h"

namespace espalier::eval {

using AnswerScore = std::function<Item(const Question&, std::span<const Answer>)>;

// Of one answer, whose text has been filtered. Any of the targets, but for what is ignored of both.
AnswerScore exact_match(IgnoredText ignored);
// The answer as a translation whose reference is the only target.
AnswerScore translation_score(Counts (*counts)(const std::string& text, const std::string& reference));

// Of such items: the score of their sum; bootstrap, of at most 100 resamples as in the harness.
const Aggregation& bleu();
const Aggregation& chrf();
const Aggregation& chrf_plus();
const Aggregation& edit_rate();

// The metric of what the filter makes of a question's answers.
Metric of_filtered(const Metric& metric, const AnswerFilter& filter);

}  // namespace espalier::eval
