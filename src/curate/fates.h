// What became of each document of a finished curation.
//
//   FOLDER/fates/00000017.zst   for the records of one shard, a line each: {"n":NUMBER,"s":STEP,"r":REASON,"v":VALUE,
//                               "t":THRESHOLD}, or {"n":NUMBER,"o":OUTPUT,"l":LINE} of one that stayed
//                               {"n":NUMBER,"f":REASON} of one that was forgotten afterwards (forget.h)
//   FOLDER/fates/index.json     the steps, the outputs, the files and the numbers where shards begin
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "curate/report.h"
#include "curate/run.h"

namespace espalier::curate {

class FateWriter {
 public:
  explicit FateWriter(std::filesystem::path folder);
  // All lines about the records of the next shard, in any order: lines of shards' fates, and places.
  void write_shard(const std::string& lines, int64_t next_number);
  void finish(const RunPlan& plan, const RunResult& result, const std::vector<GroupTally>& groups);

 private:
  std::filesystem::path folder_;
  std::vector<int64_t> ends_;
};

std::string place_line(int64_t number, size_t output, int64_t line);
std::string forgotten_line(int64_t number, const std::string& reason);

// {"steps", "outputs", "files", "shard_ends"} of a finished curation; a UserError where there is none.
nlohmann::ordered_json read_fate_index(const std::filesystem::path& folder);
std::filesystem::path fate_shard_file(const std::filesystem::path& fates_folder, size_t shard);
// The number of FILE:LINE, or the number itself; a UserError where there is no such document.
int64_t document_number(const nlohmann::ordered_json& index, const std::string& document);

// Sentences, one for each piece that the document became. `document`: a number, or FILE:LINE of an input
// with one record a line. A UserError where there is no such document.
std::vector<std::string> explain_fate(const std::filesystem::path& folder, const std::string& document);

}  // namespace espalier::curate
