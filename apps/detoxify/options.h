// Rows that several commands of `espalier detoxify` have, and its recipe.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "eval/detoxify/least_toxic.h"
#include "eval/detoxify/score_texts.h"

namespace espalier {

void add_scorer_rows(OptionTable& table, eval::ScoringPlan& plan);
void add_attribute(OptionTable& table, std::string& attribute);
// What is kept, and in which order.
void add_filter_rows(OptionTable& table, eval::FilterPlan& plan);

int detoxify_run_main(const std::vector<std::string>& arguments);

}  // namespace espalier
