#include "retrieval/trained_index.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/progress.h"
#include "retrieval/chunk_embeddings.h"
#include "retrieval/internal/inner_product.h"
#include "retrieval/internal/shard_rows.h"
#include "retrieval/internal/trained_files.h"
#include "retrieval/search_plugin.h"

namespace espalier::retrieval {
namespace {

namespace fs = std::filesystem;
using internal::TrainedJson;

constexpr int64_t kQueriesOfReport = 256;  // between two reports of progress
// Beyond the rows wanted, where codes hold the rows' numbers: enough for what fp32 misplaces. Other codes misplace
// more.
constexpr int64_t kSpareOfTrained = 16, kCandidatesOfLossyCodes = 4;

}  // namespace

namespace internal {

std::string rows_checksum(const IndexFacts& index) {
  Hasher hasher;
  for (const Shard& shard : index.shards) {
    hasher.update(&shard.rows, sizeof shard.rows);
    hasher.update(&shard.checksum, sizeof shard.checksum);
  }
  return hex64(hasher.digest());
}

uint64_t file_checksum(const std::filesystem::path& path) {
  const MappedFile file(path);
  Progress progress("reading " + path.filename().string(), static_cast<int64_t>(file.size()), Progress::Unit::kBytes);
  constexpr size_t kAtOnce = 64U << 20;
  Hasher hasher;
  for (size_t begin = 0; begin < file.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, file.size() - begin);
    hasher.update(file.data() + begin, count);
    progress.advance(static_cast<int64_t>(count));
  }
  progress.finish();
  return hasher.digest();
}

}  // namespace internal

std::optional<std::string> trained_index_string(const std::filesystem::path& folder) {
  for (const fs::path& path : {internal::trained_json(folder), internal::training_json(folder)})
    if (fs::exists(path))
      return parse_json<TrainedJson>(read_file(path), path.string()).value("index_string", std::string("?"));
  return std::nullopt;
}

std::shared_ptr<const TrainedIndex> open_trained_index(const IndexFacts& index, const ProbePlan& probes) {
  if (!trained_index_string(index.shards.front().path.parent_path())) return nullptr;
  return std::make_shared<const TrainedIndex>(index, probes);
}

TrainedIndex::TrainedIndex(const IndexFacts& index, const ProbePlan& probes)
    : rows_(index.rows),
      dimension_(index.dimension),
      shards_(std::make_unique<internal::ShardRows>(index)),
      index_(nullptr, Close{&load_search_plugin()}) {
  const fs::path folder = index.shards.front().path.parent_path(), path = internal::trained_json(folder);
  if (!fs::exists(path))
    throw UserError(
        concat("the trained index of '", folder.string(),
               "' is not complete: the command that began it continues it; 'espalier index search --exact' ",
               "does without it"),
        ExitCode::kMissingInput);
  const TrainedJson json = parse_json<TrainedJson>(read_file(path), path.string());
  int64_t nprobe = 0, ef_search = 0, training_rows = 0;
  std::string shards, checksum;
  read_fields(concat("'", path.string(), "' describes no trained index"), [&] {
    if (const auto format = json.at("format").get<int64_t>(); format != internal::kTrainedFormat)
      throw UserError(
          concat("'", path.string(), "' has format ", format, "; this program reads ", internal::kTrainedFormat),
          ExitCode::kBadData);
    index_string_ = json.at("index_string").get<std::string>();
    training_rows = json.at("training_rows").get<int64_t>();
    shards = json.at("shards").get<std::string>();
    nprobe = probes.nprobe.value_or(json.at("nprobe").get<int64_t>());
    ef_search = probes.ef_search.value_or(json.at("ef_search").get<int64_t>());
    checksum = json.at("xxh3").get<std::string>();
  });
  if (shards != internal::rows_checksum(index))
    throw UserError(concat("'", path.string(), "' was trained on other rows than those of the shards beside it; ",
                           "'espalier index train --overwrite' trains it again"),
                    ExitCode::kBadData);
  const fs::path file = internal::trained_file(folder);
  if (const std::string found = hex64(internal::file_checksum(file)); found != checksum)
    throw UserError(concat("'", file.string(), "' has changed since it was built: its checksum is ", found,
                           ", trained.json says ", checksum, ". 'espalier index train --overwrite' builds it again"),
                    ExitCode::kBadData);
  const SearchTable& table = load_search_plugin();
  FaissIndex* opened = nullptr;
  char error[512] = "";
  if (!table.open(file.c_str(), /*maps=*/true, &opened, error, sizeof error))
    throw UserError(concat("cannot open '", file.string(), "': ", error), ExitCode::kBadData);
  index_.reset(opened);
  int64_t rows = 0;
  table.shape(*opened, shape_, rows);
  if (rows != rows_)
    throw UserError(concat("'", file.string(), "' has ", rows, " rows, the shards beside it ", rows_,
                           "; 'espalier index train --overwrite' builds it again"),
                    ExitCode::kBadData);
  table.set_probes(*opened, nprobe, ef_search);
  name_ = concat(index_string_, " of ", format_counted(training_rows, "training row"));
  if (shape_.num_lists > 0) name_ += concat(", nprobe ", std::min(nprobe, shape_.num_lists));
  if (index_string_.find("HNSW") != std::string::npos) name_ += concat(", efSearch ", ef_search);
}

TrainedIndex::~TrainedIndex() = default;

std::vector<Hit> TrainedIndex::rank(const float* query, const int64_t* numbers, int64_t count, int64_t wanted) const {
  std::vector<Hit> hits;
  for (const int64_t number : std::span(numbers, static_cast<size_t>(count))) {
    if (number < 0) continue;
    ESPALIER_CHECK(number < rows_, number);
    hits.push_back({shards_->id(number), internal::inner_product(query, shards_->row(number), dimension_)});
  }
  std::sort(hits.begin(), hits.end(), internal::better);
  // A copy of its size: of many queries the room of the other candidates would be several times that.
  return {hits.begin(), hits.begin() + std::min(static_cast<int64_t>(hits.size()), wanted)};
}

std::vector<std::vector<Hit>> TrainedIndex::find(const float* queries, int64_t num_queries,
                                                 const SearchPlan& plan) const {
  const int64_t wanted = std::min(plan.count, rows_);
  const int64_t more = wanted * (shape_.is_lossless ? 1 : kCandidatesOfLossyCodes);
  const int64_t candidates = std::min(rows_, std::max(more, wanted + kSpareOfTrained));
  std::vector<std::vector<Hit>> found(static_cast<size_t>(num_queries));
  std::vector<int64_t> numbers;
  std::unique_ptr<Progress> progress;  // where the caller shows none
  if (!plan.on_progress)
    progress = std::make_unique<Progress>("index search", num_queries, Progress::Unit::kItems, "queries");
  for (int64_t first = 0; first < num_queries; first += kQueriesOfReport) {
    const int64_t count = std::min(kQueriesOfReport, num_queries - first);
    numbers.assign(static_cast<size_t>(count * candidates), -1);
    char error[512] = "";
    if (!load_search_plugin().search(*index_, queries + first * dimension_, count, candidates, plan.threads,
                                     numbers.data(), error, sizeof error))
      throw UserError(concat("the search failed: ", error));
    in_parallel(count, plan.threads, [&](int64_t query) {
      found[static_cast<size_t>(first + query)] =
          rank(queries + (first + query) * dimension_, numbers.data() + query * candidates, candidates, wanted);
    });
    if (progress)
      progress->advance(count);
    else
      plan.on_progress(static_cast<double>(first + count) / static_cast<double>(num_queries));
  }
  if (progress) progress->finish();
  return found;
}

std::vector<float> some_rows(const IndexFacts& index, int64_t count) {
  const internal::ShardRows all(index);
  std::vector<float> rows(static_cast<size_t>(count * index.dimension));
  for (int64_t taken = 0; taken < count; ++taken)
    std::copy_n(all.row(taken * index.rows / count), index.dimension, rows.data() + taken * index.dimension);
  return rows;
}

double measure_recall(const IndexFacts& index, const float* queries, int64_t num_queries, const SearchPlan& plan,
                      const std::vector<std::vector<Hit>>* found) {
  SearchPlan plan_of_exact = plan;
  plan_of_exact.trained = nullptr;
  const auto exact = search(index, queries, num_queries, plan_of_exact);
  const auto searched = found != nullptr ? std::vector<std::vector<Hit>>() : search(index, queries, num_queries, plan);
  const std::vector<std::vector<Hit>>& approximate = found != nullptr ? *found : searched;
  int64_t hits = 0, all = 0;
  for (size_t query = 0; query < exact.size(); ++query) {
    // Of equal rows any will do: what counts is how near a row is.
    const double worst = exact[query].back().score;
    all += static_cast<int64_t>(exact[query].size());
    hits += std::count_if(approximate[query].begin(), approximate[query].end(),
                          [&](const Hit& hit) { return hit.score >= worst; });
  }
  return all == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(all);
}

}  // namespace espalier::retrieval
