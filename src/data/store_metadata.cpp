#include "data/store_metadata.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "text/tokenizer_fingerprint.h"

namespace espalier::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

Json to_json(const TokenizerFacts& facts) {
  Json json = {{"description", facts.description},
               {"fingerprint", facts.fingerprint},
               {"vocab_size", facts.vocab_size},
               {"eod", facts.eod ? Json(*facts.eod) : Json()}};
  if (!facts.words.empty()) json["options"] = facts.words;
  return json;
}

TokenizerFacts tokenizer_of(const Json& json) {
  TokenizerFacts facts{json.at("description"), json.at("fingerprint"), json.at("vocab_size"), std::nullopt, {}};
  if (json.contains("options")) facts.words = json.at("options").get<std::vector<std::string>>();
  if (!json.at("eod").is_null()) facts.eod = json.at("eod").get<int32_t>();
  return facts;
}

StoreMetadata metadata_of(const Json& json) {
  StoreMetadata metadata;
  metadata.program = json.at("program");
  if (!json.at("tokenizer").is_null()) metadata.tokenizer = tokenizer_of(json.at("tokenizer"));
  metadata.num_documents = json.at("documents");
  metadata.num_sequences = json.at("sequences");
  metadata.num_tokens = json.at("tokens");
  for (const auto& [name, value] : json.at("options").items())
    metadata.options.emplace_back(name, value.get<std::string>());
  return metadata;
}

// Upstream's preprocess has no --vocab-extra-ids and its pretrain_t5 has: all ids in the files mean the same.
bool lacks_sentinels_only(const TokenizerFacts& facts, const text::Tokenizer& tokenizer) {
  const auto without = text::fingerprint_without_sentinels(tokenizer, facts.vocab_size);
  return without && hex64(*without) == facts.fingerprint;
}

}  // namespace

TokenizerFacts TokenizerFacts::of(const text::Tokenizer& tokenizer) {
  return {tokenizer.description(), hex64(text::fingerprint(tokenizer)), tokenizer.vocab_size(), tokenizer.eod(), {}};
}

std::string metadata_path(const TokenFiles& files) {
  return files.index.substr(0, files.index.size() - std::string_view(".idx").size()) + ".meta.json";
}

void write_metadata(const std::string& prefix, const StoreMetadata& metadata) {
  Json options = Json::object();
  for (const auto& [name, value] : metadata.options) options[name] = value;
  const Json json = {{"format", kFormat},
                     {"program", metadata.program},
                     {"tokenizer", metadata.tokenizer ? to_json(*metadata.tokenizer) : Json()},
                     {"documents", metadata.num_documents},
                     {"sequences", metadata.num_sequences},
                     {"tokens", metadata.num_tokens},
                     {"index_bytes", file_size_bytes(prefix + ".idx")},
                     {"token_bytes", file_size_bytes(prefix + ".bin")},
                     {"options", options}};
  write_file_atomically(metadata_path({prefix + ".idx", prefix + ".bin", ""}),
                        json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<StoreMetadata> read_metadata(const TokenFiles& files) {
  const std::string path = metadata_path(files);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const std::string content = read_file(path);
  const int64_t index_bytes = file_size_bytes(files.index), token_bytes = file_size_bytes(files.tokens);
  try {
    const Json json = parse_json<Json>(content, path);
    if (json.at("format") != kFormat) {
      warn_once(concat(path, ": format: expected ", kFormat, ", found ", json.at("format").dump(), "; it is ignored"));
      return std::nullopt;
    }
    if (json.at("index_bytes") == index_bytes && json.at("token_bytes") == token_bytes) return metadata_of(json);
    warn_once(concat(path, " is about other files (an .idx of ", json.at("index_bytes").dump(), " bytes; found ",
                     index_bytes, "); it is ignored"));
  } catch (const UserError& error) {
    warn_once(concat(error.what(), "; it is ignored"));
  } catch (const Json::exception&) {
    warn_once(concat(path, " lacks what 'preprocess' writes there, or has it in another form; it is ignored"));
  }
  return std::nullopt;
}

std::vector<std::string> describe_differing_tokenizers(const std::vector<std::string>& prefixes) {
  std::vector<std::string> lines;
  std::optional<TokenizerFacts> first;
  std::string first_prefix;
  for (const std::string& prefix : prefixes) {
    const std::optional<TokenFiles> files = find_token_files(prefix);
    const std::optional<StoreMetadata> metadata = files ? read_metadata(*files) : std::nullopt;
    if (!metadata || !metadata->tokenizer) continue;
    if (!first) first = metadata->tokenizer, first_prefix = prefix;
    if (!metadata->tokenizer->same_as(*first))
      lines.push_back(concat("'", prefix, "' was made with another tokenizer than '", first_prefix,
                             "': ", metadata->tokenizer->description, " (", metadata->tokenizer->vocab_size,
                             " ids, fingerprint ", metadata->tokenizer->fingerprint, "), not ", first->description,
                             " (", first->vocab_size, " ids, fingerprint ", first->fingerprint, ")"));
  }
  return lines;
}

std::vector<std::string> describe_other_tokenizers(const std::vector<std::string>& prefixes,
                                                   const text::Tokenizer& tokenizer) {
  std::vector<std::string> lines;
  std::optional<TokenizerFacts> own;  // computed for the first data set that says so
  for (const std::string& prefix : std::set<std::string>(prefixes.begin(), prefixes.end())) {
    const std::optional<TokenFiles> files = find_token_files(prefix);
    if (!files) continue;
    const std::optional<StoreMetadata> metadata = read_metadata(*files);
    if (!metadata || !metadata->tokenizer) continue;
    if (!own) own = TokenizerFacts::of(tokenizer);
    if (metadata->tokenizer->same_as(*own) || lacks_sentinels_only(*metadata->tokenizer, tokenizer)) continue;
    lines.push_back(concat("'", prefix, "' was made with another tokenizer: ", metadata->tokenizer->description, " (",
                           metadata->tokenizer->vocab_size, " ids, fingerprint ", metadata->tokenizer->fingerprint,
                           "); this is ", own->description, " (", own->vocab_size, " ids, fingerprint ",
                           own->fingerprint, ")"));
  }
  return lines;
}

}  // namespace espalier::data
