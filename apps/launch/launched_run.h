// What `espalier launch` has to know about the run that its ranks train.
#pragma once

#include <string>
#include <vector>

#include "apps/launch/end_rules.h"

namespace espalier {

// The absolute folder of --save of `train FAMILY ...`, already checked, for `option` of the launcher ("--page"). A
// UserError where something else runs, or nothing is saved.
std::string save_folder_of(const std::vector<std::string>& words, const std::string& option);

// Whether the run, started again, goes on from what it saved, wherever it began. False of what trains nothing.
bool goes_on_where_it_stopped(const std::vector<std::string>& words);

// By which rules the run ends by itself; none of what trains nothing.
EndRules end_rules_of(const std::vector<std::string>& words);

// Whether the word is a command that `espalier launch` and the jobs of `espalier submit` can start as ranks.
bool runs_as_ranks(const std::string& word);

}  // namespace espalier
