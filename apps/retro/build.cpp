// espalier retro build: from token files to the neighbours of every sample of a run.
#include <algorithm>
#include <cstdio>

#include "apps/print_json.h"
#include "apps/retro/commands.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pending_tree.h"
#include "base/thread_pool.h"
#include "retrieval/chunk_embeddings.h"
#include "retrieval/embedding_files.h"
#include "retrieval/neighbors.h"
#include "retrieval/trained_index.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct RetroBuild {
  config::RunConfig config;
  std::string tasks = "build", memory = "1GiB";
  std::vector<std::string> of_chunks, of_train, of_valid, of_test;  // embeddings of another program
  int64_t dimension = 1024, shard_rows = 1 << 18, workers = 1, memory_bytes = 0, recall_queries = 100;
  retrieval::TrainingPlan training;  // without an index string the search is exact
  retrieval::NeighborPlan neighbors;
  bool overwrite = false, json = false;
  bool chunks = false, index = false, query = false;  // of the tasks

  fs::path workdir() const { return config.model.as<families::RetroSettings>().workdir; }
  fs::path index_folder() const { return workdir() / "index"; }
  bool is_exact() const { return retrieval::is_exact(training.index_string); }
};

// As upstream's program and its examples spell them.
void add_rows_without_effect(OptionTable& table) {
  using Takes = OptionTable::Takes;
  const auto add = [&](Takes takes, const char* why, std::initializer_list<const char*> names) {
    for (const char* name : names) table.add_without_effect(name, takes, why);
  };
  add(Takes::kOne, "rows are added by all threads at once, with the same result for any number of them",
      {"--retro-index-type", "--retro-index-ty"});
  add(Takes::kOne, "all rows are loaded", {"--retro-index-train-load-fraction", "--retro-index-add-load-fraction"});
  add(Takes::kOne, "the training rows are read at once", {"--retro-index-train-block-size"});
  add(Takes::kFlag, "nothing is left over that could be deleted",
      {"--retro-index-no-delete-training-embeddings", "--no-retro-index-delete-training-embeddings",
       "--retro-index-no-delete-added-codes", "--no-retro-index-delete-added-codes"});
  add(Takes::kOne, "vectors come from n-grams, or from --embeddings-of-chunks",
      {"--retro-bert-vocab-file", "--retro-bert-tokenizer-type", "--retro-bert-batch-size",
       "--retro-bert-max-chunk-length"});
  add(Takes::kOne, "documents are not written again in blocks", {"--retro-doc-block-size"});
  add(Takes::kOne, "--retro-num-neighbors says how many are read", {"--retro-nnbrs-pretraining"});
}

void add_index_string_rows(OptionTable& table, RetroBuild& build) {
  const auto add = [&](const char* name, auto& value, const std::string& help) -> Option& {
    return table.add(name, value, help).not_in_recipe();
  };
  add("--retro-index-str", build.training.index_string,
      "index string of Faiss by which neighbours are found, such as IVF4096_HNSW4,Flat: faster, and not all of the "
      "nearest. Flat: every chunk is compared")
      .value_name("STRING")
      .default_text("Flat")
      .common();
  add("--retro-index-ntrain", build.training.training_rows,
      "chunks to train it on, drawn by a fixed seed; they are held in memory")
      .default_text("256 for each centroid, or all")
      .minimum(1)
      .alias("--retro-nchunks-sampled");
  add("--retro-query-nprobe", build.training.nprobe, "lists of that index that are read for each chunk")
      .minimum(1)
      .maximum(1 << 30)
      .alias("--retro-nprobe");
  add("--retro-query-ef-search", build.training.ef_search,
      "breadth of the search for these lists where they are an HNSW")
      .minimum(1)
      .maximum(1 << 30)
      .alias("--retro-ef-search");
  add("--recall-queries", build.recall_queries,
      "chunks of each set for which to measure what that index misses; 0: none")
      .minimum(0)
      .maximum(1e6);
}

void add_build_rows(OptionTable& table, RetroBuild& build) {
  table.group("chunks, index and neighbours");
  const auto add = [&](const char* name, auto& value, const std::string& help) -> Option& {
    return table.add(name, value, help).not_in_recipe().common();
  };
  add("--retro-tasks", build.tasks,
      "build, or a list of db-build, index-build, query-pretraining-neighbors, separated by commas")
      .value_name("TASKS");
  add("--retro-index-nfeats", build.dimension, "length of a chunk's vector, made from the n-grams of its tokens")
      .minimum(1)
      .maximum(1 << 20)
      .alias("--retro-nfeats");
  const auto add_files = [&](const std::string& set, std::vector<std::string>& files, const std::string& ids) {
    add(("--embeddings-of-" + set).c_str(), files,
        concat("vectors of your own encoder instead: safetensors files with embeddings (F32 [n, d]) and ids (I64 "
               "[n]), ",
               ids))
        .value_name("FILE");
  };
  add_files("chunks", build.of_chunks, "the numbers of the chunks");
  for (auto& [set, files] : {std::pair<const char*, std::vector<std::string>*>{"train", &build.of_train},
                             {"valid", &build.of_valid},
                             {"test", &build.of_test}})
    add_files(set, *files, "number of the sample * chunks of a sample + number of the chunk in it");
  add("--shard-rows", build.shard_rows, "rows of a shard of the index").minimum(1).maximum(1 << 30);
  add_index_string_rows(table, build);
  add("--retro-query-num-neighbors-query", build.neighbors.num_asked,
      "chunks to look for at first; more where too few remain without the sample's own documents")
      .minimum(1)
      .maximum(1 << 20)
      .alias("--retro-num-neighbors-query")
      .alias("--retro-nnbrs-query");
  add("--retro-query-num-neighbors-save", build.neighbors.num_saved, "neighbours kept of each chunk")
      .minimum(1)
      .maximum(1 << 16)
      .alias("--retro-num-neighbors-target")
      .alias("--retro-nnbrs-target");
  add("--retro-block-size", build.neighbors.block_chunks, "chunks of samples whose neighbours are saved at once")
      .minimum(1)
      .maximum(1e9);
  add("--memory", build.memory, "memory for the parts of the index and the results held at once").value_name("BYTES");
  add("--workers", build.workers, "threads").minimum(1).maximum(4096).default_text("all cores");
  add("--overwrite", build.overwrite, "replace what was built from something else, complete or not");
  add("--json", build.json, "what was built as JSON on standard output");
  add_rows_without_effect(table);
}

void check_build(RetroBuild& build, Problems& problems) {
  const std::vector<std::string> words = split(build.tasks, ',');
  for (const std::string& word : words) {
    const std::string task = strip(word);
    const bool all = task == "build";
    build.chunks = build.chunks || all || task == "db-build";
    build.index = build.index || all || task == "index-build" || task == "index-train" || task == "index-add";
    build.query = build.query || all || task == "query-pretraining-neighbors" || task == "pretraining-query-neighbors";
  }
  if (!build.chunks && !build.index && !build.query)
    problems.add("--retro-tasks ", build.tasks,
                 ": expected build, or some of db-build, index-build, query-pretraining-neighbors");
  const std::optional<int64_t> bytes = parse_bytes(build.memory);
  if (!bytes || *bytes < 1) problems.add("--memory ", build.memory, ": expected an amount such as 512MiB");
  build.memory_bytes = bytes.value_or(0);
  if (const std::string why = why_too_many_threads(build.workers); !why.empty())
    problems.add("--workers ", build.workers, why);
  const auto wanted = build.config.model.as<families::RetroSettings>().shape.num_neighbors;
  if (build.neighbors.num_saved < wanted)
    problems.add("--retro-query-num-neighbors-save ", build.neighbors.num_saved, " is below --retro-num-neighbors ",
                 wanted, ", which the model reads; use ", wanted, " or more");
  if (!build.is_exact() && build.of_chunks.empty()) {
    const std::string problem =
        retrieval::index_string_problem(build.training.index_string, build.dimension, {}, build.training.training_rows);
    if (!problem.empty()) problems.add("--retro-index-str: ", problem);
  }
  if (build.of_chunks.empty() && !(build.of_train.empty() && build.of_valid.empty() && build.of_test.empty()))
    problems.add(
        "vectors of samples are searched among those of chunks by the same encoder: give "
        "--embeddings-of-chunks as well");
}

// Every document that is trained on.
std::vector<retrieval::ChunkPart> parts_of(const data::GptDataset& train) {
  std::vector<retrieval::ChunkPart> parts;
  for (const data::GptDataset::Part& part : train.parts()) {
    const auto is_same = [&](const retrieval::ChunkPart& other) {
      return other.prefix == part.store->prefix() && other.documents == part.documents;
    };
    if (std::none_of(parts.begin(), parts.end(), is_same)) parts.push_back({part.store->prefix(), part.documents});
  }
  return parts;
}

std::vector<fs::path> as_paths(const std::vector<std::string>& files) { return {files.begin(), files.end()}; }

// Vectors that another program made of the chunks.
class GivenEmbeddings final : public retrieval::EmbeddingFiles {
 public:
  GivenEmbeddings(const std::vector<std::string>& files, const retrieval::ChunkDatabase& chunks)
      : EmbeddingFiles(as_paths(files)), chunks_(chunks) {
    std::vector<bool> is_there(static_cast<size_t>(chunks.size()), false);
    for (const int64_t id : ids())
      if (id >= 0 && id < chunks.size()) is_there[static_cast<size_t>(id)] = true;
    if (static_cast<int64_t>(ids().size()) != chunks.size() ||
        std::find(is_there.begin(), is_there.end(), false) != is_there.end())
      throw UserError(concat("--embeddings-of-chunks has ", ids().size(), " vectors; expected one for each of the ",
                             chunks.size(), " chunks, with ids from 0 to ", chunks.size() - 1),
                      ExitCode::kBadData);
  }
  retrieval::EmbeddingOrigin origin() const override {
    retrieval::EmbeddingOrigin origin = EmbeddingFiles::origin();
    origin.texts += " of chunks " + hex64(chunks_.checksum());
    return origin;
  }

 private:
  const retrieval::ChunkDatabase& chunks_;
};

std::unique_ptr<retrieval::EmbeddingSource> vectors_of_chunks(const RetroBuild& build,
                                                              const retrieval::ChunkDatabase& chunks,
                                                              const retrieval::NgramEmbedder& embedder) {
  if (!build.of_chunks.empty()) return std::make_unique<GivenEmbeddings>(build.of_chunks, chunks);
  return std::make_unique<retrieval::ChunkEmbeddings>(chunks, embedder, static_cast<int>(build.workers));
}

// By the index string that is asked for; null: exact. What is there by another is refused.
std::shared_ptr<const retrieval::TrainedIndex> trained_index_of(const RetroBuild& build,
                                                                const retrieval::IndexFacts& index, Json& result) {
  const fs::path folder = build.index_folder();
  if (build.is_exact()) {
    const std::optional<std::string> there = retrieval::trained_index_string(folder);
    if (!there) return nullptr;
    throw UserError(concat("'", folder.string(), "' has a trained index, ", *there,
                           ", by which texts are continued too: give --retro-index-str ", *there,
                           ", or --overwrite to build all of it without"),
                    ExitCode::kCannotCreate);
  }
  retrieval::TrainingPlan plan = build.training;
  plan.folder = folder;
  plan.threads = static_cast<int>(build.workers);
  if (build.index) {
    const retrieval::TrainingSummary made = retrieval::train_index(plan);
    result["trained"] = {
        {"index_string", plan.index_string}, {"training_rows", made.training_rows}, {"code_bytes", made.code_bytes}};
    log_info(made.kept ? "there is " : "trained ", plan.index_string, ", of ",
             format_counted(made.training_rows, "training row"), ": ", format_counted(made.code_bytes, "byte"),
             " a chunk");
  }
  auto trained = retrieval::open_trained_index(index, {.nprobe = plan.nprobe, .ef_search = plan.ef_search});
  if (trained == nullptr || trained->index_string() != plan.index_string)
    throw UserError(concat("'", folder.string(), "' has ",
                           trained == nullptr ? "no trained index" : "a trained index " + trained->index_string(),
                           ", and --retro-index-str is ", plan.index_string,
                           "; --retro-tasks index-build makes it, with --overwrite instead of another"),
                    ExitCode::kMissingInput);
  return trained;
}

// That which is there has to be of the same chunks and vectors.
retrieval::IndexFacts index_of(const RetroBuild& build, retrieval::EmbeddingSource& vectors, Json& result) {
  if (build.index && (build.overwrite || !retrieval::has_index(build.index_folder()))) {
    const retrieval::BuildSummary index = retrieval::build_index(
        vectors, {.folder = build.index_folder(), .shard_rows = build.shard_rows, .overwrite = build.overwrite});
    result["index"] = {{"rows", index.rows}, {"dimension", index.dimension}, {"shards", index.shards}};
    log_info("indexed ", format_counted(index.rows, "chunk"), " in ", format_counted(index.shards, "shard"));
  }
  if (build.index) retrieval::tidy_index(build.index_folder());
  retrieval::IndexFacts facts = retrieval::read_index(build.index_folder());
  const retrieval::EmbeddingOrigin wanted = vectors.origin();
  const auto shown = [](const retrieval::EmbeddingOrigin& origin) {
    return concat("'", origin.encoder.empty() ? "unknown encoder" : origin.encoder, "', '",
                  origin.texts.empty() ? "unknown texts" : origin.texts, "'");
  };
  if (facts.origin != wanted)
    throw UserError(
        concat("the index '", build.index_folder().string(), "' is of other chunks or vectors: it was made ", "from ",
               shown(facts.origin), ", expected ", shown(wanted), ". --overwrite makes it anew"),
        ExitCode::kBadData);
  return facts;
}

// Of the n-grams of chunks as they stand in samples.
retrieval::QuerySource ngram_queries(const data::GptDataset& samples, const retrieval::NgramEmbedder& embedder,
                                     int64_t chunk_length, int threads) {
  return {.name = embedder.name(), .read = [&, chunk_length, threads](int64_t first, int64_t count, float* rows) {
            const int64_t chunks = samples.sequence_length() / chunk_length;
            retrieval::in_parallel(count, threads, [&](int64_t sample) {
              std::vector<int64_t> ids(static_cast<size_t>(samples.sequence_length()) + 1);
              samples.sample(first + sample, ids);
              for (int64_t chunk = 0; chunk < chunks; ++chunk)
                embedder.embed({ids.data() + chunk * chunk_length, static_cast<size_t>(chunk_length)},
                               rows + (sample * chunks + chunk) * embedder.dimension());
            });
          }};
}

// Vectors of another program, in any order.
retrieval::QuerySource file_queries(const std::vector<std::string>& files, const std::string& set, int64_t chunks,
                                    int64_t num_rows, int64_t dimension) {
  const auto source = std::make_shared<retrieval::EmbeddingFiles>(as_paths(files));
  const auto row_of = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(num_rows), -1);
  for (size_t row = 0; row < source->ids().size(); ++row) {
    const int64_t id = source->ids()[row];
    if (id >= 0 && id < num_rows) (*row_of)[static_cast<size_t>(id)] = static_cast<int64_t>(row);
  }
  const auto missing = std::find(row_of->begin(), row_of->end(), -1);
  if (source->dimension() != dimension || missing != row_of->end())
    throw UserError(
        concat("--embeddings-of-", set, ": expected vectors of ", dimension, " numbers with ids 0 to ", num_rows - 1,
               ", one for each chunk of each sample; found vectors of ", source->dimension(),
               missing == row_of->end() ? std::string() : concat(", and none with id ", missing - row_of->begin())),
        ExitCode::kBadData);
  return {.name = "files " + source->fingerprint(),
          .read = [source, row_of, chunks, dimension](int64_t first, int64_t count, float* rows) {
            for (int64_t query = 0; query < count * chunks; ++query)
              source->read((*row_of)[static_cast<size_t>(first * chunks + query)], 1, rows + query * dimension);
          }};
}

struct Querying {
  const RetroBuild& build;
  const retrieval::ChunkDatabase& chunks;
  const retrieval::NgramEmbedder& embedder;
  retrieval::IndexFacts index;
  std::shared_ptr<const retrieval::TrainedIndex> trained;

  Json find(const data::GptDataset& samples, const std::string& kind, const std::vector<std::string>& files) const {
    retrieval::NeighborPlan plan = build.neighbors;
    plan.folder = retrieval::neighbor_folder(build.workdir(), kind, samples.name());
    plan.memory_bytes = build.memory_bytes;
    plan.threads = static_cast<int>(build.workers);
    plan.overwrite = build.overwrite;
    plan.trained = trained;
    const int64_t of_sample = samples.sequence_length() / chunks.chunk_length();
    if (!build.of_chunks.empty() && files.empty())
      throw UserError(concat("the index was built from --embeddings-of-chunks: give --embeddings-of-", kind,
                             " of the same encoder"),
                      ExitCode::kUsage);
    const retrieval::QuerySource queries =
        files.empty() ? ngram_queries(samples, embedder, chunks.chunk_length(), plan.threads)
                      : file_queries(files, kind, of_sample, samples.size() * of_sample, index.dimension);
    const retrieval::NeighborSummary found = find_neighbors(plan, chunks, index, samples, queries);
    log_info("neighbours of ", format_counted(found.samples, "sample"), " of ", samples.name(), " in ",
             format_counted(found.blocks, "block"),
             found.blocks_kept > 0 ? concat(", ", found.blocks_kept, " of which existed") : "");
    if (found.missing > 0)
      log_warning(found.missing, " neighbours are missing: ",
                  trained != nullptr
                      ? "the lists that were read, or the other documents, have too few chunks; a larger "
                        "--retro-query-nprobe reads more"
                      : "the other documents of the database have too few chunks");
    Json json = {{"set", samples.name()},
                 {"samples", found.samples},
                 {"blocks", found.blocks},
                 {"blocks_kept", found.blocks_kept},
                 {"missing", found.missing}};
    if (trained != nullptr && found.blocks > found.blocks_kept) report_recall(samples, queries, of_sample, json);
    return json;
  }

  // How many of the nearest chunks are found, the sample's own documents included.
  void report_recall(const data::GptDataset& samples, const retrieval::QuerySource& queries, int64_t of_sample,
                     Json& json) const {
    const int64_t count = std::min(samples.size(), (build.recall_queries + of_sample - 1) / of_sample);
    if (count == 0) return;
    std::vector<float> rows(static_cast<size_t>(count * of_sample * index.dimension));
    queries.read(0, count, rows.data());
    const double recall = retrieval::measure_recall(index, rows.data(), count * of_sample,
                                                    {.count = build.neighbors.num_saved,
                                                     .memory_bytes = build.memory_bytes,
                                                     .threads = static_cast<int>(build.workers),
                                                     .trained = trained});
    log_info("recall@", build.neighbors.num_saved, " of ", trained->name(), format_printf(": %.4f", recall), " over ",
             format_counted(count * of_sample, "chunk"), " of ", samples.name(), ", against the exact search");
    json["recall"] = recall;
  }
};

void print_built(const Json& result, const RetroBuild& build) {
  if (build.json) std::puts(result.dump(2).c_str());
}

Json run_tasks(const RetroBuild& build) {
  const families::RetroSettings& settings = build.config.model.as<families::RetroSettings>();
  const data::DataSetOptions options = families::retro_data_sets(config::data_sets(build.config), build.config);
  const data::GptDataSets sets = data::GptDataSets::open(options);
  Json result;
  if (build.chunks) {
    const int64_t chunks = retrieval::build_chunks({.folder = build.workdir(),
                                                    .chunk_length = settings.shape.chunk_length,
                                                    .end_of_document = end_of_document(build.config),
                                                    .parts = parts_of(*sets.train),
                                                    .threads = static_cast<int>(build.workers),
                                                    .overwrite = build.overwrite});
    result["chunks"] = chunks;
    log_info(format_counted(chunks, "chunk"), " of up to ", settings.shape.chunk_length, " tokens");
  }
  if (!build.index && !build.query) return result;
  const retrieval::ChunkDatabase chunks(build.workdir());
  const retrieval::NgramEmbedder embedder(build.dimension);
  const std::unique_ptr<retrieval::EmbeddingSource> vectors = vectors_of_chunks(build, chunks, embedder);
  check_index_string(build.training, *vectors, "--retro-index-str");  // before any is embedded
  const retrieval::IndexFacts index = index_of(build, *vectors, result);
  const Querying querying{build, chunks, embedder, index, trained_index_of(build, index, result)};
  if (!build.query) return result;
  result["neighbors"] = Json::array();
  result["neighbors"].push_back(querying.find(*sets.train, "train", build.of_train));
  if (options.valid_samples > 0)
    for (const auto& set : sets.valid) result["neighbors"].push_back(querying.find(*set, "valid", build.of_valid));
  if (options.test_samples > 0)
    for (const auto& set : sets.test) result["neighbors"].push_back(querying.find(*set, "test", build.of_test));
  return result;
}

}  // namespace

int retro_build_main(const std::vector<std::string>& arguments) {
  RetroBuild build;
  build.workers = num_usable_cores();
  OptionTable table("espalier retro build",
                    "Cuts the documents that a run trains on into chunks, puts these into an index, and finds for each "
                    "chunk of each sample of the run its neighbours in other documents. Takes the flags of 'espalier "
                    "train retro'. If interrupted, the same command resumes where it was.");
  Problems problems;
  if (!read_retro_flags(
          arguments, table, build.config, [&](OptionTable& rows) { add_build_rows(rows, build); }, problems))
    return 0;
  check_build(build, problems);
  problems.raise();
  clean_up_when_interrupted(kResumes);
  const Json result = run_tasks(build);
  print_built(result, build);
  return 0;
}

}  // namespace espalier
