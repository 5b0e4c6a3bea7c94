// espalier retro chunks: what an external encoder has to turn into vectors.
#include <cstdio>

#include "apps/print_json.h"
#include "apps/retro/commands.h"
#include "apps/tokenizer/run_tokenizer.h"
#include "base/format.h"
#include "data/gpt_dataset.h"
#include "retrieval/chunk_database.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
enum class ChunkSet { kDatabase, kTrain, kValid, kTest };

struct ShownChunks {
  config::RunConfig config;
  ChunkSet set = ChunkSet::kDatabase;
  int64_t first = 0;
  std::optional<int64_t> count;
  bool json = false;
};

void print_chunk(int64_t id, const std::vector<int64_t>& ids, const ShownChunks& shown,
                 const text::Tokenizer* tokenizer) {
  const std::string text =
      tokenizer != nullptr ? tokenizer->decode(std::vector<int32_t>(ids.begin(), ids.end())) : std::string();
  if (!shown.json) {
    std::printf("=== chunk %lld ===\n%s\n", static_cast<long long>(id), text.c_str());
    return;
  }
  Json object{{"id", id}, {"ids", ids}};
  if (tokenizer != nullptr) object["text"] = text;
  std::puts(object.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

int64_t end_of(const ShownChunks& shown, int64_t size) {
  if (shown.first > size) throw UserError(concat("--first ", shown.first, ": there are ", size, " chunks"));
  return shown.count ? std::min(size, shown.first + *shown.count) : size;
}

void print_database(const ShownChunks& shown, const text::Tokenizer* tokenizer) {
  const retrieval::ChunkDatabase chunks(shown.config.model.as<families::RetroSettings>().workdir);
  std::vector<int64_t> ids(static_cast<size_t>(chunks.chunk_length()));
  for (int64_t id = shown.first; id < end_of(shown, chunks.size()); ++id) {
    const retrieval::ChunkDatabase::Place place = chunks.place(id);
    chunks.read(place, 1, ids.data());
    print_chunk(id, {ids.begin(), ids.begin() + place.length}, shown, tokenizer);
  }
}

void print_samples(const ShownChunks& shown, const text::Tokenizer* tokenizer) {
  const data::DataSetOptions options = families::retro_data_sets(config::data_sets(shown.config), shown.config);
  const data::GptDataSets sets = data::GptDataSets::open(options);
  const auto& groups = shown.set == ChunkSet::kValid ? sets.valid : sets.test;
  if (shown.set != ChunkSet::kTrain && groups.size() != 1)
    throw UserError(concat("expected one set of that kind, found ", groups.size()), ExitCode::kUsage);
  const data::GptDataset& samples = shown.set == ChunkSet::kTrain ? *sets.train : *groups.front();
  const int64_t length = shown.config.model.as<families::RetroSettings>().shape.chunk_length;
  const int64_t of_sample = samples.sequence_length() / length;
  std::vector<int64_t> ids(static_cast<size_t>(samples.sequence_length()) + 1);
  for (int64_t id = shown.first; id < end_of(shown, samples.size() * of_sample); ++id) {
    samples.sample(id / of_sample, ids);
    const auto begin = ids.begin() + id % of_sample * length;
    print_chunk(id, {begin, begin + length}, shown, tokenizer);
  }
}

}  // namespace

int retro_chunks_main(const std::vector<std::string>& arguments) {
  ShownChunks shown;
  OptionTable table("espalier retro chunks",
                    "Prints chunks with the numbers that 'espalier retro build' expects as ids of their vectors. Takes "
                    "the flags of 'espalier train retro'.");
  Problems problems;
  const auto add_rows = [&](OptionTable& rows) {
    rows.group("chunks");
    rows.add_choice("--set", shown.set,
                    {{"db", ChunkSet::kDatabase},
                     {"train", ChunkSet::kTrain},
                     {"valid", ChunkSet::kValid},
                     {"test", ChunkSet::kTest}},
                    "the chunks among which neighbours are found, or those of the samples of a set")
        .not_in_recipe();
    rows.add("--first", shown.first, "number of the first chunk, from 0").minimum(0).not_in_recipe();
    rows.add("--count", shown.count, "how many").minimum(0).default_text("all").not_in_recipe();
    rows.add("--json", shown.json, "one line per chunk: id, ids and, with a tokenizer, text").not_in_recipe();
  };
  if (!read_retro_flags(arguments, table, shown.config, add_rows, problems)) return 0;
  const std::unique_ptr<text::Tokenizer> tokenizer = load_run_tokenizer(shown.config.tokenizer);
  if (tokenizer == nullptr && !shown.json)
    problems.add("chunks are shown as text: give --tokenizer-type and its files, or --json for ids");
  problems.raise();
  if (shown.set == ChunkSet::kDatabase)
    print_database(shown, tokenizer.get());
  else
    print_samples(shown, tokenizer.get());
  return 0;
}

}  // namespace espalier
