// espalier data check: reads data sets whole and says what is wrong with them.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/data/commands.h"
#include "apps/print_json.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "data/store_check.h"
#include "data/store_metadata.h"

namespace espalier {
namespace {

struct CheckRequest {
  std::vector<std::string> prefixes;
  std::optional<int64_t> vocab_size;
  text::TokenizerOptions tokenizer;
  std::string tokenizer_path;
  int64_t num_documents = 100, workers = num_usable_cores();
  bool json = false;
};

struct Findings {
  int64_t num_empty_documents = 0;
  data::IdRange ids;
  std::optional<data::DocumentEnds> ends;
  std::optional<data::RoundTrip> round_trip;
};

// Without one on the command line, that of the tokenizer which made the data set, if it is recorded.
std::optional<int64_t> vocab_size_of(const data::TokenStore& store, const CheckRequest& request) {
  if (request.vocab_size) return request.vocab_size;
  const std::optional<data::StoreMetadata> metadata = data::read_metadata(store.files());
  if (!metadata || !metadata->tokenizer) return std::nullopt;
  return metadata->tokenizer->vocab_size;
}

Findings check_store(const data::TokenStore& store, const CheckRequest& request, const text::Tokenizer* tokenizer) {
  store.check_all();
  Findings findings;
  findings.num_empty_documents = data::count_empty_documents(store);
  Progress progress("check " + store.prefix(), store.num_bytes(), Progress::Unit::kBytes);
  findings.ids = data::check_ids(store, vocab_size_of(store, request), request.workers, progress);
  progress.finish();
  if (tokenizer == nullptr) return findings;
  if (tokenizer->eod()) findings.ends = data::count_document_ends(store, *tokenizer->eod());
  findings.round_trip = data::check_round_trip(store, *tokenizer, request.num_documents);
  return findings;
}

nlohmann::ordered_json to_json(const data::TokenStore& store, const Findings& findings) {
  nlohmann::ordered_json result = {{"prefix", store.prefix()},
                                   {"format", data::name_of(store.format())},
                                   {"dtype", data::name_of(store.type())},
                                   {"documents", store.num_documents()},
                                   {"sequences", store.num_sequences()},
                                   {"tokens", store.num_tokens()},
                                   {"smallest_id", findings.ids.smallest},
                                   {"largest_id", findings.ids.largest},
                                   {"empty_documents", findings.num_empty_documents}};
  if (findings.ends) result["documents_with_eod"] = findings.ends->num_ended;
  if (findings.round_trip) result["round_trip_documents"] = findings.round_trip->num_documents;
  result["ok"] = true;
  return result;
}

void print(const data::TokenStore& store, const Findings& findings) {
  std::printf("%s: ok, %s documents, %s tokens, ids %lld to %lld\n", store.prefix().c_str(),
              format_count(store.num_documents()).c_str(), format_count(store.num_tokens()).c_str(),
              static_cast<long long>(findings.ids.smallest), static_cast<long long>(findings.ids.largest));
  if (findings.num_empty_documents > 0)
    std::printf("  %s documents are empty\n", format_count(findings.num_empty_documents).c_str());
  if (findings.ends)
    std::printf("  %s of %s documents end with the end-of-document token\n",
                format_count(findings.ends->num_ended).c_str(), format_count(findings.ends->num_documents).c_str());
  if (findings.round_trip)
    std::printf("  %s documents, %s tokens, are the same after decoding and encoding\n",
                format_count(findings.round_trip->num_documents).c_str(),
                format_count(findings.round_trip->num_tokens).c_str());
}

void add_rows(OptionTable& table, CheckRequest& request) {
  table.positional("PREFIX", request.prefixes, "data sets, named by what .bin and .idx share", 1, SIZE_MAX);
  table.add("--vocab-size", request.vocab_size, "every id must be below; or name the tokenizer")
      .minimum(1)
      .default_text("as PREFIX.meta.json says");
  table.add("--round-trip-documents", request.num_documents, "documents of each set to decode and encode again")
      .minimum(0);
  table.add("--workers", request.workers, "threads that read").minimum(1).maximum(4096).default_text("all cores");
  table.add("--json", request.json, "one JSON object a data set, on a line of its own");
  table.group("tokenizer: with one, ids are compared with its vocabulary and documents decoded and encoded again");
  table
      .add(
          "--tokenizer", request.tokenizer_path,
          "tokenizer.json, a folder that holds one, or vocab.json with merges.txt next to it; or as Megatron names it:")
      .value_name("PATH");
  add_tokenizer_options(table, request.tokenizer);
}

std::unique_ptr<text::Tokenizer> load(const CheckRequest& request, Problems& problems) {
  if (!request.tokenizer_path.empty() && !request.tokenizer.type.empty())
    problems.add("--tokenizer and --tokenizer-type both name the tokenizer; give one of them");
  try {
    if (!request.tokenizer_path.empty()) return text::open_tokenizer(request.tokenizer_path);
  } catch (const UserError& error) {
    problems.add("--tokenizer: ", error.what());
    return nullptr;
  }
  if (request.tokenizer.type.empty()) return nullptr;
  text::TokenizerOptions options = request.tokenizer;
  options.vocab_size = request.vocab_size;  // what makes a NullTokenizer
  return load_tokenizer(options, problems);
}

}  // namespace

int data_check_main(const std::vector<std::string>& arguments) {
  CheckRequest request;
  OptionTable table("espalier data check", "Reads token files completely and stops at the first thing that is wrong.");
  add_rows(table, request);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  const std::unique_ptr<text::Tokenizer> tokenizer = load(request, problems);
  const bool makes_tokenizer = request.tokenizer.type == "NullTokenizer" || request.tokenizer.type == "TikTokenizer";
  if (tokenizer && request.vocab_size && !makes_tokenizer)
    problems.add("--vocab-size and the tokenizer say the same thing; give one of them");
  problems.raise();
  if (tokenizer) request.vocab_size = tokenizer->vocab_size();
  for (const std::string& prefix : request.prefixes) {
    const data::TokenStore store(prefix);
    if (tokenizer)
      for (const std::string& line : data::describe_other_tokenizers({prefix}, *tokenizer)) log_warning(line);
    const Findings findings = check_store(store, request, tokenizer.get());
    if (request.json)
      print_json(to_json(store, findings));
    else
      print(store, findings);
  }
  return 0;
}

}  // namespace espalier
