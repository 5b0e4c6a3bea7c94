// Takes documents out of a finished curation (mix.h): out of its JSONL, its token files, and the samples of its report;
// their fates say that they were forgotten. Everything else stays byte for byte, places of later lines aside.
//
// New files are made in FOLDER/forget.work and then renamed into place; a process killed at any moment leaves the old
// curation, or what the next call completes first. Inputs are not touched: a recipe that is carried out again finds the
// documents there again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "curate/report.h"

namespace espalier::curate {

struct ForgetRequest {
  std::filesystem::path folder;
  std::vector<std::string> documents;  // numbers, or FILE:LINE of an input
  std::vector<std::string> urls;       // of documents in the outputs; compared as they stand
  std::string url_key = "url";
  std::string reason = "on request";   // kept in the fates and the report
  bool dry_run = false;                // only finds them
  bool finds_token_documents = false;  // which documents of the token files they are; may read the outputs
};

struct ForgetResult {
  struct Place {
    int64_t number = 0;
    std::string output;
    int64_t line = 0;  // from 1, before anything was removed
    // Where they are found: in the token files FOLDER/GROUP_text_document; -1 where there are none, or where its text
    // gave no tokens.
    int64_t token_document = -1;
    std::string token_prefix = {};
  };
  std::vector<Place> removed;
  std::vector<int64_t> in_no_output;  // asked for by number: dropped by a step, no document, or forgotten before
  std::vector<std::string> urls_not_found;
  int64_t num_samples = 0;         // taken out of the report
  std::vector<GroupTally> groups;  // those that changed, as they are now
};

// Reads every output where URLs are given, else those that hold a document. A UserError leaves the curation as it was.
ForgetResult forget(const ForgetRequest& request);

nlohmann::ordered_json to_json(const ForgetResult& result);

}  // namespace espalier::curate
