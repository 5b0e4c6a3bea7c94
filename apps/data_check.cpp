// espalier data check and merge.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data/store_report.h"
#include "data_commands.h"
#include "tokenizer_options.h"

namespace espalier {
namespace {

int64_t token_bytes(const data::TokenStore& store) { return static_cast<int64_t>(store.token_bytes().size()); }

struct CheckRequest {
  std::vector<std::string> prefixes;
  std::optional<int64_t> vocab_size;
  text::TokenizerOptions tokenizer;
  bool json = false;
};

void check_store(const std::string& prefix, const CheckRequest& request) {
  const data::TokenStore store(prefix);
  store.check_all();
  Progress progress("check " + prefix, token_bytes(store), Progress::Unit::kBytes);
  const data::IdRange ids = data::check_ids(store, request.vocab_size, progress);
  progress.finish();
  if (request.json) {
    const nlohmann::ordered_json result = {{"prefix", prefix},
                                           {"documents", store.num_documents()},
                                           {"sequences", store.num_sequences()},
                                           {"tokens", store.num_tokens()},
                                           {"smallest_id", ids.smallest},
                                           {"largest_id", ids.largest},
                                           {"ok", true}};
    std::puts(result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return;
  }
  std::printf("%s: ok, %s documents, %s tokens, ids %lld to %lld\n", prefix.c_str(),
              format_count(store.num_documents()).c_str(), format_count(store.num_tokens()).c_str(),
              static_cast<long long>(ids.smallest), static_cast<long long>(ids.largest));
}

}  // namespace

int data_check_main(const std::vector<std::string>& arguments) {
  CheckRequest request;
  OptionTable table("espalier data check", "Reads token files whole and stops at the first thing that is wrong.");
  table.positional("PREFIX", request.prefixes, "data sets, named by what .bin and .idx share", 1, SIZE_MAX);
  table.add("--vocab-size", request.vocab_size, "every id must be below; or name the tokenizer").minimum(1);
  table.add("--json", request.json, "one JSON object a data set, on a line of its own");
  table.group("tokenizer");
  add_tokenizer_options(table, request.tokenizer);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if (!request.tokenizer.type.empty()) {
    if (request.vocab_size) problems.add("--vocab-size and --tokenizer-type say the same thing; give one of them");
    if (const auto tokenizer = load_tokenizer(request.tokenizer, problems))
      request.vocab_size = tokenizer->vocab_size();
  }
  problems.raise();
  for (const std::string& prefix : request.prefixes) check_store(prefix, request);
  return 0;
}

int data_merge_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> inputs;
  std::string output;
  OptionTable table("espalier data merge", "Appends token files to one another, without reading their tokens.");
  table.allow_prefixes();
  table.add("--datasets", inputs, "prefixes of the data sets, in the order they are to have")
      .value_name("PREFIX")
      .required();
  table.add("--output-prefix", output, "prefix of the new data set").value_name("PREFIX").required();
  const std::string no_processes = "one process copies as fast as the disk writes";
  table.add_without_effect("--merge", OptionTable::Takes::kOne, no_processes);
  table.add_without_effect("--torch-backend", OptionTable::Takes::kOne, no_processes);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  problems.raise();

  // All are opened before anything is written: a damaged one stops the merge at once.
  std::vector<data::TokenStore> stores;
  int64_t total = 0;
  for (const std::string& prefix : inputs) {
    stores.emplace_back(prefix);
    total += token_bytes(stores.back());
  }
  Progress progress("merge", total, Progress::Unit::kBytes);
  data::TokenStoreWriter writer(output, stores.front().type());
  for (const data::TokenStore& store : stores) {
    writer.append(store);
    progress.advance(token_bytes(store));
  }
  writer.finish();
  progress.finish();
  log_info("wrote ", output, ".{bin,idx}: ", format_count(writer.num_documents()), " documents, ",
           format_count(writer.num_tokens()), " tokens from ", stores.size(), " data sets");
  return 0;
}

}  // namespace espalier
