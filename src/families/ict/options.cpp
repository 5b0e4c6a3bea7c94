// Rows of `espalier train ict`, and what they refuse.
#include "config/resolving.h"
#include "families/bert/internal/bert.h"
#include "families/ict/internal/ict.h"
#include "families/sentence_options.h"

namespace espalier::families::internal {
namespace {

void add_tower_rows(OptionTable& table, BiencoderSettings& settings) {
  table
      .add("--biencoder-projection-dim", settings.projection_dim,
           "size of a vector, made by a linear layer; 0: the hidden size, without that layer")
      .alias("--ict-head-size")
      .minimum(0)
      .maximum(1e6)
      .common()
      .on_resume(ResumeRule::kRefused);
  table
      .add("--biencoder-shared-query-context-model", settings.shared,
           "one BERT encodes queries and contexts, instead of one for each")
      .common()
      .on_resume(ResumeRule::kRefused);
}

void add_score_rows(OptionTable& table, BiencoderSettings& settings) {
  table
      .add("--retriever-score-scaling", settings.score_scaling,
           "divide inner products by the root of the hidden size before the softmax")
      .common();
  table
      .add("--retriever-report-topk-accuracies", settings.topk_accuracies,
           "also report the share of queries whose own context is among the first K, in percent")
      .value_name("K")
      .minimum(1)
      .common()
      .on_resume(ResumeRule::kFree);
}

}  // namespace

void add_biencoder_rows(OptionTable& table, BiencoderSettings& settings, config::FamilyRows where) {
  if (where == config::FamilyRows::kSize) {
    settings.bert.shape.binary_head = false;  // a tower has no head
    settings.bert.num_tokentypes = 2;
  }
  add_bert_model_rows(table, settings.bert, where);
  if (where == config::FamilyRows::kSize) add_tower_rows(table, settings);
  if (where == config::FamilyRows::kData) add_score_rows(table, settings);
}

void add_rows_of_indexing(OptionTable& table) {
  using Takes = OptionTable::Takes;
  const char* const reason = "it belongs to the index: espalier index embed and index evaluate read it";
  for (const char* name : {"--ict-load", "--evidence-data-path", "--block-data-path", "--embedding-path",
                           "--indexer-batch-size", "--indexer-log-interval", "--sample-rate"})
    table.add_without_effect(name, Takes::kOne, reason);
}

void resolve_biencoder(const config::Resolving& resolving, BiencoderSettings& settings, const char* whose,
                       int64_t contexts_of_sample) {
  resolve_bert_model(resolving, settings.bert);
  const config::RunConfig& run = resolving.run;
  if (run.grid.pipeline > 1)
    resolving.problems.add(resolving.origin("--pipeline-model-parallel-size"), ": ", whose,
                           " has no pipeline stages; use 1, and tensor or data parallelism with --zero-stage");
  const int64_t in_batch = run.training.micro_batch_size * run.grid.data;
  if (run.training.micro_batch_size > 0 && in_batch * contexts_of_sample < 2)
    resolving.problems.add(resolving.origin("--micro-batch-size"), ": a query is compared with the contexts of one ",
                           "micro-batch of all replicas, and there would be none but its own; use 2 or more, or two ",
                           "data-parallel processes");
}

void add_ict_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  IctSettings& settings = config.as<IctSettings>();
  add_biencoder_rows(table, settings.biencoder, where);
  if (where != config::FamilyRows::kData) return;
  add_ict_rows(table, settings.samples).common();
  table
      .add("--bert-load", settings.bert_load,
           "BERT that both towers begin as: run folder or step folder; not read where --load finds a checkpoint")
      .value_name("DIR")
      .common()
      .on_resume(ResumeRule::kFree);
  add_rows_of_indexing(table);
  table.add_without_effect("--retriever-seq-length", OptionTable::Takes::kOne,
                           "training's queries and blocks have the length of --seq-length; espalier index embed and "
                           "index evaluate read it");
}

void resolve_ict(const config::Resolving& resolving, config::FamilyConfig& config) {
  resolve_biencoder(resolving, config.as<IctSettings>().biencoder, "an ICT", 1);
}

}  // namespace espalier::families::internal
