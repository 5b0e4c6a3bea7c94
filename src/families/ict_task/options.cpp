// Rows of `espalier train ict-task`, what they derive, and what they refuse.
#include "config/resolving.h"
#include "families/ict/internal/ict.h"
#include "families/ict_task/internal/ict_task.h"

namespace espalier::families::internal {
namespace {

constexpr int64_t kUsualLength = 256;  // upstream's default of --retriever-seq-length

// Of questions and passages.
int64_t length_of(const config::RunConfig& run, const IctTaskSettings& settings) {
  return settings.retriever_seq_length.value_or(std::min(kUsualLength, run.data.sequence_length));
}

void add_negatives_rows(OptionTable& table, IctTaskSettings& settings) {
  table
      .add("--train-with-neg", settings.train_with_neg,
           "train with passages of a question's own that do not answer it, besides those of the other questions")
      .common();
  table.add("--train-hard-neg", settings.train_hard_neg, "how many of them, hard ones before others")
      .minimum(0)
      .maximum(1000)
      .common();
  table
      .add("--val-av-rank-hard-neg", settings.val_av_rank_hard_neg,
           "hard passages of each question that an evaluation compares with")
      .minimum(0)
      .maximum(1000)
      .on_resume(ResumeRule::kFree);
  table.add("--val-av-rank-other-neg", settings.val_av_rank_other_neg, "other passages of each question, likewise")
      .minimum(0)
      .maximum(1000)
      .on_resume(ResumeRule::kFree);
  table
      .add("--eval-micro-batch-size", settings.eval_micro_batch_size,
           "questions of an evaluation whose passages are compared with each other")
      .minimum(1)
      .maximum(1e6)
      .default_text("--micro-batch-size")
      .on_resume(ResumeRule::kFree);
}

void check_lengths(const config::Resolving& resolving, const IctTaskSettings& settings) {
  const config::RunConfig& run = resolving.run;
  if (run.data.sequence_length == 0) return;  // that is said already
  const int64_t length = length_of(run, settings), most = settings.biencoder.bert.shape.max_position_embeddings;
  const std::string origin = resolving.origin("--retriever-seq-length");
  if (most > 0 && length > most)
    resolving.problems.add(origin, " is more than the ", most, " positions of the model; use ", most, " or less");
  const int64_t ranks = run.grid.context * (run.parallel.sequence_parallel ? run.grid.tensor : 1);
  if (length % ranks != 0)
    resolving.problems.add(origin, " is not a multiple of the ", ranks, " ranks that divide it; use ",
                           plan::multiples_near(length, ranks));
}

}  // namespace

void add_ict_task_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  IctTaskSettings& settings = config.as<IctTaskSettings>();
  add_biencoder_rows(table, settings.biencoder, where);
  if (where != config::FamilyRows::kData) return;
  table.add("--task", settings.task, "upstream's name for it").choices({"RET-FINETUNE-NQ"});
  add_task_run_rows(table, settings,
                    {.train_data = "questions with passages, as DPR's biencoder-nq-train.json",
                     .pretrained_checkpoint = "retriever or BERT to begin with"});
  table.add("--bert-load", settings.bert_load, "BERT to begin with, where --pretrained-checkpoint is not given")
      .value_name("DIR")
      .on_resume(ResumeRule::kFree);
  table
      .add("--retriever-seq-length", settings.retriever_seq_length,
           "tokens of questions and passages, which is the sequence length of the run")
      .minimum(4)
      .maximum(1e6)
      .default_text("256, or --seq-length where that is less")
      .common();
  add_negatives_rows(table, settings);
  add_rows_of_indexing(table);
  using Takes = OptionTable::Takes;
  const char* const reason = "it belongs to searching: espalier index evaluate reads it";
  table.add_without_effect("--faiss-use-gpu", Takes::kFlag, reason);
  for (const char* name : {"--faiss-match", "--faiss-topk-retrievals", "--qa-data-dev", "--qa-data-test"})
    table.add_without_effect(name, Takes::kOne, reason);
}

void resolve_ict_task(const config::Resolving& resolving, config::FamilyConfig& config) {
  IctTaskSettings& settings = config.as<IctTaskSettings>();
  resolve_biencoder(resolving, settings.biencoder, "a retriever", 1 + settings.num_hard_negatives());
  check_task_run(resolving, settings, "questions with passages");
  check_lengths(resolving, settings);
  if (settings.train_with_neg && settings.train_hard_neg == 0)
    resolving.problems.add("--train-with-neg needs --train-hard-neg: how many passages of its own a question brings");
}

void resolve_ict_task_epochs(config::RunConfig& run, const OptionTable& table, Problems& problems) {
  const IctTaskSettings& settings = run.model.as<IctTaskSettings>();
  run.data.sequence_length = length_of(run, settings);
  const auto count_examples = [&]() -> int64_t {
    Problems of_files;  // they are told later
    std::vector<data::QuestionExample> examples;
    for (const std::string& path : settings.train_data) data::read_question_examples(path, {}, examples, of_files);
    return of_files.empty() ? static_cast<int64_t>(examples.size()) : 0;
  };
  resolve_task_run(run, table, settings, count_examples, problems);
}

}  // namespace espalier::families::internal
