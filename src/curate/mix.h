// Carries a recipe out: documents, token files, report and fates into one folder.
//
//   FOLDER/GROUP.jsonl[.zst]           documents; a group for each value of output.by, else "documents"
//   FOLDER/GROUP_text_document.bin/.idx with a tokenizer, and train-files.txt for data blend --data-file-list
//   FOLDER/report.json, report.md, report.html, fates/
//   FOLDER/work/                       while it runs; what an interrupted run goes on from
//
// Several processes that carry the same recipe out, on machines that share the folder, share its shards among
// themselves (run.h); one of them then writes the outputs, while the others wait.
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
  bool was_finished =
      false;  // by other processes, before this one did anything: only the report and the groups are known
};

// Whether the folder holds what this recipe makes of these inputs.
bool is_finished(const Recipe& recipe);

// What prevents carrying it out: existing results, work of another recipe.
void check_folder(const Recipe& recipe, bool overwrite, Problems& problems);

// Consumes the recipe's steps. `overwrite`: redoes what is finished. A UserError where another process works on
// another recipe in this folder.
MixResult make_mix(Recipe& recipe, bool overwrite = false);
// The first `most_documents` records, in a folder of its own that goes away: what the report would say.
MixResult try_mix(Recipe& recipe, int64_t most_documents);

}  // namespace espalier::curate
