// A recipe: sources, steps and outputs of a curation in one TOML file.
//
//   [output]
//   folder = "mix"
//   by = "language"                 # a file for each value of this key
//   tokenizer = "bloom/tokenizer.json"
//   [[source]]
//   name = "crawl"
//   files = ["crawl/*.jsonl.zst"]
//   metadata = { licence = "CC0" }
//   [[step]]
//   name = "language"
//   keep = ["en", "fr"]
//
// The keys of a step are the options of `espalier curate step NAME`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "curate/blend.h"
#include "curate/run.h"
#include "text/tokenizer.h"

namespace espalier::curate {

// The folder in that of the output where documents are that are partitioned.
inline constexpr const char* kPartitionedTable = "documents";

struct OutputPlan {
  std::string folder;
  std::string by;                // key whose value names the file of a document; empty: one file, "documents"
  bool is_partitioned = false;   // documents/KEY=VALUE/part-00000.parquet, as Hive, Spark and Ray have it
  std::string format = "jsonl";  // or parquet
  std::string compression;       // none, gz, zst, xz, bz2 of JSONL; none, snappy, gz, zst of Parquet
  std::string tokenizer;         // path; empty: no token files
  bool append_eod = true;

  // What the documents with this value of `by` are called: letters, digits and few other characters.
  std::string group_of(const std::optional<std::string>& value) const;
  // "GROUP.jsonl.zst"
  std::string file_of(const std::string& group) const;
  // "documents/KEY=VALUE/part-00000.jsonl.zst"; no value: of documents without one.
  std::string partition_file_of(const std::optional<std::string>& value) const;
};

struct Recipe {
  std::string file, content;
  std::vector<InputSource> sources;
  std::vector<PlannedStep> steps;
  OutputPlan output;
  std::optional<BlendPlan> mix;
  int64_t workers = 1, memory_bytes = int64_t{1} << 30, shard_bytes = kShardBytes;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null without output.tokenizer

  std::vector<std::string> step_files;  // which options of steps and of the mix name: lists, models, evaluations

  // Of the text, the tokenizer, and the versions (file_version.h) of the inputs and of step_files, as they are at the
  // first call: the work of one recipe is not continued by another.
  const std::string& fingerprint() const;

 private:
  mutable std::string fingerprint_;
};

// Adds all problems, with file and line; reads what the steps need. The recipe is whole only if nothing was added.
Recipe read_recipe(const std::string& file, Problems& problems);

}  // namespace espalier::curate
