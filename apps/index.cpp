// espalier index: vectors of passages, and which of them are nearest to a question's.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "base/thread_pool.h"
#include "index_commands.h"
#include "retrieval/embedding_files.h"
#include "retrieval/search.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::filesystem::path> paths_of(const std::vector<std::string>& files) {
  return {files.begin(), files.end()};
}

struct Queries {
  std::vector<float> rows;
  std::vector<int64_t> ids;
};

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

Json to_json(int64_t query, const std::vector<retrieval::Hit>& hits) {
  Json ids = Json::array(), scores = Json::array();
  for (const retrieval::Hit& hit : hits) {
    ids.push_back(hit.id);
    scores.push_back(hit.score);
  }
  return {{"query", query}, {"ids", std::move(ids)}, {"scores", std::move(scores)}};
}

}  // namespace

const std::vector<Command>& index_commands() {
  static const std::vector<Command> list = {
      {"build", "an index of embeddings: index build --embeddings F... --embedding-path DIR", index_build_main},
      {"search", "the rows nearest to queries: index search DIR --queries F...", index_search_main},
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
  problems.raise();

  clean_up_when_interrupted();
  plan.folder = folder;
  retrieval::EmbeddingFiles source(paths_of(files));
  const retrieval::BuildSummary summary = build_index(source, plan);
  log_info("indexed ", format_counted(summary.rows, "row"), " of ", format_counted(summary.dimension, "number"), " in ",
           format_counted(summary.shards, "shard"),
           summary.shards_kept > 0 ? concat(", ", summary.shards_kept, " of which existed") : "");
  if (json)
    std::puts(Json({{"rows", summary.rows},
                    {"dimension", summary.dimension},
                    {"shards", summary.shards},
                    {"shards_kept", summary.shards_kept},
                    {"seconds", summary.seconds}})
                  .dump(2)
                  .c_str());
  return 0;
}

int index_search_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> words, files;
  std::string memory = "1GiB";
  int64_t workers = num_usable_cores();
  retrieval::SearchPlan plan{.count = 10};
  bool json = false;
  OptionTable table("espalier index search",
                    "Finds the rows with the greatest inner products: exactly, and the same for any number of shards "
                    "and threads; of equal ones the lowest id comes first.");
  table.positional("DIR", words, "the index", 1, 1);
  table.add("--queries", files, "safetensors files with embeddings (F32 [n, d]) and, if not 0 to n - 1, ids (I64 [n])")
      .value_name("FILE")
      .required();
  table.add("--faiss-topk-retrievals", plan.count, "how many rows for each query")
      .alias("--top-k")
      .minimum(1)
      .maximum(1 << 20);
  table.add("--memory", memory, "what may be held of the index and of what is found in it").value_name("BYTES");
  table.add("--workers", workers, "threads").minimum(1).maximum(4096).default_text("all cores");
  table.add("--json", json, "one line for each query: its id, the ids found, their inner products");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  const std::optional<int64_t> bytes = parse_bytes(memory);
  if (!bytes || *bytes < 1) problems.add("--memory ", memory, ": expected an amount such as 512MiB");
  if (const std::string why = why_too_many_threads(workers); !why.empty()) problems.add("--workers ", workers, why);
  problems.raise();
  plan.memory_bytes = *bytes;
  plan.threads = static_cast<int>(workers);

  const retrieval::IndexFacts index = retrieval::read_index(words.front());
  const Queries queries = read_queries(files, index, words.front());
  const auto found = search(index, queries.rows.data(), static_cast<int64_t>(queries.ids.size()), plan);
  for (size_t at = 0; at < found.size(); ++at) {
    if (json) {
      std::puts(to_json(queries.ids[at], found[at]).dump().c_str());
      continue;
    }
    std::printf("query %lld\n", static_cast<long long>(queries.ids[at]));
    for (const retrieval::Hit& hit : found[at])
      std::printf("  %12lld  %.6f\n", static_cast<long long>(hit.id), hit.score);
  }
  return 0;
}

}  // namespace espalier
