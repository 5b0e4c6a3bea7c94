// What the answers to one question are worth: the items of metrics.
#pragma once

#include <span>

#include "eval/task.h"

namespace espalier::eval {

// The most likely choice is the right one; of equals the first counts as most likely.
Item score_likeliest(const Question& question, std::span<const Answer> answers);
// The same by log-likelihood per character, or per byte of UTF-8.
Item score_likeliest_by_characters(const Question& question, std::span<const Answer> answers);
Item score_likeliest_by_bytes(const Question& question, std::span<const Answer> answers);
// Two choices: the first is chosen only where it is more likely; of equals the second.
Item score_first_of_two(const Question& question, std::span<const Answer> answers);
// What the same takes as a class, 1 for the first choice, with the right one as reference; and group and member.
Item judge_first_of_two(const Question& question, std::span<const Answer> answers);
// The number of the most likely choice, with the right one as reference; and group and member.
Item judge_likeliest(const Question& question, std::span<const Answer> answers);
// Any of the answers is what the model would say.
Item score_any_greedy(const Question& question, std::span<const Answer> answers);
// The only request: whether it is what the model would say; its log-likelihood, with the question's weight.
Item score_greedy(const Question& question, std::span<const Answer> answers);
Item take_log_likelihood(const Question& question, std::span<const Answer> answers);

}  // namespace espalier::eval
