// Cross-checks of the options of a Retro; those of its GPT are the GPT's.
#include "base/format.h"
#include "base/log.h"
#include "config/resolving.h"
#include "config/unused_options.h"
#include "families/gpt/internal/gpt.h"
#include "families/retro/internal/retro.h"

namespace espalier::families::internal {
namespace {

class RetroResolver {
 public:
  RetroResolver(const config::Resolving& resolving, const RetroSettings& settings)
      : resolving_(resolving), problems_(resolving.problems), settings_(settings), model_(settings.shape) {}

  void check_layers() const;
  void check_chunks() const;
  void check_gpt() const;
  void check_layout() const;

 private:
  std::string origin(const char* name) const { return resolving_.origin(name); }

  const config::Resolving& resolving_;
  Problems& problems_;
  const RetroSettings& settings_;
  const RetroConfig& model_;
};

void RetroResolver::check_layers() const {
  if (model_.gpt.num_layers > 0 && model_.num_retrieval_layers() == 0)
    problems_.add(origin("--num-layers"),
                  " has no layer that attends to neighbours: of up to 15 layers the sixth is the first; use ",
                  model_.first_retrieval_layer() + 1, " or more");
  const auto check_rate = [&](const char* name, double rate) {
    if (rate >= 1) problems_.add(origin(name), " drops everything; use a share below 1, such as 0.1");
  };
  check_rate("--retro-encoder-hidden-dropout", model_.encoder_hidden_dropout);
  check_rate("--retro-encoder-attention-dropout", model_.encoder_attention_dropout);
}

void RetroResolver::check_chunks() const {
  const int64_t length = resolving_.run.data.sequence_length, chunk = model_.chunk_length;
  if (length > 0 && length % chunk != 0)
    problems_.add(origin(resolving_.given("--seq-length") ? "--seq-length" : "--encoder-seq-length"),
                  " is not a multiple of ", origin("--retro-chunk-length"), "; use ",
                  plan::multiples_near(length, chunk));
  const bool learned = model_.gpt.position_embedding == PositionEmbedding::kLearned;
  if (learned && model_.gpt.max_position_embeddings > 0 &&
      model_.gpt.max_position_embeddings < model_.retrieved_length())
    problems_.add(origin("--max-position-embeddings"), " is below the ", model_.retrieved_length(),
                  " tokens of a neighbour (", origin("--retro-num-retrieved-chunks"), " * ",
                  origin("--retro-chunk-length"), "), which have the same positions; use ", model_.retrieved_length(),
                  " or more");
  if (settings_.workdir.empty() && !settings_.without_neighbors && !resolving_.run.plan_only)
    problems_.add("--retro-workdir is required: the folder that 'espalier retro build' fills; or give ",
                  "--retro-without-neighbors");
}

// What a GPT may have and its neighbours would need too.
void RetroResolver::check_gpt() const {
  if (settings_.gpt.objective.kind != data::Objective::Kind::kCausal)
    problems_.add(origin("--objective"),
                  ": neighbours are found of what has been read; a Retro learns every token from ",
                  "those before it. Leave it out, or train a gpt");
  if (resolving_.run.data.reset_position_ids)
    problems_.add(
        "--reset-position-ids: chunks and their neighbours may hold the end of a document, and have positions ",
        "by their place; leave it out");
  if (model_.gpt.position_embedding == PositionEmbedding::kAlibi)
    problems_.add(origin("--position-embedding-type"),
                  ": the biases of alibi look back, and the tokens of a neighbour see those after them as well; use "
                  "absolute, rotary or none");
  if (model_.gpt.window_size > 0)
    problems_.add(origin("--window-size"), " hides from a chunk what its neighbours were found by; leave it out");
  if (model_.gpt.mup.mup)
    problems_.add("--use-mup has no rule for attention to neighbours; leave it out, or train a gpt");
  if (model_.gpt.fp32_residual)
    problems_.add("--fp32-residual-connection: what a Retro retrieves has the compute type; leave it out");
}

void RetroResolver::check_layout() const {
  const config::RunConfig& run = resolving_.run;
  const char* const instead =
      "; leave it out, and use --tensor-model-parallel-size, more data-parallel processes, or --zero-stage 1 to 3";
  if (run.grid.pipeline > 1)
    problems_.add(origin("--pipeline-model-parallel-size"),
                  ": the layers that attend to neighbours read what the first of them has encoded, which is not passed "
                  "on between stages",
                  instead);
  if (run.grid.context > 1)
    problems_.add(origin("--context-parallel-size"),
                  ": the chunks of a sample attend to their neighbours where the whole of it is", instead);
  if (run.parallel.sequence_parallel && run.grid.tensor > 1)
    problems_.add("--sequence-parallel: the chunks of a sample attend to their neighbours where the whole of it is; ",
                  "leave it out");
  if (run.training.checkpoint_activations || run.training.recompute_granularity == config::RecomputeGranularity::kFull)
    problems_.add(
        "--recompute-granularity full does not work for a Retro, as upstream: a layer that attends to neighbours has ",
        "two results. Leave it out; attention probabilities are never kept");
}

}  // namespace

void resolve_retro(const config::Resolving& resolving, config::FamilyConfig& config) {
  RetroSettings& settings = config.as<RetroSettings>();
  resolve_gpt(resolving, settings.gpt);
  settings.shape.gpt = settings.gpt.shape;
  const RetroResolver resolver(resolving, settings);
  if (!settings.shape.retrieves) {
    if (resolving.table.says_notes())
      warn_once("without --retro-add-retriever nothing is retrieved: the model is a GPT");
    return;
  }
  resolver.check_layers();
  resolver.check_chunks();
  resolver.check_gpt();
  resolver.check_layout();
  if (settings.cyclic_train_iters > 0 && resolving.run.data.dataloader_type != config::DataloaderType::kCyclic)
    resolving.problems.add(resolving.origin("--retro-cyclic-train-iters"),
                           " needs --dataloader-type cyclic; give both, or leave it out");
}

void find_unused_retro(const config::RunConfig& run, config::UnusedOptions& unused) {
  const RetroSettings& settings = run.model.as<RetroSettings>();
  find_unused_gpt(run, settings.gpt, unused);
  unused.add_if(!settings.shape.retrieves,
                {"--retro-workdir", "--retro-encoder-layers", "--retro-encoder-hidden-dropout",
                 "--retro-encoder-attention-dropout", "--retro-chunk-length", "--retro-num-neighbors",
                 "--retro-num-retrieved-chunks", "--retro-without-neighbors", "--retro-cyclic-train-iters"},
                "without --retro-add-retriever the model is a GPT");
}

}  // namespace espalier::families::internal
