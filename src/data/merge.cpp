#include "data/merge.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/format.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/version.h"
#include "data/store_metadata.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

void refuse_output_among_inputs(const std::vector<TokenStore>& stores, const std::string& output_prefix) {
  for (const TokenStore& store : stores)
    if (same_file(store.files().index, output_prefix + ".idx"))
      throw UserError(concat("--output-prefix '", output_prefix, "' is one of the data sets to be merged; the result ",
                             "would replace it. Give another name."),
                      ExitCode::kUsage);
}

void refuse_existing(const std::string& output_prefix, bool overwrite) {
  const std::string existing = overwrite ? "" : describe_existing(files_written_for(output_prefix));
  if (!existing.empty()) throw UserError("--output-prefix " + output_prefix + ": " + existing, ExitCode::kUsage);
}

void refuse_other_types(const std::vector<TokenStore>& stores) {
  for (const TokenStore& store : stores)
    if (store.type() != stores.front().type())
      throw UserError(concat("'", store.prefix(), "' holds ", name_of(store.type()), ", '", stores.front().prefix(),
                             "' holds ", name_of(stores.front().type()),
                             ": they cannot be one data set. Preprocess both with the same vocabulary."),
                      ExitCode::kBadData);
}

// The tokenizer is known where all agree on it.
StoreMetadata merged_metadata(const std::vector<TokenStore>& stores, const TokenStoreWriter& writer) {
  StoreMetadata merged{concat("espalier ", kVersion), std::nullopt,        writer.num_documents(),
                       writer.num_sequences(),        writer.num_tokens(), {}};
  std::vector<std::string> sources;
  bool all_same = true;
  for (const TokenStore& store : stores) {
    const std::optional<StoreMetadata> own = read_metadata(store.files());
    sources.push_back(store.prefix());
    if (sources.size() == 1 && own) merged.tokenizer = own->tokenizer;
    all_same = all_same && own && own->tokenizer && merged.tokenizer && own->tokenizer->same_as(*merged.tokenizer);
    if (own && own->tokenizer && merged.tokenizer && !own->tokenizer->same_as(*merged.tokenizer))
      log_warning("'", store.prefix(), "' was made with another tokenizer (", own->tokenizer->description, ") than '",
                  stores.front().prefix(), "' (", merged.tokenizer->description, ")");
  }
  if (!all_same) merged.tokenizer.reset();
  merged.options = {{"merged from", join(sources, " ")}};
  return merged;
}

}  // namespace

std::vector<std::string> prefixes_in(const std::string& folder, Problems& problems) {
  std::set<std::string> prefixes;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  if (error) {
    problems.add("cannot read the folder '", folder, "': ", error.message());
    return {};
  }
  for (const auto end = std::filesystem::directory_iterator(); entry != end; entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() == ".idx" || path.extension() == ".bin")
      prefixes.insert((std::filesystem::path(folder) / path.stem()).string());
  }
  for (auto prefix = prefixes.begin(); prefix != prefixes.end();) {
    // Of "x.bin" and "x.bin.idx" the longer gives a prefix that is not a data set of its own.
    const bool is_long_index = prefix->ends_with(".bin") && prefixes.contains(prefix->substr(0, prefix->size() - 4)) &&
                               !std::filesystem::exists(*prefix + ".bin");
    prefix = is_long_index ? prefixes.erase(prefix) : std::next(prefix);
  }
  for (const std::string& prefix : prefixes)
    if (!find_token_files(prefix)) problems.add(describe_missing(prefix));
  if (prefixes.empty()) problems.add("there is no token file in '", folder, "'");
  return {prefixes.begin(), prefixes.end()};
}

MergeSummary merge(const std::vector<std::string>& prefixes, const std::string& output_prefix, bool overwrite) {
  ESPALIER_CHECK(!prefixes.empty());
  std::vector<TokenStore> stores;
  int64_t num_bytes = 0;
  for (const std::string& prefix : prefixes) {
    stores.emplace_back(prefix);
    num_bytes += stores.back().num_bytes();
  }
  refuse_output_among_inputs(stores, output_prefix);
  refuse_other_types(stores);
  refuse_existing(output_prefix, overwrite);
  Progress progress("merge", num_bytes, Progress::Unit::kBytes);
  TokenStoreWriter writer(output_prefix, stores.front().type());
  refuse_existing(output_prefix, overwrite);  // another process may have just finished
  for (const TokenStore& store : stores) writer.append(store, [&](int64_t bytes) { progress.advance(bytes); });
  const StoreMetadata metadata = merged_metadata(stores, writer);
  writer.prepare();
  const UninterruptedSteps together;
  writer.finish();
  write_metadata(output_prefix, metadata);
  progress.finish();
  return {writer.num_documents(), writer.num_sequences(), writer.num_tokens(), num_bytes};
}

}  // namespace espalier::data
