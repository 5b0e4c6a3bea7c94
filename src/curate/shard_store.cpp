#include "curate/shard_store.h"

#include <charconv>

#include "base/file.h"
#include "base/format.h"
#include "base/json_fields.h"
#include "base/pending_file.h"
#include "curate/compressed.h"

namespace espalier::curate {
namespace {

constexpr char kTextKey[] = "espalier:text";  // not a key of a record

// Each part compressed for itself, behind the places where they end.
std::string pack(const Digests& digests) {
  std::string ends, frames;
  for (size_t part = 0; part < digests.num_parts(); ++part) {
    frames += compress(digests.bytes(part));
    const auto end = static_cast<int64_t>(digests.num_parts() * sizeof(int64_t) + frames.size());
    ends.append(reinterpret_cast<const char*>(&end), sizeof end);
  }
  return ends + frames;
}

ShardSummary shard_summary_of(const nlohmann::ordered_json& json) {
  ShardSummary summary;
  summary.next_number = json.at("next_number");
  summary.input_hash = json.at("input_hash");
  summary.input = input_tally_of(json.at("input"));
  for (const nlohmann::ordered_json& step : json.at("steps")) summary.tallies.push_back(step_tally_of(step));
  return summary;
}

}  // namespace

std::string to_line(const FateRecord& fate) {
  nlohmann::ordered_json line = {{"n", fate.number}, {"s", fate.step}, {"r", fate.reason}};
  if (fate.value) line["v"] = *fate.value;
  if (fate.threshold) line["t"] = *fate.threshold;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

ShardDocuments::ShardDocuments(const std::filesystem::path& path)
    : path_(path.string()), lines_(read_compressed(path)) {}

bool ShardDocuments::next(Document& document) {
  if (at_ == lines_.size()) return false;
  const size_t end = lines_.find('\n', at_);
  document = {};
  const char* const line_end = lines_.data() + end;
  const char* const number_end = std::from_chars(lines_.data() + at_, line_end, document.number).ptr;
  const std::string_view json(number_end + 1, static_cast<size_t>(line_end - number_end - 1));
  std::string reason;
  int64_t num_replaced = 0;
  const int64_t number = document.number;
  if (!parse_document(json, kTextKey, document, reason, num_replaced))
    throw UserError(concat("'", path_, "', document ", number, ": ", reason), ExitCode::kBadData);
  at_ = end + 1;
  return true;
}

ShardStore::ShardStore(std::filesystem::path folder, size_t num_steps, int64_t num_parts)
    : folder_(std::move(folder)), num_steps_(num_steps), digests_(static_cast<size_t>(num_parts)) {
  std::filesystem::create_directories(folder_);
  pending_.tallies.resize(num_steps_);
}

bool ShardStore::is_complete(int64_t shard) const { return std::filesystem::exists(path_of(shard, ".json")); }

int64_t ShardStore::num_incomplete(int64_t num_shards) const {
  int64_t count = 0;
  for (int64_t shard = 0; shard < num_shards; ++shard) count += !is_complete(shard);
  return count;
}

std::optional<FileLock> ShardStore::claim(int64_t shard) const {
  if (is_complete(shard)) return std::nullopt;
  std::optional<FileLock> lock = FileLock::try_take(path_of(shard, ".lock"));
  if (lock && is_complete(shard)) lock.reset();  // by now
  return lock;
}

ShardSummary ShardStore::summary(int64_t shard) const {
  const std::filesystem::path path = path_of(shard, ".json");
  const auto json = parse_json<nlohmann::ordered_json>(read_file(path), path.string());
  return read_fields(concat("'", path.string(), "'"), [&] { return shard_summary_of(json); });
}

std::filesystem::path ShardStore::path_of(int64_t shard, const char* kind) const {
  return folder_ / (format_printf("%08lld", static_cast<long long>(shard)) + kind);
}

ShardDocuments ShardStore::documents(int64_t shard) const { return ShardDocuments(path_of(shard, ".documents.zst")); }

void ShardStore::feed(int64_t shard, int64_t part, PassPart& into) const {
  const std::filesystem::path path = path_of(shard, ".digests");
  const InputFile file(path);
  int64_t ends[2] = {static_cast<int64_t>(digests_.num_parts() * sizeof(int64_t)), 0};
  constexpr auto kEndBytes = static_cast<int64_t>(sizeof(int64_t));
  if (part == 0)
    file.read_at(&ends[1], sizeof ends[1], 0);
  else
    file.read_at(ends, sizeof ends, (part - 1) * kEndBytes);
  if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > file.size_bytes()) throw damaged(path);
  std::string frame(static_cast<size_t>(ends[1] - ends[0]), '\0');
  file.read_at(frame.data(), frame.size(), ends[0]);
  Digests::for_each(decompress(frame, path),
                    [&](int64_t number, std::string_view digest) { into.add(number, digest); });
}

std::string ShardStore::read_fates(int64_t shard) const { return read_compressed(path_of(shard, ".fates.zst")); }

void ShardStore::add(BlockResult&& block) {
  has_pending_ = true;
  pending_.next_number = block.next_number;
  pending_.input.add(block.input);
  for (size_t step = 0; step < num_steps_; ++step) pending_.tallies[step].add(block.tallies[step]);
  for (const Document& document : block.documents) {
    documents_ += concat(document.number, " ");
    append_json(document, kTextKey, documents_);
    documents_ += '\n';
  }
  digests_.append(block.digests);
  for (const FateRecord& fate : block.fates) fates_ += to_line(fate);
}

void ShardStore::finish_shard(int64_t shard, const std::string& input_hash) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const StepTally& tally : pending_.tallies) steps.push_back(to_json(tally));
  const nlohmann::ordered_json summary = {{"next_number", pending_.next_number},
                                          {"input_hash", input_hash},
                                          {"input", to_json(pending_.input)},
                                          {"steps", steps}};
  PendingFile documents(path_of(shard, ".documents.zst")), digests(path_of(shard, ".digests")),
      fates(path_of(shard, ".fates.zst")), complete(path_of(shard, ".json"));
  write_synced(documents, compress(documents_));
  write_synced(digests, pack(digests_));
  write_synced(fates, compress(fates_));
  write_synced(complete, summary.dump() + "\n");
  move_into_place({&documents, &digests, &fates, &complete});
  pending_ = {};
  pending_.tallies.resize(num_steps_);
  has_pending_ = false;
  documents_.clear();
  digests_ = Digests(digests_.num_parts());
  fates_.clear();
}

}  // namespace espalier::curate
