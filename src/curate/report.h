// What a curation did, for programs (JSON) and for people (Markdown).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "curate/run.h"

namespace espalier::curate {

struct GroupTally {
  std::string name, file;
  int64_t num_documents = 0, bytes = 0;  // of text
  int64_t num_tokens = -1;               // -1: no token files
};

nlohmann::ordered_json report_as_json(const RunPlan& plan, const RunResult& result,
                                      const std::vector<GroupTally>& groups);
std::string report_as_markdown(const RunPlan& plan, const RunResult& result, const std::vector<GroupTally>& groups);

}  // namespace espalier::curate
