#include "apps/options/index_options.h"

#include <algorithm>
#include <cstdio>

#include "apps/print_json.h"
#include "base/console.h"
#include "base/format.h"
#include "base/log.h"
#include "base/thread_pool.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRecallPlaces = 10;

void add_encoder_rows(OptionTable& table, EncoderOptions& encoder) {
  encoder.workers = num_usable_cores();
  table.add("--load", encoder.load, "run folder or step folder of espalier train ict, or of ict-task")
      .value_name("DIR");
  table.add("--ict-load", encoder.ict_load, "the same, under the name that upstream's scripts use").value_name("DIR");
  table.add("--ckpt-step", encoder.ckpt_step, "that step of the run instead of its newest").minimum(0);
  add_retriever_length(table, encoder);
  table.add("--workers", encoder.workers, "threads; what is computed does not depend on them")
      .alias("--num-threads")
      .minimum(1)
      .maximum(4096)
      .default_text("all cores");
}

void check_encoder(const EncoderOptions& encoder, bool needs_model, Problems& problems) {
  if (!encoder.load.empty() && !encoder.ict_load.empty())
    problems.add("--load and --ict-load both name a model; give one of them");
  if (needs_model && encoder.folder().empty())
    problems.add("--load is required: the run folder of espalier train ict, or of ict-task");
  if (const std::string why = why_too_many_threads(encoder.workers); !why.empty())
    problems.add("--workers ", encoder.workers, why);
}

void add_embed_rows(OptionTable& table, IndexEmbedOptions& options) {
  table
      .add("--evidence-data-path", options.evidence,
           "passages as DPR publishes them: a header, then number, text and title between tabs")
      .value_name("TSV")
      .required();
  table.add("--indexer-batch-size", options.plan.batch_rows, "passages embedded per batch").minimum(1).maximum(1 << 24);
  table.add("--indexer-log-interval", options.log_interval, "batches between lines of the log").minimum(1);
  table.add("--shard-rows", options.plan.shard_rows, "rows of a shard").minimum(1).maximum(1 << 30);
  table.add("--overwrite", options.plan.overwrite, "replace an existing index, complete or not");
  table.add_refused("--sample-rate", OptionTable::Takes::kOne, "the whole file is embedded; give a smaller one");
  table.add_without_effect("--block-data-path", OptionTable::Takes::kOne, "the index holds the numbers of passages");
}

void add_search_rows(OptionTable& table, retrieval::SearchPlan& plan, ProbeOptions& probes, std::string& memory) {
  table.add("--faiss-topk-retrievals", plan.count, "rows to return for each query")
      .alias("--top-k")
      .minimum(1)
      .maximum(1 << 20);
  add_search_memory(table, "--memory", memory);
  add_probe_rows(table, probes);
  table.add_without_effect("--faiss-use-gpu", OptionTable::Takes::kFlag, "Faiss searches on the CPU here");
}

Json to_json(const Queries& queries, size_t at, const std::vector<retrieval::Hit>& hits) {
  Json ids = Json::array(), scores = Json::array();
  for (const retrieval::Hit& hit : hits) {
    ids.push_back(hit.id);
    scores.push_back(hit.score);
  }
  Json json = {{"query", queries.ids[at]}};
  if (!queries.texts.empty()) json["question"] = queries.texts[at];
  json["ids"] = std::move(ids);
  json["scores"] = std::move(scores);
  return json;
}

}  // namespace

void add_retriever_length(OptionTable& table, EncoderOptions& encoder) {
  table
      .add("--retriever-seq-length", encoder.sequence_length,
           "tokens read of each text, [CLS] and [SEP] included; longer texts are cut")
      .default_text("256, or as many as the model has positions")
      .minimum(4)
      .maximum(1e6);
}

void add_search_memory(OptionTable& table, const char* name, std::string& memory) {
  table.add(name, memory, "memory for the parts of the index and the results held at once").value_name("BYTES");
}

void add_probe_rows(OptionTable& table, ProbeOptions& probes) {
  table.add("--nprobe", probes.plan.nprobe, "lists of a trained index that are read for each query; more find more")
      .default_text("what it was trained with")
      .alias("--retro-query-nprobe")
      .alias("--retro-nprobe")
      .minimum(1)
      .maximum(1 << 30);
  table.add("--ef-search", probes.plan.ef_search, "breadth of the search for these lists where they are an HNSW")
      .default_text("what it was trained with")
      .alias("--retro-query-ef-search")
      .alias("--retro-ef-search")
      .minimum(1)
      .maximum(1 << 30);
  table.add("--exact", probes.exact, "compare every row, even where the index has a trained one");
}

void add_training_rows(OptionTable& table, TrainOptions& options) {
  table
      .add("--index-str", options.plan.index_string,
           "index string of Faiss, such as IVF4096_HNSW4,Flat or OPQ64_128,IVF65536_HNSW32,PQ64, by which later "
           "searches are approximate")
      .alias("--retro-index-str")
      .value_name("STRING");
  table
      .add("--index-ntrain", options.plan.training_rows,
           "rows to train it on, drawn by a fixed seed; they are held in memory")
      .default_text("256 for each centroid, or all")
      .alias("--retro-index-ntrain")
      .minimum(1);
  table.add("--nprobe", options.plan.nprobe, "lists to read for each query, unless the search says otherwise")
      .minimum(1)
      .maximum(1 << 30)
      .alias("--retro-query-nprobe");
  table
      .add("--ef-search", options.plan.ef_search,
           "breadth of the search for these lists where they are an HNSW, unless the search says otherwise")
      .minimum(1)
      .maximum(1 << 30)
      .alias("--retro-query-ef-search");
  table
      .add("--recall-queries", options.recall_queries,
           "rows of the index for which to measure what the trained one misses; 0: none")
      .minimum(0)
      .maximum(1e6);
}

std::shared_ptr<const retrieval::TrainedIndex> open_trained(const retrieval::IndexFacts& index,
                                                            const std::string& folder, const ProbeOptions& probes) {
  const bool given = probes.plan.nprobe || probes.plan.ef_search;
  if (probes.exact && given)
    throw UserError("--nprobe and --ef-search are of an approximate search, and --exact is none; give one of them",
                    ExitCode::kUsage);
  if (probes.exact) return nullptr;
  auto trained = retrieval::open_trained_index(index, probes.plan);
  if (trained == nullptr && given)
    throw UserError(
        concat("--nprobe and --ef-search are of a trained index, and '", folder,
               "' has none: leave them out, or make one with 'espalier index train ", folder, " --index-str STRING'"),
        ExitCode::kUsage);
  if (trained != nullptr) log_info("approximate search by ", trained->name(), "; --exact compares every row");
  return trained;
}

void train_and_report(const TrainOptions& options, bool json) {
  const retrieval::TrainingSummary summary = retrieval::train_index(options.plan);
  log_info(summary.kept ? "there is " : "trained ", options.plan.index_string, ", of ",
           format_counted(summary.training_rows, "training row"), ": ", format_counted(summary.code_bytes, "byte"),
           " a row, ", format_bytes(static_cast<double>(summary.file_bytes)), " together");
  Json result = {{"index_string", options.plan.index_string},
                 {"training_rows", summary.training_rows},
                 {"code_bytes", summary.code_bytes},
                 {"file_bytes", summary.file_bytes}};
  if (options.recall_queries > 0) {
    const retrieval::IndexFacts index = retrieval::read_index(options.plan.folder);
    const int64_t count = std::min(options.recall_queries, index.rows);
    const auto trained =
        retrieval::open_trained_index(index, {.nprobe = options.plan.nprobe, .ef_search = options.plan.ef_search});
    const double recall =
        retrieval::measure_recall(index, retrieval::some_rows(index, count).data(), count,
                                  {.count = kRecallPlaces, .threads = options.plan.threads, .trained = trained});
    log_info("recall@", kRecallPlaces, " of ", trained->name(), format_printf(": %.4f", recall), " over ",
             format_counted(count, "row"), " of the index, against the exact search");
    result["recall"] = recall;
  }
  if (json) std::puts(result.dump(2).c_str());
}

void resolve_search(const std::string& name, const std::string& memory, int64_t workers, retrieval::SearchPlan& plan,
                    Problems& problems) {
  const std::optional<int64_t> bytes = parse_bytes(memory);
  if (!bytes || *bytes < 1) problems.add(name, " ", memory, ": expected an amount such as 512MiB");
  plan.memory_bytes = bytes.value_or(1);
  plan.threads = static_cast<int>(workers);
}

bool read_index_embed_options(const std::vector<std::string>& arguments, IndexEmbedOptions& options, bool says_notes) {
  std::string folder;
  OptionTable table("espalier index embed",
                    "Makes a vector of every passage with the context encoder of a retriever, and an index of them. "
                    "If interrupted, the same command resumes at the first missing shard.");
  add_encoder_rows(table, options.encoder);
  table.add("--embedding-path", folder, "folder of the index").alias("--output").value_name("DIR").required();
  table.known_elsewhere({"--input", "--passages", "--data", "--data-path"}, "--evidence-data-path");
  add_embed_rows(table, options);
  table.add("--json", options.json, "what was built as JSON on standard output");
  table.say_notes(says_notes);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  check_encoder(options.encoder, true, problems);
  problems.raise();
  options.plan.folder = folder;
  return true;
}

bool read_index_evaluate_options(const std::vector<std::string>& arguments, IndexEvaluateOptions& options,
                                 bool says_notes) {
  std::string folder, memory = "1GiB", task = "RETRIEVER-EVAL";
  OptionTable table("espalier index evaluate",
                    "How many questions find a passage with one of their answers among the first 1, 5, 20, 100: the "
                    "figures of Megatron's tasks RETRIEVER-EVAL and ICT-ZEROSHOT-NQ. If there is no index yet, it "
                    "is built from the passages first.");
  table.add("--task", task, "upstream's name of it").choices({"RETRIEVER-EVAL", "ICT-ZEROSHOT-NQ"});
  add_encoder_rows(table, options.embed.encoder);
  table.add("--embedding-path", folder, "folder of the index").value_name("DIR").required();
  table.add("--qa-data-dev", options.qa_data_dev, "a question, a tab and a Python list of its answers in every line")
      .value_name("FILE");
  table.add("--qa-data-test", options.qa_data_test, "the same, shown as TEST").value_name("FILE");
  table.add_choice("--faiss-match", options.match,
                   {{"string", retrieval::AnswerMatch::kString}, {"regex", retrieval::AnswerMatch::kRegex}},
                   "answers are words that follow each other in the passage, or regular expressions");
  table
      .add("--retriever-report-topk-accuracies", options.topk_accuracies,
           "the figures to print: questions with a hit among the first K, in percent")
      .value_name("K")
      .minimum(1);
  add_search_rows(table, options.search, options.probes, memory);
  add_embed_rows(table, options.embed);
  table.add("--json", options.json, "the figures as JSON on standard output");
  table.say_notes(says_notes);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  check_encoder(options.embed.encoder, true, problems);
  resolve_search("--memory", memory, options.embed.encoder.workers, options.search, problems);
  if (options.qa_data_dev.empty() && options.qa_data_test.empty())
    problems.add("--qa-data-dev or --qa-data-test is required: the questions");
  const bool given = table.find("--retriever-report-topk-accuracies")->given();
  if (!given) std::erase_if(options.topk_accuracies, [&](int64_t k) { return k > options.search.count; });
  for (const int64_t k : options.topk_accuracies)
    if (k > options.search.count)
      problems.add("--retriever-report-topk-accuracies ", k, " is more than --faiss-topk-retrievals ",
                   options.search.count, "; ask for ", k, " or more");
  problems.raise();
  options.embed.plan.folder = folder;
  return true;
}

bool read_index_search_options(const std::vector<std::string>& arguments, IndexSearchOptions& options,
                               bool says_notes) {
  std::vector<std::string> words;
  std::string memory = "1GiB";
  OptionTable table("espalier index search",
                    "Finds the rows with the greatest inner products: exactly, unless the index has a trained one "
                    "('espalier index train'), and the same for any number of threads; of equal ones the lowest id "
                    "comes first.");
  table.positional("DIR", words, "the index", 1, 1);
  table.known_elsewhere({"--query", "--text", "--prompt"}, "--question, with --load");
  table
      .add("--queries", options.queries,
           "safetensors files with embeddings (F32 [n, d]) and, if not 0 to n - 1, ids (I64 [n])")
      .value_name("FILE");
  table.add("--question", options.question, "questions as text, with --load").value_name("TEXT");
  table.add("--questions", options.questions, "the same, one in each line of a file").value_name("FILE");
  add_encoder_rows(table, options.encoder);
  add_search_rows(table, options.plan, options.probes, memory);
  table.add("--json", options.json, "one line for each query: its id, the ids found, their inner products");
  table.say_notes(says_notes);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  const int kinds = !options.queries.empty() + !options.question.empty() + !options.questions.empty();
  if (kinds == 0) problems.add("one of --queries, --question and --questions is required: what to look for");
  if (kinds > 1) problems.add("--queries, --question and --questions exclude each other; give one");
  check_encoder(options.encoder, kinds == 1 && options.queries.empty(), problems);
  if (kinds == 1 && !options.queries.empty() && !options.encoder.folder().empty())
    problems.add("--load reads questions, and --queries are vectors already; give --question or --questions");
  resolve_search("--memory", memory, options.encoder.workers, options.plan, problems);
  problems.raise();
  options.folder = words.front();
  return true;
}

void search_and_print(const IndexSearchOptions& options, const retrieval::IndexFacts& index, const Queries& queries) {
  retrieval::SearchPlan plan = options.plan;
  plan.trained = open_trained(index, options.folder, options.probes);
  const auto found = search(index, queries.rows.data(), static_cast<int64_t>(queries.ids.size()), plan);
  for (size_t at = 0; at < found.size(); ++at) {
    if (options.json) {
      print_json(to_json(queries, at, found[at]));
      continue;
    }
    if (queries.texts.empty())
      std::printf("query %lld\n", static_cast<long long>(queries.ids[at]));
    else
      std::printf("%s\n", queries.texts[at].c_str());
    for (const retrieval::Hit& hit : found[at])
      std::printf("  %12lld  %.6f\n", static_cast<long long>(hit.id), hit.score);
  }
}

void print_build_summary(const retrieval::BuildSummary& summary, bool json) {
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
}

}  // namespace espalier
