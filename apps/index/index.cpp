// espalier index: vectors of passages, and which of them are nearest to a question's.
#include <cmath>
#include <filesystem>

#include "apps/become_engine.h"
#include "apps/index/commands.h"
#include "apps/options/index_options.h"
#include "base/format.h"
#include "base/options.h"
#include "base/pending_tree.h"
#include "base/thread_pool.h"
#include "retrieval/embedding_files.h"

namespace espalier {
namespace {

std::vector<std::filesystem::path> paths_of(const std::vector<std::string>& files) {
  return {files.begin(), files.end()};
}

Queries read_queries(const std::vector<std::string>& files, const retrieval::IndexFacts& index,
                     const std::string& folder) {
  retrieval::EmbeddingFiles source(paths_of(files), /*needs_ids=*/false);
  if (source.dimension() != index.dimension)
    throw UserError(concat("--queries have ", format_counted(source.dimension(), "number"), " each, the rows of '",
                           folder, "' have ", index.dimension, "; use vectors of the same encoder"),
                    ExitCode::kBadData);
  Queries queries{.rows = std::vector<float>(source.ids().size() * static_cast<size_t>(index.dimension)),
                  .ids = source.ids()};
  source.read(0, static_cast<int64_t>(queries.ids.size()), queries.rows.data());
  for (size_t at = 0; at < queries.rows.size(); ++at)
    if (!std::isfinite(queries.rows[at]))
      throw UserError(
          concat("query ", queries.ids[at / static_cast<size_t>(index.dimension)], " has ", queries.rows[at],
                 " as number ", at % static_cast<size_t>(index.dimension), "; expected finite numbers"),
          ExitCode::kBadData);
  return queries;
}

void add_training_threads(OptionTable& table, int64_t& workers) {
  table.add("--workers", workers, "threads of the training; what is trained does not depend on them")
      .alias("--num-threads")
      .minimum(1)
      .maximum(4096)
      .default_text("all cores");
}

void check_threads(int64_t workers, Problems& problems) {
  if (const std::string why = why_too_many_threads(workers); !why.empty()) problems.add("--workers ", workers, why);
}

// Whether the folder holds a complete index of these very vectors.
bool is_index_of(const retrieval::EmbeddingSource& source, const std::string& folder) {
  if (!retrieval::has_index(folder)) return false;
  const retrieval::IndexFacts facts = retrieval::read_index(folder);
  return facts.origin == source.origin() && facts.dimension == source.dimension() &&
         facts.rows == static_cast<int64_t>(source.ids().size());
}

}  // namespace

const std::vector<Command>& index_commands() {
  static const std::vector<Command> list = {
      {"build", "an index of embeddings: index build --embeddings F... --embedding-path DIR", index_build_main},
      {"embed", "an index of passages, by a retriever: index embed --load RUN --evidence-data-path TSV ...",
       index_embed_main},
      {"train", "an approximate search by an index string of Faiss: index train DIR --index-str IVF4096_HNSW4,Flat",
       index_train_main},
      {"search", "the rows nearest to vectors or questions: index search DIR --queries F...", index_search_main},
      {"evaluate", "how many questions find their answers in an index: index evaluate --load RUN --qa-data-test F ...",
       index_evaluate_main},
  };
  return list;
}

int index_main(const std::vector<std::string>& arguments) {
  return run_subcommand("espalier index", index_commands(), arguments);
}

int index_build_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  std::string folder;
  retrieval::BuildPlan plan;
  TrainOptions training;
  int64_t workers = num_usable_cores();
  bool json = false;
  OptionTable table("espalier index build",
                    "Puts embeddings into an index: shards with checksums that 'espalier index search' maps. "
                    "If interrupted, the same command continues at the first missing shard.");
  table.add("--embeddings", files, "safetensors files with embeddings (F32 [n, d]) and ids (I64 [n])")
      .value_name("FILE")
      .required();
  table.add("--embedding-path", folder, "folder of the index").alias("--output").value_name("DIR").required();
  table.known_elsewhere({"--input", "--vectors"}, "--embeddings");
  table.add("--shard-rows", plan.shard_rows, "rows of a shard").minimum(1).maximum(1 << 30);
  table.add("--indexer-batch-size", plan.batch_rows, "rows processed at once").minimum(1).maximum(1 << 24);
  table.add("--overwrite", plan.overwrite, "replace an existing index, complete or not");
  add_training_rows(table, training);
  add_training_threads(table, workers);
  table.add("--json", json, "what was built as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  check_threads(workers, problems);
  for (const std::string& file : files) {
    std::error_code error;
    if (plan.overwrite && std::filesystem::equivalent(std::filesystem::absolute(file).parent_path(), folder, error))
      problems.add("--embeddings ", file, " is in --embedding-path ", folder, ", whose shards --overwrite removes");
  }
  problems.raise();

  clean_up_when_interrupted(kResumes);
  plan.folder = folder;
  retrieval::EmbeddingFiles source(paths_of(files));
  const bool trains = !retrieval::is_exact(training.plan.index_string);
  check_index_string(training.plan, source, "--index-str");
  // What an interrupted training needs is there; anything else is refused.
  if (!trains || plan.overwrite || !is_index_of(source, folder)) print_build_summary(build_index(source, plan), json);
  if (!trains) return 0;
  training.plan.folder = folder;
  training.plan.threads = static_cast<int>(workers);
  train_and_report(training, json);
  return 0;
}

int index_train_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  TrainOptions options;
  int64_t workers = num_usable_cores();
  bool json = false;
  OptionTable table("espalier index train",
                    "Trains an index string of Faiss on rows of an index and puts the codes of all rows into it: later "
                    "searches look for candidates there, compare these exactly, and are faster and approximate. If "
                    "interrupted, the same command continues where it was.");
  table.positional("DIR", words, "the index", 1, 1);
  add_training_rows(table, options);
  add_training_threads(table, workers);
  table.add("--overwrite", options.plan.overwrite, "replace a trained index of another string, complete or not");
  table.add("--json", json, "what was trained as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  check_threads(workers, problems);
  if (options.plan.index_string.empty())
    problems.add("--index-str is required: an index string of Faiss, such as IVF4096_HNSW4,Flat");
  else if (retrieval::is_exact(options.plan.index_string))
    problems.add("--index-str ", options.plan.index_string, ": that is the exact search, which needs no training");
  problems.raise();
  clean_up_when_interrupted(kResumes);
  options.plan.folder = words.front();
  options.plan.threads = static_cast<int>(workers);
  train_and_report(options, json);
  return 0;
}

int index_search_main(const std::vector<std::string>& arguments) {
  IndexSearchOptions options;
  if (!read_index_search_options(arguments, options)) return 0;
  const retrieval::IndexFacts index = retrieval::read_index(options.folder);
  if (options.queries.empty()) become_engine("index-search", arguments);
  search_and_print(options, index, read_queries(options.queries, index, options.folder));
  return 0;
}

int index_embed_main(const std::vector<std::string>& arguments) {
  IndexEmbedOptions options;
  if (!read_index_embed_options(arguments, options)) return 0;
  become_engine("index-embed", arguments);
}

int index_evaluate_main(const std::vector<std::string>& arguments) {
  IndexEvaluateOptions options;
  if (!read_index_evaluate_options(arguments, options)) return 0;
  become_engine("index-evaluate", arguments);
}

}  // namespace espalier
