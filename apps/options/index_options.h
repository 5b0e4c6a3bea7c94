// Options of the commands of `espalier index` that read texts, for the program and for the engine that it becomes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "retrieval/answer_match.h"
#include "retrieval/index_folder.h"
#include "retrieval/search.h"
#include "retrieval/trained_index.h"

namespace espalier {

// The encoder, and how much of a text it reads.
struct EncoderOptions {
  std::string load, ict_load;
  std::optional<int64_t> ckpt_step;
  std::optional<int64_t> sequence_length;
  int64_t workers = 1;

  const std::string& folder() const { return load.empty() ? ict_load : load; }
};

// How an index that has a trained one beside its shards is searched.
struct ProbeOptions {
  retrieval::ProbePlan plan;
  bool exact = false;
};

// How one is trained.
struct TrainOptions {
  retrieval::TrainingPlan plan;
  int64_t recall_queries = 100;
};

struct IndexEmbedOptions {
  EncoderOptions encoder;
  std::string evidence;
  retrieval::BuildPlan plan{.batch_rows = 128};
  int64_t log_interval = 1000;
  bool json = false;
};

struct IndexEvaluateOptions {
  IndexEmbedOptions embed;  // where there is no index yet
  std::string qa_data_dev, qa_data_test;
  std::vector<int64_t> topk_accuracies = {1, 5, 20, 100};
  retrieval::AnswerMatch match = retrieval::AnswerMatch::kString;
  retrieval::SearchPlan search{.count = 100};
  ProbeOptions probes;
  bool json = false;
};

struct IndexSearchOptions {
  EncoderOptions encoder;
  std::string folder;
  std::vector<std::string> queries;  // files of vectors
  std::vector<std::string> question;
  std::string questions;  // a file of lines
  retrieval::SearchPlan plan{.count = 10};
  ProbeOptions probes;
  bool json = false;
};

// Options that name the encoder's length and what may be held of the index, for other commands that search.
void add_retriever_length(OptionTable& table, EncoderOptions& encoder);
void add_search_memory(OptionTable& table, const char* name, std::string& memory);
void add_probe_rows(OptionTable& table, ProbeOptions& probes);
// --index-str and what belongs to it; where they are given, `plan.index_string` is not empty.
void add_training_rows(OptionTable& table, TrainOptions& options);
// The trained index that is to be searched, with a line of the log that says so; null: the search is exact. A UserError
// where probes are given and there is none.
std::shared_ptr<const retrieval::TrainedIndex> open_trained(const retrieval::IndexFacts& index,
                                                            const std::string& folder, const ProbeOptions& probes);
// Trains, says what came out, and how much of the exact search's first 10 it finds for rows of the index.
void train_and_report(const TrainOptions& options, bool json);
// Into `plan`, with threads of the encoder.
void resolve_search(const std::string& name, const std::string& memory, int64_t workers, retrieval::SearchPlan& plan,
                    Problems& problems);

// False where help was printed; what is wrong is a UserError. Notes on what has no effect are said once, by the
// program.
bool read_index_embed_options(const std::vector<std::string>& arguments, IndexEmbedOptions& options,
                              bool says_notes = true);
bool read_index_evaluate_options(const std::vector<std::string>& arguments, IndexEvaluateOptions& options,
                                 bool says_notes = true);
bool read_index_search_options(const std::vector<std::string>& arguments, IndexSearchOptions& options,
                               bool says_notes = true);

// Vectors of an index's width, and what they are called where they are shown.
struct Queries {
  std::vector<float> rows;
  std::vector<int64_t> ids;
  std::vector<std::string> texts;  // of questions; else empty
};

// Searches and prints.
void search_and_print(const IndexSearchOptions& options, const retrieval::IndexFacts& index, const Queries& queries);

void print_build_summary(const retrieval::BuildSummary& summary, bool json);

}  // namespace espalier
