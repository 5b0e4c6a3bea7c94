// Small complete runs for tests: token files, a command line, and what a run left behind.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace espalier::test {

// A folder for one test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// `prefix`.bin and .idx with `num_documents` documents of 3 to 60 random ids below 4999, each ending with 4999.
void write_token_files(const std::string& prefix, int num_documents, unsigned seed);

// The same of 2 to 9 sentences of 3 to 20 random ids from 5 to 319: those of tests/data's vocabulary of BERT.
void write_sentence_files(const std::string& prefix, int num_documents, unsigned seed);

// Titles of such documents: a sequence of 1 to 4 ids for each.
void write_title_files(const std::string& prefix, int num_documents, unsigned seed);

// `prefix`_inputs_document and `prefix`_targets_document: pairs of 1 to 12 random ids and 1 to 8 more below 4999, the
// targets ending with 4999.
void write_pair_files(const std::string& prefix, int num_pairs, unsigned seed);

using Words = std::vector<std::string>;

// Flags of a BLOOM of two layers over data at `prefix`, 8 samples a step in micro-batches of 2. Later words win.
Words tiny_run(const std::string& prefix);
// Flags of a BERT of two layers over sentences at `prefix`, 8 samples a step in micro-batches of 2.
Words tiny_bert_run(const std::string& prefix);
// Flags of a biencoder of such BERTs, with titles at `prefix`_titles, 8 samples a step in micro-batches of 4.
Words tiny_ict_run(const std::string& prefix);
// Flags of a T5 of 2 + 2 layers over sentences at `prefix`, 8 samples a step in micro-batches of 2. Its vocabulary has
// 422 words: 320 of the file, two to begin and end with, 100 sentinels.
Words tiny_t5_run(const std::string& prefix);
inline constexpr int64_t kTinyT5Vocabulary = 422;
Words operator+(Words left, const Words& right);
// Without these options of one word each.
Words without(const Words& flags, const Words& options);

// The records of metrics.jsonl without what depends on the clock.
std::vector<nlohmann::json> step_records(const std::string& run_folder);

// Of the complete checkpoints in a run folder, in order.
std::vector<int64_t> saved_steps(const std::string& run_folder);

// Names of tensors of the two checkpoints that are not equal bit for bit; missing ones included.
Words different_tensors(const std::string& step_folder_a, const std::string& step_folder_b);

}  // namespace espalier::test
