// espalier data inspect: what is inside token files.
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/data/commands.h"
#include "apps/print_json.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data/store_metadata.h"
#include "data/store_report.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSequencesForLastId = 1000;

struct InspectRequest {
  std::vector<std::string> prefixes;
  std::string documents = "0:3";
  int64_t first_document = 0, end_document = 0;  // of `documents`
  int64_t max_tokens = 64;
  text::TokenizerOptions tokenizer;
  bool json = false;
};

// Text that a terminal or a log can show on one line.
void parse_documents(InspectRequest& request, Problems& problems) {
  const std::string& text = request.documents;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, request.first_document);
  const bool colon = first.ec == std::errc() && first.ptr < end && *first.ptr == ':';
  const auto last = colon ? std::from_chars(first.ptr + 1, end, request.end_document) : first;
  if (!colon || last.ec != std::errc() || last.ptr != end || request.first_document < 0 ||
      request.end_document < request.first_document)
    problems.add("--documents ", text, ": expected I:J, for example 0:3 for the first three");
}

struct Shown {
  int64_t document = 0, num_tokens = 0;
  std::vector<int32_t> ids;  // the first max_tokens of them
};

Shown read_document(const data::TokenStore& store, int64_t document, int64_t max_tokens) {
  Shown shown{document, 0, {}};
  for (int64_t sequence = store.first_sequence(document); sequence < store.first_sequence(document + 1); ++sequence) {
    const int64_t size = store.size(sequence), held = static_cast<int64_t>(shown.ids.size());
    const int64_t wanted = max_tokens == 0 ? size : std::min(size, max_tokens - held);
    shown.ids.resize(static_cast<size_t>(held + wanted));
    store.read(sequence, 0, wanted, shown.ids.data() + held);
    shown.num_tokens += size;
  }
  return shown;
}

std::vector<Shown> read_documents(const data::TokenStore& store, const InspectRequest& request) {
  std::vector<Shown> documents;
  for (int64_t document = request.first_document; document < std::min(request.end_document, store.num_documents());
       ++document)
    documents.push_back(read_document(store, document, request.max_tokens));
  return documents;
}

// What the file next to the index records; null if there is none.
Json made_json(const data::TokenStore& store) {
  const std::optional<data::StoreMetadata> metadata = data::read_metadata(store.files());
  if (!metadata) return Json();
  Json made = {{"program", metadata->program}, {"tokenizer", Json()}, {"options", Json::object()}};
  if (const auto& tokenizer = metadata->tokenizer)
    made["tokenizer"] = {{"description", tokenizer->description},
                         {"fingerprint", tokenizer->fingerprint},
                         {"vocab_size", tokenizer->vocab_size},
                         {"eod", tokenizer->eod ? Json(*tokenizer->eod) : Json()}};
  for (const auto& [name, value] : metadata->options) made["options"][name] = value;
  if (!metadata->catalogue.empty()) made["catalogue"] = metadata->catalogue;
  return made;
}

Json to_json(const data::TokenStore& store, const InspectRequest& request, const text::Tokenizer* tokenizer) {
  const data::SizeSummary sizes = data::summarize_sizes(store);
  const std::optional<int64_t> last_id = data::common_last_id(store, kSequencesForLastId);
  Json histogram = Json::array(), shown = Json::array();
  for (const data::SizeBucket& bucket : sizes.histogram)
    histogram.push_back({{"from", bucket.from}, {"to", bucket.to}, {"count", bucket.count}});
  for (const Shown& document : read_documents(store, request)) {
    Json entry = {{"document", document.document}, {"tokens", document.num_tokens}, {"ids", document.ids}};
    if (tokenizer != nullptr) entry["text"] = tokenizer->decode(document.ids);
    shown.push_back(entry);
  }
  return {{"prefix", store.prefix()},
          {"format", data::name_of(store.format())},
          {"dtype", data::name_of(store.type())},
          {"documents", store.num_documents()},
          {"sequences", store.num_sequences()},
          {"tokens", store.num_tokens()},
          {"smallest", sizes.smallest},
          {"mean", sizes.mean},
          {"largest", sizes.largest},
          {"histogram", histogram},
          {"last_id", last_id ? Json(*last_id) : Json()},
          {"made", made_json(store)},
          {"shown", shown}};
}

void print_made(const data::TokenStore& store) {
  const std::optional<data::StoreMetadata> metadata = data::read_metadata(store.files());
  if (!metadata) return;
  std::printf("  made by %s\n", metadata->program.c_str());
  if (const auto& tokenizer = metadata->tokenizer)
    std::printf("    tokenizer     %s, %s ids, fingerprint %s\n", tokenizer->description.c_str(),
                format_count(tokenizer->vocab_size).c_str(), tokenizer->fingerprint.c_str());
  for (const auto& [name, value] : metadata->options) std::printf("    %-13s %s\n", name.c_str(), value.c_str());
  for (const auto& [key, values] : metadata->catalogue)
    std::printf("    %-13s %s\n", key.c_str(), data::describe_values(values).c_str());
}

void print_sizes(const data::TokenStore& store) {
  const data::SizeSummary sizes = data::summarize_sizes(store);
  std::printf("  tokens per sequence  smallest %s, mean %s, largest %s\n", format_count(sizes.smallest).c_str(),
              format_fixed(sizes.mean, 1).c_str(), format_count(sizes.largest).c_str());
  int64_t most = 1;
  for (const data::SizeBucket& bucket : sizes.histogram) most = std::max(most, bucket.count);
  constexpr int64_t kBarWidth = 40;
  for (const data::SizeBucket& bucket : sizes.histogram) {
    const int64_t length = (bucket.count * kBarWidth + most - 1) / most;
    std::printf("    %13s to %13s  %-40s %s\n", format_count(bucket.from).c_str(), format_count(bucket.to).c_str(),
                std::string(static_cast<size_t>(length), '#').c_str(), format_count(bucket.count).c_str());
  }
}

void print_documents(const data::TokenStore& store, const InspectRequest& request, const text::Tokenizer* tokenizer) {
  for (const Shown& document : read_documents(store, request)) {
    const bool whole = static_cast<int64_t>(document.ids.size()) == document.num_tokens;
    std::string content;
    for (const int32_t id : document.ids) content += concat(content.empty() ? "" : " ", id);
    if (tokenizer != nullptr) content = quoted_json(tokenizer->decode(document.ids));
    std::printf("  document %s (%s tokens%s)\n    %s\n", format_count(document.document).c_str(),
                format_count(document.num_tokens).c_str(), whole ? "" : ", the first of them", content.c_str());
  }
}

void print(const data::TokenStore& store, const InspectRequest& request, const text::Tokenizer* tokenizer) {
  const double bytes = static_cast<double>(store.num_tokens() * data::bytes_per_token(store.type()));
  std::printf("%s\n  %s documents, %s sequences, %s tokens of %s (%s)\n", store.prefix().c_str(),
              format_count(store.num_documents()).c_str(), format_count(store.num_sequences()).c_str(),
              format_count(store.num_tokens()).c_str(), data::name_of(store.type()), format_bytes(bytes).c_str());
  if (store.format() == data::IndexFormat::kLegacy) std::puts("  the index has the old format of 'lazy' and 'cached'");
  print_made(store);
  if (store.num_sequences() == 0) return;
  print_sizes(store);
  const int64_t looked_at = std::min(store.num_sequences(), kSequencesForLastId);
  if (const std::optional<int64_t> last_id = data::common_last_id(store, kSequencesForLastId))
    std::printf("  the first %s sequences all end with id %lld%s\n", format_count(looked_at).c_str(),
                static_cast<long long>(*last_id),
                tokenizer == nullptr
                    ? ""
                    : concat(" ", quoted_json(tokenizer->id_to_piece(static_cast<int32_t>(*last_id)))).c_str());
  else
    std::printf("  the first %s sequences have no common last id: no end-of-document token was appended\n",
                format_count(looked_at).c_str());
  print_documents(store, request, tokenizer);
}

void warn_of_other_tokenizer(const std::string& prefix, const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return;
  for (const std::string& line : data::describe_other_tokenizers({prefix}, *tokenizer)) log_warning(line);
}

// The tokenizer that made a data set, as its metadata names it. Kept for the next one that it made.
class TokenizerOfData {
 public:
  const text::Tokenizer* of(const data::TokenStore& store) {
    const std::optional<data::StoreMetadata> metadata = data::read_metadata(store.files());
    if (!metadata || !metadata->tokenizer || metadata->tokenizer->words.empty()) return nullptr;
    const data::TokenizerFacts& facts = *metadata->tokenizer;
    if (tokenizer_ && facts.fingerprint == fingerprint_) return tokenizer_.get();
    std::string reason;
    const auto folder = std::filesystem::path(store.files().index).parent_path();
    std::unique_ptr<text::Tokenizer> found = find_tokenizer(facts.words, facts.fingerprint, folder, reason);
    if (!found) {
      log_warning("'", store.prefix(), "': the tokenizer that made it is not where it was, so ids are shown: ", reason,
                  ". --tokenizer-type and its files name another place.");
      return nullptr;
    }
    tokenizer_ = std::move(found);
    fingerprint_ = facts.fingerprint;
    return tokenizer_.get();
  }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::string fingerprint_;
};

}  // namespace

int data_inspect_main(const std::vector<std::string>& arguments) {
  InspectRequest request;
  OptionTable table("espalier data inspect", "Shows what is inside token files.");
  table.positional("PREFIX", request.prefixes, "data sets, named by what .bin and .idx share", 1, SIZE_MAX);
  table.add("--documents", request.documents, "documents to show, from I up to but not including J").value_name("I:J");
  table.add("--max-tokens", request.max_tokens, "tokens to show of each document; 0: all").minimum(0);
  table.add("--json", request.json, "one JSON object a data set, on a line of its own");
  table.group("tokenizer, to show documents as text; without, the one that PREFIX.meta.json names");
  add_tokenizer_options(table, request.tokenizer);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  parse_documents(request, problems);
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!request.tokenizer.type.empty()) tokenizer = load_tokenizer(request.tokenizer, problems);
  problems.raise();

  TokenizerOfData named;
  for (const std::string& prefix : request.prefixes) {
    const data::TokenStore store(prefix);
    store.check_all();
    warn_of_other_tokenizer(prefix, tokenizer.get());
    const text::Tokenizer* const shows = tokenizer ? tokenizer.get() : named.of(store);
    if (request.json)
      print_json(to_json(store, request, shows));
    else
      print(store, request, shows);
  }
  return 0;
}

}  // namespace espalier
