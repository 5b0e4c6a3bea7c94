// What a curation did: for programs (JSON), and, made from that, for people (Markdown, and a page of HTML).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "curate/run.h"
#include "data/store_metadata.h"

namespace espalier::curate {

struct GroupTally {
  std::string name, file;
  int64_t num_documents = 0, bytes = 0;  // of text
  int64_t num_tokens = -1;               // -1: no token files
  data::Catalogue catalogue = {};        // source, language, and the metadata of sources
};

// Counts the values of these keys, of one document more. Values that are not text are kept as JSON; of a key with very
// many values, those beyond are "others".
void note_catalogue(const std::set<std::string>& keys, const Document& document, data::Catalogue& catalogue);

nlohmann::ordered_json report_as_json(const RunPlan& plan, const RunResult& result,
                                      const std::vector<GroupTally>& groups);
std::string report_as_markdown(const nlohmann::ordered_json& report);
// A self-contained file: no scripts, no fonts, no pictures from elsewhere. Texts of documents are
// escaped, whatever they hold.
std::string report_as_html(const nlohmann::ordered_json& report);
// report.json, report.md and report.html.
void write_reports(const nlohmann::ordered_json& report, const std::filesystem::path& folder);

}  // namespace espalier::curate
