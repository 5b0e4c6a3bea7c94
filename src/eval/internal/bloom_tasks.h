// The tasks of bloom_2022.h by where their data are from, and what they share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"

namespace espalier::eval::internal {

std::vector<Task> choice_tasks();  // several choices that share a context
std::vector<Task> open_tasks();    // lambada, triviaqa, webqs
std::vector<Task> glue_tasks();
std::vector<Task> superglue_tasks();
std::vector<Task> reading_tasks();  // mc_taco, race

// A blank and a choice after the same context, for each choice.
Question ask_choices(const std::string& context, std::vector<std::string> choices, size_t gold);

// What the same tasks of other sets need too.
std::string begun_small(const Fields& document, const std::string& field);
std::string hellaswag_text(std::string_view text);
std::vector<std::string> mathqa_choices(const std::string& options);
std::string wsc_context(const Fields& document);

std::vector<Metric> acc();           // the most likely choice
std::vector<Metric> acc_and_norm();  // and by characters
std::vector<Metric> acc_of_two();    // the first choice where it is more likely, else the second

}  // namespace espalier::eval::internal
