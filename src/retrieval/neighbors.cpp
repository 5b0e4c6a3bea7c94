#include "retrieval/neighbors.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "retrieval/internal/array_file.h"
#include "retrieval/trained_index.h"

namespace espalier::retrieval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kNeighborFormat = 1;
constexpr const char* kNeighbors = "neighbors";
constexpr const char* kSearchedBy = "search";  // where it was not exact
// How a set is read is up to the run; only how its samples are numbered is compared.
constexpr const char* kReading = "by number";

fs::path neighbors_file(const fs::path& folder) { return folder / "neighbors.json"; }
fs::path unfinished_file(const fs::path& folder) { return folder / "building.json"; }
fs::path block_file(const fs::path& folder, int64_t number) {
  return folder / format_printf("block-%05lld.safetensors", static_cast<long long>(number));
}

uint64_t index_checksum(const IndexFacts& index) {
  Hasher hasher;
  for (const Shard& shard : index.shards) hasher.update(&shard.checksum, sizeof shard.checksum);
  return hasher.digest();
}

// Only files with the names that such a folder has.
void remove_neighbors(const fs::path& folder) {
  fs::remove(neighbors_file(folder));
  fs::remove(unfinished_file(folder));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("block-") && name.ends_with(".safetensors")) fs::remove(entry.path());
  }
}

class Finder {
 public:
  Finder(const NeighborPlan& plan, const ChunkDatabase& chunks, const IndexFacts& index,
         const data::GptDataset& samples, const QuerySource& queries)
      : plan_(plan),
        chunks_(chunks),
        index_(index),
        samples_(samples),
        queries_(queries),
        chunks_of_sample_(samples.sequence_length() / chunks.chunk_length()),
        block_samples_(std::max<int64_t>(1, plan.block_chunks / std::max<int64_t>(1, chunks_of_sample_))) {
    ESPALIER_CHECK(samples.sequence_length() % chunks.chunk_length() == 0, samples.sequence_length());
    const auto& parts = samples.parts();
    for (const data::GptDataset::Part& part : parts) files_.push_back(chunks.file_of(part.store->prefix()));
  }

  NeighborSummary run() {
    NeighborSummary summary{.samples = samples_.size()};
    if (!begin()) {
      summary.blocks = summary.blocks_kept = (samples_.size() + block_samples_ - 1) / block_samples_;
      return summary;
    }
    Progress progress("neighbours of " + samples_.name(), samples_.size(), Progress::Unit::kItems, "samples");
    for (int64_t first = 0; first < samples_.size(); first += block_samples_, ++summary.blocks) {
      const int64_t count = std::min(block_samples_, samples_.size() - first);
      const fs::path path = block_file(plan_.folder, summary.blocks);
      if (fs::exists(path)) {
        ++summary.blocks_kept;
        progress.advance(count);
      } else {
        const std::vector<int64_t> found = search_block(first, count, progress);
        summary.missing += std::count(found.begin(), found.end(), -1);
        internal::write_array(path, kNeighbors, {count, chunks_of_sample_, plan_.num_saved}, found);
      }
    }
    progress.finish();
    write_file_atomically(neighbors_file(plan_.folder), describe().dump(2) + "\n");
    fs::remove(unfinished_file(plan_.folder));
    return summary;
  }

 private:
  Json describe() const {
    Json json = {{"format", kNeighborFormat},
                 {"samples", samples_.size()},
                 {"chunks_of_sample", chunks_of_sample_},
                 {"neighbors", plan_.num_saved},
                 {"block_samples", block_samples_},
                 {"chunks", hex64(chunks_.checksum())},
                 {"index", hex64(index_checksum(index_))},
                 {"queries", queries_.name},
                 {"order", data::to_text(samples_.fingerprint(kReading))}};
    if (plan_.trained != nullptr) json[kSearchedBy] = plan_.trained->name();
    return json;
  }

  // Prepares the folder to be filled, or filled further. False: it is complete.
  bool begin() const {
    const fs::path& folder = plan_.folder;
    if (const std::error_code failure = create_folders(folder))
      throw UserError(concat("cannot create '", folder.string(), "': ", failure.message()), ExitCode::kCannotCreate);
    if (plan_.overwrite) remove_neighbors(folder);
    const Json wanted = describe();
    for (const fs::path& path : {neighbors_file(folder), unfinished_file(folder)}) {
      if (!fs::exists(path)) continue;
      Json found = parse_json<Json>(read_file(path), path.string()), now = wanted;
      for (Json* json : {&found, &now})
        if (!json->contains(kSearchedBy)) (*json)[kSearchedBy] = "exact";
      for (const auto& [key, value] : now.items())
        if (found.value(key, Json()) != value)
          throw UserError(concat("'", folder.string(), "' holds neighbours of something else: ", key, " is ",
                                 found.value(key, Json()).dump(), " there and ", value.dump(),
                                 " now. Give --overwrite, or another --retro-workdir"),
                          ExitCode::kCannotCreate);
      const bool is_complete = path == neighbors_file(folder);
      if (is_complete) fs::remove(unfinished_file(folder));  // a search that was killed at its end has left it
      return !is_complete;
    }
    remove_neighbors(folder);  // blocks that belong to nothing
    write_file_atomically(unfinished_file(folder), wanted.dump(2) + "\n");
    return true;
  }

  // Documents that the sample has tokens of, as (file, sequence).
  using Documents = std::set<std::pair<int64_t, int64_t>>;
  Documents documents_of(int64_t sample) const {
    Documents documents;
    const int64_t file = files_[static_cast<size_t>(samples_.place(sample).set)];
    for (const data::SamplePiece& piece : samples_.pieces(sample)) documents.insert({file, piece.sequence});
    return documents;
  }

  std::vector<int64_t> search_block(int64_t first, int64_t count, Progress& progress) const {
    const int64_t dimension = index_.dimension, num_queries = count * chunks_of_sample_;
    std::vector<float> vectors(static_cast<size_t>(num_queries * dimension));
    progress.set_note("making vectors");
    queries_.read(first, count, vectors.data());
    progress.set_note("");
    std::vector<Documents> documents;
    for (int64_t sample = first; sample < first + count; ++sample) documents.push_back(documents_of(sample));
    std::vector<int64_t> found(static_cast<size_t>(num_queries * plan_.num_saved), -1);
    std::vector<int64_t> open(static_cast<size_t>(num_queries));
    for (size_t query = 0; query < open.size(); ++query) open[query] = static_cast<int64_t>(query);
    int64_t shown = 0;
    std::function<void(double)> report = [&](double share) {
      const auto now = static_cast<int64_t>(share * static_cast<double>(count));
      progress.advance(now - shown);
      shown = now;
    };
    // Asks for more where too few neighbours are from other documents.
    for (int64_t asked = std::max(plan_.num_asked, plan_.num_saved); !open.empty(); asked *= 4) {
      open = search_some(open, asked, vectors, documents, found, report);
      progress.set_note(open.empty() ? "" : concat("looking further for ", format_counted(open.size(), "chunk")));
      report = [](double) {};  // the share of a block is that of its first search, which is nearly all
    }
    return found;
  }

  std::vector<int64_t> search_some(const std::vector<int64_t>& numbers, int64_t asked,
                                   const std::vector<float>& vectors, const std::vector<Documents>& documents,
                                   std::vector<int64_t>& found, const std::function<void(double)>& report) const {
    const int64_t dimension = index_.dimension;
    std::vector<float> queries(numbers.size() * static_cast<size_t>(dimension));
    for (size_t at = 0; at < numbers.size(); ++at)
      std::copy_n(vectors.data() + numbers[at] * dimension, dimension,
                  queries.data() + static_cast<int64_t>(at) * dimension);
    const auto hits = search(index_, queries.data(), static_cast<int64_t>(numbers.size()),
                             {.count = asked,
                              .memory_bytes = plan_.memory_bytes,
                              .threads = plan_.threads,
                              .trained = plan_.trained,
                              .on_progress = report});
    std::vector<int64_t> open;
    for (size_t at = 0; at < numbers.size(); ++at) {
      const Documents& own = documents[static_cast<size_t>(numbers[at] / chunks_of_sample_)];
      int64_t* const row = found.data() + numbers[at] * plan_.num_saved;
      int64_t saved = 0;
      for (const Hit& hit : hits[at]) {
        const ChunkDatabase::Place place = chunks_.place(hit.id);
        if (saved == plan_.num_saved) break;
        if (!own.contains({place.file, place.document})) row[saved++] = hit.id;
      }
      // An approximate search may have no more to give.
      const bool has_more = asked < index_.rows && static_cast<int64_t>(hits[at].size()) == asked;
      if (saved < plan_.num_saved && has_more) open.push_back(numbers[at]);
    }
    return open;
  }

  const NeighborPlan& plan_;
  const ChunkDatabase& chunks_;
  const IndexFacts& index_;
  const data::GptDataset& samples_;
  const QuerySource& queries_;
  int64_t chunks_of_sample_, block_samples_;
  std::vector<int64_t> files_;  // of each part of the set, as ChunkDatabase::file_of() numbers them
};

}  // namespace

NeighborSummary find_neighbors(const NeighborPlan& plan, const ChunkDatabase& chunks, const IndexFacts& index,
                               const data::GptDataset& samples, const QuerySource& queries) {
  return Finder(plan, chunks, index, samples, queries).run();
}

NeighborFile::NeighborFile(const std::filesystem::path& folder) {
  const fs::path path = neighbors_file(folder);
  if (!fs::exists(path))
    throw UserError(concat("'", folder.string(), "' holds no ", fs::exists(unfinished_file(folder)) ? "complete " : "",
                           "neighbours; 'espalier retro build' with the flags of the run finds them"),
                    ExitCode::kMissingInput);
  const Json json = parse_json<Json>(read_file(path), path.string());
  read_fields(concat("'", path.string(), "' describes no neighbours"), [&] {
    if (const auto format = json.at("format").get<int64_t>(); format != kNeighborFormat)
      throw UserError(concat("'", path.string(), "' has format ", format, "; this program reads ", kNeighborFormat),
                      ExitCode::kBadData);
    num_samples_ = json.at("samples").get<int64_t>();
    chunks_of_sample_ = json.at("chunks_of_sample").get<int64_t>();
    num_saved_ = json.at("neighbors").get<int64_t>();
    block_samples_ = json.at("block_samples").get<int64_t>();
    if (num_samples_ < 0 || chunks_of_sample_ < 1 || num_saved_ < 1 || block_samples_ < 1)
      throw UserError(concat("'", path.string(), "' describes no neighbours: expected at least one chunk of a sample, ",
                             "neighbour and sample of a block, found ", chunks_of_sample_, ", ", num_saved_, " and ",
                             block_samples_),
                      ExitCode::kBadData);
    chunks_ = json.at("chunks").get<std::string>();
    order_ = json.at("order").get<std::string>();
    checksum_ = hash64(concat(chunks_, json.at("index").get<std::string>(), json.at("queries").get<std::string>(),
                              json.value(kSearchedBy, std::string())));
  });
  if (num_samples_ < 0 || chunks_of_sample_ < 1 || num_saved_ < 1 || block_samples_ < 1)
    throw UserError(concat("'", path.string(), "': expected numbers above 0; the file is damaged"), ExitCode::kBadData);
  for (int64_t first = 0; first < num_samples_; first += block_samples_) {
    const fs::path block = block_file(folder, static_cast<int64_t>(files_.size()));
    files_.push_back(std::make_unique<store::SafetensorsFile>(block));
    blocks_.push_back(
        internal::read_array(*files_.back(), block, kNeighbors,
                             {std::min(block_samples_, num_samples_ - first), chunks_of_sample_, num_saved_}));
  }
}

std::span<const int64_t> NeighborFile::row(int64_t sample, int64_t chunk) const {
  ESPALIER_CHECK(sample >= 0 && sample < num_samples_ && chunk >= 0 && chunk < chunks_of_sample_, sample, ", ", chunk);
  const std::span<const int64_t> block = blocks_[static_cast<size_t>(sample / block_samples_)];
  const int64_t row = sample % block_samples_ * chunks_of_sample_ + chunk;
  return block.subspan(static_cast<size_t>(row * num_saved_), static_cast<size_t>(num_saved_));
}

std::filesystem::path neighbor_folder(const std::filesystem::path& workdir, const std::string& kind,
                                      const std::string& set_name) {
  return workdir / "neighbors" / (kind == set_name ? kind : concat(kind, ".", set_name));
}

}  // namespace espalier::retrieval
