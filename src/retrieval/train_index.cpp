// How a trained index is made.
#include <algorithm>
#include <exception>
#include <random>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "retrieval/internal/shard_rows.h"
#include "retrieval/internal/trained_files.h"
#include "retrieval/search_plugin.h"
#include "retrieval/trained_index.h"
#include "store/safetensors.h"

namespace espalier::retrieval {
namespace {

namespace fs = std::filesystem;
using internal::ShardRows;
using internal::TrainedJson;

constexpr int64_t kCodesRows = 1 << 18;   // whose codes a file holds
constexpr int64_t kRowsAtOnce = 1 << 14;  // of a block; a multiple of what the plugin takes at once
constexpr int64_t kRowsOfCentroid = 256;  // that Faiss takes at most, and what it wants at least:
constexpr int64_t kFewRowsOfCentroid = 39;
constexpr uint64_t kTrainingSeed = 1234;
constexpr const char* kCodes = "codes";
constexpr const char* kCodesChecksum = "xxh3";
constexpr const char* kWhatWorks =
    "; what works is IVF<lists>,<codes>, IVF<lists>_HNSW<links>,<codes> or <codes> alone, with codes Flat (lists "
    "only), "
    "PQ<bytes>, SQ8, SQ6, SQ4 or SQfp16, and before them OPQ<bytes>, OPQ<bytes>_<dimensions> or RR<dimensions>: "
    "IVF4096_HNSW4,Flat or OPQ64_128,IVF65536_HNSW32,PQ64; 'Flat' alone is the exact search";

fs::path codes_file(const fs::path& folder, int64_t block) {
  return folder / format_printf("codes-%05lld.safetensors", static_cast<long long>(block));
}

int64_t usual_training_rows(const IndexShape& shape, int64_t num_rows) {
  return std::min(num_rows, kRowsOfCentroid * std::max<int64_t>(shape.num_centroids, 256));
}

// A file that the plugin fills: hashed on its way, so that it is not read again, and synced as it grows, so that the
// end does not wait for all of it.
class IndexFile {
 public:
  IndexFile(const fs::path& path, int64_t expected_bytes)
      : file_(path),
        progress_("index train: writing " + path.stem().string(), expected_bytes, Progress::Unit::kBytes) {}

  ByteSink sink() { return {.take = take, .context = this}; }
  // Of all bytes. What went wrong in between is thrown here.
  uint64_t finish() {
    if (failure_) std::rethrow_exception(failure_);
    file_.sync();
    file_.close();
    progress_.finish();
    return hasher_.digest();
  }
  bool has_failed() const { return failure_ != nullptr; }

 private:
  static constexpr size_t kPieceBytes = size_t{16} << 20, kBytesBetweenSyncs = size_t{1} << 30;

  static bool take(void* context, const void* bytes, size_t count) {
    auto& self = *static_cast<IndexFile*>(context);
    try {
      self.add(static_cast<const char*>(bytes), count);
      return true;
    } catch (...) {  // not through the plugin: finish() throws it
      self.failure_ = std::current_exception();
      return false;
    }
  }

  void add(const char* bytes, size_t count) {
    for (size_t begin = 0; begin < count; begin += kPieceBytes) {
      const size_t now = std::min(kPieceBytes, count - begin);
      hasher_.update(bytes + begin, now);
      file_.write(bytes + begin, now);
      progress_.advance(static_cast<int64_t>(now));
      unsynced_ += now;
      if (unsynced_ < kBytesBetweenSyncs) continue;
      file_.sync();
      unsynced_ = 0;
    }
  }

  OutputFile file_;
  Progress progress_;
  Hasher hasher_;
  size_t unsynced_ = 0;
  std::exception_ptr failure_;
};

// What is trained on must be what was built.
void check_shards(const IndexFacts& index) {
  Progress progress("index train: checksums", index.rows, Progress::Unit::kItems, "rows");
  for (const Shard& shard : index.shards) {
    const ShardFile file(shard, index.dimension);
    Hasher hasher;
    hasher.update(file.ids(), static_cast<size_t>(shard.rows) * sizeof(int64_t));
    for (int64_t first = 0; first < shard.rows; first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, shard.rows - first);
      hasher.update(file.rows() + first * index.dimension,
                    static_cast<size_t>(count * index.dimension) * sizeof(float));
      progress.advance(count);
    }
    check_checksum(shard, hasher.digest());
  }
  progress.finish();
}

constexpr int64_t kShares = 1000;  // that are told apart

struct Shares {
  Progress& progress;
  int64_t shown = 0;

  static void report(void* context, double share) {
    auto& self = *static_cast<Shares*>(context);
    const auto now = static_cast<int64_t>(share * kShares);
    self.progress.advance(now - self.shown);
    self.shown = now;
  }
};

// Faiss divides by some numbers of a string, and reserves memory for others, before it looks at them. Empty where each
// is one that it can work with.
std::string problem_of_numbers(const std::string& index_string) {
  constexpr int64_t kMost = int64_t{1} << 26;
  constexpr size_t kMostDigits = 9;
  for (size_t at = 0; at < index_string.size();) {
    const size_t begin = index_string.find_first_of("0123456789", at);
    if (begin == std::string::npos) break;
    const size_t end = std::min(index_string.find_first_not_of("0123456789", begin), index_string.size());
    const std::string digits = index_string.substr(begin, end - begin);
    at = end;
    if (digits.size() > kMostDigits || std::stoll(digits) > kMost || std::stoll(digits) == 0)
      return concat("its number ", digits, " is not within 1 to ", format_count(kMost));
  }
  return "";
}

// Each row with the same probability (Knuth's algorithm S), in their order.
std::vector<float> draw_rows(const IndexFacts& index, const ShardRows& rows, int64_t count) {
  std::vector<float> drawn(static_cast<size_t>(count * index.dimension));
  std::mt19937_64 generator(kTrainingSeed);
  Progress progress("index train: drawing training rows", count, Progress::Unit::kItems, "rows");
  int64_t taken = 0;
  for (int64_t row = 0; row < index.rows && taken < count; ++row) {
    const auto left = static_cast<uint64_t>(index.rows - row), wanted = static_cast<uint64_t>(count - taken);
    if (generator() % left >= wanted) continue;
    rows.read(row, 1, drawn.data() + taken++ * index.dimension);
    progress.advance(1);
  }
  progress.finish();
  ESPALIER_CHECK(taken == count, taken, " of ", count);
  return drawn;
}

class Training {
 public:
  explicit Training(const TrainingPlan& plan)
      : plan_(plan),
        table_(load_search_plugin()),
        index_(read_index(plan.folder)),
        rows_(index_),
        made_(nullptr, table_.close) {
    const std::string problem =
        index_string_problem(plan.index_string, index_.dimension, index_.rows, plan.training_rows);
    if (!problem.empty()) throw UserError(problem, ExitCode::kUsage);
    char error[512] = "";
    ESPALIER_CHECK(table_.describe(plan.index_string.c_str(), index_.dimension, shape_, error, sizeof error), error);
    training_rows_ =
        plan.training_rows == 0 ? usual_training_rows(shape_, index_.rows) : std::min(plan.training_rows, index_.rows);
  }

  TrainingSummary run() {
    if (!begin()) {
      remove_rest();  // of a build that was killed when it was complete
      keep_probes();
      return summary(true);
    }
    check_shards(index_);
    const int64_t blocks = (index_.rows + kCodesRows - 1) / kCodesRows;
    open_empty();
    Progress progress("index train: codes", index_.rows, Progress::Unit::kItems, "rows");
    for (int64_t block = 0; block < blocks; ++block) write_codes(block, progress);
    progress.finish();
    Progress filling("index train: filling the index", index_.rows, Progress::Unit::kItems, "rows");
    for (int64_t block = 0; block < blocks; ++block) append_codes(block, filling);
    filling.finish();
    const fs::path& folder = plan_.folder;
    PendingFile whole(internal::trained_file(folder));
    const uint64_t checksum = write_to(whole, index_.rows);
    TrainedJson json = describe();
    json["nprobe"] = plan_.nprobe;
    json["ef_search"] = plan_.ef_search;
    json[kCodesChecksum] = hex64(checksum);
    write_file_atomically(internal::trained_json(folder), json.dump(2) + "\n");
    remove_rest();
    return summary(false);
  }

 private:
  // What only a build needs that is not complete.
  void remove_rest() const {
    const int64_t blocks = (index_.rows + kCodesRows - 1) / kCodesRows;
    for (int64_t block = 0; block < blocks; ++block) fs::remove(codes_file(plan_.folder, block));
    fs::remove(internal::empty_file(plan_.folder));
    fs::remove(internal::training_json(plan_.folder));
  }

  TrainedJson describe() const {
    return {{"format", internal::kTrainedFormat},
            {"index_string", plan_.index_string},
            {"training_rows", training_rows_},
            {"faiss", table_.faiss_version},
            {"rows", index_.rows},
            {"dimension", index_.dimension},
            {"shards", internal::rows_checksum(index_)}};
  }

  TrainingSummary summary(bool kept) const {
    return {.training_rows = training_rows_,
            .code_bytes = shape_.code_bytes,
            .file_bytes = file_size_bytes(internal::trained_file(plan_.folder)),
            .kept = kept};
  }

  // Those of the last command are those of searches.
  void keep_probes() const {
    const fs::path path = internal::trained_json(plan_.folder);
    TrainedJson json = parse_json<TrainedJson>(read_file(path), path.string());
    if (json.value("nprobe", TrainedJson()) == plan_.nprobe &&
        json.value("ef_search", TrainedJson()) == plan_.ef_search)
      return;
    json["nprobe"] = plan_.nprobe;
    json["ef_search"] = plan_.ef_search;
    write_file_atomically(path, json.dump(2) + "\n");
  }

  // Prepares the folder to be filled, or filled further. False: it is complete.
  bool begin() const {
    const fs::path& folder = plan_.folder;
    if (plan_.overwrite) remove_trained_index(folder);
    const TrainedJson wanted = describe();
    for (const fs::path& path : {internal::trained_json(folder), internal::training_json(folder)}) {
      if (!fs::exists(path)) continue;
      const TrainedJson found = parse_json<TrainedJson>(read_file(path), path.string());
      for (const auto& [key, value] : wanted.items())
        if (found.value(key, TrainedJson()) != value)
          throw UserError(concat("'", folder.string(), "' has another trained index",
                                 path == internal::training_json(folder) ? ", half built" : "", ": ", key, " is ",
                                 found.value(key, TrainedJson()).dump(), " there and ", value.dump(),
                                 " now; --overwrite trains it again"),
                          ExitCode::kCannotCreate);
      return path == internal::training_json(folder);
    }
    remove_trained_index(folder);  // files that belong to nothing
    write_file_atomically(internal::training_json(folder), wanted.dump(2) + "\n");
    return true;
  }

  // Trained, without rows: read where an interrupted build has got so far, else made.
  void open_empty() {
    const fs::path path = internal::empty_file(plan_.folder);
    char error[512] = "";
    if (!fs::exists(path)) {
      PendingFile pending(path);
      const std::vector<float> rows = draw_rows(index_, rows_, training_rows_);
      if (shape_.num_centroids * kFewRowsOfCentroid > training_rows_)
        log_warning(plan_.index_string, " has ", format_count(shape_.num_centroids), " centroids, and Faiss wants ",
                    format_count(kFewRowsOfCentroid * shape_.num_centroids), " training rows for them; there are ",
                    format_count(training_rows_), ", so that they may represent the others badly");
      Progress progress(concat("index train: ", plan_.index_string, " on ", format_count(training_rows_), " rows"),
                        kShares, Progress::Unit::kItems, "parts");
      Shares shares{progress};
      FaissIndex* made = nullptr;
      if (!table_.train({.index_string = plan_.index_string.c_str(),
                         .rows = rows.data(),
                         .num_rows = training_rows_,
                         .dimension = index_.dimension,
                         .threads = plan_.threads,
                         .report = Shares::report,
                         .context = &shares},
                        &made, error, sizeof error))
        throw UserError(concat("cannot train ", plan_.index_string, ": ", error));
      made_.reset(made);
      progress.finish();
      write_to(pending, /*num_rows=*/0);
      made_.reset();
    }
    // Read even where it was just written: the rest is then the same after an interruption.
    FaissIndex* opened = nullptr;
    if (!table_.open(path.c_str(), /*maps=*/false, &opened, error, sizeof error))
      throw UserError(concat("cannot open '", path.string(), "': ", error, "; --overwrite trains it again"),
                      ExitCode::kBadData);
    made_.reset(opened);
  }

  void write_codes(int64_t block, Progress& progress) const {
    const int64_t first = block * kCodesRows, count = std::min(kCodesRows, index_.rows - first);
    const fs::path path = codes_file(plan_.folder, block);
    if (is_whole(path, count)) return progress.advance(count);
    std::vector<uint8_t> codes(static_cast<size_t>(count * shape_.code_bytes));
    std::vector<float> some;
    for (int64_t done = 0; done < count; done += kRowsAtOnce) {
      const int64_t now = std::min(kRowsAtOnce, count - done);
      some.resize(static_cast<size_t>(now * index_.dimension));
      rows_.read(first + done, now, some.data());
      char error[512] = "";
      if (!table_.encode(*made_, some.data(), now, plan_.threads, codes.data() + done * shape_.code_bytes, error,
                         sizeof error))
        throw UserError(concat("cannot encode rows from ", first + done, " on: ", error));
      progress.advance(now);
    }
    std::vector<store::TensorEntry> entries = {{kCodes, store::DType::kUInt8, {count, shape_.code_bytes}}};
    const std::string header =
        store::safetensors_header(entries, {{kCodesChecksum, hex64(hash64(codes.data(), codes.size()))}});
    PendingFile pending(path);
    OutputFile file(pending.temporary());
    file.write(header.data(), header.size());
    file.write(codes.data(), codes.size());
    file.sync();
    file.close();
    move_into_place({&pending});
  }

  bool is_whole(const fs::path& path, int64_t count) const {
    if (!fs::exists(path)) return false;
    try {
      const store::SafetensorsFile file(path);
      const store::TensorEntry* const codes = file.find(kCodes);
      const auto stored = file.metadata().find(kCodesChecksum);
      return codes != nullptr && codes->shape == std::vector<int64_t>{count, shape_.code_bytes} &&
             stored != file.metadata().end() &&
             stored->second == hex64(hash64(file.data(*codes), static_cast<size_t>(count * shape_.code_bytes)));
    } catch (const UserError&) {
      return false;  // it is made again
    }
  }

  void append_codes(int64_t block, Progress& progress) const {
    const store::SafetensorsFile file(codes_file(plan_.folder, block));
    const store::TensorEntry* const codes = file.find(kCodes);
    ESPALIER_CHECK(codes != nullptr, block);
    const int64_t count = codes->shape[0];
    char error[512] = "";
    for (int64_t first = 0; first < count; first += kRowsAtOnce) {
      const int64_t now = std::min(kRowsAtOnce, count - first);
      if (!table_.append(*made_, file.data(*codes) + first * shape_.code_bytes, now, error, sizeof error))
        throw UserError(concat("cannot fill the index: ", error));
      progress.advance(now);
    }
  }

  // With so many rows in it. Returns the checksum of what was written.
  uint64_t write_to(PendingFile& pending, int64_t num_rows) const {
    const int64_t bytes_of_row = shape_.code_bytes + (shape_.num_lists > 0 ? static_cast<int64_t>(sizeof(int64_t)) : 0);
    IndexFile file(pending.temporary(), num_rows * bytes_of_row + shape_.num_lists * index_.dimension * 4);
    char error[512] = "";
    if (!table_.write(*made_, file.sink(), error, sizeof error) && !file.has_failed())
      throw UserError(concat("cannot write '", pending.temporary().string(), "': ", error), ExitCode::kCannotCreate);
    const uint64_t checksum = file.finish();
    move_into_place({&pending});
    return checksum;
  }

  const TrainingPlan& plan_;
  const SearchTable& table_;
  const IndexFacts index_;
  const ShardRows rows_;
  IndexShape shape_;
  int64_t training_rows_ = 0;
  std::unique_ptr<FaissIndex, void (*)(FaissIndex*)> made_;
};

}  // namespace

bool is_exact(const std::string& index_string) {
  return index_string.empty() || index_string == "Flat" || index_string == "exact";
}

std::string index_string_problem(const std::string& index_string, int64_t dimension, std::optional<int64_t> num_rows,
                                 int64_t training_rows) {
  const auto refused = [&](const std::string& why) {
    return concat("index string '", index_string, "' does not work for vectors of ",
                  format_counted(dimension, "number"), ": ", why, kWhatWorks);
  };
  if (const std::string why = problem_of_numbers(index_string); !why.empty()) return refused(why);
  IndexShape shape;
  char error[512] = "";
  if (!load_search_plugin().describe(index_string.c_str(), dimension, shape, error, sizeof error)) {
    std::string why = error;  // "Error in faiss::... at FILE:LINE: what"
    if (const size_t at = why.rfind(": "); why.starts_with("Error in ") && at != std::string::npos)
      why.erase(0, at + 2);
    return refused(why);
  }
  const int64_t rows = num_rows.value_or(training_rows > 0 ? training_rows : shape.num_centroids);
  const int64_t trains = training_rows > 0 ? std::min(training_rows, rows) : rows;
  if (trains < shape.num_centroids)
    return concat("index string '", index_string, "' needs ", format_counted(shape.num_centroids, "training row"),
                  " or more, one for each centroid; ",
                  training_rows > 0 && training_rows < rows ? concat("the number of training rows is ", training_rows)
                                                            : concat("the index has ", format_counted(rows, "row")),
                  ". Use fewer lists, such as IVF", std::max<int64_t>(1, trains / kFewRowsOfCentroid),
                  ",Flat, or the exact search");
  return "";
}

void check_index_string(const TrainingPlan& plan, const EmbeddingSource& source, const std::string& option) {
  if (is_exact(plan.index_string)) return;
  const std::string problem = index_string_problem(plan.index_string, source.dimension(),
                                                   static_cast<int64_t>(source.ids().size()), plan.training_rows);
  if (!problem.empty()) throw UserError(concat(option, ": ", problem), ExitCode::kUsage);
}

TrainingSummary train_index(const TrainingPlan& plan) { return Training(plan).run(); }

void remove_trained_index(const std::filesystem::path& folder) {
  for (const fs::path& path : {internal::trained_json(folder), internal::training_json(folder),
                               internal::trained_file(folder), internal::empty_file(folder)})
    fs::remove(path);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("codes-") && name.ends_with(".safetensors")) fs::remove(entry.path());
  }
}

}  // namespace espalier::retrieval
