// espalier index: vectors of passages, and which of them are nearest to a question's.
#include <cmath>
#include <filesystem>

#include "base/format.h"
#include "base/options.h"
#include "base/pending_tree.h"
#include "become_engine.h"
#include "index_commands.h"
#include "index_options.h"
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

}  // namespace

const std::vector<Command>& index_commands() {
  static const std::vector<Command> list = {
      {"build", "an index of embeddings: index build --embeddings F... --embedding-path DIR", index_build_main},
      {"embed", "an index of passages, by a retriever: index embed --load RUN --evidence-data-path TSV ...",
       index_embed_main},
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
  bool json = false;
  OptionTable table("espalier index build",
                    "Puts embeddings into an index: shards with checksums that 'espalier index search' maps. "
                    "If interrupted, the same command continues at the first missing shard.");
  table.add("--embeddings", files, "safetensors files with embeddings (F32 [n, d]) and ids (I64 [n])")
      .value_name("FILE")
      .required();
  table.add("--embedding-path", folder, "folder of the index").alias("--output").value_name("DIR").required();
  table.add("--shard-rows", plan.shard_rows, "rows of a shard").minimum(1).maximum(1 << 30);
  table.add("--indexer-batch-size", plan.batch_rows, "rows processed at once").minimum(1).maximum(1 << 24);
  table.add("--overwrite", plan.overwrite, "replace an existing index, complete or not");
  table.add("--json", json, "what was built as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  for (const std::string& file : files) {
    std::error_code error;
    if (plan.overwrite && std::filesystem::equivalent(std::filesystem::absolute(file).parent_path(), folder, error))
      problems.add("--embeddings ", file, " is in --embedding-path ", folder, ", whose shards --overwrite removes");
  }
  problems.raise();

  clean_up_when_interrupted(kResumes);
  plan.folder = folder;
  retrieval::EmbeddingFiles source(paths_of(files));
  const retrieval::BuildSummary summary = build_index(source, plan);
  print_build_summary(summary, json);
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
