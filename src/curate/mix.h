// Carries a recipe out: documents, token files, report and fates into one folder.
//
//   FOLDER/GROUP.jsonl[.zst]           documents; a group for each value of output.by, else "documents"
//   FOLDER/GROUP_text_document.bin/.idx with a tokenizer, and train-files.txt for data blend --data-file-list
//   FOLDER/report.json, report.md, report.html, fates/
//   FOLDER/work/                       while it runs; what an interrupted run goes on from
#pragma once

#include <string>
#include <vector>

#include "curate/recipe.h"
#include "curate/report.h"

namespace espalier::curate {

struct MixResult {
  RunResult run;
  std::vector<GroupTally> groups;
  nlohmann::ordered_json report;
};

// What is in the way of carrying it out: results that exist, work of another recipe.
void check_folder(const Recipe& recipe, bool overwrite, Problems& problems);

// Takes the recipe's steps along.
MixResult make_mix(Recipe& recipe);
// The first `most_documents` records, in a folder of its own that goes away: what the report would say.
MixResult try_mix(Recipe& recipe, int64_t most_documents);

}  // namespace espalier::curate
