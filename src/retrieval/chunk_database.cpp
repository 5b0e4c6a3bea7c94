#include "retrieval/chunk_database.h"

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "data/order_fingerprint.h"
#include "retrieval/internal/array_file.h"

namespace espalier::retrieval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kChunkFormat = 1;
constexpr int64_t kDocumentsAtOnce = 100'000;
constexpr const char* kFirstChunk = "first_chunk";

fs::path chunks_file(const fs::path& folder) { return folder / "chunks.json"; }
std::string first_chunks_file(int64_t number) {
  return format_printf("chunks-%05lld.safetensors", static_cast<long long>(number));
}

// Without the token that ends it.
int64_t document_length(const data::TokenStore& store, int64_t document, int64_t end_of_document) {
  const int64_t size = store.size(document);
  int64_t last = -1;
  if (size > 0) store.read(document, size - 1, 1, &last);
  return size > 0 && last == end_of_document ? size - 1 : size;
}

uint64_t hash_of_file(const data::TokenStore& store, const data::DocumentRange& documents) {
  const uint64_t hashes[] = {
      hash64(store.sizes().address(documents.begin), static_cast<size_t>(documents.size()) * sizeof(int32_t)),
      data::hash_of_tokens(store, documents)};
  return hash64(hashes, sizeof hashes);
}

// Of each document, and of the end.
std::vector<int64_t> count_chunks(const data::TokenStore& store, const ChunkPart& part, const ChunkPlan& plan) {
  const auto num_documents = static_cast<size_t>(part.documents.size());
  std::vector<int64_t> first(num_documents + 1, 0);
  Progress progress("chunks of " + part.prefix, part.documents.size(), Progress::Unit::kItems, "documents");
  ThreadPool pool(plan.threads);
  std::vector<std::future<void>> blocks;
  for (int64_t begin = 0; begin < part.documents.size(); begin += kDocumentsAtOnce)
    blocks.push_back(pool.submit([&, begin] {
      const int64_t end = std::min(begin + kDocumentsAtOnce, part.documents.size());
      for (int64_t number = begin; number < end; ++number) {
        const int64_t length = document_length(store, part.documents.begin + number, plan.end_of_document);
        first[static_cast<size_t>(number) + 1] = (length + plan.chunk_length - 1) / plan.chunk_length;
      }
      progress.advance(end - begin);
    }));
  for (std::future<void>& block : blocks) block.get();
  for (size_t document = 0; document < num_documents; ++document) first[document + 1] += first[document];
  progress.finish();
  return first;
}

Json describe_chunks(const ChunkPlan& plan) {
  Json sets = Json::array();
  for (const ChunkPart& part : plan.parts) {
    const data::TokenStore store(part.prefix);
    sets.push_back({{"prefix", fs::absolute(part.prefix).lexically_normal().string()},
                    {"documents", {part.documents.begin, part.documents.end}},
                    {"chunks", 0},
                    {"tokens", hex64(hash_of_file(store, part.documents))},
                    {"file", first_chunks_file(static_cast<int64_t>(sets.size()))}});
  }
  return {{"format", kChunkFormat},
          {"chunk_length", plan.chunk_length},
          {"end_of_document", plan.end_of_document},
          {"chunks", 0},
          {"sets", std::move(sets)}};
}

// What differs, the numbers of chunks aside; empty where nothing does.
std::string chunk_difference(const Json& found, const Json& wanted) {
  for (const char* key : {"format", "chunk_length", "end_of_document"})
    if (!found.contains(key) || found.at(key) != wanted.at(key))
      return concat(key, " is ", found.contains(key) ? found.at(key).dump() : "missing", " there and ",
                    wanted.at(key).dump(), " now");
  if (!found.contains("sets") || found.at("sets").size() != wanted.at("sets").size())
    return concat("their number of data sets differs from that of ", wanted.at("sets").size());
  for (size_t at = 0; at < wanted.at("sets").size(); ++at)
    for (const char* key : {"prefix", "documents", "tokens"})
      if (found.at("sets")[at].value(key, Json()) != wanted.at("sets")[at].at(key))
        return concat("'", key, "' of data set ", at + 1, " is ", found.at("sets")[at].value(key, Json()).dump(),
                      " there and ", wanted.at("sets")[at].at(key).dump(), " now");
  return "";
}

}  // namespace

int64_t build_chunks(const ChunkPlan& plan) {
  if (const std::error_code failure = create_folders(plan.folder))
    throw UserError(concat("cannot create '", plan.folder.string(), "': ", failure.message()), ExitCode::kCannotCreate);
  Json wanted = describe_chunks(plan);
  const fs::path description = chunks_file(plan.folder);
  if (fs::exists(description) && !plan.overwrite) {
    const Json found = parse_json<Json>(read_file(description), description.string());
    const std::string other = chunk_difference(found, wanted);
    if (other.empty()) return ChunkDatabase(plan.folder).size();
    throw UserError(concat("'", plan.folder.string(), "' holds other chunks: ", other,
                           ". --overwrite rebuilds them, with their index and neighbours"),
                    ExitCode::kCannotCreate);
  }
  fs::remove(description);
  int64_t total = 0;
  for (size_t at = 0; at < plan.parts.size(); ++at) {
    const data::TokenStore store(plan.parts[at].prefix);
    const std::vector<int64_t> first = count_chunks(store, plan.parts[at], plan);
    wanted["sets"][at]["chunks"] = first.back();
    total += first.back();
    internal::write_array(plan.folder / first_chunks_file(static_cast<int64_t>(at)), kFirstChunk,
                          {static_cast<int64_t>(first.size())}, first);
  }
  if (total == 0)
    throw UserError("no document of --data-path that is trained on holds a token, so there are no chunks",
                    ExitCode::kBadData);
  wanted["chunks"] = total;
  write_file_atomically(description, wanted.dump(2) + "\n");
  return total;
}

ChunkDatabase::ChunkDatabase(const std::filesystem::path& folder) : folder_(folder) {
  const fs::path path = chunks_file(folder);
  if (!fs::exists(path))
    throw UserError(concat("'", folder.string(), "' holds no chunks (no chunks.json); 'espalier retro build' with the ",
                           "flags of the run makes them"),
                    ExitCode::kMissingInput);
  const std::string text = read_file(path);
  const Json json = parse_json<Json>(text, path.string());
  checksum_ = hash64(text);
  read_fields(concat("'", path.string(), "' describes no chunks"), [&] {
    if (const auto format = json.at("format").get<int64_t>(); format != kChunkFormat)
      throw UserError(concat("'", path.string(), "' has format ", format, "; this program reads ", kChunkFormat),
                      ExitCode::kBadData);
    chunk_length_ = json.at("chunk_length").get<int64_t>();
    end_of_document_ = json.at("end_of_document").get<int64_t>();
    for (const Json& entry : json.at("sets")) {
      Set set{.prefix = entry.at("prefix").get<std::string>(),
              .documents = {entry.at("documents").at(0).get<int64_t>(), entry.at("documents").at(1).get<int64_t>()},
              .first_chunk = num_chunks_,
              .file = file_of(entry.at("prefix").get<std::string>()),
              .store = nullptr,
              .table = nullptr,
              .first_chunks = {}};
      set.store = std::make_unique<data::TokenStore>(set.prefix);
      if (set.documents.begin < 0 || set.documents.end < set.documents.begin ||
          set.documents.end > set.store->num_sequences() ||
          hex64(hash_of_file(*set.store, set.documents)) != entry.at("tokens").get<std::string>())
        throw UserError(concat("the token files '", set.prefix, "' have changed since '", path.string(),
                               "' was made from them; 'espalier retro build --overwrite' rebuilds it"),
                        ExitCode::kBadData);
      const fs::path file = folder / fs::path(entry.at("file").get<std::string>()).filename();
      set.table = std::make_unique<store::SafetensorsFile>(file);
      set.first_chunks = internal::read_array(*set.table, file, kFirstChunk, {set.documents.size() + 1});
      if (set.first_chunks.front() != 0 || !std::is_sorted(set.first_chunks.begin(), set.first_chunks.end()))
        throw UserError(concat("'", file.string(), "' is damaged: the first chunks of documents are not in order; ",
                               "'espalier retro build --overwrite' makes it anew"),
                        ExitCode::kBadData);
      if (set.file < 0) set.file = static_cast<int64_t>(sets_.size());
      num_chunks_ += set.first_chunks.back();
      sets_.push_back(std::move(set));
    }
  });
  if (chunk_length_ < 1 || num_chunks_ < 1 || json.value("chunks", int64_t{0}) != num_chunks_)
    throw UserError(concat("'", path.string(), "' and the files beside it have different numbers of chunks, ",
                           json.value("chunks", int64_t{0}), " and ", num_chunks_,
                           "; rebuild them with 'espalier retro build --overwrite'"),
                    ExitCode::kBadData);
}

int64_t ChunkDatabase::length_of(const Set& set, int64_t document) const {
  return document_length(*set.store, document, end_of_document_);
}

ChunkDatabase::Place ChunkDatabase::place(int64_t chunk) const {
  ESPALIER_CHECK(chunk >= 0 && chunk < num_chunks_, "chunk ", chunk, " of ", num_chunks_);
  size_t number = sets_.size() - 1;
  while (sets_[number].first_chunk > chunk) --number;
  const Set& set = sets_[number];
  const int64_t of_set = chunk - set.first_chunk;
  // The last document that begins at or before it; documents without a chunk begin where the next does.
  const auto after = std::upper_bound(set.first_chunks.begin(), set.first_chunks.end(), of_set);
  const int64_t document = (after - set.first_chunks.begin()) - 1;
  Place place{.set = static_cast<int64_t>(number),
              .document = set.documents.begin + document,
              .begin = (of_set - set.first_chunks[static_cast<size_t>(document)]) * chunk_length_,
              .file = set.file};
  place.length = std::min(chunk_length_, length_of(set, place.document) - place.begin);
  if (place.length < 1)
    throw UserError(concat("'", folder_.string(), "' is damaged: chunk ", chunk, " would begin at token ", place.begin,
                           " of document ", place.document, " of '", set.prefix, "', which is shorter; ",
                           "'espalier retro build --overwrite' makes it anew"),
                    ExitCode::kBadData);
  return place;
}

void ChunkDatabase::read(const Place& place, int64_t count, int64_t* ids) const {
  const Set& set = sets_[static_cast<size_t>(place.set)];
  const int64_t wanted = count * chunk_length_;
  const int64_t found = std::min(wanted, length_of(set, place.document) - place.begin);
  set.store->read(place.document, place.begin, found, ids);
  std::fill(ids + found, ids + wanted, end_of_document_);
}

int64_t ChunkDatabase::file_of(const std::string& prefix) const {
  const std::string path = fs::absolute(prefix).lexically_normal().string();
  for (size_t number = 0; number < sets_.size(); ++number)
    if (sets_[number].prefix == path) return static_cast<int64_t>(number);
  return -1;
}

}  // namespace espalier::retrieval
