#include "curate/text_index.h"

#include <divsufsort.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <queue>
#include <span>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "curate/ordered_map.h"
#include "curate/python_lower.h"
#include "curate/tally.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kSeparator = '\xFF';
constexpr int64_t kMostShardBytes = int64_t{1} << 30;  // offsets are 32 bits; one more text may be added
constexpr size_t kContextBytes = 60;

struct TextStart {
  uint64_t begin = 0;
  int64_t number = 0;
  uint32_t source = 0, unused = 0;
};
static_assert(sizeof(TextStart) == 24);

fs::path shard_file(const fs::path& folder, size_t shard, const char* kind) {
  return folder / (format_printf("%08zu", shard) + kind);
}

std::string loose_text(std::string_view text) {
  const std::string lower = python_lower(text);
  std::string result;
  for (const std::string_view word : text::python::split_words(lower)) {
    if (!result.empty()) result += ' ';
    result += word;
  }
  return result;
}

bool continues_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Suffixes that begin a character.
std::vector<saidx_t> sorted_suffixes(const std::string& text) {
  static_assert(sizeof(saidx_t) == sizeof(uint32_t));
  std::vector<saidx_t> suffixes(text.size());
  if (divsufsort(reinterpret_cast<const sauchar_t*>(text.data()), suffixes.data(), static_cast<saidx_t>(text.size())) !=
      0)
    throw UserError(concat("not enough memory to sort ", format_bytes(static_cast<double>(text.size())),
                           " of text: give a smaller --memory, which makes smaller shards"));
  std::erase_if(suffixes, [&](saidx_t suffix) {
    const char byte = text[static_cast<size_t>(suffix)];
    return byte == kSeparator || continues_character(byte);
  });
  return suffixes;
}

template <class Value>
std::string_view bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

struct TextShard {
  size_t index = 0;
  std::string text;
  std::vector<TextStart> starts;
};

class IndexBuilder {
 public:
  explicit IndexBuilder(const TextIndexPlan& plan)
      : plan_(plan),
        shard_bytes_(std::clamp<int64_t>(plan.memory_bytes / (5 * plan.workers + 2), 1, kMostShardBytes)),
        reader_(plan.sources),
        progress_("index", total_input_bytes(plan.sources), Progress::Unit::kBytes) {}

  TextIndexSummary build() {
    const auto start = std::chrono::steady_clock::now();
    prepare_folder();
    map_in_order<TextShard>(
        plan_.workers, [this](TextShard& shard) { return next(shard); },
        [](const TextShard&) { return int64_t{8} << 20; },  // as many shards at a time as there are workers
        [this](const TextShard& shard) {
          write(shard);
          return Json({{"bytes", shard.text.size()}, {"documents", shard.starts.size()}});
        },
        [this](Json&& shard) { shards_.push_back(std::move(shard)); });
    finish();
    progress_.finish();
    summary_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(summary_);
  }

 private:
  // Shards that an earlier, identical build made stay.
  void prepare_folder() {
    fs::create_directories(plan_.folder);
    std::string facts = concat("1 ", shard_bytes_, " ", plan_.loose, " ", plan_.source_key);
    for (const InputSource& source : plan_.sources)
      for (const std::string& file : source.files)
        facts += concat("\n", static_cast<int>(source.format), " ", source.text_key, " ", file, " ",
                        file_size_bytes(file), " ", fs::last_write_time(file).time_since_epoch().count());
    const std::string fingerprint = hex64(hash64(facts));
    const fs::path mark = plan_.folder / "building";
    const bool goes_on = fs::exists(mark) && read_file(mark) == fingerprint;
    fs::remove(plan_.folder / "index.json");
    if (!goes_on)
      for (const fs::directory_entry& entry : fs::directory_iterator(plan_.folder))
        for (const char* kind : {".text", ".suffixes", ".documents"})
          if (entry.path().extension() == kind) fs::remove(entry.path());
    write_file_atomically(mark, fingerprint);
  }

  bool next(TextShard& shard) {
    shard.index = num_read_++;
    while (static_cast<int64_t>(shard.text.size()) < shard_bytes_) {
      if (at_ == block_.records.size() && !next_block()) break;
      Document document;
      std::string reason;
      const size_t record = at_++;
      document.number = block_.first_number + static_cast<int64_t>(record);
      if (block_.skipped_bytes > 0 ||
          !read_record(plan_.sources[block_.source], block_, record, document, reason, summary_.input.num_replaced)) {
        summary_.input.note_malformed(concat(block_.file, ":", block_.first_line + static_cast<int64_t>(record), ": ",
                                             block_.skipped_bytes > 0 ? "too long" : reason));
        continue;
      }
      shard.starts.push_back({shard.text.size(), document.number, source_of(document), 0});
      shard.text += plan_.loose ? loose_text(document.text) : document.text;
      shard.text += kSeparator;
      summary_.num_bytes += static_cast<int64_t>(shard.text.size() - shard.starts.back().begin) - 1;
      ++summary_.num_documents;
    }
    return !shard.starts.empty();
  }
  bool next_block() {
    at_ = 0;
    do {
      if (!reader_.next(block_)) {
        block_.records.clear();
        return false;
      }
      if (files_.empty() || files_.back().at("file") != block_.file || block_.first_line == 1)
        files_.push_back({{"file", block_.file}, {"first_number", block_.first_number}});
      summary_.input.num_records += static_cast<int64_t>(block_.records.size());
      progress_.advance(block_.input_bytes);
    } while (block_.records.empty());
    return true;
  }
  uint32_t source_of(const Document& document) {
    const std::string name = document.metadata.text(plan_.source_key).value_or("");
    return source_numbers_.try_emplace(name, static_cast<uint32_t>(source_numbers_.size())).first->second;
  }

  void write(const TextShard& shard) const {
    const fs::path suffixes = shard_file(plan_.folder, shard.index, ".suffixes");
    if (fs::exists(suffixes)) return;  // written last
    const std::vector<saidx_t> sorted = sorted_suffixes(shard.text);
    write_file_atomically(shard_file(plan_.folder, shard.index, ".text"), shard.text);
    write_file_atomically(shard_file(plan_.folder, shard.index, ".documents"), bytes_of(shard.starts));
    write_file_atomically(suffixes, bytes_of(sorted));
  }

  void finish() {
    std::vector<std::string> sources(source_numbers_.size());
    for (const auto& [name, number] : source_numbers_) sources[number] = name;
    summary_.num_shards = static_cast<int64_t>(shards_.size());
    summary_.input.num_documents = summary_.num_documents;
    const Json index = {{"version", 1},
                        {"loose", plan_.loose},
                        {"documents", summary_.num_documents},
                        {"bytes", summary_.num_bytes},
                        {"sources", sources},
                        {"files", files_},
                        {"shards", shards_}};
    write_file_atomically(plan_.folder / "index.json",
                          index.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    fs::remove(plan_.folder / "building");
  }

  const TextIndexPlan& plan_;
  int64_t shard_bytes_;
  InputReader reader_;
  Progress progress_;
  RawBlock block_;
  size_t at_ = 0, num_read_ = 0;
  std::map<std::string, uint32_t> source_numbers_;
  Json files_ = Json::array(), shards_ = Json::array();
  TextIndexSummary summary_;
};

}  // namespace

TextIndexSummary build_text_index(const TextIndexPlan& plan) { return IndexBuilder(plan).build(); }

class TextIndex::Shard {
 public:
  Shard(const fs::path& folder, size_t index, int64_t num_bytes, int64_t num_documents)
      : name_(shard_file(folder, index, ".suffixes").string()),
        text_(shard_file(folder, index, ".text")),
        suffixes_(shard_file(folder, index, ".suffixes")),
        starts_(shard_file(folder, index, ".documents")) {
    if (static_cast<int64_t>(text_.size()) != num_bytes || suffixes_.size() > 4 * text_.size() || num_documents < 1 ||
        starts_.size() != static_cast<size_t>(num_documents) * sizeof(TextStart))
      throw UserError(concat("'", name_, "' and the files next to it do not match index.json; build the index again"),
                      ExitCode::kBadData);
  }

  // Suffixes that begin with the text: from .first to .second.
  std::pair<size_t, size_t> range(std::string_view text) const {
    const size_t begin = lower_bound(text);
    size_t low = begin, high = num_suffixes();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (suffix(middle).starts_with(text))
        low = middle + 1;
      else
        high = middle;
    }
    return {begin, low};
  }
  // Bytes of the longest start of the text that occurs.
  size_t longest(std::string_view text) const {
    const size_t place = lower_bound(text);
    size_t most = 0;
    for (const size_t neighbour : {place, place - 1})
      if (neighbour < num_suffixes()) most = std::max(most, common(suffix(neighbour), text));
    return most;
  }
  uint32_t offset(size_t place) const {
    uint32_t value;
    std::memcpy(&value, suffixes_.data() + place * sizeof value, sizeof value);
    if (value >= text_.size())
      throw UserError(concat("'", name_, "': damaged: byte ", value, " of ", text_.size()), ExitCode::kBadData);
    return value;
  }
  std::string_view all() const { return {reinterpret_cast<const char*>(text_.data()), text_.size()}; }
  // The document that the byte is in, from one of `num_sources`.
  TextStart document_at(uint32_t byte, size_t num_sources) const {
    size_t low = 0, high = starts_.size() / sizeof(TextStart);
    while (high - low > 1) {
      const size_t middle = low + (high - low) / 2;
      (start(middle).begin <= byte ? low : high) = middle;
    }
    const TextStart found = start(low);
    if (found.begin > byte || found.source >= num_sources)
      throw UserError(concat("'", name_, "': the .documents beside it is damaged: byte ", byte,
                             " is in a document from ", found.begin, " on of source ", found.source),
                      ExitCode::kBadData);
    return found;
  }

 private:
  size_t num_suffixes() const { return suffixes_.size() / sizeof(uint32_t); }
  std::string_view suffix(size_t place) const { return all().substr(offset(place)); }
  TextStart start(size_t index) const {
    TextStart value;
    std::memcpy(&value, starts_.data() + index * sizeof value, sizeof value);
    return value;
  }
  static size_t common(std::string_view a, std::string_view b) {
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }
  // The first suffix that is not before the text. Bytes are compared as unsigned, as they were sorted.
  size_t lower_bound(std::string_view text) const {
    size_t low = 0, high = num_suffixes();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (suffix(middle).substr(0, text.size()) < text)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  std::string name_;
  MappedFile text_, suffixes_, starts_;
};

TextIndex::TextIndex(const fs::path& folder) {
  const fs::path file = folder / "index.json";
  if (!fs::exists(file))
    throw UserError(
        concat("'", folder.string(), "' holds no index of texts",
               fs::exists(folder / "building") ? ": one was begun there; the same 'curate index' finishes it" : ""),
        ExitCode::kMissingInput);
  const Json index = parse_json<Json>(read_file(file), file.string());
  read_fields(concat("'", file.string(), "' is not an index of texts"), [&] {
    if (const auto version = index.at("version").get<int>(); version != 1)
      throw UserError(concat("'", file.string(), "': expected version 1, found ", version, "; build the index again"),
                      ExitCode::kBadData);
    loose_ = index.at("loose");
    num_documents_ = index.at("documents");
    num_bytes_ = index.at("bytes");
    sources_ = index.at("sources").get<std::vector<std::string>>();
    for (const Json& one : index.at("files")) files_.push_back({one.at("file"), one.at("first_number")});
    for (const Json& shard : index.at("shards"))
      shards_.push_back(std::make_unique<Shard>(folder, shards_.size(), shard.at("bytes"), shard.at("documents")));
  });
}
TextIndex::~TextIndex() = default;

std::string TextIndex::normal(std::string_view text) const { return loose_ ? loose_text(text) : std::string(text); }

int64_t TextIndex::count(std::string_view text) const {
  int64_t count = 0;
  for (const auto& shard : shards_) {
    const auto [begin, end] = shard->range(text);
    count += static_cast<int64_t>(end - begin);
  }
  return count;
}

std::vector<TextIndex::Place> TextIndex::places(std::string_view text, int64_t most) const {
  std::vector<Place> found;
  for (const auto& shard : shards_) {
    const auto [begin, end] = shard->range(text);
    std::priority_queue<uint32_t> first;  // the smallest offsets
    const auto room = static_cast<size_t>(most) - found.size();
    for (size_t place = begin; place < end && room > 0; ++place) {
      first.push(shard->offset(place));
      if (first.size() > room) first.pop();
    }
    std::vector<uint32_t> offsets;
    for (; !first.empty(); first.pop()) offsets.push_back(first.top());
    for (auto offset = offsets.rbegin(); offset != offsets.rend(); ++offset) {
      const TextStart start = shard->document_at(*offset, sources_.size());
      const std::string_view all = shard->all();
      const std::string_view document =
          all.substr(start.begin, std::min(all.find(kSeparator, start.begin), all.size()) - start.begin);
      const size_t at = *offset - start.begin, behind = std::min(at + text.size(), document.size());
      size_t context = at > kContextBytes ? at - kContextBytes : 0,
             context_end = std::min(behind + kContextBytes, document.size());
      while (context < at && continues_character(document[context])) ++context;
      while (context_end > behind && context_end < document.size() && continues_character(document[context_end]))
        --context_end;
      const auto file = std::upper_bound(files_.begin(), files_.end(), start.number,
                                         [](int64_t number, const File& one) { return number < one.first_number; });
      Place place{start.number,
                  "",
                  0,
                  sources_[start.source],
                  static_cast<int64_t>(at),
                  std::string(document.substr(context, at - context)),
                  std::string(document.substr(behind, context_end - behind))};
      if (file != files_.begin()) {
        place.file = std::prev(file)->name;
        place.record = start.number - std::prev(file)->first_number + 1;
      }
      found.push_back(std::move(place));
    }
  }
  return found;
}

std::vector<TextIndex::Part> TextIndex::parts(std::string_view text, int64_t least_bytes) const {
  std::vector<Part> parts;
  size_t reached = 0;  // where the longest stretch from the characters before ends
  for (size_t at = 0; at < text.size(); ++at) {
    if (continues_character(text[at])) continue;
    size_t longest = 0;
    for (const auto& shard : shards_) longest = std::max(longest, shard->longest(text.substr(at)));
    while (longest > 0 && at + longest < text.size() && continues_character(text[at + longest])) --longest;
    if (at + longest <= reached) continue;  // part of one that begins before
    reached = at + longest;
    if (static_cast<int64_t>(longest) >= least_bytes) parts.push_back({at, longest, count(text.substr(at, longest))});
  }
  return parts;
}

}  // namespace espalier::curate
