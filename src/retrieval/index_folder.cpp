#include "retrieval/index_folder.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "retrieval/trained_index.h"

namespace espalier::retrieval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr const char* kChecksum = "xxh3";

fs::path index_file(const fs::path& folder) { return folder / "index.json"; }
fs::path building_file(const fs::path& folder) { return folder / "building.json"; }
std::string shard_name(int64_t number) {
  return format_printf("shard-%05lld.safetensors", static_cast<long long>(number));
}

uint64_t checksum_of(const std::string& digits, const fs::path& path) {
  if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw UserError(concat("'", path.string(), "': expected 16 hexadecimal digits as ", kChecksum), ExitCode::kBadData);
  return std::stoull(digits, nullptr, 16);
}

void check_ids(const std::vector<int64_t>& ids) {
  const bool ascend = std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
  if (ascend && (ids.empty() || ids.front() >= 0)) return;
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.front() < 0)
    throw UserError(concat("id ", sorted.front(), " is negative; ids are whole numbers from 0 on"), ExitCode::kBadData);
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw UserError(concat("id ", *twice, " occurs in two rows; ids are unique"), ExitCode::kBadData);
}

void check_finite(const std::vector<float>& rows, int64_t first, int64_t dimension, const std::vector<int64_t>& ids) {
  const auto bad = std::find_if(rows.begin(), rows.end(), [](float value) { return !std::isfinite(value); });
  if (bad == rows.end()) return;
  const int64_t row = first + (bad - rows.begin()) / dimension;
  throw UserError(concat("row ", row, " (id ", ids[static_cast<size_t>(row)], ") has ", *bad, " as number ",
                         (bad - rows.begin()) % dimension, " of ", dimension, "; expected finite numbers"),
                  ExitCode::kBadData);
}

uint64_t checksum_of(const int64_t* ids, const float* embeddings, int64_t rows, int64_t dimension) {
  Hasher hasher;
  hasher.update(ids, static_cast<size_t>(rows) * sizeof(int64_t));
  hasher.update(embeddings, static_cast<size_t>(rows * dimension) * sizeof(float));
  return hasher.digest();
}

Json recipe_of(const EmbeddingSource& source, const BuildPlan& plan) {
  const EmbeddingOrigin origin = source.origin();
  return {{"format", kFormat},           {"encoder", origin.encoder},       {"texts", origin.texts},
          {"rows", source.ids().size()}, {"dimension", source.dimension()}, {"shard_rows", plan.shard_rows}};
}

// Only files with an index's names: the folder may hold other things.
void remove_index(const fs::path& folder) {
  remove_trained_index(folder);
  fs::remove(index_file(folder));
  fs::remove(building_file(folder));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("shard-") && name.ends_with(".safetensors")) fs::remove(entry.path());
  }
}

// Prepares the folder for a build, or for the rest of one.
void begin_build(const EmbeddingSource& source, const BuildPlan& plan) {
  const fs::path& folder = plan.folder;
  if (const std::error_code failure = create_folders(folder))
    throw UserError(concat("cannot create '", folder.string(), "': ", failure.message()), ExitCode::kCannotCreate);
  if (plan.overwrite) remove_index(folder);
  tidy_index(folder);
  if (has_index(folder))
    throw UserError(concat("'", folder.string(), "' holds an index; --overwrite replaces it"), ExitCode::kCannotCreate);
  const Json recipe = recipe_of(source, plan);
  const fs::path building = building_file(folder);
  if (!fs::exists(building)) {
    remove_index(folder);  // shards that belong to nothing
    write_file_atomically(building, recipe.dump(2) + "\n");
    return;
  }
  const Json found = parse_json<Json>(read_file(building), building.string());
  for (const auto& [key, value] : recipe.items())
    if (!found.contains(key) || found.at(key) != value)
      throw UserError(concat("'", folder.string(), "' is half built, from something else: ", key, " is ",
                             found.contains(key) ? found.at(key).dump() : "missing", " there and ", value.dump(),
                             " now; --overwrite starts over"),
                      ExitCode::kCannotCreate);
}

// Whether the shard exists and is whole; then its checksum.
bool is_complete(Shard& shard, int64_t dimension, const int64_t* ids) {
  if (!fs::exists(shard.path)) return false;
  try {
    const ShardFile content(shard, dimension);
    shard.checksum = checksum_of(content.ids(), content.rows(), shard.rows, dimension);
    return hex64(shard.checksum) == content.stored_checksum() && std::equal(ids, ids + shard.rows, content.ids());
  } catch (const UserError&) {
    return false;  // it is made again
  }
}

void write_shard(EmbeddingSource& source, const BuildPlan& plan, int64_t first, Shard& shard, Progress& progress) {
  const int64_t dimension = source.dimension();
  std::vector<store::TensorEntry> entries = {{"ids", store::DType::kInt64, {shard.rows}},
                                             {"embeddings", store::DType::kFloat32, {shard.rows, dimension}}};
  const std::string blank(16, '0');  // the header is written again when the checksum is known
  std::map<std::string, std::string> metadata = {{kChecksum, blank}};
  if (const std::string encoder = source.origin().encoder; !encoder.empty()) metadata[kEncoderOfShard] = encoder;
  const std::string header = store::safetensors_header(entries, metadata);
  PendingFile pending(shard.path);
  OutputFile file(pending.temporary());
  file.write(header.data(), header.size());
  Hasher hasher;
  const size_t id_bytes = static_cast<size_t>(shard.rows) * sizeof(int64_t);
  hasher.update(source.ids().data() + first, id_bytes);
  file.write(source.ids().data() + first, id_bytes);
  std::vector<float> rows;
  for (int64_t done = 0; done < shard.rows; done += plan.batch_rows) {
    const int64_t count = std::min(plan.batch_rows, shard.rows - done);
    rows.resize(static_cast<size_t>(count * dimension));
    source.read(first + done, count, rows.data());
    check_finite(rows, first + done, dimension, source.ids());
    hasher.update(rows.data(), rows.size() * sizeof(float));
    file.write(rows.data(), rows.size() * sizeof(float));
    progress.advance(count);
  }
  shard.checksum = hasher.digest();
  metadata[kChecksum] = hex64(shard.checksum);
  const std::string final_header = store::safetensors_header(entries, metadata);
  ESPALIER_CHECK(final_header.size() == header.size(), final_header.size());
  file.write_at(final_header.data(), final_header.size(), 0);
  file.sync();
  file.close();
  move_into_place({&pending});
}

void write_index_file(const fs::path& folder, const IndexFacts& facts) {
  Json shards = Json::array();
  for (const Shard& shard : facts.shards)
    shards.push_back(
        {{"file", shard.path.filename().string()}, {"rows", shard.rows}, {kChecksum, hex64(shard.checksum)}});
  const Json index = {{"format", kFormat},
                      {"rows", facts.rows},
                      {"dimension", facts.dimension},
                      {"encoder", facts.origin.encoder},
                      {"texts", facts.origin.texts},
                      {"shards", std::move(shards)}};
  write_file_atomically(index_file(folder), index.dump(2) + "\n");
  fs::remove(building_file(folder));
}

}  // namespace

BuildSummary build_index(EmbeddingSource& source, const BuildPlan& plan) {
  const auto num_rows = static_cast<int64_t>(source.ids().size());
  if (num_rows == 0) throw UserError("there are no rows to index", ExitCode::kBadData);
  check_ids(source.ids());
  begin_build(source, plan);
  IndexFacts facts{.rows = num_rows, .dimension = source.dimension(), .origin = source.origin(), .shards = {}};
  BuildSummary summary{.rows = num_rows, .dimension = source.dimension()};
  Progress progress("index build", num_rows, Progress::Unit::kItems, "rows");
  for (int64_t first = 0; first < num_rows; first += plan.shard_rows) {
    Shard shard{.path = plan.folder / shard_name(summary.shards), .rows = std::min(plan.shard_rows, num_rows - first)};
    if (is_complete(shard, source.dimension(), source.ids().data() + first)) {
      ++summary.shards_kept;
      progress.advance(shard.rows);
    } else {
      write_shard(source, plan, first, shard, progress);
    }
    ++summary.shards;
    facts.shards.push_back(std::move(shard));
  }
  write_index_file(plan.folder, facts);
  progress.finish(format_counted(summary.shards, "shard"));
  summary.seconds = progress.seconds();
  return summary;
}

bool has_index(const std::filesystem::path& folder) { return fs::exists(index_file(folder)); }

void tidy_index(const std::filesystem::path& folder) {
  if (has_index(folder)) fs::remove(building_file(folder));
}

IndexFacts read_index(const std::filesystem::path& folder) {
  const fs::path path = index_file(folder);
  if (!fs::exists(path)) {
    if (fs::exists(building_file(folder)))
      throw UserError(concat("'", folder.string(),
                             "' is not complete: the same 'espalier index build' or 'index embed' continues it"),
                      ExitCode::kMissingInput);
    throw UserError(concat("'", folder.string(),
                           "' holds no index (no index.json); 'espalier index build' or 'index embed' makes one"),
                    ExitCode::kMissingInput);
  }
  const Json json = parse_json<Json>(read_file(path), path.string());
  IndexFacts facts;
  int64_t rows = 0;
  read_fields(concat("'", path.string(), "' is not an index of embeddings"), [&] {
    if (const auto format = json.at("format").get<int64_t>(); format != kFormat)
      throw UserError(concat("'", path.string(), "' has format ", format, "; this program reads ", kFormat),
                      ExitCode::kBadData);
    facts.rows = json.at("rows").get<int64_t>();
    facts.dimension = json.at("dimension").get<int64_t>();
    facts.origin = {.encoder = json.value("encoder", ""), .texts = json.value("texts", "")};
    for (const Json& entry : json.at("shards")) {
      const std::string name = entry.at("file").get<std::string>();
      facts.shards.push_back({folder / fs::path(name).filename(), entry.at("rows").get<int64_t>(),
                              checksum_of(entry.at(kChecksum).get<std::string>(), path)});
      rows += facts.shards.back().rows;
    }
  });
  if (facts.dimension < 1 || facts.rows < 1 || rows != facts.rows)
    throw UserError(concat("'", path.string(), "' says ", facts.rows, " rows of ", facts.dimension,
                           " numbers, and its shards have ", rows, " rows"),
                    ExitCode::kBadData);
  return facts;
}

ShardFile::ShardFile(const Shard& shard, int64_t dimension)
    : file_(shard.path), embeddings_(file_.find("embeddings")), ids_(file_.find("ids")) {
  const bool fits = embeddings_ != nullptr && ids_ != nullptr && embeddings_->dtype == store::DType::kFloat32 &&
                    embeddings_->shape == std::vector<int64_t>{shard.rows, dimension} &&
                    ids_->dtype == store::DType::kInt64 && ids_->shape == std::vector<int64_t>{shard.rows} &&
                    reinterpret_cast<uintptr_t>(rows()) % alignof(float) == 0 &&
                    reinterpret_cast<uintptr_t>(ids()) % alignof(int64_t) == 0;
  if (!fits)
    throw UserError(concat("'", shard.path.string(), "': expected embeddings F32 [", shard.rows, ", ", dimension,
                           "] and ids I64 [", shard.rows, "], as index.json says; the shard belongs to another index"),
                    ExitCode::kBadData);
}

std::string ShardFile::stored_checksum() const {
  const auto stored = file_.metadata().find(kChecksum);
  return stored == file_.metadata().end() ? "" : stored->second;
}

void check_checksum(const Shard& shard, uint64_t found) {
  if (found == shard.checksum) return;
  throw UserError(concat("'", shard.path.string(), "' has changed since it was built: its checksum is ", hex64(found),
                         ", index.json says ", hex64(shard.checksum), ". Build the index again."),
                  ExitCode::kBadData);
}

}  // namespace espalier::retrieval
